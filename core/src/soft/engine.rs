//! The engine: it takes requests out of the rings, makes the copies, and pushes completions.
//!
//! Whoever holds the device's lock runs it, through a [`Driver`]: [`super::Device::progress`], and
//! the calls that set up and tear down.
//!
//! Invariant: the requests of one queue are carried out and end in the order of their posts, each
//! with at most one completion.

use super::completion::{Cqe, Frees};
use super::config::State;
use super::device::Device;
use super::profile::{GrhFlag, Overrun, Statuses};
use super::request::{RecvRequest, SendRequest};
use super::ring::Gate;
use crate::abi::{opcode, send_flags, wc_flags, wc_opcode};
use crate::sync::Ordering;

mod connected;
mod datagram;
mod setup;
mod state;

pub(super) use state::{Armed, CqIndex, Engine, Qp, SlotId};

/// How many queue pairs one call visits, and how many requests it moves at each.
const VISITS: u32 = 64;
const BURST: u32 = 32;

/// Statuses that the engine gives.
pub(super) mod status {
    pub(in crate::soft) const LOCAL_LENGTH: u32 = 1;
    pub(in crate::soft) const LOCAL_QP_OPERATION: u32 = 2;
    pub(in crate::soft) const LOCAL_PROTECTION: u32 = 4;
    pub(in crate::soft) const FLUSHED: u32 = 5;
    pub(in crate::soft) const WINDOW_BIND: u32 = 6;
    pub(in crate::soft) const REMOTE_INVALID_REQUEST: u32 = 9;
    pub(in crate::soft) const REMOTE_ACCESS: u32 = 10;
    pub(in crate::soft) const REMOTE_OPERATION: u32 = 11;
    pub(in crate::soft) const RETRY_EXCEEDED: u32 = 12;
    pub(in crate::soft) const RNR_RETRY_EXCEEDED: u32 = 13;
}

/// The engine in the hands of the thread that has the lock.
pub(super) struct Driver<
    'a,
    const QPS: usize,
    const DEPTH: usize,
    const SGES: usize,
    const INLINE: usize,
> {
    pub(super) device: &'a Device<QPS, DEPTH, SGES, INLINE>,
    pub(super) engine: &'a mut Engine<QPS>,
}

/// What came of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Step {
    /// It was carried out.
    Done,
    /// It waits: for the peer, or for a request before it.
    Wait,
    /// It failed with this status.
    Failed(u32),
}

/// A receive that was taken out of its ring and has to be completed.
struct Received<'a, const SGES: usize> {
    request: &'a RecvRequest<SGES>,
    index: usize,
}

/// What a receive's completion says.
#[derive(Clone, Copy, Debug, Default)]
struct Arrival {
    status: u32,
    opcode: u32,
    byte_len: u32,
    imm: u32,
    flags: u32,
    src_qp: u32,
    is_solicited: bool,
}

impl<'a, const QPS: usize, const DEPTH: usize, const SGES: usize, const INLINE: usize>
    Driver<'a, QPS, DEPTH, SGES, INLINE>
{
    /// Gives each queue pair a turn; returns how many requests moved.
    #[inline]
    pub(super) fn run(&mut self) -> usize {
        if self.engine.is_gone {
            return 0;
        }
        let mut moved = 0_usize;
        for _ in 0..self.engine.used.min(VISITS) {
            let id = self.engine.turn();
            let qp = self.engine.qp(id);
            moved = moved.wrapping_add(match qp.state {
                State::ReadyToSend => self.send(id),
                State::Error => self.flush(id),
                _ => 0,
            } as usize);
        }
        moved
    }

    /// The turn of a queue pair that is ready.
    #[inline]
    fn send(&mut self, id: SlotId) -> u32 {
        let ring = &self.device.slot(id).send;
        let tail = ring.tail();
        let mut left = BURST;
        let qp = self.engine.qp(id);
        if qp.oldest == tail {
            return 0;
        }
        if !qp.holds_acks && (qp.oldest != qp.next || qp.failure != 0) {
            left = self.let_answers_go(id, left);
            if self.engine.qp(id).oldest != self.engine.qp(id).next {
                return BURST.wrapping_sub(left);
            }
        }
        while left != 0 {
            let qp = self.engine.qp(id);
            let index = qp.next;
            if index == tail || qp.failure != 0 || qp.state != State::ReadyToSend {
                break;
            }
            let holds = qp.holds_acks;
            // SAFETY: `next` lies before the tail; the slot is freed after it has ended, below.
            let request = unsafe { ring.get(index) };
            match self.carry_out(id, request, holds) {
                Step::Wait => break,
                Step::Done => {
                    let qp = self.engine.qp(id);
                    qp.next = index.wrapping_add(1);
                    if holds {
                        qp.reads = qp.reads.wrapping_add(is_answered(request.opcode) as u32);
                    } else {
                        self.finish_send(id, request, 0);
                    }
                }
                Step::Failed(status) if holds => self.engine.qp(id).failure = status,
                Step::Failed(status) => {
                    self.engine.qp(id).next = index.wrapping_add(1);
                    self.finish_send(id, request, status);
                    self.fail(id);
                }
            }
            left = left.wrapping_sub(1);
        }
        BURST.wrapping_sub(left)
    }

    /// Carries one request out. When answers are held, whatever an answer would bring back stays
    /// undone.
    #[inline]
    fn carry_out(&mut self, id: SlotId, request: &SendRequest<SGES, INLINE>, holds: bool) -> Step {
        let qp = self.engine.qp(id);
        if qp.ordered != 0 {
            return Step::Failed(core::mem::take(&mut qp.ordered));
        }
        if request.flags & send_flags::FENCE != 0 && qp.reads != 0 {
            return Step::Wait;
        }
        if qp.is_datagram {
            self.carry_out_datagram(id, request)
        } else {
            self.carry_out_connected(id, request, holds)
        }
    }

    /// Ends the requests whose answers were held back.
    #[cold]
    fn let_answers_go(&mut self, id: SlotId, mut left: u32) -> u32 {
        let ring = &self.device.slot(id).send;
        while left != 0 {
            let qp = self.engine.qp(id);
            if qp.oldest == qp.next {
                break;
            }
            // SAFETY: `oldest` lies before `next`, and so before the tail; its slot is freed when
            // it has ended, below.
            let request = unsafe { ring.get(qp.oldest) };
            let mut status = 0;
            if is_answered(request.opcode) {
                qp.reads = qp.reads.wrapping_sub(1);
                if let Step::Failed(code) = self.answer(id, request) {
                    status = code;
                }
            }
            self.finish_send(id, request, status);
            left = left.wrapping_sub(1);
            if status != 0 {
                self.fail(id);
                return left;
            }
        }
        let qp = self.engine.qp(id);
        if qp.failure != 0 && qp.oldest == qp.next && left != 0 {
            let status = core::mem::take(&mut qp.failure);
            qp.next = qp.next.wrapping_add(1);
            // SAFETY: a failure is noted for a request before the tail, which has not ended.
            let request = unsafe { ring.get(qp.oldest) };
            self.finish_send(id, request, status);
            self.fail(id);
            left = left.wrapping_sub(1);
        }
        left
    }

    /// The turn of a queue pair that has failed.
    #[cold]
    fn flush(&mut self, id: SlotId) -> u32 {
        let qp = self.engine.qp(id);
        if qp.holds_flushes {
            return 0;
        }
        let mut left = BURST;
        let device = self.device;
        let slot = device.slot(id);
        let tail = slot.send.tail();
        while left != 0 && self.engine.qp(id).oldest != tail {
            let qp = self.engine.qp(id);
            // SAFETY: `oldest` lies before the tail, and its slot is freed below.
            let request = unsafe { slot.send.get(qp.oldest) };
            qp.next = qp.oldest.wrapping_add(1);
            self.finish_send(id, request, status::FLUSHED);
            left = left.wrapping_sub(1);
        }
        let qp = self.engine.qp(id);
        if qp.recv_slot != id {
            return BURST.wrapping_sub(left);
        }
        let end = if device.rules().forgets_receives { qp.flush_end } else { slot.recv.tail() };
        while left != 0 && self.engine.qp(id).next_recv != end {
            let Some(received) = self.next_receive(id) else { break };
            self.finish_recv(
                id,
                &received,
                Arrival { status: status::FLUSHED, is_solicited: true, ..Default::default() },
            );
            left = left.wrapping_sub(1);
        }
        BURST.wrapping_sub(left)
    }

    /// Moves a queue pair to the error state.
    pub(super) fn fail(&mut self, id: SlotId) {
        let slot = self.device.slot(id);
        let forgets = self.device.rules().forgets_receives;
        let qp = self.engine.qp(id);
        if !qp.in_use || qp.state == State::Error {
            return;
        }
        qp.state = State::Error;
        qp.failure = 0;
        qp.reads = 0;
        if forgets {
            qp.flush_end = slot.recv.tail();
        }
        let has_own_receives = qp.recv_slot == id;
        slot.send.set_gate(Gate::Open);
        if has_own_receives {
            slot.recv.set_gate(Gate::Open);
        }
    }

    /// Ends the oldest send.
    #[inline]
    fn finish_send(&mut self, id: SlotId, request: &SendRequest<SGES, INLINE>, status: u32) {
        let profile = self.device.rules();
        let qp = self.engine.qp(id);
        let up_to = qp.oldest.wrapping_add(1);
        qp.oldest = up_to;
        let is_signaled = request.flags & send_flags::SIGNALED != 0 || qp.signals_all;
        if is_signaled || status != 0 {
            let with_imm =
                matches!(request.opcode, opcode::SEND_WITH_IMM | opcode::RDMA_WRITE_WITH_IMM);
            let flag = with_imm && profile.sender_imm_flag;
            let cqe = Cqe {
                wr_id: request.wr_id,
                status,
                opcode: completed_as(request.opcode),
                byte_len: request.length,
                imm: 0,
                qp_num: qp.number,
                src_qp: 0,
                flags: if flag { wc_flags::WITH_IMM } else { 0 },
                frees: if profile.early_slots { Frees::NOTHING } else { Frees::send(id.get()) },
                up_to,
            };
            let queue = qp.send_cq;
            self.push(queue, &cqe, false);
            self.engine.qp(id).send_mark = self.engine.cq(queue).tail;
        }
        if profile.early_slots {
            self.device.slot(id).send.free(up_to);
        }
    }

    /// Takes the next receive out of a queue pair's ring, or of the one that it shares.
    #[inline]
    fn next_receive(&mut self, id: SlotId) -> Option<Received<'a, SGES>> {
        let owner = self.engine.qp(id).recv_slot;
        let ring = &self.device.slot(owner).recv;
        let qp = self.engine.qp(owner);
        if qp.next_recv == qp.recv_seen {
            qp.recv_seen = ring.tail();
            if qp.next_recv == qp.recv_seen {
                return None;
            }
        }
        // SAFETY: `next_recv` lies before the tail; `finish_recv` frees it at the earliest.
        Some(Received { request: unsafe { ring.get(qp.next_recv) }, index: qp.next_recv })
    }

    /// Ends the receive that was taken.
    #[inline]
    fn finish_recv(&mut self, id: SlotId, received: &Received<'_, SGES>, arrival: Arrival) {
        let profile = self.device.rules();
        let up_to = received.index.wrapping_add(1);
        let owner = self.engine.qp(id).recv_slot;
        self.engine.qp(owner).next_recv = up_to;
        // A shared queue's completions are polled in any order, so none of them says what is free.
        let early = profile.early_slots || owner != id;
        let qp = self.engine.qp(id);
        let has_grh = match profile.grh {
            GrhFlag::Always => true,
            GrhFlag::Datagrams => qp.is_datagram,
            GrhFlag::Never => false,
        };
        let cqe = Cqe {
            wr_id: received.request.wr_id,
            status: arrival.status,
            opcode: arrival.opcode,
            byte_len: arrival.byte_len,
            imm: arrival.imm,
            qp_num: qp.number,
            src_qp: arrival.src_qp,
            flags: arrival.flags | if has_grh { wc_flags::GRH } else { 0 },
            frees: if early { Frees::NOTHING } else { Frees::recv(id.get()) },
            up_to,
        };
        let queue = qp.recv_cq;
        let is_kept = self.push(queue, &cqe, arrival.is_solicited);
        self.engine.qp(id).recv_mark = self.engine.cq(queue).tail;
        if early {
            self.device.slot(owner).recv.free(up_to);
        }
        if owner != id {
            let slot = self.device.slot(owner);
            slot.has_left(slot.recv.tail().wrapping_sub(up_to));
        }
        if !is_kept {
            self.fail(id);
        }
    }

    /// Pushes a completion; returns false when there was no room.
    #[inline]
    fn push(&mut self, queue: CqIndex, cqe: &Cqe, is_solicited: bool) -> bool {
        let device = self.device;
        let cq = self.engine.cq(queue);
        let Some(ends) = device.ends(queue.get()) else { return true };
        if cq.is_broken || !cq.has_poller {
            return true;
        }
        if cq.tail.wrapping_sub(cq.head_seen) >= cq.limit {
            // Pairs with the release store in `drain`: the poller is done with the places.
            cq.head_seen = ends.head.0.load(Ordering::Acquire);
            if cq.tail.wrapping_sub(cq.head_seen) >= cq.limit {
                self.overrun(queue);
                return false;
            }
        }
        if let Some(place) = device.place(cq.base.wrapping_add(cq.tail & cq.mask)) {
            // SAFETY: the place lies outside of head and tail, so the poller leaves it alone.
            place.with_mut(|place| unsafe { place.cast::<Cqe>().write(*cqe) });
        }
        cq.tail = cq.tail.wrapping_add(1);
        // Pairs with the acquire load in `drain`: the place's bytes are visible.
        ends.tail.0.store(cq.tail, Ordering::Release);
        if cq.armed != Armed::No {
            self.wake(queue, is_solicited, cqe.status != 0);
        }
        true
    }

    /// Raises the event that an armed queue waits for, if this completion is one that does.
    #[cold]
    fn wake(&mut self, queue: CqIndex, is_solicited: bool, has_failed: bool) {
        let failures_wake = self.device.rules().failures_wake;
        let cq = self.engine.cq(queue);
        if cq.armed == Armed::Any || is_solicited || (has_failed && failures_wake) {
            cq.armed = Armed::No;
            cq.events = cq.events.saturating_add(1);
        }
    }

    #[cold]
    fn overrun(&mut self, queue: CqIndex) {
        if self.device.rules().overrun == Overrun::Loses {
            return;
        }
        self.engine.cq(queue).is_broken = true;
        if let Some(ends) = self.device.ends(queue.get()) {
            // Pairs with the acquire load in `is_broken`: what was pushed before is visible.
            ends.is_broken.store(true, Ordering::Release);
        }
        for id in Engine::<QPS>::slots() {
            let qp = self.engine.qp(id);
            if qp.in_use && !qp.is_shared_receive && (qp.send_cq == queue || qp.recv_cq == queue) {
                self.fail(id);
            }
        }
    }

    /// A status, which the profile may give as another.
    fn say(&self, by_the_book: u32, on_rxe: u32) -> u32 {
        match self.device.rules().statuses {
            Statuses::Specification => by_the_book,
            Statuses::SoftRoce => on_rxe,
        }
    }
}

/// Whether an operation brings something back.
#[inline(always)]
const fn is_answered(op: u32) -> bool {
    matches!(op, opcode::RDMA_READ | opcode::ATOMIC_CMP_AND_SWP | opcode::ATOMIC_FETCH_AND_ADD)
}

/// What a completion calls an operation.
#[inline(always)]
const fn completed_as(op: u32) -> u32 {
    match op {
        opcode::RDMA_WRITE | opcode::RDMA_WRITE_WITH_IMM => wc_opcode::RDMA_WRITE,
        opcode::RDMA_READ => wc_opcode::RDMA_READ,
        opcode::ATOMIC_CMP_AND_SWP => wc_opcode::COMP_SWAP,
        opcode::ATOMIC_FETCH_AND_ADD => wc_opcode::FETCH_ADD,
        opcode::LOCAL_INV => wc_opcode::LOCAL_INV,
        opcode::BIND_MW => wc_opcode::BIND_MW,
        _ => wc_opcode::SEND,
    }
}
