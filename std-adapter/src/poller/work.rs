//! What a poller does: the trait that its user implements, and closures in its place.

use std::fmt;
use std::time::Duration;

use nanoverbs_core::Armed;

use crate::endpoint::WaitError;

/// What one turn came to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub enum Turn {
    /// There was nothing to do.
    Idle,
    /// There was nothing to do, but something is under way that ends by itself, such as a send in flight. A
    /// poller that is to stop waits for it, within its bound.
    Pending,
    /// So many completions, messages or the like were dealt with. There may be more.
    Busy(usize),
    /// The work is done, and the poller ends.
    Finished,
    /// The work cannot go on, and the poller ends: with [`End::Disconnected`](super::End::Disconnected) when it
    /// is [`WaitError::Disconnected`].
    Failed(WaitError),
}

/// The work of a poller. Everything is called from the poller's thread, and by nobody else.
///
/// A closure `FnMut(usize) -> Turn` is work that spins; [`Woken`] makes it one that may sleep until another
/// thread wakes it; [`Drive`](super::Drive) serves an endpoint, [`Serve`](super::Serve) a hub.
pub trait Work {
    /// Deals with at most `batch` things, and returns. It must not block: while it runs the poller cannot be
    /// stopped. A panic ends the poller.
    fn turn(&mut self, batch: usize) -> Turn;

    /// Whether something is under way that ends by itself, such as a send in flight: what [`Turn::Pending`] says,
    /// for work that takes long to find out. Asked of a poller that is to stop, after an idle turn.
    fn is_pending(&self) -> bool {
        false
    }

    /// Whether it can sleep: whether whatever brings new work then ends one of its
    /// [`sources`](Work::sources), or is followed by [`Waker::wake`](super::Waker::wake).
    fn can_sleep(&self) -> bool {
        false
    }

    /// Arms what shall end the sleep, and then looks once more: what came before the arming raises no event.
    /// The poller sleeps only after [`Armed::Quiet`].
    ///
    /// # Errors
    ///
    /// [`WaitError`] ends the poller.
    fn arm(&mut self) -> Result<Armed, WaitError> {
        Ok(Armed::Quiet)
    }

    /// Names what ends the sleep, besides the poller's own means. Called after each [`Work::arm`].
    fn sources<'s>(&'s self, sources: &mut Sources<'s>) {
        let _ = sources;
    }
}

impl<F: FnMut(usize) -> Turn> Work for F {
    #[inline(always)]
    fn turn(&mut self, batch: usize) -> Turn {
        self(batch)
    }
}

/// A closure that may sleep, because each thread that makes work for it calls
/// [`Waker::wake`](super::Waker::wake) afterwards.
pub struct Woken<F>(pub F);

impl<F: FnMut(usize) -> Turn> Work for Woken<F> {
    #[inline(always)]
    fn turn(&mut self, batch: usize) -> Turn {
        (self.0)(batch)
    }

    fn can_sleep(&self) -> bool {
        true
    }
}

impl<F> fmt::Debug for Woken<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Woken(..)")
    }
}

#[doc(inline)]
pub use super::sources::Sources;

/// How a poller passes the time when there is nothing to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum IdlePolicy {
    /// It spins: the lowest latency, and a core of its own.
    Spin,
    /// It spins for so many empty turns in a row, and then offers the core to other threads after each further
    /// one. For a core that is shared with threads of the same priority. Under
    /// [`Scheduling::Fifo`](super::Scheduling::Fifo) only threads of the same priority get it.
    SpinThenYield {
        /// Empty turns before the first offer.
        spins: u32,
    },
    /// It spins for so many empty turns in a row, then arms what brings new work and sleeps. The choice for
    /// a device whose work is done by a processor, such as Soft-RoCE.
    SpinThenSleep {
        /// Empty turns before it sleeps.
        spins: u32,
        /// The longest sleep; then it looks for itself. Bounds what a device that raised no event can cost.
        longest: Duration,
    },
}

impl IdlePolicy {
    pub(super) const fn sleeps(self) -> bool {
        matches!(self, Self::SpinThenSleep { .. })
    }
}
