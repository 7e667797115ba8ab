//! The data path: function pointers out of `ibv_context.ops`, fetched once.
//!
//! This is what `ibv_post_send` and its sisters do inside; holding the pointer saves two loads a
//! call, and a null one is refused at set-up instead of unwrapped at every post.

use std::ffi::c_int;

use nanoverbs_core::abi::{RecvWr, SendWr, Wc};

use super::{CallError, CqPtr, QpPtr, ffi, normal, zero_or_errno};

type PostSend = unsafe extern "C" fn(
    *mut ffi::ibv_qp,
    *mut ffi::ibv_send_wr,
    *mut *mut ffi::ibv_send_wr,
) -> c_int;
type PostRecv = unsafe extern "C" fn(
    *mut ffi::ibv_qp,
    *mut ffi::ibv_recv_wr,
    *mut *mut ffi::ibv_recv_wr,
) -> c_int;
type PollCq = unsafe extern "C" fn(*mut ffi::ibv_cq, c_int, *mut ffi::ibv_wc) -> c_int;

/// A queue pair's send queue and the way in: 16 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendOp {
    qp: QpPtr,
    post: PostSend,
}

impl SendOp {
    /// # Safety
    ///
    /// The queue pair is alive.
    pub(crate) unsafe fn new(qp: QpPtr) -> Result<Self, CallError> {
        // SAFETY: the caller's promise; a context outlives its queue pairs.
        let post = unsafe { (*(*qp.as_ptr()).context).ops.post_send };
        let post = post.ok_or(CallError::new("ibv_post_send", libc::EOPNOTSUPP))?;
        Ok(Self { qp, post })
    }

    /// 0, or a positive error number.
    ///
    /// # Safety
    ///
    /// The queue pair is alive, and what `ibv_post_send(3)` wants of the chain holds.
    #[inline(always)]
    pub(crate) unsafe fn post(self, first: *mut SendWr, bad: &mut *mut SendWr) -> i32 {
        let bad: *mut *mut SendWr = bad;
        // SAFETY: the caller's promise; `layout` proves that the structures are the same.
        match unsafe { (self.post)(self.qp.as_ptr(), first.cast(), bad.cast()) } {
            0 => 0,
            ret => normal(ret),
        }
    }
}

/// A queue pair's receive queue and the way in: 16 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecvOp {
    qp: QpPtr,
    post: PostRecv,
}

impl RecvOp {
    /// # Safety
    ///
    /// The queue pair is alive.
    pub(crate) unsafe fn new(qp: QpPtr) -> Result<Self, CallError> {
        // SAFETY: the caller's promise; a context outlives its queue pairs.
        let post = unsafe { (*(*qp.as_ptr()).context).ops.post_recv };
        let post = post.ok_or(CallError::new("ibv_post_recv", libc::EOPNOTSUPP))?;
        Ok(Self { qp, post })
    }

    /// 0, or a positive error number.
    ///
    /// # Safety
    ///
    /// The queue pair is alive, and what `ibv_post_recv(3)` wants of the chain holds.
    #[inline(always)]
    pub(crate) unsafe fn post(self, first: *mut RecvWr, bad: &mut *mut RecvWr) -> i32 {
        let bad: *mut *mut RecvWr = bad;
        // SAFETY: the caller's promise; `layout` proves that the structures are the same.
        match unsafe { (self.post)(self.qp.as_ptr(), first.cast(), bad.cast()) } {
            0 => 0,
            ret => normal(ret),
        }
    }
}

/// A completion queue and the way to poll it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PollOp {
    cq: CqPtr,
    poll: PollCq,
}

impl PollOp {
    /// # Safety
    ///
    /// The queue is alive.
    pub(crate) unsafe fn new(cq: CqPtr) -> Result<Self, CallError> {
        // SAFETY: the caller's promise; a context outlives its queues.
        let poll = unsafe { (*(*cq.as_ptr()).context).ops.poll_cq };
        let poll = poll.ok_or(CallError::new("ibv_poll_cq", libc::EOPNOTSUPP))?;
        Ok(Self { cq, poll })
    }

    /// How many completions were written from the first entry on, or a negative error number.
    ///
    /// # Safety
    ///
    /// The queue is alive.
    #[inline(always)]
    pub(crate) unsafe fn poll(self, into: &mut [Wc]) -> i32 {
        let room = into.len().min(c_int::MAX as usize) as c_int;
        // SAFETY: the caller's promise; `into` has at least `room` entries, and `layout` proves
        // that they are C's.
        let got = unsafe { (self.poll)(self.cq.as_ptr(), room, into.as_mut_ptr().cast()) };
        if got < 0 { normal(got).wrapping_neg() } else { got.min(room) }
    }
}

/// Asks for an event when the next completion comes; with `solicited_only`, the next one whose
/// sender asked for that.
///
/// # Safety
///
/// The queue is alive.
pub(crate) unsafe fn req_notify_cq(cq: CqPtr, solicited_only: bool) -> Result<(), CallError> {
    // SAFETY: the caller's promise; a context outlives its queues.
    let notify = unsafe { (*(*cq.as_ptr()).context).ops.req_notify_cq };
    let notify = notify.ok_or(CallError::new("ibv_req_notify_cq", libc::EOPNOTSUPP))?;
    // SAFETY: the caller's promise.
    let ret = unsafe { notify(cq.as_ptr(), c_int::from(solicited_only)) };
    zero_or_errno("ibv_req_notify_cq", ret)
}

#[cfg(test)]
mod tests;
