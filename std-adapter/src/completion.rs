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
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::event::{Fate, ObjectId};
use crate::port::PollPort;
use crate::sys::extended::CqExtras;
use crate::sys::{self, CallError, CqPtr};
use crate::trace::say;
use crate::{Device, TimedPollPort};

mod channel;
pub use channel::CompletionChannel;
mod options;
pub use options::CompletionQueueOptions;
mod error;
pub use error::{ArmRefused, CompletionQueueError, PollPortTaken, WaitAnyError};

/// A completion queue.
#[doc(alias = "ibv_cq")]
pub struct CompletionQueue {
    cq: CqPtr,
    depth: u32,
    granted: u32,
    extras: CqExtras,
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
        let options = CompletionQueueOptions::new(depth);
        match channel {
            Some(channel) => options.channel(channel).make(device),
            None => options.make(device),
        }
    }

    fn make(
        device: &Arc<Device>,
        options: CompletionQueueOptions,
    ) -> Result<Arc<Self>, CompletionQueueError> {
        let CompletionQueueOptions { depth, channel, mut extras } = options;
        device.check_process().map_err(CompletionQueueError::WrongProcess)?;
        let max = device.limits().completions;
        let wrong = CompletionQueueError::Depth { given: depth, max };
        if depth == 0 || depth > max {
            return Err(wrong);
        }
        let asked = i32::try_from(depth).map_err(|_| wrong)?;
        if channel.as_ref().is_some_and(|channel| !Arc::ptr_eq(&channel.device, device)) {
            return Err(CompletionQueueError::WrongDevice);
        }
        let vectors = device.vectors();
        if extras.vector >= vectors.max(1) {
            return Err(CompletionQueueError::Vector { given: extras.vector, vectors });
        }
        let raw = channel.as_ref().map(|channel| channel.raw);
        let extended = (extras.timestamps || extras.single_threaded).then(|| {
            // SAFETY: the device and the channel live, and this queue will hold them; who asks for a
            // single thread has promised it.
            unsafe { sys::extended::create_cq_ex(device.context(), depth, raw, extras) }
        });
        let (cq, granted) = match extended {
            Some(Ok(made)) => made,
            // Not asked for, or not to be had: a plain one.
            other => {
                if let Some(Err(error)) = other {
                    say!(info, "a plain completion queue takes the place of another", why = error);
                }
                (extras.timestamps, extras.single_threaded) = (false, false);
                // SAFETY: as above.
                unsafe { sys::verbs::create_cq(device.context(), asked, raw, extras.vector) }
                    .map_err(CompletionQueueError::Call)?
            }
        };
        let granted = u32::try_from(granted).unwrap_or(depth);
        Ok(Arc::new(Self {
            cq,
            depth: depth.min(granted),
            granted,
            extras,
            reserved: AtomicU32::new(0),
            sends: AtomicU32::new(0),
            port_taken: AtomicBool::new(false),
            channel,
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

    /// The way to poll it with the time of each completion, in place of the plain one.
    ///
    /// # Errors
    ///
    /// [`PollPortTaken`] when a port is in use, or the queue has no timestamps.
    pub fn timed_port(self: &Arc<Self>) -> Result<TimedPollPort, PollPortTaken> {
        if !self.has_timestamps() {
            let unsupported = CallError::new("ibv_start_poll", libc::EOPNOTSUPP);
            return Err(PollPortTaken { unsupported: Some(unsupported) });
        }
        // Acquire: as in `poll_port`.
        if self.port_taken.swap(true, Ordering::Acquire) {
            return Err(PollPortTaken { unsupported: None });
        }
        // SAFETY: the queue lives, was made with timestamps, and the port will hold it.
        match unsafe { sys::extended::TimedPollOp::new(self.cq) } {
            Ok(op) => Ok(TimedPollPort::new(op, Arc::clone(self))),
            Err(error) => {
                self.give_back();
                Err(PollPortTaken { unsupported: Some(error) })
            }
        }
    }

    /// Whether it has the time of each completion.
    pub const fn has_timestamps(&self) -> bool {
        self.extras.timestamps
    }

    /// Whether it goes without the device library's lock.
    pub const fn is_single_threaded(&self) -> bool {
        self.extras.single_threaded
    }

    /// What a port's arming returns.
    pub(crate) fn arm_code(&self, solicited_only: bool) -> i32 {
        match self.arm(if solicited_only { Arm::Solicited } else { Arm::Any }) {
            Ok(()) => 0,
            Err(ArmRefused::Call(error)) => error.errno(),
            Err(_) => libc::EINVAL,
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
        if self.device.is_parents() {
            return;
        }
        self.device.tenants().remove_queue(self.cq);
        // SAFETY: queue pairs and the port hold the queue, so none is left; every event was
        // acknowledged when it was taken.
        let _ = unsafe { sys::verbs::destroy_cq(self.cq) };
    }
}
