//! The accepting side, second half: post receives, accept.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::{
    ConnectParams, Connection, EventKind, OutOfRange, PrivateData, PrivateDataTooLong, ReadDepths,
    RejectError, Request, RnrTimer, Step, Token,
};
use crate::sys::CallError;
use crate::sys::cm::{IdOption, RawParams};
use crate::{Deadline, QueuePair};

/// A request with a queue pair: post receives, then [`accept`](Self::accept). Dropped, it is refused
/// as soon as the last handle of its queue pair is gone; [`reject`](Self::reject) does not wait.
#[derive(Debug)]
pub struct Incoming {
    queue_pair: Arc<QueuePair>,
    request: Request,
}

impl Incoming {
    pub(super) const fn new(queue_pair: Arc<QueuePair>, request: Request) -> Self {
        Self { queue_pair, request }
    }

    /// The queue pair, for its receive port. Keep a handle beside the queues that post to it.
    pub const fn queue_pair(&self) -> &Arc<QueuePair> {
        &self.queue_pair
    }

    /// Its name on a shared channel.
    pub fn token(&self) -> Token {
        self.request.token()
    }

    /// The request.
    pub const fn request(&self) -> &Request {
        &self.request
    }

    /// Agrees, and blocks until the connection stands.
    ///
    /// READs are agreed on as the smaller of what the peer offers and what `params` and the device
    /// allow.
    ///
    /// # Errors
    ///
    /// [`AcceptError`]; there is no connection then, and the queue pair's other handles are to be
    /// flushed ([`QueuePair::to_error`]) and dropped.
    pub fn accept(
        self,
        params: &ConnectParams,
        deadline: impl Into<Deadline>,
    ) -> Result<Connection, AcceptError> {
        self.start(params)?.wait(deadline)
    }

    /// Agrees, and returns at once.
    ///
    /// # Errors
    ///
    /// As for [`accept`](Self::accept).
    #[doc(alias = "rdma_accept")]
    pub fn start(self, params: &ConnectParams) -> Result<Accepting, AcceptError> {
        let Self { queue_pair, request } = self;
        let private_data = params
            .private_data
            .within(PrivateData::MAX_ACCEPT)
            .map_err(AcceptError::PrivateDataTooLong)?;
        let own = params.reads_on(request.device().limits()).map_err(AcceptError::ReadDepth)?;
        let reads = own.min(request.offered_reads());
        if let Some(timeout) = params.ack_timeout {
            request.id.set(IdOption::AckTimeout(timeout.to_code())).map_err(AcceptError::Call)?;
        }
        let (qp_num, has_srq) = queue_pair.apart().unwrap_or_default();
        let raw = RawParams {
            private_data,
            responder_resources: reads.reads_in,
            initiator_depth: reads.reads_out,
            retry_count: params.retry.code(),
            rnr_retry_count: params.rnr_retry.code(),
            qp_num,
            has_srq,
        };
        queue_pair.make_ready(params.rnr_timer, Some(reads)).map_err(AcceptError::Call)?;
        // SAFETY: the identifier came with a request, and `queue_pair` was made on it, or is in the parameters.
        unsafe { request.id.accept(raw) }.map_err(AcceptError::Call)?;
        Ok(Accepting { queue_pair, request, reads, rnr_timer: params.rnr_timer })
    }

    /// Refuses, and says why in bytes of its own. Other handles of the queue pair stay valid.
    ///
    /// # Errors
    ///
    /// As for [`Request::reject`].
    #[doc(alias = "rdma_reject")]
    pub fn reject(self, private_data: &[u8]) -> Result<(), RejectError> {
        self.request.reject(private_data)
    }
}

/// A request that was agreed to, and that the peer has yet to confirm.
///
/// Its descriptor is readable when [`poll`](Self::poll) may get further. Dropped, it is given up as
/// soon as the last handle of its queue pair is gone.
#[derive(Debug)]
pub struct Accepting {
    queue_pair: Arc<QueuePair>,
    request: Request,
    reads: ReadDepths,
    rnr_timer: RnrTimer,
}

impl Accepting {
    /// What the peer sent along with its request.
    pub const fn private_data(&self) -> &PrivateData {
        self.request.private_data()
    }

    /// Its name on a shared channel.
    pub fn token(&self) -> Token {
        self.request.token()
    }

    /// The queue pair.
    pub const fn queue_pair(&self) -> &Arc<QueuePair> {
        &self.queue_pair
    }

    /// The connection, when the peer has confirmed it. Never blocks.
    ///
    /// # Errors
    ///
    /// As for [`Incoming::accept`].
    pub fn poll(self) -> Result<Step<Connection, Self>, AcceptError> {
        let peer = self.request.peer_addr();
        while let Some(event) = self.request.id.next_event().map_err(AcceptError::Call)? {
            match event.kind {
                EventKind::Established => {
                    let data = *self.request.private_data();
                    return Ok(Step::Done(Connection::new(
                        self.request.id,
                        self.queue_pair,
                        peer,
                        self.reads,
                        Some(data),
                        self.rnr_timer,
                    )));
                }
                EventKind::DeviceRemoved => {
                    self.queue_pair.domain().device().note_removed();
                    return Err(AcceptError::DeviceRemoved);
                }
                EventKind::Rejected
                | EventKind::ConnectError
                | EventKind::Unreachable
                | EventKind::Disconnected => {
                    return Err(AcceptError::PeerGone { peer, status: event.status });
                }
                _ => {}
            }
        }
        Ok(Step::Pending(self))
    }

    /// Blocks until the peer has confirmed the connection.
    ///
    /// # Errors
    ///
    /// As for [`Incoming::accept`].
    pub fn wait(mut self, deadline: impl Into<Deadline>) -> Result<Connection, AcceptError> {
        let deadline = deadline.into();
        loop {
            self = match self.poll()? {
                Step::Done(connection) => return Ok(connection),
                Step::Pending(this) => this,
            };
            if !self.request.id.wait(deadline).map_err(AcceptError::Call)? {
                return Err(AcceptError::TimedOut { peer: self.request.peer_addr() });
            }
        }
    }
}

impl AsFd for Accepting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.request.id.channel().as_fd()
    }
}

/// A request could not be accepted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum AcceptError {
    /// There is more private data than fits.
    PrivateDataTooLong(PrivateDataTooLong),
    /// The device cannot have so many READs under way.
    ReadDepth(OutOfRange),
    /// The peer gave up, or died, before the connection stood.
    PeerGone {
        /// Its address.
        peer: SocketAddr,
        /// What the kernel said.
        status: i32,
    },
    /// The deadline passed.
    TimedOut {
        /// The peer's address.
        peer: SocketAddr,
    },
    /// The device is being removed.
    DeviceRemoved,
    /// The kernel or the device says no.
    Call(CallError),
}

impl fmt::Display for AcceptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PrivateDataTooLong(error) => error.fmt(f),
            Self::ReadDepth(error) => error.fmt(f),
            Self::PeerGone { peer, status } => {
                write!(f, "{peer} went away before the connection stood (status {status})")
            }
            Self::TimedOut { peer } => {
                write!(f, "{peer} did not confirm the connection before the deadline")
            }
            Self::DeviceRemoved => f.write_str("the RDMA device is being removed"),
            Self::Call(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for AcceptError {}
