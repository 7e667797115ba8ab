//! Receive queues that queue pairs share.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use nanoverbs_core::abi::RecvWr;

use super::{CallError, PdPtr, SrqPtr, ffi, non_null, normal, zero_or_errno};

type PostSrqRecv = unsafe extern "C" fn(
    *mut ffi::ibv_srq,
    *mut ffi::ibv_recv_wr,
    *mut *mut ffi::ibv_recv_wr,
) -> c_int;

/// Gives the queue with the depth and the pieces that were granted.
///
/// # Safety
///
/// The domain is alive, and outlives the queue.
pub(crate) unsafe fn create_srq(
    pd: PdPtr,
    depth: u32,
    sges: u32,
) -> Result<(SrqPtr, u32, u32), CallError> {
    let attr = ffi::ibv_srq_attr { max_wr: depth, max_sge: sges, srq_limit: 0 };
    let mut attr = ffi::ibv_srq_init_attr { srq_context: std::ptr::null_mut(), attr };
    // SAFETY: the caller's promise; what was granted is written into the attributes.
    let srq = unsafe { ffi::ibv_create_srq(pd.as_ptr(), &raw mut attr) };
    let srq = SrqPtr::new(non_null("ibv_create_srq", srq)?);
    Ok((srq, attr.attr.max_wr, attr.attr.max_sge))
}

/// # Safety
///
/// The queue is alive, and no queue pair uses it.
pub(crate) unsafe fn destroy_srq(srq: SrqPtr) -> Result<(), CallError> {
    // SAFETY: the caller's promise.
    zero_or_errno("ibv_destroy_srq", unsafe { ffi::ibv_destroy_srq(srq.as_ptr()) })
}

/// Asks for one event when fewer receives are left than this. 0, or a positive error number.
///
/// # Safety
///
/// The queue is alive.
pub(crate) unsafe fn set_srq_limit(srq: SrqPtr, limit: u32) -> i32 {
    // SAFETY: a structure of integers: all zeros is a value.
    let mut attr = unsafe { MaybeUninit::<ffi::ibv_srq_attr>::zeroed().assume_init() };
    attr.srq_limit = limit;
    let mask = ffi::ibv_srq_attr_mask::IBV_SRQ_LIMIT.0.cast_signed();
    // SAFETY: the caller's promise; the attributes are copied during the call.
    match unsafe { ffi::ibv_modify_srq(srq.as_ptr(), &raw mut attr, mask) } {
        0 => 0,
        ret => normal(ret),
    }
}

/// A shared receive queue and the way in: 16 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedRecvOp {
    srq: SrqPtr,
    post: PostSrqRecv,
}

impl SharedRecvOp {
    /// # Safety
    ///
    /// The queue is alive.
    pub(crate) unsafe fn new(srq: SrqPtr) -> Result<Self, CallError> {
        // SAFETY: the caller's promise; a context outlives its queues.
        let post = unsafe { (*(*srq.as_ptr()).context).ops.post_srq_recv };
        let post = post.ok_or(CallError::new("ibv_post_srq_recv", libc::EOPNOTSUPP))?;
        Ok(Self { srq, post })
    }

    /// 0, or a positive error number.
    ///
    /// # Safety
    ///
    /// The queue is alive, and what `ibv_post_srq_recv(3)` wants of the chain holds.
    #[inline(always)]
    pub(crate) unsafe fn post(self, first: *mut RecvWr, bad: &mut *mut RecvWr) -> i32 {
        let bad: *mut *mut RecvWr = bad;
        // SAFETY: the caller's promise; `layout` proves that the structures are the same.
        match unsafe { (self.post)(self.srq.as_ptr(), first.cast(), bad.cast()) } {
            0 => 0,
            ret => normal(ret),
        }
    }

    pub(crate) const fn srq(self) -> SrqPtr {
        self.srq
    }
}
