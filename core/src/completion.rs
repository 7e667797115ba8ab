//! Completions on their way from the device to the queues, and what a request came to.
//!
//! One thread polls a completion queue. Each [`Completion`] goes to the queue that posted the request
//! (`retire`), which then gives the request's context back together with its [`Outcome`] (`take`).
//!
//! Invariant: a completion is unique. Safe code cannot make, copy or keep one past its queue's
//! `retire`, because a queue frees buffers on its word.

use core::fmt;
use core::mem::offset_of;
use core::ptr;

use crate::abi::{QpNum, RKey, Wc, WcStatus, wc_flags, wc_opcode};
use crate::id;
use crate::port::PollPort;

/// A completion that was polled and not yet retired.
///
/// Retire it when it comes. One that is kept while 2^32 requests of its send queue end by later completions
/// is taken for that of the request behind them: an id is not longer.
#[must_use = "the request behind it ends only when its queue retires it"]
pub struct Completion(Wc);

impl Completion {
    /// Whether it belongs to a receive queue.
    #[inline(always)]
    pub const fn is_recv(&self) -> bool {
        id::is_recv(self.0.wr_id)
    }

    /// Whether it belongs to a send queue.
    #[inline(always)]
    pub const fn is_send(&self) -> bool {
        !self.is_recv()
    }

    /// The local queue pair that it came from.
    #[inline(always)]
    pub const fn qp_num(&self) -> QpNum {
        QpNum::from_raw(self.0.qp_num)
    }

    /// Whether the request did what it should.
    #[inline(always)]
    pub const fn is_success(&self) -> bool {
        self.0.status == 0
    }

    /// The status that the device gave.
    pub const fn status(&self) -> WcStatus {
        WcStatus::from_raw(self.0.status)
    }

    /// What identifies the queue, the same as [`crate::SendQueue::serial`] and
    /// [`crate::RecvQueue::serial`].
    #[inline(always)]
    pub const fn serial(&self) -> u32 {
        id::serial_of(self.0.wr_id)
    }

    /// The serial and the sequence in its id.
    #[inline(always)]
    pub(crate) const fn id(&self) -> (u32, u32) {
        id::halves(&self.0.wr_id)
    }

    #[inline(always)]
    pub(crate) const fn raw(&self) -> &Wc {
        &self.0
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completion")
            .field("id", &format_args!("{:#x}", self.0.wr_id))
            .field("status", &self.status())
            .field("qp_num", &self.0.qp_num)
            .finish()
    }
}

/// A completion that belongs to another queue, or to a request that has already ended, or that came before
/// its turn: a receive's, when the completion of one before it was dropped and not retired. It comes back
/// unharmed.
#[derive(Debug)]
pub struct Foreign(pub Completion);

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the completion belongs to another queue, or to a request that has ended")
    }
}

impl core::error::Error for Foreign {}

/// What became of a request. There is exactly one for every request that was posted.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub enum Outcome {
    /// It did what it should.
    Done(Success),
    /// It failed, and its queue is closed.
    Failed(Failure),
    /// It did nothing, because the queue pair had failed or was closing (`IBV_WC_WR_FLUSH_ERR`).
    Flushed,
    /// The queue pair was destroyed before its completion came. Whether it did anything is not
    /// known.
    Abandoned,
}

impl Outcome {
    /// What it brought, if it did what it should.
    pub const fn success(&self) -> Option<&Success> {
        match self {
            Self::Done(success) => Some(success),
            _ => None,
        }
    }

    /// Whether it did what it should.
    pub const fn is_done(&self) -> bool {
        matches!(self, Self::Done(_))
    }
}

/// A request that has ended: what became of it, and the context that went in with it.
#[derive(Debug)]
#[must_use = "the context is in here"]
pub struct Ended<C> {
    /// What became of it.
    pub outcome: Outcome,
    /// What went in at the post.
    pub context: C,
}

/// Which kind of request it was, as the queue remembers it. A device's own word on a failed request
/// means nothing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Operation {
    /// A SEND.
    Send,
    /// An RDMA WRITE.
    Write,
    /// An RDMA READ.
    Read,
    /// A fetch-and-add or compare-and-swap.
    Atomic,
    /// Something that stays on this side: an invalidate or a memory window bind.
    Local,
    /// A receive.
    Recv,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Send => "SEND",
            Self::Write => "RDMA WRITE",
            Self::Read => "RDMA READ",
            Self::Atomic => "atomic",
            Self::Local => "local operation",
            Self::Recv => "receive",
        })
    }
}

/// What a request brought that did what it should.
#[derive(Clone, Copy, Debug)]
pub struct Success {
    pub(crate) operation: Operation,
    pub(crate) len: u32,
    pub(crate) flags: u32,
    pub(crate) imm_data: u32,
    pub(crate) src_qp: u32,
    pub(crate) opcode: u32,
}

impl Success {
    /// What a request of the send queue brings.
    #[inline(always)]
    pub(crate) const fn sent(operation: Operation, len: u32) -> Self {
        Self { operation, len, flags: 0, imm_data: 0, src_qp: 0, opcode: 0 }
    }

    /// The kind of request.
    pub const fn operation(&self) -> Operation {
        self.operation
    }

    /// How many bytes arrived: by a receive (or by the WRITE with immediate that ended it), a READ
    /// or an atomic. `None` for requests that bring nothing.
    #[inline(always)]
    pub const fn byte_len(&self) -> Option<u32> {
        match self.operation {
            Operation::Recv | Operation::Read | Operation::Atomic => Some(self.len),
            Operation::Send | Operation::Write | Operation::Local => None,
        }
    }

    /// The four bytes that came beside a message, in this machine's order.
    pub const fn immediate(&self) -> Option<u32> {
        if self.flags & wc_flags::WITH_IMM != 0 { Some(u32::from_be(self.imm_data)) } else { None }
    }

    /// The key that the peer invalidated with its message.
    pub const fn invalidated(&self) -> Option<RKey> {
        if self.flags & wc_flags::WITH_INV != 0 {
            Some(RKey::from_raw(self.imm_data))
        } else {
            None
        }
    }

    /// Whether a WRITE with immediate ended the receive: its buffer is untouched then, and
    /// [`Success::byte_len`] is what was written elsewhere.
    pub const fn is_write(&self) -> bool {
        matches!(self.operation, Operation::Recv) && self.opcode == wc_opcode::RECV_RDMA_WITH_IMM
    }

    /// The sender's queue pair, for datagrams.
    pub const fn source(&self) -> QpNum {
        QpNum::from_raw(self.src_qp)
    }
}

/// Why a request failed. There is no length and no immediate: on a failed completion the device
/// leaves rubbish there.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Failure {
    pub(crate) operation: Operation,
    pub(crate) status: WcStatus,
    pub(crate) vendor: u32,
}

impl Failure {
    /// The kind of request, as it was posted.
    pub const fn operation(&self) -> Operation {
        self.operation
    }

    /// The device's word on it.
    pub const fn status(&self) -> WcStatus {
        self.status
    }

    /// A code of the device's maker, for its support.
    pub const fn vendor_code(&self) -> u32 {
        self.vendor
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, status, vendor } = self;
        write!(f, "{operation} failed: {status} (vendor code {vendor:#x})")
    }
}

impl core::error::Error for Failure {}

/// A completion queue and the array that it is polled into. `BATCH` completions are fetched at most
/// at a time.
///
/// Moves between threads, and is used by one: who polls owns it (`ibv_poll_cq` would allow several
/// threads, but then one takes what the other waits for).
#[doc(alias = "ibv_cq")]
pub struct Completions<P, const BATCH: usize = 16> {
    entries: [Wc; BATCH],
    left: Left,
    capacity: u32,
    reserved: u32,
    port: P,
}

impl<P: PollPort, const BATCH: usize> Completions<P, BATCH> {
    const BATCH_OK: () =
        assert!(BATCH >= 1 && BATCH <= 1024, "a batch is between 1 and 1,024 completions");

    /// A completion queue with room for `capacity` completions, polled through `port`.
    pub const fn new(port: P, capacity: u32) -> Self {
        const { Self::BATCH_OK }
        Self {
            entries: [Wc::EMPTY; BATCH],
            left: Left { gate: Gate::of(BATCH as u32), count: 0, at: 0 },
            capacity,
            reserved: 0,
            port,
        }
    }

    /// Sets room aside for a queue with `slots` requests in flight at most, before it is created on
    /// this completion queue.
    ///
    /// # Errors
    ///
    /// [`CqTooSmall`] when the queues together could overrun it; nothing is set aside then.
    pub const fn attach(&mut self, slots: u32) -> Result<(), CqTooSmall> {
        let need = self.reserved as u64 + slots as u64;
        if need > self.capacity as u64 {
            return Err(CqTooSmall { need, have: self.capacity });
        }
        self.reserved += slots;
        Ok(())
    }

    /// Gives the room of a queue back that is gone, with all its completions polled.
    pub const fn detach(&mut self, slots: u32) {
        self.reserved = self.reserved.saturating_sub(slots);
    }

    /// Fetches completions, at most `BATCH`, and never waits. What an earlier batch has left over
    /// comes first.
    ///
    /// # Errors
    ///
    /// [`PollError`] when the device refuses. The completion queue is beyond repair then.
    #[doc(alias = "ibv_poll_cq")]
    #[inline(always)]
    pub fn poll(&mut self) -> Result<Batch<'_>, PollError> {
        // SAFETY: the gate lets BATCH entries pass, or none.
        let into = unsafe { self.entries.get_unchecked_mut(..self.left.gate.room()) };
        let count = self.port.poll(into);
        let filled = match count as u32 {
            filled if filled < self.left.gate.end() => filled,
            _ => self.not_polled(count)?,
        };
        // SAFETY: at most BATCH, both ways.
        let entries = unsafe { self.entries.get_unchecked(..filled as usize) };
        Ok(Batch { entries, left: &mut self.left })
    }

    /// Moves what a dropped batch has left over to the front, and says how many. When that is nothing, `polled`
    /// is the device's refusal: negative. A port never gives more than it was asked for; if it did, the rest was
    /// never written.
    #[cold]
    #[inline(never)]
    fn not_polled(&mut self, polled: i32) -> Result<u32, PollError> {
        let Left { count, at, .. } = self.left;
        if count == 0 {
            return if polled < 0 { Err(PollError { code: polled }) } else { Ok(BATCH as u32) };
        }
        self.left = Left { gate: Gate::of(BATCH as u32), count: 0, at: 0 };
        // From the start of the array on, and in entries.
        let bytes = at.wrapping_add(offset_of!(Self, left)).wrapping_sub(offset_of!(Self, entries));
        let from = bytes / size_of::<Wc>();
        for at in 0..count {
            let entry = self.entries.get(from.wrapping_add(at)).copied();
            if let (Some(place), Some(entry)) = (self.entries.get_mut(at), entry) {
                *place = entry;
            }
        }
        Ok(count as u32)
    }

    /// How many completions there is room for.
    pub(crate) const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The port, to arm or to ask something of.
    pub const fn port(&self) -> &P {
        &self.port
    }

    /// The port, to arm or to ask something of.
    pub const fn port_mut(&mut self) -> &mut P {
        &mut self.port
    }
}

impl<P, const BATCH: usize> fmt::Debug for Completions<P, BATCH> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completions")
            .field("left", &self.left.count)
            .field("capacity", &self.capacity)
            .field("reserved", &self.reserved)
            .finish_non_exhaustive()
    }
}

/// What a dropped batch has left over: `count` entries, the first of which is `at` bytes behind this.
///
/// A distance, and not an index: who drops a batch knows it without knowing how long the batch was, which
/// nobody has to keep then.
#[derive(Debug)]
struct Left {
    gate: Gate,
    count: usize,
    at: usize,
}

/// How many completions a poll asks for, and one more. Both are 0 while something is left over: then a poll asks
/// for nothing, and no count is below the end. So one compare finds what is left over and what is no count.
///
/// An array, because one store shuts it. Compilers put the end of a batch into each path that a panic may take,
/// and keep the whole batch in memory when that is more than a few instructions.
#[derive(Debug)]
struct Gate([u32; 2]);

impl Gate {
    const SHUT: Self = Self([0; 2]);

    const fn of(batch: u32) -> Self {
        Self([batch, batch + 1])
    }

    #[inline(always)]
    const fn room(&self) -> usize {
        self.0[0] as usize
    }

    #[inline(always)]
    const fn end(&self) -> u32 {
        self.0[1]
    }
}

/// The completions of one poll. What is not taken out stays for the next one; with a batch that is
/// forgotten, its completions are.
#[derive(Debug)]
pub struct Batch<'a> {
    entries: &'a [Wc],
    left: &'a mut Left,
}

impl Iterator for Batch<'_> {
    type Item = Completion;

    #[inline(always)]
    fn next(&mut self) -> Option<Completion> {
        let (first, rest) = self.entries.split_first()?;
        self.entries = rest;
        Some(Completion(*first))
    }

    #[inline(always)]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.entries.len(), Some(self.entries.len()))
    }
}

impl Drop for Batch<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        let count = self.entries.len();
        if count != 0 {
            let (entry, left) = (self.entries.as_ptr(), ptr::from_ref(self.left));
            *self.left =
                Left { gate: Gate::SHUT, count, at: entry.addr().wrapping_sub(left.addr()) };
        }
    }
}

impl ExactSizeIterator for Batch<'_> {}

/// A completion queue could be overrun by the queues on it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CqTooSmall {
    /// How many completions could be outstanding.
    pub need: u64,
    /// How many it holds.
    pub have: u32,
}

impl fmt::Display for CqTooSmall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { need, have } = self;
        write!(f, "the completion queue holds {have} completions, and its queues need {need}")
    }
}

impl core::error::Error for CqTooSmall {}

/// The device refused to be polled.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PollError {
    /// What it returned, negative.
    pub code: i32,
}

impl fmt::Display for PollError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "polling the completion queue failed with code {}", self.code)
    }
}

impl core::error::Error for PollError {}
