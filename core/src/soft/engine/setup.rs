//! What sets up and tears down: places for queue pairs and completion queues, and their states.
//!
//! Any thread, under the lock; none of it is on the way of a request.

use super::super::completion::{CompletionQueueError, CqId};
use super::super::config::{Caps, ControlError, QpConfig, QueuePairError, State};
use super::super::device::{Device, Made};
use super::super::ring::{Gate, Limits};
use super::{Armed, CqIndex, Driver, Engine, Qp, SlotId};
use crate::abi::opcode;
use crate::sync::Ordering;

/// The first number of a queue pair; 0 and 1 are taken for other purposes on real devices.
const FIRST_NUMBER: u32 = 0x11;

impl<const QPS: usize, const DEPTH: usize, const SGES: usize, const INLINE: usize>
    Driver<'_, QPS, DEPTH, SGES, INLINE>
{
    /// Finds room for a completion queue: its name, its first place, its mask.
    pub(in crate::soft) fn create_queue(
        &mut self,
        capacity: usize,
    ) -> Result<(CqId, usize, usize), CompletionQueueError> {
        let all = Device::<QPS, DEPTH, SGES, INLINE>::COMPLETIONS;
        let no_room = CompletionQueueError::NoRoom { asked: capacity, all };
        let places = capacity.max(1).checked_next_power_of_two().ok_or(no_room)?;
        let free = Engine::<QPS>::queues().find(|&at| !self.engine.cq(at).in_use());
        let Some(index) = free else {
            return Err(CompletionQueueError::NoQueue);
        };
        let base = self.find_places(places, all).ok_or(no_room)?;
        let cq = self.engine.cq(index);
        cq.version = cq.version.wrapping_add(1);
        cq.has_poller = true;
        cq.armed = Armed::No;
        cq.events = 0;
        cq.base = base;
        cq.mask = places.wrapping_sub(1);
        cq.limit = capacity;
        let (tail, version) = (cq.tail, cq.version);
        let is_gone = self.engine.is_gone;
        let cq = self.engine.cq(index);
        cq.is_broken = is_gone;
        cq.head_seen = tail;
        if let Some(ends) = self.device.ends(index.get()) {
            // Relaxed: the handle is given out behind this, by whatever means orders that. What an
            // earlier queue left behind is skipped.
            ends.head.0.store(tail, Ordering::Relaxed);
            ends.is_broken.store(is_gone, Ordering::Relaxed);
        }
        let id = CqId { index: index.get(), version, device: self.device.address() };
        Ok((id, base, places.wrapping_sub(1)))
    }

    /// The first run of free places.
    fn find_places(&mut self, places: usize, all: usize) -> Option<usize> {
        let mut base = 0_usize;
        loop {
            let end = base.checked_add(places).filter(|&end| end <= all)?;
            // Goes on behind a queue that is in the way, until none is.
            let in_the_way = Engine::<QPS>::queues().find_map(|at| {
                let cq = self.engine.cq(at);
                let its_end = cq.base.wrapping_add(cq.mask).wrapping_add(1);
                (cq.in_use() && cq.base < end && base < its_end).then_some(its_end)
            });
            match in_the_way {
                Some(its_end) => base = its_end,
                None => return Some(base),
            }
        }
    }

    /// The poller has dropped the handle.
    pub(in crate::soft) fn drop_queue(&mut self, index: u32) {
        if let Some(index) = Engine::<QPS>::queue_at(index) {
            self.engine.cq(index).has_poller = false;
        }
    }

    /// Arms a completion queue; false when it is another device's, or gone.
    pub(in crate::soft) fn arm(&mut self, id: CqId, armed: Armed) -> bool {
        let Ok(index) = self.queue_of(id) else { return false };
        self.engine.cq(index).armed = armed;
        true
    }

    /// Takes one of a completion queue's events, if there is one.
    pub(in crate::soft) fn take_event(&mut self, id: CqId) -> bool {
        let Ok(index) = self.queue_of(id) else { return false };
        let cq = self.engine.cq(index);
        let left = cq.events.checked_sub(1);
        cq.events = left.unwrap_or(0);
        left.is_some()
    }

    /// Takes the device away.
    pub(in crate::soft) fn remove(&mut self) {
        self.engine.is_gone = true;
        for id in Engine::<QPS>::slots() {
            let qp = self.engine.qp(id);
            if qp.in_use {
                qp.state = State::Error;
                self.set_gates(id);
                // Release, as in `destroy`.
                self.device.slot(id).is_gone.store(true, Ordering::Release);
            }
        }
        for index in Engine::<QPS>::queues() {
            self.engine.cq(index).is_broken = true;
            if let Some(ends) = self.device.ends(index.get()) {
                // Pairs with the acquire load in `is_broken`: what was pushed before is visible.
                ends.is_broken.store(true, Ordering::Release);
            }
        }
    }

    fn queue_of(&mut self, id: CqId) -> Result<CqIndex, QueuePairError> {
        let wrong = QueuePairError::CompletionQueue;
        let index = Engine::<QPS>::queue_at(id.index).ok_or(wrong)?;
        let cq = self.engine.cq(index);
        let is_it = cq.has_poller && cq.version == id.version && id.device == self.device.address();
        if is_it { Ok(index) } else { Err(wrong) }
    }

    pub(in crate::soft) fn create_qp(
        &mut self,
        config: QpConfig,
        send: CqId,
        recv: CqId,
    ) -> Result<Made, QueuePairError> {
        let caps = self.grant(&config)?;
        let send_cq = self.queue_of(send)?;
        let recv_cq = self.queue_of(recv)?;
        let shared = match config.shared_receive {
            None => None,
            Some(it) if it.device != self.device.address() => {
                return Err(QueuePairError::SharedReceiveQueue);
            }
            Some(it) => Some(
                self.engine
                    .shared_receive(it.slot, it.version)
                    .ok_or(QueuePairError::SharedReceiveQueue)?,
            ),
        };
        let id = self.find_slot().ok_or(QueuePairError::NoRoom)?;
        if shared == Some(id) {
            // Its end was dropped, so that its place was free.
            return Err(QueuePairError::SharedReceiveQueue);
        }
        let is_datagram = config.datagram.is_some();
        let state = match (is_datagram, config.in_reset) {
            (_, true) => State::Reset,
            (true, false) => State::ReadyToSend,
            (false, false) => State::Init,
        };
        let (next, next_recv) = self.start_rings(id, &caps, is_datagram, 2);
        let number = self.new_number();
        for queue in [send_cq, recv_cq] {
            let cq = self.engine.cq(queue);
            cq.users = cq.users.wrapping_add(1);
        }
        let recv_slot = shared.unwrap_or(id);
        if recv_slot != id {
            let owner = self.engine.qp(recv_slot);
            owner.users = owner.users.wrapping_add(1);
        }
        let qp = self.engine.qp(id);
        *qp = Qp {
            in_use: true,
            state,
            is_datagram,
            signals_all: config.signals_all,
            version: qp.version.wrapping_add(1),
            number,
            domain: config.domain.to_raw(),
            access: config.access.bits(),
            send_cq,
            recv_cq,
            recv_slot,
            next,
            oldest: next,
            next_recv,
            recv_seen: next_recv,
            read_depth: config.read_depth,
            responder_depth: config.responder_depth,
            retry: config.retry,
            rnr_retry: config.rnr_retry,
            qkey: config.datagram.unwrap_or(0),
            mtu: config.mtu,
            ..Qp::FREE
        };
        let version = qp.version;
        self.set_gates(id);
        Ok(Made { id, version, number, caps })
    }

    pub(in crate::soft) fn create_shared_receive(
        &mut self,
        depth: u32,
    ) -> Result<Made, QueuePairError> {
        let recv_depth = self.depth(Some(depth))?;
        let caps = Caps { send_depth: 0, recv_depth, sges: SGES as u32, read_sges: 0, inline: 0 };
        let id = self.find_slot().ok_or(QueuePairError::NoRoom)?;
        let (_, next_recv) = self.start_rings(id, &caps, false, 1);
        let qp = self.engine.qp(id);
        *qp = Qp {
            in_use: true,
            is_shared_receive: true,
            version: qp.version.wrapping_add(1),
            recv_slot: id,
            next_recv,
            recv_seen: next_recv,
            ..Qp::FREE
        };
        let version = qp.version;
        let gate = if self.engine.is_gone { Gate::Gone } else { Gate::Open };
        self.device.slot(id).recv.set_gate(gate);
        Ok(Made { id, version, number: 0, caps })
    }

    /// What is granted of what is asked.
    fn grant(&self, config: &QpConfig) -> Result<Caps, QueuePairError> {
        let profile = self.device.rules();
        let send_depth = self.depth(config.send_depth)?;
        let recv_depth = self.depth(config.recv_depth)?;
        let max = u32::try_from(SGES).unwrap_or(u32::MAX);
        let sges = config.sges.unwrap_or(max);
        if sges > max {
            return Err(QueuePairError::Sges { asked: sges, max });
        }
        let max = u32::try_from(INLINE).unwrap_or(u32::MAX);
        let inline = config.inline.unwrap_or(max);
        if inline > max {
            return Err(QueuePairError::Inline { asked: inline, max });
        }
        let inline = if profile.no_inline { 0 } else { inline };
        let read_sges = match profile.max_read_sges {
            0 => sges,
            most => sges.min(most),
        };
        Ok(Caps { send_depth, recv_depth, sges, read_sges, inline })
    }

    fn depth(&self, asked: Option<u32>) -> Result<u32, QueuePairError> {
        let max = u32::try_from(DEPTH).unwrap_or(1 << 31);
        let asked = asked.unwrap_or(max);
        if asked > max {
            return Err(QueuePairError::Depth { asked, max });
        }
        let rounds = self.device.rules().rounds_depths && asked != 0;
        // `max` is a power of two, so this is at most `max`.
        Ok(if rounds { asked.next_power_of_two() } else { asked })
    }

    /// A place that nobody uses any more.
    fn find_slot(&mut self) -> Option<SlotId> {
        let found = Engine::<QPS>::slots().find(|&id| self.is_free(id))?;
        self.engine.use_slot(found);
        Some(found)
    }

    fn is_free(&mut self, id: SlotId) -> bool {
        // Pairs with the release in `Slot::drop_end`: the ends are done with the rings.
        if self.device.slot(id).ends.load(Ordering::Acquire) != 0 {
            return false;
        }
        let qp = *self.engine.qp(id);
        if qp.in_use {
            // A shared receive queue has no control; it goes with its end and its users.
            if !qp.is_shared_receive || qp.users != 0 {
                return false;
            }
            *self.engine.qp(id) = qp.freed();
            return true;
        }
        // A completion that was not polled yet would free slots of a queue pair that is gone.
        self.is_passed(qp.send_cq, qp.send_mark) && self.is_passed(qp.recv_cq, qp.recv_mark)
    }

    /// Whether everything before `mark` has been polled, or never will be.
    fn is_passed(&mut self, queue: CqIndex, mark: usize) -> bool {
        let cq = *self.engine.cq(queue);
        let Some(ends) = self.device.ends(queue.get()) else { return true };
        // Pairs with the release store in `drain`, which comes after the freeing of slots.
        let head = ends.head.0.load(Ordering::Acquire);
        !cq.has_poller || (mark.wrapping_sub(head) as isize) <= 0
    }

    /// Readies a place's rings for `ends` ends; returns where they start.
    fn start_rings(&self, id: SlotId, caps: &Caps, is_datagram: bool, ends: u32) -> (usize, usize) {
        let profile = self.device.rules();
        let messages = 1 << opcode::SEND | 1 << opcode::SEND_WITH_IMM;
        let all = messages
            | 1 << opcode::RDMA_WRITE
            | 1 << opcode::RDMA_WRITE_WITH_IMM
            | 1 << opcode::RDMA_READ
            | 1 << opcode::ATOMIC_CMP_AND_SWP
            | 1 << opcode::ATOMIC_FETCH_AND_ADD
            | 1 << opcode::LOCAL_INV
            | 1 << opcode::BIND_MW
            | 1 << opcode::SEND_WITH_INV;
        let limits = Limits {
            depth: caps.send_depth as usize,
            sges: caps.sges,
            read_sges: caps.read_sges,
            inline: caps.inline,
            opcodes: if is_datagram { messages } else { all },
            other_opcodes: profile.checks_late,
            empty_sges_refused: profile.empty_sges_refused,
            crooked_atomics_refused: profile.checks_late,
        };
        let recv_limits = Limits { depth: caps.recv_depth as usize, ..limits };
        let slot = self.device.slot(id);
        // SAFETY: `find_slot` found no end of these rings, and no completion that would free their
        // slots; this is the lock.
        let starts = unsafe {
            (slot.send.start(limits, Gate::Closed), slot.recv.start(recv_limits, Gate::Closed))
        };
        // Relaxed: the ends are given out behind this.
        slot.ends.store(ends, Ordering::Relaxed);
        slot.limit.store(0, Ordering::Relaxed);
        slot.ran_low.store(false, Ordering::Relaxed);
        slot.is_gone.store(self.engine.is_gone, Ordering::Relaxed);
        starts
    }

    fn new_number(&mut self) -> u32 {
        let reuses = self.device.rules().reuses_numbers;
        let mut number = if reuses { FIRST_NUMBER } else { self.engine.numbers.max(FIRST_NUMBER) };
        while self.engine.find(number).is_some() {
            number = following(number);
        }
        self.engine.numbers = following(number);
        number
    }

    /// Sets the gates that belong to the state.
    fn set_gates(&mut self, id: SlotId) {
        let slot = self.device.slot(id);
        if self.engine.is_gone {
            slot.send.set_gate(Gate::Gone);
            slot.recv.set_gate(Gate::Gone);
            return;
        }
        let unready = if self.device.rules().queues_unready { Gate::Askew } else { Gate::Closed };
        let qp = self.engine.qp(id);
        let (send, recv) = match qp.state {
            State::Reset => (unready, Gate::Closed),
            State::Init | State::ReadyToReceive => (unready, Gate::Open),
            State::ReadyToSend | State::Error => (Gate::Open, Gate::Open),
        };
        slot.send.set_gate(send);
        slot.recv.set_gate(if qp.recv_slot == id { recv } else { Gate::Closed });
    }

    pub(in crate::soft) fn init(&mut self, id: SlotId) -> Result<(), ControlError> {
        let qp = self.engine.qp(id);
        let next = if qp.is_datagram { State::ReadyToSend } else { State::Init };
        self.advance(id, State::Reset, next)
    }

    pub(in crate::soft) fn ready_to_receive(
        &mut self,
        id: SlotId,
        peer: SlotId,
    ) -> Result<(), ControlError> {
        if self.engine.qp(id).is_datagram || self.engine.qp(peer).is_datagram {
            return Err(ControlError::Datagram);
        }
        self.advance(id, State::Init, State::ReadyToReceive)?;
        let peer_version = self.engine.qp(peer).version;
        let qp = self.engine.qp(id);
        qp.peer = peer;
        qp.peer_version = peer_version;
        qp.is_connected = true;
        Ok(())
    }

    pub(in crate::soft) fn ready_to_send(&mut self, id: SlotId) -> Result<(), ControlError> {
        self.advance(id, State::ReadyToReceive, State::ReadyToSend)
    }

    fn advance(&mut self, id: SlotId, from: State, to: State) -> Result<(), ControlError> {
        let qp = self.engine.qp(id);
        if qp.state != from {
            return Err(ControlError::WrongState(qp.state));
        }
        qp.state = to;
        self.set_gates(id);
        Ok(())
    }

    pub(in crate::soft) fn connect(&mut self, a: SlotId, b: SlotId) -> Result<(), ControlError> {
        for id in [a, b] {
            let qp = self.engine.qp(id);
            if qp.is_datagram {
                return Err(ControlError::Datagram);
            }
            if !matches!(qp.state, State::Reset | State::Init) {
                return Err(ControlError::WrongState(qp.state));
            }
        }
        for (id, peer) in [(a, b), (b, a)] {
            let peer_version = self.engine.qp(peer).version;
            let qp = self.engine.qp(id);
            qp.peer = peer;
            qp.peer_version = peer_version;
            qp.is_connected = true;
            qp.state = State::ReadyToSend;
            self.set_gates(id);
        }
        Ok(())
    }

    /// The control is gone: nothing of this queue pair is looked at any more.
    pub(in crate::soft) fn destroy(&mut self, id: SlotId) {
        let slot = self.device.slot(id);
        slot.send.set_gate(Gate::Closed);
        slot.recv.set_gate(Gate::Closed);
        // Release, pairs with the acquire in the ends' `is_gone`.
        slot.is_gone.store(true, Ordering::Release);
        let qp = self.engine.qp(id);
        let (send_cq, recv_cq, owner) = (qp.send_cq, qp.recv_cq, qp.recv_slot);
        *qp = qp.freed();
        if owner != id {
            let owner = self.engine.qp(owner);
            owner.users = owner.users.wrapping_sub(1);
        }
        for queue in [send_cq, recv_cq] {
            let cq = self.engine.cq(queue);
            cq.users = cq.users.wrapping_sub(1);
        }
    }
}

/// The number behind a number, in 24 bits.
const fn following(number: u32) -> u32 {
    let next = number.wrapping_add(1) & 0x00ff_ffff;
    if next < FIRST_NUMBER { FIRST_NUMBER } else { next }
}
