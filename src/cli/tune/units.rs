//! What is tuned: kernels of attention's passes over some shapes.
//!
//! In: the flags of a grid, or the plan of a model's training step. Out: a [`Unit`] for each kernel of each pass of each shape, in an
//! order that has those of one plan together.

use super::super::bench::Case;
use kernwright_plan::arch::Arch;
use kernwright_plan::dtype::Dtype;
use kernwright_plan::ops::Op;
use kernwright_plan::shape::Shape;
use kernwright_plan::tile::attention_backward_hopper::is_in_one_pass;
use kernwright_plan::tile::attention_backward_wide::WideBlocks;
use kernwright_plan::tile::{self, Tile as _};
use kernwright_plan::tuning::{KERNELS, Kernel, LENGTHS, When, kind_of};
use kernwright_plan::{Options, train_step};
use serde::Serialize;

/// A pass whose time counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(super) enum Pass {
    /// The output
    Forward,
    /// Gradients that have the same bits every time, the default in training
    Ordered,
    /// Gradients with that of queries added in any order, so that its last bits may differ from run to run
    Free,
}

/// A kernel that is tuned, in a pass over a shape.
#[derive(Clone, Copy)]
pub(super) struct Unit {
    pub(super) case: Case,
    pub(super) pass: Pass,
    pub(super) kernel: &'static Kernel,
}

/// Tokens of all sequences of a case, and columns of all its query heads: much work for any GPU.
const TOKENS: usize = 16_384;
const COLUMNS: usize = 1536;

/// Lengths of the grid, one of each kind.
pub(super) const GRID_LENGTHS: [u32; 3] = [1024, 4096, 16_384];
/// Widths of its heads.
pub(super) const GRID_HEADS: [u32; 5] = [64, 96, 128, 192, 256];
/// Query heads of a head of keys.
pub(super) const GRID_GROUPS: [u32; 3] = [1, 3, 4];

/// A shape of the grid: with so many query heads, or of so many columns.
pub(super) fn case([head_dim, group, length]: [usize; 3], heads: Option<usize>, mask: Case) -> Case {
    let kv_heads = match heads {
        Some(heads) => heads.div_ceil(group),
        None => (COLUMNS / head_dim / group).max(1),
    };
    Case { batch: (TOKENS / length).max(1), heads: kv_heads * group, kv_heads, length, head_dim, ..mask }
}

/// The shapes of attention in a training step, each once.
pub(super) fn of_model(shape: &Shape, batch: usize, length: usize) -> Vec<Case> {
    let plan = train_step(shape, &Options::default(), batch, length);
    let cases = plan.steps.iter().filter_map(|step| {
        let Op::Attention(op) = &step.op else { return None };
        Some(Case::of(op, plan.io(step).rows("q") / op.length.max(1)))
    });
    each_once(cases)
}

/// Those that differ, in the order of their first ones.
pub(super) fn each_once<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut once = Vec::new();
    for one in all {
        if !once.contains(&one) {
            once.push(one);
        }
    }
    once
}

/// The kernels of these passes over these shapes.
pub(super) fn units(cases: &[Case], passes: &[Pass], arch: &Arch) -> Vec<Unit> {
    let mut all = Vec::new();
    for case in cases {
        for pass in passes {
            let of = |kernel| Unit { case: *case, pass: *pass, kernel };
            let found = kernels(&of(&KERNELS[0]).op(), *pass, arch).into_iter().map(of);
            let is_same = |unit: &Unit, other: &Unit| {
                !unit.has_orders() && other.case == unit.case && other.kernel.name == unit.kernel.name
            };
            let new: Vec<Unit> = found.filter(|unit| !all.iter().any(|other| is_same(unit, other))).collect();
            all.extend(new);
        }
    }
    all
}

/// Kernels with tiles that a pass launches.
fn kernels(op: &tile::Op, pass: Pass, arch: &Arch) -> Vec<&'static Kernel> {
    let find = |name: &str| KERNELS.iter().find(|kernel| kernel.name == name);
    let own: &[&str] = match pass {
        Pass::Forward => &["attention_forward_hopper"],
        _ if is_in_one_pass(op.head_dim, op.capped) => &["attention_backward_hopper"],
        _ => &["attention_backward_wide"],
    };
    let plain: &[&str] = match pass {
        Pass::Forward => &["attention_forward"],
        Pass::Ordered => &["attention_backward_keys", "attention_backward_queries"],
        Pass::Free => &["attention_backward_keys"],
    };
    let of_gpu = own.iter().filter_map(|name| find(name)).find(|kernel| (kernel.of)(op, arch).is_some());
    match of_gpu {
        Some(kernel) => vec![kernel],
        None => plain.iter().filter_map(|name| find(name)).collect(),
    }
}

impl Unit {
    /// What its tile depends on.
    pub(super) fn op(&self) -> tile::Op {
        // A tile that is for bf16 alone is rejected of fp16 when it is compiled.
        self.case.op().for_tiles(Dtype::Bf16, self.case.batch, self.pass != Pass::Free)
    }

    /// What a row with its tile is for.
    pub(super) fn when(&self) -> When {
        let tile::Op { head_dim, group, heads: _, length, mask, capped, ordered, fixed: _ } = self.op();
        let is_gradient = self.pass != Pass::Forward;
        When {
            head_dim: head_dim..=head_dim,
            group,
            length: LENGTHS.iter().map(|(name, _)| *name).find(|name| *name == kind_of(length)),
            mask: Some(mask),
            softcap: capped,
            ordered: (is_gradient && self.has_orders()).then_some(ordered),
        }
    }

    /// Has its kernel one text for sums in one order and another for sums in any? That of wide heads adds nothing up in memory.
    fn has_orders(&self) -> bool {
        self.kernel.name != WideBlocks::KERNEL
    }

    /// The shape and the pass.
    pub(super) fn place(&self) -> String {
        let pass = match self.pass {
            Pass::Forward => "forward",
            Pass::Ordered => "ordered backward",
            Pass::Free => "free backward",
        };
        format!("{}, {}, {pass}", self.case.sizes(), self.case.mask())
    }

    /// What tells it from others in a file.
    pub(super) fn key(&self) -> String {
        format!("{}, {}", self.place(), self.kernel.name)
    }

    /// A tile in words: `keys 64, ring 2, turns`.
    pub(super) fn tile(&self, values: &[usize]) -> String {
        let axes = (self.kernel.axes)();
        let words = axes.iter().zip(values).filter_map(|((name, is_flag), value)| match (is_flag, value) {
            (true, 0) => None,
            (true, _) => Some((*name).to_owned()),
            (false, value) => Some(format!("{name} {value}")),
        });
        words.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernwright_plan::arch;
    use kernwright_plan::shape::presets;

    fn arch_of(name: &str) -> &'static Arch {
        arch::find(name).expect("it is a row")
    }

    #[test]
    fn a_pass_has_the_kernels_that_it_launches() {
        let names = |name: &str, head_dim| -> Vec<String> {
            let cases = [case([head_dim, 3, 1024], None, Case::CAUSAL)];
            let all = units(&cases, &[Pass::Forward, Pass::Ordered, Pass::Free], arch_of(name));
            let orders = |unit: &Unit| unit.when().ordered.is_some();
            assert!(all.iter().all(|unit| orders(unit) == (unit.pass != Pass::Forward && unit.has_orders())));
            all.iter().map(|unit| unit.kernel.name.replace("attention_", "")).collect()
        };
        assert_eq!(names("sm_90a", 64), ["forward_hopper", "backward_hopper", "backward_hopper"]);
        assert_eq!(
            names("sm_90a", 256),
            ["forward_hopper", "backward_wide"],
            "its sums have one order anyway"
        );
        let plain = ["forward", "backward_keys", "backward_queries", "backward_keys"];
        assert_eq!(names("sm_80", 64), plain);
    }

    #[test]
    fn a_models_own_shapes_are_found_once_each() {
        let shape = presets::find("gemma-2-2b").expect("it is a preset").shape();
        let cases = of_model(&shape, 2, 512);
        assert!(cases.len() == 2 && cases.iter().all(|case| case.batch == 2 && case.softcap.is_some()));
        assert!(cases.iter().any(|case| case.window.is_some()), "{cases:?}");
    }

    #[test]
    fn shapes_of_the_grid_have_whole_groups_and_much_work() {
        for head_dim in GRID_HEADS {
            for group in GRID_GROUPS {
                for length in GRID_LENGTHS {
                    let sizes = [head_dim, group, length].map(|size| size as usize);
                    let plain = case(sizes, None, Case::CAUSAL);
                    assert_eq!(plain.heads, plain.kv_heads * group as usize);
                    assert!(plain.flops() > 2e10, "{plain:?}");
                    let wanted = case(sizes, Some(16), Case::CAUSAL);
                    assert_eq!(wanted.heads, 16_usize.next_multiple_of(group as usize));
                }
            }
        }
        let kinds: Vec<_> = GRID_LENGTHS.iter().map(|length| kind_of(*length as usize)).collect();
        assert_eq!(kinds, LENGTHS.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    }
}
