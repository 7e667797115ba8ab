//! What becomes of the connections of a hub.

use std::fmt;

use super::{Backend, Driver, EndpointError, Key, WaitError};

/// A peer that asks to be connected. Dropped, it is refused.
pub type Request<D> = <D as Backend>::Request;

/// What has become of a connection of a hub.
#[non_exhaustive]
pub enum Event<D: Driver> {
    /// A peer asks to be connected: [`Hub::accept`](super::Hub::accept), or drop it to refuse.
    Request(Request<D>),
    /// A member that was [started](super::Ready::start) is connected: it sends from now on, and what it has
    /// received is handed out.
    Established(Key),
    /// A member that was started could not be connected. Its receives come back flushed; then
    /// [close](super::Hub::close) it.
    Failed {
        /// Which one.
        key: Key,
        /// Why.
        error: EndpointError,
    },
    /// A member's connection has ended, from whichever side, or a request of its has failed; and everything that
    /// it had in flight is out and [taken](super::Hub::next_ended), what arrived before the end first. A device
    /// that flushes nothing is waited for one second. [Close](super::Hub::close) it.
    Ended {
        /// Which one.
        key: Key,
        /// How: [`WaitError::Disconnected`] when the peer said goodbye, [`WaitError::Broken`] when nobody did.
        end: WaitError,
    },
}

impl<D: Driver> fmt::Debug for Event<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(request) => f.debug_tuple("Request").field(request).finish(),
            Self::Established(key) => f.debug_tuple("Established").field(key).finish(),
            Self::Failed { key, error } => {
                f.debug_struct("Failed").field("key", key).field("error", error).finish()
            }
            Self::Ended { key, end } => {
                f.debug_struct("Ended").field("key", key).field("end", end).finish()
            }
        }
    }
}
