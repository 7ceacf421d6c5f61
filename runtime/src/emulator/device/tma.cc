// TMA: boxes of tensors and plain bytes between global and shared memory.
//
// In shared memory a box lies without gaps, its first dimension innermost; with a swizzle of S bytes, bits 4 and up of each
// address are exchanged by those from bit 7 on: 1, 2 or 3 of them for 32, 64 and 128 bytes. What lies outside of the tensor
// is read as zeros and not written. What a copy reads and writes is checked when it is issued.
#include "model.h"

#include "kernwright_numbers.h"

#include <algorithm>

namespace kernwright {

constexpr u64 MODEL = 0x6b65726e74656e73u;

static Tensor need_tensor(Thread& thread, const void* map, u32 rank) {
    u64 words[16];
    memcpy(words, map, sizeof words);
    Tensor tensor{};
    tensor.address = words[0];
    tensor.rank = words[1] & 0xff;
    tensor.element_bytes = words[1] >> 8 & 0xff;
    tensor.swizzle = words[1] >> 16 & 0xffff;
    if (words[15] != MODEL || tensor.rank != rank) {
        Report& report = begin_report(thread, Fault::tensor_map);
        report.detail = words[15] == MODEL ? tensor.rank : 0;
        report.other_detail = rank;
        fail(thread);
    }
    for (u32 i = 0; i < 5; ++i) {
        tensor.sizes[i] = words[2 + i];
        tensor.strides[i] = i == 0 ? tensor.element_bytes : words[6 + i];
        tensor.extents[i] = static_cast<u32>(words[11 + i / 2] >> i % 2 * 32);
    }
    return tensor;
}

// Calls `row(in shared memory, in global memory, bytes inside of the tensor, bytes)` for each row of a box.
template <typename Row>
static void each_row(const BulkCopy& copy, Row row) {
    const Tensor& of = copy.tensor;
    const u32 row_bytes = of.extents[0] * of.element_bytes;
    const i64 left = static_cast<i64>(of.sizes[0]) - copy.at[0];
    // A row may begin before the tensor.
    const i64 skipped = copy.at[0] < 0 ? -static_cast<i64>(copy.at[0]) : 0;
    u32 index[5] = {};
    for (u32 offset = 0; offset < copy.bytes; offset += row_bytes) {
        bool is_inside = true;
        i64 place = static_cast<i64>(copy.at[0]) * of.element_bytes;
        for (u32 i = 1; i < of.rank; ++i) {
            const i64 at = static_cast<i64>(copy.at[i]) + index[i];
            is_inside = is_inside && at >= 0 && at < static_cast<i64>(of.sizes[i]);
            place += at * static_cast<i64>(of.strides[i]);
        }
        const i64 end = is_inside ? std::min<i64>(std::max<i64>(left, 0), of.extents[0]) : 0;
        const i64 begin = std::min(skipped, end);
        row(offset, reinterpret_cast<u8*>(of.address) + place, static_cast<u32>(begin) * of.element_bytes,
            static_cast<u32>(end) * of.element_bytes);
        for (u32 i = 1; i < of.rank; ++i) {
            if (++index[i] < of.extents[i]) break;
            index[i] = 0;
        }
    }
}

// Where byte `offset` of a box lies; 16 bytes stay together.
static u8* swizzled(const BulkCopy& copy, u32 offset) {
    // A block's shared memory begins at a multiple of 1024.
    const u64 place = reinterpret_cast<u64>(copy.shared) + offset;
    const u64 words = copy.tensor.swizzle / 16;
    return reinterpret_cast<u8*>(words == 0 ? place : place ^ (place >> 7 & (words - 1)) << 4);
}

void do_load(const BulkCopy& copy) {
    if (!copy.is_box) {
        memcpy(copy.shared, copy.global, copy.bytes);
        return;
    }
    const u32 row_bytes = copy.tensor.extents[0] * copy.tensor.element_bytes;
    each_row(copy, [&](u32 offset, const u8* from, u32 begin, u32 end) {
        for (u32 word = 0; word < row_bytes; word += 16) {
            u8 bytes[16] = {};
            const u32 first = std::max(begin, word);
            const u32 last = std::min(end, word + 16);
            if (first < last) memcpy(bytes + (first - word), from + first, last - first);
            memcpy(swizzled(copy, offset + word), bytes, 16);
        }
    });
}

static void add_floats(u8* to, const u8* from, u32 bytes) {
    for (u32 i = 0; i < bytes; i += 4) {
        u32* const word = reinterpret_cast<u32*>(to + i);
        float value;
        memcpy(&value, from + i, 4);
        u32 old = __atomic_load_n(word, __ATOMIC_RELAXED);
        while (!__atomic_compare_exchange_n(word, &old, word_of_float(float_of_word(old) + value), true, __ATOMIC_RELAXED,
                                            __ATOMIC_RELAXED)) {
        }
    }
}

static void do_store(const BulkCopy& copy) {
    if (!copy.is_box) {
        if (copy.adds) {
            add_floats(copy.global, copy.shared, copy.bytes);
        } else {
            memcpy(copy.global, copy.shared, copy.bytes);
        }
        return;
    }
    each_row(copy, [&](u32 offset, u8* to, u32 begin, u32 end) {
        for (u32 byte = begin; byte < end;) {
            const u32 word_end = std::min(end, (byte / 16 + 1) * 16);
            memcpy(to + byte, swizzled(copy, offset + byte / 16 * 16) + byte % 16, word_end - byte);
            byte = word_end;
        }
    });
}

// Global memory of a copy, as the thread that issues it may touch it.
static void check_global(Thread& thread, const BulkCopy& copy, Access access) {
    if (!copy.is_box) {
        for (u32 i = 0; i < copy.bytes; i += 16) check(thread, reinterpret_cast<u64>(copy.global + i), 16, access, copy.site);
        return;
    }
    const u32 element = copy.tensor.element_bytes;
    each_row(copy, [&](u32, const u8* at, u32 begin, u32 end) {
        for (u32 i = begin; i < end;) {
            const u64 address = reinterpret_cast<u64>(at + i);
            const u32 step = address % 16 == 0 && end - i >= 16 ? 16 : element;
            check(thread, address, step, access, copy.site);
            i += step;
        }
    });
}

static void need_multiple(Thread& thread, const void* at, u32 bytes, u32 of, Access access) {
    const u64 address = reinterpret_cast<u64>(at);
    const u64 place = address - reinterpret_cast<u64>(thread.block->shared) < thread.block->shared_bytes
                          ? address - reinterpret_cast<u64>(thread.block->shared)
                          : address;
    if (place % of != 0) refuse(thread, Fault::misaligned, address, bytes, access, of);
}

static void load(Thread& thread, BulkCopy copy, void* barrier_at, u64 site) {
    copy.site = site;
    MbarrierModel& barrier = need_mbarrier(thread, barrier_at, site);
    const u64 address = reinterpret_cast<u64>(copy.shared);
    need_shared(thread, address, copy.bytes, Access::write);
    Block& block = *thread.block;
    if (block.launch->checks) {
        const Thread& maker = thread.worker->threads[barrier.maker];
        if (barrier.fences == maker.fences && barrier.mbarrier_fences == maker.mbarrier_fences) {
            Report& report = begin_report(thread, Fault::unfenced_barrier);
            report.other_thread = maker.index;
            report.other_site = barrier.site;
            fail(thread);
        }
        const u32 phase = block.hopper->base + barrier.phase + 1;
        check_global(thread, copy, Access::read);
        check_unit_write(thread, address, copy.bytes, mbarrier_number(block, barrier), phase, site);
    }
    note_load(thread, barrier, std::move(copy));
}

static void store(Thread& thread, BulkCopy copy, u64 site) {
    Block& block = *thread.block;
    use_hopper(block);
    copy.site = site;
    copy.group = thread.bulk_groups;
    copy.time = block.hopper->base + ++block.hopper->copies;
    const u64 address = reinterpret_cast<u64>(copy.shared);
    need_shared(thread, address, copy.bytes, Access::read);
    if (block.launch->checks) {
        const u32 agent = AGENT_COPIES + thread.warp->number;
        check_unit_read(thread, address, copy.bytes, agent, copy.time, thread.warp->clock, site);
        check_global(thread, copy, copy.adds ? Access::atomic : Access::write);
    }
    thread.bulk_copies.push_back(std::move(copy));
}

static BulkCopy box_copy(Thread& thread, const void* shared, const void* map, u32 rank, const i32 (&at)[5], Access access) {
    BulkCopy copy{};
    copy.is_box = true;
    copy.shared = static_cast<u8*>(const_cast<void*>(shared));
    copy.tensor = need_tensor(thread, map, rank);
    copy.bytes = copy.tensor.element_bytes;
    for (u32 extent : copy.tensor.extents) copy.bytes *= extent;
    std::copy(at, at + 5, copy.at);
    need_multiple(thread, shared, copy.bytes, copy.tensor.swizzle == 0 ? 128 : 8 * copy.tensor.swizzle, access);
    return copy;
}

static BulkCopy plain_copy(Thread& thread, const void* shared, const void* global, u32 bytes, Access access) {
    BulkCopy copy{};
    copy.shared = static_cast<u8*>(const_cast<void*>(shared));
    copy.global = static_cast<u8*>(const_cast<void*>(global));
    copy.bytes = bytes;
    need_multiple(thread, shared, bytes, 16, access);
    need_multiple(thread, global, bytes, 16, access == Access::read ? Access::write : Access::read);
    if (bytes % 16 != 0) refuse(thread, Fault::misaligned, reinterpret_cast<u64>(shared) + bytes, bytes, access, 16);
    return copy;
}

// A thread that returns must have waited until its copies read what its block leaves behind.
void check_bulk_copies(Thread& thread) {
    for (const BulkCopy& copy : thread.bulk_copies) {
        do_store(copy);
        if (!thread.block->launch->checks) continue;
        Report& report = begin_report(thread, Fault::unread_copy);
        report.n_frames = 1;
        report.frames[0] = copy.site;
        fail(thread);
    }
    thread.bulk_copies.clear();
}

}  // namespace kernwright

using namespace kernwright;

extern "C" {

void kernwright_tma_load(void* to, const void* map, void* barrier, i32 rank, i32 x, i32 y, i32 z, i32 u, i32 v) {
    Thread& thread = *current;
    const i32 at[5] = {x, y, z, u, v};
    load(thread, box_copy(thread, to, map, static_cast<u32>(rank), at, Access::write), barrier, KERNWRIGHT_SITE);
}

void kernwright_tma_store(const void* map, const void* from, i32 rank, i32 x, i32 y, i32 z, i32 u, i32 v) {
    Thread& thread = *current;
    const i32 at[5] = {x, y, z, u, v};
    store(thread, box_copy(thread, from, map, static_cast<u32>(rank), at, Access::read), KERNWRIGHT_SITE);
}

void kernwright_bulk_load(void* to, const void* from, u32 bytes, void* barrier) {
    Thread& thread = *current;
    load(thread, plain_copy(thread, to, from, bytes, Access::write), barrier, KERNWRIGHT_SITE);
}

void kernwright_bulk_store(void* to, const void* from, u32 bytes, i32 adds) {
    Thread& thread = *current;
    BulkCopy copy = plain_copy(thread, from, to, bytes, Access::read);
    copy.adds = adds != 0;
    store(thread, std::move(copy), KERNWRIGHT_SITE);
}

void kernwright_bulk_commit() { ++current->bulk_groups; }

// All committed groups but the `newest` have read shared memory now; they write what they read.
void kernwright_bulk_wait(i32 newest) {
    Thread& thread = *current;
    u32& seen = thread.warp->clock[AGENT_COPIES + thread.warp->number];
    size_t done = 0;
    for (; done < thread.bulk_copies.size(); ++done) {
        const BulkCopy& copy = thread.bulk_copies[done];
        if (copy.group + static_cast<u64>(newest) >= thread.bulk_groups) break;
        do_store(copy);
        seen = std::max(seen, copy.time);
    }
    thread.bulk_copies.erase(thread.bulk_copies.begin(), thread.bulk_copies.begin() + static_cast<std::ptrdiff_t>(done));
}
}
