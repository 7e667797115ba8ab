//! The connecting side: resolve, make a queue pair, post receives, connect.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use super::listener::no_device;
use super::{
    CmId, ConnectParams, Connection, Event, EventChannel, EventKind, OutOfRange, PrivateData,
    PrivateDataTooLong, ReadDepths,
};
use crate::sys::CallError;
use crate::sys::cm::RawParams;
use crate::{
    CompletionQueue, Deadline, Device, ProtectionDomain, QueuePair, QueuePairError,
    QueuePairOptions,
};

/// How to reach a peer.
#[derive(Clone, Copy, Debug, Default)]
#[must_use = "nothing is resolved until `resolve` is called"]
pub struct Connector {
    source: Option<SocketAddr>,
}

impl Connector {
    /// From whichever address the system's routes choose.
    pub const fn new() -> Self {
        Self { source: None }
    }

    /// From `source`, which picks the device when there are several on the way.
    pub const fn from_addr(mut self, source: SocketAddr) -> Self {
        self.source = Some(source);
        self
    }

    /// Finds the device and the way to `peer`. Blocks until it is found.
    ///
    /// That there is a way does not mean that anybody listens.
    ///
    /// # Errors
    ///
    /// [`ResolveError`] says what is wrong with the address, or with this machine.
    #[doc(alias = "rdma_resolve_addr")]
    #[doc(alias = "rdma_resolve_route")]
    pub fn resolve(
        self,
        peer: SocketAddr,
        deadline: impl Into<Deadline>,
    ) -> Result<Route, ResolveError> {
        let deadline = deadline.into();
        let channel = EventChannel::new().map_err(ResolveError::NoConnectionManager)?;
        let id = CmId::new(&channel).map_err(ResolveError::Call)?;
        id.resolve_addr(self.source, peer, patience(deadline))
            .map_err(|error| ResolveError::from_errno(peer, error.errno(), error))?;
        wait_resolved(&id, peer, EventKind::AddressResolved, deadline)?;
        id.resolve_route(patience(deadline))
            .map_err(|error| ResolveError::from_errno(peer, error.errno(), error))?;
        wait_resolved(&id, peer, EventKind::RouteResolved, deadline)?;
        let id = Arc::new(id);
        let device = Device::of(&id)
            .map_err(ResolveError::Call)?
            .ok_or(ResolveError::NoRdmaDeviceForAddress { addr: peer })?;
        Ok(Route { id, device, peer })
    }
}

/// The time left, as the kernel wants it: milliseconds, at least one.
fn patience(deadline: Deadline) -> i32 {
    match deadline.millis() {
        // The kernel's own patience has to end some time; the events say when it did.
        -1 => 60_000,
        millis => millis.max(1),
    }
}

fn wait_resolved(
    id: &CmId,
    peer: SocketAddr,
    wanted: EventKind,
    deadline: Deadline,
) -> Result<(), ResolveError> {
    loop {
        let event = id.channel().wait_event(deadline).map_err(ResolveError::Call)?;
        let Some(event) = event else { return Err(ResolveError::TimedOut { peer }) };
        match event.kind {
            kind if kind == wanted => return Ok(()),
            EventKind::AddressError | EventKind::RouteError => {
                let errno = event.status.saturating_abs();
                let error = CallError::new(
                    if event.kind == EventKind::AddressError {
                        "rdma_resolve_addr"
                    } else {
                        "rdma_resolve_route"
                    },
                    errno,
                );
                return Err(ResolveError::from_errno(peer, errno, error));
            }
            EventKind::DeviceRemoved => return Err(ResolveError::DeviceRemoved),
            _ => {}
        }
    }
}

/// A way to a peer.
#[derive(Debug)]
pub struct Route {
    id: Arc<CmId>,
    device: Arc<Device>,
    peer: SocketAddr,
}

impl Route {
    /// The address of the peer.
    pub const fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// The address of this end.
    #[doc(alias = "rdma_get_local_addr")]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.id.local_addr()
    }

    /// The device that leads there.
    pub const fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Makes the queue pair. Receives may be posted from here on.
    ///
    /// # Errors
    ///
    /// [`QueuePairError`] says which size or which device does not fit.
    #[doc(alias = "rdma_create_qp")]
    pub fn create_queue_pair(
        self,
        domain: &Arc<ProtectionDomain>,
        send_completions: &Arc<CompletionQueue>,
        recv_completions: &Arc<CompletionQueue>,
        options: QueuePairOptions,
    ) -> Result<Outgoing, QueuePairError> {
        let queue_pair =
            QueuePair::new(&self.id, domain, send_completions, recv_completions, options)?;
        Ok(Outgoing { queue_pair, route: self })
    }
}

/// A way to a peer with a queue pair: post receives, then [`connect`](Self::connect).
#[derive(Debug)]
pub struct Outgoing {
    queue_pair: Arc<QueuePair>,
    route: Route,
}

impl Outgoing {
    /// The queue pair, for its receive port. Keep a handle beside the queues that post to it.
    pub const fn queue_pair(&self) -> &Arc<QueuePair> {
        &self.queue_pair
    }

    /// The way.
    pub const fn route(&self) -> &Route {
        &self.route
    }

    /// Connects, and blocks until the peer has agreed.
    ///
    /// # Errors
    ///
    /// [`ConnectError`]; there is no connection then, and the queue pair's other handles are to be flushed
    /// ([`QueuePair::to_error`]) and dropped.
    #[doc(alias = "rdma_connect")]
    pub fn connect(
        self,
        params: &ConnectParams,
        deadline: impl Into<Deadline>,
    ) -> Result<Connection, ConnectError> {
        let Self { queue_pair, route } = self;
        let Route { id, device, peer } = route;
        let private_data = params
            .private_data
            .within(PrivateData::MAX_CONNECT)
            .map_err(ConnectError::PrivateDataTooLong)?;
        let own = params.reads_on(device.limits()).map_err(ConnectError::ReadDepth)?;
        if let Some(timeout) = params.ack_timeout {
            id.set_ack_timeout(timeout.to_code()).map_err(ConnectError::Call)?;
        }
        let raw = RawParams {
            private_data,
            responder_resources: own.reads_in,
            initiator_depth: own.reads_out,
            retry_count: params.retry.code(),
            rnr_retry_count: params.rnr_retry.code(),
        };
        // SAFETY: a `Route` has one, and `queue_pair` was made on its identifier.
        unsafe { id.connect(raw) }.map_err(ConnectError::Call)?;
        let deadline = deadline.into();
        let event = loop {
            let event = id.channel().wait_event(deadline).map_err(ConnectError::Call)?;
            let Some(event) = event else { return Err(ConnectError::TimedOut { peer }) };
            match event.kind {
                EventKind::Established => break event,
                EventKind::Rejected
                | EventKind::ConnectError
                | EventKind::Unreachable
                | EventKind::Disconnected
                | EventKind::DeviceRemoved => return Err(ConnectError::from_event(peer, &event)),
                _ => {}
            }
        };
        let reads = own.min(ReadDepths { reads_out: event.reads_out, reads_in: event.reads_in });
        Ok(Connection::new(id, queue_pair, peer, reads, event.private_data, params))
    }
}

/// There is no way to a peer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum ResolveError {
    /// This machine has no connection manager.
    NoConnectionManager(CallError),
    /// No RDMA device leads to this address.
    NoRdmaDeviceForAddress {
        /// The address.
        addr: SocketAddr,
    },
    /// The network does not lead to this address.
    NoRoute {
        /// The address.
        addr: SocketAddr,
    },
    /// Nobody answered for this address before the deadline.
    TimedOut {
        /// The address.
        peer: SocketAddr,
    },
    /// The device is being removed.
    DeviceRemoved,
    /// The kernel says no.
    Call(CallError),
}

impl ResolveError {
    pub(super) fn from_errno(addr: SocketAddr, errno: i32, error: CallError) -> Self {
        match errno {
            libc::ENODEV | libc::EADDRNOTAVAIL => Self::NoRdmaDeviceForAddress { addr },
            libc::ENETUNREACH | libc::EHOSTUNREACH => Self::NoRoute { addr },
            libc::ETIMEDOUT => Self::TimedOut { peer: addr },
            _ => Self::Call(error),
        }
    }
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoConnectionManager(error) | Self::Call(error) => error.fmt(f),
            Self::NoRdmaDeviceForAddress { addr } if addr.ip().is_loopback() => no_device(f, *addr),
            Self::NoRdmaDeviceForAddress { addr } => write!(
                f,
                "no RDMA device leads to {}; `rdma link` and `ip route get` show what does",
                addr.ip()
            ),
            Self::NoRoute { addr } => write!(
                f,
                "the network does not lead to {}; `ip route get` shows which ways there are",
                addr.ip()
            ),
            Self::TimedOut { peer } => write!(
                f,
                "nobody answered for {} before the deadline; is that machine up?",
                peer.ip()
            ),
            Self::DeviceRemoved => f.write_str("the RDMA device is being removed"),
        }
    }
}

impl std::error::Error for ResolveError {}

/// There is no connection to a peer.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum ConnectError {
    /// There is more private data than fits.
    PrivateDataTooLong(PrivateDataTooLong),
    /// The device cannot have so many READs under way.
    ReadDepth(OutOfRange),
    /// Nobody listens at this address.
    NobodyListens {
        /// The address.
        peer: SocketAddr,
    },
    /// The program that listens there has refused.
    Rejected {
        /// Its address.
        peer: SocketAddr,
        /// What it sent along.
        private_data: Option<Box<PrivateData>>,
    },
    /// The peer's side could not make the connection, for another reason.
    Refused {
        /// The address.
        peer: SocketAddr,
        /// The reason, as InfiniBand numbers them.
        reason: i32,
    },
    /// The peer does not answer.
    Unreachable {
        /// The address.
        peer: SocketAddr,
    },
    /// The deadline passed.
    TimedOut {
        /// The peer's address.
        peer: SocketAddr,
    },
    /// The connection ended, or failed, before it stood.
    Failed {
        /// The peer's address.
        peer: SocketAddr,
        /// What the kernel said.
        status: i32,
    },
    /// The device is being removed.
    DeviceRemoved,
    /// The kernel or the device says no.
    Call(CallError),
}

/// Nobody listens on the port, `IB_CM_REJ_INVALID_SERVICE_ID`.
const REASON_NO_LISTENER: i32 = 8;
/// A program said no, `IB_CM_REJ_CONSUMER_DEFINED`.
const REASON_PROGRAM: i32 = 28;

impl ConnectError {
    pub(super) fn from_event(peer: SocketAddr, event: &Event) -> Self {
        let status = event.status;
        match event.kind {
            EventKind::Rejected => match status {
                REASON_NO_LISTENER => Self::NobodyListens { peer },
                // iWARP has no reasons, only an error number.
                REASON_PROGRAM => {
                    Self::Rejected { peer, private_data: event.private_data.map(Box::new) }
                }
                s if s == -libc::ECONNREFUSED => Self::NobodyListens { peer },
                reason => Self::Refused { peer, reason },
            },
            EventKind::Unreachable => Self::Unreachable { peer },
            EventKind::DeviceRemoved => Self::DeviceRemoved,
            _ => Self::Failed { peer, status },
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PrivateDataTooLong(error) => error.fmt(f),
            Self::ReadDepth(error) => error.fmt(f),
            Self::NobodyListens { peer } => {
                write!(f, "nobody listens on {peer}; start the other side first")
            }
            Self::Rejected { peer, .. } => {
                write!(f, "the program on {peer} refused the connection")
            }
            Self::Refused { peer, reason } => {
                write!(f, "{peer} refused the connection (reason {reason})")
            }
            Self::Unreachable { peer } => {
                write!(f, "{peer} does not answer; is that machine up, and is the way there open?")
            }
            Self::TimedOut { peer } => {
                write!(f, "{peer} did not accept the connection before the deadline")
            }
            Self::Failed { peer, status } => {
                write!(f, "the connection to {peer} failed before it stood (status {status})")
            }
            Self::DeviceRemoved => f.write_str("the RDMA device is being removed"),
            Self::Call(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ConnectError {}
