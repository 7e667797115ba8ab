//! What a completion queue can have beside its depth.

use std::sync::Arc;

use super::{CompletionChannel, CompletionQueue, CompletionQueueError};
use crate::Device;
use crate::sys::extended::CqExtras;

/// How to make a completion queue.
///
/// What a device has not is left out, and the queue says so: see
/// [`CompletionQueue::has_timestamps`] and [`CompletionQueue::is_single_threaded`].
///
/// ```no_run
/// use nanoverbs::{CompletionQueueOptions, Device};
///
/// let device = Device::open("mlx5_0")?;
/// let queue = CompletionQueueOptions::new(1024).timestamps().make(&device)?;
/// if queue.has_timestamps() {
///     println!("in ticks of {:?} kHz", device.clock_khz());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "ibv_cq_init_attr_ex")]
#[must_use = "options do nothing until a queue is made with them"]
pub struct CompletionQueueOptions {
    pub(super) depth: u32,
    pub(super) channel: Option<Arc<CompletionChannel>>,
    pub(super) extras: CqExtras,
}

impl CompletionQueueOptions {
    /// Room for `depth` completions, no channel, plain.
    pub const fn new(depth: u32) -> Self {
        let extras = CqExtras { vector: 0, single_threaded: false, timestamps: false };
        Self { depth, channel: None, extras }
    }

    /// With a channel it can be armed and waited for.
    pub fn channel(mut self, channel: &Arc<CompletionChannel>) -> Self {
        self.channel = Some(Arc::clone(channel));
        self
    }

    /// Which of the device's interrupts wakes, from 0 on; see [`Device::vectors`].
    #[doc(alias = "comp_vector")]
    pub const fn vector(mut self, vector: u32) -> Self {
        self.extras.vector = vector;
        self
    }

    /// With the time at which the device completed each request, for [`CompletionQueue::timed_port`].
    #[doc(alias = "IBV_WC_EX_WITH_COMPLETION_TIMESTAMP")]
    pub const fn timestamps(mut self) -> Self {
        self.extras.timestamps = true;
        self
    }

    /// Without the device library's lock.
    ///
    /// # Safety
    ///
    /// From the time when the queue is made until it is gone, no two threads at a time poll it, make or
    /// destroy a queue pair on it, or change the state of one, and neither reads an event of its device
    /// that does so ([`Device::poll_event`]).
    #[doc(alias = "IBV_CREATE_CQ_ATTR_SINGLE_THREADED")]
    pub const unsafe fn single_threaded(mut self) -> Self {
        self.extras.single_threaded = true;
        self
    }

    /// Makes the queue.
    ///
    /// # Errors
    ///
    /// As for [`CompletionQueue::new`], and [`CompletionQueueError::Vector`].
    #[doc(alias = "ibv_create_cq_ex")]
    pub fn make(self, device: &Arc<Device>) -> Result<Arc<CompletionQueue>, CompletionQueueError> {
        CompletionQueue::make(device, self)
    }
}
