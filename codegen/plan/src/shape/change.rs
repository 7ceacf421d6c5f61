//! A Shape with some fields changed: what `--set model.layers=4` does.
//!
//! In: a Shape and fields. Out: the Shape that has those values and its own otherwise, or every problem there is.

use super::{Shape, parse};
use crate::field::{Field, Problem, Value, read_text};
use crate::ops::activation::ActivationKind;

impl Shape {
    /// The Shape with these fields in place of its own. What contradicts a change makes way for it: the activation there
    /// was, the other mask, settings of what is switched off.
    ///
    /// # Errors
    /// As [`parse`]: problems of the Shape that comes of it.
    pub fn with(&self, changes: &[Field]) -> Result<Self, Vec<Problem>> {
        let mut fields = read_text(&format!("{}{}", self.text(), self.targets_text()));
        for change in changes {
            fields.retain(|field| !makes_way(field, change));
            fields.push(change.clone());
        }
        parse(&fields)
    }
}

/// Is what a field says overruled by a change?
fn makes_way(field: &Field, change: &Field) -> bool {
    let (path, new) = (field.path.as_str(), change.path.as_str());
    let is_below = path.strip_prefix(new).is_some_and(|rest| rest.starts_with('.'));
    let is_off = matches!(&change.value, Value::Word(word) if word == "false" || word == "none");
    path == new
        || (is_below && (is_off || new.ends_with(".scaling") || new.ends_with(".window")))
        || (!is_off && excludes(new, path))
}

/// Does one field leave no room for the other?
fn excludes(one: &str, other: &str) -> bool {
    let is_activation = |path: &str| {
        let name = path.strip_prefix("feed_forward.");
        name.is_some_and(|name| ActivationKind::ALL.iter().any(|kind| kind.name() == name))
    };
    let is_mask = |path: &str| path == "attention.causal" || path == "attention.full";
    let is_side =
        |one: &str, other: &str| other.ends_with(".window") && one.starts_with(&format!("{other}."));
    one != other
        && ((is_activation(one) && is_activation(other))
            || (is_mask(one) && is_mask(other))
            || is_side(one, other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::attention::Window;
    use crate::shape::presets;

    fn changed(preset: &str, text: &str) -> Result<Shape, Vec<Problem>> {
        presets::find(preset).expect("it is a preset").shape().with(&read_text(text))
    }

    #[test]
    fn a_change_takes_the_place_of_what_it_contradicts() {
        for (change, expected) in [
            ("model.layers = 3", "model.layers = 3\n"),
            ("model.residual = bf16", "model.residual = bf16\n"),
            ("attention.full", "attention.full = true\n"),
            ("feed_forward.gelu", "feed_forward.gelu = true\n"),
            ("attention.rope.theta = 500.0", "attention.rope.theta = 500.0\n"),
        ] {
            let before = presets::find("tiny").expect("it is a preset").shape();
            let after = changed("tiny", change).expect("it is a shape");
            assert!(after.text().contains(expected), "{change}: {}", after.text());
            let n_lines = before.text().lines().filter(|line| !after.text().contains(*line)).count();
            assert_eq!(n_lines, 1, "{change} changes one line: {}", after.text());
        }
        let near = changed("tiny", "attention.window = 9").expect("it is a shape");
        let sided = near.with(&read_text("attention.full\nattention.window.left = 3")).expect("it is one");
        assert_eq!(sided.attention.global.window, Some(Window { left: Some(3), right: None }));
        assert_eq!(sided.with(&read_text("attention.causal\nattention.window = 9")).as_ref(), Ok(&near));
        let without =
            changed("tiny", "attention.rope = false\nmodel.positions = learned").expect("it is one");
        assert!(!without.text().contains("rope"), "{}", without.text());
    }

    #[test]
    fn no_change_is_the_shape_itself_for_every_preset() {
        for preset in presets::ALL {
            assert_eq!(changed(preset.name, "").as_ref(), Ok(&preset.shape()), "{}", preset.name);
        }
    }

    #[test]
    fn a_change_is_held_to_the_rules_of_a_declaration() {
        let message = |text| changed("tiny", text).expect_err("it is wrong")[0].message.clone();
        assert!(message("model.layer = 3").contains("did you mean"), "{}", message("model.layer = 3"));
        assert!(message("attention.kv_heads = 3").contains("must divide `heads`"));
        assert!(message("model.layers = many").contains("`layers` must be"));
    }
}
