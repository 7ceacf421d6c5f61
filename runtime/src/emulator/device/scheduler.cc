// Runs grids: clusters of blocks over workers, and in a worker the threads of one cluster, each until it must wait.
//
// A thread that waits switches straight to the next one that can go on; only when there is none does the worker's own
// stack come back, to begin a cluster, to end it, or to say who waits for what when nobody can go on.
#include "model.h"

#include <link.h>
#include <memory>
#include <thread>

namespace kernwright {

thread_local Thread* current __attribute__((tls_model("initial-exec"))) = nullptr;

// Never returns if no thread is ready and the block is dropped.
static void run_next(void** from, Worker& worker) {
    if (worker.n_ready == 0 || worker.has_failed) {
        worker.running = nullptr;
        switch_stacks(from, worker.home);
        return;
    }
    Thread& next = worker.threads[worker.ready[worker.ready_first]];
    worker.ready_first = (worker.ready_first + 1) % MOST_THREADS;
    --worker.n_ready;
    worker.running = &next;
    current = &next;
    switch_stacks(from, next.stack_pointer);
}

void wait(Thread& thread) { run_next(&thread.stack_pointer, *thread.worker); }

void resume(Thread& thread) {
    Worker& worker = *thread.worker;
    worker.ready[(worker.ready_first + worker.n_ready) % MOST_THREADS] = thread.number;
    ++worker.n_ready;
}

// The first function on every fiber.
static void enter() {
    Thread& thread = *current;
    const Launch& launch = *thread.block->launch;
    launch.call(launch.arguments);
    if (!thread.bulk_copies.empty()) check_bulk_copies(thread);
    thread.has_returned = true;
    ++thread.block->n_returned;
    Worker& worker = *thread.worker;
    if (++worker.n_returned == worker.n_threads && worker.hopper.is_used) check_mbarriers(thread);
    run_next(&thread.stack_pointer, *thread.worker);
    __builtin_unreachable();
}

// From one block's shared memory to the next one's.
static u64 shared_room(const Launch& launch) { return (launch.shared_bytes + 1023) & ~u64{1023}; }

static Index index_in(u64 number, Index size) {
    return Index{static_cast<u32>(number % size.x), static_cast<u32>(number / size.x % size.y),
                 static_cast<u32>(number / size.x / size.y)};
}

// The return addresses on the thread's stack, innermost first: frames are linked, since everything is compiled with frame
// pointers.
static void walk(const Thread& thread, Report& report) {
    u64 frame = reinterpret_cast<u64>(__builtin_frame_address(0));
    report.n_frames = 0;
    const u64 end = thread.stack_low + STACK_BYTES - 16;
    while (report.n_frames < MOST_FRAMES && frame >= thread.stack_low && frame < end && frame % 8 == 0) {
        const u64* const link = reinterpret_cast<const u64*>(frame);
        const u64 site = link[1];
        const Launch& launch = *thread.block->launch;
        if (site - launch.module_base < launch.module_bytes) report.frames[report.n_frames++] = site;
        if (link[0] <= frame) break;
        frame = link[0];
    }
}

// Everything but who waits, which is read only when all are stuck.
static Report& clear_report(const Block& block, Fault fault) {
    Report& report = *block.worker->report;
    memset(&report, 0, offsetof(Report, waiting));
    report.fault = static_cast<u32>(fault);
    report.block_number = block.number;
    report.block = block.index;
    report.shared = reinterpret_cast<u64>(block.shared);
    report.shared_bytes = block.shared_bytes;
    return report;
}

Report& begin_report(Thread& thread, Fault fault) {
    Report& report = clear_report(*thread.block, fault);
    report.thread = thread.index;
    walk(thread, report);
    return report;
}

void fail(Thread& thread) {
    thread.worker->has_failed = true;
    run_next(&thread.stack_pointer, *thread.worker);
    __builtin_unreachable();
}

static void report_stuck(Worker& worker) {
    // The first of a cluster that has not ended stands for it.
    u32 rank = 0;
    while (worker.blocks[rank].n_returned == worker.blocks[rank].n_threads) ++rank;
    const Block& block = worker.blocks[rank];
    Report& report = clear_report(block, Fault::stuck);
    report.n_waiting = block.n_threads;
    for (u32 i = 0; i < block.n_threads; ++i) {
        const Thread& thread = worker.threads[block.first_thread + i];
        report.waiting[i] = Waiting{thread.site, static_cast<u32>(thread.operation), thread.detail,
                                    static_cast<u32>(thread.has_returned), 0};
        if (thread.operation != Operation::mbarrier_wait) continue;
        const MbarrierModel& barrier = *static_cast<const MbarrierModel*>(thread.operands);
        report.waiting[i].detail = barrier.missing;
        report.waiting[i].bytes = barrier.bytes > 0 ? static_cast<u32>(barrier.bytes) : 0;
    }
    worker.has_failed = true;
}

static void begin_threads(Worker& worker, const Launch& launch, Block& block) {
    for (u32 i = 0; i < block.n_threads; ++i) {
        Thread& thread = worker.threads[block.first_thread + i];
        thread.block = &block;
        thread.number = block.first_thread + i;
        thread.lane = i % WARP;
        thread.warp = &block.warps[i / WARP];
        thread.index = index_in(i, launch.block);
        thread.has_returned = false;
        thread.operation = Operation::nothing;
        thread.copies.clear();
        thread.groups = 0;
        thread.last = nullptr;
        thread.fences = 0;
        thread.mbarrier_fences = 0;
        thread.bulk_copies.clear();
        thread.bulk_groups = 0;
        thread.in_flight.clear();
        start(thread, enter);
        resume(thread);
    }
    for (u32 w = 0; w < block.n_warps; ++w) {
        Warp& warp = block.warps[w];
        warp.number = static_cast<u32>(&warp - worker.warps);
        warp.first = &worker.threads[block.first_thread + w * WARP];
        warp.threads = block.n_threads - w * WARP < WARP ? block.n_threads - w * WARP : WARP;
        warp.arrived = 0;
        // Of absent warps too: an earlier block may have had them, and left its marks.
        for (u32& time : warp.clock) time = worker.shadow.time;
        ++warp.clock[warp.number];
        memcpy(warp.fenced, warp.clock, sizeof warp.fenced);
        warp.fenced[warp.number] = worker.shadow.time;
        warp.product_groups = worker.shadow.time;
        warp.needs_fence = true;
        warp.cluster_phase = 0;
    }
}

// The cluster of blocks from block `first` on.
static void begin_cluster(Worker& worker, const Launch& launch, u64 first) {
    const u32 n_threads = launch.block.x * launch.block.y * launch.block.z;
    const u32 n_warps = (n_threads + WARP - 1) / WARP;
    const u64 room = shared_room(launch);
    worker.n_blocks = launch.cluster;
    worker.n_threads = n_threads * launch.cluster;
    worker.n_warps = n_warps * launch.cluster;
    worker.n_returned = 0;
    worker.shared_bytes = room * (launch.cluster - 1) + launch.shared_bytes;
    worker.ready_first = 0;
    worker.n_ready = 0;
    worker.has_failed = false;
    // Not a number in any float type, so that what nobody wrote is seen in the results even without checks.
    memset(worker.shared, 0xff, worker.shared_bytes);
    if (launch.checks) reset_shadow(worker);
    for (u32 rank = 0; rank < launch.cluster; ++rank) {
        Block& block = worker.blocks[rank];
        block.launch = &launch;
        block.worker = &worker;
        block.hopper = &worker.hopper;
        block.rank = rank;
        block.number = first + rank;
        block.index = index_in(first + rank, launch.grid);
        block.first_thread = rank * n_threads;
        block.n_threads = n_threads;
        block.n_warps = n_warps;
        block.warps = worker.warps + rank * n_warps;
        block.n_returned = 0;
        block.shared = worker.shared + rank * room;
        block.shared_bytes = launch.shared_bytes;
        for (NamedBarrier& barrier : block.barriers) barrier.expected = 0;
    }
    for (u32 rank = 0; rank < launch.cluster; ++rank) begin_threads(worker, launch, worker.blocks[rank]);
    begin_hopper(worker);
    begin_cluster_barrier(worker);
}

// Whether the blocks ended without a fault.
static bool run_cluster(Worker& worker, const Launch& launch, u64 first) {
    begin_cluster(worker, launch, first);
    run_next(&worker.home, worker);
    if (!worker.has_failed && worker.n_returned < worker.n_threads) report_stuck(worker);
    current = nullptr;
    if (launch.counters != nullptr) count_block(worker);
    for (u32 w = 0; w < worker.n_warps; ++w) {
        const u32 time = worker.warps[w].clock[w];
        if (time > worker.shadow.time) worker.shadow.time = time;
    }
    worker.shadow.time = end_hopper(worker);
    return !worker.has_failed;
}

struct Pool {
    std::vector<std::unique_ptr<Worker>> workers;
};

// Where the module that holds an address lies in memory.
struct Extent {
    u64 address;
    u64 base;
    u64 bytes;
};

static int look(dl_phdr_info* info, size_t, void* context) {
    Extent& extent = *static_cast<Extent*>(context);
    u64 end = 0;
    for (u32 i = 0; i < info->dlpi_phnum; ++i) {
        const auto& segment = info->dlpi_phdr[i];
        if (segment.p_type == PT_LOAD && segment.p_vaddr + segment.p_memsz > end) end = segment.p_vaddr + segment.p_memsz;
    }
    if (extent.address - info->dlpi_addr >= end) return 0;
    extent.base = info->dlpi_addr;
    extent.bytes = end;
    return 1;
}

// What the workers of one launch share.
struct Progress {
    std::atomic<u64> next{0};
    std::atomic<u64> limit;  // no block from here on needs to run
    std::mutex lock;
    Report* report;
};

static void work(Worker& worker, const Launch& launch, Progress& progress) {
    const auto report = std::make_unique<Report>();
    worker.report = report.get();
    const u64 bytes = shared_room(launch) * launch.cluster + 2048;
    if (worker.shared_room.size() < bytes) worker.shared_room.resize(bytes);
    const u64 room = reinterpret_cast<u64>(worker.shared_room.data());
    worker.shared = reinterpret_cast<u8*>((room + 1023) & ~u64{1023});
    u64 number = progress.next.fetch_add(launch.cluster);
    bool is_sound = true;
    while (is_sound && number < progress.limit.load()) {
        is_sound = run_cluster(worker, launch, number);
        if (is_sound) number = progress.next.fetch_add(launch.cluster);
    }
    const std::lock_guard<std::mutex> guard(progress.lock);
    if (launch.counters != nullptr) hand_over(worker, *launch.counters);
    if (is_sound || number >= progress.limit.load()) return;
    progress.limit.store(number);
    memcpy(progress.report, report.get(), sizeof(Report));
}

}  // namespace kernwright

using namespace kernwright;

extern "C" {

void* kernwright_pool_new() { return new Pool(); }

void kernwright_pool_free(void* pool) { delete static_cast<Pool*>(pool); }

void kernwright_module_extent(const void* address, u64* base, u64* bytes) {
    Extent extent{reinterpret_cast<u64>(address), 0, 0};
    dl_iterate_phdr(look, &extent);
    *base = extent.base;
    *bytes = extent.bytes;
}

// 0 when every block ended without a fault, 1 with a report, 2 when there is no memory for the stacks.
u32 kernwright_launch(void* pool, const Launch* launch, Report* report) {
    auto& workers = static_cast<Pool*>(pool)->workers;
    const u64 blocks = static_cast<u64>(launch->grid.x) * launch->grid.y * launch->grid.z;
    const u64 wanted = blocks < launch->workers ? blocks : launch->workers;
    while (workers.size() < wanted) {
        workers.push_back(std::make_unique<Worker>());
        if (workers.back()->stacks != nullptr) continue;
        workers.pop_back();
        if (workers.empty()) return 2;
        break;
    }
    Progress progress;
    progress.limit = blocks;
    progress.report = report;
    std::vector<std::thread> hosts;
    for (u64 i = 1; i < wanted && i < workers.size(); ++i) {
        hosts.emplace_back([&, i] { work(*workers[i], *launch, progress); });
    }
    if (blocks > 0) work(*workers[0], *launch, progress);
    for (std::thread& host : hosts) host.join();
    return progress.limit.load() == blocks ? 0 : 1;
}

Index kernwright_thread_index() { return current->index; }
Index kernwright_block_index() { return current->block->index; }
Index kernwright_block_dim() { return current->block->launch->block; }
Index kernwright_grid_dim() { return current->block->launch->grid; }
u8* kernwright_shared_memory() { return current->block->shared; }
}
