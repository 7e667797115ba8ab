//! Datagrams: an address is a queue pair's number and its queue key, and nothing is promised.
//!
//! Invariant: the sender's request ends well whatever becomes of the datagram, unless its own
//! memory is wrong.

use core::ptr::NonNull;

use super::super::config::State;
use super::super::copy::{self, Pieces};
use super::super::memory::Piece;
use super::super::profile::Statuses;
use super::super::request::SendRequest;
use super::{Arrival, Driver, SlotId, Step, status};
use crate::abi::{opcode, wc_flags, wc_opcode};

/// What precedes a datagram in the receiver's memory. The first half means nothing, the second is
/// where an IPv4 header would be.
const HEADER: [u8; 40] = {
    let mut header = [0xa5; 40];
    header[20] = 0x45;
    header
};

/// The queue keys with this bit stand for the sender's own.
const OWN_QKEY: u32 = 1 << 31;

impl<const QPS: usize, const DEPTH: usize, const SGES: usize, const INLINE: usize>
    Driver<'_, QPS, DEPTH, SGES, INLINE>
{
    pub(super) fn carry_out_datagram(
        &mut self,
        id: SlotId,
        request: &SendRequest<SGES, INLINE>,
    ) -> Step {
        if !matches!(request.opcode, opcode::SEND | opcode::SEND_WITH_IMM) {
            return Step::Failed(status::LOCAL_QP_OPERATION);
        }
        let qp = *self.engine.qp(id);
        let mut pieces = Pieces::new();
        if !self.own_pieces(qp.domain, request, &mut pieces) {
            return Step::Failed(self.say(status::LOCAL_PROTECTION, status::LOCAL_QP_OPERATION));
        }
        // SAFETY: a datagram has it.
        let target = unsafe { request.target().ud };
        let Some(to) = self.engine.find(target.remote_qpn) else {
            return Step::Done;
        };
        let other = *self.engine.qp(to);
        let qkey = if target.remote_qkey & OWN_QKEY != 0 { qp.qkey } else { target.remote_qkey };
        let is_lost = !other.is_datagram
            || other.state != State::ReadyToSend
            || other.qkey != qkey
            || other.is_cut
            || qp.is_cut
            || request.length > qp.mtu.min(other.mtu);
        if is_lost {
            return Step::Done;
        }
        let Some(received) = self.next_receive(to) else {
            return Step::Done;
        };
        let bytes = u64::from(request.length).wrapping_add(HEADER.len() as u64);
        let mut arrival = Arrival {
            opcode: wc_opcode::RECV,
            byte_len: bytes as u32,
            src_qp: qp.number,
            is_solicited: request.is_solicited(),
            ..Default::default()
        };
        let mut target = Pieces::new();
        let is_its_own = self.look_up(other.domain, received.request.list(), true, &mut target);
        let fits = bytes <= received.request.capacity;
        if is_its_own && !fits && self.device.rules().statuses == Statuses::Specification {
            return Step::Done;
        }
        if !(is_its_own && fits) {
            arrival.status = self.say(status::LOCAL_PROTECTION, status::LOCAL_QP_OPERATION);
            self.finish_recv(to, &received, arrival);
            self.fail(to);
            return Step::Done;
        }
        let header =
            Piece { addr: NonNull::from(&HEADER).cast(), len: HEADER.len(), is_shared: false };
        // SAFETY: the header is only read; all else was looked up under this lock, and the posts
        // promise it to the device.
        unsafe {
            copy::copy(&[header], target.as_slice());
            target.skip(HEADER.len());
            copy::copy(pieces.as_slice(), target.as_slice());
        }
        if request.opcode == opcode::SEND_WITH_IMM {
            // SAFETY: this form of SEND has it.
            arrival.imm = unsafe { request.imm() };
            arrival.flags = wc_flags::WITH_IMM;
        }
        self.finish_recv(to, &received, arrival);
        Step::Done
    }
}
