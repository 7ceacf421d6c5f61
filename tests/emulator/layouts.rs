//! Where buffers lie makes no difference.

use crate::device::{edited, options};
use crate::training::{PATHS, narrow, tiny};
use kernwright_plan::arch;
use kernwright_plan::buffer::{BufferId, Role};
use kernwright_plan::executor::{Executor, PlanId};
use kernwright_runtime::driver::Layout;

#[test]
fn buffers_of_their_own_and_one_arena_give_the_same_bits() {
    let Some(options) = options("comparing layouts") else { return };
    for path in PATHS {
        let mut kept: Vec<Vec<(String, Vec<u32>)>> = Vec::new();
        for layout in [Layout::Separate, Layout::Arena] {
            let mut device = edited(&options, &arch::ALL[0], layout, |text| text);
            tiny().train(&mut device, &narrow(path), 1).unwrap_or_else(|error| panic!("{error:?}"));
            let plan = tiny().plan(&narrow(path));
            let wanted = plan.buffers.iter().enumerate().filter(|(_, buffer)| buffer.role == Role::Parameter);
            let bits = wanted.map(|(index, buffer)| {
                let values =
                    device.read(PlanId(0), BufferId(index)).unwrap_or_else(|error| panic!("{error:?}"));
                (buffer.name.clone(), values.into_iter().map(f32::to_bits).collect())
            });
            kept.push(bits.collect());
        }
        assert!(kept[0].len() > 10 && kept[0] == kept[1], "{path:?}");
    }
}
