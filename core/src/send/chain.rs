//! A chain of a send queue: push and submit.

use super::*;

/// Requests that are being built, to be posted together. Dropped, it drops their contexts and nothing
/// was posted.
#[must_use = "a chain does nothing until it is submitted"]
pub struct SendChain<'q, 's, P: SendPort, C, const N: usize, const CHAIN: usize, const SGES: usize>
{
    pub(super) queue: &'q mut SendQueue<'s, P, C, N>,
    pub(super) staging: SendLink<'q, CHAIN, SGES>,
    /// The places of the first request and of the next one.
    pub(super) first: usize,
    pub(super) next: usize,
    /// The id of the next request; that of the first is the queue's next one.
    pub(super) id: Id,
    /// The flags of all its requests: whether one of them is signaled.
    pub(super) flags: u32,
    pub(super) reads: u32,
    /// The sequence behind the last READ.
    pub(super) behind_read: u32,
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
        remember::<O, C>(slot, 0);
        // SAFETY: `reserve` found this slot free, so nothing is overwritten that needs a drop.
        let context = unsafe { (*slot).context.write(context) };
        // SAFETY: the row has SGES entries and is borrowed by the chain.
        let mut list = unsafe {
            SliceList::new(
                self.staging.row_at(self.next),
                SGES as u32,
                self.queue.hot.max_message,
                self.queue.hot.domain,
                op::wanted::<O>(),
            )
        };
        O::names(context, &mut list);
        if list.is_faulty() {
            return Err(self.queue.refuse_piece::<O>(self.id.sequence(), SGES as u32));
        }
        let (count, total) = (list.count(), list.total());
        if count > self.most_sges::<O>() || count > SGES as u32 || list.is_too_long() {
            return Err(self.queue.refuse_size::<O>(self.id.sequence(), SGES as u32));
        }
        if let Err(error) = self.check(&operation, count, total) {
            // SAFETY: written above, and the slot stays free.
            let context = unsafe { (*slot).context.assume_init_read() };
            return Err(Rejected { context, error });
        }
        if O::READS {
            remember::<O, C>(slot, total as u32);
        }
        self.stage(operation, count, 0);
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
        remember::<O, C>(slot, 0);
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
        self.stage(operation, count, send_flags::INLINE);
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
        let (max, short) = (self.queue.hot.max_message, total as u32);
        // One compare for both: nothing, and more than may be. A queue without pieces has a longest message of
        // 0, and refuses those without a length as well.
        let is_odd = short.wrapping_sub(1) >= max && (short != 0 || (count != 0 && max == 0));
        let is_too_long = is_odd || total > u64::from(u32::MAX);
        if count > SGES || count > most as usize || is_too_long {
            let error = self.queue.raw_fault(count, most.min(SGES as u32), total);
            return Err(Rejected { context, error });
        }
        if let Err(error) = self.check(&operation, count as u32, total) {
            return Err(Rejected { context, error });
        }
        let slot = self.queue.slot(self.id.sequence());
        remember::<O, C>(slot, total as u32);
        // SAFETY: `reserve` found this slot free, so nothing is overwritten that needs a drop.
        unsafe { (*slot).context.write(context) };
        for (index, sge) in sges.iter().enumerate() {
            // SAFETY: at most SGES pieces, as checked above; the row is borrowed by the chain.
            unsafe { self.staging.row_at(self.next).add(index).write(*sge) };
        }
        self.stage(operation, count as u32, 0);
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
    fn stage<O: op::Header>(&mut self, operation: O, count: u32, more_flags: u32) {
        const {
            assert!(
                O::DATAGRAM == P::DATAGRAM,
                "datagrams go through datagram queues, and nothing else does"
            );
        }
        let head = operation.header();
        let flags = head.flags | more_flags;
        let request = self.staging.request_at(self.next);
        // SAFETY: the entry is one of the chain's, which borrows the arrays.
        unsafe {
            staging::write_head(request, self.id.to_raw(), count, head.opcode, flags, head.imm_data)
        };
        // SAFETY: as above.
        operation.write_target(unsafe { &mut *request });
        self.next = self.next.wrapping_add(SendLink::<CHAIN, SGES>::STEP);
        self.id = self.id.step();
        self.flags |= flags;
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
        (self.next.wrapping_sub(self.first) / SendLink::<CHAIN, SGES>::STEP) as u32
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
            self.flags |= send_flags::SIGNALED;
        }
        let period = i32::from(self.queue.hot.period);
        let mut silence = i32::from(self.queue.hot.silence);
        if len as i32 >= silence {
            silence = self.queue.end_silence(first, len, self.flags);
        } else if self.flags & send_flags::SIGNALED != 0 {
            let silent = if is_signaled(last) { 0 } else { silent_end(first, len) };
            silence = period.wrapping_sub(silent);
        } else {
            silence = silence.wrapping_sub(len as i32);
        }
        if self.id.has_carried_in(len) {
            self.id = renumber(first, self.queue.hot.next, len);
        }
        // From here on everything is in flight, so that a port that panics loses nothing.
        let mut this = ManuallyDrop::new(self);
        let (next, reads) = (this.id, this.reads);
        let whole = this.next == SendLink::<CHAIN, SGES>::END;
        let hot = &mut this.queue.hot;
        hot.next = next;
        hot.reads = hot.reads.wrapping_add(reads as u8);
        let unwound = Unwound(&mut hot.silence);
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
        let _ = ManuallyDrop::new(unwound);
        if code == 0 {
            hot.silence = silence as i16;
            return Ok(len);
        }
        let mut rest = ManuallyDrop::into_inner(this);
        // What can be read again need not be kept during the call.
        (rest.id, rest.flags) = (rest.queue.hot.next, 0);
        Err(rest.not_taken(code, bad, silence))
    }

    /// Puts the counters back to what was taken. On the way in all of it counts as in flight.
    #[cold]
    #[inline(never)]
    fn not_taken(mut self, code: i32, bad: *mut SendWr, silence: i32) -> SubmitError<Self> {
        let len = self.len_u32();
        let start = self.id.sequence().wrapping_sub(len);
        let first = self.staging.request_at(self.first);
        // SAFETY: `at` is below the length of the chain.
        let entry = |at: u32| unsafe { first.add(at as usize) };
        let accepted = (0..len).find(|at| ptr::eq(entry(*at), bad));
        let Some(accepted) = accepted else {
            // No word, or a word that is none: nothing comes back before its completion.
            self.queue.hot.silence = silence as i16;
            self.queue.shut(Cause::Unknown { code });
            return SubmitError::Unknown { code };
        };
        let reads = self.queue.hot.reads.wrapping_sub(self.reads as u8);
        let head = start.wrapping_add(accepted);
        self.queue.hot.next = self.id.with_sequence(head);
        self.first += accepted as usize * SendLink::<CHAIN, SGES>::STEP;
        self.queue.hot.reads = reads;
        (self.flags, self.reads) = (0, 0);
        for at in 0..len {
            let sequence = start.wrapping_add(at);
            if at == accepted {
                self.queue.hot.reads = reads.wrapping_add(self.reads as u8);
                (self.flags, self.reads) = (0, 0);
            }
            // SAFETY: the entry is one of the chain's.
            let flags = unsafe { (*entry(at)).send_flags };
            // SAFETY: a request of the chain, so its slot's meta was written by `stage`.
            let credit = unsafe { (*self.queue.slot(sequence)).meta.credit() };
            self.flags |= flags;
            if at < accepted {
                let hot = &mut self.queue.hot;
                let is_silent = flags & send_flags::SIGNALED == 0;
                hot.silence =
                    if is_silent { hot.silence.wrapping_sub(1) } else { hot.period as i16 };
            }
            if credit != 0 {
                self.reads = self.reads.wrapping_add(1);
                self.behind_read = sequence.wrapping_add(1);
            }
        }
        SubmitError::Partial { accepted, code, rest: self }
    }

    /// Takes the chain apart: hands each context to `each`, the first request's first. Nothing was
    /// posted.
    pub fn into_contexts(self, mut each: impl FnMut(C)) {
        let this = ManuallyDrop::new(self);
        let (start, end) = (this.queue.hot.next.sequence(), this.id.sequence());
        give_back::<C, N>(this.queue.hot.slots, start, end, &mut each);
    }
}

impl<P: SendPort, C, const N: usize, const CHAIN: usize, const SGES: usize> Drop
    for SendChain<'_, '_, P, C, N, CHAIN, SGES>
{
    #[inline(always)]
    fn drop(&mut self) {
        let (start, end) = (self.queue.hot.next.sequence(), self.id.sequence());
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

/// Ends the silence when the port panics: what it took is not known then.
struct Unwound<'h>(&'h mut i16);

impl Drop for Unwound<'_> {
    fn drop(&mut self) {
        *self.0 = 0;
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

/// Writes what the queue remembers of a request beside its context, all but the length at once: beside the
/// context it costs one store, behind the checks an address as well.
#[inline(always)]
fn remember<O: op::Header, C>(slot: *mut SendSlot<C>, len: u32) {
    // The length of what only leaves is of no use to anybody.
    let meta = Meta::new(O::OPERATION, O::READS, if O::READS { len } else { 0 });
    // SAFETY: the callers pass a slot of the queue that `reserve` found free.
    unsafe { (*slot).meta = meta };
}

/// Has the device complete `request` with an entry in the completion queue.
#[inline(always)]
pub(super) fn signal(request: *mut SendWr) {
    // SAFETY: the callers pass entries of the chain that they build.
    unsafe { (*request).send_flags |= send_flags::SIGNALED };
}

/// Whether the device will do so.
#[inline(always)]
fn is_signaled(request: *mut SendWr) -> bool {
    // SAFETY: as above.
    unsafe { (*request).send_flags & send_flags::SIGNALED != 0 }
}

/// How many requests are silent behind the last signaled one of a chain.
#[cold]
#[inline(never)]
pub(super) fn silent_end(first: *mut SendWr, len: u32) -> i32 {
    // SAFETY: the callers pass the first entry of a chain and how many it has.
    let signaled = |at: &u32| is_signaled(unsafe { first.add(*at as usize) });
    (0..len).rev().find(signaled).map_or(len, |at| len - 1 - at) as i32
}

/// Writes the ids of a chain again in which the sequence has wrapped. Returns the next one.
#[cold]
#[inline(never)]
fn renumber(first: *mut SendWr, start: Id, len: u32) -> Id {
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
