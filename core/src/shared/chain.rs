//! Receives for a shared queue that are being built, to be posted together.

use core::fmt;
use core::mem::ManuallyDrop;
use core::ptr::{self, NonNull};

use super::{SharedRecvQueue, SharedSlot, State};
use crate::abi::RecvWr;
use crate::context::{RecvBuffers, SliceList};
use crate::leak;
use crate::port::RecvPort;
use crate::recv::chain::post_short;
use crate::refusal::{Cause, PushError, Rejected, SubmitError};
use crate::region::Wanted;
use crate::staging::RecvLink;

/// Receives for a [`SharedRecvQueue`] that are being built. Dropped, it drops their contexts and nothing was
/// posted.
#[must_use = "a chain does nothing until it is submitted"]
pub struct SharedRecvChain<
    'q,
    's,
    P: RecvPort,
    C,
    const N: usize,
    const CHAIN: usize,
    const SGES: usize,
> {
    queue: &'q mut SharedRecvQueue<'s, P, C, N>,
    staging: RecvLink<'q, CHAIN, SGES>,
    /// The places of the first receive and of the next one.
    first: usize,
    next: usize,
    /// The slot of the next receive; the first one's is the first of the free list.
    slot: u32,
    len: u32,
}

impl<'q, 's, P: RecvPort, C, const N: usize, const CHAIN: usize, const SGES: usize>
    SharedRecvChain<'q, 's, P, C, N, CHAIN, SGES>
{
    #[inline(always)]
    pub(super) fn new(
        queue: &'q mut SharedRecvQueue<'s, P, C, N>,
        staging: RecvLink<'q, CHAIN, SGES>,
        n: usize,
    ) -> Self {
        let first = CHAIN.wrapping_sub(n).wrapping_mul(RecvLink::<CHAIN, SGES>::STEP);
        Self { first, next: first, slot: queue.hot.free, len: 0, queue, staging }
    }

    /// Adds a receive into the buffers that `context` owns. None is fine: an empty message, or a
    /// WRITE with immediate, needs no memory. Where datagram queue pairs share the queue, the contexts are
    /// [`crate::Datagram`]s.
    ///
    /// # Errors
    ///
    /// [`Rejected`] with the context; the chain is as it was.
    #[doc(alias = "ibv_post_srq_recv")]
    #[inline(always)]
    pub fn push(&mut self, context: C) -> Result<(), Rejected<C>>
    where
        C: RecvBuffers,
    {
        if self.next == RecvLink::<CHAIN, SGES>::END {
            return Err(Rejected { context, error: PushError::ChainFull });
        }
        let slot = self.queue.slot(self.slot);
        // SAFETY: `reserve` found this slot free, so nothing is overwritten that needs a drop.
        let context = unsafe { (*slot).context.write(context) };
        let (row, domain) = (self.staging.row_at(self.next), self.queue.hot.domain);
        // SAFETY: the row has SGES entries and is borrowed by the chain.
        let mut list = unsafe { SliceList::new(row, SGES as u32, u32::MAX, domain, Wanted::SINK) };
        context.scatter(&mut list);
        let (count, most) = (list.count(), u32::from(self.queue.hot.max_sges));
        if list.is_faulty() || count > most || count > SGES as u32 {
            return Err(self.refuse(slot));
        }
        let request = self.staging.request_at(self.next);
        // SAFETY: the queue owns its slots.
        let ticket = unsafe { (*slot).ticket.wrapping_add(N as u32) };
        // SAFETY: as above; the slot is free, and posted once the chain is submitted.
        unsafe {
            (*slot).ticket = ticket;
            (*slot).state = State::Posted;
        }
        // SAFETY: the entry is one of the chain's, which borrows the arrays.
        unsafe {
            (*request).wr_id = (u64::from(self.queue.hot.serial) << 32) | u64::from(ticket);
            (*request).num_sge = count as i32;
        }
        self.next = self.next.wrapping_add(RecvLink::<CHAIN, SGES>::STEP);
        self.len = self.len.wrapping_add(1);
        // SAFETY: the queue owns its slots.
        self.slot = unsafe { (*slot).next };
        Ok(())
    }

    /// Refuses the context that `push` has just moved into `slot`.
    #[cold]
    #[inline(never)]
    fn refuse(&self, slot: *mut SharedSlot<C>) -> Rejected<C>
    where
        C: RecvBuffers,
    {
        // SAFETY: the slot was written by `push`, and counts as free again.
        let mut context = unsafe { (*slot).context.assume_init_read() };
        let mut list = SliceList::inspector(self.queue.hot.domain, Wanted::SINK);
        context.scatter(&mut list);
        let error = list.refusal(u32::from(self.queue.hot.max_sges).min(SGES as u32), u64::MAX);
        Rejected { context, error }
    }

    /// Receives in the chain.
    #[inline(always)]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether no receive is in the chain.
    #[inline(always)]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Posts the chain with one call to the device, which rings one doorbell. Says how many receives
    /// were posted; an empty chain is 0 and no call.
    ///
    /// # Errors
    ///
    /// [`SubmitError`] when the device does not take the whole chain.
    #[inline(always)]
    pub fn submit(self) -> Result<u32, SubmitError<Self>> {
        if self.is_empty() {
            return Ok(0);
        }
        let first = self.staging.request_at(self.first);
        // SAFETY: the chain is not empty.
        let last = unsafe { self.staging.request_at(self.next).sub(1) };
        // From here on everything is in flight, so that a port that panics loses nothing.
        let mut this = ManuallyDrop::new(self);
        let (slot, len) = (this.slot, this.len);
        let whole = this.next == RecvLink::<CHAIN, SGES>::END;
        let hot = &mut this.queue.hot;
        let start = hot.free;
        hot.free = slot;
        hot.used = hot.used.wrapping_add(len);
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
        Err(ManuallyDrop::into_inner(this).not_taken(start, code, bad))
    }

    /// Puts the free list back to what was taken. On the way in all of it counts as posted.
    #[cold]
    #[inline(never)]
    fn not_taken(mut self, start: u32, code: i32, bad: *mut RecvWr) -> SubmitError<Self> {
        let first = self.staging.request_at(self.first);
        // SAFETY: `at` is below the length of the chain.
        let is_bad = |at: &u32| ptr::eq(unsafe { first.add(*at as usize) }, bad);
        let Some(accepted) = (0..self.len).find(is_bad) else {
            // No word, or a word that is none: nothing comes back before its completion.
            self.queue.shut(Cause::Unknown { code });
            self.len = 0;
            return SubmitError::Unknown { code };
        };
        let mut free = start;
        for _ in 0..accepted {
            // SAFETY: the queue owns its slots; those of the chain are linked still.
            free = unsafe { (*self.queue.slot(free)).next };
        }
        let rest = self.len.wrapping_sub(accepted);
        self.queue.hot.free = free;
        self.queue.hot.used = self.queue.hot.used.wrapping_sub(rest);
        self.first += accepted as usize * RecvLink::<CHAIN, SGES>::STEP;
        self.len = rest;
        SubmitError::Partial { accepted, code, rest: self }
    }

    /// Takes the chain apart: hands each context to `each`, the first receive's first. Nothing was
    /// posted.
    pub fn into_contexts(self, mut each: impl FnMut(C)) {
        let this = ManuallyDrop::new(self);
        give_back::<C, N>(this.queue.hot.slots, this.queue.hot.free, this.len, &mut each);
    }
}

impl<P: RecvPort, C, const N: usize, const CHAIN: usize, const SGES: usize> Drop
    for SharedRecvChain<'_, '_, P, C, N, CHAIN, SGES>
{
    fn drop(&mut self) {
        if self.len != 0 {
            give_back::<C, N>(self.queue.hot.slots, self.queue.hot.free, self.len, drop);
        }
    }
}

impl<P: RecvPort, C, const N: usize, const CHAIN: usize, const SGES: usize> fmt::Debug
    for SharedRecvChain<'_, '_, P, C, N, CHAIN, SGES>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedRecvChain").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// Hands on the contexts of a chain that is not used any more, moves each out once, and makes its slot a free
/// one again.
///
/// It takes numbers: given the chain, a function that is not inlined would have it built in memory.
#[cold]
#[inline(never)]
fn give_back<C, const N: usize>(
    slots: NonNull<SharedSlot<C>>,
    mut at: u32,
    mut left: u32,
    each: impl FnMut(C),
) {
    let next = || {
        if left == 0 {
            return None;
        }
        left = left.wrapping_sub(1);
        let index = at & (N as u32).wrapping_sub(1);
        // SAFETY: the callers pass the slots of a queue and the first of its free list, as many of which hold
        // contexts; `left` and `at` have passed this one.
        unsafe {
            let slot = slots.as_ptr().add(index as usize);
            at = (*slot).next;
            (*slot).state = State::Free;
            Some((*slot).context.assume_init_read())
        }
    };
    leak::hand_on(next, each);
}
