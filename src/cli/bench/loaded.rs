//! A case of attention that an executor holds: how long it takes, and what its results are off by.

use super::case::Case;
use super::peers::{self, Errors};
use kernwright_plan::Options;
use kernwright_plan::buffer::BufferId;
use kernwright_plan::dtype::Dtype;
use kernwright_plan::executor::{Executor, ExecutorError, MicroStep, PlanId};
use kernwright_plan::plan::{Phase, Plan};
use kernwright_plan::shape::Layout;
use std::error::Error;
use std::path::Path;

/// A case that an executor holds.
pub(super) struct Loaded {
    case: Case,
    id: PlanId,
    copies: usize,
}

impl Loaded {
    /// Takes a case to an executor, its work done so many times by each run of a phase, with operands of drawn numbers.
    pub(super) fn new(
        case: &Case,
        executor: &mut dyn Executor,
        (options, dtype): (&Options, Dtype),
        copies: usize,
    ) -> Result<Self, Box<dyn Error>> {
        let plan = case.plan(options, dtype, copies, 1);
        let inputs = Case::inputs(&plan);
        let id = executor.load(plan)?;
        inputs.fill(&mut |buffer, values| executor.write(id, buffer, values))?;
        Ok(Self { case: *case, id, copies })
    }

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
        let Case { heads, kv_heads, length, head_dim, layout, .. } = self.case;
        let (of_queries, of_keys) = ((heads, length), (kv_heads, self.case.keys()));
        let of = |name: &str, (heads, length): (usize, usize)| -> Result<f64, Box<dyn Error>> {
            let values = executor.read(self.id, find(executor, self.id, name)?)?;
            let path = peers::truth(folder, row, name);
            let bytes =
                std::fs::read(&path).map_err(|error| format!("cannot read `{}`: {error}", path.display()))?;
            let (words, rest) = bytes.as_chunks();
            if !rest.is_empty() || words.len() != values.len() {
                let (path, len) = (path.display(), bytes.len());
                return Err(format!("`{path}` holds {len} bytes, not those of `{name}`").into());
            }
            // Truth has the heads of a token in one row.
            let vector_at = |index: usize| match layout {
                Layout::Bshd | Layout::Packed => index,
                Layout::Bhsd => {
                    let (token, head) = (index / heads, index % heads);
                    (token / length * heads + head) * length + token % length
                }
            };
            let squares = words.chunks(head_dim).enumerate().flat_map(|(index, words)| {
                let vector = &values[vector_at(index) * head_dim..][..head_dim];
                vector
                    .iter()
                    .zip(words)
                    .map(|(value, word)| f64::from(value - f32::from_ne_bytes(*word)).powi(2))
            });
            Ok((squares.sum::<f64>() / words.len() as f64).sqrt())
        };
        Ok(Errors {
            out: of("out", of_queries)?,
            d_q: of("d_q", of_queries)?,
            d_k: of("d_k", of_keys)?,
            d_v: of("d_v", of_keys)?,
        })
    }
}

fn find(executor: &dyn Executor, id: PlanId, name: &str) -> Result<BufferId, ExecutorError> {
    let missing = || ExecutorError::Plan(format!("it has no buffer `{name}`"));
    executor.plan(id).find(name).ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernwright_runtime::Cpu;

    /// Both phases on a host, with a folder of what their results would be, were they greater by 3 everywhere.
    fn off_by_three(case: &Case) -> (Cpu, Loaded, tempfile::TempDir) {
        let mut cpu = Cpu::new(Some(1)).expect("it has a thread");
        let phases = [Phase::Forward, Phase::Backward];
        let loaded = Loaded::new(case, &mut cpu, (&Options::host(), Dtype::Fp32), 2).expect("it is loaded");
        let times = loaded.time(&mut cpu, &phases, 3).expect("it runs");
        assert_eq!(times.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3]);
        assert!(times.iter().flatten().all(|seconds| *seconds > 0.0));
        let folder = tempfile::tempdir().expect("there is room");
        let of_keys = (case.kv_heads, case.keys());
        for (name, (heads, length)) in [
            ("out", (case.heads, case.length)),
            ("d_q", (case.heads, case.length)),
            ("d_k", of_keys),
            ("d_v", of_keys),
        ] {
            let id = find(&cpu, loaded.id, name).expect("it is a result");
            let values = cpu.read(loaded.id, id).expect("it reads");
            let mut bytes = Vec::new();
            for (batch, position, head) in (0..case.batch)
                .flat_map(|batch| (0..length).map(move |position| (batch, position)))
                .flat_map(|(batch, position)| (0..heads).map(move |head| (batch, position, head)))
            {
                let vector = match case.layout {
                    Layout::Bhsd => (batch * heads + head) * length + position,
                    _ => (batch * length + position) * heads + head,
                };
                let values = &values[vector * case.head_dim..][..case.head_dim];
                bytes.extend(values.iter().flat_map(|value| (value + 3.0).to_ne_bytes()));
            }
            std::fs::write(peers::truth(folder.path(), 5, name), bytes).expect("there is room");
        }
        (cpu, loaded, folder)
    }

    #[test]
    fn a_host_times_both_phases_and_results_are_held_to_the_truth_in_every_layout() {
        let packed = Case { batch: 2, length: 9, head_dim: 8, ..Case::CAUSAL };
        for case in [
            packed,
            Case { layout: Layout::Bhsd, ..packed },
            Case { layout: Layout::Bshd, key_length: Some(13), ..packed },
            Case { layout: Layout::Bhsd, key_length: Some(13), causal: false, ..packed },
        ] {
            let (cpu, loaded, folder) = off_by_three(&case);
            let found = loaded.errors(&cpu, folder.path(), 5).expect("they are there");
            assert!(found.all().iter().all(|(_, error)| (error - 3.0).abs() < 1e-5), "{case:?}: {found:?}");
        }
    }

    #[test]
    fn a_truth_of_another_length_is_refused() {
        let (cpu, loaded, folder) = off_by_three(&Case { length: 8, head_dim: 8, ..Case::CAUSAL });
        std::fs::write(peers::truth(folder.path(), 5, "d_v"), [0; 4]).expect("there is room");
        let error = loaded.errors(&cpu, folder.path(), 5).expect_err("it is too short").to_string();
        assert!(error.ends_with("holds 4 bytes, not those of `d_v`"), "{error}");
    }
}
