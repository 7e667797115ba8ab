//! Receive queues that queue pairs share.
//!
//! A [`SharedReceiveQueue`] is made in a protection domain, on the completion queue where the receives of all
//! its queue pairs complete: there it reserves a place for every receive, once, however many queue pairs
//! there are. Hand it to `create_queue_pair` in the place of that completion queue. The core's
//! [`SharedRecvQueue`](nanoverbs_core::SharedRecvQueue) keeps the accounts.
//!
//! Any thread may call anything here; the port belongs to one thread.
//!
//! Invariant: queue pairs hold their shared queue, so with its last handle no queue pair is left.

use std::fmt;
use std::sync::Arc;

use nanoverbs_core::RecvConfig;

use crate::event::ObjectId;
use crate::port::SharedRecvPort;
use crate::sys::{self, CallError, SrqPtr};
use crate::{CompletionQueue, ProtectionDomain, QueuePairError};

/// A receive queue that queue pairs share.
#[doc(alias = "ibv_srq")]
pub struct SharedReceiveQueue {
    srq: SrqPtr,
    depth: u32,
    granted: u32,
    sges: u32,
    completions: Arc<CompletionQueue>,
    domain: Arc<ProtectionDomain>,
}

impl SharedReceiveQueue {
    /// A queue of `depth` receives of up to `sges` pieces, in `domain`, whose queue pairs complete their
    /// receives on `completions`.
    ///
    /// # Errors
    ///
    /// [`QueuePairError`] when the completion queue has no place for every receive, or is another
    /// device's, and what the device says.
    #[doc(alias = "ibv_create_srq")]
    #[doc(alias = "rdma_create_srq")]
    pub fn new(
        domain: &Arc<ProtectionDomain>,
        completions: &Arc<CompletionQueue>,
        depth: u32,
        sges: u32,
    ) -> Result<Arc<Self>, QueuePairError> {
        let device = domain.device();
        device.check_process().map_err(QueuePairError::WrongProcess)?;
        if !Arc::ptr_eq(completions.device(), device) {
            return Err(QueuePairError::WrongDevice);
        }
        completions
            .reserve(depth)
            .map_err(|have| QueuePairError::CompletionQueueTooSmall { need: depth, have })?;
        // SAFETY: the domain lives, and this queue will hold it.
        match unsafe { sys::shared_receives::create_srq(domain.pd(), depth, sges) } {
            Ok((srq, granted, granted_sges)) => Ok(Arc::new(Self {
                srq,
                depth,
                granted,
                sges: sges.min(granted_sges),
                completions: Arc::clone(completions),
                domain: Arc::clone(domain),
            })),
            Err(error) => {
                completions.release(depth);
                Err(QueuePairError::Call(error))
            }
        }
    }

    /// Receives that may be relied on: the smaller of asked and granted.
    pub fn depth(&self) -> u32 {
        self.depth.min(self.granted)
    }

    /// Pieces in one receive.
    pub const fn sges(&self) -> u32 {
        self.sges
    }

    /// Its identity in the events of its device.
    pub fn id(&self) -> ObjectId {
        ObjectId::new(self.srq.address())
    }

    /// The queue where the receives of all its queue pairs complete.
    pub const fn completions(&self) -> &Arc<CompletionQueue> {
        &self.completions
    }

    /// Its domain: receives are posted into memory of this one.
    pub const fn domain(&self) -> &Arc<ProtectionDomain> {
        &self.domain
    }

    /// The numbers for a [`SharedRecvQueue`](nanoverbs_core::SharedRecvQueue).
    pub fn recv_config(&self) -> RecvConfig {
        RecvConfig::new(self.domain.id())
            .depth(self.depth())
            .max_sges(u8::try_from(self.sges).unwrap_or(u8::MAX))
    }

    /// The way into it; may be used at once.
    ///
    /// # Errors
    ///
    /// [`CallError`] when the device has no such way.
    ///
    /// # Safety
    ///
    /// Nothing is posted through the port after the last handle of this queue is gone. One port at a time
    /// posts.
    pub unsafe fn recv_port(&self) -> Result<SharedRecvPort, CallError> {
        // SAFETY: the queue lives as long as `self`; that the port is not used longer is the caller's
        // promise.
        unsafe { sys::shared_receives::SharedRecvOp::new(self.srq) }.map(SharedRecvPort::new)
    }

    /// Destroys it, when this is the last handle, and so no queue pair is left on it; gives the handle back
    /// otherwise. From then on no device touches the memory of receives that were posted.
    ///
    /// # Errors
    ///
    /// The handle, when it is not the last.
    #[doc(alias = "ibv_destroy_srq")]
    #[doc(alias = "rdma_destroy_srq")]
    pub fn destroy(self: Arc<Self>) -> Result<(), Arc<Self>> {
        // There are no weak handles, so the last one cannot be copied any more.
        Arc::try_unwrap(self).map(drop)
    }

    pub(crate) fn srq(&self) -> SrqPtr {
        self.srq
    }
}

impl fmt::Debug for SharedReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReceiveQueue")
            .field("depth", &self.depth)
            .field("granted", &self.granted)
            .field("sges", &self.sges)
            .finish_non_exhaustive()
    }
}

impl Drop for SharedReceiveQueue {
    fn drop(&mut self) {
        // SAFETY: queue pairs hold the queue, so none is left, and ports are not used any more
        // (`recv_port`).
        let _ = unsafe { sys::shared_receives::destroy_srq(self.srq) };
        self.completions.release(self.depth);
    }
}

/// Where a queue pair takes its receives from: a queue of its own, which completes on the completion queue
/// that is given, or a shared one.
#[derive(Clone, Copy, Debug)]
pub struct Receives<'a>(Source<'a>);

#[derive(Clone, Copy, Debug)]
enum Source<'a> {
    Own(&'a Arc<CompletionQueue>),
    Shared(&'a Arc<SharedReceiveQueue>),
}

impl<'a> Receives<'a> {
    pub(crate) fn completions(self) -> &'a Arc<CompletionQueue> {
        match self.0 {
            Source::Own(completions) => completions,
            Source::Shared(shared) => shared.completions(),
        }
    }

    pub(crate) const fn shared(self) -> Option<&'a Arc<SharedReceiveQueue>> {
        match self.0 {
            Source::Own(_) => None,
            Source::Shared(shared) => Some(shared),
        }
    }
}

impl<'a> From<&'a Arc<CompletionQueue>> for Receives<'a> {
    fn from(completions: &'a Arc<CompletionQueue>) -> Self {
        Self(Source::Own(completions))
    }
}

impl<'a> From<&'a Arc<SharedReceiveQueue>> for Receives<'a> {
    fn from(shared: &'a Arc<SharedReceiveQueue>) -> Self {
        Self(Source::Shared(shared))
    }
}
