//! The forms of attention's gradient beside each other on the emulator, and on numbers that break careless ones.

use crate::device::{device, options};
use crate::plans::{self, GRADIENTS};
use kernwright_plan::Options;
use kernwright_plan::arch::{self, Arch};
use kernwright_plan::dtype::{self, Dtype};
use kernwright_plan::executor::{Executor, MicroStep, Values};
use kernwright_plan::ops::attention::{Attention, Form, Window};
use kernwright_plan::plan::Plan;
use kernwright_runtime::emulator;

fn op(head_dim: usize, length: usize) -> Attention {
    Attention {
        heads: 3,
        kv_heads: 1,
        head_dim,
        length,
        key_length: length,
        window: Window::CAUSAL,
        softcap: None,
        scale: (head_dim as f64).sqrt().recip(),
        form: Form::Fused,
    }
}

/// Its plan, with gradients in fp32.
fn plan(op: &Attention, dtype: Dtype, deterministic: bool, split_heads: bool) -> Plan {
    plans::plan(
        op,
        1,
        [dtype, Dtype::Fp32],
        &Options { deterministic, in_turns: true, ..plans::heads(split_heads) },
    )
}

/// The greatest difference, over the greatest number of `expected`.
fn distance(found: &[f32], expected: &[f32]) -> f32 {
    let largest = expected.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
    assert!(largest > 0.0);
    // No number is not small.
    let errors = found.iter().zip(expected).map(|(one, other)| (one - other).abs() / largest);
    errors.fold(0.0, |most, error| if error <= most { most } else { error })
}

/// Numbers between -1 and 1 that look random.
fn noise(n: usize) -> Vec<f32> {
    (0..n as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 23) as f32 - 1.0).collect()
}

/// d_q, d_k and d_v.
fn gradients(plan: &Plan, qkv: &[f32], arch: &Arch, workers: usize) -> Option<[Vec<f32>; 3]> {
    let options = emulator::Options { workers, ..options("gradients of attention")? };
    let mut device = device(&options, arch);
    let id = device.load(plan.clone()).unwrap_or_else(|error| panic!("{error}"));
    let find = |name| plan.find(name).unwrap_or_else(|| panic!("no `{name}`"));
    let d_out = noise(plan.buffer(find("d_out")).len());
    for (name, values) in [("qkv", qkv), ("d_out", &d_out)] {
        device.write(id, find(name), Values::Float(values)).unwrap_or_else(|error| panic!("{error}"));
    }
    let all = 0..plan.steps.len();
    device.run(id, all, MicroStep::First).unwrap_or_else(|error| panic!("{error}: {error:?}"));
    Some(GRADIENTS.map(|slot| device.read(id, find(slot)).unwrap_or_else(|error| panic!("{error}"))))
}

fn input(op: &Attention) -> Vec<f32> {
    noise(op.length * (op.heads + 2 * op.kv_heads) * op.head_dim)
}

fn large_and_small() -> [&'static Arch; 2] {
    ["sm_90a", "sm_86"].map(|name| arch::find(name).unwrap_or_else(|| panic!("no GPU `{name}`")))
}

#[test]
fn ordered_gradients_have_the_same_bits_for_any_number_of_workers() {
    let op = op(40, 200);
    for split in [true, false] {
        let plan = plan(&op, Dtype::Bf16, true, split);
        for arch in large_and_small() {
            let Some(first) = gradients(&plan, &input(&op), arch, 1) else { return };
            for workers in [1, 2, 5] {
                let again = gradients(&plan, &input(&op), arch, workers);
                assert!(again.as_ref() == Some(&first), "{workers} workers, split {split}, {}", arch.name);
            }
        }
    }
}

#[test]
fn gradients_in_any_order_are_those_in_order() {
    let op = op(40, 200);
    for dtype in dtype::ALL.iter().filter(|row| row.bytes == 2).map(|row| row.dtype) {
        for split in [true, false] {
            let [ordered, free] = [true, false].map(|deterministic| plan(&op, dtype, deterministic, split));
            for arch in large_and_small() {
                let Some(ordered) = gradients(&ordered, &input(&op), arch, 2) else { return };
                let Some(free) = gradients(&free, &input(&op), arch, 2) else { return };
                let place = format!("{} on {}, split {split}", dtype.name(), arch.name);
                assert!(ordered[1..] == free[1..], "d_k and d_v of {place}");
                // P and dS come out of the same operations in both; sums of them are fp32.
                let error = distance(&free[0], &ordered[0]);
                assert!(error < 1e-3, "d_q of {place}: {error}");
            }
        }
    }
}

#[test]
fn gradients_of_split_heads_are_those_of_heads_together() {
    let op = Attention { heads: 6, kv_heads: 2, ..op(40, 200) };
    for dtype in dtype::ALL.iter().filter(|row| row.bytes == 2).map(|row| row.dtype) {
        for deterministic in [true, false] {
            let [split, together] = [true, false].map(|split| plan(&op, dtype, deterministic, split));
            for arch in large_and_small() {
                let Some(split) = gradients(&split, &input(&op), arch, 2) else { return };
                let Some(together) = gradients(&together, &input(&op), arch, 2) else { return };
                for ((slot, split), together) in GRADIENTS.iter().zip(&split).zip(&together) {
                    // Of d_k and d_v heads are added up in another order, in fp32; d_q is the same sum.
                    let error = distance(split, together);
                    let place = format!("{slot} of {} on {}", dtype.name(), arch.name);
                    assert!(error < 1e-5, "{place}, deterministic {deterministic}: {error}");
                    let is_exact = *slot == "d_q" && deterministic;
                    assert!(!is_exact || split == together, "{place}");
                }
            }
        }
    }
}

#[test]
fn large_inputs_and_small_logits_have_finite_gradients() {
    for (length, causal) in [(1, true), (129, true), (129, false)] {
        let window = if causal { Window::CAUSAL } else { Window::FULL };
        let op = Attention { window, ..op(64, length) };
        let large: Vec<f32> = input(&op).iter().map(|value| 6.0 * value).collect();
        // Queries point one way and keys the other: every logit is about -100.
        let (width, q) = ((op.heads + 2 * op.kv_heads) * op.head_dim, op.heads * op.head_dim);
        let mut small = input(&op);
        for (index, value) in small.iter_mut().enumerate() {
            let column = index % width;
            let pole = if column < q { 3.5 } else { -3.5 };
            *value = if column < q + op.head_dim { pole + 0.1 * *value } else { *value };
        }
        for deterministic in [true, false] {
            // Heads together under a full mask, apart under a causal one.
            let plan = plan(&op, Dtype::Bf16, deterministic, causal);
            for (name, qkv) in [("large", &large), ("small", &small)] {
                let Some(found) = gradients(&plan, qkv, large_and_small()[0], 2) else { return };
                for (slot, values) in GRADIENTS.iter().zip(found) {
                    let wrong = values.iter().position(|value| !value.is_finite());
                    assert_eq!(wrong, None, "{slot}, {name}, length {length}, causal {causal}");
                    assert!(*slot != "d_v" || values.iter().any(|value| *value != 0.0), "{slot}, {name}");
                }
            }
        }
    }
}

/// A query that sees one key gives it all of its weight, whatever the score: nothing is left for a gradient of q. And the powers of
/// scale / cap in the kernels' polynomials may be numbers that fp32 has not.
#[test]
fn one_key_behind_any_softcap_leaves_nothing_for_queries() {
    for (softcap, scale) in [(30.0, 0.7), (50.0, 0.125), (1.1e-6, 10.0), (1e6, 0.01)] {
        let op = Attention { softcap: Some(softcap), scale, ..op(64, 1) };
        let qkv: Vec<f32> = input(&op).iter().map(|value| 3.0 * value).collect();
        for arch in large_and_small() {
            let plan = plan(&op, Dtype::Bf16, true, false);
            let Some([d_q, _, d_v]) = gradients(&plan, &qkv, arch, 2) else { return };
            let greatest =
                d_q.iter().fold(0.0_f32, |most, value| if value.abs() <= most { most } else { value.abs() });
            assert!(greatest < 1e-4, "{}, cap {softcap}, scale {scale}: {greatest}", arch.name);
            assert!(d_v.iter().all(|value| value.is_finite()) && d_v.iter().any(|value| *value != 0.0));
        }
    }
}
