//! Plans of attention alone: one step over buffers that are somebody else's, in one of three directions.
//!
//! In: what was declared, a batch and its lengths. Out: a plan whose inputs and outputs have the names of [`Pass::reads`] and
//! [`Pass::writes`], and whose only other buffers are scratch.

use crate::buffer::{BufferId, Role};
use crate::dtype::Dtype;
use crate::ops::attention::{AttentionBackward, BackwardForm};
use crate::options::Options;
use crate::passes;
use crate::plan::{Mode, Phase, Plan, Read, Step, Write};
use crate::shape::{AttentionShape, Layout};

/// What is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pass {
    /// The output, and the log-sum-exp that the gradient needs.
    Forward,
    /// The output alone.
    Inference,
    /// The gradients of queries, keys and values.
    Backward,
}

const QKV: [&str; 3] = ["q", "k", "v"];
const GRADIENTS: [&str; 3] = ["d_q", "d_k", "d_v"];

impl Pass {
    /// Every direction.
    pub const ALL: [Self; 3] = [Self::Forward, Self::Inference, Self::Backward];

    /// The buffers that are read, in the order in which the caller hands them over.
    #[must_use]
    pub fn reads(self, layout: Layout) -> Vec<&'static str> {
        let mut names = if self == Self::Backward { vec!["d_out"] } else { Vec::new() };
        names.extend(joined(layout, &QKV, "qkv"));
        names.extend(if self == Self::Backward { &["out", "lse"][..] } else { &[] });
        names
    }

    /// The buffers that are written, likewise.
    #[must_use]
    pub fn writes(self, layout: Layout) -> Vec<&'static str> {
        match self {
            Self::Forward => vec!["out", "lse"],
            Self::Inference => vec!["out"],
            Self::Backward => joined(layout, &GRADIENTS, "d_qkv"),
        }
    }
}

/// The names of three tensors, or of the one that holds them.
fn joined(layout: Layout, three: &[&'static str; 3], one: &'static str) -> Vec<&'static str> {
    if layout == Layout::Packed { vec![one] } else { three.to_vec() }
}

/// A plan being made.
struct Maker<'a> {
    shape: &'a AttentionShape,
    dtype: Dtype,
    batch: usize,
    /// Queries and keys of a sequence.
    lengths: [usize; 2],
    plan: Plan,
}

impl Maker<'_> {
    /// A tensor of so many heads.
    fn heads(&mut self, name: &str, length: usize, heads: usize, role: Role) -> BufferId {
        let (batch, head_dim) = (self.batch, self.shape.head_dim);
        let dims = match self.shape.layout {
            Layout::Bshd | Layout::Packed => vec![batch, length, heads * head_dim],
            Layout::Bhsd => vec![batch, heads, length, head_dim],
        };
        self.plan.add(name, dims, self.dtype, role)
    }

    /// A tensor like queries.
    fn of_queries(&mut self, name: &str, role: Role) -> BufferId {
        self.heads(name, self.lengths[0], self.shape.heads, role)
    }

    /// Three tensors like queries, keys and values.
    fn three(&mut self, names: [&str; 3], one: &str, role: Role) -> [BufferId; 3] {
        let (heads, kv_heads, [length, key_length]) = (self.shape.heads, self.shape.kv_heads, self.lengths);
        if self.shape.layout != Layout::Packed {
            let queries = self.of_queries(names[0], role);
            let [keys, values] =
                [names[1], names[2]].map(|name| self.heads(name, key_length, kv_heads, role));
            return [queries, keys, values];
        }
        let all = self.heads(one, length, heads + 2 * kv_heads, role);
        let firsts =
            [0, heads, heads + kv_heads, heads + 2 * kv_heads].map(|head| head * self.shape.head_dim);
        [0, 1, 2].map(|i| self.plan.add_view(names[i], all, firsts[i]..firsts[i + 1]))
    }

    fn lse(&mut self, role: Role) -> BufferId {
        let dims = vec![self.batch, self.shape.heads, self.lengths[0]];
        self.plan.add("lse", dims, Dtype::Fp32, role)
    }
}

/// A plan of one pass, over sequences of so many queries and keys; where both are in one buffer, of as many of the ones as of
/// the others.
#[must_use]
pub fn attention_step(
    shape: &AttentionShape,
    options: &Options,
    batch: usize,
    lengths: [usize; 2],
    pass: Pass,
) -> Plan {
    let dtype = options.precision.unwrap_or(shape.dtype);
    let mut maker = Maker { shape, dtype, batch, lengths, plan: Plan::default() };
    let read = |(slot, buffer): (&'static str, BufferId)| Read { slot, buffer };
    let write = |(slot, buffer): (&'static str, BufferId)| Write { slot, buffer, mode: Mode::Overwrite };
    let three = maker.three(QKV, "qkv", Role::Input);
    let mut reads: Vec<_> = QKV.into_iter().zip(three).map(read).collect();
    let op = shape.op(lengths);
    let step = if pass == Pass::Backward {
        let (out, lse) = (maker.of_queries("out", Role::Input), maker.lse(Role::Input));
        let d_out = maker.of_queries("d_out", Role::Input);
        reads.extend([("out", out), ("lse", lse), ("d_out", d_out)].map(read));
        let gradients = maker.three(GRADIENTS, "d_qkv", Role::Output);
        let writes = GRADIENTS.into_iter().zip(gradients).map(write).collect();
        let op = AttentionBackward { attention: op, form: BackwardForm::Ordered }.into();
        Step { op, reads, writes, phase: Phase::Backward }
    } else {
        let mut writes = vec![("out", maker.of_queries("out", Role::Output))];
        if pass == Pass::Forward {
            writes.push(("lse", maker.lse(Role::Output)));
        }
        let writes = writes.into_iter().map(write).collect();
        Step { op: op.into(), reads, writes, phase: Phase::Forward }
    };
    maker.plan.steps.push(step);
    let options = Options { deterministic: shape.deterministic, ..options.clone() };
    passes::memory::place(passes::attention::choose(maker.plan, &options))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch;
    use crate::kernels::{attention_plans, of_plan, of_plans};
    use crate::shape::parse_attention_text;

    fn shapes() -> Vec<AttentionShape> {
        let rows = [
            "attention.heads = 4\nattention.kv_heads = 2\nattention.head_dim = 64",
            "attention.heads = 3\nattention.kv_heads = 1\nattention.head_dim = 128\nattention.full\n\
             attention.dtype = fp16\nattention.layout = packed\nattention.nondeterministic",
            "attention.heads = 2\nattention.head_dim = 256\nattention.window = 40\nattention.softcap = 20.0\n\
             attention.layout = bhsd",
            "attention.heads = 8\nattention.kv_heads = 1\nattention.head_dim = 40\nattention.layout = packed",
        ];
        rows.map(|text| parse_attention_text(text).expect(text)).to_vec()
    }

    /// More keys than queries, where that can be.
    fn lengths(shape: &AttentionShape, length: usize) -> [usize; 2] {
        [length, if shape.layout == Layout::Packed { length } else { length + 3 }]
    }

    #[test]
    fn plans_are_sound_and_name_what_the_caller_hands_over() {
        for shape in shapes() {
            for pass in Pass::ALL {
                for options in
                    [Options::default(), Options { in_turns: true, ..Options::default() }, Options::host()]
                {
                    let plan = attention_step(&shape, &options, 2, lengths(&shape, 7), pass);
                    assert_eq!(plan.check(), Ok(()));
                    let mut given: Vec<_> = pass.reads(shape.layout);
                    given.extend(pass.writes(shape.layout));
                    for (index, buffer) in plan.buffers.iter().enumerate() {
                        let is_given = given.contains(&buffer.name.as_str());
                        let is_scratch = buffer.role == Role::Scratch;
                        assert!(is_given != is_scratch || buffer.view.is_some(), "{}, {index}", buffer.name);
                    }
                    assert!(given.iter().all(|name| plan.find(name).is_some()), "{given:?}");
                }
            }
        }
    }

    #[test]
    fn every_kernel_of_every_size_is_among_those_that_are_generated() {
        for shape in shapes() {
            for arch in arch::ALL {
                let all = of_plans(&attention_plans(&shape), arch);
                for (batch, length) in
                    [(1, 1), (3, 77), (2, 1000), (64, 512), (1, 2048), (64, 2048), (1, 20_000)]
                {
                    for (in_turns, multiprocessors) in [(false, None), (true, Some(132)), (false, Some(28))] {
                        let options = Options { in_turns, multiprocessors, ..Options::default() };
                        for pass in Pass::ALL {
                            let plan = attention_step(&shape, &options, batch, lengths(&shape, length), pass);
                            let kernels = of_plan(&plan, arch);
                            assert!(!kernels.is_empty(), "{}: {pass:?} has no kernel", arch.name);
                            for spec in kernels {
                                assert!(all.contains(&spec), "{}: {}", arch.name, spec.name());
                            }
                        }
                    }
                }
            }
        }
    }
}
