//! The kernels of attention on the emulator: held to their definition, and beside each other.

#![cfg(feature = "render")]
#![allow(clippy::print_stderr)]

mod backward;
mod covering;
#[path = "../emulator/device.rs"]
mod device;
mod forms;
mod plans;
mod tables;
