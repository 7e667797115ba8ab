//! The one seam between the queues and a device.
//!
//! Three small traits: posting to a send queue, posting to a receive queue, polling a completion
//! queue. The adapter implements them over `ibv_context.ops`, the soft device over its rings, and a
//! test over whatever it wants to see. They are unsafe to implement, because the queues give
//! buffers back on the strength of what a port says.
//!
//! A port is owned by one queue and is called from the thread that owns that queue.

use crate::abi::{RecvWr, SendWr, Wc};

/// The way to a device's send queue. The shape is that of `ibv_post_send(3)`.
///
/// # Safety
///
/// An implementor promises:
///
/// * 0 means that the device took the whole chain.
/// * Anything else, with `bad` set to a request of the chain, means that it took all requests before
///   that one, and neither that one nor any behind it.
/// * Anything else, with `bad` left null, means that it is not known what the device took.
/// * A request of which the device took possession is copied during the call; the memory that its
///   pieces name is used until its completion and no longer, inline data during the call only.
/// * [`is_gone`](Self::is_gone) is true only when no device uses the memory of a request that was posted
///   here, and none will.
/// * [`DATAGRAM`](Self::DATAGRAM) is true when it leads to a datagram queue pair, and false otherwise: what a
///   request says beside its operation depends on it, and a device follows the address handle of a
///   datagram.
#[doc(alias = "ibv_post_send")]
pub unsafe trait SendPort {
    /// Whether it leads to a datagram queue pair (UD). [`crate::op::Datagram`] goes to these and nothing
    /// else does, which is checked when the program is compiled.
    const DATAGRAM: bool = false;

    /// Posts the chain that starts with `first`; returns 0 or an error number.
    ///
    /// # Safety
    ///
    /// `first` starts a chain of valid requests that ends with a null `next`; the pieces of each
    /// name memory that stays valid, registered and untouched until its completion. `bad` holds
    /// null.
    unsafe fn post_send(&mut self, first: *mut SendWr, bad: &mut *mut SendWr) -> i32;

    /// Whether the queue pair is known to be gone: destroyed, or its device taken away, so that no device uses
    /// the memory of its requests any more. A port that cannot tell says false.
    fn is_gone(&self) -> bool {
        false
    }
}

/// The way to a device's receive queue. The shape is that of `ibv_post_recv(3)`.
///
/// # Safety
///
/// As for [`SendPort`].
#[doc(alias = "ibv_post_recv")]
pub unsafe trait RecvPort {
    /// Whether it leads to a datagram queue pair (UD), where forty bytes precede each message:
    /// [`crate::Datagram`] hides them. Which contexts go where is checked when the program is compiled.
    const DATAGRAM: bool = false;

    /// Posts the chain that starts with `first`; returns 0 or an error number.
    ///
    /// # Safety
    ///
    /// As for [`SendPort::post_send`].
    unsafe fn post_recv(&mut self, first: *mut RecvWr, bad: &mut *mut RecvWr) -> i32;

    /// Whether the queue pair is known to be gone: destroyed, or its device taken away, so that no device uses
    /// the memory of its requests any more. For a queue that queue pairs share, all of them are. A port that cannot
    /// tell says false.
    fn is_gone(&self) -> bool {
        false
    }
}

/// The way to a receive queue that queue pairs share, which can say when it runs low.
///
/// Used by [`crate::SharedRecvQueue::arm_limit`].
#[doc(alias = "ibv_modify_srq")]
pub trait LimitPort: RecvPort {
    /// Asks for one event when fewer than `limit` receives are left, 0 for none; returns 0 or an error
    /// number.
    fn arm_limit(&mut self, limit: u32) -> i32;
}

/// The way to a device's completion queue. The shape is that of `ibv_poll_cq(3)`.
///
/// # Safety
///
/// An implementor promises: a completion is written for a request that was posted through a port
/// of the same device and has ended; each is written once, the receives of one queue in the order
/// in which they were posted and the sends likewise; and the count that is returned is that of the
/// entries written, from the first on, at most as many as `into` has.
#[doc(alias = "ibv_poll_cq")]
pub unsafe trait PollPort {
    /// Writes completions into `into`; returns how many, or a negative error number. `into` may be empty:
    /// while something of an earlier batch is left over, nothing is asked for.
    fn poll(&mut self, into: &mut [Wc]) -> i32;
}

/// A completion queue that can say when something comes. The shape is that of
/// `ibv_req_notify_cq(3)`.
///
/// Used by [`crate::Completions::arm`], which knows in which order to arm and to look.
#[doc(alias = "ibv_req_notify_cq")]
pub trait ArmPort: PollPort {
    /// Asks for one event when the next completion comes, or the next solicited or failed one;
    /// returns 0 or an error number. A completion that is already there need not bring an event.
    fn arm(&mut self, solicited_only: bool) -> i32;
}

// SAFETY: the port behind the reference keeps the promises.
unsafe impl<P: SendPort + ?Sized> SendPort for &mut P {
    const DATAGRAM: bool = P::DATAGRAM;

    #[inline(always)]
    unsafe fn post_send(&mut self, first: *mut SendWr, bad: &mut *mut SendWr) -> i32 {
        // SAFETY: the caller's promise.
        unsafe { (**self).post_send(first, bad) }
    }

    fn is_gone(&self) -> bool {
        (**self).is_gone()
    }
}

// SAFETY: the port behind the reference keeps the promises.
unsafe impl<P: RecvPort + ?Sized> RecvPort for &mut P {
    const DATAGRAM: bool = P::DATAGRAM;

    #[inline(always)]
    unsafe fn post_recv(&mut self, first: *mut RecvWr, bad: &mut *mut RecvWr) -> i32 {
        // SAFETY: the caller's promise.
        unsafe { (**self).post_recv(first, bad) }
    }

    fn is_gone(&self) -> bool {
        (**self).is_gone()
    }
}

impl<P: LimitPort + ?Sized> LimitPort for &mut P {
    fn arm_limit(&mut self, limit: u32) -> i32 {
        (**self).arm_limit(limit)
    }
}

// SAFETY: the port behind the reference keeps the promises.
unsafe impl<P: PollPort + ?Sized> PollPort for &mut P {
    #[inline(always)]
    fn poll(&mut self, into: &mut [Wc]) -> i32 {
        (**self).poll(into)
    }
}

impl<P: ArmPort + ?Sized> ArmPort for &mut P {
    fn arm(&mut self, solicited_only: bool) -> i32 {
        (**self).arm(solicited_only)
    }
}

/// The port of a datagram queue pair, where the device has one type of port for all of its queue pairs: the
/// soft device.
///
/// A connected queue pair behind it takes datagrams for messages to its peer. The port inside does not come out
/// again: what posts to a datagram queue pair says where to, and a device follows that.
#[derive(Debug)]
pub struct Datagrams<P>(P);

impl<P> Datagrams<P> {
    /// The way to the same queue, for datagrams.
    pub const fn new(port: P) -> Self {
        Self(port)
    }
}

// SAFETY: the port inside keeps the promises; a queue pair that is no datagram one does not look at
// what only datagrams have.
unsafe impl<P: SendPort> SendPort for Datagrams<P> {
    const DATAGRAM: bool = true;

    #[inline(always)]
    unsafe fn post_send(&mut self, first: *mut SendWr, bad: &mut *mut SendWr) -> i32 {
        // SAFETY: the caller's promise.
        unsafe { self.0.post_send(first, bad) }
    }

    fn is_gone(&self) -> bool {
        self.0.is_gone()
    }
}

// SAFETY: the port inside keeps the promises.
unsafe impl<P: RecvPort> RecvPort for Datagrams<P> {
    const DATAGRAM: bool = true;

    #[inline(always)]
    unsafe fn post_recv(&mut self, first: *mut RecvWr, bad: &mut *mut RecvWr) -> i32 {
        // SAFETY: the caller's promise.
        unsafe { self.0.post_recv(first, bad) }
    }

    fn is_gone(&self) -> bool {
        self.0.is_gone()
    }
}
