//! Waking a thread that sleeps because there was nothing to do.
//!
//! Many threads ring, one answers. Ringing is one atomic swap, after the work has been handed over;
//! it says whether somebody sleeps and must be woken, by whatever means the program has: unparking
//! a thread, writing to a file descriptor, an interrupt. The core knows no such means, only who
//! needs it.
//!
//! Invariant: there is one word, and everybody changes it by a swap or an exchange, so a ring comes
//! either before the sleeper armed, which then does not sleep, or after it, and then it says to
//! wake. None comes between.

use core::fmt;

use crate::sync::{AtomicU32, Ordering, Padded, const_unless_loom};

/// Nobody rang since the last answer, and nobody sleeps.
const QUIET: u32 = 0;
/// Somebody rang.
const RUNG: u32 = 1;
/// Somebody sleeps, or is about to.
const ASLEEP: u32 = 2;

/// A wake-up between threads that cannot be lost.
///
/// One thread waits. The order of its steps matters: look for work; when there is none, arm; sleep
/// while the nap is not over; then look for work again. A ringer hands work over first and rings
/// then.
///
/// A thread that spins and never sleeps needs no doorbell.
///
/// ```
/// use nanoverbs_core::{Doorbell, Ring};
/// use std::sync::Arc;
///
/// let mut ring = Ring::<u32, 4>::new();
/// let (mut producer, mut consumer) = ring.split();
/// let bell = Doorbell::new();
///
/// std::thread::scope(|scope| {
///     let waiter = scope.spawn(|| loop {
///         if let Some(order) = consumer.pop() {
///             break order;
///         }
///         if let Some(nap) = bell.arm() {
///             while !nap.is_over() {
///                 std::thread::park();
///             }
///         }
///     });
///     producer.push(7).unwrap();
///     if bell.ring() {
///         waiter.thread().unpark();
///     }
///     assert_eq!(waiter.join().unwrap(), 7);
/// });
/// ```
pub struct Doorbell(Padded<AtomicU32>);

impl Doorbell {
    const_unless_loom! {
        /// A bell that nobody rang.
        pub fn new() -> Self {
            Self(Padded(AtomicU32::new(QUIET)))
        }
    }

    /// Says that there is work. Returns whether the thread that waits is asleep, so that the caller
    /// must wake it; every ring that follows until it is up says `false`. Any thread may call, also
    /// from a signal handler; never waits.
    #[must_use = "when it is true somebody sleeps and has to be woken"]
    #[inline(always)]
    pub fn ring(&self) -> bool {
        // Release, pairs with the acquires in `arm` and in `Nap`: the work is visible to who
        // answers. Acquire, pairs with the release in `arm`: what the sleeper prepared to be woken
        // by is visible.
        self.0.0.swap(RUNG, Ordering::AcqRel) == ASLEEP
    }

    /// Announces a nap, when nobody rang since the last one. `None` when somebody did: look for
    /// work again.
    ///
    /// One thread waits at a doorbell. If a second one arms meanwhile it does not sleep, but it may
    /// take the first one's ring.
    #[inline]
    pub fn arm(&self) -> Option<Nap<'_>> {
        // Release, pairs with the acquire in `ring`: what was prepared to be woken by is visible.
        // Relaxed on failure: the acquire is in the exchange below.
        let armed = self.0.0.compare_exchange(QUIET, ASLEEP, Ordering::Release, Ordering::Relaxed);
        if armed.is_ok() {
            return Some(Nap(self));
        }
        // Acquire, pairs with the release in `ring`: the work that was rung for is visible. It
        // fails only for a second waiter.
        let _ = self.0.0.compare_exchange(RUNG, QUIET, Ordering::Acquire, Ordering::Relaxed);
        None
    }
}

impl Default for Doorbell {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Doorbell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Doorbell").finish_non_exhaustive()
    }
}

/// A time in which the thread that waits may sleep. Dropped, the thread is awake: rings do not ask
/// to wake it any more. Look for work afterwards, however the nap ended.
#[must_use = "who does not keep the nap is awake"]
pub struct Nap<'b>(&'b Doorbell);

impl Nap<'_> {
    /// Whether somebody rang since the nap began. Sleepers wake for no reason; this says whether
    /// there is one.
    #[inline]
    pub fn is_over(&self) -> bool {
        // Relaxed: the acquire is in the drop.
        self.0.0.0.load(Ordering::Relaxed) == RUNG
    }
}

impl Drop for Nap<'_> {
    fn drop(&mut self) {
        // Acquire, pairs with the release in `ring`: the work that was rung for is visible.
        self.0.0.0.swap(QUIET, Ordering::Acquire);
    }
}

impl fmt::Debug for Nap<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nap").field("is_over", &self.is_over()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
