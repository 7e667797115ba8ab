//! What the contenders and the program that measures them agree on.
//!
//! `make bench` runs everything and writes `target/bench/report.json`. Provider and contenders are
//! shared objects, so that no compiler looks through a call, and all contenders run in one process,
//! in turn, because the machine is never as quiet twice.

pub mod ffi;
pub mod soft;
