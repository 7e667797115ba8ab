//! Why a poller was not started.

use std::{fmt, io};

use crate::{CallError, Cores};

/// A poller was not started, and its work comes back. Nothing of what was asked for is left in force.
pub struct SpawnError<W> {
    /// What would have been done.
    pub work: W,
    /// Why it was not.
    pub cause: Refused,
}

impl<W> fmt::Debug for SpawnError<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpawnError").field("cause", &self.cause).finish_non_exhaustive()
    }
}

impl<W> fmt::Display for SpawnError<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)
    }
}

impl<W> std::error::Error for SpawnError<W> {}

/// What cannot be had.
#[derive(Debug)]
#[non_exhaustive]
pub enum Refused {
    /// No thread has that name.
    Name {
        /// What was asked for.
        asked: String,
    },
    /// A turn cannot have a batch of that size.
    Batch {
        /// What was asked for.
        asked: usize,
        /// The most that is allowed.
        max: usize,
    },
    /// That much of a stack is not touched beforehand.
    Stack {
        /// Bytes that were asked for.
        asked: usize,
        /// The most that is allowed.
        max: usize,
    },
    /// The policy lets the poller sleep, and its work could not be woken.
    CannotSleep,
    /// The thread may not run on that core.
    Core {
        /// What was asked for.
        asked: usize,
        /// The cores that it may run on.
        allowed: Cores,
    },
    /// `SCHED_FIFO` has no such priority.
    Priority {
        /// What was asked for.
        asked: i32,
        /// The least.
        min: i32,
        /// The highest.
        max: i32,
    },
    /// This process may not use `SCHED_FIFO` with that priority.
    Fifo {
        /// The priority that was asked for.
        priority: i32,
        /// The highest that its limit allows (`RLIMIT_RTPRIO`); `None` for no limit.
        limit: Option<u64>,
        /// What the kernel said.
        error: CallError,
    },
    /// This process may not lock its memory.
    LockMemory {
        /// Bytes that it may lock (`RLIMIT_MEMLOCK`); `None` for no limit.
        limit: Option<u64>,
        /// What the kernel said.
        error: CallError,
    },
    /// The system has no thread left.
    Thread(io::Error),
    /// The system says no.
    Call(CallError),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name { asked } => write!(
                f,
                "a thread cannot be named {asked:?}: a name has 1 to 15 bytes, none of them 0"
            ),
            Self::Batch { asked, max } => {
                write!(f, "a batch of {asked} cannot be had; 1 to {max} are allowed")
            }
            Self::Stack { asked, max } => {
                write!(f, "{asked} bytes of stack cannot be prefaulted; at most {max} are allowed")
            }
            Self::CannotSleep => f.write_str(
                "the idle policy lets the poller sleep, and nothing would wake its work; spin or \
                 yield, or give it work that can be woken",
            ),
            Self::Core { asked, allowed } => write!(
                f,
                "core {asked} cannot be had; this thread may run on {allowed}; ask for one of \
                 these, or widen the set (taskset, the cpuset of the control group)"
            ),
            Self::Priority { asked, min, max } => {
                write!(f, "SCHED_FIFO has no priority {asked}; {min} to {max} are allowed")
            }
            Self::Fifo { priority, limit, error } => {
                write!(f, "SCHED_FIFO with priority {priority} cannot be had: {error}; ")?;
                match limit {
                    Some(limit) => write!(f, "this process may have up to {limit}; ")?,
                    None => f.write_str("the limit would allow it; ")?,
                }
                f.write_str(
                    "raise the limit (ulimit -r, or rtprio in limits.conf) or grant CAP_SYS_NICE, \
                     and see that the control group has real-time runtime",
                )
            }
            Self::LockMemory { limit, error } => {
                write!(f, "memory cannot be locked: {error}; ")?;
                match limit {
                    Some(limit) => write!(f, "this process may lock {limit} bytes in all; ")?,
                    None => f.write_str("the limit would allow it; ")?,
                }
                f.write_str(
                    "raise the limit (ulimit -l, or memlock in limits.conf) or grant CAP_IPC_LOCK",
                )
            }
            Self::Thread(error) => write!(f, "no thread can be had: {error}"),
            Self::Call(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Refused {}
