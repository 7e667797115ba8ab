//! Preallocated RDMA work requests and completion bookkeeping.
//!
//! `no_std`, no allocation; the hot path makes no system call of its own, takes no lock and has no
//! panic.
#![no_std]
#![warn(clippy::std_instead_of_core, clippy::alloc_instead_of_core)]
#![deny(unsafe_code)]

pub mod abi;
pub use abi::{Access, LKey, QpNum, RKey, WcStatus};

#[expect(unsafe_code, reason = "registered memory is addresses and promises")]
mod region;
pub use region::{Domain, OutOfRegion, Region, Registration, RemoteRegion, SharedRegion, Slice};

#[expect(unsafe_code, reason = "the buffer traits are promises to a device")]
mod context;
pub use context::{RecvBuffers, SendBuffers, SliceList};

#[expect(unsafe_code, reason = "a port's promises free buffers")]
pub mod port;

#[expect(unsafe_code, reason = "copies to and from memory that a peer may touch")]
mod shared_bytes;

#[expect(unsafe_code, reason = "hands the content of a static out once")]
mod sync;
pub use sync::Place;
