//! Waiting on file descriptors with an absolute deadline.

#[cfg(feature = "librdmacm")]
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use super::{CallError, count};
use crate::Deadline;

/// Waits until one of `fds` is readable; says which are. All `false` means that the deadline
/// passed. A signal does not end the wait.
#[cfg(feature = "librdmacm")]
pub(crate) fn wait_readable<const N: usize>(
    fds: [BorrowedFd<'_>; N],
    deadline: Deadline,
) -> Result<[bool; N], CallError> {
    let mut polled = fds.map(|fd| entry(fd.as_raw_fd()));
    wait_entries(&mut polled, deadline)?;
    // An error or hang-up counts as readable: the read behind it says what it is.
    Ok(polled.map(|entry| entry.revents != 0))
}

/// What `poll(2)` is asked about one descriptor.
pub(crate) const fn entry(fd: i32) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

/// Waits until one of the entries is readable, or the deadline passed. A signal does not end the wait.
pub(crate) fn wait_entries(
    entries: &mut [libc::pollfd],
    deadline: Deadline,
) -> Result<(), CallError> {
    loop {
        let left = deadline.timespec();
        let timeout = left.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: the entries and the timeout outlive the call, and the signal mask stays as it is.
        let ret = unsafe {
            libc::ppoll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, timeout, ptr::null())
        };
        match count("ppoll", ret) {
            Ok(0) if !deadline.has_passed() => {}
            Ok(_) => return Ok(()),
            Err(error) if error.errno() == libc::EINTR => {}
            Err(error) => return Err(error),
        }
    }
}
