//! What stays on this side: no message leaves, and the peer notices only that a key is new or gone.

use super::{Head, Header, Message, Operation, sealed};
use crate::abi::{BindMw, RKey, SendWr, opcode, send_flags};
use crate::completion;
use crate::context::SliceList;
use crate::refusal::PushError;
use crate::region::Domain;

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
    fn names(_: &mut C, _: &mut SliceList<'_>) {}
}

/// Opens a memory window: gives the peer a key of its own to a piece of a region, in the order of the send
/// queue. [`Invalidate`], or a message of the peer's with [`Send::invalidate`](super::Send::invalidate),
/// closes it again; a window that is open cannot be opened.
///
/// Windows come from the device: [`soft::Window`](crate::soft::Window), or the adapter's. The context owns
/// no memory that is touched; it only comes back.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "ibv_bind_mw")]
#[doc(alias = "IBV_WR_BIND_MW")]
#[must_use = "an operation does nothing until it is pushed"]
pub struct BindWindow {
    head: Head,
    bind: BindMw,
    domain: Domain,
}

impl BindWindow {
    /// A request made by hand.
    ///
    /// # Safety
    ///
    /// The window and the region that `bind` points to are of `domain`, and exist until the request has been
    /// submitted. The region is one that peers may reach, a [`SharedRegion`](crate::SharedRegion), and its
    /// memory stays allocated as long as the window is open (`ibv_bind_mw(3)`).
    pub const unsafe fn from_raw(bind: BindMw, domain: Domain) -> Self {
        Self { head: Head { opcode: opcode::BIND_MW, flags: 0, imm_data: 0 }, bind, domain }
    }

    /// The key that the window will have.
    pub const fn key(&self) -> RKey {
        self.bind.rkey
    }

    options! {
        /// Asks for a completion of its own. Without it the request ends together with a later one.
        signaled => SIGNALED;
        /// Waits until the READs and atomics before it have landed (`IBV_SEND_FENCE`).
        after_reads => FENCE;
    }
}

impl sealed::Sealed for BindWindow {}
impl<C> sealed::Takes<C> for BindWindow {}

impl Header for BindWindow {
    const OPERATION: completion::Operation = completion::Operation::Local;
    const READS: bool = false;
    const SINK: bool = false;

    #[inline(always)]
    fn header(&self) -> Head {
        self.head
    }

    #[inline(always)]
    fn check(&self, message: Message) -> Result<(), PushError> {
        let (given, queue) = (self.domain, message.queue.domain());
        if given != queue {
            return Err(PushError::WrongDomain { given, queue });
        }
        Ok(())
    }

    #[inline(always)]
    fn write_target(&self, request: &mut SendWr) {
        request.bind_mw = self.bind;
    }
}

impl<C> Operation<C> for BindWindow {
    #[inline(always)]
    fn names(_: &mut C, _: &mut SliceList<'_>) {}
}
