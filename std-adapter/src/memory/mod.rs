//! Memory that a device may use: whole pages, owned by this crate.
//!
//! [`Pages`] are mapped memory, with no device involved. Registered in a `ProtectionDomain` they
//! become `LocalMemory`, which only this side's own requests reach and pools are carved out of, or
//! `SharedMemory`, which a peer may read or write, as far as its [`Rights`] go. (Registering needs
//! the feature `verbs` or `declared`.)
//!
//! Registering costs system calls and pins memory: do it at start-up. Any thread.
//!
//! Invariant: pages stay mapped and registered as long as a region made of them exists.

mod pages;
pub use pages::{Pages, PagesError, PagesOptions};
#[cfg(feature = "librdmacm")]
mod registered;
#[cfg(feature = "librdmacm")]
pub use registered::{
    LocalMemory, RegisterCause, RegisterError, SharedMemory, release, release_shared,
};
mod rights;
pub use rights::Rights;
#[cfg(feature = "librdmacm")]
mod window;
#[cfg(feature = "librdmacm")]
pub use window::MemoryWindow;
mod window_error;
pub use window_error::WindowError;

/// A piece of shared memory as the buffer of a request, which keeps the memory registered: the source of
/// a SEND or WRITE, the sink of a READ or an atomic. From [`Shared::buffer`](crate::endpoint::Shared::buffer) or
/// `SharedMemory::buffer`.
pub type SharedBuffer = nanoverbs_core::SharedSlice<Keeper>;

/// What keeps memory registered for a [`SharedBuffer`].
pub type Keeper = std::sync::Arc<dyn Send + Sync>;

#[cfg(test)]
mod tests;
