//! What an endpoint, or a hub, needs of the device behind it.

use nanoverbs_core::op::BindWindow;
use nanoverbs_core::port::{ArmPort, RecvPort, SendPort};
use nanoverbs_core::{Domain, RKey, RecvConfig, Region, SendConfig};

use super::hub::Key;
use super::{EndpointError, Options, Shared, WaitError};
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

/// A device behind an endpoint or a hub: [`Soft`](super::Soft), or `Verbs` for the real ones. Sealed: an
/// endpoint frees buffers on its word.
pub trait Driver: sealed::Backend {}

impl<D: sealed::Backend> Driver for D {}

pub(super) mod sealed {
    use super::*;

    /// One queue pair and its connection. Everything is called from the thread that owns the endpoint.
    ///
    /// # Safety
    ///
    /// `destroy` returns true only when the queue pair is gone and no device touches the memory of
    /// its requests any more. The ports may be used until then.
    #[expect(unnameable_types, reason = "an endpoint frees buffers on its word")]
    pub unsafe trait Backend: Send + Sized {
        /// The way to the send queue.
        type SendPort: SendPort + Send;
        /// The way to the receive queue.
        type RecvPort: RecvPort + Send;
        /// The way to a completion queue.
        type PollPort: ArmPort + Send;

        /// The device and the protection domain.
        type Base: Base;
        /// What the members of a hub share.
        type Ground: Ground<Self>;
        /// A peer that asks a hub to be connected.
        type Request: std::fmt::Debug + Send;

        /// The device and the protection domain.
        fn base(&self) -> &Self::Base;

        /// The granted numbers of both queues.
        fn configs(&self) -> (SendConfig, RecvConfig);

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

    /// A device and one of its protection domains.
    #[expect(unnameable_types, reason = "as for the backend")]
    pub trait Base: Send {
        /// A memory window.
        type Window: std::fmt::Debug + Send;

        /// False in a child of the process that made it: its queues are the parent's there.
        fn belongs_here(&self) -> bool {
            true
        }

        /// The device's name, for people.
        fn device_name(&self) -> String;

        /// The protection domain.
        fn domain(&self) -> Domain;

        /// Registers memory for messages; `release` gets it back.
        fn register(&self, pages: Pages) -> Result<(Region, Release<Region>), EndpointError>;

        /// Registers memory that peers may reach.
        fn share(&self, pages: Pages, rights: Rights) -> Result<Shared, EndpointError>;

        /// A memory window, closed.
        fn window(&self) -> Result<Self::Window, EndpointError>;

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
    }

    /// What the members of a hub share besides their completion queue: where news of them come from.
    #[expect(unnameable_types, reason = "as for the backend")]
    pub trait Ground<D: Backend>: Send {
        /// The device and the protection domain.
        fn base(&self) -> &D::Base;

        /// A queue pair on the hub's completion queue for a peer that asked.
        fn accept(&self, options: &Options, request: D::Request) -> Result<Ends<D>, EndpointError>;

        /// `key` is the member behind `driver`: its news are asked for under it.
        fn enter(&mut self, driver: &D, key: Key);

        /// It is no more.
        fn leave(&mut self, driver: &D, key: Key);

        /// A new question: who was looked at may be looked at again.
        fn begin(&mut self) {}

        /// Where there may be news; `None` when there are none just now. Never blocks.
        fn poll(&mut self) -> Result<Option<News<D::Request>>, CallError>;

        /// Takes the events that the completion queue has raised.
        fn drain(&self) -> Result<(), CallError>;

        /// Names what ends a sleep: an armed completion queue, and news.
        fn sources<'s>(&'s self, sources: &mut Sources<'s>);
    }

    /// A queue pair, before it has queues.
    #[expect(unnameable_types, reason = "as for the backend")]
    pub struct Ends<D: Backend> {
        pub(in crate::endpoint) driver: D,
        pub(in crate::endpoint) send: D::SendPort,
        pub(in crate::endpoint) recv: D::RecvPort,
        /// Bytes inline, as granted.
        pub(in crate::endpoint) inline: u32,
    }

    impl<D: Backend> std::fmt::Debug for Ends<D> {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("Ends").field("inline", &self.inline).finish_non_exhaustive()
        }
    }

    /// Where there is news.
    #[derive(Debug)]
    #[expect(unnameable_types, reason = "as for the backend")]
    pub enum News<R> {
        /// A peer asks to be connected.
        Request(R),
        /// Something may have become of this member.
        Member(Key),
    }

    /// Gives memory back to who made a region of it.
    pub(in crate::endpoint) type Release<R> = Box<dyn FnOnce(R) + Send>;
}
