//! Why a device cannot be had, or used.

use std::fmt;

use crate::sys::CallError;

/// A device cannot be opened.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum OpenError {
    /// There is none of that name.
    NoSuchDevice {
        /// The name.
        name: String,
    },
    /// The device says no.
    Call(CallError),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchDevice { name } => {
                write!(
                    f,
                    "there is no RDMA device called {name}; `rdma link` shows those there are"
                )
            }
            Self::Call(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for OpenError {}

/// This process is a child of the one that opened the device. Its handles still reach the parent's
/// queues, so they refuse; open the device anew.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WrongProcess;

impl fmt::Display for WrongProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the device was opened before this process was forked; open it in this process")
    }
}

impl std::error::Error for WrongProcess {}
