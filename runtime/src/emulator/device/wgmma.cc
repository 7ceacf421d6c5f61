// Products of a warpgroup: d (64 x N) += a (64 x 16) b (16 x N), by descriptors of matrices in shared memory.
//
// A descriptor (PTX ISA, "Matrix Descriptor Format") has, in units of 16 bytes, the start of the matrix in bits 0 to 13, the
// leading offset in 16 to 29, the stride in 32 to 45, and in 62 and 63 the swizzle: none, 128, 64, 32 bytes. wgmma.cuh tells
// what the offsets mean; fragments are told there too.
//
// The last of 128 threads computes for all. Sums are fp32 in the order of k, kept here; the registers hold no numbers until
// the group is waited for, and the hooks report who touches them. Operands count as read from the moment a product is issued
// until some thread has waited for its group.
#include "model.h"

#include "kernwright_numbers.h"

#include <algorithm>

namespace kernwright {

constexpr u32 ROWS = 64;
constexpr u32 DEPTH = 16;
constexpr u32 MOST_COLUMNS = 256;
// What a product is asked for; the bits are those of kernwright_hopper.h.
constexpr u32 IS_BF16 = 1;
constexpr u32 ACCUMULATES = 2;
constexpr u32 A_IS_MN = 4;
constexpr u32 B_IS_MN = 8;
constexpr u32 A_IN_REGISTERS = 16;

struct GroupProduct {
    float* d;
    u32 registers;
    u32 flags;
    u64 a;
    u64 b;
    u32 fragment[4];
};

struct Matrix {
    u32 start;
    u32 leading;
    u32 stride;
    u32 swizzle;  // bytes of a row; 0 without
    bool is_mn;
};

static Matrix decode(u64 descriptor, bool is_mn) {
    static constexpr u32 ROW_BYTES[] = {0, 128, 64, 32};
    const auto field = [&](u32 shift) { return static_cast<u32>(descriptor >> shift & 0x3fff) << 4; };
    return Matrix{field(0), field(16), field(32), ROW_BYTES[descriptor >> 62], is_mn};
}

// Where 8 neighbouring elements lie: those of row `row` and k = 8 `piece` and on, or, MN-major, those of k = `row` and rows
// 8 `piece` and on.
static u32 place(const Matrix& of, u32 row, u32 piece) {
    u32 offset;
    if (of.swizzle == 0) {
        // MN-major, `row` counts k.
        offset = of.is_mn ? piece * of.stride + row / 8 * of.leading + row % 8 * 16
                          : row / 8 * of.stride + piece * of.leading + row % 8 * 16;
        return of.start + offset;
    }
    const u32 pieces = of.swizzle / 16;
    offset = row / 8 * of.stride + row % 8 * of.swizzle;
    offset += of.is_mn ? piece / pieces * of.leading + piece % pieces * 16 : piece * 16;
    const u32 address = of.start + offset;
    return address ^ (address >> 7 & (pieces - 1)) << 4;
}

// Calls `each(address, row or k, piece)` for all pieces of rows `first` to `last` of an operand.
template <typename Each>
static void each_piece(const Matrix& of, u32 first, u32 last, Each each) {
    if (of.is_mn) {
        for (u32 k = 0; k < DEPTH; ++k) {
            for (u32 piece = first / 8; piece < last / 8; ++piece) each(place(of, k, piece), k, piece);
        }
        return;
    }
    for (u32 row = first; row < last; ++row) {
        for (u32 piece = 0; piece < DEPTH / 8; ++piece) each(place(of, row, piece), row, piece);
    }
}

static float wide(u16 bits, bool is_bf16) { return is_bf16 ? float_of_bf16_bits(bits) : float_of_fp16_bits(bits); }

// `to` has a row of each k.
static void read_matrix(const u8* shared, const Matrix& of, u32 rows, bool is_bf16, float (*to)[MOST_COLUMNS]) {
    each_piece(of, 0, rows, [&](u32 address, u32 row, u32 piece) {
        u16 elements[8];
        memcpy(elements, shared + address, 16);
        for (u32 i = 0; i < 8; ++i) {
            if (of.is_mn) {
                to[row][8 * piece + i] = wide(elements[i], is_bf16);
            } else {
                to[8 * piece + i][row] = wide(elements[i], is_bf16);
            }
        }
    });
}

// On x86-64 as wide as the machine has it; without fused operations, so that the bits are the same.
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__)
__attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))
#endif
static void add_products(float* sums, const float (*a)[MOST_COLUMNS], const float (*b)[MOST_COLUMNS], u32 columns) {
    for (u32 row = 0; row < ROWS; ++row) {
        float* const to = sums + row * columns;
        for (u32 first = 0; first < columns; first += 8) {
            float sum[8];
            memcpy(sum, to + first, sizeof sum);
            for (u32 k = 0; k < DEPTH; ++k) {
                const float left = a[k][row];
                for (u32 i = 0; i < 8; ++i) sum[i] += left * b[k][first + i];
            }
            memcpy(to + first, sum, sizeof sum);
        }
    }
}

static u32 number_of(const Warpgroup& group, const Block& block) {
    return static_cast<u32>(&group - block.hopper->warpgroups);
}

static Thread* threads_of(Block& block, u32 group) { return block.worker->warps[4 * group].first; }

static float* sum_of(Accumulator& accumulator, u32 thread, u32 i) {
    const u32 row = thread / WARP * 16 + thread % WARP / 4 + i / 2 % 2 * 8;
    const u32 column = i / 4 * 8 + thread % 4 * 2 + i % 2;
    return &accumulator.sums[row * accumulator.columns + column];
}

[[noreturn]] static void refuse_product(Thread& thread, Fault fault, u64 detail, const Thread* other = nullptr) {
    Report& report = begin_report(thread, fault);
    report.operation = static_cast<u32>(Operation::wgmma);
    report.detail = detail;
    if (other != nullptr) {
        report.other_thread = other->index;
        report.other_site = other->site;
    }
    fail(thread);
}

// A product, or a wait, of a block that has whole warpgroups only up to here.
static u32 need_warpgroup(Thread& thread) {
    Block& block = *thread.block;
    const u32 group = thread.warp->number / 4;
    if ((thread.number - block.first_thread) / 128 >= block.n_threads / 128) refuse_product(thread, Fault::no_warpgroup, block.n_threads);
    use_hopper(block);
    return group;
}

// Where an operand lies, and that it may be read.
static void check_matrix(Thread& thread, const Matrix& of, u32 first, u32 last, u32 agent, u32 time, const u32* seen) {
    if (of.swizzle != 0 && of.start % (8 * of.swizzle) >= of.swizzle) {
        refuse_product(thread, Fault::matrix, of.start);
    }
    const u64 shared = reinterpret_cast<u64>(thread.block->shared);
    const bool is_checked = thread.block->launch->checks != 0;
    each_piece(of, first, last, [&](u32 address, u32, u32) {
        need_shared(thread, shared + address, 16, Access::read);
        if (is_checked) check_unit_read(thread, shared + address, 16, agent, time, seen, thread.site);
    });
}

static void check_operands(Thread& thread, u32 group, const GroupProduct& product, u32 time) {
    Block& block = *thread.block;
    const u32 agent = AGENT_PRODUCTS + group;
    // What all four warps have seen.
    u32 all[MOST_AGENTS];
    for (u32 w = 0; w < 4; ++w) {
        const Warp& warp = block.worker->warps[4 * group + w];
        u32 seen[MOST_AGENTS];
        memcpy(seen, warp.clock, sizeof seen);
        --seen[warp.number];
        if (!(product.flags & A_IN_REGISTERS)) {
            check_matrix(thread, decode(product.a, product.flags & A_IS_MN), 16 * w, 16 * w + 16, agent, time, seen);
        }
        for (u32 i = 0; i < MOST_AGENTS; ++i) all[i] = w == 0 ? seen[i] : std::min(all[i], seen[i]);
    }
    check_matrix(thread, decode(product.b, product.flags & B_IS_MN), 0, 2 * product.registers, agent, time, all);
}

// The sums these registers stand for: those of a product under way, or new ones.
static Accumulator& accumulator_of(Thread& thread, u32 group, const GroupProduct& product) {
    Block& block = *thread.block;
    Warpgroup& warpgroup = block.hopper->warpgroups[group];
    Thread* const threads = threads_of(block, group);
    const u32 columns = 2 * product.registers;
    const u64 begin = reinterpret_cast<u64>(product.d);
    for (Accumulator& one : warpgroup.accumulators) {
        // Of the first thread, as `begin` is; the others follow suit.
        const u64 other = reinterpret_cast<u64>(one.of[0]);
        if (other == begin && one.columns == columns && one.delivered == 0) return one;
        if (begin < other + 2 * one.columns && other < begin + 2 * columns && !(one.delivered & 1)) {
            Report& report = begin_report(thread, Fault::accumulator);
            report.operation = static_cast<u32>(Operation::wgmma);
            report.access = static_cast<u32>(Access::write);
            report.bytes = 4 * product.registers;
            report.other_site = one.site;
            fail(thread);
        }
    }
    // Nothing adds to registers that were touched since the last fence.
    for (u32 w = 0; w < 4; ++w) {
        if (block.launch->checks && block.worker->warps[4 * group + w].needs_fence) refuse_product(thread, Fault::unfenced_product, 0);
    }
    warpgroup.accumulators.emplace_back();
    Accumulator& made = warpgroup.accumulators.back();
    made.columns = columns;
    made.delivered = 0;
    made.sums.assign(ROWS * columns, 0.0f);
    for (u32 t = 0; t < 128; ++t) {
        const GroupProduct& own = *static_cast<GroupProduct*>(threads[t].operands);
        made.of[t] = own.d;
        for (u32 i = 0; i < product.registers; ++i) {
            if (product.flags & ACCUMULATES) *sum_of(made, t, i) = own.d[i];
            own.d[i] = float_of_word(0x7fffffffu);
        }
        const u64 at = reinterpret_cast<u64>(own.d);
        threads[t].in_flight.push_back(Registers{at, at + 4 * product.registers, thread.site});
    }
    return made;
}

static void multiply_group(Thread& thread, u32 group) {
    Block& block = *thread.block;
    Thread* const threads = threads_of(block, group);
    const GroupProduct& product = *static_cast<GroupProduct*>(threads[0].operands);
    for (u32 t = 1; t < 128; ++t) {
        const GroupProduct& other = *static_cast<GroupProduct*>(threads[t].operands);
        const bool is_same = other.flags == product.flags && other.registers == product.registers && other.b == product.b &&
                             (other.a == product.a || product.flags & A_IN_REGISTERS);
        if (!is_same) refuse_product(thread, Fault::no_warpgroup, 1, &threads[t]);
    }
    const u32 time = thread.warp->product_groups + 1;
    for (u32 w = 0; w < 4; ++w) {
        const Warp& warp = block.worker->warps[4 * group + w];
        if (block.launch->checks && warp.needs_fence && product.flags & A_IN_REGISTERS) {
            refuse_product(thread, Fault::unfenced_product, 1);
        }
    }
    check_operands(thread, group, product, time);
    Accumulator& accumulator = accumulator_of(thread, group, product);
    accumulator.group = time;
    accumulator.site = thread.site;
    if (!(product.flags & ACCUMULATES)) std::fill(accumulator.sums.begin(), accumulator.sums.end(), 0.0f);

    const bool is_bf16 = product.flags & IS_BF16;
    // Too large for a fiber's stack.
    std::vector<float>& room = thread.worker->operands;
    if (room.empty()) room.resize(2 * DEPTH * MOST_COLUMNS);
    auto* const a = reinterpret_cast<float (*)[MOST_COLUMNS]>(room.data());
    auto* const b = a + DEPTH;
    read_matrix(block.shared, decode(product.b, product.flags & B_IS_MN), accumulator.columns, is_bf16, b);
    if (product.flags & A_IN_REGISTERS) {
        for (u32 t = 0; t < 128; ++t) {
            const GroupProduct& own = *static_cast<GroupProduct*>(threads[t].operands);
            for (u32 i = 0; i < 4; ++i) {
                const u32 row = t / WARP * 16 + t % WARP / 4 + i % 2 * 8;
                const u32 k = t % 4 * 2 + i / 2 * 8;
                a[k][row] = wide(static_cast<u16>(own.fragment[i]), is_bf16);
                a[k + 1][row] = wide(static_cast<u16>(own.fragment[i] >> 16), is_bf16);
            }
        }
    } else {
        read_matrix(block.shared, decode(product.a, product.flags & A_IS_MN), ROWS, is_bf16, a);
    }
    add_products(accumulator.sums.data(), a, b, accumulator.columns);
}

// Lets the other warps of a warpgroup go on, whose last lanes wait too.
void release_warpgroup(Block& block, u32 group, Thread& last) {
    for (u32 w = 4 * group; w < 4 * group + 4; ++w) {
        Warp& warp = block.worker->warps[w];
        if (&warp == last.warp) {
            release(warp, last);
            continue;
        }
        for (u32 i = 0; i < warp.threads; ++i) {
            warp.first[i].operation = Operation::nothing;
            resume(warp.first[i]);
        }
    }
}

// True for the last thread of a warpgroup, for which the others wait.
bool arrive_as_warpgroup(Thread& thread, u32 group, Operation operation, u64 site, void* operands) {
    if (!arrive(thread, operation, site, operands)) return false;
    Warpgroup& warpgroup = thread.block->hopper->warpgroups[group];
    if (warpgroup.arrived == 0) warpgroup.earliest = &thread;
    const Thread& earliest = *warpgroup.earliest;
    const bool is_checked = thread.block->launch->checks != 0;
    if (earliest.operation != operation || (is_checked && !same_place(thread, earliest.site, site))) {
        Report& report = begin_report(thread, Fault::no_warpgroup);
        report.operation = static_cast<u32>(operation);
        report.detail = 2;
        report.other_operation = static_cast<u32>(earliest.operation);
        report.other_thread = earliest.index;
        report.other_site = earliest.site;
        fail(thread);
    }
    if (++warpgroup.arrived < 4) {
        wait(thread);
        return false;
    }
    warpgroup.arrived = 0;
    return true;
}

static void product(GroupProduct& own, u64 site) {
    Thread& thread = *current;
    const u32 group = need_warpgroup(thread);
    if (own.registers == 0 || own.registers > MOST_COLUMNS / 2 || own.registers % 4 != 0) {
        refuse_product(thread, Fault::no_warpgroup, 3);
    }
    if (arrive_as_warpgroup(thread, group, Operation::wgmma, site, &own)) {
        multiply_group(thread, group);
        release_warpgroup(*thread.block, group, thread);
    }
}

// The results of all groups up to `done` come to the registers of a warp.
static void deliver(Thread& thread, u32 group, u32 done) {
    Block& block = *thread.block;
    Warpgroup& warpgroup = block.hopper->warpgroups[group];
    Warp& warp = *thread.warp;
    const u32 own = warp.number % 4;
    Thread* const threads = threads_of(block, group);
    for (Accumulator& one : warpgroup.accumulators) {
        if (one.group > done || one.delivered >> own & 1) continue;
        one.delivered |= 1u << own;
        warp.needs_fence = true;
        for (u32 t = 32 * own; t < 32 * own + 32; ++t) {
            for (u32 i = 0; i < one.columns / 2; ++i) one.of[t][i] = *sum_of(one, t, i);
            auto& used = threads[t].in_flight;
            const u64 begin = reinterpret_cast<u64>(one.of[t]);
            used.erase(std::remove_if(used.begin(), used.end(), [&](const Registers& r) { return r.begin == begin; }),
                       used.end());
        }
    }
    auto& all = warpgroup.accumulators;
    all.erase(std::remove_if(all.begin(), all.end(), [](const Accumulator& one) { return one.delivered == 15; }), all.end());
    u32& seen = warp.clock[AGENT_PRODUCTS + number_of(warpgroup, block)];
    seen = std::max(seen, done);
}

// A thread's own access to its stack, while products use registers that lie there.
void check_registers(Thread& thread, u64 address, u32 bytes, Access access) {
    for (const Registers& used : thread.in_flight) {
        if (address >= used.end || address + bytes <= used.begin) continue;
        Report& report = begin_report(thread, Fault::accumulator);
        report.access = static_cast<u32>(access);
        report.bytes = bytes;
        report.other_site = used.site;
        fail(thread);
    }
}

}  // namespace kernwright

using namespace kernwright;

extern "C" {

void kernwright_wgmma(float* d, i32 registers, u64 a, u64 b, i32 flags) {
    GroupProduct own{d, static_cast<u32>(registers), static_cast<u32>(flags), a, b, {}};
    product(own, KERNWRIGHT_SITE);
}

void kernwright_wgmma_registers(float* d, i32 registers, u64 a_low, u64 a_high, u64 b, i32 flags) {
    GroupProduct own{d, static_cast<u32>(registers), static_cast<u32>(flags) | A_IN_REGISTERS, 0, b, {}};
    for (u32 i = 0; i < 4; ++i) own.fragment[i] = static_cast<u32>((i < 2 ? a_low : a_high) >> i % 2 * 32);
    product(own, KERNWRIGHT_SITE);
}

void kernwright_wgmma_fence() {
    need_warpgroup(*current);
    current->warp->needs_fence = false;
}

void kernwright_wgmma_commit() {
    Thread& thread = *current;
    need_warpgroup(thread);
    if (arrive(thread, Operation::wgmma_commit, KERNWRIGHT_SITE, nullptr)) {
        ++thread.warp->product_groups;
        release(*thread.warp, thread);
    }
}

void kernwright_wgmma_wait(i32 newest) {
    Thread& thread = *current;
    const u32 group = need_warpgroup(thread);
    if (arrive(thread, Operation::wgmma_wait, KERNWRIGHT_SITE, nullptr)) {
        const u32 newer = static_cast<u32>(newest);
        const u32 base = thread.block->hopper->base;
        const u32 committed = thread.warp->product_groups;
        if (committed - base > newer) deliver(thread, group, committed - newer);
        release(*thread.warp, thread);
    }
}
}
