//! Clusters: blocks that read and write each other's shared memory, and what is caught of it.

use super::setup::{Bench, options, random};
use kernwright_runtime::emulator::Word;

/// Two blocks exchange their values, reversed, there and back.
const EXCHANGE: &str = "#line 1 \"exchange.cu\"
extern \"C\" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(128, 1) kernel(u32* out, const u32* in) {
    Mbarrier* const heard = reinterpret_cast<Mbarrier*>(shared_memory());
    u32* const room = reinterpret_cast<u32*>(shared_memory() + 128);
    const u32 other = cluster_rank() ^ 1;
    const u32 i = threadIdx.x;
    if (i == 0) {
        mbarrier_init(heard, 128);
        fence_mbarrier_init();
    }
    store_16(room + 4 * i, load_16(in + 512 * blockIdx.x + 4 * i));
    cluster_barrier();
    const Words4 theirs = cluster_load_16(cluster_address(room + 4 * (127 - i), other));
    cluster_store_16(cluster_address(room + 512 + 4 * i, other), theirs);
    cluster_mbarrier_arrive(cluster_address(heard, other));
    cluster_mbarrier_wait(heard, 0);
    store_16(out + 512 * blockIdx.x + 4 * i, load_16(room + 512 + 4 * (127 - i)));
}";

#[test]
fn blocks_of_a_cluster_exchange_what_their_shared_memory_holds() {
    let Some(options) = options("clusters") else { return };
    let values = random(6 * 512, 7);
    let mut bench = Bench::new(options, EXCHANGE);
    let (input, out) = (bench.input("in", &values), bench.output::<u32>("out", values.len()));
    let arguments = [Word::Address(out), Word::Address(input)];
    bench.run([6, 1, 1], 128, 128 + 4096, &arguments);
    assert_eq!(bench.read::<u32>(out, values.len()), values);
    for (grid, block, said) in [
        ([5, 1, 1], 128, "`kernel`: the grid's x must be a multiple of its clusters' 2 blocks, found `5`"),
        (
            [6, 1, 1],
            640,
            "`kernel`: the threads of a cluster must be whole warpgroups, 8 blocks and 1024 threads at most, found `1280`",
        ),
    ] {
        let error = bench.try_run(grid, block, 4224, &arguments).expect_err("refused").to_string();
        assert_eq!(error, said);
    }
}

#[test]
fn what_is_wrong_between_blocks_is_caught_with_its_exact_message() {
    let Some(options) = options("faults of clusters") else { return };
    let faults = [
        (
            "    cluster_barrier();",
            "    barrier();",
            "thread (127, 0, 0) of block (0, 0, 0), line 12 (`cluster_load_16`): reads 16 bytes at shared memory of block 1 of \
             its cluster + 128, where nobody has written byte 0 yet: fill it, and pass a barrier before it is read",
        ),
        (
            "    cluster_mbarrier_wait(heard, 0);",
            "",
            "thread (30, 0, 0) of block (0, 0, 0), line 16 (`load_16`): reads 16 bytes at shared memory + 3728, where nobody \
             has written byte 0 yet: fill it, and pass a barrier before it is read",
        ),
        (
            "(heard, other)",
            "(heard, other + 1)",
            "thread (30, 0, 0) of block (0, 0, 0), line 14 (`cluster_address`): asks for block 2 of a cluster of 2",
        ),
        (
            "    cluster_barrier();",
            "    cluster_barrier(); if (other == 0) return; barrier();",
            "thread (0, 0, 0) of block (0, 0, 0), line 12 (`cluster_load_16`): reaches into the shared memory of block 1 of \
             its cluster, which has ended: pass a `cluster_barrier` before blocks return",
        ),
    ];
    let mut found = String::new();
    for (old, new, said) in faults {
        assert!(EXCHANGE.contains(old), "{old}");
        let mut bench = Bench::new(options.clone(), &EXCHANGE.replace(old, new));
        let (input, out) = (bench.input("in", &[7u32; 1024]), bench.output::<u32>("out", 1024));
        let result = bench.try_run([2, 1, 1], 128, 4224, &[Word::Address(out), Word::Address(input)]);
        let error = result.err().map_or_else(|| "well".to_owned(), |error| error.to_string());
        if error != format!("`kernel`: {said}") {
            found += &format!("{new}:\n{error}\n");
        }
    }
    assert!(found.is_empty(), "\n{found}");
}
