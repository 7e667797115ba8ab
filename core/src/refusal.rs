//! What the queues say when they refuse: one small enum a step, all before the device sees anything.
//!
//! Nothing is allocated, and no error needs a context that can be printed.

use core::fmt;

use crate::abi::Access;
use crate::completion::Failure;
use crate::region::Domain;

/// A request that was refused, with the context that went in.
pub struct Rejected<C> {
    /// Comes back as it was.
    pub context: C,
    /// Why.
    pub error: PushError,
}

impl<C> fmt::Debug for Rejected<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rejected").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<C> fmt::Display for Rejected<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<C> core::error::Error for Rejected<C> {}

/// Why a request cannot go into a chain.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum PushError {
    /// The chain has as many requests as were reserved.
    ChainFull,
    /// The message is in more pieces than a request of this kind may have.
    TooManySges {
        /// Pieces that are not empty.
        given: u32,
        /// The least of what the queue pair was granted and what the staging rows hold.
        max: u32,
    },
    /// The message is longer than the port carries.
    MessageTooLong {
        /// Bytes.
        total: u64,
        /// Bytes.
        max: u64,
    },
    /// The payload is longer than what the queue pair takes inline.
    InlineTooLong {
        /// Bytes.
        given: u64,
        /// Bytes.
        max: u32,
    },
    /// A piece belongs to another protection domain than the queue pair.
    WrongDomain {
        /// The piece's.
        given: Domain,
        /// The queue pair's.
        queue: Domain,
    },
    /// A piece's region lacks a right that the request needs.
    MissingAccess {
        /// The right.
        needs: Access,
        /// The rights that the region has.
        has: Access,
    },
    /// The message is longer than the peer's region from there on.
    RemoteTooShort {
        /// Bytes.
        total: u64,
        /// Bytes.
        remote: u64,
    },
    /// The peer advertised the region without the right that the request needs.
    RemoteAccess {
        /// The right.
        needs: Access,
        /// The rights that it has.
        has: Access,
    },
    /// An atomic brings back eight bytes, into one piece of that length.
    BadAtomicLength {
        /// Bytes that the context offers.
        total: u64,
        /// In so many pieces.
        pieces: u32,
    },
    /// An atomic works on eight bytes that start at a multiple of eight in the peer's address space.
    Unaligned {
        /// Where these start.
        remote_addr: u64,
    },
    /// The connection was made with a READ depth of 0.
    ReadsNotNegotiated,
    /// As many READs and atomics are outstanding as the connection allows.
    ReadsFull {
        /// The depth that was negotiated.
        max: u32,
    },
}

impl fmt::Display for PushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ChainFull => f.write_str("the chain has as many requests as were reserved"),
            Self::TooManySges { given, max } => {
                write!(f, "the message is in {given} pieces, and a request takes {max}")
            }
            Self::MessageTooLong { total, max } => {
                write!(f, "the message has {total} bytes, and the port carries {max}")
            }
            Self::InlineTooLong { given, max } => {
                write!(f, "the payload has {given} bytes, and the queue pair takes {max} inline")
            }
            Self::WrongDomain { given, queue } => write!(
                f,
                "the memory is in protection domain {}, the queue pair in {}",
                given.to_raw(),
                queue.to_raw()
            ),
            Self::MissingAccess { needs, has } => write!(
                f,
                "the memory was registered with rights {:#x} and the request needs {:#x}",
                has.bits(),
                needs.bits()
            ),
            Self::RemoteTooShort { total, remote } => {
                write!(f, "the message has {total} bytes, and the peer's region {remote}")
            }
            Self::RemoteAccess { needs, has } => write!(
                f,
                "the peer's region has rights {:#x} and the request needs {:#x}",
                has.bits(),
                needs.bits()
            ),
            Self::BadAtomicLength { total, pieces } => write!(
                f,
                "the buffer of an atomic has {total} bytes in {pieces} pieces, and it takes 8 in one"
            ),
            Self::Unaligned { remote_addr } => {
                write!(f, "the target of an atomic is at {remote_addr:#x}, not a multiple of 8")
            }
            Self::ReadsNotNegotiated => {
                f.write_str("the connection was made with a READ depth of 0")
            }
            Self::ReadsFull { max } => {
                write!(f, "{max} READs are outstanding, as many as the connection allows")
            }
        }
    }
}

impl core::error::Error for PushError {}

/// Why a chain cannot be started.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum ReserveError {
    /// Not enough slots are free: retire and take what has ended, then try again.
    Full {
        /// Requests.
        asked: u32,
        /// Requests.
        free: u32,
    },
    /// The chain is longer than the staging arrays, or than the queue was made for.
    ChainTooLong {
        /// Requests.
        asked: u32,
        /// Requests.
        max: u32,
    },
    /// The queue pair is not connected yet: only receives may be posted.
    NotConnected,
    /// The queue is closed.
    Closed(Cause),
}

impl fmt::Display for ReserveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { asked, free } => {
                write!(f, "{asked} slots were asked for and {free} are free")
            }
            Self::ChainTooLong { asked, max } => {
                write!(f, "a chain of {asked} requests was asked for, and the longest is {max}")
            }
            Self::NotConnected => f.write_str("the queue pair is not connected yet"),
            Self::Closed(cause) => write!(f, "the queue is closed: {cause}"),
        }
    }
}

impl core::error::Error for ReserveError {}

/// Why a queue is closed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Cause {
    /// A request failed.
    Failed(Failure),
    /// The device flushed a request: the other half failed, or the connection ended.
    Flushed,
    /// A post failed and the device did not say what it took.
    Unknown {
        /// The error number of the post.
        code: i32,
    },
    /// The program closed it.
    ByOwner,
    /// The queue pair is gone.
    Gone,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(failure) => failure.fmt(f),
            Self::Flushed => f.write_str("the device flushed a request"),
            Self::Unknown { code } => {
                write!(f, "a post failed with code {code} and no word on what was taken")
            }
            Self::ByOwner => f.write_str("the program closed it"),
            Self::Gone => f.write_str("the queue pair is gone"),
        }
    }
}

/// The device did not take a whole chain.
#[must_use = "the rest of the chain is in here"]
pub enum SubmitError<Chain> {
    /// The device took the first `accepted` requests: they are in flight. The others are in `rest`,
    /// which can be submitted again, dropped, or turned into contexts.
    Partial {
        /// Requests that are in flight.
        accepted: u32,
        /// The error number that the device gave.
        code: i32,
        /// The requests that it did not take.
        rest: Chain,
    },
    /// The device gave an error and no word on what it took. The whole chain counts as in flight,
    /// and the queue is closed: bring the queue pair to the error state, and poll, which flushes what the
    /// device took. What it did not take gets no completion: destroy the queue pair, and have the rest back
    /// from `abandon` or `try_abandon`.
    Unknown {
        /// The error number that the device gave.
        code: i32,
    },
}

impl<Chain> fmt::Debug for SubmitError<Chain> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Partial { accepted, code, .. } => f
                .debug_struct("Partial")
                .field("accepted", accepted)
                .field("code", code)
                .finish_non_exhaustive(),
            Self::Unknown { code } => f.debug_struct("Unknown").field("code", code).finish(),
        }
    }
}

impl<Chain> fmt::Display for SubmitError<Chain> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Partial { accepted, code, .. } => {
                write!(f, "the device took {accepted} requests and refused the next with {code}")
            }
            Self::Unknown { code } => {
                write!(f, "the device refused with {code} and did not say what it took")
            }
        }
    }
}

impl<Chain> core::error::Error for SubmitError<Chain> {}

/// The device cannot tell when a shared receive queue runs low.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LimitError {
    /// Its error number.
    pub code: i32,
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the device refused the limit of a shared receive queue with {}", self.code)
    }
}

impl core::error::Error for LimitError {}

/// A queue cannot be made with these numbers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum ConfigError {
    /// The depth is 0: the device granted none.
    NoDepth,
    /// As many queues as there can be were made in this process: 2^31, a whole group's at a time for its
    /// members. None has the number of an earlier one, so that no completion is taken for another queue's.
    NoSerial,
    /// Silent requests could fill the queue for ever: `period + 2 × chain ≤ depth + 2` must hold,
    /// with a period and a chain of at least 1.
    CouldWedge {
        /// A request is signaled at the latest after this many.
        period: u32,
        /// The longest chain.
        chain: u32,
        /// The usable depth.
        depth: u32,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDepth => f.write_str("the queue has a depth of 0"),
            Self::NoSerial => f.write_str("all numbers of queues in this process were used"),
            Self::CouldWedge { period, chain, depth } => write!(
                f,
                "period {period} and chains of {chain} could wedge a queue of {depth}: \
                 period + 2 × chain must be at most depth + 2"
            ),
        }
    }
}

impl core::error::Error for ConfigError {}
