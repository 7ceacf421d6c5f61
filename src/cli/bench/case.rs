//! Attention of one shape, alone: a plan with nothing else in it, and how long its phases take.

use super::peers::{self, Errors};
use kernwright_model::random::Random;
use kernwright_plan::Options;
use kernwright_plan::buffer::{BufferId, Role};
use kernwright_plan::dtype::Dtype;
use kernwright_plan::executor::{Executor, ExecutorError, MicroStep, PlanId, Values};
use kernwright_plan::ops::attention::{Attention, AttentionBackward, BackwardForm, Form, Window};
use kernwright_plan::passes;
use kernwright_plan::plan::{Mode, Phase, Plan, Read, Step, Write};
use serde::Serialize;
use std::error::Error;
use std::ops::Range;
use std::path::Path;
use std::time::Instant;

/// What attention is computed of.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(in super::super) struct Case {
    pub(in super::super) batch: usize,
    pub(in super::super) heads: usize,
    pub(in super::super) kv_heads: usize,
    pub(in super::super) length: usize,
    pub(in super::super) head_dim: usize,
    pub(in super::super) causal: bool,
    pub(in super::super) window: Option<usize>,
    pub(in super::super) softcap: Option<f64>,
}

const fn case(batch: usize, (heads, kv_heads): (usize, usize), length: usize, head_dim: usize) -> Case {
    Case { batch, heads, kv_heads, length, head_dim, causal: true, window: None, softcap: None }
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
        Self { batch, heads, kv_heads, length, head_dim, causal, window, softcap }
    }

    /// `32 x 12/4 x 1024 x 64`.
    pub(in super::super) fn sizes(&self) -> String {
        let Self { batch, heads, kv_heads, length, head_dim, .. } = self;
        format!("{batch} x {heads}/{kv_heads} x {length} x {head_dim}")
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
            key_length: self.length,
            window: if self.causal { window.causal() } else { window },
            softcap: self.softcap,
            scale: (self.head_dim as f64).sqrt().recip(),
            form: Form::Fused,
        }
    }

    /// Work of the forward pass as papers count it: of a causal mask half, of a window what it leaves.
    pub(in super::super) fn flops(&self) -> f64 {
        let square = (self.length * self.length) as f64;
        let pairs = match (self.window, self.causal) {
            (Some(_), _) => (0..self.length).map(|query| self.op().seen(query).len()).sum::<usize>() as f64,
            (None, true) => square / 2.0,
            (None, false) => square,
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
        let columns = (2 * self.heads + 2 * self.kv_heads) * self.head_dim;
        let bytes = self.batch * self.length * columns * size_of::<u16>();
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
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let rows = self.batch * self.length;
        let parts = [0..q, q..q + kv, q + kv..q + 2 * kv];
        let name = |name: &str| if set == 0 { name.to_owned() } else { format!("{name}.{set}") };
        let qkv = plan.add(name("qkv"), vec![rows, q + 2 * kv], dtype, Role::Input);
        let d_out = plan.add(name("d_out"), vec![rows, q], dtype, Role::Input);
        let out = plan.add(name("out"), vec![rows, q], dtype, Role::Output);
        let shape = vec![self.batch, self.heads, self.length];
        let lse = plan.add(name("lse"), shape, Dtype::Fp32, Role::Output);
        let d_qkv = plan.add(name("d_qkv"), vec![rows, q + 2 * kv], dtype, Role::Output);
        let [[q, k, v], [d_q, d_k, d_v]] =
            [(qkv, ["q", "k", "v"]), (d_qkv, ["d_q", "d_k", "d_v"])].map(|(of, names)| {
                let mut index = 0;
                names.map(|view| {
                    index += 1;
                    plan.add_view(name(view), of, parts[index - 1].clone())
                })
            });
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

    /// Hands over what the inputs of a plan of its are.
    pub(in super::super) fn fill(
        plan: &Plan,
        write: &mut dyn FnMut(BufferId, Values<'_>) -> Result<(), ExecutorError>,
    ) -> Result<(), ExecutorError> {
        let drawn = drawn();
        for (index, buffer) in plan.buffers.iter().enumerate() {
            if buffer.role == Role::Input && buffer.view.is_none() {
                let values: Vec<f32> = drawn.iter().copied().cycle().take(buffer.len()).collect();
                write(BufferId(index), Values::Float(&values))?;
            }
        }
        Ok(())
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

    /// Takes it to an executor, its work done several times by each run of a phase, with operands of drawn numbers.
    pub(super) fn load(
        &self,
        executor: &mut dyn Executor,
        options: &Options,
        dtype: Dtype,
    ) -> Result<Loaded, Box<dyn Error>> {
        let copies = self.copies();
        let plan = self.plan(options, dtype, copies, 1);
        let id = executor.load(plan.clone())?;
        Self::fill(&plan, &mut |buffer, values| executor.write(id, buffer, values))?;
        Ok(Loaded { case: *self, id, copies })
    }
}

/// The numbers that operands repeat.
pub(super) fn drawn() -> Vec<f32> {
    let mut drawn = vec![0.0; DRAWN];
    Random::stream(0, "attention").normals_at(0, 1.0, &mut drawn);
    drawn
}

fn find(executor: &dyn Executor, id: PlanId, name: &str) -> Result<BufferId, ExecutorError> {
    let missing = || ExecutorError::Plan(format!("it has no buffer `{name}`"));
    executor.plan(id).find(name).ok_or_else(missing)
}

/// A case that an executor holds.
pub(super) struct Loaded {
    case: Case,
    id: PlanId,
    copies: usize,
}

impl Loaded {
    pub(super) fn plan<'a>(&self, executor: &'a dyn Executor) -> &'a Plan {
        executor.plan(self.id)
    }

    /// Seconds of each of `n` runs of each phase.
    pub(super) fn time(
        &self,
        executor: &mut dyn Executor,
        phases: &[Phase],
        n: u32,
    ) -> Result<Vec<Vec<f64>>, Box<dyn Error>> {
        for phase in phases {
            executor.run_phase(self.id, *phase, MicroStep::First)?;
        }
        let copies = self.copies;
        phases.iter().map(|phase| Case::seconds(executor, self.id, *phase, (n, copies))).collect()
    }

    /// What the last runs' results are off by from what files of a folder say is true of a row.
    pub(super) fn errors(
        &self,
        executor: &dyn Executor,
        folder: &Path,
        row: usize,
    ) -> Result<Errors, Box<dyn Error>> {
        let Case { heads, kv_heads, head_dim, .. } = self.case;
        let (q, kv) = (heads * head_dim, kv_heads * head_dim);
        let out = executor.read(self.id, find(executor, self.id, "out")?)?;
        let gradients = executor.read(self.id, find(executor, self.id, "d_qkv")?)?;
        let of = |values: &[f32], stride: usize, columns: Range<usize>, name: &str| {
            let path = peers::truth(folder, row, name);
            let bytes =
                std::fs::read(&path).map_err(|error| format!("cannot read `{}`: {error}", path.display()))?;
            let (words, rest) = bytes.as_chunks();
            if !rest.is_empty() || words.len() != values.len() / stride * columns.len() {
                return Err(format!(
                    "`{}` holds {} bytes, not those of `{name}`",
                    path.display(),
                    bytes.len()
                ));
            }
            let found = values.chunks_exact(stride).flat_map(|row| &row[columns.clone()]);
            let squares =
                found.zip(words).map(|(value, word)| f64::from(value - f32::from_ne_bytes(*word)).powi(2));
            Ok((squares.sum::<f64>() / words.len() as f64).sqrt())
        };
        Ok(Errors {
            out: of(&out, q, 0..q, "out")?,
            d_q: of(&gradients, q + 2 * kv, 0..q, "d_q")?,
            d_k: of(&gradients, q + 2 * kv, q..q + kv, "d_k")?,
            d_v: of(&gradients, q + 2 * kv, q + kv..q + 2 * kv, "d_v")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernwright_runtime::Cpu;

    #[test]
    fn plans_are_sound_in_every_form() {
        for options in
            [Options::host(), Options::default(), Options { deterministic: false, ..Options::default() }]
        {
            for masked in [Case { window: Some(3), ..case(2, (4, 2), 9, 8) }, case(1, (2, 2), 16, 16)] {
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
    fn a_host_times_both_phases() {
        let mut cpu = Cpu::new(Some(1)).expect("it has a thread");
        let phases = [Phase::Forward, Phase::Backward];
        let small = case(1, (2, 1), 8, 8);
        let loaded = small.load(&mut cpu, &Options::host(), Dtype::Fp32).expect("it loads");
        let times = loaded.time(&mut cpu, &phases, 3).expect("it runs");
        assert_eq!(times.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3]);
        assert!(times.iter().flatten().all(|seconds| *seconds > 0.0));

        // Of a truth that is off by 3 everywhere, and one of the wrong length.
        let folder = tempfile::tempdir().expect("there is room");
        let read = |name: &str| {
            cpu.read(loaded.id, find(&cpu, loaded.id, name).expect("it is a result")).expect("it reads")
        };
        let write = |name: &str, values: &mut dyn Iterator<Item = f32>| {
            let bytes: Vec<u8> = values.flat_map(|value| (value + 3.0).to_ne_bytes()).collect();
            std::fs::write(peers::truth(folder.path(), 5, name), bytes).expect("there is room");
        };
        let d_qkv = read("d_qkv");
        write("out", &mut read("out").into_iter());
        for (name, columns) in [("d_q", 0..16), ("d_k", 16..24), ("d_v", 24..32)] {
            write(name, &mut d_qkv.chunks_exact(32).flat_map(|row| row[columns.clone()].to_vec()));
        }
        let Errors { out, d_q, d_k, d_v } = loaded.errors(&cpu, folder.path(), 5).expect("they are there");
        assert!(
            [out, d_q, d_k, d_v].iter().all(|error| (error - 3.0).abs() < 1e-6),
            "{out} {d_q} {d_k} {d_v}"
        );
        write("d_v", &mut std::iter::once(1.0));
        let error = loaded.errors(&cpu, folder.path(), 5).expect_err("it is too short").to_string();
        assert!(error.ends_with("holds 4 bytes, not those of `d_v`"), "{error}");
    }

    #[test]
    fn work_is_that_of_papers_and_of_what_a_window_leaves() {
        let plain = case(2, (3, 1), 10, 8);
        assert_eq!(plain.flops(), 4.0 * 2.0 * 3.0 * 8.0 * 50.0);
        assert_eq!(Case { causal: false, ..plain }.flops(), 4.0 * 2.0 * 3.0 * 8.0 * 100.0);
        assert_eq!(Case { window: Some(1), ..plain }.flops(), 4.0 * 2.0 * 3.0 * 8.0 * 10.0);
    }
}
