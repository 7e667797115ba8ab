//! Completion queues, and the channels that wake a thread when one is no longer empty.
//!
//! A queue is made with room for a stated number of completions. Each queue pair reserves, when it
//! is made, a place for every request that it can hold, and is refused when there are too few:
//! devices drop what does not fit, silently or with both queues.
//!
//! Polling is the business of one [`PollPort`], which belongs to one thread. Arming and waiting may
//! be done by any thread. The order that loses no wake-up is: poll until empty,
//! [`arm`](CompletionQueue::arm), poll once more, and only then [`wait`](CompletionChannel::wait).
//! [`CompletionChannel::wait_any`] does all of it, for one queue or for several.
//!
//! Events are acknowledged in the call that takes them, so destroying a queue never waits on a
//! user.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use nanoverbs_core::{Armed, Completions};

use crate::event::{Fate, ObjectId};
use crate::port::PollPort;
use crate::sys::{self, CallError, CompletionChannelPtr, CqPtr};
use crate::{Deadline, Device};

mod error;
pub use error::{ArmRefused, CompletionQueueError, PollPortTaken, WaitAnyError};

/// A completion queue.
#[doc(alias = "ibv_cq")]
pub struct CompletionQueue {
    cq: CqPtr,
    depth: u32,
    granted: u32,
    reserved: AtomicU32,
    /// Those of them that are for sends.
    sends: AtomicU32,
    port_taken: AtomicBool,
    channel: Option<Arc<CompletionChannel>>,
    fate: Arc<Fate>,
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
            sends: AtomicU32::new(0),
            port_taken: AtomicBool::new(false),
            channel: channel.cloned(),
            fate: device.tenants().add_queue(cq),
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

    /// Its identity, as [`DeviceEvent`](crate::event::DeviceEvent) has it.
    pub fn id(&self) -> ObjectId {
        ObjectId::new(self.cq.address())
    }

    /// Whether an event of its device has ended it, as far as events were read: it has overflowed, or
    /// the device is broken. Its queue pairs are in the error state then, and completions are missing.
    pub fn has_failed(&self) -> bool {
        self.fate.has_failed()
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
    /// [`ArmRefused`] when nobody would be woken, or the device says no.
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn arm(&self, which: Arm) -> Result<(), ArmRefused> {
        if self.channel.is_none() {
            return Err(ArmRefused::NoChannel);
        }
        // Relaxed: a number to look at.
        if which == Arm::Solicited && self.sends.load(Ordering::Relaxed) > 0 {
            return Err(ArmRefused::SolicitedWithSends);
        }
        // SAFETY: the queue lives.
        unsafe { sys::ops::req_notify_cq(self.cq, which == Arm::Solicited) }
            .map_err(ArmRefused::Call)
    }

    /// The same for sends, which a solicited arming would sleep through.
    pub(crate) fn reserve_sends(&self, slots: u32) -> Result<(), u32> {
        self.reserve(slots)?;
        // Relaxed: as in `reserve`.
        self.sends.fetch_add(slots, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn release_sends(&self, slots: u32) {
        self.release(slots);
        // Relaxed: as in `reserve`.
        self.sends.fetch_sub(slots, Ordering::Relaxed);
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
        self.device.tenants().remove_queue(self.cq);
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

impl CompletionChannel {
    /// Sleeps until one of `queues` has a completion, and takes the events; `false` when the deadline
    /// passed first. Poll them all then, whichever it was: an event does not say.
    ///
    /// Each queue is armed, and looked at once more after that, before this sleeps: what comes in
    /// between is not slept over, however many queues there are.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use nanoverbs::{CompletionChannel, CompletionQueue, Device};
    /// use nanoverbs_core::Completions;
    ///
    /// # let device = Device::open("rxe0")?;
    /// let channel = CompletionChannel::new(&device)?;
    /// let queue = || CompletionQueue::new(&device, 64, Some(&channel));
    /// let (sends, receives) = (queue()?, queue()?);
    /// let mut sent: Completions<_, 16> = Completions::new(sends.poll_port()?, 64);
    /// let mut received: Completions<_, 16> = Completions::new(receives.poll_port()?, 64);
    /// while channel.wait_any(&mut [&mut sent, &mut received], Duration::from_secs(1))? {
    ///     for completion in sent.poll()? { /* retire it */ }
    ///     for completion in received.poll()? { /* retire it */ }
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`WaitAnyError`]: a queue of another channel, one that cannot be armed or polled.
    #[doc(alias = "ibv_req_notify_cq")]
    #[doc(alias = "ibv_get_cq_event")]
    pub fn wait_any<const BATCH: usize>(
        &self,
        queues: &mut [&mut Completions<PollPort, BATCH>],
        deadline: impl Into<Deadline>,
    ) -> Result<bool, WaitAnyError> {
        let deadline = deadline.into();
        for queue in queues.iter() {
            let channel = queue.port().queue().channel();
            if channel.is_none_or(|channel| !std::ptr::eq(&raw const **channel, self)) {
                return Err(WaitAnyError::OtherChannel);
            }
        }
        // Older events first: arming comes after, so that what is taken here is not missed.
        self.drain().map_err(WaitAnyError::Call)?;
        loop {
            let mut ready = false;
            for queue in queues.iter_mut() {
                ready |= queue.arm(false).map_err(WaitAnyError::Arm)? == Armed::Ready;
            }
            if ready {
                return Ok(true);
            }
            if !self.wait(deadline).map_err(WaitAnyError::Call)? {
                return Ok(false);
            }
            // The event may be an old one, of a completion that was polled already; arming tells.
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
