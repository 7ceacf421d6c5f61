// Counts what a kernel's speed depends on and its results do not: trips through shared memory's banks, sectors of global
// memory, matrix products, barriers.
//
// The hardware serves a warp's access at once; here its lanes come one after another. So a warp's accesses are gathered,
// by place and, for each lane, by how often it has been there since the warp last met (at a shuffle, a product, a barrier);
// there they are counted. Lanes that took another number of rounds through a loop are thus grouped as on the GPU.
//
// Shared memory: 32 banks of 4 bytes. Accesses of up to 4 bytes are one trip for the warp, of 8 bytes two, of 16 four, each
// by neighbouring lanes; a trip takes as many wavefronts as the busiest bank has different words. Global memory: sectors of
// 32 bytes, against the fewest that hold as many bytes.
#include "model.h"

#include <algorithm>

namespace kernwright {

// Beyond this, accesses are counted before all lanes have come.
constexpr u32 MOST_GROUPS = 1u << 14;

static CounterRow& row_of(Worker& worker, u64 site, Counted what) {
    for (CounterRow& row : worker.tally.rows) {
        if (row.site == site && row.what == static_cast<u32>(what)) return row;
    }
    worker.tally.rows.push_back(CounterRow{site, static_cast<u32>(what), 0, 0, 0, 0});
    return worker.tally.rows.back();
}

static void add(Worker& worker, u64 site, Counted what, u64 units, u64 least) {
    CounterRow& row = row_of(worker, site, what);
    ++row.requests;
    row.units += units;
    row.least += least;
}

// How many wavefronts the lanes from `first` on take, of `lanes` that go together.
static u32 wavefronts(const AccessGroup& group, u32 first, u32 lanes) {
    u64 words[WARP];
    u32 n_words = 0;
    for (u32 lane = first; lane < first + lanes; ++lane) {
        if (!(group.lanes >> lane & 1)) continue;
        for (u32 byte = 0; byte < group.bytes; byte += 4) words[n_words++] = (group.address[lane] + byte) / 4;
    }
    std::sort(words, words + n_words);
    n_words = static_cast<u32>(std::unique(words, words + n_words) - words);
    u32 busy[32] = {};
    u32 most = 0;
    for (u32 i = 0; i < n_words; ++i) most = std::max(most, ++busy[words[i] % 32]);
    return most;
}

static void count_group(Worker& worker, u64 site, const AccessGroup& group) {
    const u32 any = static_cast<u32>(__builtin_ctz(group.lanes));
    if (group.address[any] - reinterpret_cast<u64>(worker.shared) < worker.shared_bytes) {
        const u32 lanes = group.bytes <= 4 ? 32 : group.bytes == 8 ? 16 : 8;
        u64 trips = 0;
        u64 total = 0;
        for (u32 first = 0; first < WARP; first += lanes) {
            const u32 taken = wavefronts(group, first, lanes);
            total += taken;
            trips += taken > 0;
        }
        add(worker, site, Counted::shared, total, trips);
        return;
    }
    u64 sectors[2 * WARP];
    u32 n_sectors = 0;
    u64 words[WARP];
    u32 n_words = 0;
    for (u32 lane = 0; lane < WARP; ++lane) {
        if (!(group.lanes >> lane & 1)) continue;
        const u64 address = group.address[lane];
        words[n_words++] = address;
        for (u64 at = address / 32; at <= (address + group.bytes - 1) / 32; ++at) {
            if (n_sectors < 2 * WARP) sectors[n_sectors++] = at;
        }
    }
    std::sort(sectors, sectors + n_sectors);
    std::sort(words, words + n_words);
    const u64 found = static_cast<u64>(std::unique(sectors, sectors + n_sectors) - sectors);
    const u64 different = static_cast<u64>(std::unique(words, words + n_words) - words);
    add(worker, site, Counted::global, found, (different * group.bytes + 31) / 32);
}

static void count_warp(Worker& worker, u32 warp) {
    Gathered& gathered = worker.tally.warps[warp];
    for (u32 i = 0; i < gathered.n_sites; ++i) {
        SiteGroups& site = gathered.sites[i];
        for (const AccessGroup& group : site.groups) count_group(worker, site.site, group);
        site.groups.clear();
        memset(site.next, 0, sizeof site.next);
    }
    gathered.n_sites = 0;
    gathered.n_groups = 0;
}

void count_access(Thread& thread, u64 address, u32 bytes, u64 site) {
    if (bytes > 16) return;
    Worker& worker = *thread.worker;
    Gathered& gathered = worker.tally.warps[thread.warp->number];
    u32 at = 0;
    while (at < gathered.n_sites && gathered.sites[at].site != site) ++at;
    if (at == gathered.n_sites) {
        if (++gathered.n_sites > gathered.sites.size()) gathered.sites.emplace_back();
        gathered.sites[at].site = site;
    }
    SiteGroups& groups = gathered.sites[at];
    const u32 number = groups.next[thread.lane]++;
    if (number >= groups.groups.size()) {
        groups.groups.push_back(AccessGroup{0, bytes, {}});
        ++gathered.n_groups;
    }
    AccessGroup& group = groups.groups[number];
    group.lanes |= 1u << thread.lane;
    group.address[thread.lane] = address;
    if (gathered.n_groups > MOST_GROUPS) count_warp(worker, thread.warp->number);
}

// A warp has met: its accesses so far are complete.
void count_meeting(Thread& thread, Operation operation, u64 site) {
    Worker& worker = *thread.worker;
    count_warp(worker, thread.warp->number);
    if (operation == Operation::mma || operation == Operation::wgmma) add(worker, site, Counted::products, 1, 1);
    const bool is_barrier = operation == Operation::barrier || operation == Operation::named_barrier;
    if (is_barrier) add(worker, site, Counted::barriers, 1, 1);
}

void count_block(Worker& worker) {
    for (u32 warp = 0; warp < worker.n_warps; ++warp) count_warp(worker, warp);
}

// Adds a worker's counts to the launch's.
void hand_over(Worker& worker, Counters& counters) {
    for (const CounterRow& row : worker.tally.rows) {
        u64 at = 0;
        while (at < counters.n_rows && (counters.rows[at].site != row.site || counters.rows[at].what != row.what)) ++at;
        if (at == counters.capacity) continue;
        if (at == counters.n_rows) counters.rows[counters.n_rows++] = CounterRow{row.site, row.what, 0, 0, 0, 0};
        counters.rows[at].requests += row.requests;
        counters.rows[at].units += row.units;
        counters.rows[at].least += row.least;
    }
    worker.tally.rows.clear();
}

}  // namespace kernwright
