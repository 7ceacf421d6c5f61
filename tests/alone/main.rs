//! `#[derive(Attention)]` as a program uses it: on the emulator, on the host and by the definition, through one interface.
//!
//! Declarations cover layouts, element types, masks and GPU families in pairs; sizes are small and odd.

mod calls;
mod declared;
mod errors;
mod numbers;

use calls::{Calls, Content, Gradients, by_head};
use declared::{ByHead, Case, Plain, each};
use kernwright::{Attention, Device, DeviceBuffer, DeviceKind, DeviceSliceMut};
use numbers::{Number, close, same, to_bits};
use std::io::Write as _;
use std::path::PathBuf;

const BATCH: usize = 2;

/// The emulator as a GPU; `None`, and a line of what is skipped, where there is no host compiler.
fn emulator(target: &str) -> Option<Device> {
    kernwright_compile::testing::host_compiler_or_skip(std::env::vars_os(), "attention alone")?;
    let cache = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("emulator");
    Some(Device::emulate(target, &cache).unwrap_or_else(|error| panic!("{error}")))
}

fn open(kind: &DeviceKind) -> Device {
    Device::open(kind).unwrap_or_else(|error| panic!("{kind}: {error}"))
}

/// What a declaration computes on a device.
struct Computed<T> {
    out: Vec<T>,
    lse: Vec<f32>,
    inferred: Vec<T>,
    gradients: Gradients<T>,
}

fn compute<A: Attention<Element: Number>>(device: &Device, lengths: [usize; 2]) -> Computed<A::Element>
where
    kernwright::attention::Compiled<A::Element, A::Tensors>: Calls<A::Element>,
{
    let attention = A::compile_lengths(device, BATCH, lengths[0], lengths[1]);
    let attention = attention.unwrap_or_else(|error| panic!("{}: {error}", A::NAME));
    let content = Content::new(device, attention.shape(), BATCH, lengths);
    let (out, lse) = attention.forward(&content.qkv);
    let gradients = attention.backward(&content.d_out, &content.qkv, &out, &lse);
    let inferred = attention.infer(&content.qkv);
    let read = |buffer: &DeviceBuffer<A::Element>| buffer.download().expect("it can be read");
    Computed {
        out: read(&out),
        lse: lse.download().expect("it can be read"),
        inferred: read(&inferred),
        gradients: gradients.iter().map(read).collect(),
    }
}

/// Holds two devices to each other; tolerances are that of the element type times `factor`.
fn compare<T: Number>(what: &str, found: &Computed<T>, wanted: &Computed<T>, factor: f64) {
    close(&format!("{what}: out"), &found.out, &wanted.out, factor);
    let of_lse = factor * T::EPSILON / <f32 as Number>::EPSILON / 8.0;
    close(&format!("{what}: lse"), &found.lse, &wanted.lse, of_lse);
    for (index, (found, wanted)) in found.gradients.iter().zip(&wanted.gradients).enumerate() {
        close(&format!("{what}: gradient {index}"), found, wanted, factor);
    }
}

struct OnTheEmulator;

impl Case for OnTheEmulator {
    /// All that is said of a declaration in one go: kernels of the emulator are slow to come by.
    fn run<A: Attention<Element: Number>>(&self, target: &str, lengths: [usize; 2])
    where
        kernwright::attention::Compiled<A::Element, A::Tensors>: Calls<A::Element>,
    {
        let Some(device) = emulator(target) else { return };
        let found = compute::<A>(&device, lengths);
        let wanted = compute::<A>(&open(&DeviceKind::Reference), lengths);
        compare(&format!("{} on {target}", A::NAME), &found, &wanted, 4.0);
        same(A::NAME, "inference and training", &found.inferred, &found.out);
        guarded::<A>(&device, lengths, &found);
    }
}

#[test]
fn every_layout_type_and_mask_agrees_with_the_definition_on_the_emulator() {
    each(&OnTheEmulator);
}

/// Outputs lie between poisoned guards, which stay as they are; what lies between has the bits of another call; and no call
/// but the first allocates anything.
fn guarded<A: Attention<Element: Number>>(device: &Device, lengths: [usize; 2], before: &Computed<A::Element>)
where
    kernwright::attention::Compiled<A::Element, A::Tensors>: Calls<A::Element>,
{
    const GUARD: usize = 64;
    let [queries, keys] = lengths;
    let attention = A::compile_lengths(device, BATCH, queries, keys).expect("it was compiled before");
    let content = Content::<A::Element>::new(device, attention.shape(), BATCH, lengths);
    let poison = A::Element::of(-77.0);
    let room = |len: usize| device.upload(&vec![poison; len + 2 * GUARD]).expect("there is room");
    let mut out = room(before.out.len());
    let mut lse = device.upload(&vec![-77.0_f32; before.lse.len() + 2 * GUARD]).expect("there is room");
    let mut gradients: Vec<_> = before.gradients.iter().map(|one| room(one.len())).collect();
    let (out_len, lse_len) = (before.out.len(), before.lse.len());
    let mut allocations = Vec::new();
    for _ in 0..3 {
        let out_part = out.slice_mut(GUARD..GUARD + out_len).expect("it is aligned");
        let lse_part = lse.slice_mut(GUARD..GUARD + lse_len).expect("it is aligned");
        attention.forward_into(&content.qkv, out_part, lse_part);
        let parts: Vec<DeviceSliceMut<'_, A::Element>> = gradients
            .iter_mut()
            .zip(&before.gradients)
            .map(|(buffer, one)| buffer.slice_mut(GUARD..GUARD + one.len()).expect("it is aligned"))
            .collect();
        let out_part = out.slice(GUARD..GUARD + out_len).expect("it is aligned");
        let lse_part = lse.slice(GUARD..GUARD + lse_len).expect("it is aligned");
        attention.backward_into(&content.d_out, &content.qkv, out_part, lse_part, parts);
        drop(attention.infer(&content.qkv));
        allocations.push(device.usage().allocations);
    }
    assert_eq!(allocations[1..], [allocations[0]; 2], "{}: later calls allocate", A::NAME);
    let bits = |buffer: &DeviceBuffer<A::Element>| to_bits(&buffer.download().expect("it can be read"));
    let mut found = vec![("out", bits(&out), to_bits(&before.out))];
    found.push(("lse", to_bits(&lse.download().expect("it can be read")), to_bits(&before.lse)));
    if attention.shape().deterministic {
        for (buffer, wanted) in gradients.iter().zip(&before.gradients) {
            found.push(("gradients", bits(buffer), to_bits(wanted)));
        }
    }
    let poison = |what: &str| if what == "lse" { to_bits(&[-77.0_f32])[0] } else { to_bits(&[poison])[0] };
    for (what, found, wanted) in found {
        let (guards, inner) = (GUARD..found.len() - GUARD, &found[GUARD..found.len() - GUARD]);
        assert!(inner == wanted, "{}: two calls give other bits of {what}", A::NAME);
        for (index, word) in found.iter().enumerate().filter(|(index, _)| !guards.contains(index)) {
            assert_eq!(*word, poison(what), "{}: element {index} of {what}, a guard, was written", A::NAME);
        }
    }
}

struct OnAGpu(Device);

impl Case for OnAGpu {
    /// Longer than on the emulator: many blocks, and tiles that every query sees.
    fn run<A: Attention<Element: Number>>(&self, _target: &str, lengths: [usize; 2])
    where
        kernwright::attention::Compiled<A::Element, A::Tensors>: Calls<A::Element>,
    {
        let lengths = lengths.map(|length| 9 * length);
        let found = compute::<A>(&self.0, lengths);
        let wanted = compute::<A>(&open(&DeviceKind::Cpu), lengths);
        compare(&format!("{} on a GPU", A::NAME), &found, &wanted, 4.0);
        same(A::NAME, "inference and training", &found.inferred, &found.out);
        guarded::<A>(&self.0, lengths, &found);
    }
}

/// Without a GPU one line says what was skipped; REQUIRE_GPU=1 turns that into a failure.
#[test]
fn every_layout_type_and_mask_agrees_with_the_host_on_a_gpu() {
    match Device::open(&DeviceKind::Cuda(0)) {
        Ok(device) => each(&OnAGpu(device)),
        Err(error) => {
            let is_required = std::env::var_os("REQUIRE_GPU").is_some_and(|value| value == "1");
            assert!(!is_required, "REQUIRE_GPU=1, but {error}");
            // Written past the test harness, which would swallow what a passing test prints.
            let _ = writeln!(std::io::stderr().lock(), "skipped: attention alone on a GPU: {error}");
        }
    }
}

struct OnTheHost;

impl Case for OnTheHost {
    fn run<A: Attention<Element: Number>>(&self, _target: &str, lengths: [usize; 2])
    where
        kernwright::attention::Compiled<A::Element, A::Tensors>: Calls<A::Element>,
    {
        let found = compute::<A>(&open(&DeviceKind::Cpu), lengths);
        let wanted = compute::<A>(&open(&DeviceKind::Reference), lengths);
        compare(&format!("{} on the CPU", A::NAME), &found, &wanted, 1.0);
        same(A::NAME, "inference and training", &found.inferred, &found.out);
    }
}

#[test]
fn every_layout_type_and_mask_agrees_with_the_definition_on_the_host() {
    each(&OnTheHost);
}

#[test]
fn layouts_are_orders_of_the_same_numbers() {
    let device = open(&DeviceKind::Cpu);
    let [plain, ordered] = [compute::<Plain>(&device, [19, 33]), compute::<ByHead>(&device, [19, 33])];
    let of = |values: &[_], heads, length| by_head(values, heads, length, 24);
    same("out", "bshd and bhsd", &of(&plain.out, 4, 19), &ordered.out);
    same("lse", "bshd and bhsd", &plain.lse, &ordered.lse);
    for (index, (heads, length)) in [(4, 19), (2, 33), (2, 33)].into_iter().enumerate() {
        let gradient = of(&plain.gradients[index], heads, length);
        same("gradients", "bshd and bhsd", &gradient, &ordered.gradients[index]);
    }
}
