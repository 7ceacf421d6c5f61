<% include "device/attention_backward.cuh" %>
<% include "device/head_place.cuh" %>
<% include "device/mbarrier.cuh" %>
<% include "device/tiles.cuh" %>
<% include "device/warp.cuh" %>
// How a block that owns keys walks the queries that see them, in attention's gradient on Hopper.

// How far from one row of a tensor to the next, in elements, and from one head and sequence, as `head_place` counts.
struct Strides {
    i32 row;
    i32 head, sequence;
};

// A step: a tile of queries of a head.
struct Step {
    i32 head;
    i32 tile;
};

// What all warps of a block know: KEYS keys of one head of one sequence, with SPLIT_HEADS for one of its query heads, and the
// tiles of QUERIES queries, of each head, that see some of them. Blocks come in sections of so many heads, whose queries L2
// holds; in a section, all of one tile of keys before those of the next, the last one first with LAST_FIRST.
template <typename SEEN, i32 KEYS, i32 QUERIES, bool SPLIT_HEADS, bool LAST_FIRST>
struct KeyWork {
    i32 owner;
    i32 kv_head;
    i32 group;
    i32 first_head;
    i32 batch;
    i32 key_tile;
    i32 begin;
    i32 end;

    __device__ __forceinline__ KeyWork(i32 section, i32 heads, i32 kv_heads, SEEN mask) {
        const i32 key_tiles = (mask.keys + KEYS - 1) / KEYS;
        const i32 block = static_cast<i32>(blockIdx.x);
        const i32 units = static_cast<i32>(gridDim.x) / key_tiles;
        const i32 first = block / (section * key_tiles) * section;
        const i32 own_section = units - first < section ? units - first : section;
        const i32 in_section = block - first * key_tiles;
        const i32 unit = first + in_section % own_section;
        const i32 place = in_section / own_section;
        key_tile = LAST_FIRST ? key_tiles - 1 - place : place;
        owner = unit % (SPLIT_HEADS ? heads : kv_heads);
        batch = unit / (SPLIT_HEADS ? heads : kv_heads);
        kv_head = SPLIT_HEADS ? owner / (heads / kv_heads) : owner;
        group = SPLIT_HEADS ? 1 : heads / kv_heads;
        first_head = owner * group;
        const QueryTiles<SEEN, QUERIES, KEYS> tiles(mask, key_tile * KEYS);
        begin = tiles.begin;
        end = tiles.end;
    }

    // None where no query sees any of the keys, which windows alone can do to them: `clear` is all their gradient needs.
    __device__ __forceinline__ i32 steps() const { return group * (end - begin); }

    // Where a gradient of the owner's has the row of a key.
    __device__ __forceinline__ i64 place(Strides of, i32 key) const {
        return head_place(batch, owner, of.sequence, of.head) + static_cast<i64>(key) * of.row;
    }

    // Makes the keys' columns of a gradient zeros, unless it is added to.
    template <i32 HEAD_DIM, i32 THREADS, typename Out>
    __device__ __forceinline__ void clear(Out* to, Strides of, i32 add, SEEN mask) const {
        const i32 first_key = key_tile * KEYS;
        write_zeros<HEAD_DIM, THREADS>(to + place(of, first_key), of.row, add,
                                       mask.keys - first_key < KEYS ? mask.keys - first_key : KEYS);
    }

    __device__ __forceinline__ Step first() const { return {first_head, begin}; }
    __device__ __forceinline__ void advance(Step& step) const {
        if (++step.tile == end) {
            step.tile = begin;
            ++step.head;
        }
    }
};

// Where a query's statistic lies among those of its tile: a lane's of two fragments are neighbours.
__device__ __forceinline__ i32 statistic_place(i32 query) {
    return query / 16 * 16 + query % 8 / 2 * 4 + query / 8 % 2 * 2 + query % 2;
}

// A warp brings one statistic of the queries of all steps, which lies `from` the sequence's first on, to rings of STAGES: from one
// stage to the next are 2 QUERIES floats. It is delta, or lse as `exponent_of_lse`; P of queries behind the sequence is 0.
template <i32 QUERIES, i32 STAGES, typename WORK>
__device__ __forceinline__ void bring_statistic(const WORK& work, float* to, const float* from, bool is_lse, i32 length,
                                                Mbarrier* there, Mbarrier* free, i32 lane) {
    static_assert(QUERIES % WARP_SIZE == 0, "statistics come a warp's width at a time");
    const i32 steps = work.steps();
    const float beyond = is_lse ? float_of_bits(INFINITY_BITS) : 0.0f;
    float* const own_to = to + statistic_place(lane);
    Step step = work.first();
#pragma unroll 1
    for (i32 i = 0; i < steps; ++i) {
        const i32 stage = i % STAGES;
        const i32 left = length - step.tile * QUERIES - lane;
        const float* const own_from = from + (static_cast<i64>(step.head) * length + (length - left));
        float own[QUERIES / WARP_SIZE];
#pragma unroll
        for (i32 n = 0; n < QUERIES / WARP_SIZE; ++n) {
            const float value = n * WARP_SIZE < left ? own_from[n * WARP_SIZE] : beyond;
            own[n] = is_lse ? exponent_of_lse(value) : value;
        }
        mbarrier_wait(free + stage, i / STAGES % 2 ^ 1);
#pragma unroll
        for (i32 n = 0; n < QUERIES / WARP_SIZE; ++n) own_to[2 * stage * QUERIES + n * WARP_SIZE] = own[n];
        // Guards the statistics: all lanes have written theirs.
        warp_barrier();
        if (lane == 0) mbarrier_arrive(there + stage);
        work.advance(step);
    }
}
