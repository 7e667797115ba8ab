//! Event channels: a nonblocking descriptor, and events by value.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{CmId, PrivateData};
use crate::Deadline;
use crate::sys::cm::{RawEvent, kind};
use crate::sys::{self, CallError, ChannelPtr};

/// A channel of connection events, shared by the identifiers that were made on it.
///
/// A clone is another handle of the same channel. Its descriptor is readable when there is an
/// event. Any thread may call.
#[derive(Clone)]
#[doc(alias = "rdma_event_channel")]
pub struct EventChannel {
    inner: Arc<Inner>,
}

struct Inner {
    raw: ChannelPtr,
    /// Held while an event is fetched, and while an identifier or a queue pair of this channel is
    /// destroyed: fetching touches both.
    fetching: Mutex<()>,
}

/// Something that happened to an identifier, copied out and acknowledged.
#[derive(Debug)]
#[doc(alias = "rdma_cm_event")]
#[non_exhaustive]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// 0, a negative error number, or for a rejection the reason as the peer gave it.
    pub status: i32,
    /// The number of the identifier that it is about; for a request, of the listener.
    pub token: u64,
    /// What the peer sent along; `None` when this kind of event can carry nothing.
    pub private_data: Option<PrivateData>,
    /// READs that the peer wants to have under way towards this side.
    pub reads_in: u8,
    /// READs that the peer is ready to serve.
    pub reads_out: u8,
    pub(crate) request: Option<CmId>,
}

/// What an [`Event`] says, `rdma_cm_event_type`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[doc(alias = "rdma_cm_event_type")]
#[non_exhaustive]
pub enum EventKind {
    /// The address was found to lie behind a device.
    AddressResolved,
    /// It was not.
    AddressError,
    /// There is a way to the peer.
    RouteResolved,
    /// There is none.
    RouteError,
    /// A peer wants to connect.
    ConnectRequest,
    /// The peer agreed, and this side has no queue pair of the connection manager's.
    ConnectResponse,
    /// A connection could not be made.
    ConnectError,
    /// The peer does not answer; on newer kernels also on an established connection.
    Unreachable,
    /// The peer, or its kernel, said no.
    Rejected,
    /// Connected.
    Established,
    /// The connection has ended.
    Disconnected,
    /// The device is being removed: drop everything that was made on it.
    DeviceRemoved,
    /// A multicast group was joined.
    MulticastJoined,
    /// A multicast group was not joined, or was lost.
    MulticastError,
    /// An address changed its place.
    AddressChanged,
    /// The queue pair's number may be used again. Does not come on every device.
    TimewaitExit,
    /// A kind that this version does not know.
    Other(u32),
}

impl EventChannel {
    /// A channel without identifiers.
    ///
    /// # Errors
    ///
    /// [`CallError`]: `ENODEV` or `ENOENT` on a machine without RDMA, `EACCES` without permission,
    /// `EMFILE` when this process has too many open files.
    #[doc(alias = "rdma_create_event_channel")]
    pub fn new() -> Result<Self, CallError> {
        let raw = sys::cm::create_event_channel()?;
        Ok(Self { inner: Arc::new(Inner { raw, fetching: Mutex::new(()) }) })
    }

    /// The next event; `None` when there is none. Never blocks.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    #[doc(alias = "rdma_get_cm_event")]
    #[doc(alias = "rdma_ack_cm_event")]
    pub fn next_event(&self) -> Result<Option<Event>, CallError> {
        let fetching = self.fetching();
        // SAFETY: the channel lives, and the lock keeps destroyers out.
        let raw = unsafe { sys::cm::next_event(self.inner.raw) }?;
        drop(fetching);
        Ok(raw.map(|raw| Event::new(raw, self)))
    }

    /// The next event; blocks until there is one. `None` when the deadline passed first.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn wait_event(&self, deadline: impl Into<Deadline>) -> Result<Option<Event>, CallError> {
        let deadline = deadline.into();
        loop {
            if let Some(event) = self.next_event()? {
                return Ok(Some(event));
            }
            let [readable] = sys::wait_readable([self.as_fd()], deadline)?;
            if !readable {
                return Ok(None);
            }
        }
    }

    pub(crate) fn fetching(&self) -> MutexGuard<'_, ()> {
        // The lock guards no data that a panic could have left half written.
        self.inner.fetching.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn raw(&self) -> ChannelPtr {
        self.inner.raw
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel outlives the borrow of `self`.
        unsafe { sys::cm::channel_as_fd(self.inner.raw) }
    }
}

impl fmt::Debug for EventChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventChannel").field("fd", &self.as_fd()).finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: identifiers hold their channel, so none is left.
        unsafe { sys::cm::destroy_event_channel(self.raw) };
    }
}

impl Event {
    fn new(raw: RawEvent, channel: &EventChannel) -> Self {
        let kind = EventKind::from_raw(raw.kind);
        Self {
            kind,
            status: raw.status,
            token: raw.token,
            private_data: raw
                .has_private_data
                .then(|| PrivateData::received(&raw.private_data, raw.private_data_len))
                .or_else(|| kind.carries_data().then(PrivateData::empty)),
            reads_in: raw.responder_resources,
            reads_out: raw.initiator_depth,
            // An identifier that comes with a request belongs to whoever takes the event; nobody
            // else knows of it. Dropped, it says no to the peer.
            request: (kind == EventKind::ConnectRequest)
                .then(|| CmId::adopt(raw.id, channel.clone())),
        }
    }
}

impl EventKind {
    pub(crate) const fn from_raw(kind: u32) -> Self {
        match kind {
            kind::ADDR_RESOLVED => Self::AddressResolved,
            kind::ADDR_ERROR => Self::AddressError,
            kind::ROUTE_RESOLVED => Self::RouteResolved,
            kind::ROUTE_ERROR => Self::RouteError,
            kind::CONNECT_REQUEST => Self::ConnectRequest,
            kind::CONNECT_RESPONSE => Self::ConnectResponse,
            kind::CONNECT_ERROR => Self::ConnectError,
            kind::UNREACHABLE => Self::Unreachable,
            kind::REJECTED => Self::Rejected,
            kind::ESTABLISHED => Self::Established,
            kind::DISCONNECTED => Self::Disconnected,
            kind::DEVICE_REMOVAL => Self::DeviceRemoved,
            kind::MULTICAST_JOIN => Self::MulticastJoined,
            kind::MULTICAST_ERROR => Self::MulticastError,
            kind::ADDR_CHANGE => Self::AddressChanged,
            kind::TIMEWAIT_EXIT => Self::TimewaitExit,
            other => Self::Other(other),
        }
    }

    const fn carries_data(self) -> bool {
        matches!(self, Self::ConnectRequest | Self::ConnectResponse | Self::Rejected)
    }
}
