//! The send queue: reserve, push, submit, retire, take.
//!
//! One thread owns a queue and its port. The storage of the slots is borrowed, so the caller places
//! it: a `static`, a `Box`, a huge page. The twin is [`crate::RecvQueue`].
//!
//! Invariants, in wrapping arithmetic of sequences:
//!
//! * `taken ≤ ended ≤ head`, and `head - taken ≤ depth ≤ N`: slots in `taken..head` hold a context;
//!   those in `ended..head` are in flight, those in `taken..ended` wait to be taken.
//! * A slot's context moves out by `take`, by a refused push, or by the end of an unsubmitted chain;
//!   nowhere else.
//! * The silent run behind the last signaled request is shorter than `period` whenever no chain is
//!   open, or the next chain's first request is signaled.

use core::fmt;
use core::marker::PhantomData;
use core::mem::{self, ManuallyDrop, MaybeUninit};
use core::num::{NonZeroU8, NonZeroU16};
use core::ptr::{self, NonNull};

use crate::abi::{SendWr, Sge, WcStatus, send_flags};
use crate::completion::{Completion, Ended, Failure, Foreign, Outcome, Success};
use crate::context::SliceList;
use crate::group::SendSeat;
use crate::id::{NextId, Serial};
use crate::leak;
use crate::op;
use crate::port::SendPort;
use crate::refusal::{Cause, ConfigError, PushError, Rejected, ReserveError, SubmitError};
use crate::region::{Domain, Tag};
use crate::slot::{End, Meta};
use crate::staging::{self, SendLink};

/// The numbers of a send queue: what was granted by the device, and how the queue shall behave.
#[derive(Clone, Copy, Debug)]
pub struct SendConfig {
    domain: Domain,
    depth: u32,
    chain: u16,
    period: u16,
    max_sges: u8,
    max_read_sges: u8,
    max_inline: u16,
    max_message: u32,
    reads: u8,
}

impl SendConfig {
    /// A queue of a queue pair in `domain`, as deep as its storage, without READs and inline data.
    pub const fn new(domain: Domain) -> Self {
        Self {
            domain,
            depth: u32::MAX,
            chain: 0,
            period: 0,
            max_sges: u8::MAX,
            max_read_sges: u8::MAX,
            max_inline: 0,
            max_message: 1 << 31,
            reads: 0,
        }
    }

    /// How many requests may be in flight: the least of what was asked for and what was granted.
    /// The storage is a bound as well.
    #[must_use]
    pub const fn depth(mut self, requests: u32) -> Self {
        self.depth = requests;
        self
    }

    /// The longest chain; by default a quarter of the depth, and one.
    #[must_use]
    pub const fn chain(mut self, requests: u16) -> Self {
        self.chain = requests;
        self
    }

    /// A chain's last request is signaled, asked for or not, when this many in a row would be
    /// silent; by default half of the depth.
    #[must_use]
    pub const fn period(mut self, requests: u16) -> Self {
        self.period = requests;
        self
    }

    /// Pieces of a request (`max_send_sge` as granted), and of a READ (`max_sge_rd` of the device).
    #[must_use]
    pub const fn max_sges(mut self, any: u8, read: u8) -> Self {
        self.max_sges = any;
        self.max_read_sges = if read < any { read } else { any };
        self
    }

    /// Bytes that may travel inline (`max_inline_data` as granted).
    #[must_use]
    pub const fn max_inline(mut self, bytes: u16) -> Self {
        self.max_inline = bytes;
        self
    }

    /// The longest message in bytes (`max_msg_sz` of the port).
    #[must_use]
    pub const fn max_message(mut self, bytes: u32) -> Self {
        self.max_message = bytes;
        self
    }

    /// READs and atomics that may be outstanding, as negotiated when connecting.
    #[must_use]
    pub const fn reads(mut self, outstanding: u8) -> Self {
        self.reads = outstanding;
        self
    }
}

/// Storage for the requests in flight of one send queue: `N` slots, a power of two.
///
/// A queue borrows it for its whole life and gives it back by [`SendQueue::into_storage`].
#[repr(C, align(64))]
pub struct SendSlots<C, const N: usize>([SendSlot<C>; N]);

struct SendSlot<C> {
    meta: Meta,
    context: MaybeUninit<C>,
}

impl<C, const N: usize> SendSlots<C, N> {
    const DEPTH_OK: () =
        assert!(N.is_power_of_two() && N <= 32768, "the depth is a power of two up to 32,768");

    /// Empty slots.
    pub const fn new() -> Self {
        const { Self::DEPTH_OK }
        Self([const { SendSlot { meta: Meta::EMPTY, context: MaybeUninit::uninit() } }; N])
    }
}

impl<C, const N: usize> Default for SendSlots<C, N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<C, const N: usize> fmt::Debug for SendSlots<C, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendSlots").field("depth", &N).finish_non_exhaustive()
    }
}

/// What the hot path touches: one cache line with a port of 16 bytes.
#[repr(C, align(64))]
struct Hot<P, C> {
    port: P,
    slots: NonNull<SendSlot<C>>,
    /// The id of the next request: the head, and the serial above it.
    next: NextId,
    taken: u32,
    ended: u32,
    /// The sequence behind the last signaled request: from there on all are silent.
    loud: u32,
    domain: Tag,
    /// 0 when no pieces were granted: a message that has bytes is refused then.
    max_message: u32,
    /// The usable depth; 0 while not connected and once closed.
    limit: u16,
    /// A run of silent requests ends before it is that long; 0 while it already is, which only a partly
    /// accepted chain brings about: then the next chain's first request is signaled.
    period: u16,
    chain: NonZeroU16,
    max_inline: u16,
    max_sges: NonZeroU8,
    max_read_sges: u8,
    reads: u8,
    max_reads: u8,
}

#[cfg(target_pointer_width = "64")]
static_assertions::const_assert_eq!(size_of::<Hot<[usize; 2], u64>>(), 64);

/// What only set-up and failures touch.
#[derive(Debug)]
struct Cold {
    depth: u16,
    period: u16,
    /// As granted; 1 in the hot state when none are.
    max_sges: u8,
    closed: Option<Cause>,
    first_failure: Option<(u32, Failure)>,
}

/// A send queue: its port, and the contexts of the requests in flight.
///
/// A dropped queue drops the contexts of requests that have ended; those still in flight are
/// leaked and counted ([`crate::leaked_contexts`]), because a device may still use their memory.
#[doc(alias = "ibv_qp")]
pub struct SendQueue<'s, P, C, const N: usize> {
    hot: Hot<P, C>,
    cold: Cold,
    storage: PhantomData<&'s mut SendSlots<C, N>>,
}

// SAFETY: the queue is the exclusive borrower of its slots; contexts and port move with it.
unsafe impl<P: Send, C: Send, const N: usize> Send for SendQueue<'_, P, C, N> {}

impl<'s, P: SendPort, C, const N: usize> SendQueue<'s, P, C, N> {
    const MASK: u32 = (N as u32).wrapping_sub(1);

    /// A queue over `slots` that posts through `port`. Posts are refused as [`ReserveError::NotConnected`]
    /// until [`SendQueue::open`].
    ///
    /// # Errors
    ///
    /// [`ConfigError`] when the numbers could wedge the queue.
    pub fn new(
        port: P,
        slots: &'s mut SendSlots<C, N>,
        config: SendConfig,
    ) -> Result<Self, ConfigError> {
        Self::with_serial(port, slots, config, Serial::send())
    }

    /// The same for a member of a [`crate::Group`]: with the seat's identity, and no deeper than
    /// the seat.
    ///
    /// # Errors
    ///
    /// As [`SendQueue::new`]; the member is one until it leaves.
    pub fn with_seat(
        port: P,
        slots: &'s mut SendSlots<C, N>,
        config: SendConfig,
        seat: SendSeat,
    ) -> Result<Self, ConfigError> {
        let (serial, depth) = seat.take();
        let depth = config.depth.min(depth);
        Self::with_serial(port, slots, config.depth(depth), serial)
    }

    fn with_serial(
        port: P,
        slots: &'s mut SendSlots<C, N>,
        config: SendConfig,
        serial: Serial,
    ) -> Result<Self, ConfigError> {
        let depth = config.depth.min(N as u32);
        if depth == 0 {
            return Err(ConfigError::NoDepth);
        }
        // Both fit: the depth is at most 32,768.
        let period = if config.period == 0 { (depth / 2).max(1) as u16 } else { config.period };
        let chain = if config.chain == 0 { (depth / 4 + 1) as u16 } else { config.chain };
        let (depth, Some(chain)) = (depth as u16, NonZeroU16::new(chain)) else {
            return Err(ConfigError::NoDepth);
        };
        if u32::from(period) + 2 * u32::from(chain.get()) > u32::from(depth) + 2 {
            let (period, chain) = (period.into(), chain.get().into());
            return Err(ConfigError::CouldWedge { period, chain, depth: depth.into() });
        }
        let (max_sges, max_message) = match NonZeroU8::new(config.max_sges) {
            Some(granted) => (granted, config.max_message),
            None => (NonZeroU8::MIN, 0),
        };
        let hot = Hot {
            port,
            slots: NonNull::from(slots).cast(),
            next: NextId::first(serial),
            taken: 0,
            ended: 0,
            loud: 0,
            domain: Tag::of(config.domain),
            max_message,
            limit: 0,
            period,
            chain,
            max_inline: config.max_inline,
            max_sges,
            max_read_sges: config.max_read_sges,
            reads: 0,
            max_reads: config.reads,
        };
        let max_sges = config.max_sges;
        let cold = Cold { depth, period, max_sges, closed: None, first_failure: None };
        Ok(Self { hot, cold, storage: PhantomData })
    }

    /// The queue pair is connected: posts are taken from now on. Does nothing once closed.
    pub const fn open(&mut self) {
        if self.cold.closed.is_none() {
            self.hot.limit = self.cold.depth;
        }
    }

    /// Sets how many READs and atomics may be outstanding, once the connection has negotiated it.
    pub const fn set_reads(&mut self, outstanding: u8) {
        self.hot.max_reads = outstanding;
    }

    /// Starts a chain of up to `n` requests: checks the room for all of them at once.
    ///
    /// # Errors
    ///
    /// [`ReserveError`]; nothing has changed then.
    #[inline(always)]
    pub fn reserve<'q, const CHAIN: usize, const SGES: usize>(
        &'q mut self,
        staging: &'q mut SendLink<'_, CHAIN, SGES>,
        n: usize,
    ) -> Result<SendChain<'q, 's, P, C, N, CHAIN, SGES>, ReserveError> {
        let next = self.hot.next;
        // At most 32,768 and, where it is looked at, 1,024 more: 16 bits hold it.
        let used = next.sequence().wrapping_add(n as u32).wrapping_sub(self.hot.taken) as u16;
        // The limit is 0 while posts are refused.
        if n > CHAIN || n > usize::from(self.hot.chain.get()) || used > self.hot.limit {
            return Err(self.no_room(n, CHAIN));
        }
        let staging = staging.reborrow();
        let entry = CHAIN.wrapping_sub(n).wrapping_mul(SendLink::<CHAIN, SGES>::STEP);
        Ok(SendChain {
            first: entry,
            next: entry,
            start: next,
            id: next,
            loud: self.hot.loud,
            behind_read: 0,
            reads: 0,
            queue: self,
            staging,
        })
    }

    #[cold]
    #[inline(never)]
    fn no_room(&self, n: usize, staging: usize) -> ReserveError {
        let asked = u32::try_from(n).unwrap_or(u32::MAX);
        let max = (staging as u32).min(self.hot.chain.get().into());
        if let Some(cause) = self.cold.closed {
            ReserveError::Closed(cause)
        } else if self.hot.limit == 0 {
            ReserveError::NotConnected
        } else if asked > max {
            ReserveError::ChainTooLong { asked, max }
        } else {
            ReserveError::Full { asked, free: self.free() }
        }
    }

    /// Marks what `completion` ends: its request, and the silent ones before it. Says how many.
    ///
    /// # Errors
    ///
    /// [`Foreign`] with the completion when it is not of this queue or of a request in flight;
    /// nothing has changed then.
    #[inline(always)]
    pub fn retire(&mut self, completion: Completion) -> Result<u32, Foreign> {
        let (serial, sequence) = completion.id();
        let (ours, head) = self.hot.next.halves();
        let before = sequence.wrapping_sub(self.hot.ended);
        // In `ended..head`: both differences are far below 2^31.
        let in_flight = (before as i32) >= 0 && (sequence.wrapping_sub(head) as i32) < 0;
        if serial != ours || !in_flight {
            return Err(Foreign(completion));
        }
        if !completion.is_success() {
            self.mark_failed(sequence, completion.raw().status, completion.raw().vendor_err);
        }
        self.hot.ended = sequence.wrapping_add(1);
        Ok(before.wrapping_add(1))
    }

    /// Everything before the first failed request was done; after it, it was flushed.
    #[cold]
    #[inline(never)]
    fn mark_failed(&mut self, sequence: u32, status: u32, vendor: u32) {
        if self.cold.first_failure.is_some() {
            self.mark(self.hot.ended, sequence, End::Flushed);
        }
        let status = WcStatus::from_raw(status);
        let slot = self.slot(sequence);
        // SAFETY: `sequence` is in flight, so its slot is initialised.
        let meta = unsafe { &mut (*slot).meta };
        if status == WcStatus::Flushed {
            meta.set_end(End::Flushed);
            self.shut(Cause::Flushed);
        } else {
            meta.set_end(End::Failed);
            meta.len = status.to_raw();
            let failure = Failure { operation: meta.operation, status, vendor };
            self.shut(Cause::Failed(failure));
            self.cold.first_failure.get_or_insert((sequence, failure));
        }
    }

    fn mark(&mut self, from: u32, to: u32, end: End) {
        let mut sequence = from;
        while sequence != to {
            // SAFETY: the callers pass ranges in flight, whose slots are initialised.
            unsafe { (*self.slot(sequence)).meta.set_end(end) };
            sequence = sequence.wrapping_add(1);
        }
    }

    /// Takes the oldest request that has ended.
    #[inline(always)]
    pub fn take(&mut self) -> Option<Ended<C>> {
        let sequence = self.hot.taken;
        if sequence == self.hot.ended {
            return None;
        }
        let slot = self.slot(sequence);
        // SAFETY: `taken != ended`, so this slot holds an initialised context, which moves out here
        // and nowhere else, because `taken` passes it.
        let context = unsafe { (*slot).context.assume_init_read() };
        self.hot.taken = sequence.wrapping_add(1);
        // SAFETY: as above; the meta was written by the push.
        let meta = unsafe { &(*slot).meta };
        let outcome = if meta.is_plain() {
            Outcome::Done(Success::sent(meta.operation, meta.len))
        } else {
            self.hot.reads = self.hot.reads.wrapping_sub(meta.credit());
            match meta.end() {
                End::Done => Outcome::Done(Success::sent(meta.operation, meta.len)),
                _ => self.not_done(sequence, *meta),
            }
        };
        Some(Ended { context, outcome })
    }

    #[cold]
    #[inline(never)]
    fn not_done(&self, sequence: u32, meta: Meta) -> Outcome {
        match meta.end() {
            End::Failed => Outcome::Failed(match self.cold.first_failure {
                Some((first, failure)) if first == sequence => failure,
                // Only the first failure's vendor code is kept.
                _ => Failure {
                    operation: meta.operation,
                    status: WcStatus::from_raw(meta.len),
                    vendor: 0,
                },
            }),
            End::Abandoned => Outcome::Abandoned,
            End::Done | End::Flushed => Outcome::Flushed,
        }
    }

    /// Refuses all posts from now on. What is in flight stays so until its completions come.
    pub fn close(&mut self) {
        self.shut(Cause::ByOwner);
    }

    fn shut(&mut self, cause: Cause) {
        self.hot.limit = 0;
        // A failure says more than the flush or the close that came with it.
        let keep = matches!(self.cold.closed, Some(Cause::Failed(_) | Cause::Unknown { .. }));
        if !keep {
            self.cold.closed = Some(cause);
        }
    }

    /// Ends everything in flight as [`Outcome::Abandoned`], to be taken.
    ///
    /// # Safety
    ///
    /// The queue pair is destroyed, both halves, so no device uses the buffers any more
    /// (`ibv_destroy_qp(3)`), and no completion of it will be retired here.
    pub unsafe fn abandon(&mut self) {
        self.mark(self.hot.ended, self.hot.next.sequence(), End::Abandoned);
        self.hot.ended = self.hot.next.sequence();
        self.shut(Cause::Gone);
    }

    /// Gives port and storage back, when every context has been taken.
    ///
    /// # Errors
    ///
    /// The queue, when a request is in flight or waits to be taken.
    pub fn into_storage(self) -> Result<(P, &'s mut SendSlots<C, N>), Self> {
        if self.hot.next.sequence() != self.hot.taken {
            return Err(self);
        }
        let queue = ManuallyDrop::new(self);
        // SAFETY: the queue is not used or dropped again, so the port moves out once.
        let port = unsafe { ptr::read(&queue.hot.port) };
        // SAFETY: the storage was borrowed for `'s` by `new`, and no slot holds a context.
        let slots = unsafe { queue.hot.slots.cast().as_mut() };
        Ok((port, slots))
    }

    #[inline(always)]
    fn slot(&self, sequence: u32) -> *mut SendSlot<C> {
        // SAFETY: the mask keeps the index below N.
        unsafe { self.hot.slots.as_ptr().add((sequence & Self::MASK) as usize) }
    }
}

impl<P, C, const N: usize> SendQueue<'_, P, C, N> {
    /// Refuses a piece of the context that `push` has just moved into `slot`.
    #[cold]
    #[inline(never)]
    fn refuse_piece<O: op::Operation<C>>(&self, slot: *mut SendSlot<C>, row: u32) -> Rejected<C> {
        self.refuse::<O>(slot, row)
    }

    /// Refuses the number of pieces or their length. A function of its own, because compilers merge
    /// branches that lead to the same call, and pay for it where nothing is refused.
    #[cold]
    #[inline(never)]
    fn refuse_size<O: op::Operation<C>>(&self, slot: *mut SendSlot<C>, row: u32) -> Rejected<C> {
        self.refuse::<O>(slot, row)
    }

    /// Looks at the pieces once more, so that a good request remembers nothing of them, and moves the
    /// context out of its slot again.
    fn refuse<O: op::Operation<C>>(&self, slot: *mut SendSlot<C>, row: u32) -> Rejected<C> {
        // SAFETY: the slot was written by `push`, and counts as free again.
        let context = unsafe { (*slot).context.assume_init_read() };
        let mut list = SliceList::inspector(self.hot.domain, op::wanted::<O>());
        O::names(&context, &mut list);
        let granted = if O::READS { self.hot.max_read_sges } else { self.cold.max_sges };
        let error = list.refusal(u32::from(granted).min(row), self.hot.max_message.into());
        Rejected { context, error }
    }

    /// What is wrong with pieces that were made by hand.
    #[cold]
    #[inline(never)]
    fn raw_fault(&self, count: usize, most: u32, total: u64) -> PushError {
        let max = most.min(self.cold.max_sges.into());
        if count > max as usize {
            PushError::TooManySges { given: u32::try_from(count).unwrap_or(u32::MAX), max }
        } else {
            PushError::MessageTooLong { total, max: self.hot.max_message.into() }
        }
    }

    /// Requests that the device still has.
    pub const fn in_flight(&self) -> u32 {
        self.hot.next.sequence().wrapping_sub(self.hot.ended)
    }

    /// Requests in flight behind the last signaled one. When they succeed nothing says so before a signaled
    /// one follows: who closes a queue need not wait for them.
    pub const fn silent(&self) -> u32 {
        let (behind, all) =
            (self.hot.next.sequence().wrapping_sub(self.hot.loud), self.in_flight());
        if behind < all { behind } else { all }
    }

    /// Requests that have ended and wait to be taken.
    pub const fn ended(&self) -> u32 {
        self.hot.ended.wrapping_sub(self.hot.taken)
    }

    /// Requests that may be posted now.
    pub const fn free(&self) -> u32 {
        (self.hot.limit as u32)
            .saturating_sub(self.hot.next.sequence().wrapping_sub(self.hot.taken))
    }

    /// Requests that may be in flight at a time.
    pub const fn depth(&self) -> u32 {
        self.cold.depth as u32
    }

    /// READs and atomics that may be outstanding, and how many of them are.
    pub const fn reads(&self) -> (u32, u32) {
        (self.hot.max_reads as u32, self.hot.reads as u32)
    }

    /// Why posts are refused, if they are.
    pub const fn closed(&self) -> Option<Cause> {
        self.cold.closed
    }

    /// What identifies this queue in its completions, unique in the process.
    pub const fn serial(&self) -> u32 {
        self.hot.next.serial().number()
    }

    /// The port.
    pub const fn port(&self) -> &P {
        &self.hot.port
    }
}

impl<P, C, const N: usize> Drop for SendQueue<'_, P, C, N> {
    fn drop(&mut self) {
        leak::count(self.in_flight());
        let mask = (N as u32).wrapping_sub(1);
        let next = || {
            if self.hot.taken == self.hot.ended {
                return None;
            }
            let index = (self.hot.taken & mask) as usize;
            self.hot.taken = self.hot.taken.wrapping_add(1);
            // SAFETY: `taken != ended` before the step, so the slot held a context; it moves out
            // once, because `taken` has passed it.
            Some(unsafe { (*self.hot.slots.as_ptr().add(index)).context.assume_init_read() })
        };
        leak::hand_on(next, drop);
    }
}

impl<P, C, const N: usize> fmt::Debug for SendQueue<'_, P, C, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendQueue")
            .field("in_flight", &self.in_flight())
            .field("ended", &self.ended())
            .field("free", &self.free())
            .field("cold", &self.cold)
            .finish_non_exhaustive()
    }
}

/// Requests that are being built, to be posted together. Dropped, it drops their contexts and nothing
/// was posted.
#[must_use = "a chain does nothing until it is submitted"]
pub struct SendChain<'q, 's, P: SendPort, C, const N: usize, const CHAIN: usize, const SGES: usize>
{
    queue: &'q mut SendQueue<'s, P, C, N>,
    staging: SendLink<'q, CHAIN, SGES>,
    /// The places of the first request and of the next one.
    first: usize,
    next: usize,
    /// The id of the first request, whose sequence is the queue's head, and that of the next one.
    start: NextId,
    id: NextId,
    /// The sequence behind the last signaled request: from there on all are silent.
    loud: u32,
    reads: u32,
    /// The sequence behind the last READ.
    behind_read: u32,
}

impl<P: SendPort, C, const N: usize, const CHAIN: usize, const SGES: usize>
    SendChain<'_, '_, P, C, N, CHAIN, SGES>
{
    /// Adds a request whose buffers `context` owns.
    ///
    /// # Errors
    ///
    /// [`Rejected`] with the context; the chain is as it was.
    #[inline(always)]
    pub fn push<O: op::Operation<C>>(
        &mut self,
        operation: O,
        context: C,
    ) -> Result<(), Rejected<C>> {
        if self.next == SendLink::<CHAIN, SGES>::END {
            return Err(Rejected { context, error: PushError::ChainFull });
        }
        let slot = self.queue.slot(self.id.sequence());
        // SAFETY: `reserve` found this slot free, so nothing is overwritten that needs a drop.
        let context = unsafe { (*slot).context.write(context) };
        // SAFETY: the row has SGES entries and is borrowed by the chain.
        let mut list = unsafe {
            SliceList::new(
                self.staging.row_at(self.next),
                SGES as u32,
                self.queue.hot.domain,
                op::wanted::<O>(),
            )
        };
        O::names(context, &mut list);
        if list.is_faulty() {
            return Err(self.queue.refuse_piece::<O>(slot, SGES as u32));
        }
        let (count, total) = (list.count(), list.total());
        if count > self.most_sges::<O>()
            || count > SGES as u32
            || total > u64::from(self.queue.hot.max_message)
        {
            return Err(self.queue.refuse_size::<O>(slot, SGES as u32));
        }
        if let Err(error) = self.check(&operation, count, total) {
            // SAFETY: written above, and the slot stays free.
            let context = unsafe { (*slot).context.assume_init_read() };
            return Err(Rejected { context, error });
        }
        self.stage(operation, slot, count, total as u32, 0);
        Ok(())
    }

    /// Adds a request whose payload is copied while it is posted: the bytes of `context` itself.
    ///
    /// # Errors
    ///
    /// [`Rejected`] with the context; the chain is as it was.
    #[doc(alias = "IBV_SEND_INLINE")]
    #[inline(always)]
    pub fn push_inline<O: op::InlineOperation>(
        &mut self,
        operation: O,
        context: C,
    ) -> Result<(), Rejected<C>>
    where
        C: AsRef<[u8]>,
    {
        if self.next == SendLink::<CHAIN, SGES>::END {
            return Err(Rejected { context, error: PushError::ChainFull });
        }
        let slot = self.queue.slot(self.id.sequence());
        // SAFETY: `reserve` found this slot free, so nothing is overwritten that needs a drop.
        let context = unsafe { (*slot).context.write(context) };
        let bytes = bytes_of(context);
        let (start, given) = (bytes.as_ptr(), bytes.len() as u64);
        let max = u32::from(self.queue.hot.max_inline);
        let fits = if given > u64::from(max) {
            Err(PushError::InlineTooLong { given, max })
        } else if given > 0 && (SGES == 0 || self.queue.hot.max_message == 0) {
            Err(PushError::TooManySges { given: 1, max: 0 })
        } else {
            self.check(&operation, u32::from(given > 0), given)
        };
        if let Err(error) = fits {
            // SAFETY: written above, and the slot stays free.
            let context = unsafe { (*slot).context.assume_init_read() };
            return Err(Rejected { context, error });
        }
        let count = u32::from(given > 0);
        if count > 0 {
            let sge = Sge::new(start.cast_mut(), given as u32, crate::LKey::from_raw(0));
            // SAFETY: the row has an entry, as checked above, and is borrowed by the chain. The bytes
            // stay where they are until `submit`: the context rests in its slot.
            unsafe { self.staging.row_at(self.next).write(sge) };
        }
        self.stage(operation, slot, count, given as u32, send_flags::INLINE);
        Ok(())
    }

    /// Adds a request made of pieces by hand, as C does. The context need not own anything.
    ///
    /// # Errors
    ///
    /// [`Rejected`] with the context; the chain is as it was. Domain and rights are not checked.
    ///
    /// # Safety
    ///
    /// The memory that `sges` names is registered with their keys and stays valid, registered and
    /// untouched until the context has been taken (`ibv_post_send(3)`).
    #[inline(always)]
    pub unsafe fn push_raw<O: op::Header>(
        &mut self,
        operation: O,
        sges: &[Sge],
        context: C,
    ) -> Result<(), Rejected<C>> {
        let count = sges.len();
        let most = self.most_sges::<O>();
        let mut total = 0_u64;
        for sge in sges {
            total = total.wrapping_add(u64::from(sge.length));
        }
        if self.next == SendLink::<CHAIN, SGES>::END {
            return Err(Rejected { context, error: PushError::ChainFull });
        }
        // A queue without pieces has a longest message of 0, and refuses those without a length as well.
        let weight = total.max(u64::from(count != 0));
        if count > SGES || count > most as usize || weight > u64::from(self.queue.hot.max_message) {
            let error = self.queue.raw_fault(count, most.min(SGES as u32), total);
            return Err(Rejected { context, error });
        }
        if let Err(error) = self.check(&operation, count as u32, total) {
            return Err(Rejected { context, error });
        }
        let slot = self.queue.slot(self.id.sequence());
        // SAFETY: `reserve` found this slot free, so nothing is overwritten that needs a drop.
        unsafe { (*slot).context.write(context) };
        for (index, sge) in sges.iter().enumerate() {
            // SAFETY: at most SGES pieces, as checked above; the row is borrowed by the chain.
            unsafe { self.staging.row_at(self.next).add(index).write(*sge) };
        }
        self.stage(operation, slot, count as u32, total as u32, 0);
        Ok(())
    }

    #[inline(always)]
    fn most_sges<O: op::Header>(&self) -> u32 {
        u32::from(if O::READS {
            self.queue.hot.max_read_sges
        } else {
            self.queue.hot.max_sges.get()
        })
    }

    #[inline(always)]
    fn check<O: op::Header>(
        &self,
        operation: &O,
        pieces: u32,
        total: u64,
    ) -> Result<(), PushError> {
        operation.check(op::Message { pieces, total, queue: self.queue.hot.domain })?;
        let max = u32::from(self.queue.hot.max_reads);
        if O::READS && self.reads.wrapping_add(u32::from(self.queue.hot.reads)) >= max {
            return Err(match max {
                0 => PushError::ReadsNotNegotiated,
                _ => PushError::ReadsFull { max },
            });
        }
        Ok(())
    }

    /// Writes the whole request, so that no field of an earlier one is left.
    #[inline(always)]
    fn stage<O: op::Header>(
        &mut self,
        operation: O,
        slot: *mut SendSlot<C>,
        count: u32,
        len: u32,
        more_flags: u32,
    ) {
        const {
            assert!(
                O::DATAGRAM == P::DATAGRAM,
                "datagrams go through datagram queues, and nothing else does"
            );
        }
        let head = operation.header();
        let flags = head.flags | more_flags;
        // The length of what only leaves is of no use to anybody.
        let meta = Meta::new(O::OPERATION, O::READS, if O::READS { len } else { 0 });
        // SAFETY: the slot was found free by `reserve`.
        unsafe { (*slot).meta = meta };
        let request = self.staging.request_at(self.next);
        // SAFETY: the entry is one of the chain's, which borrows the arrays.
        unsafe {
            staging::write_head(request, self.id.to_raw(), count, head.opcode, flags, head.imm_data)
        };
        // SAFETY: as above.
        operation.write_target(unsafe { &mut *request });
        self.next = self.next.wrapping_add(SendLink::<CHAIN, SGES>::STEP);
        self.id = self.id.step();
        if flags & send_flags::SIGNALED != 0 {
            self.loud = self.id.sequence();
        }
        if O::READS {
            self.reads = self.reads.wrapping_add(1);
            self.behind_read = self.id.sequence();
        }
    }

    /// Requests in the chain.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len_u32() as usize
    }

    /// Whether no request is in the chain.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.next == self.first
    }

    #[inline(always)]
    const fn len_u32(&self) -> u32 {
        self.id.sequence().wrapping_sub(self.start.sequence())
    }

    /// Posts the chain with one call to the device, which rings one doorbell. Says how many requests
    /// went out; an empty chain is 0 and no call.
    ///
    /// The last request is signaled when the silent run would reach the queue's period, the last READ
    /// always, so that slots and READ credits come back to who never asks for a completion.
    ///
    /// # Errors
    ///
    /// [`SubmitError`] when the device does not take the whole chain.
    #[inline(always)]
    pub fn submit(mut self) -> Result<u32, SubmitError<Self>> {
        if self.is_empty() {
            return Ok(0);
        }
        let (first, len) = (self.staging.request_at(self.first), self.len_u32());
        // SAFETY: the chain is not empty.
        let last = unsafe { self.staging.request_at(self.next).sub(1) };
        if self.reads != 0 {
            let behind = self.id.sequence().wrapping_sub(self.behind_read);
            // SAFETY: the last READ is one of the chain.
            signal(unsafe { last.sub(behind as usize) });
            if behind < self.silent() {
                self.loud = self.behind_read;
            }
        }
        let period = u32::from(self.queue.hot.period);
        if self.silent() >= period {
            signal(last);
            self.loud = self.id.sequence();
            if period == 0 {
                signal(first);
                self.queue.hot.period = self.queue.cold.period;
            }
        }
        if self.id.has_carried_since(self.start) {
            self.id = renumber(first, self.start, len);
        }
        // From here on everything is in flight, so that a port that panics loses nothing: the silent
        // run then seems longer than it is.
        let mut this = ManuallyDrop::new(self);
        let (next, loud, reads) = (this.id, this.loud, this.reads);
        let whole = this.next == SendLink::<CHAIN, SGES>::END;
        let hot = &mut this.queue.hot;
        hot.next = next;
        hot.reads = hot.reads.wrapping_add(reads as u8);
        let mut bad = ptr::null_mut();
        // SAFETY: `first..next` are valid requests, linked, with a null behind the last; the memory
        // they name is owned by contexts in their slots, which stay there until a completion.
        let code = unsafe {
            if whole {
                hot.port.post_send(first, &mut bad)
            } else {
                post_short(&mut hot.port, first, last, &mut bad)
            }
        };
        if code == 0 {
            hot.loud = loud;
            return Ok(len);
        }
        let mut rest = ManuallyDrop::into_inner(this);
        // What can be read and reckoned again need not be kept during the call.
        rest.id = rest.queue.hot.next;
        let len = rest.next.wrapping_sub(rest.first) / SendLink::<CHAIN, SGES>::STEP;
        rest.start = rest.id.with_sequence(rest.id.sequence().wrapping_sub(len as u32));
        Err(rest.not_taken(code, bad))
    }

    #[inline(always)]
    fn silent(&self) -> u32 {
        self.id.sequence().wrapping_sub(self.loud)
    }

    /// Puts the counters back to what was taken. On the way in all of it counts as in flight.
    #[cold]
    #[inline(never)]
    fn not_taken(mut self, code: i32, bad: *mut SendWr) -> SubmitError<Self> {
        let (start, len) = (self.start.sequence(), self.len_u32());
        let first = self.staging.request_at(self.first);
        // SAFETY: `at` is below the length of the chain.
        let entry = |at: u32| unsafe { first.add(at as usize) };
        let accepted = (0..len).find(|at| ptr::eq(entry(*at), bad));
        let Some(accepted) = accepted else {
            // No word, or a word that is none: nothing comes back before its completion.
            self.queue.hot.loud = self.loud;
            self.queue.shut(Cause::Unknown { code });
            self.start = self.id;
            return SubmitError::Unknown { code };
        };
        let reads = self.queue.hot.reads.wrapping_sub(self.reads as u8);
        let head = start.wrapping_add(accepted);
        self.start = self.start.with_sequence(head);
        self.queue.hot.next = self.start;
        self.first += accepted as usize * SendLink::<CHAIN, SGES>::STEP;
        self.loud = self.queue.hot.loud;
        self.queue.hot.reads = reads;
        self.reads = 0;
        for at in 0..len {
            let sequence = start.wrapping_add(at);
            if at == accepted {
                self.queue.hot.loud = self.loud;
                self.queue.hot.reads = reads.wrapping_add(self.reads as u8);
                self.reads = 0;
            }
            // SAFETY: the entry is one of the chain's.
            let flags = unsafe { (*entry(at)).send_flags };
            // SAFETY: a request of the chain, so its slot's meta was written by `stage`.
            let credit = unsafe { (*self.queue.slot(sequence)).meta.credit() };
            if flags & send_flags::SIGNALED != 0 {
                self.loud = sequence.wrapping_add(1);
            }
            if credit != 0 {
                self.reads = self.reads.wrapping_add(1);
                self.behind_read = sequence.wrapping_add(1);
            }
        }
        if head.wrapping_sub(self.queue.hot.loud) >= self.queue.cold.period.into() {
            self.queue.hot.period = 0;
        }
        SubmitError::Partial { accepted, code, rest: self }
    }

    /// Takes the chain apart: hands each context to `each`, the first request's first. Nothing was
    /// posted.
    pub fn into_contexts(self, mut each: impl FnMut(C)) {
        let this = ManuallyDrop::new(self);
        let (start, end) = (this.start.sequence(), this.id.sequence());
        give_back::<C, N>(this.queue.hot.slots, start, end, &mut each);
    }
}

impl<P: SendPort, C, const N: usize, const CHAIN: usize, const SGES: usize> Drop
    for SendChain<'_, '_, P, C, N, CHAIN, SGES>
{
    #[inline(always)]
    fn drop(&mut self) {
        let (start, end) = (self.start.sequence(), self.id.sequence());
        if mem::needs_drop::<C>() && start != end {
            give_back::<C, N>(self.queue.hot.slots, start, end, drop);
        }
    }
}

impl<P: SendPort, C, const N: usize, const CHAIN: usize, const SGES: usize> fmt::Debug
    for SendChain<'_, '_, P, C, N, CHAIN, SGES>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendChain").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// Hands on the contexts of a chain that is not used any more, and moves each out once.
///
/// It takes numbers: given the chain, a function that is not inlined would have it built in memory.
#[cold]
#[inline(never)]
fn give_back<C, const N: usize>(
    slots: NonNull<SendSlot<C>>,
    mut sequence: u32,
    end: u32,
    each: impl FnMut(C),
) {
    let next = || {
        if sequence == end {
            return None;
        }
        let index = sequence & (N as u32).wrapping_sub(1);
        sequence = sequence.wrapping_add(1);
        // SAFETY: the callers pass the slots of a queue and a chain's range of them, all of which hold
        // contexts; `sequence` has passed this one.
        Some(unsafe { (*slots.as_ptr().add(index as usize)).context.assume_init_read() })
    };
    leak::hand_on(next, each);
}

/// The bytes of a context that rests in its slot. When the user's `as_ref` panics the context is
/// dropped, because the slot then counts as free.
#[inline(always)]
fn bytes_of<C: AsRef<[u8]>>(context: &mut C) -> &[u8] {
    struct Unwound<C>(*mut C);

    impl<C> Drop for Unwound<C> {
        fn drop(&mut self) {
            // SAFETY: made of an exclusive borrow of a context that nobody else will look at.
            unsafe { self.0.drop_in_place() };
        }
    }

    let context: *mut C = context;
    let guard = Unwound(context);
    // SAFETY: as above; the slot stays where it is.
    let bytes = unsafe { (*context).as_ref() };
    let _ = ManuallyDrop::new(guard);
    bytes
}

/// Has the device complete `request` with an entry in the completion queue.
#[inline(always)]
fn signal(request: *mut SendWr) {
    // SAFETY: the callers pass entries of the chain that they build.
    unsafe { (*request).send_flags |= send_flags::SIGNALED };
}

/// Writes the ids of a chain again in which the sequence has wrapped. Returns the next one.
#[cold]
#[inline(never)]
fn renumber(first: *mut SendWr, start: NextId, len: u32) -> NextId {
    let id = |at: u32| start.with_sequence(start.sequence().wrapping_add(at));
    for at in 0..len {
        // SAFETY: the callers pass the first entry of a chain and how many it has.
        unsafe { (*first.add(at as usize)).wr_id = id(at).to_raw() };
    }
    id(len)
}

/// Posts a chain that is shorter than reserved: cut behind its `last` request, and mended again.
///
/// # Safety
///
/// As for [`SendPort::post_send`], once the chain is cut; behind `last` is an entry of the same arrays.
#[cold]
#[inline(never)]
unsafe fn post_short<P: SendPort>(
    port: &mut P,
    first: *mut SendWr,
    last: *mut SendWr,
    bad: &mut *mut SendWr,
) -> i32 {
    /// Mends also when the port panics.
    struct Cut(*mut SendWr);

    impl Drop for Cut {
        fn drop(&mut self) {
            // SAFETY: `last` and the entry behind it belong to the arrays that the chain borrows.
            unsafe { (*self.0).next = self.0.add(1) };
        }
    }

    // SAFETY: as above.
    unsafe { (*last).next = ptr::null_mut() };
    let _cut = Cut(last);
    // SAFETY: the caller's promise.
    unsafe { port.post_send(first, bad) }
}

#[cfg(all(test, not(loom)))]
mod tests;
