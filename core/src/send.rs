//! The send queue: reserve, push, submit, retire, take.
//!
//! One thread owns a queue and its port. The storage of the slots is borrowed, so the caller places
//! it: a `static`, a `Box`, a huge page. The twin is [`crate::RecvQueue`].
//!
//! Invariants, in wrapping arithmetic of sequences:
//!
//! * `taken ≤ ended ≤ head`, and `head - taken ≤ depth ≤ N`: slots in `taken..head` hold a context;
//!   those in `ended..head` are in flight, those in `taken..ended` wait to be taken. `head` is the
//!   sequence of the id `next`, `ended` that of `oldest`.
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
use crate::id::{Id, Serial};
use crate::leak;
use crate::op;
use crate::port::SendPort;
use crate::refusal::{Cause, ConfigError, PushError, Rejected, ReserveError, SubmitError};
use crate::region::Tag;
use crate::slot::{self, End, Meta};
use crate::staging::{self, SendLink};

mod chain;
pub use chain::SendChain;
mod config;
pub use config::SendConfig;

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
    next: Id,
    /// The id of the oldest request in flight: where what has ended ends.
    oldest: Id,
    domain: Tag,
    /// 0 when no pieces were granted: a message that has bytes is refused then.
    max_message: u32,
    /// The low half of a sequence, which tells the places of at most 32,768 slots apart.
    taken: u16,
    /// How many silent requests may follow: a period less those behind the last signaled one. None or less only
    /// behind a partly accepted chain; then the next chain's first is signaled.
    silence: i16,
    /// The usable depth; 0 while not connected and once closed.
    limit: u16,
    /// A run of silent requests ends before it is that long.
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

impl<P, C> Hot<P, C> {
    /// Slots that hold a context.
    #[inline(always)]
    const fn used(&self) -> u32 {
        (self.next.sequence() as u16).wrapping_sub(self.taken) as u32
    }
}

/// What only set-up and failures touch.
#[derive(Debug)]
struct Cold {
    depth: u16,
    /// As granted; 1 in the hot state when none are.
    max_sges: u8,
    closed: Option<Cause>,
    /// With the low half of its sequence, as in `taken`.
    first_failure: Option<(u16, Failure)>,
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
        let serial = Serial::send().ok_or(ConfigError::NoSerial)?;
        Self::with_serial(port, slots, config, serial)
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
        // As long a run as the hot state counts.
        let period = period.min(i16::MAX as u16);
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
            next: Id::first(serial),
            oldest: Id::first(serial),
            domain: Tag::of(config.domain),
            max_message,
            taken: 0,
            silence: period as i16,
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
        let cold = Cold { depth, max_sges, closed: None, first_failure: None };
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
        let used = self.hot.used();
        // SAFETY: the invariant of the queue; the compiler sees by it that the sum below does not wrap.
        unsafe { core::hint::assert_unchecked(used <= N as u32) };
        // The limit is 0 while posts are refused.
        if n > CHAIN
            || n > usize::from(self.hot.chain.get())
            || used.wrapping_add(n as u32) > u32::from(self.hot.limit)
        {
            return Err(self.no_room(n, CHAIN));
        }
        let staging = staging.reborrow();
        let entry = CHAIN.wrapping_sub(n).wrapping_mul(SendLink::<CHAIN, SGES>::STEP);
        Ok(SendChain {
            first: entry,
            next: entry,
            id: next,
            flags: 0,
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
        let (wc, oldest) = (completion.raw(), self.hot.oldest);
        let ended = if !completion.is_success() {
            self.retire_failed(wc.wr_id, wc.status, wc.vendor_err)
        } else if !oldest.is_simply_followed_by(wc.wr_id, self.hot.next) {
            self.retire_across(wc.wr_id)
        } else {
            // Nothing wraps up to the next request.
            self.hot.oldest = Id::from_raw(wc.wr_id).step();
            return Ok(self.hot.oldest.sequence().wrapping_sub(oldest.sequence()));
        };
        if ended == 0 { Err(Foreign(completion)) } else { Ok(ended) }
    }

    /// Retires a good completion to which the sequence wraps. Says how many it ends, 0 when it is foreign.
    #[cold]
    #[inline(never)]
    fn retire_across(&mut self, id: u64) -> u32 {
        let oldest = self.hot.oldest;
        if !oldest.is_followed_by(id, self.hot.next) {
            return 0;
        }
        self.hot.oldest = oldest.with_sequence(Id::from_raw(id).sequence().wrapping_add(1));
        self.hot.oldest.sequence().wrapping_sub(oldest.sequence())
    }

    /// The same for a bad one.
    #[cold]
    #[inline(never)]
    fn retire_failed(&mut self, id: u64, status: u32, vendor: u32) -> u32 {
        if self.hot.oldest.is_followed_by(id, self.hot.next) {
            self.mark_failed(Id::from_raw(id).sequence(), status, vendor);
        }
        self.retire_across(id)
    }

    /// Everything before the first failed request was done; after it, it was flushed.
    fn mark_failed(&mut self, sequence: u32, status: u32, vendor: u32) {
        if self.cold.first_failure.is_some() {
            self.mark(self.hot.oldest.sequence(), sequence, End::Flushed);
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
            self.cold.first_failure.get_or_insert((sequence as u16, failure));
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
        let taken = self.hot.taken;
        if taken == self.hot.oldest.sequence() as u16 {
            return None;
        }
        let slot = self.slot(taken.into());
        // SAFETY: something has ended that was not taken, so this slot holds an initialised context, which
        // moves out here and nowhere else, because `taken` passes it.
        let context = unsafe { (*slot).context.assume_init_read() };
        self.hot.taken = taken.wrapping_add(1);
        // SAFETY: as above; the meta was written by the push.
        let meta = unsafe { &(*slot).meta };
        let outcome = if meta.is_plain() {
            Outcome::Done(Success::sent(meta.operation, meta.len))
        } else {
            // SAFETY: as above. Volatile, so that it is read a second time: a first look that serves for both
            // costs who needs no second one.
            let meta = unsafe { (&raw const (*slot).meta).read_volatile() };
            self.hot.reads = self.hot.reads.wrapping_sub(meta.credit());
            match meta.end() {
                End::Done => Outcome::Done(Success::sent(meta.operation, meta.len)),
                _ => self.not_done(meta),
            }
        };
        Some(Ended { context, outcome })
    }

    /// What became of the request that was taken just now.
    #[cold]
    #[inline(never)]
    fn not_done(&self, meta: Meta) -> Outcome {
        let sequence = self.hot.taken.wrapping_sub(1);
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
        self.mark(self.hot.oldest.sequence(), self.hot.next.sequence(), End::Abandoned);
        self.hot.oldest = self.hot.next;
        self.shut(Cause::Gone);
    }

    /// The same where the port knows by itself that the queue pair is gone, as the soft device's do once its
    /// control was dropped: says whether it does. Poll before, so that what has an outcome gets it.
    pub fn try_abandon(&mut self) -> bool {
        let is_gone = self.hot.port.is_gone();
        if is_gone {
            // SAFETY: the port promises that no device uses the buffers. A completion of this queue that is
            // polled later finds nothing in flight, and comes back as foreign.
            unsafe { self.abandon() };
        }
        is_gone
    }

    /// Gives port and storage back, when every context has been taken.
    ///
    /// # Errors
    ///
    /// The queue, when a request is in flight or waits to be taken.
    pub fn into_storage(self) -> Result<(P, &'s mut SendSlots<C, N>), Self> {
        if self.hot.used() != 0 {
            return Err(self);
        }
        let queue = ManuallyDrop::new(self);
        // SAFETY: the queue is not used or dropped again, so the port moves out once.
        let port = unsafe { ptr::read(&queue.hot.port) };
        // SAFETY: the storage was borrowed for `'s` by `new`, and no slot holds a context.
        let slots = unsafe { queue.hot.slots.cast().as_mut() };
        Ok((port, slots))
    }
}

impl<P, C, const N: usize> SendQueue<'_, P, C, N> {
    #[inline(always)]
    fn slot(&self, sequence: u32) -> *mut SendSlot<C> {
        // SAFETY: the queue owns N slots.
        unsafe { slot::at::<_, N>(self.hot.slots, sequence) }
    }

    /// Refuses a piece of the context that `push` has just moved into its slot.
    #[cold]
    #[inline(never)]
    fn refuse_piece<O: op::Operation<C>>(&self, sequence: u32, row: u32) -> Rejected<C> {
        self.refuse::<O>(sequence, row)
    }

    /// Refuses the number of pieces or their length. A function of its own, because compilers merge
    /// branches that lead to the same call, and pay for it where nothing is refused.
    #[cold]
    #[inline(never)]
    fn refuse_size<O: op::Operation<C>>(&self, sequence: u32, row: u32) -> Rejected<C> {
        self.refuse::<O>(sequence, row)
    }

    /// Looks at the pieces once more, so that a good request remembers nothing of them, and moves the
    /// context out of its slot again.
    fn refuse<O: op::Operation<C>>(&self, sequence: u32, row: u32) -> Rejected<C> {
        // SAFETY: the slot was written by `push`, and counts as free again.
        let mut context = unsafe { (*self.slot(sequence)).context.assume_init_read() };
        let mut list = SliceList::inspector(self.hot.domain, op::wanted::<O>());
        O::names(&mut context, &mut list);
        let granted = if O::READS { self.hot.max_read_sges } else { self.cold.max_sges };
        let error = list.refusal(u32::from(granted).min(row), self.hot.max_message.into());
        Rejected { context, error }
    }

    /// Signals the last request of a chain, of which `flags` are all flags, when the silent run would be as long
    /// as the period, and the first too when it already is. Returns how many silent ones may follow.
    #[cold]
    #[inline(never)]
    fn end_silence(&self, first: *mut SendWr, len: u32, flags: u32) -> i32 {
        let (period, silence) = (i32::from(self.hot.period), i32::from(self.hot.silence));
        let is_late = silence <= 0;
        let mut silent = if flags & send_flags::SIGNALED != 0 {
            chain::silent_end(first, len)
        } else {
            period.wrapping_sub(silence).wrapping_add(len as i32)
        };
        if is_late || silent >= period {
            // SAFETY: the callers pass the first entry of a chain and how many it has, at least one.
            chain::signal(unsafe { first.add(len.wrapping_sub(1) as usize) });
            silent = 0;
        }
        if is_late {
            chain::signal(first);
        }
        period.wrapping_sub(silent)
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
        self.hot.next.sequence().wrapping_sub(self.hot.oldest.sequence())
    }

    /// Requests in flight behind the last signaled one. When they succeed nothing says so before a signaled
    /// one follows. Who wants their outcome posts one last request signaled and waits for that; who closes a
    /// queue without need not wait for them, and gets them from [`abandon`](Self::abandon) or
    /// [`try_abandon`](Self::try_abandon) when the queue pair is destroyed.
    pub const fn silent(&self) -> u32 {
        let behind = (self.hot.period as i32).wrapping_sub(self.hot.silence as i32) as u32;
        let all = self.in_flight();
        if behind < all { behind } else { all }
    }

    /// Requests that have ended and wait to be taken.
    pub const fn ended(&self) -> u32 {
        (self.hot.oldest.sequence() as u16).wrapping_sub(self.hot.taken) as u32
    }

    /// Requests that may be posted now; 0 once the queue is closed.
    pub const fn free(&self) -> u32 {
        (self.hot.limit as u32).saturating_sub(self.hot.used())
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
            if self.hot.taken == self.hot.oldest.sequence() as u16 {
                return None;
            }
            let index = (u32::from(self.hot.taken) & mask) as usize;
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

#[cfg(all(test, not(loom)))]
mod tests;
