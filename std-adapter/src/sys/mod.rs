//! The door to C: the only place that names a binding to it.
//!
//! Thin functions over exported `rdma_*` and `ibv_*` calls and over the pointers in
//! `ibv_context.ops`. Nothing here owns anything: the modules above do, and say when a handle dies.
//! Which functions of rdma-sys must not be called, and why, stands in the module that replaces
//! them.
//!
//! Invariant: nothing outside this folder sees a type of C, reads `errno`, or compares a
//! return value with −1.

mod convert;
pub use convert::CallError;
pub(crate) use convert::{count, errno, minus_one};
#[cfg(feature = "librdmacm")]
pub(crate) use convert::{non_null, normal, zero_or_errno};

mod event;
pub(crate) use event::Event;

pub(crate) mod poll;
#[cfg(feature = "librdmacm")]
pub(crate) use poll::wait_readable;

pub(crate) mod thread;

#[cfg(feature = "librdmacm")]
pub(crate) mod address;
#[cfg(feature = "librdmacm")]
pub(crate) mod async_event;
#[cfg(feature = "librdmacm")]
pub(crate) mod cm;
#[cfg(feature = "librdmacm")]
mod cm_event;
#[cfg(feature = "librdmacm")]
mod cm_qp;
#[cfg(feature = "librdmacm")]
pub(crate) mod datagram;
#[cfg(feature = "librdmacm")]
pub(crate) mod extended;
#[cfg(feature = "librdmacm")]
mod handle;
#[cfg(feature = "librdmacm")]
pub(crate) use handle::{
    AhPtr, ChannelPtr, CmIdPtr, CompletionChannelPtr, ContextPtr, CqPtr, MrPtr, MwPtr, PdPtr,
    QpPtr, SrqPtr, TdPtr,
};
#[cfg(feature = "verbs")]
mod layout;
#[cfg(feature = "librdmacm")]
pub(crate) mod lookup;
#[cfg(feature = "librdmacm")]
pub(crate) mod ops;
#[cfg(feature = "static")]
mod providers;
#[cfg(feature = "librdmacm")]
pub(crate) mod shared_receives;
#[cfg(feature = "librdmacm")]
pub(crate) mod verbs;
#[cfg(feature = "librdmacm")]
pub(crate) mod window;

#[cfg(feature = "declared")]
mod declared;
#[cfg(feature = "librdmacm")]
mod ffi;

#[cfg(test)]
mod tests;
