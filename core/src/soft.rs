//! A device made of software, for programs, examples and tests that have no other.
//!
//! A [`Device`] does what a network card does between queue pairs on itself: it takes work requests, checks keys
//! and bounds, moves bytes, keeps order, reports completions and flushes what fails. It has no
//! heap, no thread and no clock, and it behaves in the places where devices differ as its
//! [`Profile`] says; faults can be ordered through [`Control`].
//!
//! The ends of a queue pair ([`SendEnd`], [`RecvEnd`]) are for the threads that post, one at a
//! time; a [`CompletionQueue`] is for the thread that polls. Whoever polls drives the device: a
//! poll that finds nothing calls [`Device::progress`], which makes every copy, on the calling
//! thread, behind a lock that is tried and not waited for.
//!
//! Invariant: every request that is taken gets one outcome, in the order of its queue: its
//! completion, or, when it succeeds unsignaled, that of a later one. Only a completion queue that overruns
//! and a queue pair that is destroyed lose some, as on any device.
//!
//! ```
//! use nanoverbs_core::soft::{Device, QpConfig, State};
//!
//! static DEVICE: Device<2, 64> = Device::new();
//!
//! let domain = DEVICE.domain();
//! let (sends, receives) = (DEVICE.completion_queue(64)?, DEVICE.completion_queue(64)?);
//! let a = DEVICE.queue_pair(QpConfig::new(domain), &sends, &receives)?;
//! let b = DEVICE.queue_pair(QpConfig::new(domain), &sends, &receives)?;
//! a.control.connect(&b.control)?;
//! assert_eq!(a.control.state(), State::ReadyToSend);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod completion;
mod config;
mod copy;
mod device;
mod engine;
mod memory;
mod profile;
mod queue_pair;
mod request;
mod ring;

pub use completion::{CompletionQueue, CompletionQueueError, CqId};
pub use config::{Caps, ControlError, QpConfig, QueuePairError, State};
pub use device::Device;
pub use memory::RegisterError;
pub use profile::{FailedFields, GrhFlag, Overrun, PostFault, Profile, Statuses};
pub use queue_pair::{Control, QueuePair, RecvEnd, SendEnd, SharedReceiveId, SharedReceiveQueue};

#[cfg(all(test, not(loom)))]
mod tests;
