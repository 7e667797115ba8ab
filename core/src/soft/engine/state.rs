//! What the engine knows: queue pairs, completion queues, regions. All of it is under one lock.
//!
//! Invariant: a [`SlotId`] is less than `QPS` and a [`CqIndex`] less than `2 * QPS`; both are made
//! here only.

use super::super::config::State;
use super::super::memory::Table;

/// The number of a queue pair's place on its device.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::soft) struct SlotId(u32);

/// The number of a completion queue's place on its device.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::soft) struct CqIndex(u32);

impl SlotId {
    #[inline(always)]
    pub(in crate::soft) const fn get(self) -> u32 {
        self.0
    }
}

impl CqIndex {
    pub(in crate::soft) const fn get(self) -> u32 {
        self.0
    }
}

/// One queue pair, or one shared receive queue, of which only the receive part counts.
///
/// All zero when it is free: see the profile's invariant.
#[derive(Clone, Copy, Debug)]
pub(in crate::soft) struct Qp {
    pub(in crate::soft) in_use: bool,
    pub(in crate::soft) is_shared_receive: bool,
    pub(in crate::soft) state: State,
    pub(in crate::soft) is_datagram: bool,
    pub(in crate::soft) signals_all: bool,
    pub(in crate::soft) is_connected: bool,
    /// Nothing passes between it and its peer.
    pub(in crate::soft) is_cut: bool,
    pub(in crate::soft) holds_acks: bool,
    pub(in crate::soft) holds_flushes: bool,
    /// Counts the queue pairs that had this place.
    pub(in crate::soft) version: u32,
    pub(in crate::soft) number: u32,
    pub(in crate::soft) domain: u32,
    pub(in crate::soft) access: u32,
    pub(in crate::soft) peer: SlotId,
    pub(in crate::soft) peer_version: u32,
    pub(in crate::soft) send_cq: CqIndex,
    pub(in crate::soft) recv_cq: CqIndex,
    /// Whose receives it takes: its own, or those of a shared receive queue.
    pub(in crate::soft) recv_slot: SlotId,
    /// How many queue pairs take receives here.
    pub(in crate::soft) users: u32,
    /// The next send to carry out; the oldest one that has not ended.
    pub(in crate::soft) next: usize,
    pub(in crate::soft) oldest: usize,
    /// The next receive to hand out.
    pub(in crate::soft) next_recv: usize,
    /// How far receives had been posted, as last seen.
    pub(in crate::soft) recv_seen: usize,
    /// The completion queues' tails behind the last completion of this queue pair.
    pub(in crate::soft) send_mark: usize,
    pub(in crate::soft) recv_mark: usize,
    /// The status that the next request is to fail with, 0 for none.
    pub(in crate::soft) ordered: u32,
    /// The status of the send at `next`, when its refusal is still held back.
    pub(in crate::soft) failure: u32,
    /// How far receives were posted when the queue pair failed.
    pub(in crate::soft) flush_end: usize,
    /// READs and atomics that are under way.
    pub(in crate::soft) reads: u32,
    pub(in crate::soft) read_depth: u32,
    pub(in crate::soft) responder_depth: u32,
    pub(in crate::soft) tries: u32,
    pub(in crate::soft) rnr_tries: u32,
    pub(in crate::soft) retry: u32,
    pub(in crate::soft) rnr_retry: u32,
    pub(in crate::soft) qkey: u32,
    pub(in crate::soft) mtu: u32,
}

impl Qp {
    pub(in crate::soft) const FREE: Self = Self {
        in_use: false,
        is_shared_receive: false,
        state: State::Reset,
        is_datagram: false,
        signals_all: false,
        is_connected: false,
        is_cut: false,
        holds_acks: false,
        holds_flushes: false,
        version: 0,
        number: 0,
        domain: 0,
        access: 0,
        peer: SlotId(0),
        peer_version: 0,
        send_cq: CqIndex(0),
        recv_cq: CqIndex(0),
        recv_slot: SlotId(0),
        users: 0,
        next: 0,
        oldest: 0,
        next_recv: 0,
        recv_seen: 0,
        send_mark: 0,
        recv_mark: 0,
        ordered: 0,
        failure: 0,
        flush_end: 0,
        reads: 0,
        read_depth: 0,
        responder_depth: 0,
        tries: 0,
        rnr_tries: 0,
        retry: 0,
        rnr_retry: 0,
        qkey: 0,
        mtu: 0,
    };

    /// What stays when the place changes hands.
    pub(in crate::soft) const fn freed(&self) -> Self {
        Self {
            version: self.version,
            send_cq: self.send_cq,
            recv_cq: self.recv_cq,
            send_mark: self.send_mark,
            recv_mark: self.recv_mark,
            ..Self::FREE
        }
    }
}

/// The engine's side of a completion queue.
#[derive(Clone, Copy, Debug)]
pub(in crate::soft) struct Cq {
    /// Whether somebody can poll it.
    pub(in crate::soft) has_poller: bool,
    /// How many queue pair halves complete here.
    pub(in crate::soft) users: u32,
    pub(in crate::soft) version: u32,
    /// The run of places: the first, and their number less one.
    pub(in crate::soft) base: usize,
    pub(in crate::soft) mask: usize,
    /// How many completions it holds.
    pub(in crate::soft) limit: usize,
    pub(in crate::soft) tail: usize,
    /// `head` as last seen.
    pub(in crate::soft) head_seen: usize,
    pub(in crate::soft) is_broken: bool,
    pub(in crate::soft) armed: Armed,
    /// Events that were raised and not taken.
    pub(in crate::soft) events: u32,
}

/// Which completion raises the next event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::soft) enum Armed {
    /// None does.
    No,
    /// Any does.
    Any,
    /// A solicited one does.
    Solicited,
}

impl Cq {
    const FREE: Self = Self {
        has_poller: false,
        users: 0,
        version: 0,
        base: 0,
        mask: 0,
        limit: 0,
        tail: 0,
        head_seen: 0,
        is_broken: false,
        armed: Armed::No,
        events: 0,
    };

    pub(in crate::soft) const fn in_use(&self) -> bool {
        self.has_poller || self.users != 0
    }
}

pub(in crate::soft) struct Engine<const QPS: usize> {
    qps: [Qp; QPS],
    cqs: [[Cq; 2]; QPS],
    pub(in crate::soft) table: Table<QPS>,
    /// How many places were ever used, and the one whose turn was last.
    pub(in crate::soft) used: u32,
    pub(in crate::soft) cursor: u32,
    pub(in crate::soft) numbers: u32,
    /// The device was taken away.
    pub(in crate::soft) is_gone: bool,
}

impl<const QPS: usize> Engine<QPS> {
    const QPS_OK: () = assert!(QPS > 0 && QPS < 1 << 20, "a device has 1 to 2^20 queue pairs");

    pub(in crate::soft) const fn new() -> Self {
        const { Self::QPS_OK }
        Self {
            qps: [Qp::FREE; QPS],
            cqs: [[Cq::FREE; 2]; QPS],
            table: Table::NEW,
            used: 0,
            cursor: 0,
            numbers: 0,
            is_gone: false,
        }
    }

    #[inline(always)]
    pub(in crate::soft) fn qp(&mut self, slot: SlotId) -> &mut Qp {
        // SAFETY: a slot's number is less than `QPS`: 0 is, and all others come from `slots`.
        unsafe { self.qps.get_unchecked_mut(slot.0 as usize) }
    }

    #[inline(always)]
    pub(in crate::soft) fn cq(&mut self, index: CqIndex) -> &mut Cq {
        // SAFETY: an index is less than `2 * QPS`: 0 is, and all others come from `queues`.
        unsafe { self.cqs.as_flattened_mut().get_unchecked_mut(index.0 as usize) }
    }

    /// All places of queue pairs.
    pub(in crate::soft) fn slots() -> impl Iterator<Item = SlotId> {
        (0..QPS as u32).map(SlotId)
    }

    /// All places of completion queues.
    pub(in crate::soft) fn queues() -> impl Iterator<Item = CqIndex> {
        (0..2 * QPS as u32).map(CqIndex)
    }

    /// The place of the queue pair whose turn it is; `used` is not 0.
    #[inline(always)]
    pub(in crate::soft) fn turn(&mut self) -> SlotId {
        let next = self.cursor.wrapping_add(1);
        self.cursor = if next < self.used { next } else { 0 };
        // Less than `used`, which is at most `QPS`: see `use_slot`.
        SlotId(self.cursor)
    }

    /// Notes that a place is used.
    pub(in crate::soft) fn use_slot(&mut self, slot: SlotId) {
        self.used = self.used.max(slot.0.wrapping_add(1));
    }

    /// The completion queue with this number.
    pub(in crate::soft) fn queue_at(index: u32) -> Option<CqIndex> {
        ((index as usize) < 2 * QPS).then_some(CqIndex(index))
    }

    /// The queue pair with this number that is in use.
    pub(in crate::soft) fn find(&self, number: u32) -> Option<SlotId> {
        let is_it = |qp: &Qp| qp.in_use && !qp.is_shared_receive && qp.number == number;
        self.qps.iter().position(is_it).map(|at| SlotId(at as u32))
    }

    /// The shared receive queue with this name.
    pub(in crate::soft) fn shared_receive(&mut self, index: u32, version: u32) -> Option<SlotId> {
        let qp = self.qps.get(index as usize)?;
        let is_it = qp.in_use && qp.is_shared_receive && qp.version == version;
        is_it.then_some(SlotId(index))
    }
}
