//! What can go wrong with an endpoint: one enum for making it, one for posting, one for waiting.

use std::fmt;

use nanoverbs_core::soft;
use nanoverbs_core::{ArmError, ConfigError, OutOfRegion, PollError, PushError, ReserveError};

use crate::CallError;
#[cfg(feature = "librdmacm")]
use crate::cm::{AcceptError, ConnectError, ListenError, ResolveError};
use crate::memory::PagesError;
#[cfg(feature = "librdmacm")]
use crate::memory::RegisterCause;
#[cfg(feature = "librdmacm")]
use crate::{CompletionQueueError, DomainError, QueuePairError};

macro_rules! endpoint_error {
    ($(#[doc = $doc:literal] $(#[cfg($cfg:meta)])? $variant:ident($of:ty),)*) => {
        /// An endpoint cannot be made or connected.
        #[derive(Clone, Debug)]
        #[non_exhaustive]
        pub enum EndpointError {
            /// A number lies outside of its range.
            OutOfRange {
                /// Which one.
                what: &'static str,
                /// What was given.
                given: u64,
                /// The least that is allowed.
                min: u64,
                /// The most that is allowed.
                max: u64,
            },
            /// A receive could not be posted before connecting.
            Receive(ReceiveError),
            $(#[doc = $doc] $(#[cfg($cfg)])? $variant($of),)*
        }

        impl fmt::Display for EndpointError {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    Self::OutOfRange { what, given, min, max } => {
                        write!(f, "{what} is {given}, and {min} to {max} are allowed")
                    }
                    Self::Receive(error) => error.fmt(f),
                    $($(#[cfg($cfg)])? Self::$variant(error) => error.fmt(f),)*
                }
            }
        }

        $($(#[cfg($cfg)])? impl From<$of> for EndpointError {
            fn from(error: $of) -> Self {
                Self::$variant(error)
            }
        })*
    };
}

endpoint_error! {
    /// Memory cannot be had.
    Pages(PagesError),
    /// The queues cannot be made with what the device granted.
    Config(ConfigError),
    /// The blocks do not fit into their memory.
    Blocks(OutOfRegion),
    /// The soft device has no queue pair left.
    SoftQueuePair(soft::QueuePairError),
    /// The soft device has no completion queue left.
    SoftCompletionQueue(soft::CompletionQueueError),
    /// The soft device's table of regions is full.
    SoftRegister(soft::RegisterError),
    /// The soft device's queue pairs cannot be connected.
    SoftControl(soft::ControlError),
    /// The system or the device says no.
    Call(CallError),
    /// Memory cannot be registered.
    #[cfg(feature = "librdmacm")]
    Register(RegisterCause),
    /// A protection domain cannot be had.
    #[cfg(feature = "librdmacm")]
    Domain(DomainError),
    /// A completion queue cannot be had.
    #[cfg(feature = "librdmacm")]
    CompletionQueue(CompletionQueueError),
    /// A queue pair cannot be had.
    #[cfg(feature = "librdmacm")]
    QueuePair(QueuePairError),
    /// The peer's address leads nowhere.
    #[cfg(feature = "librdmacm")]
    Resolve(ResolveError),
    /// The peer could not be connected to.
    #[cfg(feature = "librdmacm")]
    Connect(ConnectError),
    /// No request came in.
    #[cfg(feature = "librdmacm")]
    Listen(ListenError),
    /// The request could not be accepted.
    #[cfg(feature = "librdmacm")]
    Accept(AcceptError),
}

impl std::error::Error for EndpointError {}

/// A receive was not posted before connecting; its context was dropped.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The pool has no block left.
    NoBlock,
    /// The post was refused.
    Refused(Refusal),
}

impl fmt::Display for ReceiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoBlock => f.write_str("the pool has no block left for a receive"),
            Self::Refused(refusal) => write!(f, "a receive could not be posted: {refusal}"),
        }
    }
}

impl std::error::Error for ReceiveError {}

/// Why a request was not posted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Refusal {
    /// The queue takes none now.
    Reserve(ReserveError),
    /// Something is wrong with the request.
    Push(PushError),
    /// The device did not take it.
    Device {
        /// Its error number.
        code: i32,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reserve(error) => error.fmt(f),
            Self::Push(error) => error.fmt(f),
            Self::Device { code } => {
                let error = std::io::Error::from_raw_os_error(code.saturating_abs());
                write!(f, "the device refused the request: {error}")
            }
        }
    }
}

impl std::error::Error for Refusal {}

/// A request was not posted, and its context comes back; or it is not known whether it was.
pub enum PostError<C> {
    /// It was not posted.
    Refused {
        /// What went in.
        context: C,
        /// Why.
        cause: Refusal,
    },
    /// The device gave an error and did not say whether it took the request. It counts as in flight, and
    /// the queue is closed: close the endpoint.
    Unknown {
        /// The device's error number.
        code: i32,
    },
}

impl<C> PostError<C> {
    /// Why, without the context.
    pub const fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::Refused { cause, .. } => Some(*cause),
            Self::Unknown { .. } => None,
        }
    }
}

impl<C> fmt::Debug for PostError<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { cause, .. } => {
                f.debug_struct("Refused").field("cause", cause).finish_non_exhaustive()
            }
            Self::Unknown { code } => f.debug_struct("Unknown").field("code", code).finish(),
        }
    }
}

impl<C> fmt::Display for PostError<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { cause, .. } => cause.fmt(f),
            Self::Unknown { code } => {
                write!(
                    f,
                    "the device gave error {code} and did not say whether it took the request"
                )
            }
        }
    }
}

impl<C> std::error::Error for PostError<C> {}

/// No completion came. Nothing is lost: what is in flight stays so.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum WaitError {
    /// The deadline passed.
    TimedOut {
        /// Requests that are still in flight.
        in_flight: u32,
    },
    /// Nothing is in flight, so nothing could come.
    NothingPosted,
    /// The peer has said goodbye, and every request has its outcome. A process that dies says it too: its
    /// kernel does.
    Disconnected,
    /// The connection has ended and nobody said goodbye: its device was removed, or a queue of it has
    /// failed. Every request has its outcome.
    Broken,
    /// The completion queue cannot be polled any more.
    Poll(PollError),
    /// The system says no.
    Call(CallError),
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut { in_flight } => write!(
                f,
                "no completion came before the deadline; {in_flight} requests are still in flight"
            ),
            Self::NothingPosted => f.write_str("nothing is posted, so no completion can come"),
            Self::Disconnected => f.write_str("the peer has ended the connection, or is gone"),
            Self::Broken => f.write_str(
                "the connection broke: its device was removed, or a queue of it has failed",
            ),
            Self::Poll(error) => error.fmt(f),
            Self::Call(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for WaitError {}

impl From<PollError> for WaitError {
    fn from(error: PollError) -> Self {
        Self::Poll(error)
    }
}

impl From<CallError> for WaitError {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl From<ArmError> for WaitError {
    fn from(error: ArmError) -> Self {
        match error {
            ArmError::Refused { code } => Self::Call(CallError::new("ibv_req_notify_cq", code)),
            ArmError::Poll(error) => Self::Poll(error),
        }
    }
}
