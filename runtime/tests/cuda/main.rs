//! The executor that launches kernels, without any: memory, products, recordings, and what it says when something fails.

mod errors;
mod host;
mod memory;
mod products;
mod tables;
mod timing;

use kernwright_plan::arch;
use kernwright_plan::buffer::BufferId;
use kernwright_plan::dtype::Dtype;
use kernwright_plan::passes::memory::place;
use kernwright_plan::plan::Plan;
use kernwright_runtime::Cuda;
use kernwright_runtime::driver::Layout;

pub(crate) const LAYOUTS: [Layout; 2] = [Layout::Separate, Layout::Arena];

pub(crate) fn cuda(driver: host::Host) -> Cuda<host::Host> {
    Cuda::new(driver, arch::ALL[0].clone(), Box::new(|spec| Ok(format!("// {}", spec.name()))))
}

/// The plan with these floats of another type, and new places.
pub(crate) fn narrowed(mut plan: Plan, names: &[&str], dtype: Dtype) -> Plan {
    for index in 0..plan.buffers.len() {
        let base = plan.base(BufferId(index)).0;
        if names.contains(&plan.buffer(base).name.as_str()) {
            plan.buffers[index].dtype = dtype;
        }
    }
    place(plan)
}
