//! The receive queue: reserve, push, submit, retire, take.
//!
//! One thread owns a queue and its port. The storage of the slots is borrowed, so the caller places
//! it: a `static`, a `Box`, a huge page. The twin is [`crate::SendQueue`]; receives may be posted as
//! soon as the queue pair exists, and each has a completion of its own.
//!
//! Invariants, in wrapping arithmetic of sequences:
//!
//! * `taken ≤ ended ≤ head`, and `head - taken ≤ depth ≤ N`: slots in `taken..head` hold a context;
//!   those in `ended..head` are posted, those in `taken..ended` wait to be taken. `head` is the
//!   sequence of the id `next`, `ended` that of `oldest`.
//! * A slot's context moves out by `take`, by a refused push, or by the end of an unsubmitted chain;
//!   nowhere else.

use core::fmt;
use core::marker::PhantomData;
use core::mem::{self, ManuallyDrop, MaybeUninit};
use core::ptr::{self, NonNull};

use crate::abi::{RecvWr, Sge, WcStatus};
use crate::completion::{Completion, Ended, Failure, Foreign, Operation};
use crate::context::{RecvBuffers, SliceList};
use crate::group::RecvSeat;
use crate::id::{Id, Serial};
use crate::leak;
use crate::port::RecvPort;
use crate::refusal::{Cause, ConfigError, PushError, Rejected, ReserveError, SubmitError};
use crate::region::{Tag, Wanted};
use crate::slot::{self, Arrival, End};
use crate::staging::RecvLink;

pub(crate) mod chain;
pub use chain::RecvChain;
mod config;
pub use config::RecvConfig;

/// Storage for the posted receives of one queue: `N` slots, a power of two.
///
/// A queue borrows it for its whole life and gives it back by [`RecvQueue::into_storage`].
#[repr(C, align(64))]
pub struct RecvSlots<C, const N: usize>([RecvSlot<C>; N]);

struct RecvSlot<C> {
    arrival: Arrival,
    context: MaybeUninit<C>,
}

impl<C, const N: usize> RecvSlots<C, N> {
    const DEPTH_OK: () =
        assert!(N.is_power_of_two() && N <= 32768, "the depth is a power of two up to 32,768");

    /// Empty slots.
    pub const fn new() -> Self {
        const { Self::DEPTH_OK }
        Self([const { RecvSlot { arrival: Arrival::EMPTY, context: MaybeUninit::uninit() } }; N])
    }
}

impl<C, const N: usize> Default for RecvSlots<C, N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<C, const N: usize> fmt::Debug for RecvSlots<C, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvSlots").field("depth", &N).finish_non_exhaustive()
    }
}

/// What the hot path touches: one cache line with a port of 16 bytes.
#[repr(C, align(64))]
struct Hot<P, C> {
    port: P,
    slots: NonNull<RecvSlot<C>>,
    /// The id of the next request: the head, and the serial above it.
    next: Id,
    /// The id of the oldest receive that is posted: where what has ended ends.
    oldest: Id,
    domain: Tag,
    /// The usable depth; 0 once closed.
    limit: u32,
    /// The low half of a sequence, which tells the places of at most 32,768 slots apart.
    taken: u16,
    max_sges: u8,
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
    depth: u32,
    closed: Option<Cause>,
}

/// A receive queue: its port, and the contexts of the posted receives.
///
/// A dropped queue drops the contexts of receives that have ended; those still posted are leaked and
/// counted ([`crate::leaked_contexts`]), because a device may still use their memory.
#[doc(alias = "ibv_qp")]
pub struct RecvQueue<'s, P, C, const N: usize> {
    hot: Hot<P, C>,
    cold: Cold,
    storage: PhantomData<&'s mut RecvSlots<C, N>>,
}

// SAFETY: the queue is the exclusive borrower of its slots; contexts and port move with it.
unsafe impl<P: Send, C: Send, const N: usize> Send for RecvQueue<'_, P, C, N> {}

impl<'s, P: RecvPort, C, const N: usize> RecvQueue<'s, P, C, N> {
    /// A queue over `slots` that posts through `port`.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] when the device granted no depth.
    pub fn new(
        port: P,
        slots: &'s mut RecvSlots<C, N>,
        config: RecvConfig,
    ) -> Result<Self, ConfigError> {
        let serial = Serial::recv().ok_or(ConfigError::NoSerial)?;
        Self::with_serial(port, slots, config, serial)
    }

    /// The same for a member of a [`crate::Group`]: with the seat's identity, and no deeper than
    /// the seat.
    ///
    /// # Errors
    ///
    /// As [`RecvQueue::new`]; the member is one until it leaves.
    pub fn with_seat(
        port: P,
        slots: &'s mut RecvSlots<C, N>,
        config: RecvConfig,
        seat: RecvSeat,
    ) -> Result<Self, ConfigError> {
        let (serial, depth) = seat.take();
        let depth = config.depth.min(depth);
        Self::with_serial(port, slots, config.depth(depth), serial)
    }

    fn with_serial(
        port: P,
        slots: &'s mut RecvSlots<C, N>,
        config: RecvConfig,
        serial: Serial,
    ) -> Result<Self, ConfigError> {
        let depth = config.depth.min(N as u32);
        if depth == 0 {
            return Err(ConfigError::NoDepth);
        }
        let hot = Hot {
            port,
            slots: NonNull::from(slots).cast(),
            next: Id::first(serial),
            oldest: Id::first(serial),
            domain: Tag::of(config.domain),
            limit: depth,
            taken: 0,
            max_sges: config.max_sges,
        };
        Ok(Self { hot, cold: Cold { depth, closed: None }, storage: PhantomData })
    }

    /// Starts a chain of up to `n` receives: checks the room for all of them at once.
    ///
    /// # Errors
    ///
    /// [`ReserveError`]; nothing has changed then.
    #[inline(always)]
    pub fn reserve<'q, const CHAIN: usize, const SGES: usize>(
        &'q mut self,
        staging: &'q mut RecvLink<'_, CHAIN, SGES>,
        n: usize,
    ) -> Result<RecvChain<'q, 's, P, C, N, CHAIN, SGES>, ReserveError> {
        let next = self.hot.next;
        let used = self.hot.used();
        // SAFETY: the invariant of the queue; the compiler sees by it that the sum below does not wrap.
        unsafe { core::hint::assert_unchecked(used <= N as u32) };
        // The limit is 0 once closed.
        if n > CHAIN || used.wrapping_add(n as u32) > self.hot.limit {
            return Err(self.no_room(n, CHAIN));
        }
        let staging = staging.reborrow();
        let entry = CHAIN.wrapping_sub(n).wrapping_mul(RecvLink::<CHAIN, SGES>::STEP);
        Ok(RecvChain { first: entry, next: entry, id: next, queue: self, staging })
    }

    #[cold]
    #[inline(never)]
    fn no_room(&self, n: usize, staging: usize) -> ReserveError {
        let asked = u32::try_from(n).unwrap_or(u32::MAX);
        let max = staging as u32;
        if let Some(cause) = self.cold.closed {
            ReserveError::Closed(cause)
        } else if asked > max {
            ReserveError::ChainTooLong { asked, max }
        } else {
            ReserveError::Full { asked, free: self.free() }
        }
    }

    /// Marks the receive that `completion` ends. Says how many: one.
    ///
    /// # Errors
    ///
    /// [`Foreign`] with the completion when it is not of this queue, or not of the oldest receive;
    /// nothing has changed then.
    #[inline(always)]
    pub fn retire(&mut self, completion: Completion) -> Result<u32, Foreign> {
        let (wc, oldest) = (completion.raw(), self.hot.oldest);
        if wc.wr_id != oldest.to_raw() || wc.wr_id == self.hot.next.to_raw() {
            return Err(Foreign(completion));
        }
        let sequence = oldest.sequence();
        // SAFETY: `sequence` is posted, so its slot is initialised.
        unsafe { (*self.slot(sequence)).arrival = Arrival::new(wc) };
        if !completion.is_success() {
            self.mark_failed(sequence, wc.status, wc.vendor_err);
        }
        self.hot.oldest = oldest.following();
        Ok(1)
    }

    #[cold]
    #[inline(never)]
    fn mark_failed(&mut self, sequence: u32, status: u32, vendor: u32) {
        let status = WcStatus::from_raw(status);
        // SAFETY: `sequence` is posted, so its slot is initialised.
        let arrival = unsafe { &mut (*self.slot(sequence)).arrival };
        if status == WcStatus::Flushed {
            arrival.set_end(End::Flushed);
            self.shut(Cause::Flushed);
        } else {
            arrival.set_end(End::Failed);
            (arrival.len, arrival.imm_data) = (status.to_raw(), vendor);
            self.shut(Cause::Failed(Failure { operation: Operation::Recv, status, vendor }));
        }
    }

    /// Takes the oldest receive that has ended.
    #[inline(always)]
    pub fn take(&mut self) -> Option<Ended<C>> {
        let taken = self.hot.taken;
        if taken == self.hot.oldest.sequence() as u16 {
            return None;
        }
        let slot = self.slot(taken.into());
        // SAFETY: something has ended that was not taken, so this slot holds an initialised context, which
        // moves out here and nowhere else, because `taken` passes it.
        let (arrival, context) = unsafe { ((*slot).arrival, (*slot).context.assume_init_read()) };
        self.hot.taken = taken.wrapping_add(1);
        Some(Ended { outcome: arrival.outcome(), context })
    }

    /// Refuses all posts from now on. What is posted stays so until its completions come.
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

    /// Ends everything that is posted as [`Outcome::Abandoned`](crate::Outcome::Abandoned), to be taken.
    ///
    /// # Safety
    ///
    /// The queue pair is destroyed, both halves, so no device uses the buffers any more
    /// (`ibv_destroy_qp(3)`), and no completion of it will be retired here.
    pub unsafe fn abandon(&mut self) {
        let mut sequence = self.hot.oldest.sequence();
        while sequence != self.hot.next.sequence() {
            // SAFETY: in `ended..head`, so the slot is initialised.
            unsafe { (*self.slot(sequence)).arrival.set_end(End::Abandoned) };
            sequence = sequence.wrapping_add(1);
        }
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
    /// The queue, when a receive is posted or waits to be taken.
    pub fn into_storage(self) -> Result<(P, &'s mut RecvSlots<C, N>), Self> {
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

    /// Refuses the buffers of the context that `push` has just moved into its slot: looks at them once
    /// more, so that a good receive remembers nothing of them, and moves the context out again.
    #[cold]
    #[inline(never)]
    fn refuse(&self, sequence: u32, row: u32) -> Rejected<C>
    where
        C: RecvBuffers,
    {
        // SAFETY: the slot was written by `push`, and counts as free again.
        let mut context = unsafe { (*self.slot(sequence)).context.assume_init_read() };
        let mut list = SliceList::inspector(self.hot.domain, Wanted::SINK);
        context.scatter(&mut list);
        let error = list.refusal(u32::from(self.hot.max_sges).min(row), u64::MAX);
        Rejected { context, error }
    }
}

impl<P, C, const N: usize> RecvQueue<'_, P, C, N> {
    #[inline(always)]
    fn slot(&self, sequence: u32) -> *mut RecvSlot<C> {
        // SAFETY: the queue owns N slots.
        unsafe { slot::at::<_, N>(self.hot.slots, sequence) }
    }

    /// Receives that the device still has.
    pub const fn in_flight(&self) -> u32 {
        self.hot.next.sequence().wrapping_sub(self.hot.oldest.sequence())
    }

    /// Receives that have ended and wait to be taken.
    pub const fn ended(&self) -> u32 {
        (self.hot.oldest.sequence() as u16).wrapping_sub(self.hot.taken) as u32
    }

    /// Receives that may be posted now; 0 once the queue is closed.
    pub const fn free(&self) -> u32 {
        self.hot.limit.saturating_sub(self.hot.used())
    }

    /// Receives that may be posted at a time.
    pub const fn depth(&self) -> u32 {
        self.cold.depth
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

impl<P, C, const N: usize> Drop for RecvQueue<'_, P, C, N> {
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

impl<P, C, const N: usize> fmt::Debug for RecvQueue<'_, P, C, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvQueue")
            .field("in_flight", &self.in_flight())
            .field("ended", &self.ended())
            .field("free", &self.free())
            .field("cold", &self.cold)
            .finish_non_exhaustive()
    }
}
