// The units of sm_90 as model.h has them in a block: mbarriers, copies of TMA, products of warpgroups.
//
// All of them work beside the threads, and a kernel must wait for them at the right place. To make that visible they are
// as late as they may be: a copy to shared memory is noted when issued and done when somebody waits at its mbarrier, a copy
// from shared memory when its group is waited for; a product is computed when issued, but its results are no numbers until
// its group is waited for. Who may read and write what, and when, is told by times of their own (agents of model.h).
#pragma once

#include <cstdint>
#include <vector>

namespace kernwright {

struct Thread;

// What TMA knows of a tensor; tensor_map.rs writes it.
struct Tensor {
    u64 address;
    u32 rank;
    u32 element_bytes;
    u32 swizzle;  // bytes of a row; 0 without
    u64 sizes[5];
    u64 strides[5];  // bytes
    u32 extents[5];
};

// One copy between global and shared memory: plain bytes, or a box of a tensor.
struct BulkCopy {
    bool is_box;
    bool adds;  // floats
    u8* shared;
    u8* global;
    u32 bytes;
    Tensor tensor;
    i32 at[5];
    u64 site;
    u64 group;
    u32 time;
};

// Registers of a thread that a product uses: they lie on its stack.
struct Registers {
    u64 begin;
    u64 end;
    u64 site;
};

struct MbarrierModel {
    u64 address;
    u32 count;
    u32 missing;  // arrivals
    i64 bytes;    // that are expected and did not come
    u32 phase;
    // Who made it, where, and what that thread had shown to the copies before.
    u32 maker;
    u64 site;
    u32 fences;
    u32 mbarrier_fences;
    // The last copy that was to arrive here.
    u32 issuer;
    u64 issuer_site;
    std::vector<BulkCopy> copies;
    std::vector<Thread*> waiting;
    u32 joined[MOST_AGENTS];  // of those who arrived in this phase
    u32 seen[MOST_AGENTS];    // by who waits for the last one
};

// 64 rows of sums that products under way add to, and the registers they belong to.
struct Accumulator {
    float* of[128];
    u32 columns;
    u32 group;
    u32 delivered;  // bit w: to warp w of the four
    u64 site;
    std::vector<float> sums;
};

struct Warpgroup {
    u32 arrived;  // warps
    Thread* earliest;
    std::vector<Accumulator> accumulators;
    // Registers of each of its threads; who waits for more.
    u32 registers;
    u32 wanted;
};

struct Hopper {
    bool is_used;
    u32 base;  // times before this belong to earlier blocks
    u32 n_mbarriers;
    MbarrierModel mbarriers[MOST_MBARRIERS];
    Warpgroup warpgroups[MOST_WARPGROUPS];
    u32 copies;  // from shared memory, so far
    u32 spare_registers;
};

}  // namespace kernwright
