//! Every generated kernel, run on the emulator and held to the definition of its op.

#![cfg(feature = "render")]
#![allow(clippy::print_stderr)]

mod cases;
mod device;
mod devices;
mod layouts;
mod models;
mod sweep;
mod switches;
mod training;
mod update;
mod work;
