//! Event channels: a nonblocking descriptor, and events by value.
//!
//! A channel has one box a step (an identifier): whoever fetches an event that is not its own leaves
//! it there. So many steps can share one channel, and none can take what belongs to another.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::id::next_token;
use super::{CmId, PrivateData};
use crate::Deadline;
use crate::sys::cm::{RawEvent, RawPeer, kind};
use crate::sys::{self, CallError, ChannelPtr};

/// A channel of connection events, for one step or for many.
///
/// Each step makes a channel of its own unless it is told to use this one
/// ([`Connector::on`](super::Connector::on), [`ListenOptions::on`](super::ListenOptions::on)); then
/// one descriptor stands for all of them. The thread that has it in its event loop asks
/// [`poll_token`](Self::poll_token) until it says `None`, and polls each step that is named.
///
/// A clone is another handle of the same channel. Any thread may call, but only one should drive the
/// steps that share a channel.
///
/// ```no_run
/// # use std::{collections::HashMap, net::SocketAddr, time::Duration};
/// use nanoverbs::cm::{Connector, EventChannel, Step};
///
/// # fn readable(_: &EventChannel) {}
/// # fn go(peers: Vec<SocketAddr>) -> Result<(), Box<dyn std::error::Error>> {
/// let channel = EventChannel::new()?;
/// let mut resolving = HashMap::new();
/// for peer in peers {
///     let step = Connector::new().on(&channel).start(peer, Duration::from_secs(5))?;
///     resolving.insert(step.token(), step);
/// }
/// while !resolving.is_empty() {
///     readable(&channel); // epoll, or what the program has
///     while let Some(token) = channel.poll_token()? {
///         let Some(step) = resolving.remove(&token) else { continue };
///         match step.poll()? {
///             Step::Done(route) => println!("{} is behind {:?}", route.peer_addr(), route.device()),
///             Step::Pending(step) => drop(resolving.insert(token, step)),
///         }
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[doc(alias = "rdma_event_channel")]
pub struct EventChannel {
    inner: Arc<Inner>,
}

/// Which step of a shared channel something has happened to. Unique in the process; a step keeps its
/// token when it becomes the next one (a `Resolving` a `Route`, a `Connecting` a `Connection`).
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Token(pub(super) u64);

struct Inner {
    raw: ChannelPtr,
    /// Held while an event is fetched, and while an identifier or a queue pair of this channel is
    /// destroyed: fetching touches both.
    mail: Mutex<Mail>,
}

/// Events that were fetched and not yet taken.
#[derive(Default)]
pub(super) struct Mail {
    boxes: HashMap<u64, VecDeque<Filed>>,
    /// Boxes that got something which `poll_token` has not told yet.
    untold: VecDeque<u64>,
}

/// An event in its box.
pub(super) struct Filed {
    raw: RawEvent,
    /// The token of the identifier that came with a request.
    request: u64,
}

/// Something that happened to an identifier, copied out and acknowledged.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) kind: EventKind,
    /// 0, a negative error number, or for a rejection the reason as the peer gave it.
    pub(crate) status: i32,
    /// What the peer sent along; `None` when this kind of event can carry nothing.
    pub(crate) private_data: Option<PrivateData>,
    /// READs that the peer wants to have under way towards this side.
    pub(crate) reads_in: u8,
    /// READs that the peer is ready to serve.
    pub(crate) reads_out: u8,
    /// The other end of datagrams.
    pub(crate) peer: Option<RawPeer>,
    pub(crate) request: Option<CmId>,
}

/// What an event of the connection manager says, `rdma_cm_event_type`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[doc(alias = "rdma_cm_event")]
#[doc(alias = "rdma_cm_event_type")]
#[doc(alias = "rdma_event_str")]
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
        Ok(Self { inner: Arc::new(Inner { raw, mail: Mutex::default() }) })
    }

    /// A step that something has happened to: poll it. `None` when nothing has. Never blocks.
    ///
    /// Ask until it says `None` before sleeping on the descriptor: events of other steps are fetched
    /// along with those of the step that is polled.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    #[doc(alias = "rdma_get_cm_event")]
    #[doc(alias = "rdma_ack_cm_event")]
    pub fn poll_token(&self) -> Result<Option<Token>, CallError> {
        let mut mail = self.mail();
        while let Some(token) = mail.untold.pop_front() {
            if mail.boxes.get(&token).is_some_and(|events| !events.is_empty()) {
                return Ok(Some(Token(token)));
            }
        }
        self.fetch(&mut mail).map(|token| token.map(Token))
    }

    /// Whether both are handles of one channel.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// The next event of one identifier; `None` when there is none.
    pub(super) fn next_event(&self, token: u64) -> Result<Option<Event>, CallError> {
        let mut mail = self.mail();
        let filed = loop {
            if let Some(filed) = mail.boxes.get_mut(&token).and_then(VecDeque::pop_front) {
                break filed;
            }
            match self.fetch(&mut mail)? {
                None => return Ok(None),
                Some(owner) if owner == token => {}
                Some(other) => mail.untold.push_back(other),
            }
        };
        drop(mail);
        Ok(Some(Event::new(filed, self)))
    }

    /// Fetches an event, puts it into its box and says into which.
    fn fetch(&self, mail: &mut Mail) -> Result<Option<u64>, CallError> {
        // SAFETY: the channel lives, and the lock on its mail keeps destroyers out.
        while let Some(raw) = unsafe { sys::cm::next_event(self.inner.raw) }? {
            let is_request = raw.kind == kind::CONNECT_REQUEST;
            let owner = raw.token;
            if !mail.boxes.contains_key(&owner) {
                if is_request {
                    // SAFETY: nobody else knows of the identifier that came with it.
                    let _ = unsafe { sys::cm::destroy_id(raw.id) };
                }
                continue;
            }
            let mut request = 0;
            if is_request {
                // It reports on this channel as well, under a token of its own from here on.
                request = next_token();
                // SAFETY: the event handed it over alive, and the lock keeps fetchers out.
                unsafe { sys::cm::set_token(raw.id, request) };
                mail.open(request);
            }
            mail.boxes.entry(owner).or_default().push_back(Filed { raw, request });
            return Ok(Some(owner));
        }
        Ok(None)
    }

    /// Waits until there may be an event, or the deadline has passed, which it says with `false`.
    pub(super) fn wait(&self, deadline: Deadline) -> Result<bool, CallError> {
        /// On a shared channel another thread may fetch what this one sleeps for.
        const GLANCE: Duration = Duration::from_millis(50);
        // Only who has a handle can share it: where the step that waits has the only one, nobody else can
        // fetch until it has woken. Other steps may still come to a channel that has several.
        let shared = Arc::strong_count(&self.inner) > 1;
        let until = if shared && deadline.remaining().is_none_or(|left| left > GLANCE) {
            Deadline::after(GLANCE)
        } else {
            deadline
        };
        let [readable] = sys::wait_readable([self.as_fd()], until)?;
        Ok(readable || !deadline.has_passed())
    }

    pub(super) fn mail(&self) -> MutexGuard<'_, Mail> {
        // No panic can leave a box half written.
        self.inner.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn raw(&self) -> ChannelPtr {
        self.inner.raw
    }
}

impl Mail {
    /// Makes a box for an identifier.
    pub(super) fn open(&mut self, token: u64) {
        self.boxes.entry(token).or_default();
    }

    /// Takes the box of an identifier away, with what is in it.
    pub(super) fn close(&mut self, token: u64) -> VecDeque<Filed> {
        self.boxes.remove(&token).unwrap_or_default()
    }

    /// Puts what is older than the box's content in front of it.
    pub(super) fn prepend(&mut self, token: u64, mut older: VecDeque<Filed>) {
        let entry = self.boxes.entry(token).or_default();
        self.untold.extend(older.iter().map(|_| token));
        older.append(entry);
        *entry = older;
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
    /// Must not be called with the mail locked: a request that is dropped locks it.
    pub(super) fn new(filed: Filed, channel: &EventChannel) -> Self {
        let Filed { raw, request } = filed;
        let kind = EventKind::from_raw(raw.kind);
        Self {
            kind,
            status: raw.status,
            private_data: raw
                .has_private_data
                .then(|| PrivateData::received(&raw.private_data, raw.private_data_len))
                .or_else(|| kind.carries_data().then(PrivateData::empty)),
            reads_in: raw.responder_resources,
            reads_out: raw.initiator_depth,
            peer: raw.peer,
            // An identifier that comes with a request belongs to whoever takes the event; nobody
            // else knows of it. Dropped, it says no to the peer.
            request: (kind == EventKind::ConnectRequest)
                .then(|| CmId::adopt(raw.id, request, channel.clone())),
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
