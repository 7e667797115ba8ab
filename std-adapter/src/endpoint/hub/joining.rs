//! Members that are not connected yet, while their hub is lent out for it.

use nanoverbs_core::{Block, RecvBuffers};

use super::{Driver, EndpointError, Hub, Key, Phase, Shared};
use crate::endpoint::prepared::refused;
use crate::endpoint::{PostError, ReceiveError};
use crate::memory::Rights;
use crate::{CallError, Deadline};

/// A member that has its queue pair and is not connected. Decide on receives to go on: a peer that sends
/// before one is posted is made to wait, or its connection breaks. Dropped, it is given up.
///
/// It does not send:
///
/// ```compile_fail,E0599
/// # use nanoverbs::endpoint::Soft;
/// # use nanoverbs::hub::Joining;
/// # use nanoverbs_core::Block;
/// fn too_early(mut joining: Joining<'_, Soft, Block, 4>, block: Block) {
///     joining.post_send(block);
/// }
/// ```
#[derive(Debug)]
#[must_use = "the member is not connected yet"]
pub struct Joining<'h, D: Driver, C: 'static, const N: usize>(Guest<'h, D, C, N>);

/// A member that waits to be connected only. It takes receives, and does not send:
///
/// ```
/// # use nanoverbs::endpoint::Soft;
/// # use nanoverbs::hub::Ready;
/// # use nanoverbs_core::Block;
/// fn in_time(mut ready: Ready<'_, Soft, Block, 4>, block: Block) {
///     ready.post_recv(block).unwrap();
/// }
/// ```
///
/// ```compile_fail,E0599
/// # use nanoverbs::endpoint::Soft;
/// # use nanoverbs::hub::Ready;
/// # use nanoverbs_core::Block;
/// fn too_early(mut ready: Ready<'_, Soft, Block, 4>, block: Block) {
///     ready.post_send(block);
/// }
/// ```
#[derive(Debug)]
#[must_use = "the member is not connected yet"]
pub struct Ready<'h, D: Driver, C: 'static, const N: usize>(Guest<'h, D, C, N>);

/// A member, and its hub. Dropped before it was started, the member is closed.
#[derive(Debug)]
struct Guest<'h, D: Driver, C: 'static, const N: usize> {
    hub: &'h mut Hub<D, C, N>,
    key: Key,
    is_kept: bool,
}

macro_rules! before_connecting {
    () => {
        /// The member's name.
        pub const fn key(&self) -> Key {
            self.0.key
        }

        /// A free block of the hub's own memory, or `None` when all are out.
        pub fn block(&mut self) -> Option<Block> {
            self.0.hub.block()
        }

        /// Registers `len` bytes, as [`Hub::share`] does.
        ///
        /// # Errors
        ///
        /// [`EndpointError`] when there is no memory, or it cannot be registered.
        pub fn share(&mut self, len: usize, rights: Rights) -> Result<Shared, EndpointError> {
            self.0.hub.share(len, rights)
        }

        /// Bytes that the peer sent along with its request, and zeros behind them.
        pub fn private_data(&mut self) -> &[u8] {
            self.0.driver().map_or(&[], |driver| driver.private_data())
        }
    };
}

impl<'h, D: Driver, C: 'static, const N: usize> Joining<'h, D, C, N> {
    pub(super) const fn new(hub: &'h mut Hub<D, C, N>, key: Key) -> Self {
        Self(Guest { hub, key, is_kept: false })
    }

    /// Posts `count` receives of a block each.
    ///
    /// # Errors
    ///
    /// [`EndpointError::Receive`] when there are not enough blocks, or the queue is not that deep.
    pub fn receives(mut self, count: usize) -> Result<Ready<'h, D, C, N>, EndpointError>
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
    ) -> Result<Ready<'h, D, C, N>, EndpointError>
    where
        C: RecvBuffers,
    {
        for context in contexts {
            self.0.post_recv(context).map_err(refused)?;
        }
        Ok(Ready(self.0))
    }

    /// Posts none: the peer never sends, it only reads and writes.
    pub fn no_receives(self) -> Ready<'h, D, C, N> {
        Ready(self.0)
    }

    #[cfg(feature = "librdmacm")]
    pub(super) fn driver(&mut self) -> Option<&mut D> {
        self.0.driver()
    }

    before_connecting!();
}

impl<D: Driver, C: 'static, const N: usize> Ready<'_, D, C, N> {
    /// Connects, or accepts, and waits until the connection stands. The other members wait as well.
    ///
    /// # Errors
    ///
    /// [`EndpointError`] when there is no connection before the deadline; the member is gone then, and its
    /// contexts with it.
    #[doc(alias = "rdma_connect")]
    #[doc(alias = "rdma_accept")]
    pub fn establish(mut self, deadline: impl Into<Deadline>) -> Result<Key, EndpointError> {
        let driver = self.0.started()?;
        let reads = driver.wait_established(deadline.into())?;
        if let Some(member) = self.0.member() {
            member.stands(reads);
        }
        // What came while it was on its way.
        self.0.hub.turns.ready(self.0.key.at());
        Ok(self.0.keep())
    }

    /// Begins to connect, or to accept, and returns at once: [`Hub::poll_event`] says what becomes of it. Until
    /// then the member refuses to send.
    ///
    /// # Errors
    ///
    /// As for [`establish`](Self::establish).
    #[doc(alias = "rdma_connect")]
    #[doc(alias = "rdma_accept")]
    pub fn start(mut self) -> Result<Key, EndpointError> {
        self.0.started()?;
        if let Some(member) = self.0.member() {
            member.phase = Phase::Establishing;
        }
        Ok(self.0.keep())
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

impl<D: Driver, C: 'static, const N: usize> Guest<'_, D, C, N> {
    fn member(&mut self) -> Option<&mut super::Member<D, C>> {
        self.hub.members.get_mut(self.key.at())?.as_deref_mut()
    }

    fn driver(&mut self) -> Option<&mut D> {
        Some(&mut self.member()?.pair.driver)
    }

    fn started(&mut self) -> Result<&mut D, EndpointError> {
        let driver = self.driver().ok_or(CallError::new("rdma_connect", libc::EINVAL))?;
        driver.start()?;
        Ok(driver)
    }

    fn post_recv(&mut self, context: C) -> Result<(), PostError<C>>
    where
        C: RecvBuffers,
    {
        match self.hub.peer(self.key) {
            Ok(mut peer) => peer.post_recv(context),
            Err(_) => Err(PostError::Unknown { code: libc::EINVAL }),
        }
    }

    /// It stays.
    fn keep(mut self) -> Key {
        self.is_kept = true;
        self.key
    }
}

impl<D: Driver, C: 'static, const N: usize> Drop for Guest<'_, D, C, N> {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = self.hub.close(self.key, Deadline::after(std::time::Duration::ZERO), |_, _| {});
        }
    }
}
