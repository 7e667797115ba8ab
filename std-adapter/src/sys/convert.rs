//! From what C returns to what Rust returns: one function for each of the four conventions.
//!
//! Nobody else reads `errno`. Providers do not agree on signs (some return −12, some −1 with
//! `errno` set, some 12), so every number goes through [`normal`] first.

use std::ffi::c_int;
use std::fmt;
use std::io;
#[cfg(feature = "librdmacm")]
use std::ptr::NonNull;

/// A call into C that failed: which one, and why.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CallError {
    call: &'static str,
    errno: i32,
}

impl CallError {
    pub(crate) const fn new(call: &'static str, errno: i32) -> Self {
        Self { call, errno }
    }

    /// The name of the C function.
    pub const fn call(&self) -> &'static str {
        self.call
    }

    /// The error number, positive, as in `errno(3)`.
    pub const fn errno(&self) -> i32 {
        self.errno
    }

    /// What would help, where that is known.
    fn hint(&self) -> Option<&'static str> {
        match (self.call, self.errno) {
            ("rdma_create_event_channel", libc::ENODEV | libc::ENOENT | libc::ENXIO) => {
                Some("is the kernel module rdma_ucm loaded, and does `rdma link` show a device?")
            }
            ("rdma_create_event_channel" | "ibv_open_device", libc::EACCES | libc::EPERM) => {
                Some("may this user open the files in /dev/infiniband?")
            }
            ("ibv_reg_mr" | "ibv_create_cq" | "rdma_create_qp" | "mlock", libc::ENOMEM) => {
                Some("raise the limit of locked memory (ulimit -l), or ask for less")
            }
            (_, libc::EMFILE) => Some("raise the limit of open files (ulimit -n)"),
            _ => None,
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed: {}", self.call, io::Error::from_raw_os_error(self.errno))?;
        match self.hint() {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for CallError {}

impl From<CallError> for io::Error {
    fn from(error: CallError) -> Self {
        Self::from_raw_os_error(error.errno)
    }
}

/// The calling thread's `errno`, which a failed call has set; `EIO` when it has not.
pub(crate) fn errno() -> i32 {
    match io::Error::last_os_error().raw_os_error() {
        Some(errno) if errno != 0 => errno,
        _ => libc::EIO,
    }
}

/// The error number that a return value stands for: itself, its negative, or `errno` for −1.
#[cfg(feature = "librdmacm")]
#[cold]
pub(crate) fn normal(ret: c_int) -> i32 {
    match ret {
        -1 => errno(),
        // `i32::MIN` has no negative; it is no error number either.
        ret => ret.checked_abs().unwrap_or(libc::EIO),
    }
}

/// `0`, or the error number itself: `ibv_modify_qp`, `ibv_destroy_cq`, `ibv_req_notify_cq`.
#[cfg(feature = "librdmacm")]
pub(crate) fn zero_or_errno(call: &'static str, ret: c_int) -> Result<(), CallError> {
    match ret {
        0 => Ok(()),
        ret => Err(CallError::new(call, normal(ret))),
    }
}

/// A count, or a negative number: `ibv_poll_cq`, `ppoll`.
pub(crate) fn count(call: &'static str, ret: c_int) -> Result<u32, CallError> {
    u32::try_from(ret).map_err(|_| match ret {
        -1 => CallError::new(call, errno()),
        ret => CallError::new(call, ret.checked_abs().unwrap_or(libc::EIO)),
    })
}

/// `0`, or `-1` with `errno` set: every `rdma_*` call.
pub(crate) fn minus_one(call: &'static str, ret: c_int) -> Result<(), CallError> {
    match ret {
        0 => Ok(()),
        -1 => Err(CallError::new(call, errno())),
        ret => Err(CallError::new(call, ret.checked_abs().unwrap_or(libc::EIO))),
    }
}

/// A pointer, or null with `errno` set: `ibv_reg_mr`, `rdma_create_event_channel`.
#[cfg(feature = "librdmacm")]
pub(crate) fn non_null<T>(call: &'static str, ret: *mut T) -> Result<NonNull<T>, CallError> {
    NonNull::new(ret).ok_or_else(|| CallError::new(call, errno()))
}
