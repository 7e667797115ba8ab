//! Queue pairs of the connection manager: made on an identifier.

use std::mem::MaybeUninit;
use std::ptr;

use super::cm::Space;
use super::{CallError, CmIdPtr, CqPtr, PdPtr, QpPtr, SrqPtr, ffi, minus_one, non_null};

/// The sizes of a queue pair, asked or granted, `ibv_qp_cap`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct QpSizes {
    pub(crate) send_depth: u32,
    pub(crate) recv_depth: u32,
    pub(crate) send_sges: u32,
    pub(crate) recv_sges: u32,
    pub(crate) inline: u32,
}

/// Makes a queue pair on `id`: a connected one, in state INIT, or one for datagrams, ready to send.
/// Gives it with the granted sizes.
///
/// # Safety
///
/// All handles are alive and of one device, and outlive the queue pair.
pub(crate) unsafe fn create_qp(
    id: CmIdPtr,
    pd: PdPtr,
    (send_cq, recv_cq): (CqPtr, CqPtr),
    srq: Option<SrqPtr>,
    asked: QpSizes,
    space: Space,
) -> Result<(QpPtr, QpSizes), CallError> {
    // SAFETY: a structure of integers and pointers: all zeros is a value.
    let mut attr = unsafe { MaybeUninit::<ffi::ibv_qp_init_attr>::zeroed().assume_init() };
    attr.send_cq = send_cq.as_ptr();
    attr.recv_cq = recv_cq.as_ptr();
    attr.srq = srq.map_or(ptr::null_mut(), SrqPtr::as_ptr);
    attr.cap = ffi::ibv_qp_cap {
        max_send_wr: asked.send_depth,
        max_recv_wr: asked.recv_depth,
        max_send_sge: asked.send_sges,
        max_recv_sge: asked.recv_sges,
        max_inline_data: asked.inline,
    };
    attr.qp_type = space.queue_pair_type();
    attr.sq_sig_all = 0;
    // SAFETY: the caller's promise; the attributes are copied during the call.
    let ret = unsafe { ffi::rdma_create_qp(id.as_ptr(), pd.as_ptr(), &raw mut attr) };
    minus_one("rdma_create_qp", ret)?;
    // SAFETY: the identifier is alive.
    let qp = QpPtr::new(non_null("rdma_create_qp", unsafe { (*id.as_ptr()).qp })?);
    let granted = QpSizes {
        send_depth: attr.cap.max_send_wr,
        recv_depth: attr.cap.max_recv_wr,
        send_sges: attr.cap.max_send_sge,
        recv_sges: attr.cap.max_recv_sge,
        inline: attr.cap.max_inline_data,
    };
    Ok((qp, granted))
}

/// Destroys the queue pair of `id`.
///
/// # Safety
///
/// The identifier is alive and has one; nobody uses it any more, and no event of the identifier is
/// being fetched.
pub(crate) unsafe fn destroy_qp(id: CmIdPtr) {
    // SAFETY: the caller's promise.
    unsafe { ffi::rdma_destroy_qp(id.as_ptr()) };
}
