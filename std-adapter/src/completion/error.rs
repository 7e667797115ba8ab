//! Why a completion queue cannot be had, polled, armed or waited for.

use std::fmt;

use nanoverbs_core::ArmError;

use crate::WrongProcess;
use crate::sys::CallError;

/// A completion queue cannot be made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum CompletionQueueError {
    /// There is no queue of that depth.
    Depth {
        /// The depth that was asked for.
        given: u32,
        /// The device's largest.
        max: u32,
    },
    /// The channel belongs to another device.
    WrongDevice,
    /// The device has fewer interrupts.
    Vector {
        /// The one that was asked for.
        given: u32,
        /// How many there are.
        vectors: u32,
    },
    /// The device belongs to the parent of this process.
    WrongProcess(WrongProcess),
    /// The device says no.
    Call(CallError),
}

impl fmt::Display for CompletionQueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Depth { given, max } => {
                write!(f, "a completion queue of {given} cannot be had; this device has 1 to {max}")
            }
            Self::WrongDevice => f.write_str("the completion channel belongs to another device"),
            Self::Vector { given, vectors } => {
                write!(
                    f,
                    "there is no completion vector {given}; this device has {vectors}, from 0 on"
                )
            }
            Self::WrongProcess(error) => error.fmt(f),
            Self::Call(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CompletionQueueError {}

/// A completion queue was not armed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum ArmRefused {
    /// It was made without a channel, so that nobody could be woken.
    NoChannel,
    /// A queue pair sends on it, whose completions are never solicited.
    SolicitedWithSends,
    /// The device says no.
    Call(CallError),
}

impl fmt::Display for ArmRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoChannel => f.write_str("the completion queue was made without a channel"),
            Self::SolicitedWithSends => f.write_str(
                "sends complete on this queue and never wake for a solicited arming; \
                 arm it for any completion, or give the receives a queue of their own",
            ),
            Self::Call(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ArmRefused {}

/// Waiting for several completion queues has failed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum WaitAnyError {
    /// A queue wakes another channel, or none.
    OtherChannel,
    /// A queue cannot be armed, or polled.
    Arm(ArmError),
    /// The kernel says no.
    Call(CallError),
}

impl fmt::Display for WaitAnyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherChannel => {
                f.write_str("a completion queue was not made with the channel that is waited on")
            }
            Self::Arm(error) => error.fmt(f),
            Self::Call(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for WaitAnyError {}

/// The completion queue's one port is in use, or its device cannot poll.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PollPortTaken {
    pub(super) unsupported: Option<CallError>,
}

impl fmt::Display for PollPortTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.unsupported {
            None => f.write_str("the completion queue has a poller already; drop it first"),
            Some(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for PollPortTaken {}
