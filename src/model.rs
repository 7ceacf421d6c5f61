//! What `#[derive(Transformer)]` gives a struct: data only.

/// A declared model.
pub trait Model {
    /// The struct's name.
    const NAME: &'static str;
    /// Its Shape in the flat text form.
    const SHAPE: &'static str;
    /// The GPUs it declares, in the same form; empty where it declares none.
    const TARGETS: &'static str;
    /// The CUDA of every kernel, for every target.
    const SOURCES: &'static [Source];
    /// The kernels that the package's build script compiled ahead of time; without one, none.
    const CUBINS: &'static [Cubin];
}

/// The text of one generated kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// The GPU it is for: `sm_90a`.
    pub arch: &'static str,
    /// Its name, which is also its entry point's.
    pub kernel: &'static str,
    /// CUDA C++.
    pub text: &'static str,
}

/// One kernel, compiled ahead of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cubin {
    /// The GPU it is for: `sm_90a`.
    pub arch: &'static str,
    /// Its name.
    pub kernel: &'static str,
    /// What the compiler said: registers, spills.
    pub log: &'static str,
    /// An ELF image for `cuModuleLoadData`.
    pub cubin: &'static [u8],
}
