//! Polling with the time of each completion.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nanoverbs_core::abi::Wc;
use nanoverbs_core::port;

use crate::CompletionQueue;
use crate::sys::extended::TimedPollOp;

/// The most completions that one poll through a [`TimedPollPort`] gives.
pub const TIMED_BATCH: usize = 64;

/// The way to poll a completion queue with the time of each completion. Holds its queue.
///
/// It takes the place of [`PollPort`](crate::port::PollPort) under the core's `Completions`; the times
/// of the last batch stand in [`Timestamps`]. A poll gives at most [`TIMED_BATCH`] completions.
#[derive(Debug)]
#[doc(alias = "ibv_start_poll")]
pub struct TimedPollPort {
    op: TimedPollOp,
    times: Timestamps,
    queue: Arc<CompletionQueue>,
}

/// The times of the last batch, in ticks of the device's clock
/// ([`Device::clock_khz`](crate::Device::clock_khz)). For the thread that polls.
#[derive(Clone, Debug)]
#[doc(alias = "ibv_wc_read_completion_ts")]
pub struct Timestamps(Arc<[AtomicU64; TIMED_BATCH]>);

impl Timestamps {
    fn new() -> Self {
        Self(Arc::new([const { AtomicU64::new(0) }; TIMED_BATCH]))
    }

    /// The time of the completion that came at `place` in the last batch, from 0 on.
    pub fn of(&self, place: usize) -> Option<u64> {
        // Relaxed: the thread that polls reads what it has written.
        self.0.get(place).map(|time| time.load(Ordering::Relaxed))
    }

    fn set(&self, place: usize, time: u64) {
        if let Some(entry) = self.0.get(place) {
            // Relaxed: as in `of`.
            entry.store(time, Ordering::Relaxed);
        }
    }
}

impl TimedPollPort {
    pub(crate) fn new(op: TimedPollOp, queue: Arc<CompletionQueue>) -> Self {
        Self { op, times: Timestamps::new(), queue }
    }

    /// The queue that it polls.
    pub const fn queue(&self) -> &Arc<CompletionQueue> {
        &self.queue
    }

    /// The times of the last batch, to be kept beside the completions.
    pub fn timestamps(&self) -> Timestamps {
        self.times.clone()
    }
}

// SAFETY: what `ibv_start_poll(3)` says of the current completion is what the trait asks for; the count
// is that of the entries written.
unsafe impl port::PollPort for TimedPollPort {
    fn poll(&mut self, into: &mut [Wc]) -> i32 {
        let len = into.len().min(TIMED_BATCH);
        let times = &self.times;
        // SAFETY: the port holds its queue.
        unsafe { self.op.poll(&mut into[..len], |place, time| times.set(place, time)) }
    }
}

impl port::ArmPort for TimedPollPort {
    fn arm(&mut self, solicited_only: bool) -> i32 {
        self.queue.arm_code(solicited_only)
    }
}

impl Drop for TimedPollPort {
    fn drop(&mut self) {
        self.queue.give_back();
    }
}

static_assertions::assert_impl_all!(TimedPollPort: Send);
static_assertions::assert_not_impl_any!(TimedPollPort: Clone);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_stand_at_the_places_of_their_completions() {
        let times = Timestamps::new();
        times.set(3, 42);
        times.set(TIMED_BATCH, 43);
        assert_eq!((times.of(3), times.of(0), times.of(TIMED_BATCH)), (Some(42), Some(0), None));
    }
}
