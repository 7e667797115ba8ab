//! RDMA for Rust: librdmacm connections, registered memory and ports on top of
//! [`nanoverbs_core`].
//!
//! From bottom to top: [`memory`] (pages, and their registration), `Device`, `ProtectionDomain`,
//! `CompletionQueue`, `QueuePair` (what C keeps behind pointers, here with owners), `port` (the way
//! from the core's queues to a queue pair), `cm` (who talks to whom), [`endpoint`] (all of them behind
//! one front door), [`poller`] (a thread of its own for it).
//!
//! [`guide`] has a short program for each task, [`coverage`] what covers each C function.
//!
//! Children hold their parents: a queue pair is destroyed before its completion queues, these and
//! the regions before their domain, the domain before the device, in whatever order a program
//! drops its handles. No drop panics, and none waits for anything but the device's answer.
//!
//! # Features
//!
//! * `verbs` (default): librdmacm and libibverbs through rdma-sys, whose binding is made at build time
//!   of the headers that are installed, with libclang 14 or 15.
//! * `declared`: the same through declarations of this crate's own. A build needs neither headers nor
//!   libclang, only the libraries when a program is linked. With both, rdma-sys is used, and the
//!   compiler compares its structures and numbers with the declared ones.
//! * `static`: `declared`, with librdmacm, libibverbs and the providers inside the program. With
//!   `-C target-feature=+crt-static` the program is one file that needs nothing at run time but the
//!   kernel. `RDMA_STATIC_PROVIDERS=mlx5,rxe` in the environment of the build chooses the providers;
//!   without it all that rdma-core has go in. For glibc; and glibc's resolver opens libraries, so that
//!   `cm` resolves host names only where those of the same glibc are, and addresses everywhere.
//! * `tracing` (default): connections and devices speak through the crate of that name.
//!
//! With neither `verbs` nor `declared` the crate needs no C library: pages, pollers and endpoints on
//! the soft device remain.
#![deny(unsafe_code)]

#[cfg(feature = "librdmacm")]
mod trace;

pub use nanoverbs_core;

mod deadline;
pub use deadline::Deadline;

mod step;

mod cores;
pub use cores::Cores;

#[expect(unsafe_code, reason = "the door to C")]
mod sys;
pub use sys::CallError;

#[expect(unsafe_code, reason = "maps pages and registers them")]
pub mod memory;

#[cfg(feature = "librdmacm")]
#[expect(unsafe_code, reason = "owns a device's handle")]
mod device;
#[cfg(feature = "librdmacm")]
pub use device::{Atomics, Device, Limits, OpenError, WrongProcess, devices};

#[cfg(feature = "librdmacm")]
#[expect(unsafe_code, reason = "moves what an event ended to the error state")]
pub mod event;

#[cfg(feature = "librdmacm")]
#[expect(unsafe_code, reason = "owns a protection domain's handle")]
mod domain;
#[cfg(feature = "librdmacm")]
pub use domain::{DomainError, ProtectionDomain};

#[cfg(feature = "librdmacm")]
#[expect(unsafe_code, reason = "owns an address handle")]
mod address_handle;
#[cfg(feature = "librdmacm")]
pub use address_handle::AddressHandle;

#[cfg(feature = "librdmacm")]
#[expect(unsafe_code, reason = "owns the handles of completion queues and their channels")]
mod completion;
#[cfg(feature = "librdmacm")]
pub use completion::{
    Arm, ArmRefused, CompletionChannel, CompletionQueue, CompletionQueueError,
    CompletionQueueOptions, PollPortTaken, WaitAnyError,
};

#[cfg(feature = "librdmacm")]
#[expect(unsafe_code, reason = "a port's promises free buffers")]
mod timed;
#[cfg(feature = "librdmacm")]
pub use timed::{TIMED_BATCH, TimedPollPort, Timestamps};

#[cfg(feature = "librdmacm")]
#[expect(unsafe_code, reason = "owns a queue pair's handle")]
mod queue_pair;
#[cfg(feature = "librdmacm")]
pub use queue_pair::{QpState, QpView, QueuePair, QueuePairError, QueuePairOptions};

#[cfg(feature = "librdmacm")]
#[expect(unsafe_code, reason = "owns the handles of shared receive queues")]
mod shared_receives;
#[cfg(feature = "librdmacm")]
pub use shared_receives::{Receives, SharedReceiveQueue};

#[cfg(feature = "librdmacm")]
#[expect(unsafe_code, reason = "a port's promises free buffers")]
pub mod port;

#[cfg(feature = "librdmacm")]
#[expect(unsafe_code, reason = "owns the handles of identifiers and their channels")]
pub mod cm;

#[expect(unsafe_code, reason = "owns the storage that its queues borrow")]
pub mod endpoint;
pub use endpoint::Endpoint;
#[doc(inline)]
pub use endpoint::hub::{self, Hub};

pub mod poller;
pub use poller::Poller;

pub mod doctor;

pub mod coverage;
pub mod guide;

#[cfg(doctest)]
mod misuse;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
