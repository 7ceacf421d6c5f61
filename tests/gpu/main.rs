//! The same on a real GPU: every generated kernel held to the definition of its op, whole models, training to the bit, and
//! the driver itself. Without a GPU one line says what was skipped; REQUIRE_GPU=1 turns that into a failure.

#![cfg(feature = "render")]
#![allow(clippy::print_stderr)]

#[path = "../emulator/cases.rs"]
mod cases;
mod device;
mod devices;
mod driver;
mod failures;
mod hopper;
#[path = "../hopper/matrix_product.rs"]
mod matrix_product;
#[path = "../emulator/models.rs"]
mod models;
mod presets;
mod repeated;
#[path = "../emulator/sweep.rs"]
mod sweep;
#[path = "../emulator/training.rs"]
mod training;
#[path = "../emulator/work.rs"]
mod work;
