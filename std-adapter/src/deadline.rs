//! When a blocking call gives up.
//!
//! Every call of this crate that may block takes a [`Deadline`]: an absolute time, so that a call
//! that wakes early and goes on waiting never starts its patience anew. Any thread.
//!
//! ```
//! use std::time::Duration;
//! use nanoverbs::Deadline;
//!
//! let deadline = Deadline::after(Duration::from_secs(5));
//! assert!(!deadline.has_passed());
//! ```

use std::time::{Duration, Instant};

/// An absolute time after which a blocking call gives up, or the promise that it never does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// Never: the call blocks until there is something to report.
    pub const NEVER: Self = Self(None);

    /// `patience` from now; never, when that is past the end of time.
    #[must_use]
    pub fn after(patience: Duration) -> Self {
        Self(Instant::now().checked_add(patience))
    }

    /// At `instant`.
    #[must_use]
    pub const fn at(instant: Instant) -> Self {
        Self(Some(instant))
    }

    /// Whether it lies in the past.
    #[must_use]
    pub fn has_passed(self) -> bool {
        self.0.is_some_and(|at| Instant::now() >= at)
    }

    /// The one of the two that comes first.
    #[must_use]
    pub fn earlier(self, other: Self) -> Self {
        match (self.0, other.0) {
            (Some(a), Some(b)) => Self(Some(a.min(b))),
            (a, b) => Self(a.or(b)),
        }
    }

    /// The time that is left, zero when it has passed, `None` when it never does.
    #[must_use]
    pub fn remaining(self) -> Option<Duration> {
        self.0.map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// The time that is left as `ppoll(2)` wants it.
    pub(crate) fn timespec(self) -> Option<libc::timespec> {
        self.remaining().map(|left| libc::timespec {
            tv_sec: libc::time_t::try_from(left.as_secs()).unwrap_or(libc::time_t::MAX),
            // Below a thousand million, so it fits.
            tv_nsec: left.subsec_nanos() as libc::c_long,
        })
    }

    /// The time that is left in whole milliseconds, rounded up, so that a wait never ends early;
    /// −1 for never, as `poll(2)` wants it.
    #[cfg(feature = "librdmacm")]
    pub(crate) fn millis(self) -> i32 {
        let Some(left) = self.remaining() else { return -1 };
        let millis = left.as_nanos().div_ceil(1_000_000);
        i32::try_from(millis).unwrap_or(i32::MAX)
    }
}

impl From<Instant> for Deadline {
    fn from(instant: Instant) -> Self {
        Self::at(instant)
    }
}

impl From<Duration> for Deadline {
    /// `patience` from now.
    fn from(patience: Duration) -> Self {
        Self::after(patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_passed_deadline_leaves_nothing() {
        let deadline = Deadline::after(Duration::ZERO);
        assert!(deadline.has_passed());
        assert_eq!(deadline.remaining(), Some(Duration::ZERO));
    }

    #[test]
    fn never_does_not_pass() {
        assert!(!Deadline::NEVER.has_passed());
        assert_eq!(Deadline::NEVER.remaining(), None);
        assert_eq!(Deadline::after(Duration::MAX), Deadline::NEVER);
    }

    #[cfg(feature = "librdmacm")]
    #[test]
    fn a_wait_is_rounded_up_and_never_is_minus_one() {
        assert_eq!(Deadline::NEVER.millis(), -1);
        assert_eq!(Deadline::after(Duration::ZERO).millis(), 0);
        assert!(Deadline::after(Duration::from_micros(100)).millis() <= 1);
        assert_eq!(Deadline::after(Duration::from_secs(1 << 40)).millis(), i32::MAX);
    }
}
