//! The way to the other end of datagrams.
//!
//! An [`AddressHandle`] comes from a peer that was found
//! ([`Datagrams::find`](crate::cm::Datagrams::find)), from a multicast group that was joined
//! ([`Datagrams::join`](crate::cm::Datagrams::join)), or from a datagram that arrived
//! ([`Datagrams::answer`](crate::cm::Datagrams::answer)). Any thread.
//!
//! Invariant: what was given out as a peer lives as long as any queue pair of its domain.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nanoverbs_core::{QpNum, op};

use crate::ProtectionDomain;
use crate::sys::cm::RawPeer;
use crate::sys::{self, AhPtr, CallError};

/// The other end of datagrams: a way there, a queue pair's number, and its key.
#[doc(alias = "ibv_ah")]
#[doc(alias = "ibv_create_ah")]
pub struct AddressHandle {
    ah: AhPtr,
    qp_num: QpNum,
    qkey: u32,
    /// Whether the domain keeps it.
    kept: AtomicBool,
    domain: Arc<ProtectionDomain>,
}

impl AddressHandle {
    pub(crate) fn to_peer(
        domain: &Arc<ProtectionDomain>,
        peer: &RawPeer,
    ) -> Result<Self, CallError> {
        // SAFETY: the domain lives, and the handle will hold it.
        let ah = unsafe { sys::datagram::create_ah(domain.pd(), peer) }?;
        Ok(Self::own(ah, peer.qp_num, peer.qkey, domain))
    }

    pub(crate) fn own(ah: AhPtr, qp_num: u32, qkey: u32, domain: &Arc<ProtectionDomain>) -> Self {
        Self {
            ah,
            qp_num: QpNum::from_raw(qp_num),
            qkey,
            kept: AtomicBool::new(false),
            domain: Arc::clone(domain),
        }
    }

    /// Where to send, for [`op::Datagram`]. It can be copied and may outlive the handle: from the first
    /// call on, the device keeps what it needs of the handle as long as the protection domain exists.
    pub fn peer(&self) -> op::Peer {
        // Relaxed: the list has a lock of its own, and the drop has `&mut`.
        if !self.kept.swap(true, Ordering::Relaxed) {
            self.domain.keep(self.ah);
        }
        // SAFETY: the handle is of this domain, which keeps it as long as queue pairs hold the domain.
        unsafe { op::Peer::from_raw(self.as_raw(), self.qp_num, self.qkey, self.domain.id()) }
    }

    /// The `ibv_ah`. It dies with this, unless [`peer`](Self::peer) was called.
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

impl Drop for AddressHandle {
    fn drop(&mut self) {
        if !*self.kept.get_mut() && !self.domain.device().is_parents() {
            // SAFETY: the handle is this one's own, and no request was made with it.
            let _ = unsafe { sys::datagram::destroy_ah(self.ah) };
        }
    }
}
