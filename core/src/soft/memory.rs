//! The region table: which memory the device may touch, and under which keys.
//!
//! Programs register memory from any thread; the engine looks keys up with every request. All of
//! it happens under the engine's lock.
//!
//! Invariant: the device touches no byte that is not inside an entry of this table. An entry is
//! private, then no peer reaches it and copies are plain; or shared, then everybody copies by
//! atomic words.

use core::fmt;
use core::ptr::NonNull;

use crate::abi::{Access, LKey, RKey, Sge};
use crate::region::{Domain, Registration};

mod window;

pub(super) use window::Opening;
pub use window::{Window, WindowError};

/// How the memory of a region is touched.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// Nothing is registered here.
    None = 0,
    /// By plain copies.
    Private = 1,
    /// By atomic words.
    Shared = 2,
    /// A window: nothing by itself; where it is open, a piece of a shared region.
    Window = 3,
}

/// A row of the table. All zero when it is free.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    addr: Option<NonNull<u8>>,
    len: usize,
    lkey: u32,
    rkey: u32,
    access: u32,
    domain: u32,
    kind: Kind,
    /// Of an open window, the local key of the region behind it.
    parent: u32,
    /// Whether the memory came from the program as `&'static mut`, and may go back as such.
    is_static: bool,
    /// Low byte of the keys, so that the keys of an earlier registration are refused.
    version: u8,
}

// SAFETY: the pointer is followed under the promises of whoever registered the memory.
unsafe impl Send for Entry {}

/// A piece of memory that was looked up: it may be touched until the lock is released.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub(super) addr: NonNull<u8>,
    pub(super) len: usize,
    pub(super) is_shared: bool,
}

/// Why a remote access was refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct NoAccess;

pub(super) struct Table<const QPS: usize> {
    rows: [[Entry; 8]; QPS],
}

/// Set in remote keys when they differ from local ones.
const REMOTE: u32 = 1 << 31;

impl Entry {
    const FREE: Self = Self {
        addr: None,
        len: 0,
        lkey: 0,
        rkey: 0,
        access: 0,
        domain: 0,
        kind: Kind::None,
        parent: 0,
        is_static: false,
        version: 0,
    };

    /// The memory from `addr` on, when all of it is inside.
    #[inline(always)]
    fn part(&self, offset: u64, length: u32) -> Option<usize> {
        let end = offset.checked_add(u64::from(length))?;
        if end > self.len as u64 { None } else { Some(offset as usize) }
    }
}

impl<const QPS: usize> Table<QPS> {
    pub(super) const NEW: Self = Self { rows: [[Entry::FREE; 8]; QPS] };

    #[inline(always)]
    fn row(&self, key: u32) -> Option<&Entry> {
        self.rows.as_flattened().get(((key & !REMOTE) >> 8) as usize)
    }

    /// The memory that a piece of a local request names.
    #[inline(always)]
    pub(super) fn local(&self, domain: u32, sge: &Sge, writes: bool) -> Option<Piece> {
        let row = self.row(sge.lkey.to_raw())?;
        let wanted = writes as u32;
        if matches!(row.kind, Kind::None | Kind::Window)
            || row.lkey != sge.lkey.to_raw()
            || row.domain != domain
            || row.access & wanted != wanted
        {
            return None;
        }
        let addr = NonNull::new(sge.addr.pointer())?;
        let offset = addr.addr().get().wrapping_sub(row.addr?.addr().get());
        row.part(offset as u64, sge.length)?;
        // The request's own pointer: it may be the only one with the right to these bytes.
        Some(Piece { addr, len: sge.length as usize, is_shared: row.kind == Kind::Shared })
    }

    /// The memory that a peer's request names.
    #[inline(always)]
    pub(super) fn remote(
        &self,
        domain: u32,
        rkey: RKey,
        remote_addr: u64,
        length: u32,
        wanted: Access,
    ) -> Result<Piece, NoAccess> {
        let find = || {
            let row = self.row(rkey.to_raw())?;
            let is_open = row.kind == Kind::Shared || self.is_open_window(row);
            if !is_open
                || row.rkey != rkey.to_raw()
                || row.rkey == 0
                || row.domain != domain
                || !Access::from_bits(row.access).has(wanted)
            {
                return None;
            }
            let base = row.addr?;
            let offset = remote_addr.checked_sub(base.addr().get() as u64)?;
            let offset = row.part(offset, length)?;
            // SAFETY: `offset` is at most the region's length, which was just checked.
            let addr = unsafe { base.add(offset) };
            Some(Piece { addr, len: length as usize, is_shared: true })
        };
        find().ok_or(NoAccess)
    }

    /// Takes a remote key out of use; the region itself stays registered.
    pub(super) fn invalidate(&mut self, domain: u32, rkey: u32) -> Result<(), NoAccess> {
        let at = ((rkey & !REMOTE) >> 8) as usize;
        match self.rows.as_flattened_mut().get_mut(at) {
            Some(row)
                if row.kind != Kind::None
                    && rkey != 0
                    && row.rkey == rkey
                    && row.domain == domain =>
            {
                if row.kind == Kind::Window {
                    row.close();
                } else {
                    row.rkey = 0;
                }
                Ok(())
            }
            _ => Err(NoAccess),
        }
    }

    pub(super) fn add(
        &mut self,
        memory: NonNull<[u8]>,
        domain: Domain,
        access: Access,
        kind: Kind,
        is_static: bool,
        equal_keys: bool,
    ) -> Result<Registration, RegisterError> {
        let writes_from_afar = Access::REMOTE_WRITE.with(Access::REMOTE_ATOMIC).bits();
        if access.bits() & writes_from_afar != 0 && !access.has(Access::LOCAL_WRITE) {
            return Err(RegisterError::NoLocalWrite);
        }
        if access.has(Access::ON_DEMAND) {
            return Err(RegisterError::OnDemand);
        }
        if kind == Kind::Private && access.is_remote() {
            return Err(RegisterError::Private);
        }
        let addr = memory.cast::<u8>();
        if kind == Kind::Shared && addr.addr().get() & 7 != 0 {
            return Err(RegisterError::Unaligned);
        }
        let rows = self.rows.as_flattened_mut();
        let found = rows.iter_mut().enumerate().find(|(_, row)| row.kind == Kind::None);
        let Some((at, row)) = found else {
            return Err(RegisterError::NoRoom);
        };
        // Never 0: a key of 0 is nobody's.
        let version = row.version.checked_add(1).unwrap_or(1);
        let lkey = ((at as u32) << 8) | u32::from(version);
        let rkey = match equal_keys {
            true if access.is_remote() => lkey,
            true => 0,
            false => lkey | REMOTE,
        };
        *row = Entry {
            addr: Some(addr),
            len: memory.len(),
            lkey,
            rkey,
            access: access.bits(),
            domain: domain.to_raw(),
            kind,
            parent: 0,
            is_static,
            version,
        };
        Ok(Registration {
            addr,
            len: memory.len(),
            lkey: LKey::from_raw(lkey),
            rkey: RKey::from_raw(rkey),
            access,
            domain,
        })
    }

    /// Forgets a region.
    pub(super) fn remove(&mut self, region: &Registration) -> bool {
        self.remove_if(region, |_| true)
    }

    /// Forgets a region whose memory came as `&'static mut`.
    pub(super) fn remove_static(&mut self, region: &Registration, kind: Kind) -> bool {
        self.remove_if(region, |row| row.is_static && row.kind == kind)
    }

    fn remove_if(&mut self, region: &Registration, may: impl Fn(&Entry) -> bool) -> bool {
        let at = (region.lkey.to_raw() >> 8) as usize;
        let Some(row) = self.rows.as_flattened_mut().get_mut(at) else { return false };
        let is_same = matches!(row.kind, Kind::Private | Kind::Shared)
            && row.lkey == region.lkey.to_raw()
            && row.addr == Some(region.addr)
            && row.len == region.len
            && may(row);
        if is_same {
            *row = Entry { version: row.version, ..Entry::FREE };
        }
        is_same
    }
}

/// Memory was not registered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum RegisterError {
    /// The device's table is full: it has eight rows a queue pair.
    NoRoom,
    /// A peer may write, but the device may not: the rights contradict each other.
    NoLocalWrite,
    /// Private memory cannot be opened to peers.
    Private,
    /// Shared memory starts at a multiple of 8.
    Unaligned,
    /// This device knows no pages that are brought in on demand.
    OnDemand,
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoRoom => "the region table is full",
            Self::NoLocalWrite => "remote write and atomic rights need the local write right",
            Self::Private => "private memory cannot have remote rights",
            Self::Unaligned => "shared memory must be aligned to 8 bytes",
            Self::OnDemand => "the soft device has no on-demand paging",
        })
    }
}

impl core::error::Error for RegisterError {}
