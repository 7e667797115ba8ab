//! What a polling thread has done, readable from outside.
//!
//! One thread counts, any thread reads. Counting is a load and a store, no read-modify-write, so a
//! reader costs the poller nothing but the line that it fetches.

use core::fmt;

use crate::sync::{AtomicUsize, Ordering, Padded, const_unless_loom};

/// The counters of one polling thread.
///
/// ```
/// use nanoverbs_core::Counters;
///
/// static COUNTERS: Counters = Counters::new();
///
/// // The polling thread, once a turn:
/// COUNTERS.polled(0);
/// COUNTERS.polled(3);
/// COUNTERS.turned(250);
///
/// // Any thread:
/// let reading = COUNTERS.read();
/// assert_eq!((reading.polls, reading.empty_polls, reading.completions), (2, 1, 3));
/// assert_eq!(reading.longest_turn, 250);
/// ```
///
/// Counts wrap at the size of a `usize`. If two threads count, some counts are lost, and nothing
/// worse.
pub struct Counters(Padded<Fields>);

struct Fields {
    polls: AtomicUsize,
    empty_polls: AtomicUsize,
    completions: AtomicUsize,
    longest_turn: AtomicUsize,
}

impl Counters {
    const_unless_loom! {
        /// Counters at zero.
        pub fn new() -> Self {
            Self(Padded(Fields {
                polls: AtomicUsize::new(0),
                empty_polls: AtomicUsize::new(0),
                completions: AtomicUsize::new(0),
                longest_turn: AtomicUsize::new(0),
            }))
        }
    }

    /// Counts a poll that brought so many completions. For the polling thread.
    #[inline(always)]
    pub fn polled(&self, completions: usize) {
        let fields = &self.0.0;
        // Relaxed: only this thread writes it, and the release below publishes it.
        add(&fields.polls, 1, Ordering::Relaxed);
        // Release, pairs with the acquire in `read`: whoever sees this count sees the poll's.
        if completions == 0 {
            add(&fields.empty_polls, 1, Ordering::Release);
        } else {
            add(&fields.completions, completions, Ordering::Release);
        }
    }

    /// Counts a turn of the loop that took so long, in any unit, if it is the longest yet. For the
    /// polling thread.
    #[inline(always)]
    pub fn turned(&self, took: usize) {
        let longest = &self.0.0.longest_turn;
        // Relaxed: only this thread writes it, and it guards nothing.
        if took > longest.load(Ordering::Relaxed) {
            longest.store(took, Ordering::Relaxed);
        }
    }

    /// The counts as of now. No count goes back, and each empty poll and each completion comes with
    /// the poll that it is of. Any thread may call; never waits.
    pub fn read(&self) -> Reading {
        let fields = &self.0.0;
        // Acquire, pairs with the release in `polled`: read before `polls`, so that their polls are
        // in it.
        let empty_polls = fields.empty_polls.load(Ordering::Acquire);
        let completions = fields.completions.load(Ordering::Acquire);
        Reading {
            polls: fields.polls.load(Ordering::Relaxed),
            empty_polls,
            completions,
            longest_turn: fields.longest_turn.load(Ordering::Relaxed),
        }
    }
}

/// Adds to a number that no other thread writes.
#[inline(always)]
fn add(number: &AtomicUsize, more: usize, order: Ordering) {
    // Relaxed: this thread wrote it last.
    number.store(number.load(Ordering::Relaxed).wrapping_add(more), order);
}

impl Default for Counters {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.read().fmt(f)
    }
}

/// What [`Counters`] had counted at some moment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Reading {
    /// Polls of a completion queue.
    pub polls: usize,
    /// Those that brought nothing.
    pub empty_polls: usize,
    /// Completions that the others brought.
    pub completions: usize,
    /// The longest turn of the loop, in the poller's unit.
    pub longest_turn: usize,
}
