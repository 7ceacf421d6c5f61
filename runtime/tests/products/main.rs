//! Matrix products through cuBLASLt: on a stand-in that offers wrong algorithms beside right ones, and on a GPU.

mod choice;
mod device;
mod gelu;
mod setup;
