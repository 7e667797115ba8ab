//! The receive queue: reserve, push, submit, retire, take.
//!
//! One thread owns a queue and its port. The storage of the slots is borrowed, so the caller places
//! it: a `static`, a `Box`, a huge page. The twin is [`crate::SendQueue`]; receives may be posted as
//! soon as the queue pair exists, and each has a completion of its own.
//!
//! Invariants, in wrapping arithmetic of sequences:
//!
//! * `taken ≤ ended ≤ head`, and `head - taken ≤ depth ≤ N`: slots in `taken..head` hold a context;
//!   those in `ended..head` are posted, those in `taken..ended` wait to be taken.
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
use crate::id::{NextId, Serial};
use crate::leak;
use crate::port::RecvPort;
use crate::refusal::{Cause, ConfigError, PushError, Rejected, ReserveError, SubmitError};
use crate::region::{Domain, Tag, Wanted};
use crate::slot::{Arrival, End};
use crate::staging::RecvLink;

/// The numbers of a receive queue: what was granted by the device.
#[derive(Clone, Copy, Debug)]
pub struct RecvConfig {
    pub(crate) domain: Domain,
    pub(crate) depth: u32,
    pub(crate) max_sges: u8,
}

impl RecvConfig {
    /// A queue of a queue pair in `domain`, as deep as its storage.
    pub const fn new(domain: Domain) -> Self {
        Self { domain, depth: u32::MAX, max_sges: u8::MAX }
    }

    /// How many receives may be posted: the least of what was asked for and what was granted.
    /// The storage is a bound as well.
    #[must_use]
    pub const fn depth(mut self, requests: u32) -> Self {
        self.depth = requests;
        self
    }

    /// Pieces of a receive (`max_recv_sge` as granted).
    #[must_use]
    pub const fn max_sges(mut self, most: u8) -> Self {
        self.max_sges = most;
        self
    }
}

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
    next: NextId,
    taken: u32,
    ended: u32,
    /// The usable depth; 0 once closed.
    limit: u32,
    domain: Tag,
    max_sges: u8,
}

#[cfg(target_pointer_width = "64")]
static_assertions::const_assert_eq!(size_of::<Hot<[usize; 2], u64>>(), 64);

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
    const MASK: u32 = (N as u32).wrapping_sub(1);

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
        Self::with_serial(port, slots, config, Serial::recv())
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
            next: NextId::first(serial),
            taken: 0,
            ended: 0,
            limit: depth,
            domain: Tag::of(config.domain),
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
        // `n` is at most 1,024 where the sum is looked at, and the limit is 0 once closed.
        if n > CHAIN
            || next.sequence().wrapping_add(n as u32).wrapping_sub(self.hot.taken) > self.hot.limit
        {
            return Err(self.no_room(n, CHAIN));
        }
        let staging = staging.reborrow();
        let entry = CHAIN.wrapping_sub(n).wrapping_mul(RecvLink::<CHAIN, SGES>::STEP);
        Ok(RecvChain { first: entry, next: entry, start: next, id: next, queue: self, staging })
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
        let (serial, sequence) = completion.id();
        let (ours, head) = self.hot.next.halves();
        if serial != ours || sequence != self.hot.ended || sequence == head {
            return Err(Foreign(completion));
        }
        let wc = completion.raw();
        let slot = self.slot(sequence);
        // SAFETY: `sequence` is posted, so its slot is initialised.
        unsafe { (*slot).arrival = Arrival::new(wc) };
        if !completion.is_success() {
            self.mark_failed(sequence, wc.status, wc.vendor_err);
        }
        self.hot.ended = sequence.wrapping_add(1);
        Ok(1)
    }

    #[cold]
    #[inline(never)]
    fn mark_failed(&mut self, sequence: u32, status: u32, vendor: u32) {
        let status = WcStatus::from_raw(status);
        // SAFETY: `sequence` is posted, so its slot is initialised.
        let arrival = unsafe { &mut (*self.slot(sequence)).arrival };
        if status == WcStatus::Flushed {
            arrival.end = End::Flushed;
            self.shut(Cause::Flushed);
        } else {
            arrival.end = End::Failed;
            (arrival.len, arrival.imm_data) = (status.to_raw(), vendor);
            self.shut(Cause::Failed(Failure { operation: Operation::Recv, status, vendor }));
        }
    }

    /// Takes the oldest receive that has ended.
    #[inline(always)]
    pub fn take(&mut self) -> Option<Ended<C>> {
        let sequence = self.hot.taken;
        if sequence == self.hot.ended {
            return None;
        }
        let slot = self.slot(sequence);
        // SAFETY: `taken != ended`, so this slot holds an initialised context, which moves out here
        // and nowhere else, because `taken` passes it.
        let (arrival, context) = unsafe { ((*slot).arrival, (*slot).context.assume_init_read()) };
        self.hot.taken = sequence.wrapping_add(1);
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
        while self.hot.ended != self.hot.next.sequence() {
            // SAFETY: in `ended..head`, so the slot is initialised.
            unsafe { (*self.slot(self.hot.ended)).arrival.end = End::Abandoned };
            self.hot.ended = self.hot.ended.wrapping_add(1);
        }
        self.shut(Cause::Gone);
    }

    /// Gives port and storage back, when every context has been taken.
    ///
    /// # Errors
    ///
    /// The queue, when a receive is posted or waits to be taken.
    pub fn into_storage(self) -> Result<(P, &'s mut RecvSlots<C, N>), Self> {
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

    /// Refuses the buffers of the context that `push` has just moved into `slot`: looks at them once
    /// more, so that a good receive remembers nothing of them, and moves the context out again.
    #[cold]
    #[inline(never)]
    fn refuse(&self, slot: *mut RecvSlot<C>, row: u32) -> Rejected<C>
    where
        C: RecvBuffers,
    {
        // SAFETY: the slot was written by `push`, and counts as free again.
        let context = unsafe { (*slot).context.assume_init_read() };
        let mut list = SliceList::inspector(self.hot.domain, Wanted::SINK);
        context.scatter(&mut list);
        let error = list.refusal(u32::from(self.hot.max_sges).min(row), u64::MAX);
        Rejected { context, error }
    }

    #[inline(always)]
    fn slot(&self, sequence: u32) -> *mut RecvSlot<C> {
        // SAFETY: the mask keeps the index below N.
        unsafe { self.hot.slots.as_ptr().add((sequence & Self::MASK) as usize) }
    }
}

impl<P, C, const N: usize> RecvQueue<'_, P, C, N> {
    /// Receives that the device still has.
    pub const fn in_flight(&self) -> u32 {
        self.hot.next.sequence().wrapping_sub(self.hot.ended)
    }

    /// Receives that have ended and wait to be taken.
    pub const fn ended(&self) -> u32 {
        self.hot.ended.wrapping_sub(self.hot.taken)
    }

    /// Receives that may be posted now.
    pub const fn free(&self) -> u32 {
        self.hot.limit.saturating_sub(self.hot.next.sequence().wrapping_sub(self.hot.taken))
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

/// Receives that are being built, to be posted together. Dropped, it drops their contexts and nothing
/// was posted.
#[must_use = "a chain does nothing until it is submitted"]
pub struct RecvChain<'q, 's, P: RecvPort, C, const N: usize, const CHAIN: usize, const SGES: usize>
{
    queue: &'q mut RecvQueue<'s, P, C, N>,
    staging: RecvLink<'q, CHAIN, SGES>,
    /// The places of the first receive and of the next one.
    first: usize,
    next: usize,
    /// The id of the first receive, whose sequence is the queue's head, and that of the next one.
    start: NextId,
    id: NextId,
}

impl<P: RecvPort, C, const N: usize, const CHAIN: usize, const SGES: usize>
    RecvChain<'_, '_, P, C, N, CHAIN, SGES>
{
    /// Adds a receive into the buffers that `context` owns. None is fine: an empty message, or a
    /// WRITE with immediate, needs no memory.
    ///
    /// # Errors
    ///
    /// [`Rejected`] with the context; the chain is as it was.
    #[doc(alias = "rdma_post_recv")]
    #[doc(alias = "rdma_post_recvv")]
    #[inline(always)]
    pub fn push(&mut self, context: C) -> Result<(), Rejected<C>>
    where
        C: RecvBuffers,
    {
        const {
            assert!(
                C::DATAGRAM == P::DATAGRAM,
                "receives of datagrams need room for the prefix, others must not have it"
            );
        }
        if self.next == RecvLink::<CHAIN, SGES>::END {
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
                Wanted::SINK,
            )
        };
        context.scatter(&mut list);
        let (count, most) = (list.count(), u32::from(self.queue.hot.max_sges));
        if list.is_faulty() || count > most || count > SGES as u32 {
            return Err(self.queue.refuse(slot, SGES as u32));
        }
        self.stage(count);
        Ok(())
    }

    /// Adds a receive made of pieces by hand, as C does. The context need not own anything.
    ///
    /// # Errors
    ///
    /// [`Rejected`] with the context; the chain is as it was. Domain and rights are not checked.
    ///
    /// # Safety
    ///
    /// The memory that `sges` names is registered with their keys, writable by the device, and stays
    /// valid, registered and untouched until the context has been taken (`ibv_post_recv(3)`).
    #[inline(always)]
    pub unsafe fn push_raw(&mut self, sges: &[Sge], context: C) -> Result<(), Rejected<C>> {
        let count = sges.len();
        let most = u32::from(self.queue.hot.max_sges).min(SGES as u32);
        let error = if self.next == RecvLink::<CHAIN, SGES>::END {
            PushError::ChainFull
        } else if count > most as usize {
            PushError::TooManySges { given: u32::try_from(count).unwrap_or(u32::MAX), max: most }
        } else {
            let slot = self.queue.slot(self.id.sequence());
            // SAFETY: `reserve` found this slot free, so nothing is overwritten that needs a drop.
            unsafe { (*slot).context.write(context) };
            for (index, sge) in sges.iter().enumerate() {
                // SAFETY: at most SGES pieces, as checked above; the row is borrowed by the chain.
                unsafe { self.staging.row_at(self.next).add(index).write(*sge) };
            }
            self.stage(count as u32);
            return Ok(());
        };
        Err(Rejected { context, error })
    }

    /// Writes the whole request, so that no field of an earlier one is left.
    #[inline(always)]
    fn stage(&mut self, count: u32) {
        let request = self.staging.request_at(self.next);
        // SAFETY: the entry is one of the chain's, which borrows the arrays.
        unsafe {
            (*request).wr_id = self.id.to_raw();
            (*request).num_sge = count as i32;
        }
        self.next = self.next.wrapping_add(RecvLink::<CHAIN, SGES>::STEP);
        self.id = self.id.step();
    }

    /// Receives in the chain.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len_u32() as usize
    }

    /// Whether no receive is in the chain.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.next == self.first
    }

    #[inline(always)]
    const fn len_u32(&self) -> u32 {
        self.id.sequence().wrapping_sub(self.start.sequence())
    }

    /// Posts the chain with one call to the device, which rings one doorbell. Says how many receives
    /// were posted; an empty chain is 0 and no call.
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
        if self.id.has_carried_since(self.start) {
            self.id = renumber(first, self.start, len);
        }
        // From here on everything is in flight, so that a port that panics loses nothing.
        let mut this = ManuallyDrop::new(self);
        let (next, whole) = (this.id, this.next == RecvLink::<CHAIN, SGES>::END);
        let hot = &mut this.queue.hot;
        hot.next = next;
        let mut bad = ptr::null_mut();
        // SAFETY: `first..next` are valid requests, linked, with a null behind the last; the memory
        // they name is owned by contexts in their slots, which stay there until a completion.
        let code = unsafe {
            if whole {
                hot.port.post_recv(first, &mut bad)
            } else {
                post_short(&mut hot.port, first, last, &mut bad)
            }
        };
        if code == 0 {
            return Ok(len);
        }
        let mut rest = ManuallyDrop::into_inner(this);
        // What can be read and reckoned again need not be kept during the call.
        rest.id = rest.queue.hot.next;
        let len = rest.next.wrapping_sub(rest.first) / RecvLink::<CHAIN, SGES>::STEP;
        rest.start = rest.id.with_sequence(rest.id.sequence().wrapping_sub(len as u32));
        Err(rest.not_taken(code, bad))
    }

    /// Puts the head back to what was taken. On the way in all of it counts as posted.
    #[cold]
    #[inline(never)]
    fn not_taken(mut self, code: i32, bad: *mut RecvWr) -> SubmitError<Self> {
        let (start, len) = (self.start.sequence(), self.len_u32());
        let first = self.staging.request_at(self.first);
        // SAFETY: `at` is below the length of the chain.
        let entry = |at: u32| unsafe { first.add(at as usize) };
        let accepted = (0..len).find(|at| ptr::eq(entry(*at), bad));
        let Some(accepted) = accepted else {
            // No word, or a word that is none: nothing comes back before its completion.
            self.queue.shut(Cause::Unknown { code });
            self.start = self.id;
            return SubmitError::Unknown { code };
        };
        let head = start.wrapping_add(accepted);
        self.start = self.start.with_sequence(head);
        self.queue.hot.next = self.start;
        self.first += accepted as usize * RecvLink::<CHAIN, SGES>::STEP;
        SubmitError::Partial { accepted, code, rest: self }
    }

    /// Takes the chain apart: hands each context to `each`, the first receive's first. Nothing was
    /// posted.
    pub fn into_contexts(self, mut each: impl FnMut(C)) {
        let this = ManuallyDrop::new(self);
        let (start, end) = (this.start.sequence(), this.id.sequence());
        give_back::<C, N>(this.queue.hot.slots, start, end, &mut each);
    }
}

impl<P: RecvPort, C, const N: usize, const CHAIN: usize, const SGES: usize> Drop
    for RecvChain<'_, '_, P, C, N, CHAIN, SGES>
{
    #[inline(always)]
    fn drop(&mut self) {
        let (start, end) = (self.start.sequence(), self.id.sequence());
        if mem::needs_drop::<C>() && start != end {
            give_back::<C, N>(self.queue.hot.slots, start, end, drop);
        }
    }
}

impl<P: RecvPort, C, const N: usize, const CHAIN: usize, const SGES: usize> fmt::Debug
    for RecvChain<'_, '_, P, C, N, CHAIN, SGES>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvChain").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// Hands on the contexts of a chain that is not used any more, and moves each out once.
///
/// It takes numbers: given the chain, a function that is not inlined would have it built in memory.
#[cold]
#[inline(never)]
fn give_back<C, const N: usize>(
    slots: NonNull<RecvSlot<C>>,
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

/// Writes the ids of a chain again in which the sequence has wrapped. Returns the next one.
#[cold]
#[inline(never)]
fn renumber(first: *mut RecvWr, start: NextId, len: u32) -> NextId {
    let id = |at: u32| start.with_sequence(start.sequence().wrapping_add(at));
    for at in 0..len {
        // SAFETY: the callers pass the first entry of a chain and how many it has.
        unsafe { (*first.add(at as usize)).wr_id = id(at).to_raw() };
    }
    id(len)
}

/// Posts a chain that is shorter than reserved: cut behind its `last` receive, and mended again.
///
/// # Safety
///
/// As for [`RecvPort::post_recv`], once the chain is cut; behind `last` is an entry of the same arrays.
#[cold]
#[inline(never)]
pub(crate) unsafe fn post_short<P: RecvPort>(
    port: &mut P,
    first: *mut RecvWr,
    last: *mut RecvWr,
    bad: &mut *mut RecvWr,
) -> i32 {
    /// Mends also when the port panics.
    struct Cut(*mut RecvWr);

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
    unsafe { port.post_recv(first, bad) }
}
