//! Wherever a struct may stand, whatever it is called and whoever writes it: it is a model all the same.

use std::fmt::Debug;

macro_rules! declare {
    ($(#[$attribute:meta])* $visibility:vis struct $name:ident $($rest:tt)*) => {
        $(#[$attribute])*
        #[derive(Transformer)]
        #[model(vocab = 256, d_model = 32, layers = 1)]
        #[attention(heads = 2)]
        #[feed_forward(gelu, d_ff = 64)]
        #[target(sm_80)]
        $visibility struct $name $($rest)*
    };
}

declare! {
    /// Documented, with other derives before ours.
    #[derive(Clone, Copy, Debug, Default, PartialEq)]
    pub(crate) struct Tuple(pub u8, ());
}
declare! { struct Braced { #[allow(dead_code)] value: Vec<u8> } }
declare! { struct Bounded where u8: Copy; }
declare! { #[allow(non_camel_case_types)] struct r#type; }
declare! { struct Мозг; }

mod one {
    declare! { pub struct Twin; }
    use crate::Transformer;
}

mod two {
    #[derive(crate::Transformer)]
    #[model(vocab = 256, d_model = 64, layers = 2)]
    #[attention(heads = 2)]
    #[feed_forward(gelu, d_ff = 64)]
    #[target(sm_80)]
    pub struct Twin;
}

// Names of the derive's own output do not get in its way.
mod names {
    #![allow(dead_code)]
    use crate::Transformer;
    declare! { pub struct Model; }
    declare! { pub struct Source; }
    const TEXTS: u8 = 0;
}

#[cfg(any())]
#[derive(Transformer)]
#[model(nonsense)]
struct Gated;

#[cfg(all())]
declare! { struct Gated; }

#[cfg_attr(all(), derive(Transformer), model(vocab = 256, d_model = 32, layers = 1))]
#[cfg_attr(any(), model(nonsense))]
#[cfg_attr(all(), attention(heads = 2), feed_forward(gelu, d_ff = 64), target(sm_80))]
#[cfg_attr(any(), derive(Nonsense))]
struct Conditional;

fn within() -> &'static str {
    #[derive(Transformer)]
    #[model(vocab = 256, d_model = 96, layers = 3)]
    #[attention(heads = 2, head_dim = 48)]
    #[feed_forward(gelu, d_ff = 64)]
    #[target(sm_80)]
    struct Brain;
    Brain::SHAPE
}

fn name<M: Model>() -> &'static str {
    assert!(!M::SOURCES.is_empty());
    M::NAME
}

fn is_debug(_: impl Debug) {}

fn main() {
    is_debug(Tuple::default());
    let names = [
        name::<Tuple>(),
        name::<Braced>(),
        name::<Bounded>(),
        name::<r#type>(),
        name::<Мозг>(),
        name::<Gated>(),
        name::<Conditional>(),
        name::<names::Model>(),
        name::<names::Source>(),
    ];
    let wanted = ["Tuple", "Braced", "Bounded", "type", "Мозг", "Gated", "Conditional", "Model", "Source"];
    assert_eq!(names, wanted);
    assert_eq!(name::<one::Twin>(), name::<two::Twin>());
    assert_ne!(one::Twin::SHAPE, two::Twin::SHAPE);
    assert!(within().contains("model.layers = 3"));
}

extern crate self as kernwright;
#[path = "../support/facade.rs"]
mod facade;
#[allow(unused_imports)]
pub use facade::{Cubin, Model, Source, Transformer};
