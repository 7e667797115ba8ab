//! Why a queue pair cannot be made.

use std::fmt;

use crate::WrongProcess;
use crate::sys::CallError;

/// A queue pair cannot be made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum QueuePairError {
    /// A queue is deeper than the device allows.
    TooDeep {
        /// The depth that was asked for.
        given: u32,
        /// The device's largest.
        max: u32,
    },
    /// A request has more pieces than the device allows.
    TooManySges {
        /// The number that was asked for.
        given: u32,
        /// The device's largest.
        max: u32,
    },
    /// A completion queue has no place left for every request.
    CompletionQueueTooSmall {
        /// The places that are needed.
        need: u32,
        /// The places that are free.
        have: u32,
    },
    /// Domain, completion queues and address belong to different devices.
    WrongDevice,
    /// The device belongs to the parent of this process.
    WrongProcess(WrongProcess),
    /// The device says no.
    Call(CallError),
}

impl fmt::Display for QueuePairError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooDeep { given, max } => {
                write!(f, "a queue of {given} requests is too deep; this device allows {max}")
            }
            Self::TooManySges { given, max } => {
                write!(f, "{given} pieces in a request are too many; this device allows {max}")
            }
            Self::CompletionQueueTooSmall { need, have } => write!(
                f,
                "the queue pair needs {need} places in a completion queue that has {have} left; \
                 make the completion queue deeper"
            ),
            Self::WrongDevice => f.write_str(
                "domain, completion queues and address belong to different devices; \
                 make the first two from the device of the address",
            ),
            Self::WrongProcess(error) => error.fmt(f),
            Self::Call(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for QueuePairError {}
