//! The four system calls of an event loop.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Watches descriptors, each under a number of its own.
pub(crate) struct Epoll {
    fd: OwnedFd,
    events: [libc::epoll_event; 16],
}

impl Epoll {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just opened, and nothing else has it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, events: [libc::epoll_event { events: 0, u64: 0 }; 16] })
    }

    /// Tells under `number` when `watched` is readable.
    pub(crate) fn add(&mut self, watched: BorrowedFd<'_>, number: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: number };
        let (epoll, watched) = (self.fd.as_raw_fd(), watched.as_raw_fd());
        // SAFETY: both descriptors are open, and `event` is read during the call.
        let ret = unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, watched, &raw mut event) };
        if ret < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Sleeps until something is readable; gives the numbers. The only call that blocks.
    pub(crate) fn wait(&mut self) -> io::Result<Vec<u64>> {
        let (epoll, room) = (self.fd.as_raw_fd(), self.events.len() as i32);
        // SAFETY: the array has room for so many events.
        let got = unsafe { libc::epoll_wait(epoll, self.events.as_mut_ptr(), room, -1) };
        match usize::try_from(got) {
            Ok(got) => Ok(self.events[..got].iter().map(|event| event.u64).collect()),
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => Ok(Vec::new()),
                error => Err(error),
            },
        }
    }
}
