//! Trials of tiles on a device: compiled, held to the definition of the op, timed.
//!
//! In: units and tiles. Out: why a tile is rejected, or what its pass takes. Which tiles, `tuner` says.

use super::super::bench::{Case, Spread};
use super::compiling::{Compile, Compiling};
use super::units::{Pass, Unit};
use kernwright_compile::Hash;
use kernwright_plan::arch::Arch;
use kernwright_plan::dtype::Dtype;
use kernwright_plan::executor::{Executor, ExecutorError, MicroStep, PlanId};
use kernwright_plan::kernels::of_plan;
use kernwright_plan::launch::{Launch, Lowered};
use kernwright_plan::lockstep::{Lockstep, Outcome};
use kernwright_plan::ops::attention::SHARES;
use kernwright_plan::passes::split_heads;
use kernwright_plan::plan::{Phase, Plan};
use kernwright_plan::spec::KernelSpec;
use kernwright_plan::tuning::{Row, Table, When};
use kernwright_plan::{Options, chain};
use kernwright_runtime::Cuda;
use kernwright_runtime::driver::Driver;
use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A tile of a unit.
pub(super) type Trial = (Unit, Vec<usize>);

/// What is heard of tiles while they are held to the definition.
pub(super) enum Heard {
    /// The tile of that number is about to run.
    Begin(usize),
    /// It ran; what was wrong.
    End(usize, Option<String>),
}

/// The device failed while a tile ran, and may do nothing right from now on.
#[derive(Debug)]
pub(super) struct Failed(pub(super) String);

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(why) = self;
        write!(f, "the device failed: {why}")
    }
}

impl Error for Failed {}

/// Who listens; `false` ends it.
pub(super) type Listener<'a> = &'a mut dyn FnMut(Heard) -> Result<bool, String>;

/// What trials are made on.
pub(super) trait Machine {
    /// The tile of the kernel as it is now.
    fn current(&self, unit: &Unit) -> Option<Vec<usize>>;

    /// All tiles worth trying.
    fn candidates(&self, unit: &Unit) -> Vec<Vec<usize>>;

    /// A text for each trial that is another where its pass's kernels are others.
    fn texts(&mut self, trials: &[Trial]) -> Result<Vec<String>, Box<dyn Error>>;

    /// Begins to compile the kernels of trials, in their order.
    fn compile(&mut self, trials: &[Trial]) -> Result<(), Box<dyn Error>>;

    /// What the compiler has against the one of that number among those.
    fn fault(&mut self, number: usize) -> Result<Option<String>, Box<dyn Error>>;

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

/// What a search did with its time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spent {
    /// Waiting for the compiler.
    pub(super) waiting: Duration,
    /// Holding tiles to the definition.
    pub(super) checking: Duration,
    /// Making inputs.
    pub(super) loading: Duration,
    /// Timing.
    pub(super) timing: Duration,
}

impl fmt::Display for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [waiting, checking, loading, timing] =
            [self.waiting, self.checking, self.loading, self.timing].map(|time| time.as_secs_f64());
        write!(
            f,
            "of these {waiting:.0} s for the compiler, {checking:.0} s beside the definition, {loading:.0} s for inputs, \
             {timing:.0} s for times"
        )
    }
}

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
    /// Texts by name.
    pub(super) rendered: HashMap<String, String>,
    pub(super) compile: Compile,
    pub(super) compiling: Option<Compiling>,
    /// Of each trial that is compiled the kernels that are tuned, and those that its plans launch beside them.
    pub(super) names: Vec<[Vec<String>; 2]>,
    /// What is loaded for timing: a case, are its gradients free, its plan.
    pub(super) loaded: Vec<(Case, bool, PlanId)>,
    /// Bytes of these, and how many there may be.
    pub(super) held: usize,
    pub(super) room: usize,
    pub(super) spent: Spent,
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

    /// The names of the kernels of a unit's pass, whose texts are there then.
    fn kernels(&mut self, (unit, values): &Trial) -> Result<Vec<String>, String> {
        let arch = self.with(unit, values);
        let plan = unit.case.plan(&self.options(unit.pass), self.dtype, 1, 1);
        let step = &plan.steps[index(unit.pass)];
        let launches = match step.op.lower(&plan.io(step), &arch) {
            Lowered::NoKernel(why) => return Err(why.to_owned()),
            Lowered::Launches(launches) => launches,
        };
        let specs = launches.into_iter().filter_map(|launch| match launch {
            Launch::Kernel { spec, .. } => Some(spec),
            _ => None,
        });
        self.render(specs.collect(), &arch)
    }

    /// The same of what a unit's plans launch beside what is tuned, with the tiles of today.
    fn others(&mut self, unit: &Unit) -> Result<Vec<String>, String> {
        let arch = self.arch.clone();
        let timed = unit.case.plan(&self.options(unit.pass), self.dtype, 1, 1);
        let specs = [timed, self.small(unit)].into_iter().flat_map(|plan| of_plan(&plan, &arch));
        self.render(specs.collect(), &arch)
    }

    fn render(&mut self, specs: Vec<KernelSpec>, arch: &Arch) -> Result<Vec<String>, String> {
        let mut names = Vec::new();
        for spec in specs {
            let name = spec.name();
            if !self.rendered.contains_key(&name) {
                self.rendered.insert(name.clone(), (self.render)(&spec, arch)?);
            }
            names.push(name);
        }
        Ok(names)
    }

    /// Has the plan of a case loaded, and its inputs and the output there.
    fn load(&mut self, unit: &Unit) -> Result<PlanId, Box<dyn Error>> {
        let (case, is_free) = (unit.case, unit.pass == Pass::Free);
        if let Some((_, _, id)) =
            self.loaded.iter().find(|(other, free, _)| (*other, *free) == (case, is_free))
        {
            return Ok(*id);
        }
        let start = Instant::now();
        let plan = case.plan(&self.options(unit.pass), self.dtype, case.copies(), case.sets());
        let bytes: usize =
            plan.buffers.iter().filter(|buffer| buffer.view.is_none()).map(|buffer| buffer.bytes()).sum();
        if self.held + bytes > self.room {
            self.clear()?;
        }
        self.executor.lower_for(self.arch.clone());
        let inputs = Case::inputs(&plan);
        let id = self.executor.load(plan)?;
        inputs.fill(&mut |buffer, values| self.executor.write(id, buffer, values))?;
        self.executor.run_phase(id, Phase::Forward, MicroStep::First)?;
        self.executor.wait()?;
        self.held += bytes;
        self.loaded.push((case, is_free, id));
        self.spent.loading += start.elapsed();
        Ok(id)
    }

    fn clear(&mut self) -> Result<(), ExecutorError> {
        (self.held, self.loaded) = (0, Vec::new());
        self.executor.clear()
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

    fn texts(&mut self, trials: &[Trial]) -> Result<Vec<String>, Box<dyn Error>> {
        let mut texts = Vec::new();
        for trial in trials {
            let names = self.kernels(trial)?;
            let text: String = names.iter().map(|name| self.rendered[name].as_str()).collect();
            texts.push(format!("{:032x}", Hash::new().bytes(text.as_bytes()).finish()));
        }
        Ok(texts)
    }

    fn compile(&mut self, trials: &[Trial]) -> Result<(), Box<dyn Error>> {
        self.names.clear();
        let mut place = String::new();
        for trial in trials {
            // Neighbours are of one unit.
            let is_first = std::mem::replace(&mut place, trial.0.key()) != place;
            let others = if is_first { self.others(&trial.0)? } else { Vec::new() };
            let own = self.kernels(trial)?;
            self.names.push([own, others]);
        }
        let mut seen = HashSet::new();
        let names = self.names.iter().flat_map(|[own, others]| others.iter().chain(own));
        let new = names.filter(|name| seen.insert(*name));
        let kernels = new.map(|name| (name.clone(), self.rendered[name].clone())).collect();
        // Before others begin.
        self.compiling = None;
        self.compiling = Some((self.compile)(kernels)?);
        Ok(())
    }

    fn fault(&mut self, number: usize) -> Result<Option<String>, Box<dyn Error>> {
        let start = Instant::now();
        let compiling = self.compiling.as_mut().ok_or("nothing is being compiled")?;
        let [own, others] = &self.names[number];
        for name in others {
            compiling.fault(name)?;
        }
        let mut fault = None;
        for name in own {
            fault = fault.or(compiling.fault(name)?);
        }
        self.spent.waiting += start.elapsed();
        Ok(fault)
    }

    fn check(
        &mut self,
        unit: &Unit,
        tiles: &[Vec<usize>],
        heard: Listener<'_>,
    ) -> Result<(), Box<dyn Error>> {
        let start = Instant::now();
        let plan = self.small(unit);
        let arches: Vec<Arch> = tiles.iter().map(|values| self.with(unit, values)).collect();
        self.executor.lower_for(self.arch.clone());
        let id = self.executor.load(plan.clone())?;
        let mut lockstep = Lockstep::new(&plan)?;
        Case::inputs(&plan).fill(&mut |buffer, values| lockstep.write(buffer, values))?;
        if unit.pass != Pass::Forward {
            // Gradients begin with the true output.
            lockstep.step_repeatedly(&mut self.executor, id, (0, MicroStep::First), &mut |_, _| Ok(false))?;
        }
        let (mut number, mut failed) = (0, None);
        let place = (index(unit.pass), MicroStep::First);
        lockstep.step_repeatedly(&mut self.executor, id, place, &mut |executor, outcome| {
            let told = |result: Result<bool, String>| result.map_err(ExecutorError::Plan);
            if let Some(outcome) = outcome {
                let is_on = told(heard(Heard::End(number, outcome.fault())))?;
                number += 1;
                if let Outcome::Failed(error) = &outcome {
                    failed = Some(Failed(chain(error)));
                }
                if !is_on || failed.is_some() {
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
        self.spent.checking += start.elapsed();
        failed.map_or(Ok(()), |failed| Err(failed.into()))
    }

    fn time(
        &mut self,
        unit: &Unit,
        tiles: &[Vec<usize>],
        heard: &mut dyn FnMut(usize, f64) -> Result<bool, String>,
    ) -> Result<(), Box<dyn Error>> {
        let id = self.load(unit)?;
        let start = Instant::now();
        let phase = if unit.pass == Pass::Forward { Phase::Forward } else { Phase::Backward };
        for (number, values) in tiles.iter().enumerate() {
            self.executor.lower_again(id, self.with(unit, values))?;
            let seconds = Case::seconds(&mut self.executor, id, phase, (self.repeats, unit.case.copies()))?;
            if !heard(number, Spread::of(&seconds).median)? {
                break;
            }
        }
        self.spent.timing += start.elapsed();
        Ok(())
    }
}
