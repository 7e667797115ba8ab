//! Why a memory window cannot be opened.

use std::fmt;

use nanoverbs_core::{Access, OutOfRegion};

/// A memory window cannot be opened so.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum WindowError {
    /// The memory is of another protection domain, or of another device.
    WrongDomain,
    /// The piece does not lie inside the memory.
    OutOfRegion(OutOfRegion),
    /// The memory was registered without [`Rights::WINDOWS`](super::Rights::WINDOWS).
    NoWindows {
        /// The rights that it has.
        has: Access,
    },
}

impl WindowError {
    /// Whether memory with these rights can have such a window. This side may always write its shared
    /// memory, so peers may be allowed to.
    pub(crate) fn check(has: Access) -> Result<(), Self> {
        if has.has(Access::MW_BIND) { Ok(()) } else { Err(Self::NoWindows { has }) }
    }
}

impl fmt::Display for WindowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongDomain => f.write_str(
                "window and memory belong to different protection domains; share the memory from the \
                 endpoint that opens the window",
            ),
            Self::OutOfRegion(error) => error.fmt(f),
            Self::NoWindows { has } => write!(
                f,
                "the memory was registered with rights {:#x}, without Rights::WINDOWS",
                has.bits()
            ),
        }
    }
}

impl std::error::Error for WindowError {}

impl From<OutOfRegion> for WindowError {
    fn from(error: OutOfRegion) -> Self {
        Self::OutOfRegion(error)
    }
}
