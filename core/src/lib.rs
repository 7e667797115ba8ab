//! Preallocated RDMA work requests and completion bookkeeping.
//!
//! `no_std`, no allocation; the hot path makes no system call of its own, takes no lock and has no
//! panic.
//!
//! Programs can be tested with loom through this crate, software device included: see [`guide`].
#![no_std]
#![warn(clippy::std_instead_of_core, clippy::alloc_instead_of_core)]
#![deny(unsafe_code)]

pub mod abi;
pub use abi::{Access, LKey, QpNum, RKey, WcStatus};

#[expect(unsafe_code, reason = "registered memory is addresses and promises")]
mod region;
pub use region::{Domain, OutOfRegion, Region, Registration, RemoteRegion, SharedRegion, Slice};

#[expect(unsafe_code, reason = "the buffer traits are promises to a device")]
mod context;
pub use context::{RecvBuffers, SendBuffers, SliceList, Tagged};

mod arrived;
pub use arrived::Arrived;

#[expect(unsafe_code, reason = "a port's promises free buffers")]
pub mod port;

#[expect(unsafe_code, reason = "blocks are pointers to their headers")]
mod pool;
pub use pool::{Block, BlockHeader, Pool, PoolError, PoolRoot, StillOut};

#[expect(unsafe_code, reason = "a part is a view of a block's memory")]
mod part;
pub use part::Part;

#[expect(unsafe_code, reason = "a datagram is a view of a block's memory")]
mod datagram;
pub use datagram::Datagram;

#[expect(unsafe_code, reason = "its owner keeps the memory that a device follows")]
mod shared_slice;
pub use shared_slice::SharedSlice;

#[cfg_attr(not(loom), expect(unsafe_code, reason = "a word of memory that a peer writes"))]
mod polled_flag;
#[cfg(not(loom))]
pub use polled_flag::FlagError;
pub use polled_flag::{InOrder, PolledFlag};

#[expect(unsafe_code, reason = "linked arrays are reached through pointers")]
mod staging;
pub use staging::{RecvLink, RecvStaging, SendLink, SendStaging};

pub mod op;

#[expect(unsafe_code, reason = "contexts rest in uninitialised slots while a device has them")]
mod send;
pub use send::{SendChain, SendConfig, SendQueue, SendSlots};

#[expect(unsafe_code, reason = "contexts rest in uninitialised slots while a device has them")]
mod recv;
pub use recv::{RecvChain, RecvConfig, RecvQueue, RecvSlots};

#[expect(unsafe_code, reason = "contexts rest in uninitialised slots while a device has them")]
mod shared;
pub use shared::{SharedEnded, SharedRecvChain, SharedRecvQueue, SharedRecvSlots};

mod refusal;
pub use refusal::{Cause, ConfigError, LimitError, PushError, Rejected, ReserveError, SubmitError};

#[expect(unsafe_code, reason = "a port's promises bound what was polled")]
mod completion;
pub use completion::{
    Batch, Completion, Completions, CqTooSmall, Ended, Failure, Foreign, Operation, Outcome,
    PollError, Success,
};

mod arm;
pub use arm::{ArmError, Armed};

#[expect(unsafe_code, reason = "values cross threads through uninitialised slots")]
mod ring;
pub use ring::{Consumer, Drain, Full, Grant, Producer, Ring};

mod doorbell;
pub use doorbell::{Doorbell, Nap};

mod stop;
pub use stop::Stop;

mod group;
pub use group::{Group, JoinError, Joined, Member, RecvSeat, Route, SendSeat, Turns};

mod counters;
pub use counters::{Counters, Reading};

mod recorder;
pub use recorder::Recorder;

#[expect(unsafe_code, reason = "a device follows the pointers that it was posted")]
pub mod soft;

#[expect(unsafe_code, reason = "reads the halves of an id apart")]
mod id;
#[expect(unsafe_code, reason = "reaches a slot by its sequence")]
mod slot;

#[expect(unsafe_code, reason = "copies to and from memory that a peer may touch")]
mod shared_bytes;

#[expect(unsafe_code, reason = "hands the content of a static out once")]
mod place;
pub use place::Place;

pub mod guide;

mod leak;
pub use leak::leaked_contexts;

#[cfg(doctest)]
mod misuse;

mod sync;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
