//! TOML: the fields of a declaration from text.

use crate::damage;
use crate::{Outcome, check_problems, check_shape, hammer, within_memory};
use kernwright_plan::arch::custom::LIMITS;
use kernwright_plan::gpu;
use kernwright_plan::shape::{FIELDS, PLANNED, SECTIONS};

/// The rows of `docs/attribute.md` between fences of this language.
pub(crate) fn documented(language: &str) -> Vec<&'static str> {
    let blocks = include_str!("../../docs/attribute.md").split("\n```");
    blocks.filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n')).collect()
}

/// Names and words that a reader knows.
pub(crate) fn words() -> Vec<String> {
    let paths =
        FIELDS.iter().map(|row| row.path).chain(PLANNED.iter().copied()).chain(SECTIONS.iter().copied());
    let words = paths.flat_map(|path| path.split(['.', '=', ' '])).filter(|word| !word.is_empty());
    let values = [
        "rms", "layer", "learned", "qkv", "all", "none", "bf16", "fp32", "swiglu", "gelu", "sm_90", "sm_130",
    ];
    words.chain(values).chain(LIMITS.iter().map(|limit| limit.name)).map(str::to_owned).collect()
}

const SMALL: &str = "target = [\"sm_80\"]\n[model]\nvocab = 257\nd_model = 24\nlayers = 1\nnorm = { is = \"layer\", eps = 1e-6 }\npositions = \"learned\"\n\
                     [attention]\nheads = 3\nhead_dim = 8\nfull = true\n[feed_forward]\ngelu = true\nd_ff = 0x20\n";

#[test]
fn damaged_toml_is_told_and_sound_toml_means_one_shape() {
    let mut seeds = documented("toml");
    assert!(!seeds.is_empty(), "the documentation has an example");
    seeds.push(SMALL);
    let words = words();
    hammer("toml", |random| {
        let sound = damage::pick(random, &seeds);
        let text = damage::text(random, sound, &seeds, &words);
        let read = within_memory(text.len(), || kernwright_codegen::toml::read("Brain", &text).shape());
        check_shape(read, 0..=text.len(), &text)
    });
}

const GPU: &str = "name = \"sm_130\"\nlike = \"sm_120a\"\nshared_memory = 131_072\n[card]\nname = \"RTX 6090\"\nmultiprocessors = 200\n\
                   tensor_flops = 4e14\nfp32_flops = 150e12\nbandwidth = 2.5e12\nmemory = 34_359_738_368\n";

#[test]
fn a_damaged_gpu_file_is_told_and_a_sound_one_is_a_gpu() {
    let words = words();
    hammer("gpu", |random| {
        let text = damage::text(random, GPU, &[GPU, SMALL], &words);
        match within_memory(text.len(), || kernwright_codegen::toml::read("", &text).read(gpu::read)) {
            Ok(gpu) => {
                let numbers = [gpu.card.tensor_flops, gpu.card.fp32_flops, gpu.card.bandwidth];
                assert!(
                    numbers.iter().all(|number| number.is_finite() && *number > 0.0),
                    "{gpu:?} of {text}"
                );
                assert!(gpu.arch.shared_memory > 0, "{gpu:?} of {text}");
                Outcome::Accepted
            }
            Err(problems) => check_problems(&problems, 0..=text.len(), &text),
        }
    });
}

#[test]
fn toml_that_never_stops_opening_is_refused() {
    let _turn = crate::turn();
    for piece in ["[", "{ a = ", "a.", "[a.", "[["] {
        for n in [100, 10_000] {
            for line in [format!("model = {}", piece.repeat(n)), format!("{}b = 1", piece.repeat(n))] {
                let problems =
                    kernwright_codegen::toml::read("Brain", &line).shape().expect_err("it is no model");
                for problem in problems {
                    crate::check_message(&problem.message, &line);
                }
            }
        }
    }
}
