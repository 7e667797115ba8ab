//! The loop: turn, rest, stop.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::remote::{Shared, Stats};
use super::{IdlePolicy, Turn, Work};
use crate::Deadline;
use crate::endpoint::WaitError;
use crate::sys::thread::ticks;

/// The numbers of a loop.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) idle: IdlePolicy,
    pub(super) batch: usize,
    pub(super) drain: Duration,
}

/// Why a poller ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum End {
    /// The work was done: [`Turn::Finished`].
    Finished,
    /// It was asked to.
    Stopped {
        /// Whether the work came to rest: the last turn was [`Turn::Idle`]. If not, the time for that
        /// was over ([`Builder::drain`](super::Builder::drain)).
        drained: bool,
    },
    /// The peer said goodbye, and everything that was in flight has its outcome:
    /// [`WaitError::Disconnected`], from a turn or from arming.
    Disconnected,
    /// The work could not go on: [`Turn::Failed`], or it could not be armed.
    Failed(WaitError),
    /// The work panicked, with this.
    Panicked(Box<dyn Any + Send>),
}

impl End {
    /// What the work said when it panicked, if that was text.
    pub fn panic_message(&self) -> Option<&str> {
        let Self::Panicked(payload) = self else { return None };
        payload
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| payload.downcast_ref::<&str>().copied())
    }
}

impl From<WaitError> for End {
    fn from(error: WaitError) -> Self {
        match error {
            WaitError::Disconnected => Self::Disconnected,
            error => Self::Failed(error),
        }
    }
}

/// What a poller leaves behind.
#[derive(Debug)]
#[must_use = "the work is in here, and why it ended"]
pub struct Report<W> {
    /// The work. After a panic it is as the panic left it.
    pub work: W,
    /// Why the poller ended.
    pub end: End,
    /// What it has done.
    pub stats: Stats,
}

/// Everything from the first turn to the report.
pub(super) fn run<W: Work>(mut work: W, shared: &Shared, plan: Plan) -> Report<W> {
    // The work is handed back as it is, so whoever looks at it knows that it was interrupted.
    let end = catch_unwind(AssertUnwindSafe(|| turns(&mut work, shared, plan)));
    Report { work, end: end.unwrap_or_else(End::Panicked), stats: shared.stats() }
}

fn turns<W: Work>(work: &mut W, shared: &Shared, plan: Plan) -> End {
    let mut empty: u32 = 0;
    let mut mark = ticks();
    loop {
        if shared.stop.is_requested() {
            return drain(work, shared, plan);
        }
        let turn = work.turn(plan.batch);
        let now = ticks();
        shared.counters.turned(between(mark, now));
        mark = now;
        match turn {
            Turn::Busy(count) => {
                shared.counters.polled(count);
                empty = 0;
            }
            Turn::Idle | Turn::Pending => {
                shared.counters.polled(0);
                empty = empty.saturating_add(1);
                match rest(work, shared, plan.idle, empty) {
                    Ok(Rested::Spun) => {}
                    Ok(Rested::Yielded) => mark = ticks(),
                    Ok(Rested::Slept) => {
                        mark = ticks();
                        empty = 0;
                    }
                    Err(error) => return error.into(),
                }
            }
            Turn::Finished => return End::Finished,
            Turn::Failed(error) => return error.into(),
        }
    }
}

enum Rested {
    Spun,
    Yielded,
    Slept,
}

#[inline(always)]
fn rest<W: Work>(
    work: &mut W,
    shared: &Shared,
    idle: IdlePolicy,
    empty: u32,
) -> Result<Rested, WaitError> {
    match idle {
        IdlePolicy::SpinThenYield { spins } if empty > spins => {
            shared.yield_now();
            Ok(Rested::Yielded)
        }
        IdlePolicy::SpinThenSleep { spins, longest } if empty > spins => {
            shared.sleep(work, longest)?;
            Ok(Rested::Slept)
        }
        // A pause of the processor takes longer than a turn that finds nothing.
        IdlePolicy::Spin => Ok(Rested::Spun),
        IdlePolicy::SpinThenYield { .. } | IdlePolicy::SpinThenSleep { .. } => {
            std::hint::spin_loop();
            Ok(Rested::Spun)
        }
    }
}

/// The turns after the request to stop, until nothing is left, or the bound has passed. What was
/// handed over before the request is seen by the first of them.
#[cold]
fn drain<W: Work>(work: &mut W, shared: &Shared, plan: Plan) -> End {
    let deadline = Deadline::after(plan.drain);
    loop {
        match work.turn(plan.batch) {
            Turn::Busy(count) => shared.counters.polled(count),
            turn @ (Turn::Idle | Turn::Pending) => {
                shared.counters.polled(0);
                if turn == Turn::Idle && !work.is_pending() {
                    return End::Stopped { drained: true };
                }
                // What it waits for may need this core.
                shared.yield_now();
            }
            Turn::Finished => return End::Finished,
            Turn::Failed(error) => return error.into(),
        }
        if deadline.has_passed() {
            return End::Stopped { drained: false };
        }
    }
}

/// The ticks from one moment to a later one. The counters of two cores may differ by a little.
#[inline(always)]
fn between(from: u64, to: u64) -> usize {
    let ticks = to.wrapping_sub(from).cast_signed().max(0);
    usize::try_from(ticks).unwrap_or(usize::MAX)
}
