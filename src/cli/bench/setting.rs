//! Flags that decide what a training step is, and on what it runs.
//!
//! In: flags. Out: a Shape, options of its plan and an executor; or what is wrong with them.

use super::super::Declared;
use super::super::device::{self, Asked, Device, DeviceArguments};
use super::super::memory::{Fit, Need, Room, launches};
use super::super::plan_flags::PlanFlags;
use super::super::shape::Named;
use super::super::shape::changed::ChangedShape;
use crate::environment::Environment;
use clap::Args;
use kernwright_plan::{Options, train_step};
use std::error::Error;
use std::ffi::OsString;

/// Rows are numbered by 32-bit whole numbers.
const MOST_TOKENS: usize = (1 << 31) - 1;

/// Flags that decide what a training step is, but for the Shape and the batch.
#[derive(Clone, Debug, Args)]
pub(in super::super) struct Setting {
    /// Tokens per sequence; by default the context of the shape, 1024 at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    length: Option<u32>,
    #[command(flatten)]
    plan: PlanFlags,
    /// Refuse a step that needs more memory than this [default: what is free]
    #[arg(long, value_name = "MiB", value_parser = clap::value_parser!(u64).range(1..))]
    memory_budget: Option<u64>,
    #[command(flatten)]
    device: DeviceArguments,
}

/// What is to be run, and on what.
pub(in super::super) struct Prepared {
    pub(in super::super) named: Named,
    pub(in super::super) device: Device,
    pub(in super::super) options: Options,
    pub(in super::super) batch: usize,
    pub(in super::super) length: usize,
}

impl Setting {
    /// Makes the executor, once everything that can be wrong without it is right.
    pub(in super::super) fn prepare(
        &self,
        shape: &ChangedShape,
        batch: u32,
        declared: Option<Declared>,
        environment: &Environment,
    ) -> Result<Prepared, Box<dyn Error>> {
        let named = shape.resolve(declared)?;
        let (batch, length) = (batch as usize, self.length(&named)?);
        if batch > MOST_TOKENS / length {
            let found = format!("`{batch}` times `{length}`");
            return Err(format!("`--batch` times `--length` must be below 2^31, found {found}").into());
        }
        let order = self.plan.order();
        let device = device::executor(&self.device, &named.shape, declared, environment, order)?;
        let options = self.plan.options(&device.options, &named.shape)?;
        let room = Room::on(&device, self.memory_budget);
        let plan = |batch| train_step(&named.shape, &options, batch, length);
        let need = |batch| Need::of_step(&plan(batch), &device.beside);
        let can = |batch| device.gpu.as_ref().is_none_or(|gpu| launches(&plan(batch), &gpu.arch));
        let limit = MOST_TOKENS / length;
        Fit { room: &room, need: Box::new(need), limit, launches: Box::new(can) }.check(batch)?;
        Ok(Prepared { named, device, options, batch, length })
    }

    fn length(&self, named: &Named) -> Result<usize, String> {
        let context = named.shape.context;
        match self.length.map(|length| length as usize) {
            None => Ok(context.min(1024)),
            Some(length) if length <= context => Ok(length),
            Some(length) => Err(format!(
                "`--length` must be at most {context}, the context of `{}`, found `{length}`: raise it with `--set \
                 model.context={length}`",
                named.name
            )),
        }
    }

    /// The flags that say the same.
    pub(super) fn flags(&self) -> Vec<OsString> {
        let mut flags = self.plan.flags();
        if let Some(length) = self.length {
            flags.extend(["--length".into(), length.to_string().into()]);
        }
        if let Some(budget) = self.memory_budget {
            flags.extend(["--memory-budget".into(), budget.to_string().into()]);
        }
        if let Some(device) = match self.device.device {
            Asked::Auto => None,
            Asked::Cpu => Some("cpu".to_owned()),
            Asked::Cuda(index) => Some(format!("cuda:{index}")),
        } {
            flags.extend(["--device".into(), device.into()]);
        }
        if let Some(threads) = self.device.threads {
            flags.extend(["--threads".into(), threads.to_string().into()]);
        }
        flags
    }
}
