//! Trials of tiles on a device: compiled, held to the definition of the op, timed.
//!
//! In: units and tiles. Out: why a tile is rejected, or what its pass takes. Which tiles, `tuner` says.

use super::super::bench::{Case, Spread};
use super::units::{Pass, Unit};
use kernwright_compile::Hash;
use kernwright_plan::arch::Arch;
use kernwright_plan::dtype::Dtype;
use kernwright_plan::executor::{Executor, ExecutorError, MicroStep, PlanId};
use kernwright_plan::launch::{Launch, Lowered};
use kernwright_plan::lockstep::Lockstep;
use kernwright_plan::ops::attention::SHARES;
use kernwright_plan::passes::split_heads;
use kernwright_plan::plan::{Phase, Plan};
use kernwright_plan::spec::KernelSpec;
use kernwright_plan::tuning::{Row, Table, When};
use kernwright_plan::{Options, chain};
use kernwright_runtime::Cuda;
use kernwright_runtime::driver::Driver;
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;

/// A tile of a unit.
pub(super) type Trial = (Unit, Vec<usize>);

/// What is known of a trial before it runs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Prepared {
    /// Of the text of its pass's kernels.
    pub(super) text: String,
    /// Why it cannot run.
    pub(super) fault: Option<String>,
}

/// What is heard of tiles while they are held to the definition.
pub(super) enum Heard {
    /// The tile of that number is about to run.
    Begin(usize),
    /// It ran; what was wrong.
    End(usize, Option<String>),
}

/// Who listens; `false` ends it.
pub(super) type Listener<'a> = &'a mut dyn FnMut(Heard) -> Result<bool, String>;

/// What trials are made on.
pub(super) trait Machine {
    /// The tile of the kernel as it is now.
    fn current(&self, unit: &Unit) -> Option<Vec<usize>>;

    /// All tiles worth trying.
    fn candidates(&self, unit: &Unit) -> Vec<Vec<usize>>;

    /// Compiles the kernels of all trials.
    fn prepare(&mut self, trials: &[Trial]) -> Result<Vec<Prepared>, Box<dyn Error>>;

    /// Runs each tile on a small case of odd sizes, beside the definition.
    fn check(&mut self, unit: &Unit, tiles: &[Vec<usize>], heard: Listener<'_>)
    -> Result<(), Box<dyn Error>>;

    /// Seconds that the pass takes with each tile; `heard` says whether to go on.
    fn time(
        &mut self,
        unit: &Unit,
        tiles: &[Vec<usize>],
        heard: &mut dyn FnMut(usize, f64) -> Result<bool, String>,
    ) -> Result<(), Box<dyn Error>>;
}

/// Gives the text of a kernel for a GPU.
pub(super) type Render = Box<dyn Fn(&KernelSpec, &Arch) -> Result<String, String>>;

/// Compiles kernels, by name and text; of each what is wrong.
pub(super) type Compile = Box<dyn Fn(&[(String, String)]) -> Vec<Option<String>>>;

/// Trials on a device.
pub(super) struct Trials<D> {
    pub(super) executor: Cuda<D>,
    /// Of plans for the device; `deterministic` is a trial's own.
    pub(super) options: Options,
    pub(super) dtype: Dtype,
    /// Replays that are measured.
    pub(super) repeats: u32,
    /// Queries of the case that is held to the definition.
    pub(super) odd_length: usize,
    pub(super) arch: Arch,
    pub(super) render: Render,
    pub(super) compile: Compile,
    /// What is loaded for timing.
    pub(super) loaded: Option<(Case, bool, PlanId)>,
}

/// Many tiles of any kernel, and odd.
pub(super) const ODD_LENGTH: usize = 389;

impl<D: Driver> Trials<D> {
    fn options(&self, pass: Pass) -> Options {
        Options { deterministic: pass != Pass::Free, ..self.options.clone() }
    }

    /// The GPU with this tile for the unit's kernel.
    fn with(&self, unit: &Unit, values: &[usize]) -> Arch {
        let when = When {
            head_dim: 8..=256,
            group: 1,
            length: None,
            mask: None,
            softcap: unit.op().capped,
            ordered: None,
        };
        let row = Row { when, kernel: unit.kernel.name, values: values.to_vec(), measured: None };
        let mut table = self.arch.tuned.as_deref().cloned().unwrap_or_default();
        let others: Table = Table { rows: Vec::new(), ..table.clone() };
        let rows = std::iter::once(row).chain(table.rows.drain(..)).collect();
        Arch { tuned: Some(Arc::new(Table { rows, ..others })), ..self.arch.clone() }
    }

    /// The plan that is held to the definition: of the same kernels as the one that is timed.
    fn small(&self, unit: &Unit) -> Plan {
        let group = unit.case.heads / unit.case.kv_heads;
        let case = Case { batch: 1, heads: group, kv_heads: 1, length: self.odd_length, ..unit.case };
        let timed = unit.case.plan(&self.options(unit.pass), self.dtype, 1, 1);
        let is_split = timed.steps.iter().flat_map(|step| &step.writes).any(|write| write.slot == SHARES[0]);
        let [split, together] = split_heads::both(&self.options(unit.pass));
        case.plan(if is_split { &split } else { &together }, self.dtype, 1, 1)
    }

    /// The kernels of a unit's pass.
    fn kernels(&self, unit: &Unit, arch: &Arch) -> Result<Vec<KernelSpec>, String> {
        let plan = unit.case.plan(&self.options(unit.pass), self.dtype, 1, 1);
        let step = &plan.steps[index(unit.pass)];
        match step.op.lower(&plan.io(step), arch) {
            Lowered::NoKernel(why) => Err(why.to_owned()),
            Lowered::Launches(launches) => Ok(launches
                .into_iter()
                .filter_map(|launch| match launch {
                    Launch::Kernel { spec, .. } => Some(spec),
                    _ => None,
                })
                .collect()),
        }
    }

    /// Has the plan of a case loaded, and its inputs and the output there.
    fn load(&mut self, unit: &Unit) -> Result<PlanId, Box<dyn Error>> {
        let is_free = unit.pass == Pass::Free;
        if let Some((case, free, id)) = self.loaded
            && (case, free) == (unit.case, is_free)
        {
            return Ok(id);
        }
        self.loaded = None;
        self.executor.clear()?;
        let case = unit.case;
        let plan = case.plan(&self.options(unit.pass), self.dtype, case.copies(), case.sets());
        let id = self.executor.load(plan)?;
        let plan = self.executor.plan(id).clone();
        Case::fill(&plan, &mut |buffer, values| self.executor.write(id, buffer, values))?;
        self.executor.run_phase(id, Phase::Forward, MicroStep::First)?;
        self.loaded = Some((case, is_free, id));
        Ok(id)
    }
}

/// The step of a pass in a plan of one copy.
fn index(pass: Pass) -> usize {
    usize::from(pass != Pass::Forward)
}

impl<D: Driver> Machine for Trials<D> {
    fn current(&self, unit: &Unit) -> Option<Vec<usize>> {
        (unit.kernel.of)(&unit.op(), &self.arch)
    }

    fn candidates(&self, unit: &Unit) -> Vec<Vec<usize>> {
        (unit.kernel.candidates)(&unit.op(), &self.arch)
    }

    fn prepare(&mut self, trials: &[Trial]) -> Result<Vec<Prepared>, Box<dyn Error>> {
        let mut texts: BTreeMap<String, String> = BTreeMap::new();
        let mut of_trials = Vec::new();
        for (unit, values) in trials {
            let arch = self.with(unit, values);
            let mut names = Vec::new();
            for spec in self.kernels(unit, &arch)? {
                let name = spec.name();
                if !texts.contains_key(&name) {
                    texts.insert(name.clone(), (self.render)(&spec, &arch)?);
                }
                names.push(name);
            }
            of_trials.push(names);
        }
        let all: Vec<(String, String)> = texts.into_iter().collect();
        let faults = (self.compile)(&all);
        let found = of_trials.into_iter().map(|names| {
            let places =
                names.iter().filter_map(|name| all.binary_search_by(|(other, _)| other.cmp(name)).ok());
            let places: Vec<usize> = places.collect();
            let text: Vec<&str> = places.iter().map(|place| all[*place].1.as_str()).collect();
            Prepared {
                text: format!("{:032x}", Hash::new().bytes(text.concat().as_bytes()).finish()),
                fault: places.iter().find_map(|place| faults[*place].clone()),
            }
        });
        Ok(found.collect())
    }

    fn check(
        &mut self,
        unit: &Unit,
        tiles: &[Vec<usize>],
        heard: Listener<'_>,
    ) -> Result<(), Box<dyn Error>> {
        let plan = self.small(unit);
        let arches: Vec<Arch> = tiles.iter().map(|values| self.with(unit, values)).collect();
        self.loaded = None;
        self.executor.clear()?;
        self.executor.lower_for(self.arch.clone());
        let id = self.executor.load(plan.clone())?;
        let mut lockstep = Lockstep::new(&plan)?;
        Case::fill(&plan, &mut |buffer, values| lockstep.write(buffer, values))?;
        if unit.pass != Pass::Forward {
            // Gradients begin with the true output.
            lockstep.step_repeatedly(&mut self.executor, id, (0, MicroStep::First), &mut |_, _| Ok(false))?;
        }
        let mut number = 0;
        let place = (index(unit.pass), MicroStep::First);
        lockstep.step_repeatedly(&mut self.executor, id, place, &mut |executor, outcome| {
            let told = |result: Result<bool, String>| result.map_err(ExecutorError::Plan);
            if let Some(outcome) = outcome {
                let is_on = told(heard(Heard::End(number, outcome.fault())))?;
                number += 1;
                if !is_on {
                    return Ok(false);
                }
            }
            while let Some(arch) = arches.get(number) {
                if !told(heard(Heard::Begin(number)))? {
                    return Ok(false);
                }
                match executor.lower_again(id, arch.clone()) {
                    Ok(()) => return Ok(true),
                    Err(error) => {
                        if !told(heard(Heard::End(number, Some(chain(&error)))))? {
                            return Ok(false);
                        }
                    }
                }
                number += 1;
            }
            Ok(false)
        })?;
        Ok(())
    }

    fn time(
        &mut self,
        unit: &Unit,
        tiles: &[Vec<usize>],
        heard: &mut dyn FnMut(usize, f64) -> Result<bool, String>,
    ) -> Result<(), Box<dyn Error>> {
        self.executor.lower_for(self.arch.clone());
        let id = self.load(unit)?;
        let phase = if unit.pass == Pass::Forward { Phase::Forward } else { Phase::Backward };
        for (number, values) in tiles.iter().enumerate() {
            self.executor.lower_again(id, self.with(unit, values))?;
            let seconds = Case::seconds(&mut self.executor, id, phase, (self.repeats, unit.case.copies()))?;
            if !heard(number, Spread::of(&seconds).median)? {
                break;
            }
        }
        Ok(())
    }
}
