//! A chain of a receive queue: push and submit.

use super::*;

/// Receives that are being built, to be posted together. Dropped, it drops their contexts and nothing
/// was posted.
#[must_use = "a chain does nothing until it is submitted"]
pub struct RecvChain<'q, 's, P: RecvPort, C, const N: usize, const CHAIN: usize, const SGES: usize>
{
    pub(super) queue: &'q mut RecvQueue<'s, P, C, N>,
    pub(super) staging: RecvLink<'q, CHAIN, SGES>,
    /// The places of the first receive and of the next one.
    pub(super) first: usize,
    pub(super) next: usize,
    /// The id of the next receive; that of the first is the queue's next one.
    pub(super) id: Id,
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
                u32::MAX,
                self.queue.hot.domain,
                Wanted::SINK,
            )
        };
        context.scatter(&mut list);
        let (count, most) = (list.count(), u32::from(self.queue.hot.max_sges));
        if list.is_faulty() || count > most || count > SGES as u32 {
            return Err(self.queue.refuse(self.id.sequence(), SGES as u32));
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
        (self.next.wrapping_sub(self.first) / RecvLink::<CHAIN, SGES>::STEP) as u32
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
        if self.id.has_carried_in(len) {
            self.id = renumber(first, self.queue.hot.next, len);
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
        // What can be read again need not be kept during the call.
        rest.id = rest.queue.hot.next;
        Err(rest.not_taken(code, bad))
    }

    /// Puts the head back to what was taken. On the way in all of it counts as posted.
    #[cold]
    #[inline(never)]
    fn not_taken(mut self, code: i32, bad: *mut RecvWr) -> SubmitError<Self> {
        let len = self.len_u32();
        let start = self.id.sequence().wrapping_sub(len);
        let first = self.staging.request_at(self.first);
        // SAFETY: `at` is below the length of the chain.
        let entry = |at: u32| unsafe { first.add(at as usize) };
        let accepted = (0..len).find(|at| ptr::eq(entry(*at), bad));
        let Some(accepted) = accepted else {
            // No word, or a word that is none: nothing comes back before its completion.
            self.queue.shut(Cause::Unknown { code });
            return SubmitError::Unknown { code };
        };
        let head = start.wrapping_add(accepted);
        self.queue.hot.next = self.id.with_sequence(head);
        self.first += accepted as usize * RecvLink::<CHAIN, SGES>::STEP;
        SubmitError::Partial { accepted, code, rest: self }
    }

    /// Takes the chain apart: hands each context to `each`, the first receive's first. Nothing was
    /// posted.
    pub fn into_contexts(self, mut each: impl FnMut(C)) {
        let this = ManuallyDrop::new(self);
        let (start, end) = (this.queue.hot.next.sequence(), this.id.sequence());
        give_back::<C, N>(this.queue.hot.slots, start, end, &mut each);
    }
}

impl<P: RecvPort, C, const N: usize, const CHAIN: usize, const SGES: usize> Drop
    for RecvChain<'_, '_, P, C, N, CHAIN, SGES>
{
    #[inline(always)]
    fn drop(&mut self) {
        let (start, end) = (self.queue.hot.next.sequence(), self.id.sequence());
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
fn renumber(first: *mut RecvWr, start: Id, len: u32) -> Id {
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
