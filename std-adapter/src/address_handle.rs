//! The way to the other end of datagrams.
//!
//! An [`AddressHandle`] comes from a peer that was found
//! ([`Datagrams::find`](crate::cm::Datagrams::find)), from a multicast group that was joined
//! ([`Datagrams::join`](crate::cm::Datagrams::join)), or from a datagram that arrived
//! ([`Datagrams::answer`](crate::cm::Datagrams::answer)). Any thread.
//!
//! The device's handle leads to a machine, not to a queue pair. A protection domain makes one for each way
//! and keeps it, however many peers are behind it and however often they are answered: who answers for
//! ever has as many as there are machines that ask.
//!
//! Invariant: what was given out as a peer lives as long as any queue pair of its domain.

use std::fmt;
use std::sync::Arc;

use nanoverbs_core::{QpNum, op};

use crate::ProtectionDomain;
use crate::sys::cm::RawPeer;
use crate::sys::datagram::RawWay;
use crate::sys::{AhPtr, CallError};

/// The other end of datagrams: a way there, a queue pair's number, and its key.
#[derive(Clone)]
#[doc(alias = "ibv_ah")]
#[doc(alias = "ibv_create_ah")]
pub struct AddressHandle {
    ah: AhPtr,
    qp_num: QpNum,
    qkey: u32,
    domain: Arc<ProtectionDomain>,
}

impl AddressHandle {
    pub(crate) fn to_peer(
        domain: &Arc<ProtectionDomain>,
        peer: &RawPeer,
    ) -> Result<Self, CallError> {
        Self::new(domain, peer.way(), QpNum::from_raw(peer.qp_num), peer.qkey)
    }

    pub(crate) fn new(
        domain: &Arc<ProtectionDomain>,
        way: RawWay,
        qp_num: QpNum,
        qkey: u32,
    ) -> Result<Self, CallError> {
        Ok(Self { ah: domain.handle(way)?, qp_num, qkey, domain: Arc::clone(domain) })
    }

    /// Where to send, for [`op::Datagram`]. It can be copied and may outlive this handle.
    pub fn peer(&self) -> op::Peer {
        // SAFETY: the handle is of this domain, which keeps it as long as queue pairs hold the domain.
        unsafe { op::Peer::from_raw(self.as_raw(), self.qp_num, self.qkey, self.domain.id()) }
    }

    /// The `ibv_ah`. It lives as long as the protection domain, and is shared by all peers on this way.
    pub const fn as_raw(&self) -> *mut () {
        self.ah.as_opaque()
    }

    /// The number of the queue pair at the other end; of all members for a group.
    pub const fn remote_qp(&self) -> QpNum {
        self.qp_num
    }

    /// The key that it wants to see.
    pub const fn qkey(&self) -> u32 {
        self.qkey
    }

    /// Its domain: only queue pairs of this one can use it.
    pub const fn domain(&self) -> &Arc<ProtectionDomain> {
        &self.domain
    }
}

impl fmt::Debug for AddressHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressHandle").field("remote_qp", &self.qp_num).finish_non_exhaustive()
    }
}
