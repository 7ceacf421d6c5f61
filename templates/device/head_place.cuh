<% include "device/types.cuh" %>
// Where the vectors of heads lie: a tensor has any distances between rows, between heads and between sequences.

// The first element of a head of a sequence. Distances come in 8 elements, so that their products have 32-bit factors: what every
// thread of a block computes alike takes no registers of each.
__device__ __forceinline__ i64 head_place(i32 sequence, i32 head, i32 from_sequence, i32 from_head) {
    return 8 * (static_cast<i64>(sequence) * from_sequence + static_cast<i64>(head) * from_head);
}
