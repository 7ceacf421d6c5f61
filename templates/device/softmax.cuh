<% include "device/attention.cuh" %>
<% include "device/tiles.cuh" %>
<% include "device/vector.cuh" %>
<% include "device/warp.cuh" %>
// The softmax of attention as tiles of keys come, over scores as products of a warpgroup leave them: of 16 rows of a warp a thread
// has rows lane / 4 (half 0) and that + 8, and of every 8 keys the columns 2 (lane % 4) and the next: s[4 j + 2 half + i] is column
// 8 j + 2 (lane % 4) + i.

// Exponents of 2 that e^s is taken from, for each half: `shift` is m, the same in all of a quad, `sum` what e^(s - m) add up to over
// this thread's columns.
struct Softmax {
    float shift[2];
    float sum[2];
};

// The mask, at an edge: makes the scores of keys that are not seen minus infinity, which is below even the lowest m. Keys are compared
// with the first that is seen (BEGINS), with what is behind the last (ENDS). Of PART keys, of which all of a warp's rows see all, none
// is compared.
template <bool BEGINS, bool ENDS, i32 PART, typename SEEN, i32 N>
__device__ __forceinline__ void hide(float (&s)[N], SEEN mask, i32 own_row, i32 first_key) {
    const float unseen = float_of_bits(0xff800000u);
    const i32 warp_row = own_row - lane_index() / 4;
    const i32 own_key = first_key + lane_index() % 4 * 2;
    i32 begin[2], end[2];
#pragma unroll
    for (i32 half = 0; half < 2; ++half) {
        begin[half] = mask.first_key(own_row + 8 * half) - own_key;
        end[half] = mask.end_key(own_row + 8 * half) - own_key;
    }
#pragma unroll
    for (i32 part = 0; part < N; part += PART / 2) {
        if (PART < 2 * N && all_seen<16, PART>(mask, warp_row, first_key + 2 * part)) continue;
#pragma unroll
        for (i32 i = part; i < part + PART / 2 && i < N; ++i) {
            const i32 key = i / 4 * 8 + i % 2;
            const bool seen = (!ENDS || key < end[i / 2 % 2]) && (!BEGINS || key >= begin[i / 2 % 2]);
            s[i] = seen ? s[i] : unseen;
        }
    }
}

// Lets `shift` follow the greatest of scores times `sharpness`, and `sum` follow it, where it is more than 2^lag behind for any of the
// warp's; whether it did. What was added up is then to be multiplied by `share`.
template <i32 N>
__device__ __forceinline__ bool follow(Softmax& softmax, const float (&s)[N], float sharpness, float lag, float (&share)[2]) {
    float shift[2];
    bool lags = false;
#pragma unroll
    for (i32 half = 0; half < 2; ++half) {
        float greatest = maximum(s[2 * half], s[2 * half + 1]);
#pragma unroll
        for (i32 n = 1; n < N / 4; ++n) {
            greatest = maximum(greatest, maximum(s[4 * n + 2 * half], s[4 * n + 2 * half + 1]));
        }
        greatest = maximum(greatest, shuffle_xor(greatest, 1));
        greatest = maximum(greatest, shuffle_xor(greatest, 2));
        shift[half] = maximum(greatest * sharpness, softmax.shift[half]);
        lags = lags || shift[half] - softmax.shift[half] > lag;
    }
    if (ballot(lags) == 0) return false;
#pragma unroll
    for (i32 half = 0; half < 2; ++half) {
        share[half] = exponential_2(softmax.shift[half] - shift[half]);
        softmax.shift[half] = shift[half];
        softmax.sum[half] *= share[half];
    }
    return true;
}

// s becomes e^(s - m), which is added to `sum`.
template <i32 N>
__device__ __forceinline__ void exponentials(Softmax& softmax, float (&s)[N], float sharpness) {
#pragma unroll
    for (i32 i = 0; i < N; ++i) {
        s[i] = exponential_2(s[i] * sharpness - softmax.shift[i / 2 % 2]);
        softmax.sum[i / 2 % 2] += s[i];
    }
}

// Rounds p to T as the left operand of products, from the 16 keys of step FIRST on.
template <typename T, i32 FIRST, i32 STEPS, i32 N>
__device__ __forceinline__ void round_off(u32 (&p)[STEPS][4], const float (&s)[N]) {
#pragma unroll
    for (i32 i = 0; i < N / 2; ++i) p[FIRST + i / 4][i % 4] = pack<T>(s[2 * i], s[2 * i + 1]);
}
