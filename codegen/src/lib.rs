//! Kernwright's code generator: a declaration goes in, CUDA C++ comes out.
//!
//! In: attributes ([`tokens`]) or TOML ([`toml`]), both read into a [`declaration::Declaration`]. Out: the text of
//! each kernel its Shape needs on each target ([`mod@generate`]), and copies to read under target/ ([`mod@write`]). Must
//! not know what a field or an op means: `kernwright_plan` does.

pub mod build;
pub mod cubins;
pub mod declaration;
pub mod generate;
pub mod print;
pub mod render;
pub mod tables;
pub mod target_dir;
pub mod tokens;
pub mod toml;
pub mod write;
