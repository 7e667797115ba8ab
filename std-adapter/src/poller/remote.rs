//! The poller as other threads see it: stop it, wake it, read its counters.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nanoverbs_core::{Armed, Counters, Doorbell, Stop};

use super::{Sources, Work};
use crate::endpoint::WaitError;
use crate::sys::{self, CallError, Event};

/// What a poller and its handles share.
pub(super) struct Shared {
    pub(super) stop: Stop,
    pub(super) counters: Counters,
    yields: AtomicU64,
    sleeps: AtomicU64,
    bell: Doorbell,
    /// There when the poller may sleep.
    event: Option<Event>,
    began: Instant,
    first_tick: u64,
}

impl Shared {
    pub(super) fn new(sleeps: bool) -> Result<Self, CallError> {
        Ok(Self {
            stop: Stop::new(),
            counters: Counters::new(),
            yields: AtomicU64::new(0),
            sleeps: AtomicU64::new(0),
            bell: Doorbell::new(),
            event: sleeps.then(Event::new).transpose()?,
            began: Instant::now(),
            first_tick: sys::thread::ticks(),
        })
    }

    pub(super) fn wake(&self) {
        let Some(event) = &self.event else { return };
        if self.bell.ring() {
            event.raise();
        }
    }

    /// Offers the core to others. Called by the poller.
    pub(super) fn yield_now(&self) {
        // Relaxed: a count to look at.
        self.yields.fetch_add(1, Ordering::Relaxed);
        std::thread::yield_now();
    }

    /// Arms, and sleeps when there is nothing. Called by the poller.
    pub(super) fn sleep(&self, work: &mut impl Work, longest: Duration) -> Result<(), WaitError> {
        let Some(event) = &self.event else { return Ok(()) };
        if work.arm()? == Armed::Ready {
            return Ok(());
        }
        // Who hands over work, or asks to stop, rings afterwards: either before this, and then there is
        // no nap, or after it, and then the event is raised.
        let Some(nap) = self.bell.arm() else { return Ok(()) };
        let mut sources = Sources::new();
        sources.add(std::os::fd::AsFd::as_fd(event));
        sources.at_most(longest);
        work.sources(&mut sources);
        // Relaxed: a count to look at.
        self.sleeps.fetch_add(1, Ordering::Relaxed);
        let slept = sources.sleep();
        drop(nap);
        event.clear();
        Ok(slept?)
    }

    pub(super) fn stats(&self) -> Stats {
        let reading = self.counters.read();
        Stats {
            turns: reading.polls,
            empty_turns: reading.empty_polls,
            completions: reading.completions,
            longest_turn: self.duration(reading.longest_turn),
            yields: self.yields.load(Ordering::Relaxed),
            sleeps: self.sleeps.load(Ordering::Relaxed),
        }
    }

    /// Ticks as time: the clock is measured against the system's since the poller was made.
    fn duration(&self, ticks: usize) -> Duration {
        let passed = sys::thread::ticks().wrapping_sub(self.first_tick).max(1);
        let nanos = self.began.elapsed().as_nanos() * ticks as u128 / u128::from(passed);
        Duration::from_nanos(nanos.try_into().unwrap_or(u64::MAX))
    }
}

/// What a poller has done. Counts wrap at the size of a `usize`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Turns of the loop.
    pub turns: usize,
    /// Those that found nothing to do.
    pub empty_turns: usize,
    /// What the others dealt with: the sum over [`Turn::Busy`](super::Turn::Busy).
    pub completions: usize,
    /// The longest time from the end of one turn to the end of the next, without sleeps and yields. Time in which the
    /// system took the core away is in it.
    pub longest_turn: Duration,
    /// How often it offered the core to others.
    pub yields: u64,
    /// How often it slept.
    pub sleeps: u64,
}

/// Ends a poller, from any thread and from a signal handler.
///
/// For a handler, keep it in a static:
///
/// ```
/// use nanoverbs::poller::StopHandle;
/// use std::sync::OnceLock;
///
/// static STOP: OnceLock<StopHandle> = OnceLock::new();
///
/// extern "C" fn on_interrupt(_signal: i32) {
///     if let Some(stop) = STOP.get() {
///         stop.stop();
///     }
/// }
/// ```
#[derive(Clone)]
pub struct StopHandle(pub(super) Arc<Shared>);

impl StopHandle {
    /// Asks the poller to end; wakes it when it sleeps. What was handed over before is still dealt
    /// with, within the poller's bound ([`Builder::drain`](super::Builder::drain)).
    ///
    /// Two atomic stores, and `write(2)` when it sleeps: never waits, and may be called in a signal
    /// handler. (Making, cloning and dropping a handle may not.)
    pub fn stop(&self) {
        self.0.stop.request();
        self.0.wake();
    }

    /// Whether it was asked to end.
    pub fn is_requested(&self) -> bool {
        self.0.stop.is_requested()
    }
}

impl fmt::Debug for StopHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StopHandle").field("is_requested", &self.is_requested()).finish()
    }
}

/// Wakes a poller that sleeps, from any thread and from a signal handler.
#[derive(Clone)]
pub struct Waker(pub(super) Arc<Shared>);

impl Waker {
    /// Says that there is work: call it after handing it over. One atomic swap, and `write(2)` when the poller
    /// sleeps; nothing at all when it is one that never does.
    #[inline]
    pub fn wake(&self) {
        self.0.wake();
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waker").finish_non_exhaustive()
    }
}

/// Reads the counters of a poller, from any thread, without disturbing it. They stay when it has ended.
#[derive(Clone)]
pub struct Gauge(pub(super) Arc<Shared>);

impl Gauge {
    /// The counts as of now.
    pub fn read(&self) -> Stats {
        self.0.stats()
    }
}

impl fmt::Debug for Gauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.read().fmt(f)
    }
}
