//! Asking a peer for its queue pair for datagrams.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::private_data::ToSend;
use super::{
    Connector, EventKind, PrivateData, PrivateDataTooLong, ResolveError, Resolving, Route, Step,
    Token,
};
use crate::sys::CallError;
use crate::sys::cm::{RawParams, Space};
use crate::{AddressHandle, Deadline, ProtectionDomain};

/// A peer that is being asked.
///
/// Its descriptor is readable when [`poll`](Self::poll) may get further. Dropped, it is given up.
#[derive(Debug)]
pub struct PeerLookup {
    stage: Stage,
    peer: SocketAddr,
    data: ToSend,
    domain: Arc<ProtectionDomain>,
}

#[derive(Debug)]
enum Stage {
    Resolving(Resolving),
    Asking(Route),
}

impl PeerLookup {
    pub(super) fn start(
        domain: &Arc<ProtectionDomain>,
        connector: Connector,
        peer: SocketAddr,
        private_data: &[u8],
        deadline: Deadline,
    ) -> Result<Self, FindError> {
        let data = ToSend::new(private_data);
        data.within(PrivateData::MAX_ASK).map_err(FindError::PrivateDataTooLong)?;
        let resolving =
            connector.begin(Space::Datagram, peer, deadline).map_err(FindError::Resolve)?;
        Ok(Self { stage: Stage::Resolving(resolving), peer, data, domain: Arc::clone(domain) })
    }

    /// Its name on a shared channel.
    pub fn token(&self) -> Token {
        match &self.stage {
            Stage::Resolving(resolving) => resolving.token(),
            Stage::Asking(route) => route.token(),
        }
    }

    /// The way to the peer, when it has answered. Never blocks.
    ///
    /// # Errors
    ///
    /// As for [`Datagrams::find`](super::Datagrams::find).
    pub fn poll(self) -> Result<Step<AddressHandle, Self>, FindError> {
        let Self { stage, peer, data, domain } = self;
        let pending = |stage, domain| Ok(Step::Pending(Self { stage, peer, data, domain }));
        let route = match stage {
            Stage::Asking(route) => route,
            Stage::Resolving(resolving) => match resolving.poll().map_err(FindError::Resolve)? {
                Step::Pending(resolving) => return pending(Stage::Resolving(resolving), domain),
                Step::Done(route) => {
                    let private_data =
                        data.within(PrivateData::MAX_ASK).map_err(FindError::PrivateDataTooLong)?;
                    let params = RawParams {
                        private_data,
                        responder_resources: 0,
                        initiator_depth: 0,
                        retry_count: 0,
                        rnr_retry_count: 0,
                        qp_num: 0,
                        has_srq: false,
                    };
                    // SAFETY: a `Route` has one, and this one's identifier is for datagrams.
                    unsafe { route.id.connect(params) }.map_err(FindError::Call)?;
                    route
                }
            },
        };
        while let Some(event) = route.id.next_event().map_err(FindError::Call)? {
            match (event.kind, event.peer) {
                (EventKind::Established, Some(to)) => {
                    return AddressHandle::to_peer(&domain, &to)
                        .map(Step::Done)
                        .map_err(FindError::Call);
                }
                (EventKind::DeviceRemoved, _) => return Err(FindError::DeviceRemoved),
                (EventKind::Unreachable | EventKind::Rejected | EventKind::ConnectError, _) => {
                    return Err(FindError::from_status(peer, event.status));
                }
                _ => {}
            }
        }
        pending(Stage::Asking(route), domain)
    }

    /// Blocks until the peer has answered.
    ///
    /// # Errors
    ///
    /// As for [`Datagrams::find`](super::Datagrams::find).
    pub fn wait(mut self, deadline: impl Into<Deadline>) -> Result<AddressHandle, FindError> {
        let deadline = deadline.into();
        loop {
            self = match self.poll()? {
                Step::Done(handle) => return Ok(handle),
                Step::Pending(this) => this,
            };
            let waited = match &self.stage {
                Stage::Resolving(resolving) => resolving.id().wait(deadline),
                Stage::Asking(route) => route.id.wait(deadline),
            };
            if !waited.map_err(FindError::Call)? {
                return Err(FindError::TimedOut { peer: self.peer });
            }
        }
    }
}

impl AsFd for PeerLookup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.stage {
            Stage::Resolving(resolving) => resolving.as_fd(),
            Stage::Asking(route) => route.id.channel().as_fd(),
        }
    }
}

/// A peer could not be asked for its queue pair, or did not tell.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum FindError {
    /// There is no way to it.
    Resolve(ResolveError),
    /// There is more private data than fits.
    PrivateDataTooLong(PrivateDataTooLong),
    /// Nobody serves datagrams at this address.
    NobodyListens {
        /// The address.
        peer: SocketAddr,
    },
    /// The program there has refused.
    Rejected {
        /// Its address.
        peer: SocketAddr,
    },
    /// The peer does not answer, or could not be asked.
    Unreachable {
        /// Its address.
        peer: SocketAddr,
        /// What the kernel says.
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

impl FindError {
    /// `IB_SIDR_UNSUPPORTED` and `IB_SIDR_REJECT` are the peer's answers.
    const fn from_status(peer: SocketAddr, status: i32) -> Self {
        match status {
            1 => Self::NobodyListens { peer },
            2 => Self::Rejected { peer },
            status => Self::Unreachable { peer, status },
        }
    }
}

impl fmt::Display for FindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resolve(error) => error.fmt(f),
            Self::PrivateDataTooLong(error) => error.fmt(f),
            Self::NobodyListens { peer } => {
                write!(f, "nobody serves datagrams on {peer}; start the other side first")
            }
            Self::Rejected { peer } => write!(f, "the program on {peer} refused"),
            Self::Unreachable { peer, status } => {
                write!(f, "{peer} does not answer (status {status})")
            }
            Self::TimedOut { peer } => write!(f, "{peer} did not answer before the deadline"),
            Self::DeviceRemoved => f.write_str("the RDMA device is being removed"),
            Self::Call(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for FindError {}
