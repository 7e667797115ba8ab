//! Multicast groups.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::{CmId, EventChannel, EventKind, Step, Token};
use crate::sys::CallError;
use crate::sys::cm::{RawPeer, Space};
use crate::{AddressHandle, Deadline, QueuePair};

/// What a member of a group wants.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[doc(alias = "rdma_cm_mc_join_flags")]
pub enum Share {
    /// To send to the group and to receive what others send.
    Full,
    /// Only to send.
    SendOnly,
}

/// A multicast group that is being joined.
///
/// Its descriptor is readable when [`poll`](Self::poll) may get further. Dropped, it is given up.
#[derive(Debug)]
pub struct Joining {
    id: CmId,
    group: SocketAddr,
    queue_pair: Arc<QueuePair>,
}

impl Joining {
    /// On an identifier of its own: one that listens cannot join.
    pub(super) fn start(
        channel: Option<&EventChannel>,
        source: SocketAddr,
        group: SocketAddr,
        share: Share,
        queue_pair: &Arc<QueuePair>,
    ) -> Result<Self, JoinError> {
        if !group.ip().is_multicast() {
            return Err(JoinError::NotAGroup { group });
        }
        let channel = match channel {
            Some(channel) => channel.clone(),
            None => EventChannel::new().map_err(JoinError::Call)?,
        };
        let id = CmId::with_space(&channel, Space::Datagram).map_err(JoinError::Call)?;
        id.bind(source).map_err(JoinError::Call)?;
        id.join(group, share == Share::SendOnly).map_err(JoinError::Call)?;
        Ok(Self { id, group, queue_pair: Arc::clone(queue_pair) })
    }

    /// Its name on a shared channel.
    pub const fn token(&self) -> Token {
        self.id.token()
    }

    /// The membership, when the group is joined. Never blocks.
    ///
    /// # Errors
    ///
    /// As for [`Datagrams::join`](super::Datagrams::join).
    pub fn poll(self) -> Result<Step<Membership, Self>, JoinError> {
        let group = self.group;
        while let Some(event) = self.id.next_event().map_err(JoinError::Call)? {
            match (event.kind, event.peer) {
                (EventKind::MulticastJoined, Some(peer)) => {
                    let Self { id, queue_pair, .. } = self;
                    let handle = AddressHandle::to_peer(queue_pair.domain(), &peer)
                        .map_err(JoinError::Call)?;
                    queue_pair.attach(&peer).map_err(JoinError::Call)?;
                    let handle = Arc::new(handle);
                    return Ok(Step::Done(Membership { group, handle, peer, queue_pair, id }));
                }
                (EventKind::MulticastError, _) => {
                    return Err(JoinError::Refused { group, status: event.status });
                }
                (EventKind::DeviceRemoved, _) => return Err(JoinError::DeviceRemoved),
                _ => {}
            }
        }
        Ok(Step::Pending(self))
    }

    /// Blocks until the group is joined.
    ///
    /// # Errors
    ///
    /// As for [`Datagrams::join`](super::Datagrams::join).
    pub fn wait(mut self, deadline: impl Into<Deadline>) -> Result<Membership, JoinError> {
        let deadline = deadline.into();
        loop {
            self = match self.poll()? {
                Step::Done(membership) => return Ok(membership),
                Step::Pending(this) => this,
            };
            if !self.id.wait(deadline).map_err(JoinError::Call)? {
                return Err(JoinError::TimedOut { group: self.group });
            }
        }
    }
}

impl AsFd for Joining {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.id.channel().as_fd()
    }
}

/// A queue pair's membership in a multicast group. Dropped, it leaves; the queue pair is not
/// destroyed before.
#[derive(Debug)]
pub struct Membership {
    group: SocketAddr,
    handle: Arc<AddressHandle>,
    peer: RawPeer,
    queue_pair: Arc<QueuePair>,
    id: CmId,
}

impl Membership {
    /// Its name on a shared channel.
    pub const fn token(&self) -> Token {
        self.id.token()
    }

    /// The address of the group.
    pub const fn addr(&self) -> SocketAddr {
        self.group
    }

    /// The way to all members. May outlive the membership.
    pub const fn handle(&self) -> &Arc<AddressHandle> {
        &self.handle
    }

    /// Whether it still stands, as far as the connection manager has told. Never blocks.
    ///
    /// # Errors
    ///
    /// [`JoinError`] says how it ended.
    pub fn check(&self) -> Result<(), JoinError> {
        while let Some(event) = self.id.next_event().map_err(JoinError::Call)? {
            match event.kind {
                EventKind::MulticastError => {
                    let (group, status) = (self.group, event.status);
                    return Err(JoinError::Refused { group, status });
                }
                EventKind::DeviceRemoved => return Err(JoinError::DeviceRemoved),
                _ => {}
            }
        }
        Ok(())
    }

    /// Leaves the group.
    #[doc(alias = "rdma_leave_multicast")]
    pub fn leave(self) {}
}

impl AsFd for Membership {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.id.channel().as_fd()
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        if self.queue_pair.domain().device().is_parents() {
            return;
        }
        // First, because a queue pair that is in a group cannot be destroyed.
        self.queue_pair.detach(&self.peer);
        self.id.leave(self.group);
    }
}

/// A group could not be joined.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum JoinError {
    /// The address is not that of a multicast group.
    NotAGroup {
        /// The address.
        group: SocketAddr,
    },
    /// The network, or the kernel, says no.
    Refused {
        /// The group.
        group: SocketAddr,
        /// What the kernel says, an error number or negative one.
        status: i32,
    },
    /// The deadline passed.
    TimedOut {
        /// The group.
        group: SocketAddr,
    },
    /// The device is being removed.
    DeviceRemoved,
    /// The kernel or the device says no.
    Call(CallError),
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAGroup { group } => write!(
                f,
                "{} is not a multicast address; those are 224.0.0.0/4 and ff00::/8",
                group.ip()
            ),
            Self::Refused { group, status } => {
                write!(f, "the group {} could not be joined (status {status})", group.ip())
            }
            Self::TimedOut { group } => {
                write!(f, "the group {} was not joined before the deadline", group.ip())
            }
            Self::DeviceRemoved => f.write_str("the RDMA device is being removed"),
            Self::Call(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for JoinError {}
