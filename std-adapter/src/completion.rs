//! Completion queues, and the channels that wake a thread when one is no longer empty.
//!
//! A queue is made with room for a stated number of completions. Each queue pair reserves, when it
//! is made, a place for every request that it can hold, and is refused when there are too few:
//! devices drop what does not fit, silently or with both queues.
//!
//! Polling is the business of one [`PollPort`], which belongs to one thread. Arming and waiting may
//! be done by any thread. The order that loses no wake-up is: poll until empty,
//! [`arm`](CompletionQueue::arm), poll once more, and only then [`wait`](CompletionChannel::wait).
//!
//! Events are acknowledged in the call that takes them, so destroying a queue never waits on a
//! user.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::port::PollPort;
use crate::sys::{self, CallError, CompletionChannelPtr, CqPtr};
use crate::{Deadline, Device, WrongProcess};

/// A completion queue.
#[doc(alias = "ibv_cq")]
pub struct CompletionQueue {
    cq: CqPtr,
    depth: u32,
    granted: u32,
    reserved: AtomicU32,
    port_taken: AtomicBool,
    channel: Option<Arc<CompletionChannel>>,
    device: Arc<Device>,
}

/// Which completions wake.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Arm {
    /// The next one.
    Any,
    /// The next one whose sender set the solicited flag. Completions of this side's own sends do
    /// not wake then, and on some devices failures do not either: only for a queue that takes
    /// receives alone, and never without a deadline.
    Solicited,
}

impl CompletionQueue {
    /// A queue with room for `depth` completions.
    ///
    /// With a `channel` it can be armed and waited for.
    ///
    /// # Errors
    ///
    /// [`CompletionQueueError::Depth`] when `depth` is 0 or more than the device has,
    /// [`CompletionQueueError::WrongDevice`] when the channel belongs to another device.
    #[doc(alias = "ibv_create_cq")]
    pub fn new(
        device: &Arc<Device>,
        depth: u32,
        channel: Option<&Arc<CompletionChannel>>,
    ) -> Result<Arc<Self>, CompletionQueueError> {
        device.check_process().map_err(CompletionQueueError::WrongProcess)?;
        let max = device.limits().completions;
        let wrong = CompletionQueueError::Depth { given: depth, max };
        if depth == 0 || depth > max {
            return Err(wrong);
        }
        let asked = i32::try_from(depth).map_err(|_| wrong)?;
        if channel.is_some_and(|channel| !Arc::ptr_eq(&channel.device, device)) {
            return Err(CompletionQueueError::WrongDevice);
        }
        // SAFETY: the device and the channel live, and this queue will hold them.
        let made = unsafe {
            sys::verbs::create_cq(device.context(), asked, channel.map(|channel| channel.raw))
        };
        let (cq, granted) = made.map_err(CompletionQueueError::Call)?;
        let granted = u32::try_from(granted).unwrap_or(depth);
        Ok(Arc::new(Self {
            cq,
            depth: depth.min(granted),
            granted,
            reserved: AtomicU32::new(0),
            port_taken: AtomicBool::new(false),
            channel: channel.cloned(),
            device: Arc::clone(device),
        }))
    }

    /// Room for completions that may be relied on: the smaller of asked and granted.
    pub const fn depth(&self) -> u32 {
        self.depth
    }

    /// Room that the device says there is; often rounded up, and never relied on.
    pub const fn granted(&self) -> u32 {
        self.granted
    }

    /// Room that no queue pair has reserved.
    pub fn free(&self) -> u32 {
        // Relaxed: a number to look at; `reserve` decides.
        self.depth.saturating_sub(self.reserved.load(Ordering::Relaxed))
    }

    /// Its device.
    pub const fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Its channel, if it was made with one.
    pub const fn channel(&self) -> Option<&Arc<CompletionChannel>> {
        self.channel.as_ref()
    }

    /// The way to poll it. There is one; a dropped one can be had again.
    ///
    /// # Errors
    ///
    /// [`PollPortTaken`] when it is in use.
    pub fn poll_port(self: &Arc<Self>) -> Result<PollPort, PollPortTaken> {
        // Acquire pairs with the release in `give_back`: the last poll of the port before is over.
        if self.port_taken.swap(true, Ordering::Acquire) {
            return Err(PollPortTaken { unsupported: None });
        }
        // SAFETY: the queue lives, and the port will hold it.
        match unsafe { sys::ops::PollOp::new(self.cq) } {
            Ok(op) => Ok(PollPort::new(op, Arc::clone(self))),
            Err(error) => {
                self.give_back();
                Err(PollPortTaken { unsupported: Some(error) })
            }
        }
    }

    /// The port is gone.
    pub(crate) fn give_back(&self) {
        // Pairs with the acquire in `poll_port`.
        self.port_taken.store(false, Ordering::Release);
    }

    /// Asks for an event on its channel when the next completion comes. Completions that are there
    /// already give none: poll once more after arming and before waiting.
    ///
    /// # Errors
    ///
    /// [`CallError`] with `EINVAL` when the queue has no channel, and what the device says.
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn arm(&self, which: Arm) -> Result<(), CallError> {
        if self.channel.is_none() {
            return Err(CallError::new("ibv_req_notify_cq", libc::EINVAL));
        }
        // SAFETY: the queue lives.
        unsafe { sys::ops::req_notify_cq(self.cq, which == Arm::Solicited) }
    }

    /// Sets `slots` places aside for a queue pair.
    pub(crate) fn reserve(&self, slots: u32) -> Result<(), u32> {
        // Relaxed: the number is all there is to agree on.
        self.reserved
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |reserved| {
                reserved.checked_add(slots).filter(|sum| *sum <= self.depth)
            })
            .map(drop)
            .map_err(|reserved| self.depth.saturating_sub(reserved))
    }

    pub(crate) fn release(&self, slots: u32) {
        // Relaxed: as in `reserve`; only what was reserved is released.
        self.reserved.fetch_sub(slots, Ordering::Relaxed);
    }

    pub(crate) const fn cq(&self) -> CqPtr {
        self.cq
    }
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue")
            .field("depth", &self.depth)
            .field("granted", &self.granted)
            .field("free", &self.free())
            .finish_non_exhaustive()
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: queue pairs and the port hold the queue, so none is left; every event was
        // acknowledged when it was taken.
        let _ = unsafe { sys::verbs::destroy_cq(self.cq) };
    }
}

/// A channel that wakes for the completion queues that were made with it.
///
/// Its descriptor is nonblocking and readable when an armed queue got a completion, for a program's
/// own event loop; [`drain`](Self::drain) when it is.
#[doc(alias = "ibv_comp_channel")]
pub struct CompletionChannel {
    raw: CompletionChannelPtr,
    device: Arc<Device>,
}

impl CompletionChannel {
    /// A channel for queues of `device`.
    ///
    /// # Errors
    ///
    /// What the device says; `EMFILE` when this process has too many open files.
    #[doc(alias = "ibv_create_comp_channel")]
    pub fn new(device: &Arc<Device>) -> Result<Arc<Self>, CallError> {
        // SAFETY: the device lives, and this channel will hold it.
        let raw = unsafe { sys::verbs::create_comp_channel(device.context()) }?;
        Ok(Arc::new(Self { raw, device: Arc::clone(device) }))
    }

    /// Takes and acknowledges the events that are there; returns how many. Never blocks.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    #[doc(alias = "ibv_get_cq_event")]
    #[doc(alias = "ibv_ack_cq_events")]
    pub fn drain(&self) -> Result<usize, CallError> {
        let mut taken = 0;
        // SAFETY: the channel lives.
        while unsafe { sys::verbs::take_cq_event(self.raw) }? {
            taken += 1;
        }
        Ok(taken)
    }

    /// Blocks until an armed queue got a completion, and takes the events; `false` when the
    /// deadline passed first.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn wait(&self, deadline: impl Into<Deadline>) -> Result<bool, CallError> {
        let deadline = deadline.into();
        loop {
            if self.drain()? > 0 {
                return Ok(true);
            }
            let [readable] = sys::wait_readable([self.as_fd()], deadline)?;
            if !readable {
                return Ok(false);
            }
        }
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel outlives the borrow of `self`.
        unsafe { sys::verbs::comp_channel_as_fd(self.raw) }
    }
}

impl fmt::Debug for CompletionChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionChannel").field("fd", &self.as_fd()).finish_non_exhaustive()
    }
}

impl Drop for CompletionChannel {
    fn drop(&mut self) {
        // SAFETY: its queues hold the channel, so none is left.
        let _ = unsafe { sys::verbs::destroy_comp_channel(self.raw) };
    }
}

/// A completion queue cannot be made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum CompletionQueueError {
    /// There is no queue of that depth.
    Depth {
        /// The depth that was asked for.
        given: u32,
        /// The device's largest.
        max: u32,
    },
    /// The channel belongs to another device.
    WrongDevice,
    /// The device belongs to the parent of this process.
    WrongProcess(WrongProcess),
    /// The device says no.
    Call(CallError),
}

impl fmt::Display for CompletionQueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Depth { given, max } => {
                write!(f, "a completion queue of {given} cannot be had; this device has 1 to {max}")
            }
            Self::WrongDevice => f.write_str("the completion channel belongs to another device"),
            Self::WrongProcess(error) => error.fmt(f),
            Self::Call(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CompletionQueueError {}

/// The completion queue's one port is in use, or its device cannot poll.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PollPortTaken {
    unsupported: Option<CallError>,
}

impl fmt::Display for PollPortTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.unsupported {
            None => f.write_str("the completion queue has a poller already; drop it first"),
            Some(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for PollPortTaken {}
