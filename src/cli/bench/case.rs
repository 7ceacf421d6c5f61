//! Attention of one shape, alone: a plan with nothing else in it, and how long its phases take.

use kernwright_model::random::Random;
use kernwright_plan::Options;
use kernwright_plan::buffer::{BufferId, Role};
use kernwright_plan::dtype::Dtype;
use kernwright_plan::executor::{Executor, ExecutorError, MicroStep, PlanId, Values};
use kernwright_plan::ops::attention::{Attention, AttentionBackward, BackwardForm, Form, Window};
use kernwright_plan::passes;
use kernwright_plan::plan::{Mode, Phase, Plan, Read, Step, Write};
use kernwright_plan::shape::Layout;
use serde::{Serialize, Serializer};
use std::error::Error;
use std::ops::Range;
use std::time::Instant;

/// What attention is computed of.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(in super::super) struct Case {
    pub(in super::super) batch: usize,
    pub(in super::super) heads: usize,
    pub(in super::super) kv_heads: usize,
    pub(in super::super) length: usize,
    /// Keys of a sequence, where they are not as many as queries. The last query stands at the last key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in super::super) key_length: Option<usize>,
    pub(in super::super) head_dim: usize,
    pub(in super::super) causal: bool,
    pub(in super::super) window: Option<usize>,
    pub(in super::super) softcap: Option<f64>,
    /// Packed ones have as many keys as queries.
    #[serde(serialize_with = "name_of")]
    pub(in super::super) layout: Layout,
}

fn name_of<S: Serializer>(layout: &Layout, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(layout.name())
}

const fn case(batch: usize, (heads, kv_heads): (usize, usize), length: usize, head_dim: usize) -> Case {
    let (key_length, causal, window, softcap, layout) = (None, true, None, None, Layout::Packed);
    Case { batch, heads, kv_heads, length, key_length, head_dim, causal, window, softcap, layout }
}

/// Shapes of models of 100M to 8B parameters, short and long.
pub(super) const TABLE: &[Case] = &[
    case(4, (12, 4), 1024, 64),
    case(32, (12, 4), 1024, 64),
    case(16, (16, 16), 1024, 64),
    case(8, (32, 8), 2048, 64),
    case(4, (32, 8), 4096, 64),
    case(2, (32, 8), 16_384, 64),
    case(16, (16, 8), 1024, 128),
    case(8, (16, 8), 2048, 128),
    case(4, (16, 8), 4096, 128),
    case(1, (16, 16), 16_384, 128),
    case(4, (8, 8), 4096, 256),
    case(4, (16, 8), 4096, 96),
    case(8, (8, 4), 512, 64),
    case(8, (8, 4), 512, 128),
];

/// What a CPU does in place of the table.
pub(super) const SMALL: Case = case(1, (12, 4), 512, 64);

/// Numbers that are drawn; larger inputs repeat them.
const DRAWN: usize = 1 << 20;

/// A replay does so much work that its beginning and its end do not count, FLOPs.
const WORK: f64 = 5e11;
/// Most times that it does the same.
const MOST_COPIES: f64 = 32.0;

/// Bytes of inputs that launches of a recording take in turns, where one launch would find its own in a cache: as much as those hold.
const ROOM: usize = 48 << 20;

/// Most sets of them.
const MOST_SETS: usize = 8;

impl Case {
    /// A small one under a causal mask.
    pub(in super::super) const CAUSAL: Self = case(1, (2, 1), 64, 64);

    /// That of an op over so many sequences.
    pub(in super::super) fn of(op: &Attention, batch: usize) -> Self {
        let Attention { heads, kv_heads, length, head_dim, window, softcap, .. } = *op;
        let (causal, window) = (window.right == Some(0), window.left.map(|left| left + 1));
        let key_length = Some(op.key_length).filter(|keys| *keys != length);
        Self { batch, heads, kv_heads, length, key_length, head_dim, causal, window, softcap, ..Self::CAUSAL }
    }

    /// Keys of a sequence.
    pub(in super::super) fn keys(&self) -> usize {
        self.key_length.unwrap_or(self.length)
    }

    /// `32 x 12/4 x 1024 x 64`; with other keys than queries `32 x 12/4 x 1024/4096 x 64`.
    pub(in super::super) fn sizes(&self) -> String {
        let Self { batch, heads, kv_heads, length, head_dim, .. } = self;
        let keys = self.key_length.map_or(String::new(), |keys| format!("/{keys}"));
        format!("{batch} x {heads}/{kv_heads} x {length}{keys} x {head_dim}")
    }

    /// `causal, window 512`.
    pub(in super::super) fn mask(&self) -> String {
        let mut mask = if self.causal { "causal" } else { "full" }.to_owned();
        if let Some(window) = self.window {
            mask.push_str(&format!(", window {window}"));
        }
        if let Some(cap) = self.softcap {
            mask.push_str(&format!(", softcap {cap}"));
        }
        mask
    }

    pub(in super::super) fn op(&self) -> Attention {
        let window = self.window.map_or(Window::FULL, Window::nearer);
        Attention {
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            length: self.length,
            key_length: self.keys(),
            window: if self.causal { window.causal() } else { window },
            softcap: self.softcap,
            scale: (self.head_dim as f64).sqrt().recip(),
            form: Form::Fused,
        }
    }

    /// Work of the forward pass as papers count it: a causal mask hides half of the square at its end, a window leaves what it
    /// does.
    pub(in super::super) fn flops(&self) -> f64 {
        let (length, keys) = (self.length as f64, self.keys() as f64);
        let square = length.min(keys);
        let pairs = match (self.window, self.causal) {
            (Some(_), _) => (0..self.length).map(|query| self.op().seen(query).len()).sum::<usize>() as f64,
            (None, true) => square * keys - square * square / 2.0,
            (None, false) => length * keys,
        };
        4.0 * (self.batch * self.heads * self.head_dim) as f64 * pairs
    }

    /// Times that a replay does the same.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub(in super::super) fn copies(&self) -> usize {
        (WORK / self.flops()).clamp(1.0, MOST_COPIES) as usize
    }

    /// Sets of buffers that these take in turns, so that none finds its inputs in a cache.
    pub(in super::super) fn sets(&self) -> usize {
        let vectors = 2 * self.heads * self.length + 2 * self.kv_heads * self.keys();
        let bytes = self.batch * vectors * self.head_dim * size_of::<u16>();
        ROOM.div_ceil(bytes.max(1)).clamp(1, MOST_SETS).min(self.copies())
    }

    /// A plan that computes it and its gradient, each so many times, with so many sets of buffers in turns.
    pub(in super::super) fn plan(&self, options: &Options, dtype: Dtype, copies: usize, sets: usize) -> Plan {
        let mut plan = Plan::default();
        let all: Vec<[Step; 2]> = (0..sets).map(|set| self.steps(&mut plan, dtype, set)).collect();
        for phase in 0..2 {
            plan.steps.extend((0..copies).map(|copy| all[copy % sets][phase].clone()));
        }
        passes::memory::place(passes::attention::choose(plan, options))
    }

    /// A forward and a backward step, with buffers of their own.
    fn steps(&self, plan: &mut Plan, dtype: Dtype, set: usize) -> [Step; 2] {
        let name = |name: &str| if set == 0 { name.to_owned() } else { format!("{name}.{set}") };
        let [q, k, v] = self.three(plan, dtype, ["qkv", "q", "k", "v"].map(name), Role::Input);
        let of_queries = self.dims(self.heads, self.length);
        let d_out = plan.add(name("d_out"), of_queries.clone(), dtype, Role::Input);
        let out = plan.add(name("out"), of_queries, dtype, Role::Output);
        let shape = vec![self.batch, self.heads, self.length];
        let lse = plan.add(name("lse"), shape, Dtype::Fp32, Role::Output);
        let [d_q, d_k, d_v] = self.three(plan, dtype, ["d_qkv", "d_q", "d_k", "d_v"].map(name), Role::Output);
        let read = |(slot, buffer): (&'static str, BufferId)| Read { slot, buffer };
        let write = |(slot, buffer): (&'static str, BufferId)| Write { slot, buffer, mode: Mode::Overwrite };
        let forward = Step {
            op: self.op().into(),
            reads: [("q", q), ("k", k), ("v", v)].map(read).to_vec(),
            writes: [("out", out), ("lse", lse)].map(write).to_vec(),
            phase: Phase::Forward,
        };
        let slots = [("q", q), ("k", k), ("v", v), ("out", out), ("lse", lse), ("d_out", d_out)];
        let backward = Step {
            op: AttentionBackward { attention: self.op(), form: BackwardForm::Ordered }.into(),
            reads: slots.map(read).to_vec(),
            writes: [("d_q", d_q), ("d_k", d_k), ("d_v", d_v)].map(write).to_vec(),
            phase: Phase::Backward,
        };
        [forward, backward]
    }

    /// Dimensions of a tensor of so many heads and positions.
    fn dims(&self, heads: usize, length: usize) -> Vec<usize> {
        match self.layout {
            Layout::Bhsd => vec![self.batch, heads, length, self.head_dim],
            Layout::Bshd | Layout::Packed => vec![self.batch * length, heads * self.head_dim],
        }
    }

    /// Tensors like queries, keys and values: parts of the one of the first name, or each on its own.
    fn three(&self, plan: &mut Plan, dtype: Dtype, [all, q, k, v]: [String; 4], role: Role) -> [BufferId; 3] {
        let (heads, kv_heads) = (self.heads, self.kv_heads);
        if self.layout == Layout::Packed {
            let all = plan.add(all, self.dims(heads + 2 * kv_heads, self.length), dtype, role);
            let parts = [(q, 0, heads), (k, heads, kv_heads), (v, heads + kv_heads, kv_heads)];
            return parts.map(|(name, first, heads)| {
                plan.add_view(name, all, first * self.head_dim..(first + heads) * self.head_dim)
            });
        }
        let keys = self.keys();
        [(q, heads, self.length), (k, kv_heads, keys), (v, kv_heads, keys)]
            .map(|(name, heads, length)| plan.add(name, self.dims(heads, length), dtype, role))
    }

    /// The inputs of a plan of its: queries, keys and values one after the other, and gradients of the output, of drawn numbers.
    pub(in super::super) fn inputs(plan: &Plan) -> Inputs {
        let mut first = 0;
        let mut all = Vec::new();
        for (index, buffer) in plan.buffers.iter().enumerate() {
            if buffer.role == Role::Input && buffer.view.is_none() {
                if buffer.name.starts_with('q') || buffer.name.starts_with("d_out") {
                    first = 0;
                }
                all.push((BufferId(index), first..first + buffer.len()));
                first += buffer.len();
            }
        }
        Inputs(all)
    }

    /// Seconds of each of `n` runs of a phase of a plan with so many copies; one that is not measured comes first.
    pub(in super::super) fn seconds(
        executor: &mut dyn Executor,
        id: PlanId,
        phase: Phase,
        (n, copies): (u32, usize),
    ) -> Result<Vec<f64>, Box<dyn Error>> {
        let mut spans = Vec::new();
        for _ in 0..=n {
            let (start, from) = (Instant::now(), executor.mark()?);
            executor.run_phase(id, phase, MicroStep::First)?;
            let to = executor.mark()?;
            spans.push((from.zip(to), start.elapsed()));
        }
        executor.wait()?;
        let seconds = spans.into_iter().map(|(marks, elapsed)| match marks {
            Some((from, to)) => executor.seconds(from, to),
            None => Ok(elapsed.as_secs_f64()),
        });
        let seconds = seconds.collect::<Result<Vec<f64>, _>>()?;
        Ok(seconds[1..].iter().map(|seconds| seconds / copies as f64).collect())
    }
}

/// Which inputs a plan has, and which of the drawn numbers, repeated without end, each of them holds.
pub(in super::super) struct Inputs(Vec<(BufferId, Range<usize>)>);

impl Inputs {
    /// Hands them over.
    pub(in super::super) fn fill(
        &self,
        write: &mut dyn FnMut(BufferId, Values<'_>) -> Result<(), ExecutorError>,
    ) -> Result<(), ExecutorError> {
        let drawn = drawn();
        for (buffer, numbers) in &self.0 {
            // In long pieces: element by element it takes as long as all that is measured.
            let mut values: Vec<f32> = Vec::with_capacity(numbers.len());
            while values.len() < numbers.len() {
                let from = (numbers.start + values.len()) % DRAWN;
                let rest = (numbers.len() - values.len()).min(DRAWN - from);
                values.extend_from_slice(&drawn[from..from + rest]);
            }
            write(*buffer, Values::Float(&values))?;
        }
        Ok(())
    }
}

/// The numbers that operands repeat.
pub(super) fn drawn() -> Vec<f32> {
    let mut drawn = vec![0.0; DRAWN];
    Random::stream(0, "attention").normals_at(0, 1.0, &mut drawn);
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_sound_in_every_form() {
        for options in
            [Options::host(), Options::default(), Options { deterministic: false, ..Options::default() }]
        {
            for masked in [
                Case { window: Some(3), ..case(2, (4, 2), 9, 8) },
                case(1, (2, 2), 16, 16),
                Case { key_length: Some(13), layout: Layout::Bshd, ..case(2, (4, 2), 9, 8) },
                Case { key_length: Some(5), layout: Layout::Bhsd, ..case(2, (4, 2), 9, 8) },
            ] {
                let dtype = options.precision.unwrap_or(Dtype::Bf16);
                let plan = masked.plan(&options, dtype, 3, 2);
                assert_eq!(plan.check(), Ok(()));
                assert_eq!(plan.steps.len(), 6);
                assert_ne!(plan.steps[0].reads, plan.steps[1].reads);
                assert_eq!(plan.steps[0].reads, plan.steps[2].reads);
            }
        }
    }

    #[test]
    fn work_is_that_of_papers_and_of_what_a_window_leaves() {
        let plain = case(2, (3, 1), 10, 8);
        assert_eq!(plain.flops(), 4.0 * 2.0 * 3.0 * 8.0 * 50.0);
        assert_eq!(Case { causal: false, ..plain }.flops(), 4.0 * 2.0 * 3.0 * 8.0 * 100.0);
        assert_eq!(Case { window: Some(1), ..plain }.flops(), 4.0 * 2.0 * 3.0 * 8.0 * 10.0);
        // The last query stands at the last key.
        let per_pair = 4.0 * 2.0 * 3.0 * 8.0;
        let more = Case { key_length: Some(25), ..plain };
        assert_eq!(more.flops(), per_pair * (10.0 * 15.0 + 50.0));
        assert_eq!(Case { causal: false, ..more }.flops(), per_pair * 250.0);
        assert_eq!(Case { window: Some(2), ..more }.flops(), per_pair * 20.0);
        assert_eq!(Case { key_length: Some(4), ..plain }.flops(), per_pair * 8.0);
        assert_eq!(Case { key_length: Some(4), window: Some(1), ..plain }.flops(), per_pair * 4.0);
        assert_eq!(more.sizes(), "2 x 3/1 x 10/25 x 8");
    }

    #[test]
    fn queries_keys_and_values_differ_in_every_layout() {
        let inputs = |layout: Layout| {
            let plan = Case { layout, ..case(1, (2, 1), 4, 8) }.plan(&Options::host(), Dtype::Fp32, 1, 1);
            let mut all = Vec::new();
            let mut keep = |_, values: Values<'_>| {
                if let Values::Float(values) = values {
                    all.push(values.to_vec());
                }
                Ok(())
            };
            Case::inputs(&plan).fill(&mut keep).expect("nothing fails");
            all
        };
        let [packed, bshd, bhsd] = [Layout::Packed, Layout::Bshd, Layout::Bhsd].map(inputs);
        assert_eq!(bshd, bhsd);
        let [q, k, v, d_out] = &bshd[..] else { panic!("there are four") };
        assert_eq!([q.clone(), k.clone(), v.clone()].concat(), packed[0]);
        assert_eq!((q, d_out), (&packed[1], &packed[1]));
        assert_ne!(k, v);
    }
}
