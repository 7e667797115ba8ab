//! What the contenders of this folder share with those of the benches.

#[path = "../../src/ffi.rs"]
pub mod ffi;
