//! A descriptor that one thread makes readable so that another wakes.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::CallError;
use super::thread::KeepErrno;

/// An `eventfd(2)`.
#[derive(Debug)]
pub(crate) struct Event(OwnedFd);

impl Event {
    pub(crate) fn new() -> Result<Self, CallError> {
        // SAFETY: takes numbers and gives one.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        super::minus_one("eventfd", fd.min(0))?;
        // SAFETY: just opened, and nobody else has it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Makes it readable. Safe in a signal handler: one `write(2)`, and `errno` stays as it was.
    pub(crate) fn raise(&self) {
        let _kept = KeepErrno::new();
        let one = 1_u64;
        // SAFETY: eight bytes to an open descriptor. It fails only when it is readable already.
        let _ = unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Makes it unreadable again.
    pub(crate) fn clear(&self) {
        let mut count = 0_u64;
        // SAFETY: place for the eight bytes. It fails only when it is not readable.
        let _ = unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
