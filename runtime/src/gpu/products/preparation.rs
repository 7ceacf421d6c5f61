//! Choosing the algorithm of each shape of product, before anything of that shape is launched.
//!
//! In: products. Out: a [`Prepared`] per shape, and the choice, for a run to record and a file to remember. What a run
//! recorded goes before what the file remembers, and that before a measurement.

use super::choices::{Choice, Choices};
use super::descriptors::{Beside, Fp32, Operation, Wishes};
use super::functions::{Offer, Words};
use super::layout::{ALIGNED, Key, Layout, Pointers};
use super::scratch::{Bench, Scratch};
use super::selection::{Fault, select};
use super::sequence::Sequence;
use super::{MOST_CANDIDATES, Message, Order, Pick, Products, in_context};
use crate::driver::{Command, DriverError};
use cudarc::driver::sys::CUstream;
use kernwright_plan::launch::Epilogue;
use std::collections::BTreeMap;
use std::time::Instant;

/// A shape that can be launched.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) operation: Operation,
    pub(super) algorithm: Words,
}

/// Where a choice comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Recorded,
    Remembered,
    Measured,
    /// The library's own first one.
    Unmeasured,
}

/// What is to be chosen for.
struct Task<'a> {
    name: &'a str,
    key: &'a Key,
    layout: &'a Layout,
    stream: CUstream,
}

impl Products {
    /// Chooses an algorithm for each product of these commands whose shape has none. Not while a stream is capturing.
    ///
    /// # Errors
    /// When the library can do one of them by no algorithm, or the GPU fails.
    pub fn prepare(
        &mut self,
        commands: &[Command],
        pointers: Pointers<'_>,
        stream: CUstream,
    ) -> Result<(), DriverError> {
        let mut new: Vec<(Key, Layout)> = Vec::new();
        for command in commands {
            let Command::Product(product) = command else { continue };
            let layout = Layout::of(product)?;
            if layout.is_empty() {
                continue;
            }
            let key = layout.key(pointers)?;
            if !self.prepared.contains_key(&key) && new.iter().all(|(known, _)| *known != key) {
                new.push((key, layout));
            }
        }
        let mut sequence = None;
        let mut measured = Choices { shapes: BTreeMap::new(), ..self.chosen.clone() };
        let mut outcome = Ok(());
        let (of, begun) = (new.len(), Instant::now());
        for (done, (key, layout)) in new.into_iter().enumerate() {
            let name = self.name(&key);
            let task = Task { name: &name, key: &key, layout: &layout, stream };
            match self.choose(&task, &mut sequence, (done, of)) {
                Ok((prepared, choice, origin)) => {
                    if origin == Origin::Measured {
                        measured.shapes.insert(name.clone(), choice.clone());
                    }
                    self.chosen.shapes.insert(name, choice);
                    self.prepared.insert(key, prepared);
                }
                Err(error) => {
                    outcome = Err(in_context(&layout, error));
                    break;
                }
            }
        }
        if !measured.shapes.is_empty() {
            let (shapes, seconds) = (measured.shapes.len(), begun.elapsed().as_secs_f64());
            self.say(Message::Chosen { shapes, seconds });
            if let Some(Err(error)) = self.memory.as_ref().map(|memory| memory.add(&measured)) {
                self.say(Message::Note(format!("{error}: chosen algorithms are not kept")));
            }
            self.remembered.shapes.extend(measured.shapes);
        }
        outcome
    }

    /// What records and files call a choice: the shape, and what was asked of the algorithm.
    fn name(&self, key: &Key) -> String {
        let tf32 = if self.settings.fp32 == Fp32::Tf32 { " tf32" } else { "" };
        let order = if self.settings.order == Order::Fixed { "" } else { " any-order" };
        format!("{key}{tf32}{order}")
    }

    fn choose(
        &mut self,
        task: &Task<'_>,
        sequence: &mut Option<Sequence>,
        (done, of): (usize, usize),
    ) -> Result<(Prepared, Choice, Origin), DriverError> {
        let operation = Operation::new(&self.handle, task.layout, self.settings.fp32)?;
        // The library looks at nothing of these but their alignment before it multiplies.
        let somewhere = |alignment: u32| 1 << 20 | u64::from(alignment % ALIGNED);
        let beside = Beside {
            bias: task.key.bias.map_or(0, somewhere),
            epilogue: task.key.epilogue.matrix().map_or(0, |side| somewhere(side.alignment)),
        };
        if let Some((algorithm, choice, origin)) = self.known(task, &operation, beside) {
            return Ok((Prepared { operation, algorithm }, choice, origin));
        }
        let is_first = self.settings.pick == Pick::First;
        let count = if is_first { 1 } else { self.settings.candidates.clamp(1, MOST_CANDIDATES) };
        let deterministic = self.settings.order == Order::Fixed;
        let wishes = Wishes { workspace: self.workspace.bytes, deterministic, count };
        let offers = operation.offers(task.key, wishes, beside)?;
        let Some(first) = offers.first() else {
            let advice = match task.layout.epilogue {
                Epilogue::None => "",
                _ => ": plan without `gelu_in_linear` and `gelu_gradient_in_linear`",
            };
            return Err(DriverError::Failed(format!(
                "cuBLASLt offers no algorithm for it on this GPU{advice}"
            )));
        };
        let choice = if is_first {
            None
        } else {
            self.say(Message::Choosing { done, of, product: task.layout.in_words() });
            self.measure(task, &operation, &offers, sequence.get_or_insert_with(Sequence::new))?
        };
        Ok(match choice {
            Some((algorithm, choice)) => (Prepared { operation, algorithm }, choice, Origin::Measured),
            None => {
                let (algorithm, choice) = (first.algorithm, unmeasured(&operation, &first.algorithm));
                (Prepared { operation, algorithm }, choice, Origin::Unmeasured)
            }
        })
    }

    /// The choice that a run recorded or a file remembers, if this library takes it.
    fn known(
        &mut self,
        task: &Task<'_>,
        operation: &Operation,
        beside: Beside,
    ) -> Option<(Words, Choice, Origin)> {
        let remembered = self.remembered.shapes.get(task.name);
        let remembered = remembered.filter(|_| self.settings.pick == Pick::Fastest);
        let recorded = self.recorded.shapes.get(task.name);
        let is_new = !self.recorded.shapes.is_empty() && recorded.is_none();
        let known = [(recorded.cloned(), Origin::Recorded), (remembered.cloned(), Origin::Remembered)];
        if is_new {
            let product = task.layout.in_words();
            self.say(Message::Note(format!("the run recorded no algorithm for {product}: it is chosen now")));
        }
        for (choice, origin) in known {
            let Some(choice) = choice else { continue };
            let algorithm = choice.words();
            let needed = algorithm.map(|algorithm| operation.accepts(&algorithm, beside));
            match (algorithm, needed) {
                (Some(algorithm), Some(Ok(workspace))) if workspace <= self.workspace.bytes => {
                    return Some((algorithm, choice, origin));
                }
                _ if origin == Origin::Recorded => self.say(Message::Note(format!(
                    "cuBLASLt {} does not take the algorithm that the run recorded for {}: it is chosen anew, and \
                     results may differ in their last bits",
                    self.version,
                    task.layout.in_words()
                ))),
                _ => {}
            }
        }
        None
    }

    /// The fastest right one of what is offered; none where there is no room to find out.
    fn measure(
        &mut self,
        task: &Task<'_>,
        operation: &Operation,
        offers: &[Offer],
        sequence: &Sequence,
    ) -> Result<Option<(Words, Choice)>, DriverError> {
        let words = task.layout.in_words();
        let bench = Bench {
            device: &self.device,
            stream: task.stream,
            workspace: (self.workspace.at, self.workspace.bytes),
            sequence,
            deterministic: self.settings.order == Order::Fixed,
            operand_error: if self.settings.fp32 == Fp32::Tf32 { 2.0_f64.powi(-9) } else { 0.0 },
        };
        let selection = match Scratch::new(&bench, operation, task.layout, task.key, offers) {
            Ok(mut scratch) => select(offers.len(), &mut scratch)?,
            Err(DriverError::Memory { bytes, .. }) => {
                self.say(Message::Note(format!(
                    "no room for {bytes} bytes to measure {words}: the library's first algorithm is taken"
                )));
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        // What is refused or adds in any order is left out as a matter of course.
        for (number, fault) in selection.faults.iter().filter(|(_, fault)| matches!(fault, Fault::Wrong(_))) {
            let (number, of) = (number + 1, offers.len());
            self.say(Message::Note(format!("{words}: algorithm {number} of {of} {fault}")));
        }
        let algorithm = offers[selection.best].algorithm;
        let choice = Choice {
            microseconds: Some(selection.seconds * 1e6),
            first_microseconds: selection.first.map(|seconds| seconds * 1e6),
            candidates: offers.len(),
            ..unmeasured(operation, &algorithm)
        };
        Ok(Some((algorithm, choice)))
    }
}

fn unmeasured(operation: &Operation, algorithm: &Words) -> Choice {
    Choice {
        algorithm: Choice::text(algorithm),
        traits: operation.traits(algorithm),
        microseconds: None,
        first_microseconds: None,
        candidates: 1,
    }
}
