//! Launches, which name buffers, become commands, which name memory.
//!
//! In: a launch of a plan's step, where its buffers lie, the kernels that are loaded. Out: a [`Command`], and a launch in
//! words for error messages.

use super::memory::{Memory, Places, failed, missing};
use crate::driver::{Address, Command, Driver, Kernel, Product, Rows, Value};
use kernwright_plan::buffer::BufferId;
use kernwright_plan::executor::ExecutorError;
use kernwright_plan::launch::{Argument, Entry, Gemm, Launch, Operand};
use kernwright_plan::plan::Plan;
use std::collections::HashMap;

/// Bytes of an entry of a table.
pub(super) const ENTRY: usize = 8;

/// What names of a launch stand for.
pub(super) struct Binding<'a> {
    pub(super) plan: &'a Plan,
    pub(super) room: Room<'a>,
    pub(super) kernels: &'a HashMap<String, Kernel>,
}

/// Where buffers of a plan lie.
#[derive(Clone, Copy)]
pub(super) enum Room<'a> {
    /// In the executor's own memory.
    Placed(&'a Places, &'a Memory),
    /// Where whoever calls says, for each base buffer.
    Given(&'a [Option<Address>]),
}

impl Binding<'_> {
    pub(super) fn address(&self, id: BufferId) -> Result<Address, ExecutorError> {
        match self.room {
            Room::Placed(places, memory) => memory.address(self.plan, places, id),
            Room::Given(addresses) => {
                let (base, column) = self.plan.base(id);
                let at = addresses.get(base.0).copied().flatten().ok_or_else(|| missing(self.plan, id))?;
                Ok(at.after(column * self.plan.buffer(id).dtype.bytes()))
            }
        }
    }

    fn entries(&self, entries: &[Entry]) -> Result<Address, ExecutorError> {
        match self.room {
            Room::Placed(places, _) => places.table(entries),
            Room::Given(_) => {
                Err(ExecutorError::Plan("a table of a launch has no place in memory".to_owned()))
            }
        }
    }

    pub(super) fn command(&self, launch: &Launch) -> Result<Command, ExecutorError> {
        Ok(match launch {
            Launch::Kernel { spec, grid, arguments } => {
                let name = spec.name();
                let kernel = self.kernels.get(&name);
                let kernel = kernel
                    .ok_or_else(|| ExecutorError::Plan(format!("kernel `{name}` was not loaded with it")))?;
                let arguments: Result<_, _> = arguments.iter().map(|one| self.value(one)).collect();
                Command::Kernel { kernel: *kernel, grid: *grid, arguments: arguments? }
            }
            Launch::Gemm(gemm) => Command::Product(product(self.plan, gemm, |id| self.address(id))?),
            Launch::Copy { from, to } => {
                let bytes = self.whole(*from)?;
                if bytes != self.whole(*to)? {
                    let [from, to] = [from, to].map(|id| &self.plan.buffer(*id).name);
                    return Err(ExecutorError::Plan(format!("`{from}` is copied to `{to}` of another size")));
                }
                Command::Copy { from: self.address(*from)?, to: self.address(*to)?, bytes }
            }
            Launch::Zero { buffer } => {
                Command::Zero { at: self.address(*buffer)?, bytes: self.whole(*buffer)? }
            }
        })
    }

    /// The bytes of a buffer that is no view.
    fn whole(&self, id: BufferId) -> Result<usize, ExecutorError> {
        let buffer = self.plan.buffer(id);
        match buffer.view {
            None => Ok(buffer.bytes()),
            Some(_) => Err(ExecutorError::Plan(format!(
                "columns of a wider buffer, `{}`, are copied or set to zero as if they were one",
                buffer.name
            ))),
        }
    }

    fn value(&self, argument: &Argument) -> Result<Value, ExecutorError> {
        Ok(match argument {
            Argument::Buffer(id) => Value::Address(id.map(|id| self.address(id)).transpose()?),
            Argument::Table(entries) => Value::Address(Some(self.entries(entries)?)),
            Argument::TensorMap(map) => {
                let size = map.layout.dtype.bytes();
                Value::TensorMap { at: self.address(map.buffer)?.after(map.first * size), layout: map.layout }
            }
            Argument::I32(number) => Value::I32(*number),
            Argument::I64(number) => Value::I64(*number),
            Argument::F32(number) => Value::F32(*number),
        })
    }

    /// A table as it lies in memory.
    pub(super) fn table(&self, driver: &impl Driver, entries: &[Entry]) -> Result<Vec<u8>, ExecutorError> {
        let mut bytes = Vec::with_capacity(ENTRY * entries.len());
        for entry in entries {
            let word = match entry {
                Entry::Buffer(None) => 0,
                Entry::Buffer(Some(id)) => {
                    let what = || format!("name `{}` in a table", self.plan.buffer(*id).name);
                    driver.pointer(self.address(*id)?).map_err(|error| failed(&what(), error))?
                }
                Entry::I64(number) => number.cast_unsigned(),
            };
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        Ok(bytes)
    }
}

/// The product that a launch names, in memory where `address` says that buffers lie.
///
/// # Errors
/// What `address` says.
pub fn product<E>(
    plan: &Plan,
    gemm: &Gemm,
    address: impl Fn(BufferId) -> Result<Address, E>,
) -> Result<Product, E> {
    let rows = |id: BufferId, row: usize, column: usize| {
        let stride = plan.row_stride(id);
        let rows = Rows { at: address(id)?, dtype: plan.buffer(id).dtype, stride };
        Ok(rows.after(row * stride + column))
    };
    let operand = |of: &Operand| rows(of.buffer, of.row, of.column);
    Ok(Product {
        a: operand(&gemm.a)?,
        a_transposed: gemm.a.transposed,
        b: operand(&gemm.b)?,
        b_transposed: gemm.b.transposed,
        c: gemm.c.map(|c| rows(c, gemm.row, 0)).transpose()?,
        bias: gemm.bias.map(|bias| rows(bias, 0, 0)).transpose()?,
        d: rows(gemm.d, gemm.row, 0)?,
        epilogue: gemm.epilogue.try_map(|matrix| rows(matrix, gemm.row, 0))?,
        m: gemm.m,
        n: gemm.n,
        k: gemm.k,
        batches: gemm.batches.clone(),
    })
}

/// A launch as error messages name it.
pub(super) fn describe(plan: &Plan, launch: &Launch) -> String {
    let name = |id: &BufferId| &plan.buffer(*id).name;
    match launch {
        Launch::Kernel { spec, grid: [x, y, z], .. } => format!(
            "kernel `{}` on {x}x{y}x{z} blocks of {} threads and {} bytes of shared memory",
            spec.name(),
            spec.block,
            spec.shared_memory
        ),
        Launch::Gemm(Gemm { a, b, d, m, n, k, batches, .. }) => {
            let times: usize = batches.iter().map(|batch| batch.count).product();
            let times = if batches.is_empty() { String::new() } else { format!("{times} times ") };
            let (a, b, d) = (name(&a.buffer), name(&b.buffer), name(d));
            format!("the product of `{a}` and `{b}` into `{d}`, {times}{m}x{k} by {k}x{n}")
        }
        Launch::Copy { from, to } => format!("the copy of `{}` to `{}`", name(from), name(to)),
        Launch::Zero { buffer } => format!("setting `{}` to zero", name(buffer)),
    }
}
