//! Endpoints that are not connected yet.

use nanoverbs_core::{Block, RecvBuffers, ReserveError};

use super::driver::sealed::Base;
use super::{
    Driver, Endpoint, EndpointError, Inner, PostError, ReceiveError, Refusal, Sends, Shared, Step,
};
use crate::Deadline;
use crate::memory::Rights;

/// An endpoint that has its queue pair and is not connected. Decide on receives to go on: a peer that sends
/// before one is posted is made to wait, or its connection breaks.
///
/// It does not send:
///
/// ```compile_fail,E0599
/// # use nanoverbs::endpoint::{Prepared, Soft};
/// # use nanoverbs_core::Block;
/// fn too_early(mut prepared: Prepared<Soft, Block>, block: Block) {
///     prepared.post_send(block);
/// }
/// ```
#[derive(Debug)]
#[must_use = "the endpoint is not connected yet"]
pub struct Prepared<D: Driver, C: 'static>(pub(super) Inner<D, C>);

/// An endpoint that waits to be connected only. It takes receives, and does not send:
///
/// ```
/// # use nanoverbs::endpoint::{Ready, Soft};
/// # use nanoverbs_core::Block;
/// fn in_time(mut ready: Ready<Soft, Block>, block: Block) {
///     ready.post_recv(block).unwrap();
/// }
/// ```
///
/// ```compile_fail,E0599
/// # use nanoverbs::endpoint::{Ready, Soft};
/// # use nanoverbs_core::Block;
/// fn too_early(mut ready: Ready<Soft, Block>, block: Block) {
///     ready.post_send(block);
/// }
/// ```
#[derive(Debug)]
#[must_use = "the endpoint is not connected yet"]
pub struct Ready<D: Driver, C: 'static>(Inner<D, C>);

/// An endpoint whose peer was asked, or answered. It takes receives, and does not send yet. On a real
/// device its descriptor is readable when [`poll`](Self::poll) may get further. Dropped, it is given up.
///
/// ```
/// # use nanoverbs::endpoint::{EndpointError, Options, Ready, Soft, SoftDevice, Step};
/// # use nanoverbs_core::Block;
/// # static DEVICE: SoftDevice = SoftDevice::new();
/// # let [one, _other] = Options::new().soft_pair::<Block>(&DEVICE)?;
/// let mut establishing = one.receives(4)?.start()?;
/// let endpoint = loop {
///     match establishing.poll()? {
///         Step::Done(endpoint) => break endpoint,
///         // Other work, until the descriptor is readable.
///         Step::Pending(same) => establishing = same,
///     }
/// };
/// # drop(endpoint);
/// # Ok::<(), EndpointError>(())
/// ```
#[derive(Debug)]
#[must_use = "the endpoint is not connected yet"]
pub struct Establishing<D: Driver, C: 'static>(pub(super) Inner<D, C>);

macro_rules! before_connecting {
    () => {
        /// A free block of the endpoint's own memory, or `None` when all are out.
        pub fn block(&mut self) -> Option<Block> {
            self.0.block()
        }

        /// Registers `len` bytes, rounded up to whole pages, that the peer may reach as far as `rights` go.
        ///
        /// # Errors
        ///
        /// [`EndpointError`] when there is no memory, or it cannot be registered.
        pub fn share(&mut self, len: usize, rights: Rights) -> Result<Shared, EndpointError> {
            self.0.share(len, rights)
        }

        /// Bytes that the peer sent along with its request, and zeros behind them.
        pub fn private_data(&self) -> &[u8] {
            self.0.pair.driver.private_data()
        }

        /// The device behind it.
        pub fn device_name(&self) -> String {
            self.0.pair.driver.base().device_name()
        }

        /// Tries to start a chain of sends, which is too early: shows what a queue says then.
        ///
        /// # Errors
        ///
        /// [`ReserveError::NotConnected`].
        pub fn reserve_sends(&mut self, n: usize) -> Result<Sends<'_, D, C>, ReserveError> {
            self.0.pair.sends.reserve(&mut self.0.links.send, n)
        }
    };
}

impl<D: Driver, C: 'static> Prepared<D, C> {
    /// Posts `count` receives of a block each.
    ///
    /// # Errors
    ///
    /// [`EndpointError::Receive`] when there are not enough blocks, or the queue is not that deep.
    pub fn receives(mut self, count: usize) -> Result<Ready<D, C>, EndpointError>
    where
        C: RecvBuffers + From<Block>,
    {
        for _ in 0..count {
            let block = self.block().ok_or(EndpointError::Receive(ReceiveError::NoBlock))?;
            self.0.post_recv(block.into()).map_err(refused)?;
        }
        Ok(Ready(self.0))
    }

    /// Posts a receive for each of these contexts.
    ///
    /// # Errors
    ///
    /// [`EndpointError::Receive`] when one is refused; they are all dropped then.
    #[doc(alias = "rdma_post_recv")]
    pub fn receives_into(
        mut self,
        contexts: impl IntoIterator<Item = C>,
    ) -> Result<Ready<D, C>, EndpointError>
    where
        C: RecvBuffers,
    {
        for context in contexts {
            self.0.post_recv(context).map_err(refused)?;
        }
        Ok(Ready(self.0))
    }

    /// Posts none: the peer never sends, it only reads and writes.
    pub fn no_receives(self) -> Ready<D, C> {
        Ready(self.0)
    }

    before_connecting!();
}

impl<D: Driver, C: 'static> Ready<D, C> {
    /// Connects, or accepts, and waits until the connection stands.
    ///
    /// # Errors
    ///
    /// [`EndpointError`] says why there is no connection; the endpoint is gone, and its contexts with it.
    #[doc(alias = "rdma_connect")]
    #[doc(alias = "rdma_accept")]
    pub fn establish(self, deadline: impl Into<Deadline>) -> Result<Endpoint<D, C>, EndpointError> {
        self.start()?.wait(deadline)
    }

    /// Begins to connect, or to accept, and returns at once: for a program's own event loop.
    ///
    /// # Errors
    ///
    /// As for [`establish`](Self::establish).
    #[doc(alias = "rdma_connect")]
    #[doc(alias = "rdma_accept")]
    pub fn start(mut self) -> Result<Establishing<D, C>, EndpointError> {
        self.0.pair.driver.start()?;
        Ok(Establishing(self.0))
    }

    /// Posts one more receive.
    ///
    /// # Errors
    ///
    /// [`PostError`] with the context.
    #[doc(alias = "rdma_post_recv")]
    pub fn post_recv(&mut self, context: C) -> Result<(), PostError<C>>
    where
        C: RecvBuffers,
    {
        self.0.post_recv(context)
    }

    before_connecting!();
}

impl<D: Driver, C: 'static> Establishing<D, C> {
    /// The endpoint, when the connection stands. Never blocks.
    ///
    /// # Errors
    ///
    /// As for [`Ready::establish`].
    pub fn poll(mut self) -> Result<Step<Endpoint<D, C>, Self>, EndpointError> {
        Ok(match self.0.pair.driver.poll_established()? {
            Some(reads) => Step::Done(self.connected(reads)),
            None => Step::Pending(self),
        })
    }

    /// Waits until the connection stands.
    ///
    /// # Errors
    ///
    /// As for [`Ready::establish`].
    pub fn wait(mut self, deadline: impl Into<Deadline>) -> Result<Endpoint<D, C>, EndpointError> {
        let reads = self.0.pair.driver.wait_established(deadline.into())?;
        Ok(self.connected(reads))
    }

    fn connected(mut self, reads: u8) -> Endpoint<D, C> {
        self.0.pair.open(reads);
        Endpoint(self.0)
    }

    /// Posts one more receive.
    ///
    /// # Errors
    ///
    /// [`PostError`] with the context.
    #[doc(alias = "rdma_post_recv")]
    pub fn post_recv(&mut self, context: C) -> Result<(), PostError<C>>
    where
        C: RecvBuffers,
    {
        self.0.post_recv(context)
    }

    before_connecting!();
}

pub(super) fn refused<C>(error: PostError<C>) -> EndpointError {
    EndpointError::Receive(ReceiveError::Refused(match error {
        PostError::Refused { cause, .. } => cause,
        PostError::Unknown { code } => Refusal::Device { code },
    }))
}
