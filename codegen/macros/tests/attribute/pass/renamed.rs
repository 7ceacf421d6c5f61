//! The facade under another name, and behind somebody else's: `crate = ...` says where it is.

#[derive(kw::Transformer)]
#[model(crate = kw, vocab = 256, d_model = 32, layers = 1)]
#[attention(heads = 2)]
#[feed_forward(gelu, d_ff = 64)]
#[target(sm_80)]
struct Renamed;

mod my_facade {
    pub(crate) use crate::facade as kernwright;
}

#[derive(my_facade::kernwright::Transformer)]
#[model(vocab = 256, d_model = 32, layers = 1, crate = crate::my_facade::kernwright)]
#[attention(heads = 2)]
#[feed_forward(gelu, d_ff = 64)]
#[target(sm_80)]
struct Behind;

macro_rules! declare {
    ($name:ident) => {
        #[derive($crate::my_facade::kernwright::Transformer)]
        #[model(vocab = 256, d_model = 32, layers = 1, crate = $crate::my_facade::kernwright)]
        #[attention(heads = 2)]
        #[feed_forward(gelu, d_ff = 64)]
        #[target(sm_80)]
        struct $name;
    };
}

mod deep {
    declare!(Expanded);

    pub fn name() -> &'static str {
        use crate::my_facade::kernwright::Model as _;
        Expanded::NAME
    }
}

fn main() {
    assert_eq!(<Renamed as kw::Model>::NAME, "Renamed");
    assert_eq!(<Behind as my_facade::kernwright::Model>::NAME, "Behind");
    assert_eq!(deep::name(), "Expanded");
}

extern crate self as kw;
#[path = "../support/facade.rs"]
mod facade;
#[allow(unused_imports)]
pub use facade::{Cubin, Model, Source, Transformer};
