//! Ports over the operations table of an `ibv_context`, as the adapter has them: the queue pair and
//! the function that posts to it.

use core::ffi::c_int;

use nanoverbs_core::abi::{RecvWr, SendWr, Wc};
use nanoverbs_core::port::{PollPort, RecvPort, SendPort};
use rdma_sys::{ibv_cq, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_wc};

type PostSend = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int;
type PostRecv = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;
type PollCq = unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int;

#[derive(Debug)]
pub(crate) struct Qp {
    qp: *mut ibv_qp,
    post: PostSend,
}

impl Qp {
    /// # Safety
    ///
    /// `qp` is a live queue pair of the provider.
    pub(crate) unsafe fn new(qp: *mut ibv_qp) -> Self {
        // SAFETY: the caller's promise; every provider fills these operations.
        let post = unsafe { (*(*qp).context).ops.post_send.expect("a provider can post") };
        Self { qp, post }
    }
}

// SAFETY: the provider keeps the contract of `ibv_post_send(3)`.
unsafe impl SendPort for Qp {
    #[inline(always)]
    unsafe fn post_send(&mut self, first: *mut SendWr, bad: &mut *mut SendWr) -> i32 {
        // SAFETY: the structures have the same layout, which `layout` below proves.
        unsafe { (self.post)(self.qp, first.cast(), core::ptr::from_mut(bad).cast()) }
    }
}

/// The receiving half.
#[derive(Debug)]
pub(crate) struct Arrivals {
    qp: *mut ibv_qp,
    post: PostRecv,
}

impl Arrivals {
    /// # Safety
    ///
    /// `qp` is a live queue pair of the provider, in a mode that receives.
    pub(crate) unsafe fn new(qp: *mut ibv_qp) -> Self {
        // SAFETY: the caller's promise.
        let post = unsafe { (*(*qp).context).ops.post_recv.expect("this mode receives") };
        Self { qp, post }
    }
}

// SAFETY: the provider keeps the contract of `ibv_post_recv(3)`.
unsafe impl RecvPort for Arrivals {
    #[inline(always)]
    unsafe fn post_recv(&mut self, first: *mut RecvWr, bad: &mut *mut RecvWr) -> i32 {
        // SAFETY: the structures have the same layout, as proved below.
        unsafe { (self.post)(self.qp, first.cast(), core::ptr::from_mut(bad).cast()) }
    }
}

#[derive(Debug)]
pub(crate) struct Cq {
    cq: *mut ibv_cq,
    poll: PollCq,
}

impl Cq {
    /// # Safety
    ///
    /// `cq` is a live completion queue of the provider.
    pub(crate) unsafe fn new(cq: *mut ibv_cq) -> Self {
        // SAFETY: the caller's promise; every provider fills these operations.
        let poll = unsafe { (*(*cq).context).ops.poll_cq.expect("a provider can poll") };
        Self { cq, poll }
    }
}

// SAFETY: the provider keeps the contract of `ibv_poll_cq(3)`.
unsafe impl PollPort for Cq {
    #[inline(always)]
    fn poll(&mut self, into: &mut [Wc]) -> i32 {
        // SAFETY: the structures have the same layout, and the array has that much room.
        unsafe { (self.poll)(self.cq, into.len() as c_int, into.as_mut_ptr().cast()) }
    }
}

const _: () = {
    assert!(size_of::<SendWr>() == size_of::<ibv_send_wr>());
    assert!(size_of::<RecvWr>() == size_of::<ibv_recv_wr>());
    assert!(size_of::<Wc>() == size_of::<ibv_wc>());
    assert!(size_of::<Qp>() == 16);
};
