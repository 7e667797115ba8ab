//! Queue pairs of the connection manager: made on an identifier, or beside one.

use std::mem::MaybeUninit;
use std::ptr;

use super::cm::Space;
use super::{CallError, CmIdPtr, CqPtr, PdPtr, QpPtr, SrqPtr, ffi};
use super::{minus_one, non_null, zero_or_errno};

/// The sizes of a queue pair, asked or granted, `ibv_qp_cap`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct QpSizes {
    pub(crate) send_depth: u32,
    pub(crate) recv_depth: u32,
    pub(crate) send_sges: u32,
    pub(crate) recv_sges: u32,
    pub(crate) inline: u32,
}

/// What a queue pair is made of. All handles are alive and of one device, and outlive it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QpPlan {
    pub(crate) pd: PdPtr,
    pub(crate) send_cq: CqPtr,
    pub(crate) recv_cq: CqPtr,
    pub(crate) srq: Option<SrqPtr>,
    pub(crate) asked: QpSizes,
    pub(crate) space: Space,
}

impl QpPlan {
    fn to_c(self) -> ffi::ibv_qp_init_attr {
        // SAFETY: a structure of integers and pointers: all zeros is a value.
        let mut attr = unsafe { MaybeUninit::<ffi::ibv_qp_init_attr>::zeroed().assume_init() };
        attr.send_cq = self.send_cq.as_ptr();
        attr.recv_cq = self.recv_cq.as_ptr();
        attr.srq = self.srq.map_or(ptr::null_mut(), SrqPtr::as_ptr);
        attr.cap = ffi::ibv_qp_cap {
            max_send_wr: self.asked.send_depth,
            max_recv_wr: self.asked.recv_depth,
            max_send_sge: self.asked.send_sges,
            max_recv_sge: self.asked.recv_sges,
            max_inline_data: self.asked.inline,
        };
        attr.qp_type = self.space.queue_pair_type();
        attr.sq_sig_all = 0;
        attr
    }
}

const fn granted(cap: &ffi::ibv_qp_cap) -> QpSizes {
    QpSizes {
        send_depth: cap.max_send_wr,
        recv_depth: cap.max_recv_wr,
        send_sges: cap.max_send_sge,
        recv_sges: cap.max_recv_sge,
        inline: cap.max_inline_data,
    }
}

/// Makes a queue pair on `id`: a connected one, in state INIT, or one for datagrams, ready to send.
/// Gives it with the granted sizes.
///
/// # Safety
///
/// The identifier and what the plan names are alive and of one device, and outlive the queue pair.
pub(crate) unsafe fn create_qp(id: CmIdPtr, plan: QpPlan) -> Result<(QpPtr, QpSizes), CallError> {
    let mut attr = plan.to_c();
    // SAFETY: the caller's promise; the attributes are copied during the call.
    let ret = unsafe { ffi::rdma_create_qp(id.as_ptr(), plan.pd.as_ptr(), &raw mut attr) };
    minus_one("rdma_create_qp", ret)?;
    // SAFETY: the identifier is alive.
    let qp = QpPtr::new(non_null("rdma_create_qp", unsafe { (*id.as_ptr()).qp })?);
    Ok((qp, granted(&attr.cap)))
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

/// Makes a queue pair beside `id`, for a connection, in state INIT. The identifier does not know it.
///
/// # Safety
///
/// As for [`create_qp`].
pub(crate) unsafe fn create_apart(
    id: CmIdPtr,
    plan: QpPlan,
) -> Result<(QpPtr, QpSizes), CallError> {
    let mut attr = plan.to_c();
    // SAFETY: the caller's promise; the attributes are copied during the call.
    let qp = unsafe { ffi::ibv_create_qp(plan.pd.as_ptr(), &raw mut attr) };
    let qp = QpPtr::new(non_null("ibv_create_qp", qp)?);
    // SAFETY: both are alive.
    if let Err(error) = unsafe { advance(id, qp, ffi::ibv_qp_state::IBV_QPS_INIT, |_| ()) } {
        // SAFETY: it was just made.
        unsafe { destroy_apart(qp) };
        return Err(error);
    }
    Ok((qp, granted(&attr.cap)))
}

/// Destroys a queue pair that was made beside an identifier.
///
/// # Safety
///
/// It is alive, and nobody uses it any more.
pub(crate) unsafe fn destroy_apart(qp: QpPtr) {
    // A device that is gone has forgotten it.
    // SAFETY: the caller's promise.
    let _ = unsafe { ffi::ibv_destroy_qp(qp.as_ptr()) };
}

/// What is agreed on when a queue pair beside an identifier becomes ready.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agreed {
    /// How long the peer shall wait when no receive is posted, a code of five bits.
    pub(crate) min_rnr_timer: u8,
    /// READs that may come and that may go out; as the connection manager has them when `None`.
    pub(crate) reads: Option<(u8, u8)>,
}

/// Moves a queue pair that was made beside `id` to RTS, as librdmacm does with those on one.
///
/// # Safety
///
/// Both are alive, and the queue pair was made beside this identifier.
pub(crate) unsafe fn make_ready(id: CmIdPtr, qp: QpPtr, agreed: Agreed) -> Result<(), CallError> {
    use ffi::ibv_qp_state as state;
    // Once more: which accesses it allows is known now.
    // SAFETY: the caller's promise, here and below.
    unsafe { advance(id, qp, state::IBV_QPS_INIT, |_| ()) }?;
    let to_receive = |attr: &mut ffi::ibv_qp_attr| {
        attr.min_rnr_timer = agreed.min_rnr_timer;
        if let Some((reads_in, _)) = agreed.reads {
            attr.max_dest_rd_atomic = reads_in;
        }
    };
    // SAFETY: as above.
    unsafe { advance(id, qp, state::IBV_QPS_RTR, to_receive) }?;
    let to_send = |attr: &mut ffi::ibv_qp_attr| {
        if let Some((_, reads_out)) = agreed.reads {
            attr.max_rd_atomic = reads_out;
        }
    };
    // SAFETY: as above.
    unsafe { advance(id, qp, state::IBV_QPS_RTS, to_send) }
}

/// Moves a queue pair to a state, with the attributes that the connection manager has for it. What `change`
/// sets counts where the state takes it.
///
/// # Safety
///
/// Both are alive.
unsafe fn advance(
    id: CmIdPtr,
    qp: QpPtr,
    to: ffi::ibv_qp_state::Type,
    change: impl FnOnce(&mut ffi::ibv_qp_attr),
) -> Result<(), CallError> {
    // SAFETY: a structure of integers: all zeros is a value.
    let mut attr = unsafe { MaybeUninit::<ffi::ibv_qp_attr>::zeroed().assume_init() };
    attr.qp_state = to;
    let mut mask = 0;
    // SAFETY: the caller's promise; both are places for what the call gives.
    let ret = unsafe { ffi::rdma_init_qp_attr(id.as_ptr(), &raw mut attr, &raw mut mask) };
    minus_one("rdma_init_qp_attr", ret)?;
    change(&mut attr);
    // SAFETY: the caller's promise; the attributes are copied during the call.
    let ret = unsafe { ffi::ibv_modify_qp(qp.as_ptr(), &raw mut attr, mask) };
    zero_or_errno("ibv_modify_qp", ret)
}
