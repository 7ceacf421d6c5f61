//! Trials on the emulator: the same road as on a GPU, but for the compiler's report and the meaning of times.

use super::super::bench::Case;
use super::trials::Trials;
use super::tuner::{Search, tune};
use super::units::{Pass, units};
use super::*;
use kernwright_compile::testing;
use kernwright_plan::arch;
use kernwright_plan::dtype::Dtype;
use kernwright_plan::options::Options;
use kernwright_plan::tile::Tile;
use kernwright_plan::tile::attention_backward::QueryBlock;
use kernwright_plan::tuning::Table;
use kernwright_runtime::Cuda;
use kernwright_runtime::driver::Layout;
use kernwright_runtime::emulator::{Emulator, EmulatorDriver, Options as Emulation};
use std::sync::Arc;

/// What is said against most tiles.
const SPILLS: &str = "spills registers, 8 bytes";

/// A GPU that has room for small tiles alone.
fn small() -> Arch {
    Arch { shared_memory: 12 << 10, ..arch::find("sm_80").expect("it is a row").clone() }
}

#[test]
fn tiles_are_enumerated_held_to_the_definition_timed_and_chosen() {
    let what = "tuning on the emulator";
    let Some(compiler) = testing::host_compiler_or_skip(std::env::vars_os(), what) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let options =
        Emulation { compiler, cache: folder.path().join("emulator"), workers: 1, checks: true, debug: false };
    let arch = small();
    let source = arch.clone();
    let emulator = Emulator::new(options).unwrap_or_else(|error| panic!("{error}"));
    let executor = Cuda::new(
        EmulatorDriver::new(emulator, Layout::Separate),
        arch.clone(),
        Box::new(move |spec| render(spec, &source)),
    );
    let mut trials = Trials {
        executor,
        options: Options::default(),
        dtype: Dtype::Fp16,
        repeats: 1,
        odd_length: 37,
        arch: arch.clone(),
        render: Box::new(render),
        rendered: HashMap::new(),
        // But for one tile, all are refused, as if they spilled.
        compile: Box::new(|kernels| {
            let fault: compiling::Judge = Arc::new(|(name, _)| {
                let is_spilling = name.contains("backward_queries") && !name.contains("_q64_k16");
                is_spilling.then(|| SPILLS.to_owned())
            });
            compiling::begin(kernels, 1, &fault)
        }),
        compiling: None,
        names: Vec::new(),
        loaded: Vec::new(),
        held: 0,
        room: 1 << 20,
        spent: Spent::default(),
    };
    let case = Case { batch: 1, heads: 2, kv_heads: 1, length: 50, head_dim: 8, ..Case::CAUSAL };
    let units: Vec<_> = units(&[case], &[Pass::Ordered], &arch)
        .into_iter()
        .filter(|unit| unit.kernel.name == QueryBlock::KERNEL)
        .collect();
    let path = folder.path().join("state.jsonl");
    let mut state = State::open(&path, "the emulator").expect("it is new");
    let search = Search { all: true, stop: &|| false, end: &|| false, tell: &|_, _, _| {} };
    let (findings, is_whole) =
        tune(&units, &mut trials, &mut state, &search).unwrap_or_else(|error| panic!("{error}"));
    assert!(is_whole && findings.len() == 1);
    let known = &findings[0].known;
    let n_timed = known.iter().filter(|(_, fate)| matches!(fate, search::Fate::Timed(_))).count();
    assert!(n_timed == 1 && known.len() > 3, "{known:?}");
    for (_, fate) in known {
        if let search::Fate::Rejected(why) = fate {
            assert_eq!(why, SPILLS);
        }
    }
    let lines = report::lines(&findings).join("\n");
    assert!(lines.contains(&format!("rejected, {} times: spills registers", known.len() - 1)), "{lines}");
    let table = report::table(&findings, Table { arch: "sm_80".to_owned(), ..Table::default() });
    assert_eq!(table.rows.len(), 1);
    let tuned = Arch { tuned: Some(Arc::new(table)), ..arch };
    let found = QueryBlock::of(&findings[0].unit.op(), &tuned).expect("it has a row");
    assert_eq!(found.values(), findings[0].tile);
    let again = State::open(&path, "the emulator").expect("it opens");
    assert_eq!(again.len(), known.len(), "what the compiler refuses is not asked of it again");
}
