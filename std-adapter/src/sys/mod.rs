//! The door to C: the only place that names rdma-sys.
//!
//! Thin functions over exported `rdma_*` and `ibv_*` calls and over the pointers in
//! `ibv_context.ops`. Nothing here owns anything: the modules above do, and say when a handle dies.
//! Which functions of rdma-sys must not be called, and why, stands in the module that replaces
//! them.
//!
//! Invariant: nothing outside this folder sees a type of rdma-sys, reads `errno`, or compares a
//! return value with −1.

mod convert;
pub use convert::CallError;
pub(crate) use convert::{count, errno, minus_one};
#[cfg(feature = "verbs")]
pub(crate) use convert::{non_null, normal, zero_or_errno};

mod event;
pub(crate) use event::Event;

pub(crate) mod poll;
#[cfg(feature = "verbs")]
pub(crate) use poll::wait_readable;

pub(crate) mod thread;

#[cfg(feature = "verbs")]
pub(crate) mod address;
#[cfg(feature = "verbs")]
pub(crate) mod async_event;
#[cfg(feature = "verbs")]
pub(crate) mod cm;
#[cfg(feature = "verbs")]
mod cm_event;
#[cfg(feature = "verbs")]
mod cm_qp;
#[cfg(feature = "verbs")]
pub(crate) mod datagram;
#[cfg(feature = "verbs")]
pub(crate) mod extended;
#[cfg(feature = "verbs")]
mod handle;
#[cfg(feature = "verbs")]
pub(crate) use handle::{
    AhPtr, ChannelPtr, CmIdPtr, CompletionChannelPtr, ContextPtr, CqPtr, MrPtr, MwPtr, PdPtr,
    QpPtr, SrqPtr, TdPtr,
};
#[cfg(feature = "verbs")]
mod layout;
#[cfg(feature = "verbs")]
pub(crate) mod lookup;
#[cfg(feature = "verbs")]
pub(crate) mod ops;
#[cfg(feature = "verbs")]
pub(crate) mod shared_receives;
#[cfg(feature = "verbs")]
pub(crate) mod verbs;
#[cfg(feature = "verbs")]
pub(crate) mod window;

#[cfg(feature = "verbs")]
use rdma_sys as ffi;

#[cfg(test)]
mod tests;
