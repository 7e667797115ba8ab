//! The operations of a send queue, one type each.
//!
//! A value of one of these types, together with a context that owns the buffers, is what
//! [`crate::SendChain::push`] takes. Options are consuming `const fn`s:
//!
//! ```
//! use nanoverbs_core::op;
//!
//! let last = op::Send::new().signaled().solicited();
//! let tagged = op::Send::new().immediate(0x89ab_cdef);
//! # let _ = (last, tagged);
//! ```

use crate::abi::{Access, RKey, RdmaTarget, SendWr, opcode, send_flags};
use crate::completion;
use crate::context::{RecvBuffers, SendBuffers, SliceList};
use crate::refusal::PushError;
use crate::region::{RemoteRegion, Tag, Wanted};

mod sealed {
    #[expect(
        unnameable_types,
        reason = "the accounting rests on what operations say of themselves"
    )]
    pub trait Sealed {}

    /// Which contexts an operation takes. Sealed as well: without it a program could implement
    /// `Operation<Its> for Send`, in safe code, and name memory that its context does not own.
    #[expect(
        unnameable_types,
        reason = "the accounting rests on what operations say of themselves"
    )]
    pub trait Takes<C> {}
}

/// An operation that can be pushed with a context of type `C`.
///
/// SEND and WRITE take contexts that own memory to read, READ and atomics take those that own memory to
/// write, and what stays on this side takes any.
pub trait Operation<C>: Header + sealed::Takes<C> {
    #[doc(hidden)]
    fn names(context: &mut C, list: &mut SliceList<'_>);
}

/// What every operation says of itself. Sealed: the accounting rests on it.
pub trait Header: sealed::Sealed {
    #[doc(hidden)]
    const OPERATION: completion::Operation;
    #[doc(hidden)]
    const READS: bool;
    #[doc(hidden)]
    const SINK: bool;
    #[doc(hidden)]
    const DATAGRAM: bool = false;
    #[doc(hidden)]
    fn header(&self) -> Head;
    #[doc(hidden)]
    fn check(&self, message: Message) -> Result<(), PushError>;
    #[doc(hidden)]
    fn write_target(&self, request: &mut SendWr);
}

/// What an operation is checked against: the buffers that it was pushed with, and the queue.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Message {
    pub(crate) pieces: u32,
    pub(crate) total: u64,
    pub(crate) queue: Tag,
}

#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Head {
    pub(crate) opcode: u32,
    pub(crate) flags: u32,
    pub(crate) imm_data: u32,
}

#[inline(always)]
pub(crate) const fn wanted<O: Header>() -> Wanted {
    if O::SINK { Wanted::SINK } else { Wanted::SOURCE }
}

/// An operation whose payload may travel inline.
pub trait InlineOperation: Header {}

macro_rules! options {
    ($($(#[$meta:meta])* $name:ident => $flag:ident;)*) => {$(
        $(#[$meta])*
        pub const fn $name(mut self) -> Self {
            self.head.flags |= send_flags::$flag;
            self
        }
    )*};
}

mod atomic;
#[expect(unsafe_code, reason = "who makes a peer promises that its address handle lives")]
mod datagram;
#[expect(unsafe_code, reason = "who opens a window promises that its memory lives")]
mod local;

pub use atomic::{CompareSwap, FetchAdd};
pub use datagram::{Datagram, Peer};
pub use local::{BindWindow, Invalidate};

/// SEND: the message goes into the peer's next receive.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "IBV_WR_SEND")]
#[doc(alias = "rdma_post_send")]
#[doc(alias = "rdma_post_sendv")]
#[must_use = "an operation does nothing until it is pushed"]
pub struct Send {
    head: Head,
}

impl Send {
    /// A plain SEND.
    #[inline(always)]
    pub const fn new() -> Self {
        Self { head: Head { opcode: opcode::SEND, flags: 0, imm_data: 0 } }
    }

    /// Four bytes beside the message, in this machine's order.
    #[doc(alias = "IBV_WR_SEND_WITH_IMM")]
    #[inline(always)]
    pub const fn immediate(mut self, value: u32) -> Self {
        self.head.opcode = opcode::SEND_WITH_IMM;
        self.head.imm_data = value.to_be();
        self
    }

    /// Takes `key` of the peer's out of use when the message arrives: a memory window of the peer's, or a
    /// region. Takes the place of an immediate. [`Success::invalidated`](crate::Success::invalidated) tells
    /// the peer; a key that is none breaks the connection.
    ///
    /// Keys of either side are types of their own, so the local one is not taken by mistake:
    ///
    /// ```compile_fail,E0308
    /// # use nanoverbs_core::{LKey, op};
    /// let local = LKey::from_raw(1);
    /// let _ = op::Send::new().invalidate(local);
    /// ```
    #[doc(alias = "IBV_WR_SEND_WITH_INV")]
    #[inline(always)]
    pub const fn invalidate(mut self, key: RKey) -> Self {
        self.head.opcode = opcode::SEND_WITH_INV;
        self.head.imm_data = key.to_raw();
        self
    }

    options! {
        /// Asks for a completion of its own. Without it the request ends together with a later one.
        signaled => SIGNALED;
        /// Wakes a peer that waits for solicited messages only.
        solicited => SOLICITED;
        /// Waits until the READs and atomics before it have landed (`IBV_SEND_FENCE`).
        after_reads => FENCE;
    }
}

impl Default for Send {
    fn default() -> Self {
        Self::new()
    }
}

/// RDMA WRITE: the message goes into the peer's memory, and the peer's program does not notice.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "IBV_WR_RDMA_WRITE")]
#[doc(alias = "rdma_post_write")]
#[doc(alias = "rdma_post_writev")]
#[must_use = "an operation does nothing until it is pushed"]
pub struct Write {
    head: Head,
    remote: RemoteRegion,
}

impl Write {
    /// A WRITE to the start of `remote`; the message may be shorter than it.
    #[inline(always)]
    pub const fn new(remote: RemoteRegion) -> Self {
        Self { head: Head { opcode: opcode::RDMA_WRITE, flags: 0, imm_data: 0 }, remote }
    }

    /// Four bytes, in this machine's order, that end a receive at the peer when the message has
    /// landed. The peer must have one posted; 0 bytes long is enough.
    #[doc(alias = "IBV_WR_RDMA_WRITE_WITH_IMM")]
    #[inline(always)]
    pub const fn immediate(mut self, value: u32) -> Self {
        self.head.opcode = opcode::RDMA_WRITE_WITH_IMM;
        self.head.imm_data = value.to_be();
        self
    }

    options! {
        /// Asks for a completion of its own. Without it the request ends together with a later one.
        signaled => SIGNALED;
        /// Wakes a peer that waits for solicited messages only; with an immediate.
        solicited => SOLICITED;
        /// Waits until the READs and atomics before it have landed (`IBV_SEND_FENCE`).
        after_reads => FENCE;
    }
}

/// RDMA READ: the peer's memory comes into the context's buffers, and the peer's program does not
/// notice.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "IBV_WR_RDMA_READ")]
#[doc(alias = "rdma_post_read")]
#[doc(alias = "rdma_post_readv")]
#[must_use = "an operation does nothing until it is pushed"]
pub struct Read {
    head: Head,
    remote: RemoteRegion,
}

impl Read {
    /// A READ from the start of `remote`, as long as the context's buffers together: a
    /// [`Block`](crate::Block) counts as many bytes as it was set to
    /// ([`Block::set_len`](crate::Block::set_len)), all of it if it never was.
    #[inline(always)]
    pub const fn new(remote: RemoteRegion) -> Self {
        Self { head: Head { opcode: opcode::RDMA_READ, flags: 0, imm_data: 0 }, remote }
    }

    options! {
        /// Asks for a completion of its own. Without it the request ends together with a later one.
        signaled => SIGNALED;
        /// Waits until the READs and atomics before it have landed (`IBV_SEND_FENCE`).
        after_reads => FENCE;
    }
}

impl sealed::Sealed for Send {}
impl sealed::Sealed for Write {}
impl sealed::Sealed for Read {}
impl InlineOperation for Send {}
impl InlineOperation for Write {}

impl Header for Send {
    const OPERATION: completion::Operation = completion::Operation::Send;
    const READS: bool = false;
    const SINK: bool = false;

    #[inline(always)]
    fn header(&self) -> Head {
        self.head
    }

    #[inline(always)]
    fn check(&self, _: Message) -> Result<(), PushError> {
        Ok(())
    }

    #[inline(always)]
    fn write_target(&self, _: &mut SendWr) {}
}

macro_rules! one_sided {
    ($Op:ident, $READS:literal, $right:ident) => {
        impl Header for $Op {
            const OPERATION: completion::Operation = completion::Operation::$Op;
            const READS: bool = $READS;
            const SINK: bool = $READS;

            #[inline(always)]
            fn header(&self) -> Head {
                self.head
            }

            #[inline(always)]
            fn check(&self, Message { total, .. }: Message) -> Result<(), PushError> {
                if total > self.remote.len() {
                    return Err(PushError::RemoteTooShort { total, remote: self.remote.len() });
                }
                if !self.remote.access().has(Access::$right) {
                    let has = self.remote.access();
                    return Err(PushError::RemoteAccess { needs: Access::$right, has });
                }
                Ok(())
            }

            #[inline(always)]
            fn write_target(&self, request: &mut SendWr) {
                let (remote_addr, rkey) = (self.remote.addr(), self.remote.rkey());
                request.target.rdma = RdmaTarget::new(remote_addr, rkey);
            }
        }
    };
}

one_sided!(Write, false, REMOTE_WRITE);
one_sided!(Read, true, REMOTE_READ);

impl<C: SendBuffers> sealed::Takes<C> for Send {}
impl<C: SendBuffers> sealed::Takes<C> for Write {}
impl<C: RecvBuffers> sealed::Takes<C> for Read {}

impl<C: SendBuffers> Operation<C> for Send {
    #[inline(always)]
    fn names(context: &mut C, list: &mut SliceList<'_>) {
        context.gather(list);
    }
}

impl<C: SendBuffers> Operation<C> for Write {
    #[inline(always)]
    fn names(context: &mut C, list: &mut SliceList<'_>) {
        context.gather(list);
    }
}

impl<C: RecvBuffers> Operation<C> for Read {
    #[inline(always)]
    fn names(context: &mut C, list: &mut SliceList<'_>) {
        context.scatter_exact(list);
    }
}
