//! The connecting side, first half: find the device and the way, make a queue pair.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::listen_options::no_device;
use super::{AckTimeout, CmId, EventChannel, EventKind, Outgoing, Step, Token};
use crate::sys::CallError;
use crate::sys::cm::{IdOption, Space};
use crate::{
    CompletionQueue, Deadline, Device, ProtectionDomain, QueuePair, QueuePairError,
    QueuePairOptions, Receives,
};

/// How to reach a peer.
#[derive(Clone, Debug, Default)]
#[must_use = "nothing is resolved until `resolve` is called"]
pub struct Connector {
    source: Option<SocketAddr>,
    tos: Option<u8>,
    ack_timeout: Option<AckTimeout>,
    reuse_addr: bool,
    channel: Option<EventChannel>,
}

impl Connector {
    /// From whichever address the system's routes choose.
    pub const fn new() -> Self {
        Self { source: None, tos: None, ack_timeout: None, reuse_addr: false, channel: None }
    }

    /// From `source`, which picks the device when there are several on the way.
    pub const fn from_addr(mut self, source: SocketAddr) -> Self {
        self.source = Some(source);
        self
    }

    /// With this type of service (RFC 2474), which the network may prefer or not.
    #[doc(alias = "RDMA_OPTION_ID_TOS")]
    #[doc(alias = "rdma_set_option")]
    pub const fn tos(mut self, tos: u8) -> Self {
        self.tos = Some(tos);
        self
    }

    /// With this acknowledge timeout; [`ConnectParams`](super::ConnectParams) may still change it.
    #[doc(alias = "rdma_set_option")]
    pub const fn ack_timeout(mut self, timeout: AckTimeout) -> Self {
        self.ack_timeout = Some(timeout);
        self
    }

    /// Also when the port of the source is used by somebody else who says the same.
    #[doc(alias = "RDMA_OPTION_ID_REUSEADDR")]
    #[doc(alias = "rdma_set_option")]
    pub const fn reuse_addr(mut self) -> Self {
        self.reuse_addr = true;
        self
    }

    /// On `channel`, beside other steps, instead of one of its own; so is what becomes of it.
    pub fn on(mut self, channel: &EventChannel) -> Self {
        self.channel = Some(channel.clone());
        self
    }

    /// Finds the device and the way to `peer`. Blocks until it is found.
    ///
    /// That there is a way does not mean that anybody listens.
    ///
    /// # Errors
    ///
    /// [`ResolveError`] says what is wrong with the address, or with this machine.
    pub fn resolve(
        self,
        peer: SocketAddr,
        deadline: impl Into<Deadline>,
    ) -> Result<Route, ResolveError> {
        let deadline = deadline.into();
        self.start(peer, deadline)?.wait(deadline)
    }

    /// Begins to find the device and the way to `peer`, and returns at once. The kernel gives up at
    /// the deadline, or after a minute.
    ///
    /// # Errors
    ///
    /// As for [`resolve`](Self::resolve).
    #[doc(alias = "rdma_resolve_addr")]
    pub fn start(
        self,
        peer: SocketAddr,
        deadline: impl Into<Deadline>,
    ) -> Result<Resolving, ResolveError> {
        self.begin(Space::Connected, peer, deadline.into())
    }

    pub(super) fn begin(
        self,
        space: Space,
        peer: SocketAddr,
        deadline: Deadline,
    ) -> Result<Resolving, ResolveError> {
        let channel = match self.channel {
            Some(channel) => channel,
            None => EventChannel::new().map_err(ResolveError::NoConnectionManager)?,
        };
        let id = CmId::with_space(&channel, space).map_err(ResolveError::Call)?;
        let options = [
            self.tos.map(IdOption::Tos),
            self.ack_timeout.map(|timeout| IdOption::AckTimeout(timeout.to_code())),
            self.reuse_addr.then_some(IdOption::ReuseAddr(true)),
        ];
        for option in options.into_iter().flatten() {
            id.set(option).map_err(ResolveError::Call)?;
        }
        id.resolve_addr(self.source, peer, patience(deadline))
            .map_err(|error| ResolveError::from_call(peer, error))?;
        Ok(Resolving { id, peer, deadline })
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

/// A way to a peer that is being found.
///
/// Its descriptor is readable when [`poll`](Self::poll) may get further. Dropped, it is given up.
#[derive(Debug)]
pub struct Resolving {
    id: CmId,
    peer: SocketAddr,
    deadline: Deadline,
}

impl Resolving {
    pub(super) const fn id(&self) -> &CmId {
        &self.id
    }

    /// Its name on a shared channel.
    pub const fn token(&self) -> Token {
        self.id.token()
    }

    /// Goes as far as it can without blocking.
    ///
    /// # Errors
    ///
    /// As for [`Connector::resolve`].
    #[doc(alias = "rdma_resolve_route")]
    pub fn poll(self) -> Result<Step<Route, Self>, ResolveError> {
        let peer = self.peer;
        let failed = |call, status: i32| {
            ResolveError::from_call(peer, CallError::new(call, status.saturating_abs()))
        };
        while let Some(event) = self.id.next_event().map_err(ResolveError::Call)? {
            match event.kind {
                EventKind::AddressResolved => self
                    .id
                    .resolve_route(patience(self.deadline))
                    .map_err(|error| ResolveError::from_call(peer, error))?,
                EventKind::RouteResolved => return Route::new(self.id, peer).map(Step::Done),
                EventKind::AddressError => return Err(failed("rdma_resolve_addr", event.status)),
                EventKind::RouteError => return Err(failed("rdma_resolve_route", event.status)),
                EventKind::DeviceRemoved => return Err(ResolveError::DeviceRemoved),
                _ => {}
            }
        }
        Ok(Step::Pending(self))
    }

    /// Blocks until the way is found.
    ///
    /// # Errors
    ///
    /// As for [`Connector::resolve`].
    pub fn wait(mut self, deadline: impl Into<Deadline>) -> Result<Route, ResolveError> {
        let deadline = deadline.into();
        loop {
            self = match self.poll()? {
                Step::Done(route) => return Ok(route),
                Step::Pending(this) => this,
            };
            if !self.id.wait(deadline).map_err(ResolveError::Call)? {
                return Err(ResolveError::TimedOut { peer: self.peer });
            }
        }
    }
}

impl AsFd for Resolving {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.id.channel().as_fd()
    }
}

/// A way to a peer.
#[derive(Debug)]
pub struct Route {
    pub(super) id: Arc<CmId>,
    device: Arc<Device>,
    peer: SocketAddr,
}

impl Route {
    /// Its name on a shared channel.
    pub fn token(&self) -> Token {
        self.id.token()
    }

    fn new(id: CmId, peer: SocketAddr) -> Result<Self, ResolveError> {
        let id = Arc::new(id);
        let device = Device::of(&id)
            .map_err(ResolveError::Call)?
            .ok_or(ResolveError::NoRdmaDeviceForAddress { addr: peer })?;
        Ok(Self { id, device, peer })
    }

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

    /// Moves it to another channel, with the events that it has. Before it has a queue pair, because
    /// from then on other handles know where it is.
    ///
    /// # Errors
    ///
    /// What the kernel says; it stays where it was then.
    #[doc(alias = "rdma_migrate_id")]
    pub fn move_to(&mut self, channel: &EventChannel) -> Result<(), CallError> {
        super::id::move_to(&mut self.id, channel)
    }

    /// Makes the queue pair. Receives may be posted from here on.
    ///
    /// Its receives complete on a completion queue; in the place of that one goes a
    /// [`SharedReceiveQueue`](crate::SharedReceiveQueue) that it shall take them from.
    ///
    /// # Errors
    ///
    /// [`QueuePairError`] says which size or which device does not fit.
    #[doc(alias = "rdma_create_qp")]
    pub fn create_queue_pair<'r>(
        self,
        domain: &Arc<ProtectionDomain>,
        send_completions: &Arc<CompletionQueue>,
        receives: impl Into<Receives<'r>>,
        options: QueuePairOptions,
    ) -> Result<Outgoing, QueuePairError> {
        let queue_pair = QueuePair::new(
            &self.id,
            domain,
            send_completions,
            receives.into(),
            options,
            Space::Connected,
        )?;
        Ok(Outgoing::new(queue_pair, self))
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
    pub(super) fn from_call(addr: SocketAddr, error: CallError) -> Self {
        match error.errno() {
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
