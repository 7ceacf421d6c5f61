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
