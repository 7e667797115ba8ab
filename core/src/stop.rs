//! Asking a thread to stop.
//!
//! Any thread asks, and so may a signal handler: it is one store. The thread that shall stop looks
//! once a turn, before it looks for work: what was handed over before the request is then still
//! seen.

use core::fmt;

use crate::sync::{AtomicBool, Ordering, const_unless_loom};

/// A flag that is raised once and stays so.
///
/// To lose nothing at the end, read the flag first and the rings after it:
///
/// ```
/// use nanoverbs_core::{Ring, Stop};
///
/// static STOP: Stop = Stop::new();
///
/// let mut ring = Ring::<u32, 4>::new();
/// let (mut producer, mut consumer) = ring.split();
/// let sum = std::thread::scope(|scope| {
///     let poller = scope.spawn(|| {
///         let mut sum = 0;
///         loop {
///             let is_last = STOP.is_requested();
///             sum += consumer.drain(4).sum::<u32>();
///             if is_last {
///                 break sum;
///             }
///         }
///     });
///     producer.push(1).unwrap();
///     producer.push(2).unwrap();
///     STOP.request();
///     poller.join().unwrap()
/// });
/// assert_eq!(sum, 3);
/// ```
///
/// A thread that may sleep is woken as well, by ringing its [`crate::Doorbell`] after the request.
pub struct Stop(AtomicBool);

impl Stop {
    const_unless_loom! {
        /// A flag that is down.
        pub fn new() -> Self {
            Self(AtomicBool::new(false))
        }
    }

    /// Raises the flag. Any thread may call, also from a signal handler; never waits.
    #[inline]
    pub fn request(&self) {
        // Release, pairs with the acquire in `is_requested`: what was handed over before is
        // visible.
        self.0.store(true, Ordering::Release);
    }

    /// Whether the flag is up. What the thread that raised it did before is visible then.
    #[inline(always)]
    pub fn is_requested(&self) -> bool {
        // Acquire, pairs with the release in `request`.
        self.0.load(Ordering::Acquire)
    }
}

impl Default for Stop {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stop").finish_non_exhaustive()
    }
}
