//! An established connection.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{CmId, EventKind, PrivateData, ReadDepths, RnrTimer, Token};
use crate::sys::CallError;
use crate::trace::say;
use crate::{Deadline, QueuePair};

/// An established connection: what the connection manager knows of it, and a handle of its queue
/// pair.
///
/// Its descriptor is readable when [`poll_event`](Self::poll_event) has something to say. Dropped,
/// it disconnects; the queue pair is destroyed with its last handle.
///
/// Nobody notices a peer that falls silent on an idle connection: only posted requests do.
#[derive(Debug)]
pub struct Connection {
    id: Arc<CmId>,
    queue_pair: Arc<QueuePair>,
    peer: SocketAddr,
    local: SocketAddr,
    reads: ReadDepths,
    private_data: Option<PrivateData>,
    rnr_timer: Option<RnrTimer>,
    ended: AtomicBool,
    /// It ended with its device, before a goodbye came.
    removed: AtomicBool,
}

/// What becomes of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum ConnectionEvent {
    /// It has ended, from whichever side. The queue pair is in the error state from here on, and
    /// everything in it is flushed.
    Disconnected,
    /// The way to the peer was lost. Requests under way decide whether it is the end.
    Unreachable,
    /// The device is being removed. The queue pair is in the error state; drop everything that was
    /// made on the device.
    DeviceRemoved,
    /// Something else, which ends nothing.
    Other(EventKind),
}

impl Connection {
    pub(super) fn new(
        id: Arc<CmId>,
        queue_pair: Arc<QueuePair>,
        peer: SocketAddr,
        reads: ReadDepths,
        private_data: Option<PrivateData>,
        rnr_timer: RnrTimer,
    ) -> Self {
        // A device that does not let it be lowered keeps the long timer: slow, and nothing worse.
        let has_timer = queue_pair.is_moved_here() || queue_pair.set_rnr_timer(rnr_timer).is_ok();
        let rnr_timer = has_timer.then_some(rnr_timer);
        let local = id.local_addr().unwrap_or(peer);
        say!(
            info,
            "connected",
            peer = peer,
            local = local,
            queue_pair = queue_pair.number().to_raw(),
            reads_out = reads.reads_out,
            reads_in = reads.reads_in,
        );
        let (ended, removed) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { id, queue_pair, peer, local, reads, private_data, rnr_timer, ended, removed }
    }

    /// The address of the other end.
    #[doc(alias = "rdma_get_peer_addr")]
    #[doc(alias = "rdma_get_dst_port")]
    pub const fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// The address of this end.
    #[doc(alias = "rdma_get_local_addr")]
    #[doc(alias = "rdma_get_src_port")]
    pub const fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Its name on a shared channel.
    pub fn token(&self) -> Token {
        self.id.token()
    }

    /// The queue pair.
    pub const fn queue_pair(&self) -> &Arc<QueuePair> {
        &self.queue_pair
    }

    /// How many READs were agreed on, each way.
    pub const fn reads(&self) -> ReadDepths {
        self.reads
    }

    /// What the peer sent along with its request or its answer; `None` when it could send nothing.
    pub const fn private_data(&self) -> Option<&PrivateData> {
        self.private_data.as_ref()
    }

    /// How long the peer waits when no receive is posted here; `None` when the device does not let
    /// it be lowered from the connection manager's 655 ms.
    pub const fn rnr_timer(&self) -> Option<RnrTimer> {
        self.rnr_timer
    }

    /// Whether it has ended, as far as events were taken.
    pub fn has_ended(&self) -> bool {
        // Relaxed: it says nothing about other memory.
        self.ended.load(Ordering::Relaxed)
    }

    /// Whether it has ended by a goodbye, as far as events were taken.
    pub(crate) fn said_goodbye(&self) -> bool {
        // Relaxed: as in `has_ended`.
        self.has_ended() && !self.removed.load(Ordering::Relaxed)
    }

    /// What has become of it since the last call; `None` when nothing has. Never blocks.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    #[doc(alias = "rdma_get_cm_event")]
    pub fn poll_event(&self) -> Result<Option<ConnectionEvent>, CallError> {
        if let Some(event) = self.id.next_event()? {
            return match event.kind {
                EventKind::Disconnected => {
                    self.end()?;
                    Ok(Some(ConnectionEvent::Disconnected))
                }
                EventKind::DeviceRemoved => {
                    // Relaxed: as in `has_ended`.
                    self.removed.fetch_or(!self.has_ended(), Ordering::Relaxed);
                    self.queue_pair.domain().device().note_removed();
                    // The device may be past saying anything; what matters was tried.
                    let _ = self.end();
                    Ok(Some(ConnectionEvent::DeviceRemoved))
                }
                EventKind::Unreachable => {
                    say!(warn, "the way to the peer was lost", peer = self.peer);
                    Ok(Some(ConnectionEvent::Unreachable))
                }
                other => Ok(Some(ConnectionEvent::Other(other))),
            };
        }
        Ok(None)
    }

    /// Blocks until it has ended; `false` when the deadline passed first.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn wait_ended(&self, deadline: impl Into<Deadline>) -> Result<bool, CallError> {
        let deadline = deadline.into();
        loop {
            while self.poll_event()?.is_some() {}
            if self.has_ended() {
                return Ok(true);
            }
            if !self.id.wait(deadline)? {
                return Ok(false);
            }
        }
    }

    /// Ends it: moves the queue pair to the error state, which flushes what is in it, and tells the
    /// peer. Returns at once; what was flushed comes out of the completion queues. May be repeated.
    ///
    /// # Errors
    ///
    /// What the device says, when the queue pair could not be moved. That the peer could not be
    /// told is no error.
    #[doc(alias = "rdma_disconnect")]
    pub fn disconnect(&self) -> Result<(), CallError> {
        if self.queue_pair.is_moved_here() {
            // As librdmacm does with its own: before the peer is told.
            let moved = self.queue_pair.to_error();
            let _ = self.id.disconnect();
            return moved;
        }
        if self.id.disconnect().is_ok() {
            return Ok(());
        }
        // The peer was faster, or is gone, or the device is.
        self.queue_pair.to_error()
    }

    fn end(&self) -> Result<(), CallError> {
        // Relaxed: as in `has_ended`.
        if !self.ended.swap(true, Ordering::Relaxed) {
            say!(info, "connection ended", peer = self.peer, local = self.local);
        }
        // A peer's end leaves the queue pair here as it was, and its receives in it.
        self.queue_pair.to_error()
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.id.channel().as_fd()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.queue_pair.domain().device().is_parents() {
            return;
        }
        // There is nobody to tell; the identifier's end says the same to the peer.
        let _ = self.disconnect();
    }
}
