//! In what a checkpoint's model differs from the one at hand.
//!
//! In: two shapes as lines of `path = value`. Out: an error that names the lines that differ.

use super::CheckpointError;
use crate::message::one_line;

/// Lines that are named; the others are counted.
const N_NAMED: usize = 3;

/// Compares the shape in a checkpoint with the one `here`. The order of lines and blanks does not matter.
pub fn check_shape(checkpoint: &str, here: &str) -> Result<(), CheckpointError> {
    let (theirs, ours) = (lines(checkpoint), lines(here));
    let value = |lines: &[(String, String)], path: &str| {
        lines.iter().find(|line| line.0 == path).map(|line| line.1.clone())
    };
    let mut differences = Vec::new();
    for (path, there) in &theirs {
        match value(&ours, path) {
            Some(here) if here == *there => {}
            Some(here) => differences.push(format!("`{path}` is `{there}` in the checkpoint, `{here}` here")),
            None => differences.push(format!("`{path}` is `{there}` in the checkpoint, not set here")),
        }
    }
    for (path, here) in &ours {
        if value(&theirs, path).is_none() {
            differences.push(format!("`{path}` is not set in the checkpoint, `{here}` here"));
        }
    }
    if differences.is_empty() {
        return Ok(());
    }
    let n_more = differences.len().saturating_sub(N_NAMED);
    differences.truncate(N_NAMED);
    let more = if n_more > 0 { format!("; and {n_more} more") } else { String::new() };
    let differences: Vec<_> = differences.iter().map(one_line).collect();
    Err(CheckpointError::Shape(differences.join("; ") + &more))
}

fn lines(shape: &str) -> Vec<(String, String)> {
    let lines = shape.lines().map(str::trim).filter(|line| !line.is_empty());
    let split = lines.map(|line| line.split_once('=').unwrap_or((line, "")));
    split.map(|(path, value)| (path.trim().to_owned(), value.trim().to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: &str = "model.layers = 4\nmodel.norm = rms(eps = 1e-5)\nmodel.tied = true\n";

    #[test]
    fn equal_shapes_pass_whatever_the_order_and_blanks() {
        let other = "model.tied=true\n\n  model.layers =  4\nmodel.norm = rms(eps = 1e-5)";
        check_shape(SHAPE, SHAPE).unwrap();
        check_shape(SHAPE, other).unwrap();
    }

    #[test]
    fn the_lines_that_differ_are_named() {
        let error = |here: &str| check_shape(SHAPE, here).unwrap_err().to_string();
        assert_eq!(
            error(&SHAPE.replace("= 4", "= 6")),
            "the checkpoint is of another model: `model.layers` is `4` in the checkpoint, `6` here"
        );
        assert_eq!(
            error("model.layers = 6\nmodel.norm = layer\nmodel.a = 1\nmodel.b = 2"),
            "the checkpoint is of another model: `model.layers` is `4` in the checkpoint, `6` here; `model.norm` is \
             `rms(eps = 1e-5)` in the checkpoint, `layer` here; `model.tied` is `true` in the checkpoint, not set \
             here; and 2 more"
        );
        assert!(error(&format!("{SHAPE}a = 1")).ends_with("`a` is not set in the checkpoint, `1` here"));
    }
}
