// What is checked of every access to memory, and what is remembered for that.
//
// Global memory: a byte beside each byte says whether anybody wrote it. Shared memory: the same, and by granules of two
// bytes who wrote last and which thread of each warp read last, with their times. Two accesses are ordered if the later
// one's warp has, through barriers, seen the time of the earlier one; within a warp if they are of one lane, or if the
// warp's own time has gone on since. Shuffles, votes and matrix products order nothing. Nothing orders the blocks of a
// grid, and races on global memory are not looked for.
//
// The asynchronous units have times of their own: what TMA writes is of a phase of an mbarrier, what products and copies
// from shared memory read is of a group, and whoever waits for those has seen that. Between an ordinary write and a unit
// stands a fence besides, of who wrote, or of who saw it and tells the unit.
#include "model.h"

#include <algorithm>

namespace kernwright {

// A read's time has 26 bits; a block may still pass half as many barriers as fit.
constexpr u32 LATE = 1u << 25;

static const Allocation* find(Thread& thread, u64 address) {
    const Allocation* const last = thread.last;
    if (last != nullptr && address - last->address < last->bytes) return last;
    const Launch& launch = *thread.block->launch;
    u64 low = 0;
    u64 high = launch.n_allocations;
    while (low < high) {
        const u64 middle = (low + high) / 2;
        if (launch.allocations[middle].address <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == 0) return nullptr;
    const Allocation& found = launch.allocations[low - 1];
    if (address - found.address >= found.bytes) return nullptr;
    thread.last = &found;
    return &found;
}

// Where the marks of a byte of shared memory lie.
static u64 place_of(const Thread& thread, u64 address) { return address - reinterpret_cast<u64>(thread.worker->shared); }

// Shared memory, or just past its end: what is wrong there is the index, not the kind of memory.
static bool is_meant_as_shared(const Thread& thread, u64 address) {
    const Block& block = *thread.block;
    return address - reinterpret_cast<u64>(block.shared) < block.shared_bytes + 1024;
}

static Report& report_access(Thread& thread, Fault fault, u64 address, u32 bytes, Access access) {
    Report& report = begin_report(thread, fault);
    report.access = static_cast<u32>(access);
    report.address = address;
    for (u32 rank = 0; rank < thread.worker->n_blocks; ++rank) {
        const Block& block = thread.worker->blocks[rank];
        if (&block == thread.block || address - reinterpret_cast<u64>(block.shared) >= block.shared_bytes) continue;
        report.shared = reinterpret_cast<u64>(block.shared);
        report.shared_bytes = block.shared_bytes;
        report.other_block = rank + 1;
    }
    report.bytes = bytes;
    report.operation = static_cast<u32>(thread.operation);
    return report;
}

[[noreturn]] void refuse(Thread& thread, Fault fault, u64 address, u32 bytes, Access access, u64 detail) {
    report_access(thread, fault, address, bytes, access).detail = detail;
    fail(thread);
}

[[noreturn]] static void report_race(Thread& thread, u64 address, u32 bytes, Access access, u32 other, Access other_access,
                                     u32 site) {
    Report& report = report_access(thread, Fault::race, address, bytes, access);
    report.other_thread = thread.worker->threads[other].index;
    report.other_access = static_cast<u32>(other_access);
    report.other_site = thread.block->launch->module_base + site;
    fail(thread);
}

[[noreturn]] static void refuse_copy(Thread& thread, u64 address, u32 bytes, Access access, u64 at) {
    // Whose copy it is stands in the mark of its granule.
    const Block& block = *thread.block;
    const WriteMark& mark = thread.worker->shadow.writes[place_of(thread, at) / GRANULE];
    Report& report = report_access(thread, Fault::in_flight, address, bytes, access);
    report.other_thread = thread.worker->threads[mark.thread].index;
    report.other_site = block.launch->module_base + mark.site;
    fail(thread);
}

// The bytes of a copy that arrives at an mbarrier, which this thread has not waited for.
[[noreturn]] void refuse_copy_at(Thread& thread, const MbarrierModel& barrier, u64 address, u32 bytes, Access access) {
    Report& report = report_access(thread, Fault::not_arrived, address, bytes, access);
    report.other_thread = thread.worker->threads[barrier.issuer].index;
    report.other_site = barrier.issuer_site;
    fail(thread);
}

// Nothing may be written where a copy is under way: which of the two comes last is not known.
static void check_no_copy(Thread& thread, const u8* state, u64 address, u32 bytes) {
    for (u32 i = 0; i < bytes; ++i) {
        if (state[i] == static_cast<u8>(ByteState::mbarrier)) {
            refuse(thread, Fault::over_mbarrier, address, bytes, Access::write);
        }
        if (state[i] == static_cast<u8>(ByteState::in_flight)) {
            refuse_copy(thread, address, bytes, Access::write, address + i);
        }
    }
}

static void check_written(Thread& thread, const u8* written, u64 address, u32 bytes, Access access) {
    for (u32 i = 0; i < bytes; ++i) {
        if (written[i] == static_cast<u8>(ByteState::written)) continue;
        if (written[i] == static_cast<u8>(ByteState::in_flight)) {
            refuse_copy(thread, address, bytes, access, address + i);
        }
        if (written[i] == static_cast<u8>(ByteState::mbarrier)) {
            refuse(thread, Fault::over_mbarrier, address, bytes, access);
        }
        refuse(thread, Fault::unwritten, address, bytes, access, i);
    }
}

// Whether all bytes are known to be written, eight at a time.
static bool all_written(const u8* written, u32 bytes) {
    constexpr u64 ALL = 0x0101010101010101u;
    u32 i = 0;
    for (; i + 8 <= bytes; i += 8) {
        u64 word;
        memcpy(&word, written + i, 8);
        if (word != ALL) return false;
    }
    for (; i < bytes; ++i) {
        if (written[i] != static_cast<u8>(ByteState::written)) return false;
    }
    return true;
}

static bool is_unordered(const Thread& thread, u32 other, u32 time) {
    if (other == thread.number) return false;
    const Warp& warp = *thread.warp;
    const u32 other_warp = other / WARP;
    return other_warp == warp.number ? time >= warp.clock[warp.number] : time > warp.clock[other_warp];
}

// Whether a write is not ordered before this thread.
static bool is_unordered(const Thread& thread, const WriteMark& mark) {
    if (mark.is_copy) return mark.time > thread.warp->clock[AGENT_MBARRIERS + mark.thread];
    return is_unordered(thread, mark.thread, mark.time);
}

[[noreturn]] static void report_write(Thread& thread, u64 address, u32 bytes, Access access, const WriteMark& mark) {
    if (mark.is_copy) refuse_copy_at(thread, thread.block->hopper->mbarriers[mark.thread], address, bytes, access);
    const Access earlier = mark.atomic ? Access::atomic : Access::write;
    report_race(thread, address, bytes, access, mark.thread, earlier, mark.site);
}

// Nothing may be written that this thread does not know to have been read.
static void check_readers(Thread& thread, u64 granule, u64 address, u32 bytes, Access access) {
    const Shadow& shadow = thread.worker->shadow;
    const Warp& warp = *thread.warp;
    const u32 time = warp.clock[warp.number];
    const ReadMark* const reads = &shadow.reads[granule * shadow.n_warps];
    for (u32 w = 0; w < shadow.n_warps; ++w) {
        const u32 read_time = reads[w].time_and_lane >> 6;
        if (read_time <= warp.clock[w] && w != warp.number) continue;
        if (w == warp.number && (read_time < time || (reads[w].time_and_lane & 63) == thread.lane)) continue;
        u32 lane = reads[w].time_and_lane & 31;
        // Several lanes read it, of which only the last is known.
        if (w == warp.number && lane == thread.lane) lane = (lane + 1) % warp.threads;
        report_race(thread, address, bytes, access, w * WARP + lane, Access::read, reads[w].site);
    }
    if (shadow.unit_reads.empty()) return;
    const UnitMark& unit = shadow.unit_reads[granule];
    if (unit.time <= warp.clock[unit.agent]) return;
    Report& report = report_access(thread, Fault::under_read, address, bytes, access);
    report.other_thread = thread.worker->threads[unit.thread].index;
    report.other_site = thread.block->launch->module_base + unit.site;
    fail(thread);
}

static void check_races(Thread& thread, u64 offset, u32 bytes, u64 address, Access access, u64 site) {
    Shadow& shadow = thread.worker->shadow;
    const Warp& warp = *thread.warp;
    const u32 n_warps = shadow.n_warps;
    const u32 time = warp.clock[warp.number];
    const u32 place = static_cast<u32>(site - thread.block->launch->module_base);
    const u64 end = (offset + bytes + GRANULE - 1) / GRANULE;
    for (u64 granule = offset / GRANULE; granule < end; ++granule) {
        WriteMark& write = shadow.writes[granule];
        ReadMark* const reads = &shadow.reads[granule * n_warps];
        if (is_unordered(thread, write) && !(access == Access::atomic && write.atomic)) {
            report_write(thread, address, bytes, access, write);
        }
        if (access == Access::read) {
            ReadMark& read = reads[warp.number];
            const bool is_shared_read = read.time_and_lane >> 6 == time && (read.time_and_lane & 63) != thread.lane;
            read.time_and_lane = time << 6 | (is_shared_read ? 32 : 0) | thread.lane;
            read.site = place;
            continue;
        }
        check_readers(thread, granule, address, bytes, access);
        write = WriteMark{time, place, static_cast<u16>(thread.number), static_cast<u8>(access == Access::atomic), 0,
                          thread.fences};
    }
}

// Shared memory of the thread's own block, or of another one of its cluster.
void check_shared(Thread& thread, const Block& of, u64 address, u32 bytes, Access access, u64 site) {
    const u64 offset = address - reinterpret_cast<u64>(of.shared);
    const u32 width = bytes & (0u - bytes);
    if (bytes > of.shared_bytes - offset) refuse(thread, Fault::outside, address, bytes, access);
    if (address % width != 0 && bytes <= 16) refuse(thread, Fault::misaligned, address, bytes, access);
    const u64 place = place_of(thread, address);
    u8* const state = &thread.worker->shadow.state[place];
    if (access == Access::write) {
        check_no_copy(thread, state, address, bytes);
    } else if (!all_written(state, bytes)) {
        check_written(thread, state, address, bytes, access);
    }
    check_races(thread, place, bytes, address, access, site);
    if (access == Access::write) memset(state, static_cast<int>(ByteState::written), bytes);
}

void check(Thread& thread, u64 address, u32 bytes, Access access, u64 site) {
    const Block& block = *thread.block;
    // Powers of two, but for whole objects that the compiler copies piece by piece.
    const u32 width = bytes & (0u - bytes);
    if (address - reinterpret_cast<u64>(block.shared) < block.shared_bytes) {
        check_shared(thread, block, address, bytes, access, site);
        return;
    }
    const Allocation* const found = find(thread, address);
    if (found == nullptr || bytes > found->bytes - (address - found->address)) {
        refuse(thread, Fault::outside, address, bytes, access);
    }
    if (address % width != 0 && bytes <= 16) refuse(thread, Fault::misaligned, address, bytes, access);
    if (found->constant) {
        if (access != Access::read) refuse(thread, Fault::constant, address, bytes, access);
        return;
    }
    u8* const written = found->written + (address - found->address);
    if (access == Access::write) {
        memset(written, static_cast<int>(ByteState::written), bytes);
    } else if (!all_written(written, bytes)) {
        check_written(thread, written, address, bytes, access);
    }
}

// A row for ldmatrix or stmatrix.
void check_row(Thread& thread, u64 address, Access access, u64 site) {
    if (!is_meant_as_shared(thread, address)) refuse(thread, Fault::not_shared, address, 16, access);
    check(thread, address, 16, access, site);
}

// What an asynchronous unit is to read or write.
void need_shared(Thread& thread, u64 address, u32 bytes, Access access) {
    if (!is_meant_as_shared(thread, address)) refuse(thread, Fault::not_shared, address, bytes, access);
    const Block& block = *thread.block;
    const u64 offset = address - reinterpret_cast<u64>(block.shared);
    if (offset + bytes > block.shared_bytes) refuse(thread, Fault::outside, address, bytes, access);
    if (bytes == 8 && offset % 8 != 0) refuse(thread, Fault::misaligned, address, bytes, access);
}

void make_mbarrier(Thread& thread, u64 address, u64 site) {
    check(thread, address, 8, Access::write, site);
    memset(&thread.worker->shadow.state[place_of(thread, address)], static_cast<int>(ByteState::mbarrier), 8);
}

// A barrier is used, which must have been made before.
void check_mbarrier(Thread& thread, u64 address, u64) {
    const WriteMark& mark = thread.worker->shadow.writes[place_of(thread, address) / GRANULE];
    if (is_unordered(thread, mark)) report_write(thread, address, 8, Access::atomic, mark);
}

// Whether an ordinary write was shown to the asynchronous units: by who wrote, or by this thread, which saw it.
static bool is_shown(const Thread& thread, const WriteMark& mark) {
    if (mark.is_copy || mark.time <= thread.block->hopper->base) return true;
    return thread.worker->threads[mark.thread].fences != mark.fences || mark.time <= thread.warp->fenced[mark.thread / WARP];
}

static void need_shown(Thread& thread, u64 address, u32 bytes, Access access, const WriteMark& mark) {
    if (is_shown(thread, mark)) return;
    Report& report = report_access(thread, Fault::proxy, address, bytes, access);
    report.other_thread = thread.worker->threads[mark.thread].index;
    report.other_site = thread.block->launch->module_base + mark.site;
    fail(thread);
}

// An asynchronous unit is told to read: whoever tells it, `seen` is what is known to be done.
void check_unit_read(Thread& thread, u64 address, u32 bytes, u32 agent, u32 time, const u32* seen, u64 site) {
    const Block& block = *thread.block;
    Shadow& shadow = thread.worker->shadow;
    const u64 offset = place_of(thread, address);
    if (!all_written(&shadow.state[offset], bytes)) {
        check_written(thread, &shadow.state[offset], address, bytes, Access::read);
    }
    const UnitMark unit{time, static_cast<u32>(site - block.launch->module_base), static_cast<u16>(agent),
                        static_cast<u16>(thread.number)};
    for (u64 granule = offset / GRANULE; granule < (offset + bytes) / GRANULE; ++granule) {
        const WriteMark& mark = shadow.writes[granule];
        const bool is_own = !mark.is_copy && mark.thread == thread.number;
        const u32 writer = mark.is_copy ? AGENT_MBARRIERS + mark.thread : mark.thread / WARP;
        if (!is_own && mark.time > seen[writer]) report_write(thread, address, bytes, Access::read, mark);
        need_shown(thread, address, bytes, Access::read, mark);
        shadow.unit_reads[granule] = unit;
    }
}

// A copy is told to write, to arrive at an mbarrier in the phase of that time.
void check_unit_write(Thread& thread, u64 address, u32 bytes, u32 mbarrier, u32 time, u64 site) {
    const Block& block = *thread.block;
    Shadow& shadow = thread.worker->shadow;
    const u64 offset = place_of(thread, address);
    check_no_copy(thread, &shadow.state[offset], address, bytes);
    const u32 place = static_cast<u32>(site - block.launch->module_base);
    for (u64 granule = offset / GRANULE; granule < (offset + bytes) / GRANULE; ++granule) {
        WriteMark& mark = shadow.writes[granule];
        if (is_unordered(thread, mark)) report_write(thread, address, bytes, Access::write, mark);
        need_shown(thread, address, bytes, Access::write, mark);
        check_readers(thread, granule, address, bytes, Access::write);
        mark = WriteMark{time, place, static_cast<u16>(mbarrier), 0, 1, 0};
    }
    memset(&shadow.state[offset], static_cast<int>(ByteState::written), bytes);
}

// A copy to shared memory was issued: until it is delivered its bytes are nobody's to touch.
void begin_copy(Thread& thread, u8* to, const u8* from, u64 site) {
    const u64 address = reinterpret_cast<u64>(to);
    if (!is_meant_as_shared(thread, address)) refuse(thread, Fault::not_shared, address, 16, Access::write);
    check(thread, address, 16, Access::write, site);
    memset(&thread.worker->shadow.state[place_of(thread, reinterpret_cast<u64>(to))], static_cast<int>(ByteState::in_flight), 16);
    if (from != nullptr) check(thread, reinterpret_cast<u64>(from), 16, Access::read, site);
}

// It was waited for: the bytes are written, now, by the thread that waited.
void finish_copy(Thread& thread, u8* to, u64 site) {
    memset(&thread.worker->shadow.state[place_of(thread, reinterpret_cast<u64>(to))], static_cast<int>(ByteState::unwritten), 16);
    check(thread, reinterpret_cast<u64>(to), 16, Access::write, site);
}

void reset_shadow(Worker& worker) {
    Shadow& shadow = worker.shadow;
    const u32 n_warps = worker.n_warps;
    const size_t granules = (worker.shared_bytes + GRANULE - 1) / GRANULE;
    // Times only grow, so that marks of earlier blocks, of whatever granule and warp, are ordered before everything;
    // until they no longer fit.
    if (shadow.time > LATE) {
        std::fill(shadow.writes.begin(), shadow.writes.end(), WriteMark{});
        std::fill(shadow.reads.begin(), shadow.reads.end(), ReadMark{});
        std::fill(shadow.unit_reads.begin(), shadow.unit_reads.end(), UnitMark{});
        shadow.time = 0;
    }
    if (shadow.writes.size() < granules) shadow.writes.resize(granules);
    // Kept from a launch that had a use for them.
    if (!shadow.unit_reads.empty() && shadow.unit_reads.size() < granules) shadow.unit_reads.resize(granules);
    if (shadow.reads.size() < granules * n_warps) shadow.reads.resize(granules * n_warps);
    shadow.n_warps = n_warps;
    shadow.state.assign(worker.shared_bytes, static_cast<u8>(ByteState::unwritten));
}

}  // namespace kernwright
