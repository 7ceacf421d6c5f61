//! Kernels on the emulator, from a few lines of text.

use kernwright_compile::testing;
use kernwright_runtime::emulator::{Address, Emulator, EmulatorError, KernelId, Options, Word};
use std::path::PathBuf;

/// What the tests leave to each other, and to the next run.
pub(crate) fn cache() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("emulator")
}

/// The usual options, or `None` and a line of what is skipped.
pub(crate) fn options(what: &str) -> Option<Options> {
    let compiler = testing::host_compiler_or_skip(std::env::vars_os(), what)?;
    Some(Options { compiler, cache: cache(), workers: 2, checks: true, debug: false })
}

/// The device vocabulary as the renderer pastes it, in front of a kernel.
pub(crate) fn text(kernel: &str) -> String {
    let mut text = String::new();
    for name in [
        "types",
        "math",
        "vector",
        "warp",
        "block",
        "async",
        "mma",
        "atomics",
        "mbarrier",
        "tma",
        "wgmma",
        "warpgroup",
        "cluster",
    ] {
        let file = kernwright_templates::file(&format!("device/{name}.cuh")).expect("a device file");
        text.push_str(&format!("// --- {}\n", file.path));
        for line in file.text.lines().filter(|line| !line.starts_with("<%")) {
            text.push_str(line);
            text.push('\n');
        }
    }
    text + "// --- kernel\n" + kernel
}

/// Numbers that lie in the device's memory.
pub(crate) trait Number: Copy + PartialEq + std::fmt::Debug {
    /// Their bytes.
    const BYTES: usize;
    fn write(self, to: &mut Vec<u8>);
    fn read(from: &[u8]) -> Self;
}

macro_rules! numbers {
    ($($type:ty)*) => {$(
        impl Number for $type {
            const BYTES: usize = size_of::<$type>();
            fn write(self, to: &mut Vec<u8>) {
                to.extend(self.to_le_bytes());
            }
            fn read(from: &[u8]) -> Self {
                Self::from_le_bytes(from.try_into().expect("as many bytes"))
            }
        }
    )*};
}
numbers!(f32 u32 u16 i32);

/// An emulator with a kernel in it.
pub(crate) struct Bench {
    pub(crate) emulator: Emulator,
    pub(crate) kernel: KernelId,
}

impl Bench {
    /// Loads the kernel `kernel` of a text behind the vocabulary.
    pub(crate) fn new(options: Options, kernel: &str) -> Bench {
        let mut emulator = Emulator::new(options).unwrap_or_else(|error| panic!("{error}"));
        let kernel = emulator.load("kernel", &text(kernel)).unwrap_or_else(|error| panic!("{error}"));
        Bench { emulator, kernel }
    }

    /// A buffer with this content.
    pub(crate) fn input<T: Number>(&mut self, name: &str, content: &[T]) -> Address {
        let mut bytes = Vec::new();
        content.iter().for_each(|number| number.write(&mut bytes));
        let address = self.emulator.allocate(name, bytes.len() as u64).expect("room");
        self.emulator.upload(address, &bytes).expect("inside");
        address
    }

    /// A buffer that nobody wrote.
    pub(crate) fn output<T: Number>(&mut self, name: &str, count: usize) -> Address {
        self.emulator.allocate(name, (count * T::BYTES) as u64).expect("room")
    }

    /// What lies there.
    pub(crate) fn read<T: Number>(&self, at: Address, count: usize) -> Vec<T> {
        let mut bytes = vec![0; count * T::BYTES];
        self.emulator.download(at, &mut bytes).expect("inside");
        bytes.chunks_exact(T::BYTES).map(T::read).collect()
    }

    /// Launches, which must go well.
    pub(crate) fn run(&mut self, grid: [u32; 3], block: u32, shared: u32, arguments: &[Word]) {
        self.try_run(grid, block, shared, arguments).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Launches.
    pub(crate) fn try_run(
        &mut self,
        grid: [u32; 3],
        block: u32,
        shared: u32,
        arguments: &[Word],
    ) -> Result<(), EmulatorError> {
        self.emulator.launch(self.kernel, grid, block, shared, arguments)
    }
}

/// Reproducible numbers below 2^32.
pub(crate) fn random(count: usize, seed: u32) -> Vec<u32> {
    let mut state = u64::from(seed) * 2 + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    };
    (0..count).map(|_| next()).collect()
}
