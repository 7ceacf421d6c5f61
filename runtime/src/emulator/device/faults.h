// What can be wrong with a kernel, and the facts of it that Rust makes words of. The numbers are known to report.rs, the
// layouts to binding.rs.
#pragma once

#include <cstdint>

namespace kernwright {

using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using i32 = int32_t;
using i64 = int64_t;

constexpr u32 WARP = 32;
constexpr u32 MOST_THREADS = 1024;
constexpr u32 MOST_FRAMES = 16;

struct Index {
    u32 x, y, z;
};

// What a thread waits for; the numbers are known to report.rs.
enum class Operation : u32 {
    nothing,
    barrier,
    named_barrier,
    named_barrier_arrive,
    warp_barrier,
    shuffle_xor,
    shuffle,
    ballot,
    mma,
    ldmatrix,
    stmatrix,
    elect_one,
    mbarrier_wait,
    wgmma,
    wgmma_commit,
    wgmma_wait,
    registers_release,
    registers_acquire,
    cluster_arrive,
    cluster_wait,
};

// Known to report.rs.
enum class Access : u32 { read, write, atomic };

// Known to report.rs.
enum class Fault : u32 {
    none,
    outside,          // no live allocation or shared memory holds all of it
    misaligned,       // not a multiple of its width
    unwritten,        // nobody wrote it
    in_flight,        // an asynchronous copy has not delivered it
    race,             // another thread's access, not ordered by a barrier
    not_shared,       // an operation on shared memory got another address
    divergent_warp,   // lanes of one warp at different operations
    divergent_block,  // threads of one block at different barriers
    stuck,            // no thread can go on
    barrier_count,    // threads disagree about who takes part, or it is no multiple of a warp
    absent_lane,      // a shuffle reads a lane that the block does not have
    stack,            // a fiber's stack is full
    constant,         // a write to the module's own constants
    barrier_id,       // no such named barrier
    no_mbarrier,      // it was not initialised
    mbarrier_again,   // it was, already
    mbarrier_count,   // a count that no mbarrier takes, or a parity
    mbarrier_full,    // one arrival too many
    mbarrier_bytes,   // more bytes came than are expected
    mbarrier_open,    // bytes are expected that never came
    not_arrived,      // a copy of TMA was not waited for at its mbarrier
    over_mbarrier,    // an ordinary access to an mbarrier
    proxy,            // an ordinary write is not shown to the asynchronous units
    unfenced_barrier, // an mbarrier was not shown to them
    under_read,       // an asynchronous unit still reads what is written
    unread_copy,      // a thread returns before its copies have read shared memory
    accumulator,      // a register of a product that is under way
    unfenced_product, // registers were touched since the last wgmma_fence
    no_warpgroup,     // a product by threads that are no whole warpgroup
    matrix,           // a matrix does not begin where its swizzle does
    tensor_map,       // not what the host makes of a TensorMap
    registers,        // no such count for this warpgroup
    rank,             // no such block in the cluster
    unwaited_copy,    // nobody has waited for a copy of TMA when the block ends
};

// What one thread waited for when all were stuck.
struct Waiting {
    u64 site;
    u32 operation;  // Operation
    u32 detail;     // the id of a named barrier; the arrivals that an mbarrier lacks
    u32 has_returned;
    u32 bytes;  // that an mbarrier lacks
};

// The facts of a fault; Rust makes the words. Plain data, laid out as in binding.rs.
struct Report {
    u32 fault;      // Fault
    u32 access;     // Access
    u32 operation;  // Operation of this thread
    u32 bytes;
    u64 block_number;
    Index block;
    Index thread;
    u64 address;
    u64 detail;  // unwritten: the first such byte; barrier_count: what was found
    u64 other_detail;
    Index other_thread;
    u32 other_access;
    u64 other_site;
    u32 other_operation;
    u32 n_frames;
    u64 frames[MOST_FRAMES];
    u32 n_waiting;
    u32 other_block;  // of the cluster, plus one: whose shared memory it is; 0 for the thread's own
    Waiting waiting[MOST_THREADS];
    u64 shared;  // where the block's shared memory lies
    u64 shared_bytes;
};

}  // namespace kernwright
