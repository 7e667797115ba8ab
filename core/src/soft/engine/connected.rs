//! Requests between connected queue pairs: messages, READ, WRITE, atomics.
//!
//! Both sides of a request are carried out in one step, under the lock: first the requester checks
//! its own memory, then the peer is asked, then the bytes move.

use core::ptr::NonNull;

use super::super::config::State;
use super::super::copy::{self, Pieces};
use super::super::memory::{Opening, Piece};
use super::super::request::{MAX_MESSAGE, SendRequest};
use super::{Arrival, Driver, SlotId, Step, is_answered, status};
use crate::abi::{Access, RKey, Sge, opcode, wc_flags, wc_opcode};
use crate::shared_bytes;

impl<const QPS: usize, const DEPTH: usize, const SGES: usize, const INLINE: usize>
    Driver<'_, QPS, DEPTH, SGES, INLINE>
{
    #[inline]
    pub(super) fn carry_out_connected(
        &mut self,
        id: SlotId,
        request: &SendRequest<SGES, INLINE>,
        holds: bool,
    ) -> Step {
        let op = request.opcode;
        if request.length > MAX_MESSAGE {
            return Step::Failed(status::LOCAL_LENGTH);
        }
        let domain = self.engine.qp(id).domain;
        if op == opcode::LOCAL_INV {
            return self.invalidate_here(domain, request);
        }
        if op == opcode::BIND_MW {
            return self.open_window(domain, request);
        }
        let mut pieces = Pieces::new();
        if !self.own_pieces(domain, request, &mut pieces) {
            return Step::Failed(self.say(status::LOCAL_PROTECTION, status::LOCAL_QP_OPERATION));
        }
        let Some(peer) = self.reach_peer(id) else {
            return self.wait_for_peer(id);
        };
        let step = match op {
            opcode::SEND | opcode::SEND_WITH_IMM | opcode::SEND_WITH_INV => {
                self.send_message(peer, request, &pieces)
            }
            opcode::RDMA_WRITE | opcode::RDMA_WRITE_WITH_IMM => self.write(peer, request, &pieces),
            _ if is_answered(op) => self.ask(id, peer, request, holds),
            _ => return Step::Failed(status::LOCAL_QP_OPERATION),
        };
        if step == Step::Wait {
            return step;
        }
        let qp = self.engine.qp(id);
        qp.tries = 0;
        qp.rnr_tries = 0;
        step
    }

    /// The requester's own memory: what it sends, or where an answer goes. False when a piece of it
    /// is not the domain's.
    #[inline(always)]
    pub(super) fn own_pieces(
        &self,
        domain: u32,
        request: &SendRequest<SGES, INLINE>,
        into: &mut Pieces<SGES>,
    ) -> bool {
        if !request.is_inline() {
            return self.look_up(domain, request.list(), is_answered(request.opcode), into);
        }
        if let Some(addr) = NonNull::new(request.inline_bytes().cast_mut()) {
            into.push(Piece { addr, len: request.length as usize, is_shared: false });
        }
        true
    }

    /// The memory of a list of pieces; false when one of them is not the domain's.
    #[inline(always)]
    pub(super) fn look_up(
        &self,
        domain: u32,
        list: &[Sge],
        writes: bool,
        into: &mut Pieces<SGES>,
    ) -> bool {
        for sge in list {
            if sge.length != 0 {
                let Some(piece) = self.engine.table.local(domain, sge, writes) else {
                    return false;
                };
                into.push(piece);
            }
        }
        true
    }

    /// The peer, when it is there and listens.
    #[inline]
    fn reach_peer(&mut self, id: SlotId) -> Option<SlotId> {
        let qp = self.engine.qp(id);
        let (peer, version, is_cut) = (qp.peer, qp.peer_version, qp.is_cut);
        let other = self.engine.qp(peer);
        let is_there = other.in_use
            && other.version == version
            && other.peer == id
            && other.is_connected
            && !other.is_cut
            && matches!(other.state, State::ReadyToReceive | State::ReadyToSend);
        (is_there && !is_cut).then_some(peer)
    }

    #[cold]
    fn wait_for_peer(&mut self, id: SlotId) -> Step {
        let for_ever = self.device.rules().seven_is_for_ever;
        let qp = self.engine.qp(id);
        if qp.tries >= qp.retry && !(qp.retry == 7 && for_ever) {
            return Step::Failed(status::RETRY_EXCEEDED);
        }
        qp.tries = qp.tries.saturating_add(1);
        Step::Wait
    }

    #[cold]
    fn wait_for_receive(&mut self, peer: SlotId) -> Step {
        let id = self.engine.qp(peer).peer;
        let qp = self.engine.qp(id);
        if qp.rnr_tries >= qp.rnr_retry && qp.rnr_retry != 7 {
            return Step::Failed(status::RNR_RETRY_EXCEEDED);
        }
        qp.rnr_tries = qp.rnr_tries.saturating_add(1);
        Step::Wait
    }

    /// SEND in its three forms.
    #[inline]
    fn send_message(
        &mut self,
        peer: SlotId,
        request: &SendRequest<SGES, INLINE>,
        pieces: &Pieces<SGES>,
    ) -> Step {
        let Some(received) = self.next_receive(peer) else {
            return self.wait_for_receive(peer);
        };
        let domain = self.engine.qp(peer).domain;
        let mut arrival = Arrival {
            opcode: wc_opcode::RECV,
            byte_len: request.length,
            is_solicited: request.is_solicited(),
            ..Default::default()
        };
        if u64::from(request.length) > received.request.capacity {
            arrival.status = self.say(status::LOCAL_LENGTH, status::LOCAL_QP_OPERATION);
            self.finish_recv(peer, &received, arrival);
            self.fail(peer);
            let code = self.say(status::REMOTE_INVALID_REQUEST, status::REMOTE_OPERATION);
            return Step::Failed(code);
        }
        let mut target = Pieces::new();
        if !self.look_up(domain, received.request.list(), true, &mut target) {
            arrival.status = self.say(status::LOCAL_PROTECTION, status::LOCAL_QP_OPERATION);
            self.finish_recv(peer, &received, arrival);
            self.fail(peer);
            return Step::Failed(status::REMOTE_OPERATION);
        }
        // SAFETY: both rows were looked up under this lock, and the posts promise their memory to
        // the device.
        unsafe { copy::copy(pieces.as_slice(), target.as_slice()) };
        if request.opcode != opcode::SEND {
            // SAFETY: the two other forms of SEND have it.
            arrival.imm = unsafe { request.imm() };
            arrival.flags = wc_flags::WITH_IMM;
            if request.opcode == opcode::SEND_WITH_INV {
                arrival.flags = wc_flags::WITH_INV;
                if self.engine.table.invalidate(domain, arrival.imm).is_err() {
                    return self.refuse_invalidation(peer, &received, arrival);
                }
            }
        }
        self.finish_recv(peer, &received, arrival);
        Step::Done
    }

    /// A SEND would invalidate a key that is none.
    #[cold]
    fn refuse_invalidation(
        &mut self,
        peer: SlotId,
        received: &super::Received<'_, SGES>,
        arrival: Arrival,
    ) -> Step {
        let code = self.say(status::LOCAL_QP_OPERATION, status::REMOTE_INVALID_REQUEST);
        self.finish_recv(peer, received, Arrival { status: code, ..arrival });
        self.fail(peer);
        match self.say(status::REMOTE_ACCESS, 0) {
            0 => Step::Done,
            code => Step::Failed(code),
        }
    }

    /// WRITE in its two forms.
    #[inline]
    fn write(
        &mut self,
        peer: SlotId,
        request: &SendRequest<SGES, INLINE>,
        pieces: &Pieces<SGES>,
    ) -> Step {
        let has_imm = request.opcode == opcode::RDMA_WRITE_WITH_IMM;
        let received = if has_imm { self.next_receive(peer) } else { None };
        if has_imm && received.is_none() {
            return self.wait_for_receive(peer);
        }
        // SAFETY: a WRITE has it.
        let target = unsafe { request.target().rdma };
        if request.length != 0 {
            let right = Access::REMOTE_WRITE;
            let found = self.at_peer(peer, target.rkey, target.remote_addr, request.length, right);
            match found {
                // SAFETY: both were looked up under this lock, the post promises its memory, and
                // the peer's is shared.
                Ok(piece) => unsafe { copy::copy(pieces.as_slice(), &[piece]) },
                Err(code) => return self.refuse(peer, code),
            }
        }
        if let Some(received) = received {
            let arrival = Arrival {
                opcode: wc_opcode::RECV_RDMA_WITH_IMM,
                byte_len: request.length,
                // SAFETY: this form of WRITE has it.
                imm: unsafe { request.imm() },
                flags: wc_flags::WITH_IMM,
                is_solicited: request.is_solicited(),
                ..Default::default()
            };
            self.finish_recv(peer, &received, arrival);
        }
        Step::Done
    }

    /// Starts a READ or an atomic: the peer checks it; it is answered at once, unless answers are
    /// held.
    fn ask(
        &mut self,
        id: SlotId,
        peer: SlotId,
        request: &SendRequest<SGES, INLINE>,
        holds: bool,
    ) -> Step {
        let hangs = self.device.rules().depth_zero_hangs;
        let qp = self.engine.qp(id);
        if qp.read_depth == 0 {
            return if hangs { Step::Wait } else { Step::Failed(status::LOCAL_QP_OPERATION) };
        }
        if qp.reads >= qp.read_depth {
            return Step::Wait;
        }
        let reads = qp.reads;
        if reads >= self.engine.qp(peer).responder_depth {
            return self.refuse(peer, status::REMOTE_INVALID_REQUEST);
        }
        if !holds {
            return self.answer(id, request);
        }
        match self.asked_for(peer, request) {
            Ok(_) => Step::Done,
            Err(code) => self.refuse_or_fail(peer, code),
        }
    }

    /// Answers a READ or an atomic: the bytes move, or the value changes.
    pub(super) fn answer(&mut self, id: SlotId, request: &SendRequest<SGES, INLINE>) -> Step {
        let qp = self.engine.qp(id);
        let (peer, domain) = (qp.peer, qp.domain);
        let mut own = Pieces::new();
        if !self.own_pieces(domain, request, &mut own) {
            return Step::Failed(self.say(status::LOCAL_PROTECTION, status::LOCAL_QP_OPERATION));
        }
        let source = match self.asked_for(peer, request) {
            Ok(source) => source,
            Err(code) => return self.refuse_or_fail(peer, code),
        };
        let Some(source) = source else {
            return Step::Done;
        };
        if request.opcode == opcode::RDMA_READ {
            // SAFETY: both were looked up under this lock, the post promises its memory, and the
            // peer's is shared.
            unsafe { copy::copy(&[source], own.as_slice()) };
            return Step::Done;
        }
        // SAFETY: an atomic has it.
        let operands = unsafe { request.target().atomic };
        let mut bytes = [0; 8];
        // SAFETY: `source` is eight bytes of shared memory, looked up under this lock.
        unsafe { shared_bytes::load(source.addr, bytes.as_mut_ptr(), 8) };
        let old = u64::from_ne_bytes(bytes);
        let new = match request.opcode {
            opcode::ATOMIC_FETCH_AND_ADD => old.wrapping_add(operands.compare_add),
            _ if old == operands.compare_add => operands.swap,
            _ => old,
        };
        let new = new.to_ne_bytes();
        // SAFETY: as above. No other request comes between the load and this store, because of the
        // lock; the program's own stores may, as on a device whose atomics are its own
        // (`IBV_ATOMIC_HCA`).
        unsafe { shared_bytes::store(new.as_ptr(), source.addr, 8) };
        let addr = NonNull::from(&mut bytes).cast();
        let result = Piece { addr, len: 8, is_shared: false };
        // SAFETY: the bytes are this function's own, and the request's memory was looked up.
        unsafe { copy::copy(&[result], own.as_slice()) };
        Step::Done
    }

    /// The memory that a READ or an atomic asks for; nothing when it asks for no byte.
    fn asked_for(
        &mut self,
        peer: SlotId,
        request: &SendRequest<SGES, INLINE>,
    ) -> Result<Option<Piece>, u32> {
        if request.opcode == opcode::RDMA_READ {
            if request.length == 0 {
                return Ok(None);
            }
            // SAFETY: a READ has it.
            let from = unsafe { request.target().rdma };
            let right = Access::REMOTE_READ;
            return self
                .at_peer(peer, from.rkey, from.remote_addr, request.length, right)
                .map(Some);
        }
        // SAFETY: an atomic has it.
        let from = unsafe { request.target().atomic };
        if request.length != 8 {
            return Err(status::LOCAL_LENGTH);
        }
        if from.remote_addr & 7 != 0 {
            return Err(status::REMOTE_INVALID_REQUEST);
        }
        self.at_peer(peer, from.rkey, from.remote_addr, 8, Access::REMOTE_ATOMIC).map(Some)
    }

    /// Looks memory of the peer up, with the rights of its queue pair and of its region.
    #[inline]
    fn at_peer(
        &mut self,
        peer: SlotId,
        rkey: RKey,
        addr: u64,
        length: u32,
        right: Access,
    ) -> Result<Piece, u32> {
        let qp = self.engine.qp(peer);
        if !Access::from_bits(qp.access).has(right) {
            return Err(status::REMOTE_INVALID_REQUEST);
        }
        let domain = qp.domain;
        self.engine
            .table
            .remote(domain, rkey, addr, length, right)
            .map_err(|_| status::REMOTE_ACCESS)
    }

    /// A request is refused by the peer, unless it did not get there.
    fn refuse_or_fail(&mut self, peer: SlotId, code: u32) -> Step {
        if code == status::LOCAL_LENGTH { Step::Failed(code) } else { self.refuse(peer, code) }
    }

    /// The peer refuses a request, and fails, too.
    #[cold]
    fn refuse(&mut self, peer: SlotId, code: u32) -> Step {
        self.fail(peer);
        Step::Failed(code)
    }

    #[cold]
    fn open_window(&mut self, domain: u32, request: &SendRequest<SGES, INLINE>) -> Step {
        // SAFETY: the operation has it.
        let bind = unsafe { request.bind() };
        let wanted = Opening {
            key: bind.rkey,
            parent: bind.mr.addr() as u32,
            addr: bind.addr,
            len: bind.length,
            access: bind.mw_access_flags,
        };
        match self.engine.table.open(domain, &wanted) {
            Ok(()) => Step::Done,
            Err(_) => Step::Failed(self.say(status::WINDOW_BIND, status::LOCAL_QP_OPERATION)),
        }
    }

    #[cold]
    fn invalidate_here(&mut self, domain: u32, request: &SendRequest<SGES, INLINE>) -> Step {
        // SAFETY: the operation has it.
        let key = unsafe { request.imm() };
        match self.engine.table.invalidate(domain, key) {
            Ok(()) => Step::Done,
            Err(_) => Step::Failed(status::LOCAL_QP_OPERATION),
        }
    }
}
