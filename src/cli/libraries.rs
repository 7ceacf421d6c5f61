//! Finding NVIDIA's libraries as every command and the build script do it.

pub(super) use kernwright_compile::usable_libraries as find;
