//! Kernels with a stage left out, to see what it costs.
//!
//! In: the text of a kernel. Out: the same with some names of the device vocabulary given another meaning: the stage's
//! operands are still computed, but what it does with them is nothing. The results are wrong, so only `bench attention` asks
//! for such a text, and it never outlives the run.

/// A stage of attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Stage {
    /// Products of fragments on the tensor cores
    Mma,
    /// Exponentials, and the search for the greatest score
    Softmax,
    /// Copies of tiles from global memory
    Loads,
}

impl Stage {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Mma => "mma",
            Self::Softmax => "softmax",
            Self::Loads => "loads",
        }
    }

    /// Files of the vocabulary, and what stands behind each from then on. An empty `asm` takes no time, but what it names
    /// must be there. A kernel uses one family of instructions or the other, and so some of the files.
    fn meanings(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Mma => &[
                (
                    "device/mma.cuh",
                    "template <typename T>\n\
                 __device__ __forceinline__ void without_mma(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {\n\
                 \x20   asm volatile(\"\"\n\
                 \x20                : \"+f\"(d[0]), \"+f\"(d[1]), \"+f\"(d[2]), \"+f\"(d[3])\n\
                 \x20                : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"r\"(b[0]), \"r\"(b[1]));\n\
                 }\n\
                 #define mma_m16n8k16 without_mma\n",
                ),
                (
                    "device/wgmma_products.cuh.tera",
                    "template <typename T, auto... MAJORS, int REGISTERS, typename A>\n\
                 __device__ __forceinline__ void without_wgmma(float (&d)[REGISTERS], const A&, u64 b, bool) {\n\
                 \x20   #pragma unroll\n\
                 \x20   for (int i = 0; i < REGISTERS; i += 1) asm volatile(\"\" : \"+f\"(d[i]) : \"l\"(b));\n\
                 }\n\
                 #define wgmma_m64k16 without_wgmma\n",
                ),
            ],
            Self::Softmax => &[
                (
                    "device/math.cuh",
                    "__device__ __forceinline__ float without_exponential(float x) {\n\
                     \x20   asm volatile(\"\" : \"+f\"(x));\n\
                     \x20   return x;\n\
                     }\n\
                     #define exponential_2 without_exponential\n\
                     #define maximum(one, other) (one)\n",
                ),
                ("device/warp.cuh", "#define shuffle_xor(value, lanes) (value)\n"),
            ],
            Self::Loads => &[
                (
                    "device/async.cuh",
                    "template <typename T>\n\
                 __device__ __forceinline__ void without_load(T*, const T*, bool) {}\n\
                 #define cp_async_16_or_zero without_load\n",
                ),
                (
                    // Nothing arrives, so nothing is to be waited for.
                    "device/mbarrier.cuh",
                    "#define mbarrier_expect_bytes_and_arrive(barrier, bytes) mbarrier_arrive(barrier)\n",
                ),
                (
                    "device/tma.cuh",
                    "template <CacheHint HINT = CacheHint::normal, typename... Operands>\n\
                 __device__ __forceinline__ void without_tma(const Operands&...) {}\n\
                 #define tma_load without_tma\n",
                ),
            ],
        }
    }

    /// The text without this stage; a kernel that has no such stage is as it was.
    pub(super) fn left_out_of(self, text: &str) -> String {
        let mut text = text.to_owned();
        for (file, meaning) in self.meanings() {
            let Some(start) = text.find(&format!("\n// --- {file}\n")) else { continue };
            // Its own definitions stay whole: what follows it sees the other meaning.
            let rest = start + 1;
            let end = text[rest..].find("\n// --- ").map_or(text.len(), |at| rest + at + 1);
            text.insert_str(end, &format!("// --- without {}\n{meaning}\n", self.name()));
        }
        text
    }
}

#[cfg(all(test, feature = "render"))]
mod tests {
    use super::*;
    use clap::ValueEnum;
    use kernwright_plan::kernels::of_plan;
    use kernwright_plan::shape::presets;
    use kernwright_plan::tile::attention_backward_hopper::takes_turns;
    use kernwright_plan::{Options, arch, train_step};

    const FUSED: [&str; 4] = ["forward", "backward", "backward_keys", "backward_queries"];

    /// The kernels of attention of a training step on a GPU with Hopper's instructions and on one without, in both forms, by
    /// template.
    fn texts() -> Vec<(&'static str, String)> {
        let shape = presets::find("seed-102m").expect("it is a preset").shape().shallow();
        let fused = FUSED.map(|name| format!("attention/{name}"));
        let mut texts: Vec<(&'static str, String)> = Vec::new();
        for (name, deterministic) in [("sm_90a", true), ("sm_90a", false), ("sm_80", true)] {
            let arch = arch::find(name).expect("it is a row");
            let options = Options { deterministic, in_turns: takes_turns(arch), ..Options::default() };
            let plan = train_step(&shape, &options, 1, 64);
            for spec in
                of_plan(&plan, arch).iter().filter(|spec| fused.iter().any(|name| *name == spec.template))
            {
                let text = kernwright_codegen::render::render(spec, arch).expect("it renders");
                if !texts.iter().any(|(_, known)| *known == text) {
                    texts.push((spec.template, text));
                }
            }
        }
        texts
    }

    #[test]
    fn each_stage_is_left_out_of_every_fused_kernel_behind_the_vocabulary() {
        let texts = texts();
        let count = |wanted: &str| texts.iter().filter(|(template, _)| *template == wanted).count();
        assert_eq!(FUSED.map(|name| count(&format!("attention/{name}"))), [2, 2, 1, 1]);
        for stage in Stage::value_variants() {
            for (template, text) in &texts {
                let without = stage.left_out_of(text);
                let uses = |file: &str| text.contains(&format!("// --- {file}\n"));
                let used: Vec<_> = stage.meanings().iter().filter(|(file, _)| uses(file)).collect();
                assert!(!used.is_empty(), "{template} has no {}", stage.name());
                let is_hopper = text.contains("wgmma.mma_async");
                let of_hopper =
                    used.iter().filter(|(file, _)| file.contains("wgmma") || file.contains("tma.cuh"));
                assert_eq!(
                    of_hopper.count(),
                    usize::from(is_hopper && *stage != Stage::Softmax),
                    "{template}"
                );
                for (file, meaning) in used {
                    let defined = without.find(&format!("// --- {file}\n")).expect("it uses the file");
                    let changed =
                        without.find(meaning).unwrap_or_else(|| panic!("{template}: {}", stage.name()));
                    let kernel = without.find(&format!("// --- ops/{template}")).expect("it has the kernel");
                    assert!(defined < changed && changed < kernel, "{template}: {}", stage.name());
                }
                // The rest is as it was.
                let mut left = without.clone();
                for (_, meaning) in stage.meanings() {
                    left = left.replace(&format!("// --- without {}\n{meaning}\n", stage.name()), "");
                }
                assert_eq!(left, *text, "{template}");
            }
        }
    }

    #[test]
    fn kernels_without_a_stage_compile() {
        use kernwright_compile::{Compiler, Libraries, Places, Source};
        let places = Places::from_variables(std::env::vars_os());
        let compiler = match Compiler::open(&Libraries::find(&places)) {
            Ok(compiler) => compiler,
            Err(error) if std::env::var_os("REQUIRE_NVRTC").is_none() => {
                crate::terminal::note(&format!("skipped: {error}"));
                return;
            }
            Err(error) => panic!("{error}"),
        };
        for stage in Stage::value_variants() {
            for (template, text) in texts() {
                let text = stage.left_out_of(&text);
                let source = Source { name: template, text: &text, arch: "sm_90a", options: &[] };
                if let Err(error) = compiler.compile(&source) {
                    panic!("{template} without {}: {error}", stage.name());
                }
            }
        }
    }
}
