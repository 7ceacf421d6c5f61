//! Real compilations. Without NVRTC they are skipped in one line; REQUIRE_NVRTC=1 turns that into a failure.

use std::collections::HashSet;
use std::fs;
use std::sync::Mutex;
use std::thread;

use kernwright_compile::testing::{self, Scratch};
use kernwright_compile::{Cache, Compiled, Compiler, Error, Report, Resources, Source, compile_all};

const ARCHS: [&str; 5] = ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_120a"];

/// Uses static and dynamic shared memory and one barrier.
const SUM: &str = r#"
extern __shared__ float dynamic[];
extern "C" __global__ void sum(float* out, const float* in) {
    __shared__ float part[96];
    part[threadIdx.x % 96] = in[threadIdx.x] + dynamic[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = part[(threadIdx.x + 1) % 96];
}
"#;

/// More live values than the registers that a block of 1024 threads leaves for each.
const SPILL: &str = r#"
extern "C" __global__ void __launch_bounds__(1024, 1) spill(float* out, const float* in) {
    float values[160];
#pragma unroll
    for (int i = 0; i < 160; ++i) values[i] = in[i * 1024 + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 160; ++i) out[i * 1024 + threadIdx.x] = values[159 - i] * values[i];
}
"#;

/// Wgmma whose accumulator is touched while it is in flight, which ptxas answers with C7509 or a sibling.
const SERIAL: &str = r#"
extern "C" __global__ void serial(float* out, unsigned long long a, unsigned long long b) {
    float d[4] = {1, 2, 3, 4};
    asm volatile("wgmma.fence.sync.aligned;");
    for (int i = 0; i < 3; ++i) {
        asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
        d[0] *= 2.0f;
    }
    asm volatile("wgmma.commit_group.sync.aligned;");
    asm volatile("wgmma.wait_group.sync.aligned 0;");
    out[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}
"#;

fn compiler(what: &str) -> Option<Compiler> {
    testing::compiler_or_skip(std::env::vars_os(), what)
}

fn source<'a>(name: &'a str, text: &'a str, arch: &'a str) -> Source<'a> {
    Source { name, text, arch, options: &[] }
}

fn compile(compiler: &Compiler, source: Source<'_>) -> Compiled {
    compiler.compile(&source).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_gpu_family_gets_a_cubin_with_its_resources() {
    let Some(compiler) = compiler("compiling for every family") else { return };
    for arch in ARCHS {
        let compiled = compile(&compiler, source("sum", SUM, arch));
        assert!(compiled.cubin.starts_with(b"\x7fELF"), "{arch}");
        let [sum] = &compiled.resources[..] else { panic!("{arch}: {}", compiled.log) };
        assert_eq!(sum.entry, "sum", "{arch}");
        assert!((4..=64).contains(&sum.registers), "{arch}: {sum:?}");
        assert!((384..2048).contains(&sum.static_shared_bytes), "{arch}: {sum:?}");
        assert_eq!((sum.barriers, sum.stack_bytes, sum.spills()), (1, 0, false), "{arch}: {}", compiled.log);
        assert_eq!(compiled.notes, [] as [&str; 0], "{arch}");
    }
}

#[test]
fn a_kernel_that_spills_is_reported_and_noted() {
    let Some(compiler) = compiler("a kernel that spills") else { return };
    for arch in ARCHS {
        let compiled = compile(&compiler, source("spill", SPILL, arch));
        let [spill] = &compiled.resources[..] else { panic!("{arch}: {}", compiled.log) };
        assert!(spill.spills() && spill.registers <= 64, "{arch}: {}", compiled.log);
        assert!(spill.stack_bytes > 0, "{arch}: {}", compiled.log);
        assert!(compiled.notes.iter().any(|note| note.contains("spill")), "{arch}: {}", compiled.log);
    }
}

#[test]
fn serialised_wgmma_is_noted() {
    let Some(compiler) = compiler("serialised wgmma") else { return };
    let compiled = compile(&compiler, source("serial", SERIAL, "sm_90a"));
    assert!(compiled.notes.iter().any(|note| note.contains("wgmma")), "{}", compiled.log);
    // Without the suffix there is no wgmma at all, and ptxas says so.
    let error = compiler.compile(&source("serial", SERIAL, "sm_90")).expect_err("sm_90 has no wgmma");
    assert!(matches!(&error, Error::Rejected { log, .. } if log.contains("wgmma")), "{error}");
}

#[test]
fn each_entry_of_a_text_has_its_own_resources() {
    let Some(compiler) = compiler("two entries in one text") else { return };
    let compiled = compile(&compiler, source("both", &format!("{SUM}{SPILL}"), "sm_86"));
    let of = |name: &str| -> &Resources {
        compiled
            .resources
            .iter()
            .find(|found| found.entry == name)
            .unwrap_or_else(|| panic!("{}", compiled.log))
    };
    assert!(!of("sum").spills() && of("spill").spills(), "{}", compiled.log);
    assert!(of("sum").static_shared_bytes > 0 && of("spill").static_shared_bytes == 0, "{}", compiled.log);
}

#[test]
fn options_reach_the_compiler() {
    let Some(compiler) = compiler("extra options") else { return };
    let text = r#"extern "C" __global__ void k(float* x) { x[threadIdx.x] = 3.0f / x[threadIdx.x]; }"#;
    let plain = compile(&compiler, source("k", text, "sm_86"));
    let fast = compile(&compiler, Source { options: &["--use_fast_math"], ..source("k", text, "sm_86") });
    assert_ne!(plain.cubin, fast.cubin);
    let error = compiler.compile(&Source { options: &["--no-such-option"], ..source("k", text, "sm_86") });
    assert!(matches!(&error, Err(Error::Nvrtc { log, .. }) if log.contains("no-such-option")), "{error:?}");
}

#[test]
fn the_same_text_gives_the_same_bytes() {
    let Some(compiler) = compiler("equal bytes") else { return };
    let cubins: HashSet<Vec<u8>> =
        (0..3).map(|_| compile(&compiler, source("spill", SPILL, "sm_90a")).cubin).collect();
    assert_eq!(cubins.len(), 1);
}

#[test]
fn errors_name_the_kernel_and_the_line() {
    let Some(compiler) = compiler("errors of the compiler") else { return };
    let error = compiler.compile(&source("broken", "\n\nint x = ;\n", "sm_86")).expect_err("no expression");
    assert!(
        error.to_string().starts_with("`broken` does not compile for `sm_86`:\nbroken.cu(3): error"),
        "{error}"
    );
    for arch in ["sm_13", "sm_", "compute_86", "86", "sm_90x"] {
        let error = compiler.compile(&source("sum", SUM, arch)).expect_err("no such architecture");
        assert!(matches!(error, Error::Arch { .. }) && error.to_string().contains("`sm_86`"), "{error}");
    }
    let error = compiler.compile(&source("sum", "int x;\0", "sm_86")).expect_err("a NUL byte");
    assert_eq!(error, Error::Nul { kernel: "sum".to_owned() });
}

#[test]
fn kernels_are_compiled_once_and_then_read() {
    let Some(compiler) = compiler("the cache of cubins") else { return };
    let scratch = Scratch::new("compile-all");
    let cache = Cache::open(scratch.path());
    let sources: Vec<Source<'_>> = ARCHS
        .iter()
        .flat_map(|arch| {
            [source("sum", SUM, arch), source("broken", "int x = ;", arch), source("spill", SPILL, arch)]
        })
        .collect();
    let run = |cache: Option<&Cache>| -> Vec<Report> {
        let counts = Mutex::new(Vec::new());
        let reports = compile_all(&compiler, cache, &sources, 2, &|progress| {
            assert_eq!(progress.n_total, sources.len());
            counts.lock().expect("no panic inside").push(progress.n_done);
        });
        let mut counts = counts.into_inner().expect("no panic inside");
        counts.sort_unstable();
        assert!(counts.into_iter().eq(1..=sources.len()));
        reports
    };
    let (without, first, second) = (run(None), run(Some(&cache)), run(Some(&cache)));
    for (index, source) in sources.iter().enumerate() {
        let (without, first, second) = (&without[index], &first[index], &second[index]);
        assert_eq!((second.name.as_str(), second.arch.as_str()), (source.name, source.arch));
        assert!(!without.cached && !first.cached, "{first:?}");
        assert_eq!(second.cached, source.name != "broken", "{second:?}");
        assert_eq!((&without.result, &first.result), (&second.result, &second.result));
        assert_eq!((&first.resources, &first.notes), (&second.resources, &second.notes));
        assert_eq!(second.cubin_bytes, second.result.as_ref().map_or(0, Vec::len));
    }
    assert_eq!(cache.note(), None);
    for entry in fs::read_dir(scratch.path()).expect("scratch").flatten() {
        let bytes = fs::read(entry.path()).expect("an entry");
        fs::write(entry.path(), &bytes[..bytes.len() / 2]).expect("scratch");
    }
    let third = run(Some(&cache));
    assert!(third.iter().all(|report| !report.cached), "damaged entries are compiled again");
    assert!(third.iter().zip(&first).all(|(a, b)| a.result == b.result));
}

#[test]
fn many_starts_at_once_are_harmless() {
    let Some(compiler) = compiler("many starts at once") else { return };
    let scratch = Scratch::new("compile-starts");
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let cache = Cache::open(scratch.path());
                let sources = [source("sum", SUM, "sm_86"), source("spill", SPILL, "sm_86")];
                let reports = compile_all(&compiler, Some(&cache), &sources, 2, &|_| {});
                assert!(reports.iter().all(|report| report.result.is_ok()));
                assert_eq!(cache.note(), None);
            });
        }
    });
    assert_eq!(fs::read_dir(scratch.path()).expect("scratch").count(), 2);
}

#[test]
fn an_unusable_cache_still_compiles() {
    let Some(compiler) = compiler("an unusable cache") else { return };
    let scratch = Scratch::new("compile-unusable");
    let cache = Cache::open(scratch.touch("file").join("cache"));
    let reports = compile_all(&compiler, Some(&cache), &[source("sum", SUM, "sm_86")], 0, &|_| {});
    assert!(reports[0].result.is_ok() && !reports[0].cached && cache.note().is_some());
}
