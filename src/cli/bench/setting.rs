//! Flags that decide what a training step is, and on what it runs.
//!
//! In: flags. Out: a Shape, options of its plan and an executor; or what is wrong with them.

use super::super::device::{self, Asked, Device, DeviceArguments};
use super::super::plan::{Path, ablations, precisions, switches};
use super::super::shape::Named;
use super::super::shape::changed::ChangedShape;
use super::super::{Declared, units};
use crate::environment::Environment;
use clap::Args;
use kernwright_plan::dtype::Dtype;
use kernwright_plan::options::AttentionPath;
use kernwright_plan::{Options, train_step};
use kernwright_runtime::gpu::products::Order;
use std::error::Error;
use std::ffi::OsString;

/// Flags that decide what a training step is, but for the Shape and the batch.
#[derive(Clone, Debug, Args)]
pub(in super::super) struct Setting {
    /// Tokens per sequence; by default the context of the shape, 1024 at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    length: Option<u32>,
    /// Element type of matrix operands; by default that of the shape, and fp32 on the CPU
    #[arg(long, value_name = "TYPE", value_parser = precisions())]
    precision: Option<String>,
    /// How attention is computed on the GPU
    #[arg(long, value_name = "PATH", value_enum, default_value_t = Path::Fused)]
    attention: Path,
    /// Let faster kernels add in any order: the same step may then differ in its last bits from run to run
    #[arg(long)]
    nondeterministic: bool,
    /// Leave a pass out of the plan; may be given several times
    #[arg(long, value_name = "PASS", value_parser = switches())]
    without: Vec<String>,
    /// Take a slower form, to measure it; may be given several times
    #[arg(long, value_name = "FORM", value_parser = ablations())]
    with: Vec<String>,
    /// Rows of logits that exist at once [default: what a bound on their bytes allows]
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u32).range(1..))]
    head_chunk: Option<u32>,
    /// Element type of the gradients of weights: fp32, or the precision
    #[arg(long, value_name = "TYPE", value_parser = precisions(), default_value = "fp32")]
    grad_dtype: String,
    /// Refuse a step whose plan needs more memory than this
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
        if batch.checked_mul(length).is_none_or(|tokens| tokens >= 1 << 31) {
            let found = format!("`{batch}` times `{length}`");
            return Err(format!("`--batch` times `--length` must be below 2^31, found {found}").into());
        }
        let order = if self.nondeterministic { Order::Free } else { Order::Fixed };
        let device = device::executor(&self.device, &named.shape, declared, environment, order)?;
        let options = self.options(&device.options);
        if let (None, Some(found)) = (&device.gpu, options.precision.filter(|found| *found != Dtype::Fp32)) {
            return Err(format!("`--precision` must be `fp32` on the CPU, found `{}`", found.name()).into());
        }
        options.check_gradient(&named.shape)?;
        if let Some(budget) = self.memory_budget.map(|mebibytes| mebibytes << 20) {
            let needed = train_step(&named.shape, &options, batch, length).arena_bytes as u64;
            if needed > budget {
                let [needed, budget] = [needed, budget].map(|bytes| units::bytes(bytes as f64));
                let what = format!("the step needs {needed} and `--memory-budget` allows {budget}");
                return Err(format!("{what}: give a smaller `--batch`, or more").into());
            }
        }
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

    /// The options of a plan, over those that the device asks for.
    fn options(&self, of_device: &Options) -> Options {
        let asked = self.precision.as_deref().and_then(Dtype::precision);
        Options {
            precision: asked.or(of_device.precision),
            gradient: Dtype::precision(&self.grad_dtype).unwrap_or(Dtype::Fp32),
            without: self.without.clone(),
            with: self.with.clone(),
            head_chunk: self.head_chunk.map(|rows| rows as usize).or(of_device.head_chunk),
            attention: AttentionPath::from(self.attention),
            deterministic: !self.nondeterministic,
            ..of_device.clone()
        }
    }

    /// The flags that say the same.
    pub(super) fn flags(&self) -> Vec<OsString> {
        let mut flags: Vec<OsString> = Vec::new();
        let mut add = |name: &str, value: String| flags.extend([name.into(), value.into()]);
        if let Some(length) = self.length {
            add("--length", length.to_string());
        }
        if let Some(precision) = &self.precision {
            add("--precision", precision.clone());
        }
        if self.attention == Path::Split {
            add("--attention", "split".to_owned());
        }
        for pass in &self.without {
            add("--without", pass.clone());
        }
        for form in &self.with {
            add("--with", form.clone());
        }
        if let Some(rows) = self.head_chunk {
            add("--head-chunk", rows.to_string());
        }
        add("--grad-dtype", self.grad_dtype.clone());
        if let Some(budget) = self.memory_budget {
            add("--memory-budget", budget.to_string());
        }
        if self.nondeterministic {
            flags.push("--nondeterministic".into());
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
