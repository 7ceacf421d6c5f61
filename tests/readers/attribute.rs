//! Attributes: the fields of a declaration from Rust tokens.

use crate::damage;
use crate::toml::{documented, words};
use crate::{Outcome, check_message, check_shape, hammer, within_memory};
use kernwright_codegen::tokens;

const SMALL: &str = "#[model(vocab = 257, d_model = 24, layers = 1, norm = layer(eps = 1e-6), positions = learned)]\n\
                     #[attention(heads = 3, head_dim = 8, full)]\n#[feed_forward(gelu, d_ff = 0x20)]\n\
                     #[target(sm_90a, sm_130(like = sm_120a, shared_memory = 131_072))]\n";

/// The attributes before a struct, without the derive.
fn attributes(source: &'static str) -> &'static str {
    let start = source.find("#[model").expect("a model");
    &source[start..source.rfind("pub struct").expect("a struct")]
}

#[test]
fn damaged_attributes_are_told_and_sound_ones_mean_one_shape() {
    let documented = documented("rust").into_iter().filter(|block| block.contains("#[model"));
    let mut seeds: Vec<_> = documented.map(attributes).collect();
    assert!(!seeds.is_empty(), "the documentation has an example");
    seeds.push(SMALL);
    let words = words();
    hammer("attribute", |random| {
        let sound = damage::pick(random, &seeds);
        let source = damage::text(random, sound, &seeds, &words) + "\nstruct Brain;";
        // What is no Rust never reaches the reader.
        let Ok(input) = syn::parse_str(&source) else { return Outcome::Refused };
        let (shape, places) = within_memory(source.len(), || {
            let read = tokens::read(&input);
            (read.declaration.shape(), read.places)
        });
        let n_places = source.len();
        for problem in shape.as_ref().err().into_iter().flatten() {
            let error = places.error(problem);
            check_message(&error.to_string(), &source);
            let range = error.span().byte_range();
            let name = source.len() - "Brain;".len()..source.len() - 1;
            let is_placed = problem.at.is_some() || range == name;
            assert!(
                is_placed && range.end <= source.len() && !range.is_empty(),
                "{range:?} of {problem:?} in {source}"
            );
        }
        check_shape(shape, 0..=n_places, &source)
    });
}

#[test]
fn attributes_that_never_stop_opening_are_refused() {
    let _turn = crate::turn();
    for n in [10, 100, 1000] {
        for (open, close) in [("a(", ")"), ("a = b(", ")"), ("a = [", "]"), ("(", ")"), ("a = 4 * (", ")")] {
            let source = format!("#[model({}{})] struct Brain;", open.repeat(n), close.repeat(n));
            let input = syn::parse_str(&source).expect("it is Rust");
            let problems = tokens::read(&input).declaration.shape().expect_err("it is no model");
            for problem in problems {
                check_message(&problem.message, &source);
            }
        }
    }
}
