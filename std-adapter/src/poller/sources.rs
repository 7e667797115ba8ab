//! What ends the sleep of a thread.

use std::fmt;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use crate::Deadline;
use crate::sys::{self, CallError};

/// What ends a sleep: readable descriptors, and a time.
///
/// Made on the stack of the thread that is about to sleep; allocates nothing.
///
/// ```
/// use nanoverbs::poller::Sources;
/// use std::os::fd::AsFd;
/// use std::time::Duration;
///
/// let (reader, writer) = std::io::pipe()?;
/// let mut sources = Sources::new();
/// sources.add(reader.as_fd());
/// sources.at_most(Duration::from_millis(1));
/// sources.sleep()?; // a millisecond: nobody writes
/// # drop(writer);
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "it is for sleeping"]
pub struct Sources<'s> {
    entries: [libc::pollfd; Sources::MOST],
    count: usize,
    deadline: Deadline,
    fds: PhantomData<BorrowedFd<'s>>,
}

impl<'s> Sources<'s> {
    /// Descriptors at most. Who has more sleeps on one `epoll(7)` descriptor that has them all.
    pub const MOST: usize = 32;

    /// Nothing: the sleep would be without end.
    pub const fn new() -> Self {
        Self {
            entries: [sys::poll::entry(-1); Self::MOST],
            count: 0,
            deadline: Deadline::NEVER,
            fds: PhantomData,
        }
    }

    /// The sleep ends when `fd` is readable.
    pub fn add(&mut self, fd: BorrowedFd<'s>) {
        if let Some(entry) = self.entries.get_mut(self.count) {
            *entry = sys::poll::entry(fd.as_raw_fd());
        }
        // One too many is noticed when the sleep begins.
        self.count = self.count.saturating_add(1);
    }

    /// The sleep ends at `deadline`, if nothing ends it earlier.
    pub fn until(&mut self, deadline: impl Into<Deadline>) {
        self.deadline = self.deadline.earlier(deadline.into());
    }

    /// The sleep lasts no longer than this from now.
    pub fn at_most(&mut self, longest: Duration) {
        self.until(longest);
    }

    /// Sleeps. A signal does not end it. Consumes nothing of what is readable.
    ///
    /// # Errors
    ///
    /// `E2BIG` when there are more than [`Sources::MOST`] descriptors, and what the kernel says.
    pub fn sleep(&mut self) -> Result<(), CallError> {
        match self.entries.get_mut(..self.count) {
            Some(entries) => sys::poll::wait_entries(entries, self.deadline),
            None => Err(CallError::new("ppoll", libc::E2BIG)),
        }
    }
}

impl Default for Sources<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Sources<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources")
            .field("descriptors", &self.count)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}
