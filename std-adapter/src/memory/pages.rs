//! Mapped pages.

use std::fmt;
use std::io;
use std::ptr::{self, NonNull};

use crate::sys::{CallError, errno, minus_one};

/// Pages of zeros that belong to this value alone, mapped until it is dropped.
#[derive(Debug)]
#[doc(alias = "mmap")]
pub struct Pages {
    addr: NonNull<u8>,
    len: usize,
}

// SAFETY: the pages belong to this value alone, and are not tied to a thread.
unsafe impl Send for Pages {}
// SAFETY: a shared handle gives out the address only.
unsafe impl Sync for Pages {}

/// What kind of pages.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[must_use = "options do nothing until pages are mapped with them"]
pub struct PagesOptions {
    huge: bool,
    locked: bool,
}

impl PagesOptions {
    /// Ordinary pages, touched once so that none is missing later.
    pub const fn new() -> Self {
        Self { huge: false, locked: false }
    }

    /// Pages of 2 MiB, which the administrator has set aside. Fewer translations for the device and
    /// the processor; an error when there are too few.
    pub const fn huge(mut self) -> Self {
        self.huge = true;
        self
    }

    /// Pages that are never swapped out, registered or not; an error when the limit of locked
    /// memory does not allow it.
    pub const fn locked(mut self) -> Self {
        self.locked = true;
        self
    }

    /// Maps at least `len` bytes, rounded up to whole pages.
    ///
    /// # Errors
    ///
    /// [`PagesError`] says what kind of memory there is too little of.
    pub fn map(self, len: usize) -> Result<Pages, PagesError> {
        let page = if self.huge { HUGE_PAGE } else { page_size() };
        let len = match len.checked_next_multiple_of(page) {
            Some(len) if len > 0 && isize::try_from(len).is_ok() => len,
            _ => return Err(PagesError::Length { len }),
        };
        let mut flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        if !cfg!(miri) {
            // Touched here, not on the hot path. Miri has no such pages.
            flags |= libc::MAP_POPULATE;
        }
        if self.huge {
            flags |= libc::MAP_HUGETLB | libc::MAP_HUGE_2MB;
        }
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let addr = unsafe {
            libc::mmap(ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        if addr == libc::MAP_FAILED {
            let error = CallError::new("mmap", errno());
            return Err(if self.huge {
                PagesError::NoHugePages { pages: len / HUGE_PAGE, error }
            } else {
                PagesError::Call(error)
            });
        }
        let Some(addr) = NonNull::new(addr.cast::<u8>()) else {
            return Err(PagesError::Call(CallError::new("mmap", libc::EFAULT)));
        };
        let pages = Pages { addr, len };
        if self.locked {
            // SAFETY: the range was just mapped.
            let ret = unsafe { libc::mlock(pages.addr.as_ptr().cast(), len) };
            if let Err(error) = minus_one("mlock", ret) {
                return Err(match error.errno() {
                    libc::ENOMEM | libc::EPERM | libc::EAGAIN => {
                        PagesError::LockedMemoryLimit { bytes: len, limit: locked_memory_limit() }
                    }
                    _ => PagesError::Call(error),
                });
            }
        }
        Ok(pages)
    }
}

impl Pages {
    /// At least `len` bytes of ordinary pages.
    ///
    /// # Errors
    ///
    /// As for [`PagesOptions::map`].
    pub fn new(len: usize) -> Result<Self, PagesError> {
        PagesOptions::new().map(len)
    }

    /// The first byte.
    pub const fn addr(&self) -> NonNull<u8> {
        self.addr
    }

    /// Length in bytes, whole pages, never 0.
    #[expect(clippy::len_without_is_empty, reason = "pages are never empty")]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// The bytes.
    pub const fn as_slice(&self) -> &[u8] {
        // SAFETY: the pages are mapped, initialised, and shared with nobody while `self` is
        // borrowed: registering them takes `self` away.
        unsafe { std::slice::from_raw_parts(self.addr.as_ptr(), self.len) }
    }

    /// The bytes.
    pub const fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.addr.as_ptr(), self.len) }
    }

    /// Gives the pages up without unmapping them: for memory that lives as long as the program, and
    /// for devices made of software.
    pub const fn into_raw(self) -> (NonNull<u8>, usize) {
        let raw = (self.addr, self.len);
        std::mem::forget(self);
        raw
    }

    /// Pages that [`into_raw`](Self::into_raw) gave up.
    ///
    /// # Safety
    ///
    /// Both came from one call of `into_raw`, have not come back since, and nobody uses the memory
    /// any more.
    pub const unsafe fn from_raw(addr: NonNull<u8>, len: usize) -> Self {
        Self { addr, len }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by this crate and belongs to this value alone. An error
        // could only mean that it is not mapped, and there is nobody to tell.
        let _ = unsafe { libc::munmap(self.addr.as_ptr().cast(), self.len) };
    }
}

/// Memory cannot be had.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum PagesError {
    /// The length is 0, or more than an address can name.
    Length {
        /// The length.
        len: usize,
    },
    /// Too few huge pages were set aside.
    NoHugePages {
        /// How many were needed.
        pages: usize,
        /// What the system said.
        error: CallError,
    },
    /// The memory may not be locked.
    LockedMemoryLimit {
        /// How much was to be locked.
        bytes: usize,
        /// How much may be, all in all; `None` when there is no limit.
        limit: Option<u64>,
    },
    /// The system says no.
    Call(CallError),
}

impl fmt::Display for PagesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { len } => write!(f, "{len} is no length that memory can have"),
            Self::NoHugePages { pages, error } => write!(
                f,
                "{pages} huge pages of 2 MiB cannot be had ({}); set more aside in \
                 /proc/sys/vm/nr_hugepages",
                io::Error::from(*error)
            ),
            Self::LockedMemoryLimit { bytes, limit } => locked_memory(f, "locked", *bytes, *limit),
            Self::Call(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for PagesError {}

pub(super) fn locked_memory(
    f: &mut fmt::Formatter<'_>,
    what: &str,
    bytes: usize,
    limit: Option<u64>,
) -> fmt::Result {
    write!(f, "{bytes} bytes cannot be {what}: ")?;
    match limit {
        Some(limit) => write!(
            f,
            "this process may lock {limit} bytes in all; raise the limit (ulimit -l, or memlock \
             in limits.conf)"
        ),
        None => f.write_str("the system has too little memory"),
    }
}

pub(super) use crate::sys::thread::locked_memory_limit;

fn page_size() -> usize {
    // SAFETY: takes a number and gives one.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096).max(4096)
}

const HUGE_PAGE: usize = 2 << 20;
