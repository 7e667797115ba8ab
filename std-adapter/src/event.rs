//! Asynchronous events of a device, and what they end.
//!
//! [`Device::poll_event`](crate::Device::poll_event) reads an event, acknowledges it at once, and
//! closes what it concerns: a completion queue that overflowed takes its queue pairs along, a queue
//! pair that failed is moved to the error state so that everything in it is flushed, and a device that
//! failed or is removed takes all of them. Nothing is closed that could go on: a port that is down may
//! come back, and its connections fail by their own retries if it does not.
//!
//! Any thread may read. No thread is started: the device's descriptor (`AsFd`) belongs into a
//! program's own event loop. An endpoint looks by itself whenever it is about to sleep; what it finds
//! is kept for who asks, up to [`KEPT`] events.
//!
//! Invariant: an event is acknowledged before anybody sees it, so destroying what it is about never
//! waits on a user.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nanoverbs_core::QpNum;

use crate::sys::async_event::{RawSubject, kind};
use crate::sys::{self, CallError, CmIdPtr, ContextPtr, CqPtr, QpPtr};
use crate::trace::say;

/// How many events are kept for [`Device::poll_event`](crate::Device::poll_event) when nobody asks;
/// older ones are forgotten, after they did what they do.
pub const KEPT: usize = 256;

/// Something that happened to a device, or to something of its.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[doc(alias = "ibv_async_event")]
#[non_exhaustive]
pub struct DeviceEvent {
    /// What happened.
    pub kind: DeviceEventKind,
    /// To what.
    pub subject: Subject,
}

/// What a [`DeviceEvent`] is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Subject {
    /// The whole device.
    Device,
    /// One of its ports, from 1 on.
    Port(u8),
    /// A queue pair; see [`QueuePair::number`](crate::QueuePair::number). `None` when it was destroyed
    /// meanwhile.
    QueuePair(Option<QpNum>),
    /// A completion queue; see [`CompletionQueue::id`](crate::CompletionQueue::id).
    CompletionQueue(ObjectId),
    /// A shared receive queue; see [`SharedReceiveQueue::id`](crate::SharedReceiveQueue::id).
    SharedReceiveQueue(ObjectId),
    /// The event is of a kind that this version does not know.
    Unknown,
}

/// The identity of a device's object. Unique among those that exist at a time.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ObjectId(usize);

/// What happened, `ibv_event_type`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[doc(alias = "ibv_event_type")]
#[non_exhaustive]
pub enum DeviceEventKind {
    /// A completion queue has overflowed, or is broken. It and its queue pairs are closed.
    CompletionQueueError,
    /// A queue pair is broken. It is closed.
    QueuePairFatal,
    /// A queue pair got a request that makes no sense. It is closed.
    QueuePairRequestError,
    /// A queue pair got a request that it does not allow. It is closed.
    QueuePairAccessError,
    /// The first message of a peer has come, before its last word on the connection. The connection
    /// manager is told.
    FirstMessage,
    /// A send queue has drained.
    SendQueueDrained,
    /// A connection has changed over to its other path.
    PathMigrated,
    /// A connection could not change over to its other path.
    PathMigrationError,
    /// The device is broken. All of its queue pairs are closed.
    DeviceFatal,
    /// A port is up.
    PortActive,
    /// A port is down.
    PortError,
    /// A port has another address of the fabric (LID).
    LidChanged,
    /// A table of partition keys has changed.
    PartitionKeysChanged,
    /// The fabric has another manager.
    SubnetManagerChanged,
    /// A shared receive queue is broken.
    SharedReceiveError,
    /// A shared receive queue has fewer receives left than its limit.
    SharedReceiveLimit,
    /// A queue pair on a shared receive queue takes no more receives. Some devices never say so.
    LastReceiveTaken,
    /// The fabric's manager wants everything registered anew.
    ClientReregister,
    /// A table of addresses (GIDs) has changed.
    AddressesChanged,
    /// A work queue is broken.
    WorkQueueFatal,
    /// The device is being removed, as the connection manager tells. All of its queue pairs are
    /// closed; drop everything that was made on it.
    Removed,
    /// A kind that this version does not know.
    Other(u32),
}

impl DeviceEventKind {
    pub(crate) const fn from_raw(kind: u32) -> Self {
        match kind {
            kind::CQ_ERR => Self::CompletionQueueError,
            kind::QP_FATAL => Self::QueuePairFatal,
            kind::QP_REQ_ERR => Self::QueuePairRequestError,
            kind::QP_ACCESS_ERR => Self::QueuePairAccessError,
            kind::COMM_EST => Self::FirstMessage,
            kind::SQ_DRAINED => Self::SendQueueDrained,
            kind::PATH_MIG => Self::PathMigrated,
            kind::PATH_MIG_ERR => Self::PathMigrationError,
            kind::DEVICE_FATAL => Self::DeviceFatal,
            kind::PORT_ACTIVE => Self::PortActive,
            kind::PORT_ERR => Self::PortError,
            kind::LID_CHANGE => Self::LidChanged,
            kind::PKEY_CHANGE => Self::PartitionKeysChanged,
            kind::SM_CHANGE => Self::SubnetManagerChanged,
            kind::SRQ_ERR => Self::SharedReceiveError,
            kind::SRQ_LIMIT_REACHED => Self::SharedReceiveLimit,
            kind::QP_LAST_WQE_REACHED => Self::LastReceiveTaken,
            kind::CLIENT_REREGISTER => Self::ClientReregister,
            kind::GID_CHANGE => Self::AddressesChanged,
            kind::WQ_FATAL => Self::WorkQueueFatal,
            other => Self::Other(other),
        }
    }
}

impl ObjectId {
    pub(crate) const fn new(address: usize) -> Self {
        Self(address)
    }
}

/// Whether an event has ended an object. Shared by the object and its device's list.
#[derive(Debug, Default)]
pub(crate) struct Fate(AtomicBool);

impl Fate {
    pub(crate) fn has_failed(&self) -> bool {
        // Relaxed: it says nothing about other memory.
        self.0.load(Ordering::Relaxed)
    }

    fn fail(&self) {
        // Relaxed: as in `has_failed`.
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What lives on a device, as far as its events can end it, and the events that nobody took yet.
#[derive(Debug, Default)]
pub(crate) struct Tenants(Mutex<List>);

#[derive(Debug, Default)]
struct List {
    queues: Vec<(CqPtr, Arc<Fate>)>,
    queue_pairs: Vec<QueuePairEntry>,
    kept: VecDeque<DeviceEvent>,
    removed: bool,
}

#[derive(Debug)]
struct QueuePairEntry {
    qp: QpPtr,
    id: CmIdPtr,
    number: QpNum,
    queues: [CqPtr; 2],
    fate: Arc<Fate>,
}

impl Tenants {
    fn list(&self) -> MutexGuard<'_, List> {
        // No panic can leave an entry half written.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add_queue(&self, cq: CqPtr) -> Arc<Fate> {
        let fate = Arc::<Fate>::default();
        self.list().queues.push((cq, Arc::clone(&fate)));
        fate
    }

    /// Must come before the queue is destroyed.
    pub(crate) fn remove_queue(&self, cq: CqPtr) {
        self.list().queues.retain(|(known, _)| *known != cq);
    }

    pub(crate) fn add_queue_pair(
        &self,
        qp: QpPtr,
        id: CmIdPtr,
        number: QpNum,
        queues: [CqPtr; 2],
    ) -> Arc<Fate> {
        let fate = Arc::<Fate>::default();
        let entry = QueuePairEntry { qp, id, number, queues, fate: Arc::clone(&fate) };
        self.list().queue_pairs.push(entry);
        fate
    }

    /// Must come before the queue pair is destroyed, and without its channel's lock.
    pub(crate) fn remove_queue_pair(&self, qp: QpPtr) {
        self.list().queue_pairs.retain(|entry| entry.qp != qp);
    }

    /// The next event that nobody took.
    pub(crate) fn take(&self) -> Option<DeviceEvent> {
        self.list().kept.pop_front()
    }

    /// Reads what there is, and closes what it concerns.
    ///
    /// # Safety
    ///
    /// The context is alive, and its descriptor is nonblocking.
    pub(crate) unsafe fn read(&self, context: ContextPtr) -> Result<(), CallError> {
        // A removed device has nothing to say any more, and some fail when asked.
        while !self.list().removed {
            // SAFETY: the caller's promise.
            let event = unsafe {
                sys::async_event::next_async_event(context, |kind, subject| {
                    self.list().apply(kind, subject)
                })
            }?;
            let Some(event) = event else { break };
            self.list().keep(event);
        }
        Ok(())
    }

    /// The connection manager has said that the device is being removed.
    pub(crate) fn remove_device(&self) {
        let mut list = self.list();
        if !std::mem::replace(&mut list.removed, true) {
            list.close(|_| true);
            list.keep(DeviceEvent { kind: DeviceEventKind::Removed, subject: Subject::Device });
        }
    }
}

impl List {
    fn apply(&self, kind: u32, subject: RawSubject) -> DeviceEvent {
        let subject = match subject {
            RawSubject::Device => {
                self.queues.iter().for_each(|(_, fate)| fate.fail());
                self.close(|_| true);
                Subject::Device
            }
            RawSubject::CompletionQueue(address) => {
                let is_it = |cq: &CqPtr| cq.address() == address;
                self.queues.iter().filter(|(cq, _)| is_it(cq)).for_each(|(_, fate)| fate.fail());
                self.close(|entry| entry.queues.iter().any(is_it));
                Subject::CompletionQueue(ObjectId(address))
            }
            RawSubject::QueuePair(address) => {
                let entry = self.queue_pairs.iter().find(|entry| entry.qp.address() == address);
                match kind {
                    kind::QP_FATAL | kind::QP_REQ_ERR | kind::QP_ACCESS_ERR => {
                        self.close(|entry| entry.qp.address() == address);
                    }
                    kind::COMM_EST => {
                        if let Some(entry) = entry {
                            // The last word may have come meanwhile, and then this is refused.
                            // SAFETY: a queue pair in the list holds its identifier.
                            let _ = unsafe { sys::cm::notify_established(entry.id) };
                        }
                    }
                    _ => {}
                }
                Subject::QueuePair(entry.map(|entry| entry.number))
            }
            RawSubject::SharedReceiveQueue(address) => {
                Subject::SharedReceiveQueue(ObjectId(address))
            }
            RawSubject::Port(port) => Subject::Port(port),
            RawSubject::Unknown => Subject::Unknown,
        };
        DeviceEvent { kind: DeviceEventKind::from_raw(kind), subject }
    }

    /// Moves queue pairs to the error state, once.
    fn close(&self, which: impl Fn(&QueuePairEntry) -> bool) {
        for entry in self.queue_pairs.iter().filter(|entry| which(entry)) {
            if !entry.fate.has_failed() {
                entry.fate.fail();
                say!(warn, "a queue pair is closed", queue_pair = entry.number.to_raw());
                // A device that refuses this as well is past being told.
                // SAFETY: a queue pair leaves the list before it is destroyed, and the list is locked.
                let _ = unsafe { sys::verbs::qp_to_error(entry.qp) };
            }
        }
    }

    fn keep(&mut self, event: DeviceEvent) {
        let DeviceEvent { kind, subject } = event;
        let what = format_args!("{kind:?}");
        say!(info, "a device event", what = what, subject = format_args!("{subject:?}"));
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f66_an_event_of_an_unknown_kind_is_kept_as_it_is() {
        assert_eq!(DeviceEventKind::from_raw(0), DeviceEventKind::CompletionQueueError);
        assert_eq!(DeviceEventKind::from_raw(15), DeviceEventKind::SharedReceiveLimit);
        assert_eq!(DeviceEventKind::from_raw(4711), DeviceEventKind::Other(4711));
        let event = List::default().apply(4711, RawSubject::Unknown);
        assert_eq!(event.subject, Subject::Unknown);
    }

    #[test]
    fn f66_an_event_about_what_is_gone_does_no_harm() {
        let list = List::default();
        for kind in 0..32 {
            let subject = list.apply(kind, RawSubject::QueuePair(64)).subject;
            assert_eq!(subject, Subject::QueuePair(None));
        }
    }

    #[test]
    fn f62_a_removal_is_told_once_and_nothing_is_read_after_it() {
        let tenants = Tenants::default();
        tenants.remove_device();
        tenants.remove_device();
        let kind = tenants.take().map(|event| event.kind);
        assert_eq!((kind, tenants.take()), (Some(DeviceEventKind::Removed), None));
    }

    #[test]
    fn events_that_nobody_takes_do_not_pile_up() {
        let mut list = List::default();
        for port in 0..=255 {
            for _ in 0..2 {
                let subject = Subject::Port(port);
                list.keep(DeviceEvent { kind: DeviceEventKind::PortActive, subject });
            }
        }
        assert_eq!(list.kept.len(), KEPT);
        assert_eq!(list.kept.back().map(|event| event.subject), Some(Subject::Port(255)));
    }
}
