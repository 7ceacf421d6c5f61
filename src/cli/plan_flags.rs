//! Flags that decide how a step is planned: one list, for every command that plans one.
//!
//! In: flags, each of which may be left out. Out: options of a plan over those that a device asks for, or what is wrong
//! with them. They are keys of a run's file and are kept with its checkpoints, so that an absent one stays absent.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use kernwright_plan::Options;
use kernwright_plan::dtype::{self, Dtype};
use kernwright_plan::options::{AttentionPath, RunsOn};
use kernwright_plan::passes::{ABLATIONS, SWITCHES};
use kernwright_plan::shape::Shape;
use kernwright_runtime::gpu::products::Order;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;

/// How a step is planned, where that was said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PlanFlags {
    /// Element type of matrix operands; the CPU has fp32 alone [default: that of the shape, and fp32 on the CPU]
    #[arg(long, value_name = "TYPE", value_parser = precisions())]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) precision: Option<String>,
    /// Element type of the weights' gradients, which are summed over micro-batches: fp32, or the precision
    /// [default: fp32]
    #[arg(long, value_name = "TYPE", value_parser = precisions())]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) grad_dtype: Option<String>,
    /// How attention is computed on a GPU [default: fused]
    #[arg(long, value_name = "PATH", value_enum)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) attention: Option<Path>,
    /// Let faster kernels of a GPU add in any order: the same step may then differ in its last bits from run to run
    /// [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) nondeterministic: Option<bool>,
    /// Leave passes out of the plan; several between commas or repeated; none takes back what a file or a checkpoint left out
    /// [default: none]
    #[arg(long, value_name = "PASS", value_delimiter = ',', value_parser = named(SWITCHES))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) without: Option<Vec<String>>,
    /// Take the form that is measured against in place of the faster one; several between commas or repeated, or none
    /// [default: none]
    #[arg(long, value_name = "FORM", value_delimiter = ',', value_parser = named(ABLATIONS))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) with: Option<Vec<String>>,
    /// Rows of logits that exist at once in the loss [default: as many as 512 MiB hold]
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u32).range(1..))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) head_chunk: Option<u32>,
}

/// Values of `--attention`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Path {
    /// In one kernel that never writes the scores; with fp32 operands split
    #[default]
    Fused,
    /// A product, a softmax and a product, with the scores in memory
    Split,
}

impl From<Path> for AttentionPath {
    fn from(path: Path) -> Self {
        match path {
            Path::Fused => Self::Fused,
            Path::Split => Self::Split,
        }
    }
}

impl PlanFlags {
    /// The options of a plan of this Shape, over those that a device asks for.
    ///
    /// # Errors
    /// A type that a flag may not have there, in words.
    pub(super) fn options(&self, of_device: &Options, shape: &Shape) -> Result<Options, String> {
        self.check()?;
        let options = Options {
            precision: self.precision.as_deref().and_then(Dtype::precision).or(of_device.precision),
            gradient: self.grad_dtype.as_deref().and_then(Dtype::precision).unwrap_or(of_device.gradient),
            attention: self.attention.unwrap_or_default().into(),
            deterministic: !self.is_free(),
            without: listed(&self.without),
            with: listed(&self.with),
            head_chunk: self.head_chunk.map(|rows| rows as usize).or(of_device.head_chunk),
            ..of_device.clone()
        };
        if options.runs_on == RunsOn::Host {
            let types = [("--precision", options.precision(shape)), ("--grad-dtype", options.gradient)];
            if let Some((flag, found)) = types.into_iter().find(|(_, found)| *found != Dtype::Fp32) {
                let (fp32, found) = (Dtype::Fp32.name(), found.name());
                return Err(format!("`{flag}` must be `{fp32}` on the CPU, found `{found}`"));
            }
        }
        options.check_gradient(shape).map_err(|problem| format!("`--grad-dtype`: {problem}"))?;
        Ok(options)
    }

    /// Holds values that no command line brought, such as those of a checkpoint, to what one may have.
    fn check(&self) -> Result<(), String> {
        for (flag, found) in [("precision", &self.precision), ("grad-dtype", &self.grad_dtype)] {
            if let Some(found) = found.as_ref().filter(|found| Dtype::precision(found).is_none()) {
                let names: Vec<_> =
                    dtype::ALL.iter().filter(|row| row.is_precision).map(|row| row.name).collect();
                return Err(format!("`--{flag}` must be one of `{}`, found `{found}`", names.join("`, `")));
            }
        }
        for (flag, found, all) in [("without", &self.without, SWITCHES), ("with", &self.with, ABLATIONS)] {
            let found = found.as_deref().unwrap_or_default();
            let names: Vec<_> = all.iter().map(|(name, _)| *name).collect();
            if let Some(found) =
                found.iter().find(|found| **found != NONE && !names.contains(&found.as_str()))
            {
                return Err(format!("`--{flag}` must be of `{}`, found `{found}`", names.join("`, `")));
            }
            if found.len() > 1 && found.iter().any(|found| found == NONE) {
                return Err(format!("`--{flag} {NONE}` must stand alone, found `{}`", found.join(",")));
            }
        }
        Ok(())
    }

    /// May a step differ in its last bits from run to run?
    pub(super) fn is_free(&self) -> bool {
        self.nondeterministic.unwrap_or(false)
    }

    /// The order in which products may add.
    pub(super) fn order(&self) -> Order {
        if self.is_free() { Order::Free } else { Order::Fixed }
    }

    /// These over `others`, which were given elsewhere; `overridden` is told the names of what gives way to a flag here.
    pub(super) fn over(self, others: Self, mut overridden: impl FnMut(&'static str)) -> Self {
        macro_rules! over {
            ($($field:ident),*) => {
                Self { $($field: {
                    if self.$field.is_some() {
                        overridden(stringify!($field));
                    }
                    self.$field.or(others.$field)
                }),* }
            };
        }
        over!(precision, grad_dtype, attention, nondeterministic, without, with, head_chunk)
    }

    /// The flags that say the same.
    pub(super) fn flags(&self) -> Vec<OsString> {
        use clap::ValueEnum as _;
        let Self { precision, grad_dtype, attention, nondeterministic, without, with, head_chunk } = self;
        let attention = attention.and_then(|path| path.to_possible_value());
        let list = |names: &Option<Vec<String>>| names.as_ref().map(|names| names.join(","));
        let values = [
            ("precision", precision.clone()),
            ("grad-dtype", grad_dtype.clone()),
            ("attention", attention.map(|value| value.get_name().to_owned())),
            ("nondeterministic", nondeterministic.map(|is| is.to_string())),
            ("without", list(without)),
            ("with", list(with)),
            ("head-chunk", head_chunk.map(|rows| rows.to_string())),
        ];
        values.into_iter().filter_map(|(name, value)| Some(format!("--{name}={}", value?).into())).collect()
    }
}

/// Element types that matrix operands may have.
pub(super) fn precisions() -> PossibleValuesParser {
    PossibleValuesParser::new(dtype::ALL.iter().filter(|row| row.is_precision).map(|row| row.name))
}

/// The value of a list that is empty.
const NONE: &str = "none";

fn named(all: &'static [(&str, &str)]) -> PossibleValuesParser {
    let none = PossibleValue::new(NONE).help("nothing, whatever a file or a checkpoint says");
    let all = all.iter().map(|(name, about)| PossibleValue::new(*name).help(*about));
    PossibleValuesParser::new(all.chain([none]))
}

fn listed(names: &Option<Vec<String>>) -> Vec<String> {
    names.iter().flatten().filter(|name| *name != NONE).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use kernwright_plan::shape::presets;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        flags: PlanFlags,
    }

    fn parsed<S: Into<OsString> + Clone>(words: impl IntoIterator<Item = S>) -> PlanFlags {
        let words = words.into_iter().map(Into::into);
        Program::try_parse_from(std::iter::once("program".into()).chain(words)).expect("it parses").flags
    }

    fn all() -> PlanFlags {
        parsed([
            "--precision=fp16",
            "--grad-dtype=fp16",
            "--attention=split",
            "--nondeterministic",
            "--without=residual_in_linear,narrow_gradient",
            "--without=narrow_producers",
            "--with=residual_copy",
            "--head-chunk=48",
        ])
    }

    #[test]
    fn every_flag_reaches_the_plan() {
        let shape = presets::find("tiny").expect("it is a preset").shape();
        let of_device = Options { multiprocessors: Some(7), ..Options::default() };
        let expected = Options {
            precision: Dtype::precision("fp16"),
            gradient: Dtype::precision("fp16").expect("it is one"),
            attention: AttentionPath::Split,
            deterministic: false,
            without: ["residual_in_linear", "narrow_gradient", "narrow_producers"]
                .map(str::to_owned)
                .to_vec(),
            with: vec!["residual_copy".to_owned()],
            head_chunk: Some(48),
            ..of_device.clone()
        };
        assert_eq!(all().options(&of_device, &shape), Ok(expected));
        assert_eq!(PlanFlags::default().options(&of_device, &shape), Ok(of_device));
    }

    #[test]
    fn flags_are_said_again_kept_and_overridden_one_by_one() {
        assert_eq!(parsed(all().flags()), all());
        assert_eq!(parsed(PlanFlags::default().flags()), PlanFlags::default());
        let kept = serde_json::to_value(all()).expect("it is data");
        assert_eq!(serde_json::from_value::<PlanFlags>(kept).ok(), Some(all()));
        assert_eq!(serde_json::to_string(&PlanFlags::default()).ok().as_deref(), Some("{}"));
        let mut named = Vec::new();
        let flags = parsed(["--attention=fused", "--head-chunk=3"]).over(all(), |name| named.push(name));
        let expected = PlanFlags { attention: Some(Path::Fused), head_chunk: Some(3), ..all() };
        assert_eq!((flags, named), (expected, vec!["attention", "head_chunk"]));
    }

    #[test]
    fn none_takes_back_what_was_left_out_and_must_stand_alone() {
        let shape = presets::find("tiny").expect("it is a preset").shape();
        let over = parsed(["--without=none", "--with=none"]).over(all(), |_| {});
        let options = over.options(&Options::default(), &shape).expect("it is right");
        assert_eq!((options.without.len(), options.with.len()), (0, 0));
        let error = parsed(["--without=none,narrow_producers"]).options(&Options::default(), &shape);
        let expected = "`--without none` must stand alone, found `none,narrow_producers`";
        assert_eq!(error.err().as_deref(), Some(expected));
    }

    #[test]
    fn what_a_checkpoint_brings_is_held_to_what_a_flag_may_be() {
        let shape = presets::find("tiny").expect("it is a preset").shape();
        for (kept, wanted) in [
            (r#"{"grad_dtype": "fp8"}"#, "`--grad-dtype` must be one of `fp32`"),
            (r#"{"precision": "fp8"}"#, "`--precision` must be one of `fp32`"),
            (r#"{"without": ["foo"]}"#, "`--without` must be of `residual_in_linear`"),
            (r#"{"with": ["foo"]}"#, "`--with` must be of `residual_copy`"),
        ] {
            let flags: PlanFlags = serde_json::from_str(kept).expect("it is data");
            let error = flags.options(&Options::default(), &shape).expect_err(kept);
            assert!(error.starts_with(wanted), "{error}");
        }
    }

    #[test]
    fn types_that_a_device_has_not_are_refused() {
        let shape = presets::find("tiny").expect("it is a preset").shape();
        let error = |words: &[&str], of_device: &Options| {
            parsed(words.iter().copied()).options(of_device, &shape).expect_err("it is wrong")
        };
        let host = Options::host();
        for (flag, words) in [
            ("--precision", &["--precision=bf16"][..]),
            ("--grad-dtype", &["--grad-dtype=bf16"]),
            ("--precision", &["--precision=bf16", "--grad-dtype=bf16"]),
        ] {
            let expected = format!("`{flag}` must be `fp32` on the CPU, found `bf16`");
            assert_eq!(error(words, &host), expected);
        }
        let found = error(&["--precision=fp16", "--grad-dtype=bf16"], &Options::default());
        assert!(found.starts_with("`--grad-dtype`: ") && found.contains("`fp16`"), "{found}");
    }
}
