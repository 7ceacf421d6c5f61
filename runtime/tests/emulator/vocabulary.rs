//! Each function of the device vocabulary against a model of it.

use super::setup::{Bench, options, random};
use kernwright_runtime::emulator::Word;

#[test]
fn shuffles_and_votes_reach_every_lane() {
    let Some(options) = options("shuffles and votes") else { return };
    let mut bench = Bench::new(
        options,
        "extern \"C\" __global__ void kernel(i32* out, float* floats, const i32* in) {
            const i32 i = static_cast<i32>(threadIdx.x);
            out[i] = shuffle_xor(in[i], 5);
            out[64 + i] = shuffle(in[i], (i * 7 + 3) % 32);
            out[128 + i] = static_cast<i32>(ballot(in[i] % 3 == 0));
            out[192 + i] = lowest_bit(static_cast<u32>(in[i]) << (i % 32));
            floats[i] = shuffle_xor(static_cast<float>(in[i]), 16) + shuffle(0.5f * i, 31);
        }",
    );
    let values: Vec<i32> = random(64, 1).iter().map(|bits| (bits >> 12) as i32).collect();
    let (out, floats) = (bench.output::<i32>("out", 256), bench.output::<f32>("floats", 64));
    let input = bench.input("in", &values);
    bench.run([1, 1, 1], 64, 0, &[Word::Address(out), Word::Address(floats), Word::Address(input)]);
    let (found, floats) = (bench.read::<i32>(out, 256), bench.read::<f32>(floats, 64));
    for i in 0..64 {
        let (warp, lane) = (i / 32 * 32, i % 32);
        assert_eq!(found[i], values[warp + (lane ^ 5)], "shuffle_xor, {i}");
        assert_eq!(found[64 + i], values[warp + (i * 7 + 3) % 32], "shuffle, {i}");
        let votes = (0..32).filter(|l| values[warp + l] % 3 == 0).fold(0u32, |bits, l| bits | 1 << l);
        assert_eq!(found[128 + i], votes as i32, "ballot, {i}");
        let shifted = (values[i] as u32) << lane;
        assert_eq!(found[192 + i], shifted.trailing_zeros() as i32, "lowest_bit, {i}");
        assert_eq!(floats[i], values[warp + (lane ^ 16)] as f32 + 0.5 * (warp + 31) as f32, "floats, {i}");
    }
}

/// What a 16-bit pattern means, by its definition: `fraction` bits behind the point, exponents from `least` on.
fn value_of(bits: u16, fraction: i32, least: i32) -> f64 {
    let exponent = i32::from(bits & 0x7fff) >> fraction;
    let rest = f64::from(i32::from(bits) & ((1 << fraction) - 1)) / f64::from(1 << fraction);
    let top = (1 << (15 - fraction)) - 1;
    let size = match exponent {
        0 => rest * f64::from(least).exp2(),
        _ if exponent == top => [f64::INFINITY, f64::NAN][usize::from(rest != 0.0)],
        _ => (1.0 + rest) * f64::from(least + exponent - 1).exp2(),
    };
    if bits >> 15 == 1 { -size } else { size }
}

fn fp16(bits: u16) -> f64 {
    value_of(bits, 10, -14)
}

fn bf16(bits: u16) -> f64 {
    value_of(bits, 7, -126)
}

/// The pattern whose value is nearest, of two equally near ones the even one; past the greatest, infinity.
fn nearest(value: f32, of: fn(u16) -> f64) -> u16 {
    let sign = if value.is_sign_negative() { 0x8000 } else { 0 };
    let size = f64::from(value.abs());
    // Patterns without a sign are in the order of their values. Infinity stands for the next step after the greatest.
    let infinity = if of(0x7c00).is_infinite() { 0x7c00 } else { 0x7f80 };
    let step = |bits: u16| {
        if bits == infinity { 2.0 * of(infinity - 1) - of(infinity - 2) } else { of(bits) }
    };
    let (mut low, mut high) = (0, infinity);
    if size >= step(infinity) {
        return sign | infinity;
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if step(middle) <= size { low = middle } else { high = middle }
    }
    let (below, above) = (size - step(low), step(high) - size);
    let takes_high = above < below || (above == below && high % 2 == 0);
    sign | if takes_high { high } else { low }
}

#[test]
fn every_pattern_of_a_narrow_type_is_read_and_rounded_back() {
    let Some(options) = options("conversions") else { return };
    let mut bench = Bench::new(
        options,
        "extern \"C\" __global__ void kernel(float* wide, u32* halves, u32* brains) {
            const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
            const float half = to_float(fp16{static_cast<u16>(i)});
            const float brain = to_float(bf16{static_cast<u16>(i)});
            wide[2 * i] = half;
            wide[2 * i + 1] = brain;
            halves[i] = from_float<fp16>(half).bits | static_cast<u32>(round_to_bf16(brain).bits) << 16;
            brains[i] = unpack_high<fp16>(pack<fp16>(1.0f, half)) == half && unpack_low<bf16>(pack<bf16>(brain, 1.0f)) == brain;
        }",
    );
    let count = 1 << 16;
    let wide = bench.output::<f32>("wide", 2 * count);
    let (halves, brains) = (bench.output::<u32>("halves", count), bench.output::<u32>("brains", count));
    bench.run([256, 1, 1], 256, 0, &[Word::Address(wide), Word::Address(halves), Word::Address(brains)]);
    let (wide, halves) = (bench.read::<f32>(wide, 2 * count), bench.read::<u32>(halves, count));
    let pairs = bench.read::<u32>(brains, count);
    for bits in 0..=u16::MAX {
        let i = usize::from(bits);
        let (half, brain) = (wide[2 * i], wide[2 * i + 1]);
        let same =
            |found: f32, wanted: f64| f64::from(found) == wanted || (found.is_nan() && wanted.is_nan());
        assert!(same(half, fp16(bits)) && same(brain, bf16(bits)), "{bits:#x}: {half} {brain}");
        let back = |value: f32| if value.is_nan() { 0x7fff } else { bits };
        assert_eq!(halves[i] as u16, back(half), "fp16 {bits:#x}");
        assert_eq!((halves[i] >> 16) as u16, back(brain), "bf16 {bits:#x}");
        assert_eq!(pairs[i] == 1, !half.is_nan() && !brain.is_nan(), "{bits:#x}");
    }
}

#[test]
fn rounding_takes_the_nearest_and_of_two_the_even_one() {
    let Some(options) = options("rounding") else { return };
    let mut bench = Bench::new(
        options,
        "extern \"C\" __global__ void kernel(u32* out, const float* in) {
            const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
            out[i] = pack_fp16(in[i], -in[i]);
            out[gridDim.x * blockDim.x + i] = pack_bf16(in[i], -in[i]);
        }",
    );
    // Random patterns, numbers of fp16's range, and every midpoint between neighbours with its own neighbours.
    let mut values: Vec<f32> = random(20_000, 5).iter().map(|&bits| f32::from_bits(bits)).collect();
    values.extend(random(20_000, 6).iter().map(|&bits| f32::from_bits(0x3000_0000 + bits % 0x1a00_0000)));
    for bits in (0..0x7c00u16).step_by(7).chain([0x7bff]) {
        let middle = if bits == 0x7bff { 65520.0 } else { ((fp16(bits) + fp16(bits + 1)) / 2.0) as f32 };
        values.extend([middle, middle.next_up(), middle.next_down()]);
        let middle = f32::from_bits(u32::from(bits) << 16 | 0x8000);
        values.extend([middle, middle.next_up(), middle.next_down()]);
    }
    values.retain(|value| !value.is_nan());
    values.resize(values.len().next_multiple_of(256), f32::INFINITY);
    let count = values.len();
    let (out, input) = (bench.output::<u32>("out", 2 * count), bench.input("in", &values));
    bench.run([(count / 256) as u32, 1, 1], 256, 0, &[Word::Address(out), Word::Address(input)]);
    let found = bench.read::<u32>(out, 2 * count);
    for (i, &value) in values.iter().enumerate() {
        for (pair, of) in [(found[i], fp16 as fn(u16) -> f64), (found[count + i], bf16)] {
            let wanted = nearest(value, of);
            assert_eq!(pair as u16, wanted, "{value:e}");
            assert_eq!((pair >> 16) as u16, wanted ^ 0x8000, "{value:e}, negated");
        }
    }
}

#[test]
fn vectors_move_whole() {
    let Some(options) = options("vector access") else { return };
    let mut bench = Bench::new(
        options,
        "extern \"C\" __global__ void kernel(u16* out, const u16* in) {
            const u32 i = threadIdx.x;
            u16* const room = reinterpret_cast<u16*>(shared_memory());
            store_16(room + 8 * i, load_16(in + 8 * i));
            barrier();
            store_8(out + 4 * i, load_8(room + 4 * i));
            store_8(out + 128 + 4 * i, load_8(room + 128 + 4 * i));
            store_4(out + 256 + 2 * i, load_4(room + 2 * i));
        }",
    );
    let values: Vec<u16> = random(256, 2).iter().map(|&bits| bits as u16).collect();
    let (out, input) = (bench.output::<u16>("out", 320), bench.input("in", &values));
    bench.run([1, 1, 1], 32, 512, &[Word::Address(out), Word::Address(input)]);
    let found = bench.read::<u16>(out, 320);
    assert_eq!(found[..256], values);
    assert_eq!(found[256..], values[..64]);
}

#[test]
fn copies_arrive_when_their_group_is_waited_for() {
    let Some(options) = options("asynchronous copies") else { return };
    let mut bench = Bench::new(
        options,
        "extern \"C\" __global__ void kernel(float* out, const float* in, i32 real) {
            float* const room = reinterpret_cast<float*>(shared_memory());
            const i32 at = 4 * static_cast<i32>(threadIdx.x);
            cp_async_16(room + at, in + at);
            cp_async_commit();
            cp_async_16_or_zero(room + 128 + at, in + 128 + at, static_cast<i32>(threadIdx.x) < real);
            cp_async_commit();
            cp_async_16(room + 256 + at, in + 256 + at);
            cp_async_commit();
            cp_async_wait<2>();
            for (i32 i = 0; i < 4; ++i) out[at + i] = room[at + i];
            cp_async_wait<1>();
            barrier();
            for (i32 i = 0; i < 4; ++i) out[128 + at + i] = room[128 + 127 - at - i];
            cp_async_wait<0>();
            for (i32 i = 0; i < 4; ++i) out[256 + at + i] = room[256 + at + i];
        }",
    );
    let values: Vec<f32> = random(384, 3).iter().map(|&bits| bits as f32).collect();
    let (out, input) = (bench.output::<f32>("out", 384), bench.input("in", &values));
    bench.run([1, 1, 1], 32, 1536, &[Word::Address(out), Word::Address(input), Word::I32(20)]);
    let found = bench.read::<f32>(out, 384);
    assert_eq!(found[..128], values[..128]);
    assert_eq!(found[256..], values[256..]);
    for i in 0..128 {
        let from = 127 - i;
        let wanted = if from / 4 < 20 { values[128 + from] } else { 0.0 };
        assert_eq!(found[128 + i], wanted, "{i}");
    }
}

#[test]
fn atomics_add_every_part() {
    let Some(options) = options("atomics") else { return };
    let mut bench = Bench::new(
        options,
        "extern \"C\" __global__ void kernel(float* sum, u32* count, u32* seen, u32* brains, u32* halves, float* four) {
            atomic_add(sum, 0.5f);
            const u32 old = atomic_add(count, 3u);
            atomic_add(seen + old / 3, 1u);
            atomic_add_pair<bf16>(brains, pack_bf16(1.0f, -2.0f));
            atomic_add_pair<fp16>(halves, pack_fp16(0.25f, 1.0f));
            const float values[4] = {1.0f, 2.0f, static_cast<float>(threadIdx.x), -1.0f};
            atomic_add_4(four, values);
        }",
    );
    let sum = bench.input("sum", &[1.0f32]);
    let count = bench.input("count", &[0u32]);
    let seen = bench.input("seen", &[0u32; 256]);
    let (brains, halves) = (bench.input("brains", &[0u32]), bench.input("halves", &[0u32]));
    let four = bench.input("four", &[0.0f32; 4]);
    let arguments = [sum, count, seen, brains, halves, four].map(Word::Address);
    bench.run([4, 1, 1], 64, 0, &arguments);
    assert_eq!(bench.read::<f32>(sum, 1), [129.0]);
    assert_eq!(bench.read::<u32>(count, 1), [768]);
    assert_eq!(bench.read::<u32>(seen, 256), [1; 256]);
    let pair = bench.read::<u32>(brains, 1)[0];
    assert_eq!((bf16(pair as u16), bf16((pair >> 16) as u16)), (256.0, -512.0));
    let pair = bench.read::<u32>(halves, 1)[0];
    assert_eq!((fp16(pair as u16), fp16((pair >> 16) as u16)), (64.0, 256.0));
    assert_eq!(bench.read::<f32>(four, 4), [256.0, 512.0, 4.0 * 2016.0, -256.0]);
}

#[test]
fn elementary_functions_are_those_of_the_host() {
    let Some(options) = options("elementary functions") else { return };
    let mut bench = Bench::new(
        options,
        "extern \"C\" __global__ void kernel(float* out, const float* in) {
            const float x = in[threadIdx.x];
            float* const to = out + 12 * threadIdx.x;
            to[0] = exponential(x);
            to[1] = exponential_minus_1(x);
            to[2] = exponential_2(x);
            to[3] = logarithm_1_plus(x);
            to[4] = natural_logarithm(x);
            to[5] = logarithm_2(x);
            to[6] = square_root(x);
            to[7] = reciprocal_root(x);
            to[8] = hyperbolic_tangent(x);
            to[9] = error_function(x);
            sine_cosine_pi(x, to[10], to[11]);
        }",
    );
    let values: Vec<f32> = random(64, 9).iter().map(|&bits| 1e-3 + 20.0 * (bits as f32 / 4.3e9)).collect();
    let (out, input) = (bench.output::<f32>("out", 12 * 64), bench.input("in", &values));
    bench.run([1, 1, 1], 64, 0, &[Word::Address(out), Word::Address(input)]);
    let found = bench.read::<f32>(out, 12 * 64);
    for (i, &value) in values.iter().enumerate() {
        let x = f64::from(value);
        let turn = x * std::f64::consts::PI;
        let wanted = [
            x.exp(),
            x.exp_m1(),
            x.exp2(),
            x.ln_1p(),
            x.ln(),
            x.log2(),
            x.sqrt(),
            1.0 / x.sqrt(),
            x.tanh(),
            erf(x),
            turn.sin(),
            turn.cos(),
        ];
        for (which, wanted) in wanted.into_iter().enumerate() {
            let found = f64::from(found[12 * i + which]);
            assert!(
                (found - wanted).abs() <= 2e-7 * wanted.abs().max(0.01),
                "{which} of {x}: {found} {wanted}"
            );
        }
    }
}

/// By a series of positive terms: erf x = 2 / sqrt(pi) e^(-x^2) (x + 2 x^3 / 3 + 4 x^5 / 15 + ...).
fn erf(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..2000 {
        term *= 2.0 * x * x / f64::from(2 * n + 1);
        sum += term;
    }
    sum * (-x * x).exp() * std::f64::consts::FRAC_2_SQRT_PI
}
