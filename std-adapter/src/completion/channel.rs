//! Channels that wake for completion queues.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use nanoverbs_core::{Armed, Completions};

use super::WaitAnyError;
use crate::port::PollPort;
use crate::sys::{self, CallError, CompletionChannelPtr};
use crate::{Deadline, Device};

/// A channel that wakes for the completion queues that were made with it.
///
/// Its descriptor is nonblocking and readable when an armed queue got a completion, for a program's
/// own event loop; [`drain`](Self::drain) when it is.
#[doc(alias = "ibv_comp_channel")]
pub struct CompletionChannel {
    pub(super) raw: CompletionChannelPtr,
    pub(super) device: Arc<Device>,
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
