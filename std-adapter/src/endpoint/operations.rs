//! The verbs of an endpoint beside SEND, READ and WRITE: atomics, immediates, invalidation, windows.
//!
//! Each is [`Endpoint::post`] with an operation of [`nanoverbs_core::op`], signaled.

use std::fmt;

use nanoverbs_core::{OutOfRegion, RKey, RecvBuffers, RemoteRegion, SendBuffers, op};

use super::driver::sealed::Backend;
use super::{Driver, Endpoint, EndpointError, PostError, Refusal, Shared};
use crate::memory::{Rights, WindowError};

impl<D: Driver, C: 'static> Endpoint<D, C> {
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
    /// comes back as for [`Endpoint::post_fetch_add`].
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

    /// A memory window: a key of its own to a piece of shared memory, that comes and goes with requests.
    /// The memory was shared with [`Rights::WINDOWS`].
    ///
    /// # Errors
    ///
    /// [`EndpointError`] when the device has no windows, or no more of them.
    #[doc(alias = "ibv_alloc_mw")]
    pub fn window(&mut self) -> Result<Window<D>, EndpointError> {
        Ok(Window { inner: self.0.driver.window()?, key: None })
    }

    /// Posts a request that opens `window` on a piece of `shared`, as far as `rights` go. The completion gives
    /// `context` back, and says that the peer may be told [`Window::advertise`]. It is closed by
    /// [`Endpoint::post_invalidate`], by a message of the peer's that invalidates it, or by its drop; an open
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
        let bind = match unsafe { D::bind(&mut window.inner, shared, offset, len, rights) } {
            Ok(bind) => bind,
            Err(cause) => return Err(OpenWindowError::Window { context, cause }),
        };
        self.post(bind.signaled(), context).map_err(OpenWindowError::Post)?;
        D::opened(&mut window.inner, bind.key());
        window.key = Some(bind.key());
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
}

/// A memory window of an endpoint. Dropped, it is closed.
#[derive(Debug)]
pub struct Window<D: Driver> {
    inner: <D as Backend>::Window,
    key: Option<RKey>,
}

impl<D: Driver> Window<D> {
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
