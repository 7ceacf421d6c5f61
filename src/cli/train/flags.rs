//! The flags of `train` that are also the keys of its file: one list for both.

use super::batch::Batch;
use crate::cli::plan_flags::PlanFlags;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use kernwright_model::schedule::{FORMS, Form};
use std::path::PathBuf;

/// Flags that may be left out. Each is a key of `--config` too, with `_` for `-`.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub(crate) struct Flags {
    /// Text (a file or a folder; bytes are the tokens) or a .bin of u16 tokens [default: the built-in text]
    #[arg(long, value_name = "PATH")]
    pub(super) data: Option<PathBuf>,
    /// Steps of the whole run [default: 500]
    #[arg(long, value_name = "N")]
    pub(super) steps: Option<u64>,
    /// Sequences per micro-batch: a number; auto, the most that fit into memory; fastest, of the powers of two that fit
    /// the one with the most tokens per second [default: 8]
    #[arg(long, value_name = "N", value_parser = Batch::parse)]
    pub(super) batch: Option<Batch>,
    /// Tokens per sequence; a resumed run keeps it [default: 256, or the model's context if that is less]
    #[arg(long, value_name = "N")]
    pub(super) length: Option<usize>,
    /// Micro-batches per step; their gradient is that of one large batch [default: 1]
    #[arg(long, value_name = "N")]
    pub(super) accumulate: Option<usize>,
    /// The highest learning rate [default: 3e-3]
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    pub(super) learning_rate: Option<f64>,
    /// Steps over which the learning rate rises [default: a tenth of the steps, at most 100]
    #[arg(long, value_name = "N")]
    pub(super) warmup: Option<u64>,
    /// How the learning rate moves after the warm-up [default: cosine]
    #[arg(long, value_name = "NAME", value_parser = forms())]
    pub(super) schedule: Option<Form>,
    /// The last learning rate over the highest [default: 0.1]
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    pub(super) final_rate: Option<f64>,
    /// The share of the run over which the schedule wsd falls [default: 0.1]
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    pub(super) decay_fraction: Option<f64>,
    /// Decoupled weight decay, of matrices only [default: 0.1]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub(super) weight_decay: Option<f64>,
    /// Greatest norm of the whole gradient, 0 for no limit [default: 1.0]
    #[arg(long, value_name = "NORM", allow_negative_numbers = true)]
    pub(super) clip: Option<f64>,
    /// Adds X times the square of the logits' log-sum-exp to the training loss, as in 1e-4 [default: 0]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub(super) z_loss: Option<f64>,
    #[command(flatten)]
    pub(super) plan: PlanFlags,
    /// Seed of weights and data order; a resumed run keeps it [default: 0]
    #[arg(long, value_name = "N")]
    pub(super) seed: Option<u64>,
    /// Validate after every N steps, 0 only at the end [default: 100]
    #[arg(long, value_name = "N")]
    pub(super) eval_every: Option<u64>,
    /// Most batches of a validation [default: 32]
    #[arg(long, value_name = "N")]
    pub(super) eval_batches: Option<usize>,
    /// Save after every N steps, 0 only at the end [default: 100]
    #[arg(long, value_name = "N")]
    pub(super) save_every: Option<u64>,
}

fn forms() -> impl TypedValueParser<Value = Form> {
    let values = FORMS.map(|(_, name, about)| PossibleValue::new(name).help(about));
    PossibleValuesParser::new(values).map(|found| {
        FORMS.iter().find(|(_, name, _)| *name == found).map_or_else(Form::default, |(form, ..)| *form)
    })
}

impl Flags {
    /// These over `file`; `overridden` is told the keys of the file that a flag overrides.
    pub(super) fn over(self, file: Self, mut overridden: impl FnMut(&'static str)) -> Self {
        macro_rules! over {
            ($($field:ident),*) => {
                Self {
                    $($field: {
                        if self.$field.is_some() {
                            overridden(stringify!($field));
                        }
                        self.$field.or(file.$field)
                    },)*
                    plan: self.plan.over(file.plan, overridden),
                }
            };
        }
        over!(
            data,
            steps,
            batch,
            length,
            accumulate,
            learning_rate,
            warmup,
            schedule,
            final_rate,
            decay_fraction,
            weight_decay,
            clip,
            z_loss,
            seed,
            eval_every,
            eval_batches,
            save_every
        )
    }
}
