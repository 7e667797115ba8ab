//! What an endpoint needs of the device behind it.

use nanoverbs_core::op::BindWindow;
use nanoverbs_core::port::{PollPort, RecvPort, SendPort};
use nanoverbs_core::{Domain, RKey, RecvConfig, Region, SendConfig};

use super::{EndpointError, Shared, WaitError};
use crate::memory::{Pages, Rights, WindowError};
use crate::poller::Sources;
use crate::{CallError, Deadline};

/// Which half of a queue pair.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Side {
    /// The send queue.
    Send,
    /// The receive queue.
    Recv,
}

/// A device behind an endpoint: [`Soft`](super::Soft), or `Verbs` for the real ones. Sealed: an
/// endpoint frees buffers on its word.
pub trait Driver: sealed::Backend {}

impl<D: sealed::Backend> Driver for D {}

pub(super) mod sealed {
    use super::*;

    /// Everything is called from the thread that owns the endpoint.
    ///
    /// # Safety
    ///
    /// `destroy` returns true only when the queue pair is gone and no device touches the memory of
    /// its requests any more. The ports may be used until then.
    #[expect(unnameable_types, reason = "an endpoint frees buffers on its word")]
    pub unsafe trait Backend: Send {
        /// The way to the send queue.
        type SendPort: SendPort + Send;
        /// The way to the receive queue.
        type RecvPort: RecvPort + Send;
        /// The way to a completion queue.
        type PollPort: PollPort + Send;

        /// A memory window.
        type Window: std::fmt::Debug + Send;

        /// False in a child of the process that made it: its queues are the parent's there.
        fn belongs_here(&self) -> bool {
            true
        }

        /// The device's name, for people.
        fn device_name(&self) -> String;

        /// The protection domain of the queue pair.
        fn domain(&self) -> Domain;

        /// The granted numbers of both queues.
        fn configs(&self) -> (SendConfig, RecvConfig);

        /// Registers memory for messages; `release` gets it back.
        fn register(&mut self, pages: Pages) -> Result<(Region, Release<Region>), EndpointError>;

        /// Registers memory that the peer may reach.
        fn share(&mut self, pages: Pages, rights: Rights) -> Result<Shared, EndpointError>;

        /// A memory window, closed.
        fn window(&mut self) -> Result<Self::Window, EndpointError>;

        /// A request that opens a window on a piece of shared memory.
        ///
        /// # Safety
        ///
        /// It is posted while both are borrowed, and `opened` says so then.
        unsafe fn bind(
            window: &mut Self::Window,
            shared: &Shared,
            offset: usize,
            len: usize,
            rights: Rights,
        ) -> Result<BindWindow, WindowError>;

        /// The request was posted.
        fn opened(window: &mut Self::Window, key: RKey);

        /// Asks the peer, or answers it, and returns at once.
        fn start(&mut self) -> Result<(), EndpointError>;

        /// Says how many READs may be outstanding, once the connection stands. Never blocks.
        fn poll_established(&mut self) -> Result<Option<u8>, EndpointError>;

        /// The same, and waits for it.
        fn wait_established(&mut self, deadline: Deadline) -> Result<u8, EndpointError>;

        /// What the peer sent along with its request or its answer.
        fn private_data(&self) -> &[u8];

        /// Moves the queue pair to the error state and tells the peer.
        fn disconnect(&mut self);

        /// How the connection has ended, if it has: [`WaitError::Disconnected`] or [`WaitError::Broken`].
        /// The queue pair is in the error state then.
        fn ended(&mut self) -> Option<WaitError>;

        /// Makes the next completion of this side end a `sleep`.
        fn arm(&mut self, side: Side) -> Result<(), CallError>;

        /// Sleeps until a completion of an armed side came, something became of the connection, or
        /// the deadline passed. May return early.
        fn sleep(&mut self, deadline: Deadline) -> Result<(), CallError>;

        /// Names what ends a sleep besides the deadline, for who sleeps in a way of its own: the same
        /// as ends `sleep`.
        fn sources<'s>(&'s self, sources: &mut Sources<'s>);

        /// Destroys the queue pair; false when that cannot be had.
        fn destroy(&mut self) -> bool;
    }

    /// Gives memory back to who made a region of it.
    pub(in crate::endpoint) type Release<R> = Box<dyn FnOnce(R) + Send>;
}
