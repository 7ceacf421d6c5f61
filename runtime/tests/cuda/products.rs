//! Products, copies and modes, against the reference.

use crate::host::Host;
use crate::{LAYOUTS, cuda, narrowed};
use kernwright_plan::buffer::BufferId;
use kernwright_plan::case::{Fill, case};
use kernwright_plan::dtype::Dtype;
use kernwright_plan::executor::{Executor, MicroStep, Values};
use kernwright_plan::launch::{Batch, Epilogue};
use kernwright_plan::ops::linear::Linear;
use kernwright_plan::plan::{Mode, Phase};
use kernwright_plan::reference::{Reference, Rounding};
use kernwright_runtime::driver::{Address, Driver, Product, Rows};
use kernwright_runtime::product::multiply;

#[test]
fn a_product_forward_and_backward_matches_the_reference_in_every_type_and_layout() {
    let shapes = [
        ("x", vec![13, 24], Fill::Normal(1.0)),
        ("weight", vec![16, 24], Fill::Normal(0.5)),
        ("residual", vec![13, 16], Fill::Normal(0.7)),
    ];
    let case = case("13x24 -> 16", Linear::default(), &shapes, &[("y", vec![13, 16])]);
    for (dtype, layout) in [Dtype::Fp32, Dtype::Bf16, Dtype::Fp16].map(|d| LAYOUTS.map(|l| (d, l))).concat() {
        let mut plan = narrowed(case.plan.clone(), &["x", "weight", "y", "seed"], dtype);
        for write in plan.steps.iter_mut().flat_map(|step| &mut step.writes).filter(|w| w.slot == "d_weight")
        {
            write.mode = Mode::AccumulateLater;
        }
        let mut cuda = cuda(Host::new(layout));
        let mut truth = Reference::<f64>::new(Rounding::Follow(dtype));
        let id = cuda.load(plan.clone()).unwrap();
        truth.load(plan.clone()).unwrap();
        for micro in [MicroStep::First, MicroStep::Later, MicroStep::First] {
            for (buffer, content) in case.content(5) {
                cuda.write(id, buffer, content.values()).unwrap();
                truth.write(id, buffer, content.values()).unwrap();
            }
            for phase in [Phase::Forward, Phase::Backward] {
                cuda.run_phase(id, phase, micro).unwrap();
                truth.run_phase(id, phase, micro).unwrap();
            }
            // The gradient of the residual is a kernel's.
            let products = plan.steps.iter().filter(|step| step.op.name().starts_with("linear"));
            for write in products.flat_map(|step| &step.writes) {
                let name = &plan.buffer(write.buffer).name;
                let unit = plan.buffer(write.buffer).dtype.epsilon() as f32;
                let found = cuda.read(id, write.buffer).unwrap();
                for (index, (a, b)) in truth.read(id, write.buffer).unwrap().iter().zip(&found).enumerate() {
                    let place = format!("`{name}` of {} {layout:?} {micro:?}", dtype.name());
                    assert!((a - b).abs() <= 8.0 * unit * (1.0 + a.abs()), "{place}, {index}: {a} and {b}");
                }
            }
        }
    }
}

#[test]
fn batches_of_products_walk_their_strides() {
    // Two sequences of three heads: d[s][h] (2x2) = a[s][h] (2x3) times the transpose of b[s][h / 3] (2x3).
    let mut host = Host::new(LAYOUTS[0]);
    let mut rows = |n: usize, first: f32| {
        let values: Vec<f64> = (0..n).map(|i| f64::from(first + i as f32)).collect();
        let allocation = host.allocate("matrix", n * 4).unwrap();
        let at = Address { allocation, offset: 0 };
        host.upload(at, &Dtype::Fp32.encode_all(values)).unwrap();
        at
    };
    let (a, b, d) = (rows(36, 1.0), rows(12, -4.0), rows(24, 0.0));
    let of = |at, stride| Rows { at, dtype: Dtype::Fp32, stride };
    let product = Product {
        a: of(a, 9),
        a_transposed: false,
        b: of(b, 3),
        b_transposed: true,
        c: None,
        bias: None,
        d: of(d, 2),
        epilogue: Epilogue::None,
        m: 2,
        n: 2,
        k: 3,
        batches: vec![Batch { count: 2, a: 18, b: 6, d: 12 }, Batch { count: 3, a: 3, b: 0, d: 4 }],
    };
    multiply(&product, &mut host).unwrap();
    let mut found = vec![0; 96];
    host.download(d, &mut found).unwrap();
    let found: Vec<f64> = Dtype::Fp32.decode_all(&found).collect();
    for (index, found) in found.iter().enumerate() {
        let (sequence, head, row, column) = (index / 12, index / 4 % 3, index / 2 % 2, index % 2);
        let a = |i: usize| (1 + sequence * 18 + row * 9 + head * 3 + i) as f64;
        let b = |i: usize| (sequence * 6 + column * 3 + i) as f64 - 4.0;
        assert_eq!(*found, (0..3).map(|i| a(i) * b(i)).sum::<f64>(), "element {index}");
    }
}

#[test]
fn columns_of_a_wider_buffer_are_written_and_read_alone() {
    let shapes = [("x", vec![3, 4], Fill::Normal(1.0)), ("weight", vec![2, 4], Fill::Normal(1.0))];
    let mut plan = case("view", Linear::default(), &shapes, &[("y", vec![3, 2])]).plan;
    let x = plan.find("x").unwrap();
    let view = plan.add_view("middle", x, 1..3);
    let plan = narrowed(plan, &["x"], Dtype::Bf16);
    for layout in LAYOUTS {
        let mut cuda = cuda(Host::new(layout));
        let id = cuda.load(plan.clone()).unwrap();
        cuda.write(id, x, Values::Float(&[1.0; 12])).unwrap();
        cuda.write(id, view, Values::Float(&[2.0, 3.0, 4.0, 5.0, 6.0, 7.0])).unwrap();
        assert_eq!(cuda.read(id, view).unwrap(), [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
        let whole = [1.0, 2.0, 3.0, 1.0, 1.0, 4.0, 5.0, 1.0, 1.0, 6.0, 7.0, 1.0];
        assert_eq!(cuda.read(id, x).unwrap(), whole);
    }
    assert_eq!(view, BufferId(plan.buffers.len() - 1));
}
