//! What a checkpoint keeps of an executor besides weights and moments, so that a resumed run repeats its bits.
//!
//! In: an executor, a plan. Out: JSON with the algorithms it chose and the state buffers of the plan, such as the scale of
//! the loss; and the same again into an executor. Old checkpoints have nothing here.

use kernwright_plan::buffer::{BufferId, Role};
use kernwright_plan::executor::{Executor, ExecutorError, PlanId, Values};
use serde_json::{Map, Value};

/// The key of the algorithms.
const CHOICES: &str = "choices";
/// The key of the buffers, by name.
const STATE: &str = "state";

/// What is to be kept; null where there is nothing.
pub(super) fn read(executor: &dyn Executor, plan: PlanId) -> Result<Value, ExecutorError> {
    let mut kept = Map::new();
    if let Some(choices) = executor.choices().and_then(|text| serde_json::from_str(&text).ok()) {
        kept.insert(CHOICES.to_owned(), choices);
    }
    let mut state = Map::new();
    for buffer in buffers(executor, plan) {
        let values = executor.read(plan, buffer)?;
        state.insert(executor.plan(plan).buffer(buffer).name.clone(), values.into());
    }
    if !state.is_empty() {
        kept.insert(STATE.to_owned(), state.into());
    }
    Ok(if kept.is_empty() { Value::Null } else { kept.into() })
}

/// Tells the executor what it chose.
pub(super) fn recall(executor: &mut dyn Executor, kept: &Value) -> Result<(), ExecutorError> {
    if !(kept.is_null() || kept.is_object()) {
        let problem =
            format!("`executor` of the checkpoint must be an object or null, found `{kept}`: it is damaged");
        return Err(ExecutorError::Plan(problem));
    }
    kept.get(CHOICES).map_or(Ok(()), |choices| executor.adopt(&choices.to_string()))
}

/// What a run that goes on is not: halted. Its weights are those of before whatever halted it.
const HALTED: &str = "halted";

/// Writes the state buffers that the plan has and the checkpoint knows.
#[allow(clippy::cast_possible_truncation)]
pub(super) fn write(executor: &mut dyn Executor, plan: PlanId, kept: &Value) -> Result<(), ExecutorError> {
    for buffer in buffers(executor, plan) {
        let about = executor.plan(plan).buffer(buffer);
        if about.name == HALTED {
            continue;
        }
        let is_integer = about.dtype.is_integer();
        let Some(values) = kept.get(STATE).and_then(|state| state.get(&about.name)) else { continue };
        let values: Vec<f64> = values.as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
        if is_integer {
            let values: Vec<i32> = values.into_iter().map(|value| value as i32).collect();
            executor.write(plan, buffer, Values::Int(&values))?;
        } else {
            let values: Vec<f32> = values.into_iter().map(|value| value as f32).collect();
            executor.write(plan, buffer, Values::Float(&values))?;
        }
    }
    Ok(())
}

fn buffers(executor: &dyn Executor, plan: PlanId) -> Vec<BufferId> {
    let buffers = executor.plan(plan).buffers.iter().enumerate();
    buffers.filter(|(_, buffer)| buffer.role == Role::State).map(|(index, _)| BufferId(index)).collect()
}
