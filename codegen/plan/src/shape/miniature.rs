//! Small shapes that between them launch every kernel of a large one.
//!
//! In: a Shape. Out: [`Miniature`]s. A kernel depends on few dimensions, those its columns are made of: each miniature
//! keeps some as they are and makes the others small, so that a vocabulary of 256,000 is never beside a stream of 2304.
//! What reads them compares kernels by name, and so finds out if one is missing.

use super::{Attention, FeedForward, Shape};

/// A Shape with little work in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Miniature {
    /// What is as in the Shape it was made from.
    pub keeps: &'static str,
    /// The Shape.
    pub shape: Shape,
    /// Tokens per sequence that are enough for every path of its kernels: odd, and for attention more than the rows of a
    /// tile.
    pub length: usize,
}

/// Widths of what is made small: such as kernels take, and none a power of two.
const D_MODEL: usize = 24;
const D_FF: usize = 40;
const VOCAB: usize = 331;
/// The head alone multiplies by every token, so there its rows are as narrow as can be.
const HEAD_D_MODEL: usize = 8;

impl Shape {
    /// The same with as few blocks as have every kind of block, and every neighbour that a block can have.
    #[must_use]
    pub fn shallow(&self) -> Self {
        Self { layers: self.layers.min(self.pattern.len().max(2)), ..self.clone() }
    }

    /// The miniatures, those with the fewest values first.
    #[must_use]
    pub fn miniatures(&self) -> Vec<Miniature> {
        let small = Self {
            d_model: self.d_model.min(D_MODEL),
            vocab: self.vocab.min(VOCAB),
            feed_forward: FeedForward { d_ff: self.feed_forward.d_ff.min(D_FF), ..self.feed_forward },
            ..self.shallow()
        };
        let one_group = Attention {
            heads: self.attention.heads / self.attention.kv_heads.max(1),
            kv_heads: 1,
            ..self.attention
        };
        let narrow = Self { attention: one_group, ..small.clone() };
        let of = |keeps, length, shape: Self| {
            let context = shape.context.min(length + 2);
            Miniature { keeps, length, shape: Self { context, ..shape } }
        };
        let d_model = self.d_model.min(HEAD_D_MODEL);
        vec![
            of("heads", 131, small),
            of("d_model", 37, Self { d_model: self.d_model, ..narrow.clone() }),
            of("d_ff", 37, Self { feed_forward: self.feed_forward, ..narrow.clone() }),
            of("vocab", 9, Self { vocab: self.vocab, d_model, ..narrow }),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::super::presets;
    use crate::Options;
    use crate::arch;
    use crate::kernels::of_plan;
    use crate::passes::forward::Head;
    use crate::passes::{forward_step, train_step};
    use crate::shape::Shape;
    use crate::spec::KernelSpec;
    use std::collections::BTreeSet;

    fn names(shape: &Shape, options: &Options, arch: &arch::Arch) -> BTreeSet<String> {
        let plans = [train_step(shape, options, 1, 1), forward_step(shape, options, 1, 1, Head::Logits(1))];
        plans.iter().flat_map(|plan| of_plan(plan, arch)).map(|spec| KernelSpec::name(&spec)).collect()
    }

    #[test]
    fn the_miniatures_of_every_preset_launch_all_of_its_kernels() {
        for preset in presets::ALL {
            let shape = preset.shape();
            for deterministic in [true, false] {
                let options = Options { deterministic, ..Options::default() };
                for arch in arch::ALL {
                    let whole = names(&shape.shallow(), &options, arch);
                    let parts = shape.miniatures();
                    let parts: BTreeSet<String> =
                        parts.iter().flat_map(|one| names(&one.shape, &options, arch)).collect();
                    let missing: Vec<_> = whole.difference(&parts).collect();
                    assert!(missing.is_empty(), "{} for {}: {missing:?}", preset.name, arch.name);
                }
            }
        }
    }

    #[test]
    fn a_miniature_holds_few_values() {
        for preset in presets::ALL {
            for one in preset.shape().miniatures() {
                let n = one.shape.n_parameters();
                assert!(n < 10_000_000, "{} of {}: {n}", one.keeps, preset.name);
            }
        }
    }
}
