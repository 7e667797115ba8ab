//! The verbs of an endpoint and of a member of a hub: SEND, READ and WRITE, atomics, immediates, invalidation,
//! windows.
//!
//! Each is `post` with an operation of [`nanoverbs_core::op`], signaled.

use std::fmt;

use nanoverbs_core::{OutOfRegion, RKey, RemoteRegion, op};

use super::driver::sealed::{Backend, Base};
use super::{Driver, Endpoint, EndpointError, PostError, Refusal, Shared};
use crate::memory::{Rights, WindowError};

/// The verbs of an endpoint, and of a member of a hub. `send_side` and `recv_side` give a queue and its link.
macro_rules! verbs {
    () => {
        /// Posts a receive into the buffers of `context`: all of each [`Block`], whatever length was set.
        /// [`Ended::message`](nanoverbs_core::Ended::message) is what came.
        ///
        /// # Errors
        ///
        /// [`PostError`] with the context.
        #[doc(alias = "rdma_post_recv")]
        #[doc(alias = "rdma_post_recvv")]
        #[inline(always)]
        pub fn post_recv(&mut self, context: C) -> Result<(), PostError<C>>
        where
            C: RecvBuffers,
        {
            let (queue, link) = self.recv_side();
            post_one!(queue.reserve(link, 1), context, |chain, context| chain.push(context))
        }

        /// Posts a SEND of the message in `context`, as long as [`Block::set_len`] has set it; the context comes back
        /// when it has ended.
        ///
        /// # Errors
        ///
        /// [`PostError`] with the context.
        #[doc(alias = "rdma_post_send")]
        #[doc(alias = "rdma_post_sendv")]
        #[inline(always)]
        pub fn post_send(&mut self, context: C) -> Result<(), PostError<C>>
        where
            C: SendBuffers,
        {
            self.post(op::Send::new().signaled(), context)
        }

        /// Posts a SEND of the bytes of `context`, which are copied during the call. At most
        /// [`Self::inline`] bytes.
        ///
        /// # Errors
        ///
        /// [`PostError`] with the context.
        #[doc(alias = "IBV_SEND_INLINE")]
        #[inline(always)]
        pub fn post_send_inline(&mut self, context: C) -> Result<(), PostError<C>>
        where
            C: AsRef<[u8]>,
        {
            self.post_inline(op::Send::new().signaled(), context)
        }

        /// Posts a READ of `remote` into the buffers of `context`, one or several of them. It brings as many bytes as
        /// they are long together: of a [`Block`] as many as [`Block::set_len`] has set, all of it if none were.
        ///
        /// ```
        /// # use std::time::Duration;
        /// # use nanoverbs::endpoint::{Options, SoftDevice};
        /// # use nanoverbs::memory::Rights;
        /// # use nanoverbs::nanoverbs_core::Block;
        /// # static DEVICE: SoftDevice = SoftDevice::new();
        /// # let [a, b] = Options::new().soft_pair::<Block>(&DEVICE)?;
        /// # let deadline = Duration::from_secs(5);
        /// # let mut client = a.no_receives().establish(deadline)?;
        /// # let mut server = b.no_receives().establish(deadline)?;
        /// let shared = server.share(4096, Rights::READ_SOURCE)?;
        /// shared.write_at(0, b"hello, world")?;
        ///
        /// let mut block = client.block().expect("a block is free");
        /// block.set_len(5)?;
        /// client.post_read(shared.advertise(), block)?;
        /// assert_eq!(client.send_completion(deadline)?.message(), Some(&b"hello"[..]));
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        ///
        /// # Errors
        ///
        /// [`PostError`] with the context.
        #[doc(alias = "rdma_post_read")]
        #[doc(alias = "rdma_post_readv")]
        #[inline(always)]
        pub fn post_read(&mut self, remote: RemoteRegion, context: C) -> Result<(), PostError<C>>
        where
            C: RecvBuffers,
        {
            self.post(op::Read::new(remote).signaled(), context)
        }

        /// Posts a WRITE of the message in `context` to `remote`.
        ///
        /// # Errors
        ///
        /// [`PostError`] with the context.
        #[doc(alias = "rdma_post_write")]
        #[doc(alias = "rdma_post_writev")]
        #[inline(always)]
        pub fn post_write(&mut self, remote: RemoteRegion, context: C) -> Result<(), PostError<C>>
        where
            C: SendBuffers,
        {
            self.post(op::Write::new(remote).signaled(), context)
        }

        /// Posts any operation, with the flags that it has. One without `signaled` ends together with a later
        /// one that has it.
        ///
        /// # Errors
        ///
        /// [`PostError`] with the context.
        #[inline(always)]
        pub fn post<O: op::Operation<C>>(
            &mut self,
            operation: O,
            context: C,
        ) -> Result<(), PostError<C>> {
            let (queue, link) = self.send_side();
            post_one!(queue.reserve(link, 1), context, |chain, context| {
                chain.push(operation, context)
            })
        }

        /// The same with a SEND or WRITE of the bytes of `context`, which are copied during the call. At most
        /// [`Self::inline`] bytes.
        ///
        /// # Errors
        ///
        /// [`PostError`] with the context.
        #[doc(alias = "IBV_SEND_INLINE")]
        #[inline(always)]
        pub fn post_inline<O: op::InlineOperation>(
            &mut self,
            operation: O,
            context: C,
        ) -> Result<(), PostError<C>>
        where
            C: AsRef<[u8]>,
        {
            let (queue, link) = self.send_side();
            post_one!(queue.reserve(link, 1), context, |chain, context| {
                chain.push_inline(operation, context)
            })
        }

        /// Starts a chain of up to `n` sends that go out behind one doorbell.
        ///
        /// # Errors
        ///
        /// [`ReserveError`] when they do not all fit now.
        #[inline(always)]
        pub fn reserve_sends(&mut self, n: usize) -> Result<Sends<'_, D, C>, ReserveError> {
            let (queue, link) = self.send_side();
            queue.reserve(link, n)
        }

        /// Starts a chain of up to `n` receives that are posted with one call.
        ///
        /// # Errors
        ///
        /// [`ReserveError`] when they do not all fit now.
        #[inline(always)]
        pub fn reserve_receives(&mut self, n: usize) -> Result<Receives<'_, D, C>, ReserveError> {
            let (queue, link) = self.recv_side();
            queue.reserve(link, n)
        }

        /// Adds `add` to the first eight bytes of `remote`. What they held before comes into the one buffer of
        /// `context`, eight bytes long: a block of that length, or a [`Part`](nanoverbs_core::Part) of one, whose
        /// [`word`](nanoverbs_core::Part::word) it is then.
        ///
        /// # Errors
        ///
        /// [`PostError`] with the context.
        #[inline(always)]
        pub fn post_fetch_add(
            &mut self,
            remote: RemoteRegion,
            add: u64,
            context: C,
        ) -> Result<(), PostError<C>>
        where
            C: RecvBuffers,
        {
            self.post(op::FetchAdd::new(remote, add).signaled(), context)
        }

        /// Stores `new` in the first eight bytes of `remote` if they hold `expected`. What they held before
        /// comes back as for [`Self::post_fetch_add`].
        ///
        /// # Errors
        ///
        /// [`PostError`] with the context.
        #[inline(always)]
        pub fn post_compare_swap(
            &mut self,
            remote: RemoteRegion,
            expected: u64,
            new: u64,
            context: C,
        ) -> Result<(), PostError<C>>
        where
            C: RecvBuffers,
        {
            self.post(op::CompareSwap::new(remote, expected, new).signaled(), context)
        }

        /// Posts a WRITE of the message in `context` to `remote` that ends a receive of the peer's and brings it
        /// `value`. The receive's buffer stays untouched, so one without memory will do.
        ///
        /// # Errors
        ///
        /// [`PostError`] with the context.
        #[doc(alias = "IBV_WR_RDMA_WRITE_WITH_IMM")]
        #[inline(always)]
        pub fn post_write_immediate(
            &mut self,
            remote: RemoteRegion,
            value: u32,
            context: C,
        ) -> Result<(), PostError<C>>
        where
            C: SendBuffers,
        {
            self.post(op::Write::new(remote).immediate(value).signaled(), context)
        }

        /// Posts a request that opens `window` on a piece of `shared`, as far as `rights` go. The completion gives
        /// `context` back, and says that the peer may be told [`Window::advertise`]. It is closed by
        /// [`Self::post_invalidate`], by a message of the peer's that invalidates it, or by its drop; an open
        /// one cannot be opened.
        ///
        /// # Errors
        ///
        /// [`OpenWindowError`] with the context.
        #[doc(alias = "ibv_bind_mw")]
        pub fn post_bind(
            &mut self,
            window: &mut Window<D>,
            shared: &Shared,
            offset: usize,
            len: usize,
            rights: Rights,
            context: C,
        ) -> Result<(), OpenWindowError<C>> {
            // SAFETY: both stay borrowed until the request has been posted, below.
            let bind = match unsafe { window.bind(shared, offset, len, rights) } {
                Ok(bind) => bind,
                Err(cause) => return Err(OpenWindowError::Window { context, cause }),
            };
            self.post(bind.signaled(), context).map_err(OpenWindowError::Post)?;
            window.opened(bind.key());
            Ok(())
        }

        /// Takes `key` of this side's own out of use, in the order of the sends: a window's. The context only
        /// comes back.
        ///
        /// # Errors
        ///
        /// [`PostError`] with the context.
        #[doc(alias = "IBV_WR_LOCAL_INV")]
        pub fn post_invalidate(&mut self, key: RKey, context: C) -> Result<(), PostError<C>> {
            self.post(op::Invalidate::new(key).signaled(), context)
        }
    };
}

impl<D: Driver, C: 'static> Endpoint<D, C> {
    /// A memory window: a key of its own to a piece of shared memory, that comes and goes with requests.
    /// The memory was shared with [`Rights::WINDOWS`].
    ///
    /// # Errors
    ///
    /// [`EndpointError`] when the device has no windows, or no more of them.
    #[doc(alias = "ibv_alloc_mw")]
    pub fn window(&mut self) -> Result<Window<D>, EndpointError> {
        Window::new(self.0.pair.driver.base())
    }
}

/// A memory window of an endpoint or a hub. Dropped, it is closed.
#[derive(Debug)]
pub struct Window<D: Driver> {
    inner: <<D as Backend>::Base as Base>::Window,
    key: Option<RKey>,
}

impl<D: Driver> Window<D> {
    pub(super) fn new(base: &D::Base) -> Result<Self, EndpointError> {
        Ok(Self { inner: base.window()?, key: None })
    }

    /// A request that opens it on a piece of `shared`.
    ///
    /// # Safety
    ///
    /// It is posted while both are borrowed, and `opened` says so then.
    pub(super) unsafe fn bind(
        &mut self,
        shared: &Shared,
        offset: usize,
        len: usize,
        rights: Rights,
    ) -> Result<op::BindWindow, WindowError> {
        // SAFETY: the caller's promise.
        unsafe { D::Base::bind(&mut self.inner, shared, offset, len, rights) }
    }

    /// The request was posted.
    pub(super) fn opened(&mut self, key: RKey) {
        D::Base::opened(&mut self.inner, key);
        self.key = Some(key);
    }

    /// The key that it was opened with last; `None` before it ever was.
    pub const fn key(&self) -> Option<RKey> {
        self.key
    }

    /// What the peer needs to reach the piece of `shared` that the window was opened on; `None` before it
    /// ever was.
    ///
    /// # Errors
    ///
    /// [`OutOfRegion`] when the piece does not lie inside the memory.
    pub fn advertise(
        &self,
        shared: &Shared,
        offset: usize,
        len: usize,
        rights: Rights,
    ) -> Result<Option<RemoteRegion>, OutOfRegion> {
        let addr = shared.slice(offset, len)?.addr().addr().get() as u64;
        let Some(key) = self.key else { return Ok(None) };
        RemoteRegion::new(addr, len as u64, key, rights.of_window()).map(Some)
    }
}

/// A window was not opened.
pub enum OpenWindowError<C> {
    /// It cannot be opened so; nothing was posted.
    Window {
        /// What went in.
        context: C,
        /// Why.
        cause: WindowError,
    },
    /// The request could not be posted.
    Post(PostError<C>),
}

impl<C> OpenWindowError<C> {
    /// Why the request was refused, when it was.
    pub const fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::Window { .. } => None,
            Self::Post(error) => error.refusal(),
        }
    }
}

impl<C> fmt::Debug for OpenWindowError<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Window { cause, .. } => {
                f.debug_struct("Window").field("cause", cause).finish_non_exhaustive()
            }
            Self::Post(error) => f.debug_tuple("Post").field(error).finish(),
        }
    }
}

impl<C> fmt::Display for OpenWindowError<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Window { cause, .. } => cause.fmt(f),
            Self::Post(error) => error.fmt(f),
        }
    }
}

impl<C> std::error::Error for OpenWindowError<C> {}
