//! The accepting side, first half: bind, take a request, make a queue pair.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::{CmId, EventChannel, EventKind, Incoming, PrivateData, PrivateDataTooLong, ReadDepths};
use crate::sys::{self, CallError};
use crate::{
    CompletionQueue, Deadline, Device, ProtectionDomain, QueuePair, QueuePairError,
    QueuePairOptions,
};

/// Waits for peers that want to connect.
///
/// Its descriptor is readable when [`poll_request`](Self::poll_request) may have one.
#[derive(Debug)]
pub struct Listener {
    id: CmId,
    local: SocketAddr,
}

impl Listener {
    /// Requests that may wait to be taken.
    const BACKLOG: i32 = 128;

    /// Listens on `addr`: the address of an interface that has an RDMA device, or the unspecified
    /// address for all of them. Port 0 lets the system choose; see
    /// [`local_addr`](Self::local_addr).
    ///
    /// # Errors
    ///
    /// [`BindError`] says what is wrong with the address, or with this machine.
    #[doc(alias = "rdma_bind_addr")]
    #[doc(alias = "rdma_listen")]
    pub fn bind(addr: SocketAddr) -> Result<Self, BindError> {
        let channel = EventChannel::new().map_err(BindError::NoConnectionManager)?;
        let id = CmId::new(&channel).map_err(BindError::Call)?;
        id.bind(addr).map_err(|error| BindError::from_call(addr, error))?;
        // An address that no device has is found by now; 127.0.0.1 counts as any address to the
        // kernel, and nothing would ever arrive on it.
        if !addr.ip().is_unspecified() && id.context().is_none() {
            return Err(BindError::NoRdmaDeviceForAddress { addr });
        }
        id.listen(Self::BACKLOG).map_err(|error| BindError::from_call(addr, error))?;
        let local = id.local_addr().unwrap_or(addr);
        Ok(Self { id, local })
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
            let [readable] =
                sys::wait_readable([self.as_fd()], deadline).map_err(ListenError::Call)?;
            if !readable {
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
        while let Some(event) = self.id.channel().next_event().map_err(ListenError::Call)? {
            match (event.kind, event.request) {
                (EventKind::ConnectRequest, Some(id)) => {
                    let data = event.private_data.unwrap_or(PrivateData::empty());
                    let offered =
                        ReadDepths { reads_out: event.reads_out, reads_in: event.reads_in };
                    return Request::new(id, data, offered).map(Some);
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
    fn new(mut id: CmId, data: PrivateData, offered: ReadDepths) -> Result<Self, ListenError> {
        // Its own channel, so that its events wake nobody else.
        let channel = EventChannel::new().map_err(ListenError::Call)?;
        id.migrate(channel).map_err(ListenError::Call)?;
        let id = Arc::new(id);
        let device = Device::of(&id).map_err(ListenError::Call)?;
        let (Some(device), Some(peer)) = (device, id.peer_addr()) else {
            return Err(ListenError::NoDevice);
        };
        Ok(Self { id, device, peer, data, offered })
    }

    /// The address of the peer.
    #[doc(alias = "rdma_get_peer_addr")]
    pub const fn peer_addr(&self) -> SocketAddr {
        self.peer
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
    /// # Errors
    ///
    /// [`QueuePairError`] says which size or which device does not fit; the peer is refused then.
    #[doc(alias = "rdma_create_qp")]
    pub fn create_queue_pair(
        self,
        domain: &Arc<ProtectionDomain>,
        send_completions: &Arc<CompletionQueue>,
        recv_completions: &Arc<CompletionQueue>,
        options: QueuePairOptions,
    ) -> Result<Incoming, QueuePairError> {
        let queue_pair =
            QueuePair::new(&self.id, domain, send_completions, recv_completions, options)?;
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
}

/// An address cannot be listened on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum BindError {
    /// This machine has no connection manager.
    NoConnectionManager(CallError),
    /// No RDMA device has this address.
    NoRdmaDeviceForAddress {
        /// The address.
        addr: SocketAddr,
    },
    /// Somebody listens there already.
    AddressInUse {
        /// The address.
        addr: SocketAddr,
    },
    /// This machine does not have the address, or it lacks its scope.
    NotOurAddress {
        /// The address.
        addr: SocketAddr,
    },
    /// The port is reserved for the administrator.
    NotPermitted {
        /// The address.
        addr: SocketAddr,
    },
    /// The kernel says no.
    Call(CallError),
}

impl BindError {
    pub(super) fn from_call(addr: SocketAddr, error: CallError) -> Self {
        match error.errno() {
            libc::EADDRINUSE => Self::AddressInUse { addr },
            libc::ENODEV => Self::NoRdmaDeviceForAddress { addr },
            libc::EADDRNOTAVAIL | libc::EINVAL => Self::NotOurAddress { addr },
            libc::EACCES => Self::NotPermitted { addr },
            _ => Self::Call(error),
        }
    }
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoConnectionManager(error) | Self::Call(error) => error.fmt(f),
            Self::NoRdmaDeviceForAddress { addr } => no_device(f, *addr),
            Self::AddressInUse { addr } => {
                write!(f, "{addr} is in use; choose another port, or stop who listens there")
            }
            Self::NotOurAddress { addr } => write!(
                f,
                "this machine does not have the address {addr}; `ip addr` shows those it has, and \
                 a link-local address needs its interface behind a %"
            ),
            Self::NotPermitted { addr } => {
                write!(f, "this user may not listen on {addr}; choose a port above 1023")
            }
        }
    }
}

impl std::error::Error for BindError {}

pub(super) fn no_device(f: &mut fmt::Formatter<'_>, addr: SocketAddr) -> fmt::Result {
    let ip = addr.ip();
    write!(f, "no RDMA device has the address {ip}; ")?;
    if ip.is_loopback() {
        f.write_str("use the address of the RDMA interface itself, also on the same machine")
    } else {
        f.write_str("`rdma link` and `ip addr` show which addresses have one")
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
