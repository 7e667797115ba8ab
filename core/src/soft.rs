//! A device made of software, for programs, examples and tests that have no other.
//!
//! A [`Device`] does what a network card does between queue pairs on itself: it takes work
//! requests, checks keys and bounds, moves bytes, keeps order, reports completions and flushes what
//! fails. It has no heap, no thread and no clock, and it behaves in the places where devices differ
//! as its [`Profile`] says; faults can be ordered through [`Control`].
//!
//! The ends of a queue pair ([`SendEnd`], [`RecvEnd`]) are for the threads that post, one at a
//! time; a [`CompletionQueue`] is for the thread that polls. Whoever polls drives the device: a
//! poll that finds nothing calls [`Device::progress`], which makes every copy, on the calling
//! thread, behind a lock that is tried and not waited for. A queue that was armed
//! ([`Completions::arm`](crate::Completions::arm)) raises one event, which any thread takes with
//! [`Device::take_event`]; to sleep until then is the program's own business. [`Device::remove`] takes the
//! device away, in the middle of everything.
//!
//! Invariant: every request that is taken gets one outcome, in the order of its queue: its
//! completion, or, when it succeeds unsignaled, that of a later one. Only a completion queue that
//! overruns and a queue pair that is destroyed lose some, as on any device.
//!
//! A message from one queue pair to another, without a line of unsafe code:
//!
//! ```
//! use nanoverbs_core::soft::{Device, QpConfig, QueuePair};
//! use nanoverbs_core::{BlockHeader, Place, Pool, PoolRoot, op};
//! use nanoverbs_core::{Completions, RecvConfig, RecvQueue, RecvSlots, RecvStaging};
//! use nanoverbs_core::{SendConfig, SendQueue, SendSlots, SendStaging};
//!
//! static DEVICE: Device<2, 16> = Device::new();
//! static MEMORY: Place<[u8; 4096]> = Place::new([0; 4096]);
//! # let headers = Box::leak(Box::new([const { BlockHeader::new() }; 16]));
//! # let root = Box::leak(Box::new(PoolRoot::new()));
//!
//! let domain = DEVICE.domain();
//! let region = DEVICE.register(domain, MEMORY.take().unwrap())?;
//! let mut pool = Pool::new(root, headers, region, 256)?;
//!
//! let queue = DEVICE.completion_queue(64)?;
//! let a = DEVICE.queue_pair(QpConfig::new(domain), &queue, &queue)?;
//! let b = DEVICE.queue_pair(QpConfig::new(domain), &queue, &queue)?;
//! a.control.connect(&b.control)?;
//! let mut completions: Completions<_> = Completions::new(queue, 64);
//!
//! let (mut slots, mut staging) = (SendSlots::<_, 16>::new(), SendStaging::<4, 1>::new());
//! let mut sends = SendQueue::new(a.send, &mut slots, SendConfig::new(domain))?;
//! sends.open();
//! let (mut slots, mut receiving) = (RecvSlots::<_, 16>::new(), RecvStaging::<4, 1>::new());
//! let mut receives = RecvQueue::new(b.recv, &mut slots, RecvConfig::new(domain))?;
//!
//! let mut link = receiving.link();
//! let mut chain = receives.reserve(&mut link, 1).unwrap();
//! chain.push(pool.allocate().unwrap()).unwrap();
//! chain.submit().unwrap();
//!
//! let mut block = pool.allocate().unwrap();
//! block[..5].copy_from_slice(b"hello");
//! block.set_len(5)?;
//! let mut link = staging.link();
//! let mut chain = sends.reserve(&mut link, 1).unwrap();
//! chain.push(op::Send::new().signaled(), block).unwrap();
//! chain.submit().unwrap();
//!
//! let arrived = loop {
//!     for completion in completions.poll()? {
//!         let _ = match completion.is_recv() {
//!             true => receives.retire(completion)?,
//!             false => sends.retire(completion)?,
//!         };
//!     }
//!     if let Some(ended) = receives.take() {
//!         break ended;
//!     }
//! };
//! assert_eq!(arrived.message(), Some(&b"hello"[..]));
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
pub use memory::{RegisterError, Window, WindowError};
pub use profile::{FailedFields, GrhFlag, Overrun, PostFault, Profile, Statuses};
pub use queue_pair::{Control, QueuePair, RecvEnd, SendEnd, SharedReceiveId, SharedReceiveQueue};

#[cfg(all(test, not(loom)))]
mod tests;
