//! What stays on this side: no message leaves, and the peer notices only that a key is new or gone.

use super::{Head, Header, Message, Operation, sealed};
use crate::abi::{RKey, SendWr, opcode, send_flags};
use crate::completion;
use crate::context::SliceList;
use crate::refusal::PushError;

/// Takes a key of this side's own out of use, in the order of the send queue: what the peer asks for with
/// it from then on fails. The memory stays registered.
///
/// Devices do it for memory windows, and some for regions. The context owns no memory that is touched; it
/// only comes back.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "IBV_WR_LOCAL_INV")]
#[must_use = "an operation does nothing until it is pushed"]
pub struct Invalidate {
    head: Head,
}

impl Invalidate {
    /// Takes `key` out of use.
    #[inline(always)]
    pub const fn new(key: RKey) -> Self {
        Self { head: Head { opcode: opcode::LOCAL_INV, flags: 0, imm_data: key.to_raw() } }
    }

    options! {
        /// Asks for a completion of its own. Without it the request ends together with a later one.
        signaled => SIGNALED;
        /// Waits until the READs and atomics before it have landed (`IBV_SEND_FENCE`).
        after_reads => FENCE;
    }
}

impl sealed::Sealed for Invalidate {}
impl<C> sealed::Takes<C> for Invalidate {}

impl Header for Invalidate {
    const OPERATION: completion::Operation = completion::Operation::Local;
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

impl<C> Operation<C> for Invalidate {
    #[inline(always)]
    fn names(_: &C, _: &mut SliceList<'_>) {}
}
