//! The accepting side, first half: bind, take a request, make a queue pair.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::{
    BindError, CmId, EventChannel, EventKind, Incoming, ListenOptions, PrivateData,
    PrivateDataTooLong, ReadDepths, Token, VendorOptions,
};
use crate::sys::CallError;
use crate::sys::cm::Space;
use crate::trace::say;
use crate::{
    CompletionQueue, Deadline, Device, ProtectionDomain, QueuePair, QueuePairError,
    QueuePairOptions, Receives,
};

/// Waits for peers that want to connect.
///
/// Its descriptor is readable when [`poll_request`](Self::poll_request) may have one.
#[derive(Debug)]
pub struct Listener {
    id: Arc<CmId>,
    local: SocketAddr,
    /// Whether requests stay on the listener's channel.
    shares: bool,
}

impl Listener {
    /// Listens on `addr`: the address of an interface that has an RDMA device, or the unspecified
    /// address for all of them. Port 0 lets the system choose; see
    /// [`local_addr`](Self::local_addr). [`ListenOptions`] has what else can be said.
    ///
    /// # Errors
    ///
    /// [`BindError`] says what is wrong with the address, or with this machine.
    #[doc(alias = "rdma_bind_addr")]
    #[doc(alias = "rdma_listen")]
    pub fn bind(addr: SocketAddr) -> Result<Self, BindError> {
        ListenOptions::new().bind(addr)
    }

    pub(super) fn new(id: CmId, local: SocketAddr, shares: bool) -> Self {
        Self { id: Arc::new(id), local, shares }
    }

    /// The device that has its address; `None` when it listens on all of them.
    ///
    /// # Errors
    ///
    /// What the device says.
    pub fn device(&self) -> Result<Option<Arc<Device>>, CallError> {
        Device::of(&self.id)
    }

    /// Its name on a shared channel.
    pub fn token(&self) -> Token {
        self.id.token()
    }

    /// The address that it listens on, with the port that the system chose.
    #[doc(alias = "rdma_get_src_port")]
    pub const fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Blocks until a peer wants to connect.
    ///
    /// # Errors
    ///
    /// [`ListenError::TimedOut`] when the deadline passed first. A request that could not be taken
    /// is refused and reported; the listener goes on.
    #[doc(alias = "rdma_get_request")]
    pub fn accept(&self, deadline: impl Into<Deadline>) -> Result<Request, ListenError> {
        let deadline = deadline.into();
        loop {
            if let Some(request) = self.poll_request()? {
                return Ok(request);
            }
            if !self.id.wait(deadline).map_err(ListenError::Call)? {
                return Err(ListenError::TimedOut);
            }
        }
    }

    /// A peer that wants to connect; `None` when there is none just now. Never blocks.
    ///
    /// # Errors
    ///
    /// As for [`accept`](Self::accept).
    pub fn poll_request(&self) -> Result<Option<Request>, ListenError> {
        while let Some(event) = self.id.next_event().map_err(ListenError::Call)? {
            match (event.kind, event.request) {
                (EventKind::ConnectRequest, Some(id)) => {
                    let data = event.private_data.unwrap_or(PrivateData::empty());
                    let offered =
                        ReadDepths { reads_out: event.reads_out, reads_in: event.reads_in };
                    let request = Request::new(id, data, offered, self.shares)?;
                    say!(debug, "a peer asks", peer = request.peer, local = self.local);
                    return Ok(Some(request));
                }
                (EventKind::DeviceRemoved, _) => return Err(ListenError::DeviceRemoved),
                // Requests that were given up, and what else the kernel has to say of a listener.
                _ => {}
            }
        }
        Ok(None)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.id.channel().as_fd()
    }
}

/// A peer that wants to connect. Dropped, it is refused.
#[derive(Debug)]
pub struct Request {
    pub(super) id: Arc<CmId>,
    device: Arc<Device>,
    peer: SocketAddr,
    data: PrivateData,
    offered: ReadDepths,
}

impl Request {
    fn new(
        mut id: CmId,
        data: PrivateData,
        offered: ReadDepths,
        shares: bool,
    ) -> Result<Self, ListenError> {
        if !shares {
            // Its own channel, so that its events wake nobody else.
            let channel = EventChannel::new().map_err(ListenError::Call)?;
            id.migrate(channel).map_err(ListenError::Call)?;
        }
        let id = Arc::new(id);
        let device = Device::of(&id).map_err(ListenError::Call)?;
        let (Some(device), Some(peer)) = (device, id.peer_addr()) else {
            return Err(ListenError::NoDevice);
        };
        Ok(Self { id, device, peer, data, offered })
    }

    /// The address of the peer.
    #[doc(alias = "rdma_get_peer_addr")]
    #[doc(alias = "rdma_get_dst_port")]
    pub const fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// Its name on a shared channel.
    pub fn token(&self) -> Token {
        self.id.token()
    }

    /// The address of this end.
    #[doc(alias = "rdma_get_local_addr")]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.id.local_addr()
    }

    /// The vendor's options that the peer offers; `None` when it offers none. What this side offers is
    /// its queue pair's own: librdmacm sends it along, and gives the queue pair what came of it.
    #[doc(alias = "rdma_get_remote_ece")]
    #[doc(alias = "rdma_set_local_ece")]
    pub fn offered_options(&self) -> Option<VendorOptions> {
        self.id.remote_ece()
    }

    /// Moves it to another channel, with the events that it has: to hand a connection over to the
    /// thread that will serve it. Before it has a queue pair, because from then on other handles know
    /// where it is.
    ///
    /// # Errors
    ///
    /// What the kernel says; it stays where it was then.
    #[doc(alias = "rdma_migrate_id")]
    pub fn move_to(&mut self, channel: &EventChannel) -> Result<(), CallError> {
        super::id::move_to(&mut self.id, channel)
    }

    /// What the peer sent along.
    pub const fn private_data(&self) -> &PrivateData {
        &self.data
    }

    /// The READs that the peer offers: `reads_in` of its own, `reads_out` of this side's that it
    /// will serve.
    pub const fn offered_reads(&self) -> ReadDepths {
        self.offered
    }

    /// The device that the request came in on.
    pub const fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Makes the queue pair. Receives may be posted from here on.
    ///
    /// Its receives complete on a completion queue; in the place of that one goes a
    /// [`SharedReceiveQueue`](crate::SharedReceiveQueue) that it shall take them from.
    ///
    /// # Errors
    ///
    /// [`QueuePairError`] says which size or which device does not fit; the peer is refused then.
    #[doc(alias = "rdma_create_qp")]
    pub fn create_queue_pair<'r>(
        self,
        domain: &Arc<ProtectionDomain>,
        send_completions: &Arc<CompletionQueue>,
        receives: impl Into<Receives<'r>>,
        options: QueuePairOptions,
    ) -> Result<Incoming, QueuePairError> {
        let queue_pair = QueuePair::new(
            &self.id,
            domain,
            send_completions,
            receives.into(),
            options,
            Space::Connected,
        )?;
        Ok(Incoming::new(queue_pair, self))
    }

    /// Refuses, and says why in bytes of its own.
    ///
    /// # Errors
    ///
    /// [`RejectError::PrivateDataTooLong`] beyond [`PrivateData::MAX_REJECT`] bytes; the peer is
    /// refused all the same.
    #[doc(alias = "rdma_reject")]
    pub fn reject(self, private_data: &[u8]) -> Result<(), RejectError> {
        let max = PrivateData::MAX_REJECT;
        let given = private_data.len();
        if given > max {
            return Err(RejectError::PrivateDataTooLong(PrivateDataTooLong { given, max }));
        }
        self.id.reject(private_data).map_err(RejectError::Call)
    }

    /// Refuses because of the vendor's options that the peer offers.
    ///
    /// # Errors
    ///
    /// As for [`reject`](Self::reject).
    #[doc(alias = "rdma_reject_ece")]
    pub fn reject_options(self, private_data: &[u8]) -> Result<(), RejectError> {
        let max = PrivateData::MAX_REJECT;
        let given = private_data.len();
        if given > max {
            return Err(RejectError::PrivateDataTooLong(PrivateDataTooLong { given, max }));
        }
        self.id.reject_ece(private_data).map_err(RejectError::Call)
    }
}

/// No request could be taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum ListenError {
    /// None came before the deadline.
    TimedOut,
    /// The device is being removed.
    DeviceRemoved,
    /// A request came in on a device that cannot be used from here; it was refused.
    NoDevice,
    /// The kernel says no; a request that had come was refused.
    Call(CallError),
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut => f.write_str("no peer asked for a connection before the deadline"),
            Self::DeviceRemoved => f.write_str("the RDMA device is being removed"),
            Self::NoDevice => {
                f.write_str("a request came in on a device that libibverbs does not know")
            }
            Self::Call(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ListenError {}

/// A refusal could not be sent as it was meant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum RejectError {
    /// There is more private data than fits.
    PrivateDataTooLong(PrivateDataTooLong),
    /// The kernel says no, most often because the peer is gone.
    Call(CallError),
}

impl fmt::Display for RejectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PrivateDataTooLong(error) => error.fmt(f),
            Self::Call(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RejectError {}
