//! Weights between an executor, a checkpoint and their first values.
//!
//! In: a Shape's parameters, a seed or a checkpoint. Out: buffers filled, or tensors read back. Names are those of
//! `Shape::parameters`; moments are the buffers `m.NAME` and `v.NAME`.

use kernwright_plan::executor::{Executor, ExecutorError, PlanId, Values};
use kernwright_plan::shape::{Initial, Parameter, Shape};

use crate::checkpoint::{Checkpoint, CheckpointError, Kind, TensorShape};
use crate::random::{Random, fill_normals};

/// What goes wrong with weights.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum WeightsError {
    #[error(transparent)]
    Executor(#[from] ExecutorError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}

/// The trained tensors of a Shape, as a checkpoint lists them.
#[must_use]
pub fn tensors(shape: &Shape) -> Vec<TensorShape> {
    shape.parameters().into_iter().map(|p| TensorShape { name: p.name, shape: p.shape }).collect()
}

/// The plan's buffer that holds what a checkpoint stores of `kind` for a weight.
fn buffer_name(kind: Kind, name: &str) -> String {
    match kind {
        Kind::Weight => name.to_owned(),
        Kind::FirstMoment => format!("m.{name}"),
        Kind::SecondMoment => format!("v.{name}"),
    }
}

/// Gives every weight its first value; moments are zero. Each weight has a stream of its own, so its values do not
/// depend on what other weights there are.
///
/// # Errors
/// What the executor says.
pub fn initialise(
    executor: &mut dyn Executor,
    plan: PlanId,
    shape: &Shape,
    seed: u64,
) -> Result<(), WeightsError> {
    for parameter in shape.parameters() {
        let Some(buffer) = executor.plan(plan).find(&parameter.name) else { continue };
        let mut values = vec![0.0_f32; parameter.shape.iter().product()];
        match parameter.initial {
            Initial::Zeros => {}
            Initial::Ones => values.fill(1.0),
            Initial::Normal(deviation) => {
                fill_normals(Random::stream(seed, &parameter.name), deviation, &mut values);
            }
        }
        executor.write(plan, buffer, Values::Float(&parameter.pad(&values)))?;
    }
    Ok(())
}

/// Fills weights, and moments where the plan has them, from a checkpoint.
///
/// # Errors
/// When a tensor is missing there or has another shape.
pub fn load(
    executor: &mut dyn Executor,
    plan: PlanId,
    shape: &Shape,
    checkpoint: &Checkpoint,
) -> Result<(), WeightsError> {
    checkpoint.check_tensors(&tensors(shape))?;
    for parameter in shape.parameters() {
        let tensor = TensorShape { name: parameter.name.clone(), shape: parameter.shape.clone() };
        let mut values = vec![0.0_f32; tensor.len()];
        for kind in [Kind::Weight, Kind::FirstMoment, Kind::SecondMoment] {
            let name = buffer_name(kind, &tensor.name);
            let Some(buffer) = executor.plan(plan).find(&name) else { continue };
            checkpoint.read(kind, &tensor, &mut values)?;
            executor.write(plan, buffer, Values::Float(&parameter.pad(&values)))?;
        }
    }
    Ok(())
}

/// One tensor of a checkpoint, from the executor, without padding.
///
/// # Errors
/// When the plan has no such buffer or the device fails.
pub fn read(
    executor: &dyn Executor,
    plan: PlanId,
    kind: Kind,
    parameter: &Parameter,
) -> Result<Vec<f32>, ExecutorError> {
    let name = buffer_name(kind, &parameter.name);
    match executor.plan(plan).find(&name) {
        Some(buffer) => Ok(parameter.unpad(executor.read(plan, buffer)?)),
        None => Err(ExecutorError::Plan(format!("it has no buffer `{name}`"))),
    }
}
