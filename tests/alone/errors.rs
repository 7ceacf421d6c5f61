//! What is said of wrong calls, and what calls count.

use crate::calls::{Calls, Content};
use crate::declared::Plain;
use crate::numbers::to_bits;
use crate::{BATCH, open};
use kernwright::{Attention, Device, DeviceKind, bf16};

const LENGTH: usize = 37;

/// As many elements as can be declared.
#[derive(Attention)]
#[attention(heads = 1024, kv_heads = 1024, head_dim = 256)]
#[target(sm_80)]
struct Wide;

type Compiled = kernwright::attention::Compiled<bf16, kernwright::attention::Separate>;

fn compiled() -> (Device, Compiled, Content<bf16>) {
    let device = open(&DeviceKind::Cpu);
    let attention = Plain::compile(&device, BATCH, LENGTH).expect("it is declared well");
    let content = Content::new(&device, attention.shape(), BATCH, [LENGTH; 2]);
    (device, attention, content)
}

#[test]
fn a_wrong_size_is_an_error_that_says_what_is_allowed() {
    let (device, attention, content) = compiled();
    let [q, k, v] = &content.qkv[..] else { panic!("there are three") };
    let said = |result: Result<_, kernwright::Error>| {
        result.map(|_: Vec<bf16>| ()).expect_err("it is wrong").to_string()
    };
    let forward =
        |q, k, v| said(Compiled::forward(&attention, q, k, v).and_then(|(out, _)| Ok(out.download()?)));
    assert_eq!(
        forward(q, q, v),
        "`k` must hold 3552 elements (batch 2 x key_length 37 x kv_heads 2 x head_dim 24), found 7104"
    );
    assert_eq!(
        forward(k, k, v),
        "`q` must hold 7104 elements (batch 2 x query_length 37 x heads 4 x head_dim 24), found 3552"
    );
    let other = open(&DeviceKind::Cpu);
    let elsewhere = Content::<bf16>::new(&other, attention.shape(), BATCH, [LENGTH; 2]);
    assert_eq!(
        forward(q, k, &elsewhere.qkv[2]),
        "`v` lies on another device than the one that this was compiled for"
    );
    let (out, lse) = Compiled::forward(&attention, q, k, v).expect("it is right");
    let short = device.zeros::<f32>(lse.len() - 1).expect("there is room");
    let backward = Compiled::backward(&attention, &content.d_out, q, k, v, &out, &short);
    assert_eq!(
        said(backward.map(|_| Vec::new())),
        "`lse` must hold 296 elements (batch 2 x heads 4 x query_length 37), found 295"
    );
    for (batch, length, wanted) in [
        (0, 3, "`batch` must be a whole number from 1 to 65535, found `0`"),
        (1, 0, "`query_length` must be a whole number from 1 to 536870912, found `0`"),
        (65_536, 3, "`batch` must be a whole number from 1 to 65535, found `65536`"),
    ] {
        let error = Plain::compile(&device, batch, length).expect_err("it is out of bounds");
        assert_eq!(error.to_string(), wanted);
    }
    // Products of these are beyond 64 bits.
    for (lengths, wanted) in [
        (
            [1 << 29, 8],
            "`q` must have at most 1099511627776 elements, found batch 65535 x query_length 536870912 x ",
        ),
        (
            [8, 1 << 29],
            "`k` must have at most 1099511627776 elements, found batch 65535 x key_length 536870912 x ",
        ),
    ] {
        let error =
            Wide::compile_lengths(&device, 65_535, lengths[0], lengths[1]).expect_err("it is too large");
        assert!(error.to_string().starts_with(wanted), "{error}");
    }
    for len in [usize::MAX, usize::MAX / 8] {
        let error = device.zeros::<f32>(len).map(|_| ()).expect_err("nobody has room");
        assert!(error.to_string().starts_with("out of memory: "), "{error}");
    }
    assert_eq!(
        Device::open(&DeviceKind::Emulator("sm_91".to_owned())).expect_err("nobody knows it").to_string(),
        format!("`sm_91` is not a known GPU: allowed are {}", kernwright_plan::arch::names())
    );
}

#[test]
fn parts_of_buffers_are_within_them_and_aligned() {
    let device = open(&DeviceKind::Cpu);
    let mut buffer = device.upload(&[bf16::ONE; 40]).expect("there is room");
    buffer.slice_mut(8..16).and_then(|mut part| part.upload(&[bf16::ZERO; 8])).expect("it fits");
    let values: Vec<f32> =
        buffer.download().expect("it can be read").iter().map(|one| one.to_f32()).collect();
    assert_eq!(values[..8], [1.0; 8]);
    assert_eq!(values[8..16], [0.0; 8]);
    assert_eq!(values[16..], [1.0; 24]);
    for (part, wanted) in [
        (16..41, "a part of a buffer must lie in its 40 elements, found `16..41`"),
        (4..12, "a part of a buffer must begin at a multiple of 8 elements, found `4`"),
    ] {
        assert_eq!(buffer.slice(part).expect_err(wanted).to_string(), wanted);
    }
    let short = buffer.upload(&[bf16::ONE; 3]).expect_err("it is too short").to_string();
    assert_eq!(short, "the buffer holds 40 elements of bf16, found 3");
}

#[test]
fn statistics_are_of_the_calls_that_were_made_and_of_what_the_mask_leaves() {
    let (_device, attention, content) = compiled();
    let before = attention.statistics().expect("nothing was asked for");
    assert_eq!((before.forward.calls, before.forward.seconds_per_call()), (0, None));
    let pairs = (BATCH * 4 * LENGTH * (LENGTH + 1) / 2) as f64;
    assert_eq!(before.forward.flops, 4.0 * 24.0 * pairs);
    assert_eq!(before.inference.flops, before.forward.flops);
    assert_eq!(before.backward.flops, 2.5 * before.forward.flops);
    let bytes = (2 * BATCH * LENGTH * (4 + 2 + 2 + 4) * 24) as f64;
    assert_eq!(before.inference.bytes, bytes);
    assert_eq!(before.forward.bytes, bytes + (4 * BATCH * 4 * LENGTH) as f64);
    drop(Calls::infer(&attention, &content.qkv));
    attention.time(true);
    let (out, lse) = Calls::forward(&attention, &content.qkv);
    drop(Calls::backward(&attention, &content.d_out, &content.qkv, &out, &lse));
    let after = attention.statistics().expect("the host does not fail");
    let counts = [after.forward, after.inference, after.backward].map(|one| (one.calls, one.timed));
    assert_eq!(counts, [(1, 1), (1, 0), (1, 1)]);
    assert!(after.forward.tflops().is_some_and(|rate| rate > 0.0));
    assert!(after.backward.seconds > 0.0 && after.inference.seconds == 0.0);
}

#[test]
fn workspace_is_known_and_what_a_call_reads_may_be_dropped_before_the_result_is_read() {
    let (device, attention, content) = compiled();
    assert_eq!(attention.workspace_bytes(), 0, "the host needs none");
    let (out, _) = Calls::forward(&attention, &content.qkv);
    let wanted = to_bits(&out.download().expect("it can be read"));
    let again = Plain::compile(&device, BATCH, LENGTH).expect("it is declared well");
    let (out, lse) = Calls::forward(&again, &content.qkv);
    drop((again, content, lse, attention, device));
    assert!(to_bits(&out.download().expect("it can be read")) == wanted);
}
