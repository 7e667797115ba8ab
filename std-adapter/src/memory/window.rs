//! Memory windows: keys of their own to pieces of shared memory, that come and go with requests.
//!
//! An endpoint has calls for them ([`Endpoint::window`](crate::Endpoint::window)); this is what they are
//! made of. Who posts through queues of their own opens windows with [`MemoryWindow::bind`].

use std::sync::Arc;

use nanoverbs_core::op::BindWindow;
use nanoverbs_core::{RKey, SharedRegion};

use super::{Rights, SharedMemory, WindowError, registered};
use crate::ProtectionDomain;
use crate::sys::{self, CallError, MrPtr, MwPtr};

/// A memory window of type 2. Dropped, it is closed.
#[derive(Debug)]
#[doc(alias = "ibv_mw")]
pub struct MemoryWindow {
    mw: MwPtr,
    key: RKey,
    domain: Arc<ProtectionDomain>,
}

impl MemoryWindow {
    /// A window in `domain`, closed.
    ///
    /// # Errors
    ///
    /// What the device says.
    #[doc(alias = "ibv_alloc_mw")]
    pub fn new(domain: &Arc<ProtectionDomain>) -> Result<Self, CallError> {
        // SAFETY: the domain lives, and the window will hold it.
        let (mw, key) = unsafe { sys::window::alloc_mw(domain.pd()) }?;
        Ok(Self { mw, key, domain: Arc::clone(domain) })
    }

    /// The key that it has, or had last.
    pub const fn key(&self) -> RKey {
        self.key
    }

    /// A request that opens it on a piece of `memory`, with the next key. Once that has been submitted, say
    /// so by [`MemoryWindow::opened`].
    ///
    /// # Errors
    ///
    /// [`WindowError`] when the memory is of another domain, or lacks a right, or the piece does not lie
    /// inside it.
    ///
    /// # Safety
    ///
    /// Window and memory exist until the request has been submitted: devices look into both then.
    #[doc(alias = "ibv_bind_mw")]
    pub unsafe fn bind(
        &self,
        memory: &SharedMemory,
        offset: usize,
        len: usize,
        rights: Rights,
    ) -> Result<BindWindow, WindowError> {
        // SAFETY: the caller's promise.
        unsafe { self.bind_region(memory.mr(), memory.region(), offset, len, rights) }
    }

    /// The same for a region that went its own way.
    ///
    /// # Safety
    ///
    /// As for [`MemoryWindow::bind`], with the region for the memory.
    pub(crate) unsafe fn bind_kept(
        &self,
        region: &SharedRegion,
        offset: usize,
        len: usize,
        rights: Rights,
    ) -> Result<BindWindow, WindowError> {
        let mr = registered::mr_of(region).ok_or(WindowError::WrongDomain)?;
        // SAFETY: the caller's promise.
        unsafe { self.bind_region(mr, region, offset, len, rights) }
    }

    /// # Safety
    ///
    /// As for [`MemoryWindow::bind`]; `mr` is the registration of `region`.
    unsafe fn bind_region(
        &self,
        mr: MrPtr,
        region: &SharedRegion,
        offset: usize,
        len: usize,
        rights: Rights,
    ) -> Result<BindWindow, WindowError> {
        if region.registration().domain != self.domain.id() {
            return Err(WindowError::WrongDomain);
        }
        let slice = region.slice(offset, len)?;
        WindowError::check(region.registration().access)?;
        let mut bind = sys::window::bind(self.mw, mr, self.key.next());
        bind.addr = slice.addr().addr().get() as u64;
        bind.length = len as u64;
        bind.mw_access_flags = rights.of_window().bits();
        // SAFETY: both exist, and stay until the submit: the caller's promise. The piece was checked, and a
        // device does not deregister memory while a window is open on it.
        Ok(unsafe { BindWindow::from_raw(bind, self.domain.id()) })
    }

    /// A request that opens it was submitted: from now on it has that request's key. When the request fails,
    /// the window is of no use any more.
    pub fn opened(&mut self, key: RKey) {
        self.key = key;
        // SAFETY: the window lives; that it is not being posted follows from the exclusive borrow and
        // the promise of who made the request.
        unsafe { sys::window::set_mw_key(self.mw, key) };
    }
}

impl Drop for MemoryWindow {
    fn drop(&mut self) {
        if self.domain.device().is_parents() {
            return;
        }
        // SAFETY: nobody has the window any more; what a queue pair still has of it are numbers.
        let _ = unsafe { sys::window::dealloc_mw(self.mw) };
    }
}
