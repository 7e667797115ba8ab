//! Pages, registered in a domain.
//!
//! The owner of registered memory is [`LocalMemory`] or [`SharedMemory`]; dropped, it deregisters.
//! The core's pools want a [`Region`] by value, which says nothing of who owns the pages.
//! `into_region` gives it, and keeps the memory aside until [`release`] gets the region back. A
//! region that is never given back leaks its pages; a device never reaches memory that is gone.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nanoverbs_core::{Access, OutOfRegion, Region, Registration, SharedRegion, SharedSlice};

use super::pages::{locked_memory, locked_memory_limit};
use super::{Keeper, Pages, Rights, SharedBuffer};
use crate::sys::{self, CallError, MrPtr};
use crate::{ProtectionDomain, WrongProcess};

/// Registered memory that only this side's own requests reach: for messages and pools.
#[derive(Debug)]
#[doc(alias = "ibv_mr")]
pub struct LocalMemory {
    region: Region,
    owner: Owner,
}

impl LocalMemory {
    /// Registers `pages` in `domain`.
    ///
    /// # Errors
    ///
    /// [`RegisterError`] has the cause, and the pages again.
    #[doc(alias = "ibv_reg_mr")]
    #[doc(alias = "rdma_reg_msgs")]
    pub fn register(pages: Pages, domain: &Arc<ProtectionDomain>) -> Result<Self, RegisterError> {
        let (owner, registration) = Owner::register(pages, domain, Access::LOCAL_WRITE)?;
        // SAFETY: just registered so, without remote rights, and kept as long as the region: beside
        // it here, or aside by `into_region`.
        let region = unsafe { Region::from_raw(registration) };
        Ok(Self { region, owner })
    }

    /// The region, for slices.
    pub const fn region(&self) -> &Region {
        &self.region
    }

    /// The region by value, for a pool. The memory is kept aside until [`release`] gets it back.
    pub fn into_region(self) -> Region {
        keep(self.owner);
        self.region
    }

    /// Deregisters, and gives the pages back.
    ///
    /// # Errors
    ///
    /// What the device says; the pages are leaked then, because it may still know them.
    #[doc(alias = "ibv_dereg_mr")]
    #[doc(alias = "rdma_dereg_mr")]
    pub fn deregister(self) -> Result<Pages, CallError> {
        self.owner.into_pages()
    }
}

/// Registered memory that a peer may reach, as far as its rights go.
#[derive(Debug)]
#[doc(alias = "ibv_mr")]
pub struct SharedMemory {
    region: SharedRegion,
    owner: Owner,
}

impl SharedMemory {
    /// Registers `pages` in `domain`, with what a peer may do.
    ///
    /// # Errors
    ///
    /// [`RegisterError`] has the cause, and the pages again.
    #[doc(alias = "ibv_reg_mr")]
    #[doc(alias = "rdma_reg_read")]
    #[doc(alias = "rdma_reg_write")]
    pub fn register(
        pages: Pages,
        domain: &Arc<ProtectionDomain>,
        rights: Rights,
    ) -> Result<Self, RegisterError> {
        let access = rights.access(domain.device().limits().iwarp);
        let (owner, registration) = Owner::register(pages, domain, access)?;
        // SAFETY: just registered so, and kept as long as the region, beside it here or aside by
        // `into_region`; whole pages are aligned, and the owner gives no reference to them.
        let region = unsafe { SharedRegion::from_raw(registration) };
        Ok(Self { region, owner })
    }

    /// The region: to read and write by copy, to slice, to advertise.
    pub const fn region(&self) -> &SharedRegion {
        &self.region
    }

    /// A piece of it as the buffer of a request, which keeps it registered.
    ///
    /// # Errors
    ///
    /// [`OutOfRegion`] when it does not lie inside, or is longer than 4 GiB − 1.
    pub fn buffer(
        self: &Arc<Self>,
        offset: usize,
        len: usize,
    ) -> Result<SharedBuffer, OutOfRegion> {
        let slice = self.region.slice(offset, len)?;
        let owner: Keeper = Arc::<Self>::clone(self);
        // SAFETY: the slice is of the region, whose memory this owner keeps.
        Ok(unsafe { SharedSlice::from_raw(slice, owner) })
    }

    pub(super) const fn mr(&self) -> MrPtr {
        self.owner.registered.mr
    }

    /// The region by value. The memory is kept aside until [`release_shared`] gets it back.
    pub fn into_region(self) -> SharedRegion {
        keep(self.owner);
        self.region
    }

    /// Deregisters, and gives the pages back: no peer reaches them any more.
    ///
    /// # Errors
    ///
    /// What the device says; the pages are leaked then, because it may still know them.
    #[doc(alias = "ibv_dereg_mr")]
    #[doc(alias = "rdma_dereg_mr")]
    pub fn deregister(self) -> Result<Pages, CallError> {
        self.owner.into_pages()
    }
}

/// Gives the memory of a region back, from which nothing is in use any more. Dropped, it is
/// deregistered.
///
/// # Errors
///
/// The region, when it was not made by [`LocalMemory::into_region`].
pub fn release(region: Region) -> Result<LocalMemory, Region> {
    match take(region.registration()) {
        Some(owner) => Ok(LocalMemory { region, owner }),
        None => Err(region),
    }
}

/// Gives the memory of a region back, from which nothing is in use any more. Dropped, it is
/// deregistered.
///
/// # Errors
///
/// The region, when it was not made by [`SharedMemory::into_region`].
pub fn release_shared(region: SharedRegion) -> Result<SharedMemory, SharedRegion> {
    match take(region.registration()) {
        Some(owner) => Ok(SharedMemory { region, owner }),
        None => Err(region),
    }
}

/// Pages cannot be registered.
#[derive(Debug)]
pub struct RegisterError {
    /// The pages, as they were.
    pub pages: Pages,
    /// Why.
    pub cause: RegisterCause,
}

/// Why pages cannot be registered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum RegisterCause {
    /// This process may not lock so much memory. Registering locks it; the same memory registered
    /// twice counts twice.
    LockedMemoryLimit {
        /// How much was to be registered.
        bytes: usize,
        /// How much may be locked, all in all; `None` when there is no limit.
        limit: Option<u64>,
    },
    /// The device has no regions of that length.
    TooLong {
        /// The length.
        bytes: usize,
        /// The device's largest.
        max: u64,
    },
    /// The device does not have this; nothing else was done in its place.
    Unsupported {
        /// What it does not have.
        what: &'static str,
    },
    /// The device belongs to the parent of this process.
    WrongProcess(WrongProcess),
    /// The device says no.
    Call(CallError),
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)
    }
}

impl fmt::Display for RegisterCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LockedMemoryLimit { bytes, limit } => {
                locked_memory(f, "registered", *bytes, *limit)
            }
            Self::TooLong { bytes, max } => {
                write!(f, "{bytes} bytes are too many for one region; this device allows {max}")
            }
            Self::Unsupported { what } => write!(f, "this device has no {what}"),
            Self::WrongProcess(error) => error.fmt(f),
            Self::Call(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RegisterError {}

/// A registration; dropped, it ends.
#[derive(Debug)]
struct Registered {
    mr: MrPtr,
    /// Outlives the registration.
    domain: Arc<ProtectionDomain>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        if self.domain.device().is_parents() {
            return;
        }
        // The kernel keeps pinned pages from being used for anything else, whatever it answers.
        // SAFETY: its owner is gone or is going, so no request uses it.
        let _ = unsafe { sys::verbs::dereg_mr(self.mr) };
    }
}

/// A registration and its pages, which go in this order.
#[derive(Debug)]
struct Owner {
    registered: Registered,
    pages: Pages,
}

impl Owner {
    fn register(
        pages: Pages,
        domain: &Arc<ProtectionDomain>,
        access: Access,
    ) -> Result<(Self, Registration), RegisterError> {
        let bytes = pages.len();
        let device = domain.device();
        if let Err(error) = device.check_process() {
            return Err(RegisterError { pages, cause: RegisterCause::WrongProcess(error) });
        }
        if access.has(Access::ON_DEMAND) && !device.limits().on_demand {
            let cause = RegisterCause::Unsupported { what: "on-demand paging" };
            return Err(RegisterError { pages, cause });
        }
        let max = device.limits().region_len;
        if bytes as u64 > max {
            return Err(RegisterError { pages, cause: RegisterCause::TooLong { bytes, max } });
        }
        let addr = pages.addr();
        // SAFETY: the domain lives; the pages are mapped until the owner is dropped, which
        // deregisters first.
        match unsafe { sys::verbs::reg_mr(domain.pd(), addr, bytes, access) } {
            Ok((mr, lkey, rkey)) => {
                let registered = Registered { mr, domain: Arc::clone(domain) };
                let domain = domain.id();
                let registration = Registration { addr, len: bytes, lkey, rkey, access, domain };
                Ok((Self { registered, pages }, registration))
            }
            Err(error) => {
                let cause = match error.errno() {
                    libc::ENOMEM => {
                        let limit = locked_memory_limit();
                        RegisterCause::LockedMemoryLimit { bytes, limit }
                    }
                    _ => RegisterCause::Call(error),
                };
                Err(RegisterError { pages, cause })
            }
        }
    }

    fn into_pages(self) -> Result<Pages, CallError> {
        let Self { registered, pages } = self;
        let registered = std::mem::ManuallyDrop::new(registered);
        if registered.domain.device().is_parents() {
            let _ = pages.into_raw();
            return Err(CallError::new("ibv_dereg_mr", libc::EACCES));
        }
        // SAFETY: the region went with the owner, so no request uses it; the registration's own
        // drop does not run.
        let ended = unsafe { sys::verbs::dereg_mr(registered.mr) };
        match ended {
            Ok(()) => {
                // SAFETY: taken out of a value that is not dropped, once.
                drop(unsafe { std::ptr::read(&raw const registered.domain) });
                Ok(pages)
            }
            Err(error) => {
                // The domain stays with what is left in it.
                let _ = pages.into_raw();
                Err(error)
            }
        }
    }
}

/// Memory whose region went its own way, by address.
fn aside() -> MutexGuard<'static, BTreeMap<usize, Owner>> {
    static ASIDE: Mutex<BTreeMap<usize, Owner>> = Mutex::new(BTreeMap::new());
    ASIDE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn keep(owner: Owner) {
    aside().insert(owner.pages.addr().addr().get(), owner);
}

/// The registration of a region that went its own way, and that is alive because it is borrowed.
pub(super) fn mr_of(region: &SharedRegion) -> Option<MrPtr> {
    let registration = region.registration();
    let aside = aside();
    let owner = aside.get(&registration.addr.addr().get())?;
    let is_it = owner.pages.len() == registration.len
        && owner.registered.domain.id() == registration.domain;
    is_it.then_some(owner.registered.mr)
}

fn take(registration: &Registration) -> Option<Owner> {
    let mut aside = aside();
    let address = registration.addr.addr().get();
    // A region of a software device may lie where ours once was, with keys of its own.
    let known = aside.get(&address)?;
    if known.pages.len() != registration.len {
        return None;
    }
    aside.remove(&address)
}
