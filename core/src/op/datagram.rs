//! Datagrams: messages to any queue pair of the network, one packet long, with no promise that they arrive.

use super::{Head, Header, InlineOperation, Message, Operation, sealed};
use crate::abi::{QpNum, SendWr, UdTarget, opcode, send_flags};
use crate::completion;
use crate::context::{SendBuffers, SliceList};
use crate::refusal::PushError;
use crate::region::Domain;

/// Where datagrams go: a queue pair somewhere, the way to it, and its queue key.
///
/// The adapter makes peers, and [`soft::Device::peer`](crate::soft::Device::peer) does. One can be kept and
/// copied; it is of use as long as queue pairs of its protection domain exist.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "ibv_ah")]
pub struct Peer {
    handle: *mut (),
    number: QpNum,
    qkey: u32,
    domain: Domain,
}

// SAFETY: the handle is passed to the device and never followed here; devices take it on any thread.
unsafe impl Send for Peer {}
// SAFETY: as above.
unsafe impl Sync for Peer {}

impl Peer {
    /// The queue pair `number` with the key `qkey`, reached by way of `handle`.
    ///
    /// # Safety
    ///
    /// `handle` is an address handle of the protection domain that `domain` names, and stays one as long
    /// as any queue pair of that domain exists (`ibv_create_ah(3)`).
    pub const unsafe fn from_raw(
        handle: *mut (),
        number: QpNum,
        qkey: u32,
        domain: Domain,
    ) -> Self {
        Self { handle, number, qkey, domain }
    }

    /// The queue pair's number.
    pub const fn number(&self) -> QpNum {
        self.number
    }

    /// The queue key.
    pub const fn qkey(&self) -> u32 {
        self.qkey
    }

    /// Another queue pair at the same place.
    #[must_use]
    pub const fn at(self, number: QpNum, qkey: u32) -> Self {
        Self { number, qkey, ..self }
    }
}

/// A message to a [`Peer`], as long as one packet carries. A completion means that it has left, not that
/// it has arrived.
///
/// It goes through datagram queues only, and they take nothing else:
///
/// ```compile_fail,E0080
/// # use nanoverbs_core::{SendChain, op, soft::SendEnd};
/// type Chain<'c> = SendChain<'c, 'c, SendEnd<'c, 8>, (), 8, 8, 1>; // of a connected queue pair
/// let misplaced = |chain: &mut Chain<'_>, peer: op::Peer| {
///     chain.push(op::Datagram::new(peer), ()).unwrap();
/// };
/// # std::hint::black_box::<fn(&mut Chain<'_>, op::Peer)>(misplaced);
/// ```
#[derive(Clone, Copy, Debug)]
#[doc(alias = "rdma_post_ud_send")]
#[must_use = "an operation does nothing until it is pushed"]
pub struct Datagram {
    head: Head,
    peer: Peer,
}

impl Datagram {
    /// A message to `peer`.
    #[inline(always)]
    pub const fn new(peer: Peer) -> Self {
        Self { head: Head { opcode: opcode::SEND, flags: 0, imm_data: 0 }, peer }
    }

    /// Four bytes beside the message, in this machine's order.
    #[doc(alias = "IBV_WR_SEND_WITH_IMM")]
    #[inline(always)]
    pub const fn immediate(mut self, value: u32) -> Self {
        self.head.opcode = opcode::SEND_WITH_IMM;
        self.head.imm_data = value.to_be();
        self
    }

    options! {
        /// Asks for a completion of its own. Without it the request ends together with a later one.
        signaled => SIGNALED;
        /// Wakes a peer that waits for solicited messages only.
        solicited => SOLICITED;
    }
}

impl sealed::Sealed for Datagram {}
impl<C: SendBuffers> sealed::Takes<C> for Datagram {}
impl InlineOperation for Datagram {}

impl Header for Datagram {
    const OPERATION: completion::Operation = completion::Operation::Send;
    const READS: bool = false;
    const SINK: bool = false;
    const DATAGRAM: bool = true;

    #[inline(always)]
    fn header(&self) -> Head {
        self.head
    }

    #[inline(always)]
    fn check(&self, message: Message) -> Result<(), PushError> {
        let (given, queue) = (self.peer.domain, message.queue.domain());
        if given != queue {
            return Err(PushError::WrongDomain { given, queue });
        }
        Ok(())
    }

    #[inline(always)]
    fn write_target(&self, request: &mut SendWr) {
        request.target.ud = UdTarget {
            ah: self.peer.handle,
            remote_qpn: self.peer.number.to_raw(),
            remote_qkey: self.peer.qkey,
        };
    }
}

impl<C: SendBuffers> Operation<C> for Datagram {
    #[inline(always)]
    fn names(context: &mut C, list: &mut SliceList<'_>) {
        context.gather(list);
    }
}
