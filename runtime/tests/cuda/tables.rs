//! Tables of tensors: filled before anything runs, and again when what they name moves.

use crate::host::Host;
use crate::{LAYOUTS, cuda};
use kernwright_plan::buffer::Role;
use kernwright_plan::dtype::Dtype;
use kernwright_plan::executor::{Executor, MicroStep};
use kernwright_plan::ops::adamw::AdamW;
use kernwright_plan::ops::linear::Linear;
use kernwright_plan::options::Options;
use kernwright_plan::passes::memory::place;
use kernwright_plan::plan::{Phase, Plan, Step};
use kernwright_plan::tape::{read, write};
use kernwright_runtime::driver::Layout;

/// The update of a parameter whose gradient, a product of `rows` rows, is no more than an activation.
fn plan(rows: usize) -> Plan {
    let mut plan = Plan::default();
    let mut add = |name: &str, shape: &[usize], dtype, role| {
        plan.add(format!("{name}.{rows}"), shape.to_vec(), dtype, role)
    };
    let x = add("x", &[rows, 8], Dtype::Fp32, Role::Input);
    let weight = add("weight", &[8, 8], Dtype::Fp32, Role::Parameter);
    let gradient = add("gradient", &[rows, 8], Dtype::Fp32, Role::Activation);
    let trained = [("parameter", Role::Parameter), ("m", Role::Moment), ("v", Role::Moment)]
        .map(|(name, role)| (name, add(name, &[rows, 8], Dtype::Fp32, role)));
    let scalars = [("learning_rate", Dtype::Fp32), ("factor", Dtype::Fp32), ("update", Dtype::I32)]
        .map(|(name, dtype)| (name, add(name, &[1], dtype, Role::Input)));
    plan.steps.push(Step {
        op: Linear::default().into(),
        reads: vec![read("x", x), read("weight", weight)],
        writes: vec![write("y", gradient)],
        phase: Phase::Forward,
    });
    let reads = trained.iter().chain(&scalars).map(|(slot, id)| read(slot, *id));
    plan.steps.push(Step {
        op: AdamW { options: Options::default().adamw, decays: vec![true] }.into(),
        reads: reads.chain([read("gradient", gradient)]).collect(),
        writes: trained.iter().map(|(slot, id)| write(slot, *id)).collect(),
        phase: Phase::Update,
    });
    place(plan)
}

/// The words of every table.
fn tables(host: &Host) -> Vec<Vec<u64>> {
    let named = host.allocations.iter().flatten().filter(|(name, _)| name == "a table of tensors");
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
    named.map(|(_, content)| content.chunks(8).map(word).collect()).collect()
}

/// Parameter, m, v, no working copy, the fp32 gradient and no other; elements, whether it decays, and its first block.
#[test]
fn a_table_names_where_its_buffers_lie_and_follows_them() {
    for layout in LAYOUTS {
        let mut cuda = cuda(Host::new(layout));
        let small = cuda.load(plan(2)).unwrap();
        let before = tables(cuda.driver());
        let [table] = &before[..] else { panic!("{layout:?}: one table, found {before:?}") };
        assert_eq!((table.len(), table[3], table[5]), (9, 0, 0), "{layout:?}: {table:x?}");
        assert_eq!(table[6..], [16, 1, 0], "{layout:?}");
        let mut pointers = [table[0], table[1], table[2], table[4]];
        pointers.sort_unstable();
        assert!(pointers.windows(2).all(|pair| pair[0] < pair[1]), "{layout:?}: each its own: {pointers:x?}");
        assert!(pointers.iter().all(|pointer| (pointer >> 40) < cuda.driver().allocations.len() as u64));
        cuda.run_phase(small, Phase::Update, MicroStep::First).unwrap();
        assert_eq!(tables(cuda.driver()), before, "{layout:?}: nothing is written there by a step");

        cuda.load(plan(500)).unwrap();
        let after = tables(cuda.driver());
        assert_eq!(after.len(), 2, "{layout:?}");
        let moved: Vec<usize> = (0..9).filter(|at| after[0][*at] != before[0][*at]).collect();
        let expected: &[usize] = if layout == Layout::Arena { &[4] } else { &[] };
        assert_eq!(moved, expected, "{layout:?}: the room of activations moves, where it is one");
        let room = |word: u64| cuda.driver().allocations[(word >> 40) as usize].is_some();
        assert!(after.iter().all(|table| room(table[4])), "{layout:?}: memory that is still there");
    }
}
