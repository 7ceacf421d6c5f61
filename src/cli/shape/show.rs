//! `shape`: a model's declaration, in any of the forms that declare it, or its parameters.
//!
//! In: a Shape. Out: attributes, TOML or flat text, each of which parses back to the Shape; or a table.

use super::super::table::{Row, Side, Table};
use super::super::{Declared, Outcome, units};
#[cfg(feature = "render")]
use super::Named;
use super::ShapeArguments;
use crate::environment::Environment;
use crate::terminal::line;
use clap::Args;
use kernwright_plan::shape::Shape;
use std::process::ExitCode;

/// Flags of `shape`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Without a flag it prints the attributes. What is as it would be without being said is left out; `--text` says all.

Examples:
  kernwright shape --preset llama-1b
  kernwright shape --preset llama-1b --toml > mine.toml
  kernwright plan --shape mine.toml
  kernwright shape --preset gpt2-124m --parameters")]
pub(in super::super) struct Arguments {
    #[command(flatten)]
    shape: ShapeArguments,
    #[command(flatten)]
    form: Form,
}

#[derive(Clone, Copy, Debug, Args)]
#[group(multiple = false)]
struct Form {
    /// Print the attributes of a struct
    #[arg(long)]
    attribute: bool,
    /// Print a file for `--shape`
    #[arg(long)]
    toml: bool,
    /// Print the canonical text: every field, a line each
    #[arg(long)]
    text: bool,
    /// Print the trained tensors and how many values they have
    #[arg(long)]
    parameters: bool,
}

/// Runs it.
pub(in super::super) fn run(
    arguments: &Arguments,
    declared: Option<Declared>,
    _environment: &Environment,
) -> Outcome {
    let named = arguments.shape.resolve(declared)?;
    let text = if arguments.form.parameters {
        parameters(&named.shape).join("\n")
    } else if arguments.form.text {
        format!("{}{}", named.shape.text(), named.shape.targets_text())
    } else if arguments.form.toml {
        toml(&named)?
    } else {
        attributes(&named)?
    };
    line(text.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

/// A struct with its attributes.
#[cfg(feature = "render")]
pub(in super::super) fn attributes(named: &Named) -> Result<String, String> {
    use kernwright_codegen::print;
    let attributes = print::attributes(&print::brief(&named.shape));
    Ok(format!("#[derive(kernwright::Transformer)]\n{attributes}pub struct {};\n", struct_name(&named.name)))
}

/// A file for `--shape`.
#[cfg(feature = "render")]
pub(in super::super) fn toml(named: &Named) -> Result<String, String> {
    use kernwright_codegen::print;
    Ok(print::toml(&print::brief(&named.shape)))
}

#[cfg(not(feature = "render"))]
pub(in super::super) use unavailable::{attributes, toml};

#[cfg(not(feature = "render"))]
mod unavailable {
    use super::super::Named;

    pub(in super::super::super) fn attributes(_: &Named) -> Result<String, String> {
        Err("this program was built without the feature `render`: only `--text` and `--parameters` work"
            .into())
    }

    pub(in super::super::super) fn toml(named: &Named) -> Result<String, String> {
        attributes(named)
    }
}

/// A Rust name for a model: `Llama1b` for `llama-1b`.
pub(in super::super) fn struct_name(name: &str) -> String {
    let words = name.split(|sign: char| !sign.is_ascii_alphanumeric());
    let capital = |word: &str| {
        let mut signs = word.chars();
        signs.next().map_or(String::new(), |first| first.to_ascii_uppercase().to_string() + signs.as_str())
    };
    let name: String = words.map(capital).collect();
    match name.chars().next() {
        Some(first) if first.is_ascii_alphabetic() && name != "Self" => name,
        _ => format!("Model{name}"),
    }
}

/// A table: each tensor of what is not in a layer, and those of the layers by their kind.
fn parameters(shape: &Shape) -> Vec<String> {
    let columns = vec![
        ("parameter", Side::Left),
        ("shape", Side::Left),
        ("values", Side::Right),
        ("layers", Side::Right),
    ];
    let mut rows: Vec<(String, String, usize, usize)> = Vec::new();
    for parameter in shape.parameters() {
        let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        let name: Vec<_> =
            parameter.name.split('.').map(|part| if is_number(part) { "*" } else { part }).collect();
        let (name, sizes) =
            (name.join("."), parameter.shape.iter().map(ToString::to_string).collect::<Vec<_>>());
        let sizes = sizes.join(" x ");
        let n_values = parameter.shape.iter().product();
        match rows.iter_mut().find(|row| row.0 == name && row.1 == sizes) {
            Some(row) => row.3 += 1,
            None => rows.push((name, sizes, n_values, 1)),
        }
    }
    let row = |(name, sizes, n_values, times): &(String, String, usize, usize)| {
        let times = if *times > 1 { times.to_string() } else { String::new() };
        Row::Cells(vec![name.clone(), sizes.clone(), units::grouped(*n_values), times])
    };
    let mut lines = Table { columns, rows: rows.iter().map(row).collect() }.lines();
    lines.push(format!("\n{} parameters", units::grouped(shape.n_parameters())));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_models_name_becomes_one_of_a_struct() {
        for (name, wanted) in [
            ("llama-1b", "Llama1b"),
            ("qwen2.5-0.5b", "Qwen2505b"),
            ("Brain", "Brain"),
            ("1b", "Model1b"),
            ("self", "ModelSelf"),
            ("hirn-größe", "HirnGrE"),
            ("", "Model"),
        ] {
            assert_eq!(struct_name(name), wanted, "{name}");
        }
    }
}
