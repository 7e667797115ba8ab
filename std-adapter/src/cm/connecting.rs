//! The connecting side, second half: post receives, connect.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::channel::Event;
use super::{
    ConnectParams, Connection, EventKind, OutOfRange, PrivateData, PrivateDataTooLong, ReadDepths,
    RnrTimer, Route, Step, Token,
};
use crate::sys::CallError;
use crate::sys::cm::{IdOption, RawParams};
use crate::{Deadline, QueuePair};

/// A way to a peer with a queue pair: post receives, then [`connect`](Self::connect).
#[derive(Debug)]
pub struct Outgoing {
    queue_pair: Arc<QueuePair>,
    route: Route,
}

impl Outgoing {
    pub(super) const fn new(queue_pair: Arc<QueuePair>, route: Route) -> Self {
        Self { queue_pair, route }
    }

    /// The queue pair, for its receive port. Keep a handle beside the queues that post to it.
    pub const fn queue_pair(&self) -> &Arc<QueuePair> {
        &self.queue_pair
    }

    /// Its name on a shared channel.
    pub fn token(&self) -> Token {
        self.route.token()
    }

    /// The way.
    pub const fn route(&self) -> &Route {
        &self.route
    }

    /// Connects, and blocks until the peer has agreed.
    ///
    /// # Errors
    ///
    /// [`ConnectError`]; there is no connection then, and the queue pair's other handles are to be
    /// flushed ([`QueuePair::to_error`]) and dropped.
    pub fn connect(
        self,
        params: &ConnectParams,
        deadline: impl Into<Deadline>,
    ) -> Result<Connection, ConnectError> {
        self.start(params)?.wait(deadline)
    }

    /// Asks the peer, and returns at once.
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect).
    #[doc(alias = "rdma_connect")]
    pub fn start(self, params: &ConnectParams) -> Result<Connecting, ConnectError> {
        let Self { queue_pair, route } = self;
        let private_data = params
            .private_data
            .within(PrivateData::MAX_CONNECT)
            .map_err(ConnectError::PrivateDataTooLong)?;
        let asked = params.reads_on(route.device().limits()).map_err(ConnectError::ReadDepth)?;
        if let Some(timeout) = params.ack_timeout {
            route.id.set(IdOption::AckTimeout(timeout.to_code())).map_err(ConnectError::Call)?;
        }
        let (qp_num, has_srq) = queue_pair.apart().unwrap_or_default();
        let raw = RawParams {
            private_data,
            responder_resources: asked.reads_in,
            initiator_depth: asked.reads_out,
            retry_count: params.retry.code(),
            rnr_retry_count: params.rnr_retry.code(),
            qp_num,
            has_srq,
        };
        // SAFETY: a `Route` has one, and `queue_pair` was made on its identifier, or is in the parameters.
        unsafe { route.id.connect(raw) }.map_err(ConnectError::Call)?;
        Ok(Connecting { queue_pair, route, asked, rnr_timer: params.rnr_timer })
    }
}

/// A connection that the peer was asked for.
///
/// Its descriptor is readable when [`poll`](Self::poll) may get further. Dropped, it is given up as
/// soon as the last handle of its queue pair is gone.
#[derive(Debug)]
pub struct Connecting {
    queue_pair: Arc<QueuePair>,
    route: Route,
    asked: ReadDepths,
    rnr_timer: RnrTimer,
}

impl Connecting {
    /// Its name on a shared channel.
    pub fn token(&self) -> Token {
        self.route.token()
    }

    /// The queue pair.
    pub const fn queue_pair(&self) -> &Arc<QueuePair> {
        &self.queue_pair
    }

    /// The connection, when the peer has agreed. Never blocks.
    ///
    /// # Errors
    ///
    /// As for [`Outgoing::connect`].
    pub fn poll(self) -> Result<Step<Connection, Self>, ConnectError> {
        let peer = self.route.peer_addr();
        while let Some(event) = self.route.id.next_event().map_err(ConnectError::Call)? {
            match event.kind {
                EventKind::Established => return Ok(Step::Done(self.stands(&event))),
                // Of a queue pair that it does not know, librdmacm leaves it to us to say so.
                EventKind::ConnectResponse if self.queue_pair.apart().is_some() => {
                    self.establish().map_err(ConnectError::Call)?;
                    return Ok(Step::Done(self.stands(&event)));
                }
                EventKind::DeviceRemoved => {
                    self.queue_pair.domain().device().note_removed();
                    return Err(ConnectError::from_event(peer, &event));
                }
                EventKind::Rejected
                | EventKind::ConnectError
                | EventKind::Unreachable
                | EventKind::Disconnected => return Err(ConnectError::from_event(peer, &event)),
                _ => {}
            }
        }
        Ok(Step::Pending(self))
    }

    /// Makes a queue pair that was made apart ready, and tells the peer.
    fn establish(&self) -> Result<(), CallError> {
        self.queue_pair.make_ready(self.rnr_timer, None)?;
        // SAFETY: the peer has answered, and the queue pair is not on the identifier.
        unsafe { self.route.id.establish() }
    }

    fn stands(self, answer: &Event) -> Connection {
        let peer = self.route.peer_addr();
        let agreed = ReadDepths { reads_out: answer.reads_out, reads_in: answer.reads_in };
        Connection::new(
            self.route.id,
            self.queue_pair,
            peer,
            self.asked.min(agreed),
            answer.private_data,
            self.rnr_timer,
        )
    }

    /// Blocks until the peer has agreed.
    ///
    /// # Errors
    ///
    /// As for [`Outgoing::connect`].
    pub fn wait(mut self, deadline: impl Into<Deadline>) -> Result<Connection, ConnectError> {
        let deadline = deadline.into();
        loop {
            self = match self.poll()? {
                Step::Done(connection) => return Ok(connection),
                Step::Pending(this) => this,
            };
            if !self.route.id.wait(deadline).map_err(ConnectError::Call)? {
                return Err(ConnectError::TimedOut { peer: self.route.peer_addr() });
            }
        }
    }
}

impl AsFd for Connecting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.route.id.channel().as_fd()
    }
}

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
