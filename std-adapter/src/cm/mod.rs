//! The connection manager: who talks to whom.
//!
//! Each side walks through types, and each step can be taken once:
//!
//! ```text
//! Listener::bind ─ accept ─▶ Request ─ create_queue_pair ─▶ Incoming ─ accept ──▶ Connection
//! Connector ─── resolve ───▶ Route ─── create_queue_pair ─▶ Outgoing ─ connect ─▶ Connection
//! ```
//!
//! For datagrams there is one step more than an address: [`DatagramAddress`] gets a queue pair and is
//! [`Datagrams`], which finds peers and joins multicast groups.
//!
//! From [`Incoming`] and [`Outgoing`] on there is a [`QueuePair`](crate::QueuePair), and receives
//! may be posted; sends only once there is a [`Connection`]. A step that fails says why in one
//! sentence, and the queue pair stays with whoever holds a handle of it, to be flushed and
//! destroyed in its own time.
//!
//! Every step that waits takes a [`Deadline`](crate::Deadline), and has a twin that does not wait:
//! `start` begins it, `poll` takes it further, and the descriptor in between (`AsFd`) belongs into
//! a program's own event loop. Many steps may share one [`EventChannel`], hence one descriptor. No
//! thread is started. Events are copied out and acknowledged in the
//! same call, so no drop ever waits for a user.
//!
//! A listener, a request and a connection may move between threads; each is used by one at a time.
//!
//! # What the types make impossible
//!
//! A queue pair before the way is known, or the request is there (F55):
//!
//! ```compile_fail,E0599
//! let connector = nanoverbs::cm::Connector::new();
//! connector.create_queue_pair();
//! ```
//!
//! A queue pair that the connection manager does not know, and would not flush (F58), with a GID chosen
//! by number (F56):
//!
//! ```compile_fail,E0624
//! let queue_pair = nanoverbs::QueuePair::new();
//! ```
//!
//! Retries that nobody has thought of (F03):
//!
//! ```compile_fail,E0423
//! let retry = nanoverbs::cm::Retry(0);
//! ```
//!
//! An event that is kept, or acknowledged twice (F46, F59): there is no call that acknowledges.

mod channel;
pub use channel::{EventChannel, EventKind, Token};
mod id;
pub(crate) use id::CmId;
mod private_data;
pub use private_data::{PrivateData, PrivateDataTooLong};
mod params;
pub use params::{AckTimeout, ConnectParams, OutOfRange, ReadDepths, Retry, RnrRetry, RnrTimer};
mod listener;
pub use listener::{ListenError, Listener, RejectError, Request};
mod listen_options;
pub use listen_options::{BindError, ListenOptions};
mod accepting;
pub use accepting::{AcceptError, Accepting, Incoming};
mod connector;
pub use connector::{Connector, ResolveError, Resolving, Route};
mod connecting;
pub use connecting::{ConnectError, Connecting, Outgoing};
mod datagrams;
pub use datagrams::{DatagramAddress, DatagramEvent, DatagramRequest, Datagrams};
mod group;
pub use group::{JoinError, Joining, Membership, Share};
mod peer_lookup;
pub use peer_lookup::{FindError, PeerLookup};
mod lookup;
pub use lookup::{Found, Lookup, LookupError};
mod vendor;
pub use crate::step::Step;
pub use vendor::VendorOptions;
mod connection;
pub use connection::{Connection, ConnectionEvent};

#[cfg(test)]
mod tests;
