// What sm_90 has besides: one lane that acts for its warp, registers that warpgroups pass on, and when a block's models of
// hopper.h begin and end.
#include "model.h"

#include <algorithm>

namespace kernwright {

// A multiprocessor's registers, of which a block may have all, by its threads in whole eights.
constexpr u32 REGISTERS = 65536;
constexpr u32 MOST_REGISTERS = 256;

static u32 registers_at_first(const Block& block) {
    return std::min(REGISTERS / block.n_threads / 8 * 8, MOST_REGISTERS);
}

// Shared memory is remembered for the units too, from their first use on.
void use_hopper(Block& block) {
    if (block.hopper->is_used) return;
    block.hopper->is_used = true;
    Shadow& shadow = block.worker->shadow;
    const size_t granules = shadow.state.size() / GRANULE + 1;
    if (shadow.unit_reads.size() < granules) shadow.unit_reads.resize(granules);
}

void begin_hopper(Worker& worker) {
    Hopper& hopper = worker.hopper;
    hopper.is_used = false;
    hopper.base = worker.shadow.time;
    hopper.n_mbarriers = 0;
    hopper.copies = 0;
    hopper.spare_registers = 0;
    for (Warpgroup& group : hopper.warpgroups) {
        group.arrived = 0;
        group.accumulators.clear();
        group.registers = registers_at_first(worker.blocks[0]);
        group.wanted = 0;
    }
}

// The latest time of any agent.
u32 end_hopper(const Worker& worker) {
    const Hopper& hopper = worker.hopper;
    u32 last = worker.shadow.time;
    if (!hopper.is_used) return last;
    last = std::max(last, hopper.base + hopper.copies);
    for (u32 i = 0; i < hopper.n_mbarriers; ++i) last = std::max(last, hopper.base + hopper.mbarriers[i].phase + 1);
    for (u32 w = 0; w < worker.n_warps; ++w) last = std::max(last, worker.warps[w].product_groups + 1);
    return last;
}

[[noreturn]] static void refuse_registers(Thread& thread, Operation operation, u64 found, u64 now) {
    Report& report = begin_report(thread, Fault::registers);
    report.operation = static_cast<u32>(operation);
    report.detail = found;
    report.other_detail = now;
    fail(thread);
}

// Lets who waits for registers have them, the first come first.
static void pass_on(Block& block, Thread* last) {
    Hopper& hopper = *block.hopper;
    for (u32 g = 0; g < MOST_WARPGROUPS; ++g) {
        Warpgroup& group = hopper.warpgroups[g];
        if (group.wanted == 0 || group.wanted - group.registers > hopper.spare_registers) continue;
        hopper.spare_registers -= group.wanted - group.registers;
        group.registers = group.wanted;
        group.wanted = 0;
        for (u32 w = 4 * g; w < 4 * g + 4; ++w) {
            Warp& warp = block.worker->warps[w];
            for (u32 i = 0; i < warp.threads; ++i) {
                warp.first[i].operation = Operation::nothing;
                if (&warp.first[i] != last) resume(warp.first[i]);
            }
        }
    }
}

static void change_registers(i32 count, Operation operation, u64 site) {
    Thread& thread = *current;
    Block& block = *thread.block;
    const u32 g = thread.warp->number / 4;
    if ((thread.number - block.first_thread) / 128 >= block.n_threads / 128) {
        Report& report = begin_report(thread, Fault::no_warpgroup);
        report.operation = static_cast<u32>(operation);
        report.detail = block.n_threads;
        fail(thread);
    }
    use_hopper(block);
    if (!arrive_as_warpgroup(thread, g, operation, site, nullptr)) return;
    Hopper& hopper = *block.hopper;
    Warpgroup& group = hopper.warpgroups[g];
    const u32 wanted = static_cast<u32>(count);
    const bool releases = operation == Operation::registers_release;
    if (releases && wanted > group.registers) refuse_registers(thread, operation, wanted, group.registers);
    // A small block begins with as many as its compiler likes, which may be fewer than are counted here.
    if (wanted <= group.registers) {
        hopper.spare_registers += group.registers - wanted;
        group.registers = wanted;
        release_warpgroup(block, g, thread);
        pass_on(block, nullptr);
        return;
    }
    group.wanted = wanted;
    pass_on(block, &thread);
    if (group.wanted != 0) wait(thread);
}

}  // namespace kernwright

using namespace kernwright;

extern "C" {

i32 kernwright_elect_one() {
    Thread& thread = *current;
    if (arrive(thread, Operation::elect_one, KERNWRIGHT_SITE, nullptr)) release(*thread.warp, thread);
    return thread.lane == 0;
}

void kernwright_registers(i32 count, i32 acquires) {
    change_registers(count, acquires ? Operation::registers_acquire : Operation::registers_release, KERNWRIGHT_SITE);
}
}
