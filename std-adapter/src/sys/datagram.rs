//! Datagrams: address handles and multicast groups.

use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::ptr;

use nanoverbs_core::abi::Wc;

use super::address::RawAddress;
use super::{AhPtr, CallError, CmIdPtr, ContextPtr, PdPtr, QpPtr};
use super::{ffi, minus_one, non_null, zero_or_errno};

/// The other end of datagrams, or a multicast group.
#[derive(Clone, Copy)]
pub(crate) struct RawPeer {
    way: RawWay,
    pub(crate) qp_num: u32,
    pub(crate) qkey: u32,
}

impl RawPeer {
    pub(in crate::sys) const fn new(ud: &ffi::rdma_ud_param) -> Self {
        Self { way: RawWay(ud.ah_attr), qp_num: ud.qp_num, qkey: ud.qkey }
    }

    pub(crate) const fn way(&self) -> RawWay {
        self.way
    }
}

impl std::fmt::Debug for RawPeer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawPeer").field("qp_num", &self.qp_num).finish_non_exhaustive()
    }
}

/// A way through the network, for whichever queue pair there.
#[derive(Clone, Copy)]
pub(crate) struct RawWay(ffi::ibv_ah_attr);

impl RawWay {
    /// All that tells two ways apart.
    const fn parts(&self) -> ([u8; 16], u32, u16, [u8; 8]) {
        let Self(attr) = self;
        // SAFETY: both forms of the union are sixteen bytes.
        let gid = unsafe { attr.grh.dgid.raw };
        let bytes = [
            attr.grh.sgid_index,
            attr.grh.hop_limit,
            attr.grh.traffic_class,
            attr.sl,
            attr.src_path_bits,
            attr.static_rate,
            attr.is_global,
            attr.port_num,
        ];
        (gid, attr.grh.flow_label, attr.dlid, bytes)
    }
}

impl PartialEq for RawWay {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for RawWay {}

impl std::hash::Hash for RawWay {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

impl std::fmt::Debug for RawWay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RawWay").field(&self.parts()).finish()
    }
}

/// # Safety
///
/// The domain is alive, and outlives the handle.
pub(crate) unsafe fn create_ah(pd: PdPtr, way: &RawWay) -> Result<AhPtr, CallError> {
    let mut attr = way.0;
    // SAFETY: the caller's promise; the attributes are copied during the call.
    let ah = unsafe { ffi::ibv_create_ah(pd.as_ptr(), &raw mut attr) };
    non_null("ibv_create_ah", ah).map(AhPtr::new)
}

/// The way back to where a datagram came from.
///
/// # Safety
///
/// The context is alive.
pub(crate) unsafe fn way_back(
    context: ContextPtr,
    wc: &Wc,
    prefix: &[u8; 40],
    port: u8,
) -> Result<RawWay, CallError> {
    #[repr(C, align(8))]
    struct Prefix([u8; 40]);
    let mut wc = *wc;
    let mut prefix = Prefix(*prefix);
    let mut attr = MaybeUninit::<ffi::ibv_ah_attr>::zeroed();
    // SAFETY: the caller's promise; `layout` proves that the completion is C's, the prefix has the
    // size of a global route header and is aligned for one, and there is a place for the answer.
    let ret = unsafe {
        ffi::ibv_init_ah_from_wc(
            context.as_ptr(),
            port,
            (&raw mut wc).cast(),
            (&raw mut prefix).cast(),
            attr.as_mut_ptr(),
        )
    };
    zero_or_errno("ibv_init_ah_from_wc", ret)?;
    // SAFETY: zeroed before, filled by the call; integers only.
    Ok(RawWay(unsafe { attr.assume_init() }))
}

const _: () = assert!(size_of::<ffi::ibv_grh>() == 40);

/// # Safety
///
/// The handle is alive, and no request uses it.
pub(crate) unsafe fn destroy_ah(ah: AhPtr) -> Result<(), CallError> {
    // SAFETY: the caller's promise.
    zero_or_errno("ibv_destroy_ah", unsafe { ffi::ibv_destroy_ah(ah.as_ptr()) })
}

/// Asks to join a group; an event tells.
///
/// # Safety
///
/// The identifier is alive, is for datagrams, and is bound to a device.
pub(crate) unsafe fn join_multicast(
    id: CmIdPtr,
    group: SocketAddr,
    send_only: bool,
) -> Result<(), CallError> {
    let mut addr = RawAddress::new(group);
    let context = ptr::null_mut();
    if !send_only {
        // SAFETY: the caller's promise; the address is whole and copied during the call.
        let ret = unsafe { ffi::rdma_join_multicast(id.as_ptr(), addr.as_mut_ptr(), context) };
        return minus_one("rdma_join_multicast", ret);
    }
    let mut attr = ffi::rdma_cm_join_mc_attr_ex {
        comp_mask: ffi::rdma_cm_join_mc_attr_mask::RDMA_CM_JOIN_MC_ATTR_ADDRESS.0
            | ffi::rdma_cm_join_mc_attr_mask::RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS.0,
        join_flags: ffi::rdma_cm_mc_join_flags::RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER.0,
        addr: addr.as_mut_ptr(),
    };
    // SAFETY: as above.
    let ret = unsafe { ffi::rdma_join_multicast_ex(id.as_ptr(), &raw mut attr, context) };
    minus_one("rdma_join_multicast_ex", ret)
}

/// Adds a queue pair to a group, so that it gets what is sent there.
///
/// # Safety
///
/// The queue pair is alive.
pub(crate) unsafe fn attach_mcast(qp: QpPtr, group: &RawPeer) -> Result<(), CallError> {
    // SAFETY: the caller's promise; the group's address is read during the call.
    let ret = unsafe {
        ffi::ibv_attach_mcast(qp.as_ptr(), &raw const group.way.0.grh.dgid, group.way.0.dlid)
    };
    zero_or_errno("ibv_attach_mcast", ret)
}

/// # Safety
///
/// The queue pair is alive.
pub(crate) unsafe fn detach_mcast(qp: QpPtr, group: &RawPeer) -> Result<(), CallError> {
    // SAFETY: as for attaching.
    let ret = unsafe {
        ffi::ibv_detach_mcast(qp.as_ptr(), &raw const group.way.0.grh.dgid, group.way.0.dlid)
    };
    zero_or_errno("ibv_detach_mcast", ret)
}

/// # Safety
///
/// The identifier is alive; its events are acknowledged.
pub(crate) unsafe fn leave_multicast(id: CmIdPtr, group: SocketAddr) -> Result<(), CallError> {
    let mut addr = RawAddress::new(group);
    // SAFETY: the caller's promise; the address is whole and read during the call.
    let ret = unsafe { ffi::rdma_leave_multicast(id.as_ptr(), addr.as_mut_ptr()) };
    minus_one("rdma_leave_multicast", ret)
}
