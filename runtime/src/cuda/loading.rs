//! What a plan needs on a device before it runs: its kernels, and its tables of tensors.
//!
//! In: the launches that a plan was lowered to. Out: kernels loaded, once each, and tables that say where buffers lie.

use super::binding::{Binding, Room};
use super::memory::failed;
use super::{Cuda, Loaded};
use crate::driver::{Driver, Text};
use kernwright_plan::executor::ExecutorError;
use kernwright_plan::launch::{Argument, Entry, Launch, Lowered};

/// The tables of all launches, each once.
pub(super) fn tables(lowered: &[Vec<Lowered>; 2]) -> Vec<Vec<Entry>> {
    let mut all: Vec<Vec<Entry>> = Vec::new();
    for step in lowered.iter().flatten() {
        let Lowered::Launches(launches) = step else { continue };
        for launch in launches {
            let Launch::Kernel { arguments, .. } = launch else { continue };
            for argument in arguments {
                match argument {
                    Argument::Table(entries) if !all.contains(entries) => all.push(entries.clone()),
                    _ => {}
                }
            }
        }
    }
    all
}

impl<D: Driver> Cuda<D> {
    /// Loads the kernels of these launches that are not loaded yet.
    pub(super) fn load_kernels(&mut self, lowered: &[Vec<Lowered>; 2]) -> Result<(), ExecutorError> {
        let mut texts: Vec<Text> = Vec::new();
        let mut names: Vec<String> = Vec::new();
        for (step, lowered) in lowered.iter().flat_map(|steps| steps.iter().enumerate()) {
            let Lowered::Launches(launches) = lowered else { continue };
            for launch in launches {
                let Launch::Kernel { spec, .. } = launch else { continue };
                let name = spec.name();
                if self.kernels.contains_key(&name) || names.contains(&name) {
                    continue;
                }
                if spec.shared_memory > self.arch.shared_memory {
                    return Err(ExecutorError::Plan(format!(
                        "step {step} launches `{name}` with {} bytes of shared memory, and a block may have {} on `{}`",
                        spec.shared_memory, self.arch.shared_memory, self.arch.name
                    )));
                }
                let text = (self.source)(spec).map_err(|why| ExecutorError::Device {
                    what: format!("find the text of kernel `{name}`, which step {step} launches"),
                    source: why.into(),
                })?;
                texts.push(Text { spec: spec.clone(), text });
                names.push(name);
            }
        }
        let kernels =
            self.driver.load(&texts).map_err(|error| failed("load the kernels of the plan", error))?;
        self.kernels.extend(names.into_iter().zip(kernels));
        Ok(())
    }

    /// Writes where buffers lie into the tables of a plan.
    pub(super) fn fill_tables(&mut self, index: usize) -> Result<(), ExecutorError> {
        let Loaded { plan, places, .. } = &self.plans[index];
        let binding = Binding { plan, room: Room::Placed(places, &self.memory), kernels: &self.kernels };
        for (entries, at) in places.tables() {
            let bytes = binding.table(&self.driver, entries)?;
            self.driver.upload(at, &bytes).map_err(|error| failed("fill a table of tensors", error))?;
        }
        Ok(())
    }
}
