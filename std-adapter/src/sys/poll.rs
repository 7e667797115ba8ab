//! Waiting on file descriptors with an absolute deadline.

use std::os::fd::{AsRawFd, BorrowedFd};

use super::{CallError, count};
use crate::Deadline;

/// Waits until one of `fds` is readable; says which are. All `false` means that the deadline
/// passed. A signal does not end the wait.
pub(crate) fn wait_readable<const N: usize>(
    fds: [BorrowedFd<'_>; N],
    deadline: Deadline,
) -> Result<[bool; N], CallError> {
    let mut polled =
        fds.map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 });
    loop {
        // SAFETY: `polled` is an array of `N` entries that outlives the call, and the descriptors
        // are borrowed, hence open.
        let ret = unsafe { libc::poll(polled.as_mut_ptr(), N as libc::nfds_t, deadline.millis()) };
        match count("poll", ret) {
            Ok(0) if !deadline.has_passed() => {}
            // An error or hang-up counts as readable: the read behind it says what it is.
            Ok(_) => return Ok(polled.map(|entry| entry.revents != 0)),
            Err(error) if error.errno() == libc::EINTR => {}
            Err(error) => return Err(error),
        }
    }
}
