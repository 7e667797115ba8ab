//! The core's ports on a real device: straight through the pointers in `ibv_context.ops`.
//!
//! [`SendPort`] and [`RecvPort`] are two words each and are owned by the queue that posts through
//! them, so they hold nothing: who owns queues and a [`QueuePair`](crate::QueuePair) together keeps
//! them in this order, queues before queue pair, so that the ports end first. [`PollPort`] holds
//! its completion queue.
//!
//! All are `Send` and not `Sync`: one thread at a time, the one that owns the queue.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;

use nanoverbs_core::abi::{RecvWr, SendWr, Wc};
use nanoverbs_core::port;

use crate::CompletionQueue;
use crate::sys::ops::{PollOp, RecvOp, SendOp};
use crate::sys::shared_receives::{SharedRecvOp, set_srq_limit};

/// `Send`, not `Sync`.
type OneThread = PhantomData<Cell<()>>;

/// The way to a queue pair's send queue.
#[derive(Debug)]
#[doc(alias = "ibv_post_send")]
pub struct SendPort {
    op: SendOp,
    one_thread: OneThread,
}

impl SendPort {
    pub(crate) const fn new(op: SendOp) -> Self {
        Self { op, one_thread: PhantomData }
    }
}

// SAFETY: what `ibv_post_send(3)` says of a return value, of `bad_wr` and of the copy made during
// the call is what the trait asks for; an error with `bad_wr` unset is passed on as it is.
unsafe impl port::SendPort for SendPort {
    #[inline(always)]
    unsafe fn post_send(&mut self, first: *mut SendWr, bad: &mut *mut SendWr) -> i32 {
        // SAFETY: the chain is the caller's promise; that the queue pair lives was promised when
        // the port was taken (`QueuePair::send_port`).
        unsafe { self.op.post(first, bad) }
    }
}

/// The way to a queue pair's receive queue.
#[derive(Debug)]
#[doc(alias = "ibv_post_recv")]
pub struct RecvPort {
    op: RecvOp,
    one_thread: OneThread,
}

impl RecvPort {
    pub(crate) const fn new(op: RecvOp) -> Self {
        Self { op, one_thread: PhantomData }
    }
}

// SAFETY: as for `SendPort`, by `ibv_post_recv(3)`.
unsafe impl port::RecvPort for RecvPort {
    #[inline(always)]
    unsafe fn post_recv(&mut self, first: *mut RecvWr, bad: &mut *mut RecvWr) -> i32 {
        // SAFETY: the chain is the caller's promise; that the queue pair lives was promised when
        // the port was taken (`QueuePair::recv_port`).
        unsafe { self.op.post(first, bad) }
    }
}

/// The way to a receive queue that queue pairs share.
#[derive(Debug)]
#[doc(alias = "ibv_post_srq_recv")]
pub struct SharedRecvPort {
    op: SharedRecvOp,
    one_thread: OneThread,
}

impl SharedRecvPort {
    pub(crate) const fn new(op: SharedRecvOp) -> Self {
        Self { op, one_thread: PhantomData }
    }
}

// SAFETY: as for `SendPort`, by `ibv_post_srq_recv(3)`.
unsafe impl port::RecvPort for SharedRecvPort {
    #[inline(always)]
    unsafe fn post_recv(&mut self, first: *mut RecvWr, bad: &mut *mut RecvWr) -> i32 {
        // SAFETY: the chain is the caller's promise; that the queue lives was promised when the port
        // was taken (`SharedReceiveQueue::recv_port`).
        unsafe { self.op.post(first, bad) }
    }
}

impl port::LimitPort for SharedRecvPort {
    /// The event comes with the device's others, as
    /// [`EventKind::SharedReceiveLimit`](crate::event::DeviceEventKind::SharedReceiveLimit).
    fn arm_limit(&mut self, limit: u32) -> i32 {
        // SAFETY: as for a post.
        unsafe { set_srq_limit(self.op.srq(), limit) }
    }
}

/// The way to poll a completion queue, which it holds.
#[derive(Debug)]
#[doc(alias = "ibv_poll_cq")]
pub struct PollPort {
    op: PollOp,
    queue: Arc<CompletionQueue>,
    one_thread: OneThread,
}

impl PollPort {
    pub(crate) const fn new(op: PollOp, queue: Arc<CompletionQueue>) -> Self {
        Self { op, queue, one_thread: PhantomData }
    }

    /// The queue that it polls.
    pub const fn queue(&self) -> &Arc<CompletionQueue> {
        &self.queue
    }
}

// SAFETY: what `ibv_poll_cq(3)` says of the count and of the entries is what the trait asks for;
// the count is cut to the room that was given.
unsafe impl port::PollPort for PollPort {
    #[inline(always)]
    fn poll(&mut self, into: &mut [Wc]) -> i32 {
        // SAFETY: the port holds its queue.
        unsafe { self.op.poll(into) }
    }
}

impl port::ArmPort for PollPort {
    fn arm(&mut self, solicited_only: bool) -> i32 {
        self.queue.arm_code(solicited_only)
    }
}

impl Drop for PollPort {
    fn drop(&mut self) {
        self.queue.give_back();
    }
}

// Two words each, so that a queue's hot state stays in one line.
const _: () = assert!(size_of::<SendPort>() == 16 || size_of::<usize>() != 8);
const _: () = assert!(size_of::<RecvPort>() == 16 || size_of::<usize>() != 8);
static_assertions::assert_impl_all!(SendPort: Send);
static_assertions::assert_impl_all!(RecvPort: Send);
const _: () = assert!(size_of::<SharedRecvPort>() == 16 || size_of::<usize>() != 8);
static_assertions::assert_impl_all!(SharedRecvPort: Send);
static_assertions::assert_not_impl_any!(SharedRecvPort: Sync, Clone);
static_assertions::assert_impl_all!(PollPort: Send);
static_assertions::assert_not_impl_any!(SendPort: Sync, Clone);
static_assertions::assert_not_impl_any!(RecvPort: Sync, Clone);
static_assertions::assert_not_impl_any!(PollPort: Sync, Clone);
