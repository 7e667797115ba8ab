//! Memory windows: keys of their own to pieces of shared regions, that come and go with requests.
//!
//! A window is a row of the region table. It is open from a bind to the invalidation of its key; in between
//! it has the memory, and is closed for good when the region behind it is gone.

use core::fmt;
use core::ptr::NonNull;

use super::{Entry, Kind, NoAccess, REMOTE, RegisterError, Table};
use crate::abi::{Access, BindMw, RKey};
use crate::op::BindWindow;
use crate::region::{Domain, OutOfRegion, SharedRegion};
use crate::soft::Device;

/// A memory window of type 2 on a soft device. Dropped, it is closed and its place is free again.
///
/// ```
/// # use nanoverbs_core::{Access, soft::Device};
/// # static DEVICE: Device<1, 2> = Device::new();
/// # let memory = Box::leak(Box::new([0; 64]));
/// let domain = DEVICE.domain();
/// let access = Access::LOCAL_WRITE.with(Access::MW_BIND);
/// let region = DEVICE.register_shared(domain, memory, access)?;
/// let mut window = DEVICE.window(domain)?;
/// // To be pushed into a send queue; the peer is told the key when it is done.
/// let bind = window.bind(&region, 64, 128, Access::REMOTE_READ)?.signaled();
/// let remote = window.advertise(&region, 64, 128, Access::REMOTE_READ)?;
/// assert_eq!(bind.key(), remote.rkey());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "ibv_mw")]
pub struct Window<
    'd,
    const QPS: usize,
    const DEPTH: usize,
    const SGES: usize = 4,
    const INLINE: usize = 64,
> {
    device: &'d Device<QPS, DEPTH, SGES, INLINE>,
    key: RKey,
    domain: Domain,
}

impl<'d, const QPS: usize, const DEPTH: usize, const SGES: usize, const INLINE: usize>
    Window<'d, QPS, DEPTH, SGES, INLINE>
{
    pub(in crate::soft) fn new(
        device: &'d Device<QPS, DEPTH, SGES, INLINE>,
        key: RKey,
        domain: Domain,
    ) -> Self {
        Self { device, key, domain }
    }

    /// The key that it has, or will have once the last bind is done.
    pub const fn key(&self) -> RKey {
        self.key
    }

    /// A request that opens it on the piece of `len` bytes at `offset` of `region`, with a new key.
    ///
    /// # Errors
    ///
    /// [`WindowError`]; the key is as it was then.
    #[doc(alias = "ibv_bind_mw")]
    pub fn bind(
        &mut self,
        region: &SharedRegion,
        offset: usize,
        len: usize,
        access: Access,
    ) -> Result<BindWindow, WindowError> {
        let registration = region.registration();
        let slice = region.slice(offset, len)?;
        let has = registration.access;
        let needs = match access.has(Access::REMOTE_WRITE) || access.has(Access::REMOTE_ATOMIC) {
            true => Access::MW_BIND.with(Access::LOCAL_WRITE),
            false => Access::MW_BIND,
        };
        if !has.has(needs) {
            return Err(WindowError::MissingAccess { needs, has });
        }
        self.key = self.key.next();
        let bind = BindMw {
            mw: core::ptr::without_provenance_mut(self.key.to_raw() as usize),
            rkey: self.key,
            mr: core::ptr::without_provenance_mut(registration.lkey.to_raw() as usize),
            addr: slice.addr().addr().get() as u64,
            length: len as u64,
            mw_access_flags: access.bits(),
        };
        // SAFETY: this device looks both up by number, and follows neither; a window is closed when the
        // memory behind it is deregistered.
        Ok(unsafe { BindWindow::from_raw(bind, self.domain) })
    }

    /// What a peer needs to reach the piece through the window, once it is open.
    ///
    /// # Errors
    ///
    /// [`OutOfRegion`] when the piece does not lie inside the region.
    pub fn advertise(
        &self,
        region: &SharedRegion,
        offset: usize,
        len: usize,
        access: Access,
    ) -> Result<crate::RemoteRegion, OutOfRegion> {
        let addr = region.slice(offset, len)?.addr().addr().get() as u64;
        crate::RemoteRegion::new(addr, len as u64, self.key, access)
    }
}

impl<const QPS: usize, const DEPTH: usize, const SGES: usize, const INLINE: usize> Drop
    for Window<'_, QPS, DEPTH, SGES, INLINE>
{
    fn drop(&mut self) {
        self.device.locked(|driver| driver.engine.table.remove_window(self.key.to_raw()));
    }
}

impl<const QPS: usize, const DEPTH: usize, const SGES: usize, const INLINE: usize> fmt::Debug
    for Window<'_, QPS, DEPTH, SGES, INLINE>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window").field("key", &self.key).finish_non_exhaustive()
    }
}

/// A window cannot be opened so.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum WindowError {
    /// The piece does not lie inside the region.
    OutOfRegion(OutOfRegion),
    /// The region lacks the right to have windows, or to be written.
    MissingAccess {
        /// The rights that it needs.
        needs: Access,
        /// The rights that it has.
        has: Access,
    },
}

impl From<OutOfRegion> for WindowError {
    fn from(error: OutOfRegion) -> Self {
        Self::OutOfRegion(error)
    }
}

impl fmt::Display for WindowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRegion(error) => error.fmt(f),
            Self::MissingAccess { needs, has } => write!(
                f,
                "the memory was registered with rights {:#x} and a window on it needs {:#x}",
                has.bits(),
                needs.bits()
            ),
        }
    }
}

impl core::error::Error for WindowError {}

/// What a request to open a window asks for.
pub(in crate::soft) struct Opening {
    pub(in crate::soft) key: RKey,
    pub(in crate::soft) parent: u32,
    pub(in crate::soft) addr: u64,
    pub(in crate::soft) len: u64,
    pub(in crate::soft) access: u32,
}

impl Entry {
    pub(super) const fn close(&mut self) {
        (self.addr, self.len, self.access, self.parent) = (None, 0, 0, 0);
    }
}

impl<const QPS: usize> Table<QPS> {
    /// A new window, closed; its first key.
    pub(in crate::soft) fn add_window(&mut self, domain: Domain) -> Result<RKey, RegisterError> {
        let rows = self.rows.as_flattened_mut();
        let found = rows.iter_mut().enumerate().find(|(_, row)| row.kind == Kind::None);
        let Some((at, row)) = found else {
            return Err(RegisterError::NoRoom);
        };
        let version = row.version.wrapping_add(1);
        let rkey = ((at as u32) << 8) | u32::from(version) | REMOTE;
        let kind = Kind::Window;
        *row = Entry { rkey, domain: domain.to_raw(), kind, version, ..Entry::FREE };
        Ok(RKey::from_raw(rkey))
    }

    pub(in crate::soft) fn remove_window(&mut self, key: u32) {
        if let Some(row) = self.window(key) {
            // The next one that has this place starts behind the keys of this one.
            *row = Entry { version: key as u8, ..Entry::FREE };
        }
    }

    fn window(&mut self, key: u32) -> Option<&mut Entry> {
        let at = ((key & !REMOTE) >> 8) as usize;
        let row = self.rows.as_flattened_mut().get_mut(at)?;
        (row.kind == Kind::Window).then_some(row)
    }

    /// Opens a window.
    pub(in crate::soft) fn open(&mut self, domain: u32, wanted: &Opening) -> Result<(), NoAccess> {
        let parent = self.row(wanted.parent).ok_or(NoAccess)?;
        let writes = Access::REMOTE_WRITE.with(Access::REMOTE_ATOMIC).bits();
        let access = Access::from_bits(parent.access);
        let may = access.has(Access::MW_BIND)
            && (wanted.access & writes == 0 || access.has(Access::LOCAL_WRITE));
        if parent.kind != Kind::Shared
            || parent.lkey != wanted.parent
            || parent.domain != domain
            || !may
        {
            return Err(NoAccess);
        }
        let base = parent.addr.ok_or(NoAccess)?;
        let offset = wanted.addr.checked_sub(base.addr().get() as u64).ok_or(NoAccess)?;
        let end = offset.checked_add(wanted.len).ok_or(NoAccess)?;
        if end > parent.len as u64 {
            return Err(NoAccess);
        }
        // SAFETY: `offset` is at most the region's length, which was just checked.
        let addr: NonNull<u8> = unsafe { base.add(offset as usize) };
        let window = self.window(wanted.key.to_raw()).ok_or(NoAccess)?;
        if window.addr.is_some() || window.domain != domain {
            return Err(NoAccess);
        }
        window.addr = Some(addr);
        window.len = wanted.len as usize;
        window.access = wanted.access;
        window.parent = wanted.parent;
        window.rkey = wanted.key.to_raw();
        Ok(())
    }

    /// Whether a row is a window that is open, on a region that is still registered.
    pub(super) fn is_open_window(&self, row: &Entry) -> bool {
        let is_there = || {
            let parent = self.row(row.parent)?;
            (parent.kind == Kind::Shared && parent.lkey == row.parent).then_some(())
        };
        row.kind == Kind::Window && row.addr.is_some() && is_there().is_some()
    }
}
