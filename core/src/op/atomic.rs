//! Fetch-and-add and compare-and-swap on eight bytes of the peer's.
//!
//! Both bring back the eight bytes as they were before. They land in the context's one buffer, which is
//! exactly eight bytes long: a [`Part`](crate::Part) of a block. They count as READs against the depth that
//! the connection has negotiated.

use super::{Head, Header, Message, Operation, sealed};
use crate::abi::{Access, AtomicTarget, SendWr, opcode, send_flags};
use crate::completion;
use crate::context::{RecvBuffers, SliceList};
use crate::refusal::PushError;
use crate::region::RemoteRegion;

/// Bytes that an atomic works on.
const LEN: u64 = 8;

/// Adds to eight bytes of the peer's memory, and brings back what they held before. The sum wraps.
///
/// ```
/// use nanoverbs_core::{Access, RKey, RemoteRegion, op};
///
/// let counters = RemoteRegion::new(0x1000, 64, RKey::from_raw(7), Access::REMOTE_ATOMIC)?;
/// let next = op::FetchAdd::new(counters.at(8, 8)?, 1).signaled();
/// # let _ = next;
/// # Ok::<(), nanoverbs_core::OutOfRegion>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[doc(alias = "IBV_WR_ATOMIC_FETCH_AND_ADD")]
#[must_use = "an operation does nothing until it is pushed"]
pub struct FetchAdd {
    head: Head,
    remote: RemoteRegion,
    add: u64,
}

impl FetchAdd {
    /// Adds `add` to the first eight bytes of `remote`, which start at a multiple of eight in the peer's
    /// address space.
    #[inline(always)]
    pub const fn new(remote: RemoteRegion, add: u64) -> Self {
        let head = Head { opcode: opcode::ATOMIC_FETCH_AND_ADD, flags: 0, imm_data: 0 };
        Self { head, remote, add }
    }

    options! {
        /// Asks for a completion of its own. Without it the request ends together with a later one.
        signaled => SIGNALED;
        /// Waits until the READs and atomics before it have landed (`IBV_SEND_FENCE`).
        after_reads => FENCE;
    }
}

/// Stores a value in eight bytes of the peer's memory if they hold another one, and brings back what they
/// held before: it was stored if and only if that is the expected value.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "IBV_WR_ATOMIC_CMP_AND_SWP")]
#[must_use = "an operation does nothing until it is pushed"]
pub struct CompareSwap {
    head: Head,
    remote: RemoteRegion,
    expected: u64,
    new: u64,
}

impl CompareSwap {
    /// Stores `new` in the first eight bytes of `remote`, which start at a multiple of eight in the peer's
    /// address space, if they hold `expected`.
    #[inline(always)]
    pub const fn new(remote: RemoteRegion, expected: u64, new: u64) -> Self {
        let head = Head { opcode: opcode::ATOMIC_CMP_AND_SWP, flags: 0, imm_data: 0 };
        Self { head, remote, expected, new }
    }

    options! {
        /// Asks for a completion of its own. Without it the request ends together with a later one.
        signaled => SIGNALED;
        /// Waits until the READs and atomics before it have landed (`IBV_SEND_FENCE`).
        after_reads => FENCE;
    }
}

#[inline(always)]
fn check(remote: &RemoteRegion, message: Message) -> Result<(), PushError> {
    let Message { pieces, total, .. } = message;
    if total != LEN || pieces != 1 {
        return Err(PushError::BadAtomicLength { total, pieces });
    }
    if remote.len() < LEN {
        return Err(PushError::RemoteTooShort { total, remote: remote.len() });
    }
    if !remote.addr().is_multiple_of(LEN) {
        return Err(PushError::Unaligned { remote_addr: remote.addr() });
    }
    if !remote.access().has(Access::REMOTE_ATOMIC) {
        let has = remote.access();
        return Err(PushError::RemoteAccess { needs: Access::REMOTE_ATOMIC, has });
    }
    Ok(())
}

macro_rules! atomic {
    ($Op:ident, $self:ident => ($compare_add:expr, $swap:expr)) => {
        impl sealed::Sealed for $Op {}
        impl<C: RecvBuffers> sealed::Takes<C> for $Op {}

        impl Header for $Op {
            const OPERATION: completion::Operation = completion::Operation::Atomic;
            const READS: bool = true;
            const SINK: bool = true;

            #[inline(always)]
            fn header(&self) -> Head {
                self.head
            }

            #[inline(always)]
            fn check(&self, message: Message) -> Result<(), PushError> {
                check(&self.remote, message)
            }

            #[inline(always)]
            fn write_target(&$self, request: &mut SendWr) {
                request.target.atomic = AtomicTarget {
                    remote_addr: $self.remote.addr(),
                    compare_add: $compare_add,
                    swap: $swap,
                    rkey: $self.remote.rkey(),
                };
            }
        }

        impl<C: RecvBuffers> Operation<C> for $Op {
            #[inline(always)]
            fn names(context: &mut C, list: &mut SliceList<'_>) {
                context.scatter_exact(list);
            }
        }
    };
}

atomic!(FetchAdd, self => (self.add, 0));
atomic!(CompareSwap, self => (self.expected, self.new));
