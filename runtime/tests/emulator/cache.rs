//! Compiled kernels on disk, and the compiler's refusals.

use super::setup::{options, text};
use kernwright_compile::testing::Scratch;
use kernwright_compile::{HostCompiler, Places};
use kernwright_runtime::emulator::{Emulator, Options, Word};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

const KERNEL: &str = "extern \"C\" __global__ void kernel(u32* out) { out[threadIdx.x] = 7; }";

fn run(options: Options) {
    let mut emulator = Emulator::new(options).unwrap_or_else(|error| panic!("{error}"));
    let kernel = emulator.load("kernel", &text(KERNEL)).unwrap_or_else(|error| panic!("{error}"));
    let out = emulator.allocate("out", 128).expect("room");
    emulator
        .launch(kernel, [1, 1, 1], 32, 0, &[Word::Address(out)])
        .unwrap_or_else(|error| panic!("{error}"));
    let mut bytes = [0; 128];
    emulator.download(out, &mut bytes).expect("inside");
    assert!(bytes.chunks_exact(4).all(|word| word == [7, 0, 0, 0]));
}

fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let below = folder.read_dir().expect("a folder").flatten().map(|entry| entry.path());
    let all =
        below.flat_map(|folder| folder.read_dir().expect("a folder").flatten().map(|entry| entry.path()));
    all.filter(|path| path.to_string_lossy().ends_with(ending)).collect()
}

#[test]
fn many_start_at_once_and_damage_is_repaired() {
    let Some(options) = options("the cache") else { return };
    let scratch = Scratch::new("emulator-cache");
    let options = Options { cache: scratch.path().join("deep/folder"), ..options };
    thread::scope(|scope| {
        for _ in 0..4 {
            let options = options.clone();
            scope.spawn(move || run(options));
        }
    });
    let built = files(&options.cache, ".so");
    assert_eq!(built.len(), 2, "the library and the kernel: {built:?}");
    assert!(files(&options.cache, "").iter().all(|path| !path.to_string_lossy().contains(".writing-")));
    let times = || -> Vec<_> {
        built.iter().map(|path| path.metadata().and_then(|data| data.modified()).expect("a time")).collect()
    };
    let before = times();
    run(options.clone());
    assert_eq!(times(), before, "nothing is compiled twice");
    for path in &built {
        let whole = fs::read(path).expect("a file");
        let flipped = [&whole[..900], &[!whole[900]], &whole[901..]].concat();
        // The library takes longer: once is enough.
        let is_library = path.to_string_lossy().contains("libkernwright");
        let damages: &[&[u8]] = &[&flipped, &whole[..whole.len() / 2], b""];
        for damaged in &damages[..if is_library { 1 } else { 3 }] {
            // Under another name first: the old one may still be loaded.
            let other = path.with_extension("damaged");
            fs::write(&other, damaged).and_then(|()| fs::rename(&other, path)).expect("written");
            run(options.clone());
            assert_eq!(fs::read(path).expect("a file").len(), whole.len(), "made again");
        }
    }
}

#[test]
fn many_kernels_are_compiled_together_and_each_is_its_own() {
    let Some(options) = options("compiling many kernels") else { return };
    let mut emulator = Emulator::new(options).unwrap_or_else(|error| panic!("{error}"));
    let names: Vec<String> = (0..6).map(|i| format!("write_{i}")).collect();
    let kernel = |name: &String| text(&KERNEL.replace("kernel", name).replace('7', &name[6..]));
    let texts: Vec<String> = names.iter().map(kernel).collect();
    let both: Vec<(&str, &str)> = names.iter().zip(&texts).map(|(name, text)| (&**name, &**text)).collect();
    let kernels = emulator.load_all(&both).unwrap_or_else(|error| panic!("{error}"));
    let out = emulator.allocate("out", 128).expect("room");
    for (number, &kernel) in (0u8..).zip(&kernels) {
        emulator
            .launch(kernel, [1, 1, 1], 32, 0, &[Word::Address(out)])
            .unwrap_or_else(|error| panic!("{error}"));
        let mut bytes = [0; 4];
        emulator.download(out, &mut bytes).expect("inside");
        assert_eq!(bytes, [number, 0, 0, 0]);
    }
    assert_eq!(emulator.load(&names[2], &texts[2]).expect("known"), kernels[2], "one text is one kernel");
}

#[test]
fn refusals_say_what_the_compiler_says() {
    let Some(options) = options("refusals") else { return };
    let mut emulator = Emulator::new(options.clone()).unwrap_or_else(|error| panic!("{error}"));
    let mut said =
        |name: &str, kernel: &str| emulator.load(name, &text(kernel)).expect_err("refused").to_string();
    let error = said("kernel", &KERNEL.replace("threadIdx.x", "threadIdx.w"));
    assert!(
        error.starts_with("`kernel` does not compile for the emulator:\n") && error.contains("'w'"),
        "{error}"
    );
    let unknown =
        KERNEL.replace("{ out", "{ mystery(); out").replace("extern", "extern \"C\" void mystery();\nextern");
    assert!(
        said("kernel", &unknown).contains("mystery"),
        "unknown functions are told before anything is launched"
    );
    let large = KERNEL.replace("{ out", "{ volatile float room[40000]; room[threadIdx.x] = 1; out");
    assert!(said("kernel", &large).contains("frame size"), "a frame that no stack holds");
    assert_eq!(said("a b", KERNEL), "a kernel's name must consist of letters, digits and `_`, found `a b`");

    let absent = Places::from_variables([("CXX", "no-such-compiler"), ("PATH", "/usr/bin")]);
    assert_eq!(
        HostCompiler::find(&absent).expect_err("absent").to_string(),
        "no host C++ compiler: `no-such-compiler` is not on `PATH`; install g++ (`apt-get install g++`) or set `CXX`; \
         needed only for the emulator"
    );
    // One that came and went.
    let compiler = HostCompiler { program: "/no/such/compiler".into(), ..options.compiler.clone() };
    let error = Emulator::new(Options { compiler, ..options }).expect_err("gone").to_string();
    assert_eq!(error, "the host C++ compiler `/no/such/compiler` cannot be started");
}
