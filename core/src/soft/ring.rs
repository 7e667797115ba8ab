//! The ring between a thread that posts and the engine.
//!
//! The posting thread copies requests in at `tail`; the engine, on whichever thread drives the
//! device, works on what lies before `tail`; and a slot may be written again once `freed` has
//! passed it. Who moves `freed` depends on the profile: the engine when the request is done, or the
//! poller when its completion was polled.
//!
//! Invariant: `tail - freed <= depth <= N` in wrapping arithmetic; the slots between the two are
//! written, and only the engine looks at them.

use core::mem::MaybeUninit;

use super::profile::PostFault;
use crate::sync::{self, AtomicU32, AtomicUsize, Cell, Ordering, Padded, const_unless_loom};

/// The device has no room, as `ENOMEM`.
pub(super) const NO_ROOM: i32 = 12;
/// The request or the state is wrong, as `EINVAL`.
pub(super) const INVALID: i32 = 22;

/// The device was taken away, as `EIO`.
pub(super) const GONE: i32 = 5;

/// Whether a ring takes requests; the two low bits of the gate. The bits above are a [`PostFault`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Gate {
    /// Refuses: wrong state.
    Closed = 0,
    /// Takes.
    Open = 1,
    /// Takes, and says that it did not.
    Askew = 2,
    /// Refuses: the device was taken away.
    Gone = 3,
}

/// What the posting thread checks a request against. Written before the ends are handed out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) depth: usize,
    pub(super) sges: u32,
    pub(super) read_sges: u32,
    pub(super) inline: u32,
    /// One bit an operation that the post takes.
    pub(super) opcodes: u32,
    pub(super) other_opcodes: bool,
    pub(super) empty_sges_refused: bool,
    pub(super) crooked_atomics_refused: bool,
}

impl Limits {
    pub(super) const NONE: Self = Self {
        depth: 0,
        sges: 0,
        read_sges: 0,
        inline: 0,
        opcodes: 0,
        other_opcodes: false,
        empty_sges_refused: false,
        crooked_atomics_refused: false,
    };
}

/// What the posting thread writes, and the gate, which it reads with every post.
struct Producer {
    tail: AtomicUsize,
    gate: AtomicU32,
    /// `freed` as the posting thread last saw it, so that it need not fetch the line each time.
    seen: Cell<usize>,
    limits: Cell<Limits>,
}

pub(super) struct Ring<T, const N: usize> {
    producer: Padded<Producer>,
    freed: Padded<AtomicUsize>,
    entries: [Cell<MaybeUninit<T>>; N],
}

/// Where a chain stopped being taken.
struct Taken<W> {
    /// The first request that was not; null when all were.
    rest: *mut W,
    /// How many were.
    count: usize,
    /// Why the next was not, 0 when nothing is wrong with it.
    code: i32,
}

impl<T, const N: usize> Ring<T, N> {
    const MASK: usize = {
        assert!(N.is_power_of_two(), "DEPTH must be a power of two");
        N - 1
    };

    const_unless_loom! {
        pub(super) fn new() -> Self {
            Self {
                producer: Padded(Producer {
                    tail: AtomicUsize::new(0),
                    gate: AtomicU32::new(Gate::Closed as u32),
                    seen: Cell::new(0),
                    limits: Cell::new(Limits::NONE),
                }),
                freed: sync::padded(0),
                entries: sync::array!(Cell::new(MaybeUninit::uninit()); N),
            }
        }
    }

    fn entry(&self, index: usize) -> &Cell<MaybeUninit<T>> {
        // SAFETY: the mask is N − 1 and N is a power of two, so the result is less than N.
        unsafe { self.entries.get_unchecked(index & Self::MASK) }
    }

    /// Posts a chain as the verbs do. `next` reads a request's link, `fill` checks a request and
    /// writes its copy, or returns an error number.
    ///
    /// # Safety
    ///
    /// One thread at a time. `first` is null or starts a chain of requests, ended by null, that
    /// both closures may read.
    #[inline(always)]
    pub(super) unsafe fn post<W>(
        &self,
        first: *mut W,
        bad: &mut *mut W,
        next: impl Fn(*mut W) -> *mut W,
        fill: impl Fn(*mut W, &Limits, *mut T) -> i32,
    ) -> i32 {
        // Relaxed: the gate publishes nothing. A post that slips past a gate which closes
        // meanwhile leaves a request that nobody will look at.
        let gate = self.producer.0.gate.load(Ordering::Relaxed);
        if gate != Gate::Open as u32 {
            // SAFETY: the caller's promise.
            return unsafe { self.post_oddly(gate, first, bad, next, fill) };
        }
        // SAFETY: the caller's promise.
        let taken = unsafe { self.take(first, usize::MAX, next, fill) };
        *bad = taken.rest;
        taken.code
    }

    /// The post when the gate is not simply open.
    ///
    /// # Safety
    ///
    /// As for [`Self::post`].
    #[cold]
    unsafe fn post_oddly<W>(
        &self,
        gate: u32,
        first: *mut W,
        bad: &mut *mut W,
        next: impl Fn(*mut W) -> *mut W,
        fill: impl Fn(*mut W, &Limits, *mut T) -> i32,
    ) -> i32 {
        let fault = PostFault::from_bits(gate >> 2);
        let mode = gate & 3;
        if mode == Gate::Closed as u32 || mode == Gate::Gone as u32 {
            *bad = first;
            return if mode == Gate::Gone as u32 { GONE } else { INVALID };
        }
        let most = fault.map_or(usize::MAX, PostFault::taken);
        // SAFETY: the caller's promise.
        let taken = unsafe { self.take(first, most, next, fill) };
        if taken.code != 0 {
            *bad = taken.rest;
            return taken.code;
        }
        if let Some(fault) = fault {
            if fault.is_named() && taken.rest.is_null() {
                self.set_fault(fault.less(taken.count));
                return 0;
            }
            self.set_fault(0);
            if fault.is_named() {
                *bad = taken.rest;
            }
            return fault.code();
        }
        INVALID
    }

    /// Copies requests in, at most `most`, and publishes them at once.
    ///
    /// # Safety
    ///
    /// As for [`Self::post`].
    #[inline(always)]
    unsafe fn take<W>(
        &self,
        first: *mut W,
        most: usize,
        next: impl Fn(*mut W) -> *mut W,
        fill: impl Fn(*mut W, &Limits, *mut T) -> i32,
    ) -> Taken<W> {
        let producer = &self.producer.0;
        // SAFETY: limits are written before the ends of the ring are handed out, and not again
        // while they exist.
        let limits = producer.limits.with(|limits| unsafe { *limits });
        // SAFETY: only the posting thread looks at this cell while the ends exist.
        let mut seen = producer.seen.with(|seen| unsafe { *seen });
        // Relaxed: only this thread writes it.
        let start = producer.tail.load(Ordering::Relaxed);
        let mut tail = start;
        let mut rest = first;
        let mut code = 0;
        while !rest.is_null() && tail.wrapping_sub(start) < most {
            if tail.wrapping_sub(seen) >= limits.depth {
                // Pairs with the release store in `free`: whoever read the slot is done with it.
                seen = self.freed.0.load(Ordering::Acquire);
                // SAFETY: as above.
                producer.seen.with_mut(|cell| unsafe { *cell = seen });
                if tail.wrapping_sub(seen) >= limits.depth {
                    code = NO_ROOM;
                    break;
                }
            }
            // The slot is free, and only this thread takes free slots.
            code = self.entry(tail).with_mut(|entry| fill(rest, &limits, entry.cast::<T>()));
            if code != 0 {
                break;
            }
            tail = tail.wrapping_add(1);
            rest = next(rest);
        }
        // Pairs with the acquire load in `tail`: the slots' bytes are visible. One store a chain.
        producer.tail.store(tail, Ordering::Release);
        Taken { rest, count: tail.wrapping_sub(start), code }
    }

    /// How far requests have been posted. For the engine.
    #[inline(always)]
    pub(super) fn tail(&self) -> usize {
        // Pairs with the release store in `take`.
        self.producer.0.tail.load(Ordering::Acquire)
    }

    /// The request in a slot. For the engine.
    ///
    /// # Safety
    ///
    /// `index` lies before [`Self::tail`] and was not freed; it is not freed while the result is
    /// used.
    #[inline(always)]
    pub(super) unsafe fn get(&self, index: usize) -> &T {
        let entry: *const T = self.entry(index).with(|entry| entry.cast());
        // SAFETY: the slot was written before the tail passed it, and the posting thread will not
        // touch it before it is freed.
        unsafe { &*entry }
    }

    /// Lets the posting thread have every slot before `index` again.
    #[inline(always)]
    pub(super) fn free(&self, index: usize) {
        // Pairs with the acquire load in `take`: the reads of the slot come before this.
        self.freed.0.store(index, Ordering::Release);
    }

    /// Makes the ring ready for new ends; returns where it starts.
    ///
    /// # Safety
    ///
    /// Under the engine's lock, while no end exists and nobody will call [`Self::free`] any more.
    pub(super) unsafe fn start(&self, limits: Limits, gate: Gate) -> usize {
        let tail = self.tail();
        self.free(tail);
        // SAFETY: no end exists, so nobody looks at the cells.
        self.producer.0.seen.with_mut(|seen| unsafe { *seen = tail });
        // SAFETY: as above.
        self.producer.0.limits.with_mut(|cell| unsafe { *cell = limits });
        // Relaxed: the ends are handed out behind this, by whatever means orders that.
        self.producer.0.gate.store(gate as u32, Ordering::Relaxed);
        tail
    }

    /// Opens or closes the ring; an ordered fault stays. Under the engine's lock.
    pub(super) fn set_gate(&self, gate: Gate) {
        self.update_gate(|old| (old & !3) | gate as u32);
    }

    /// Orders a fault for the next post, or none.
    pub(super) fn set_fault(&self, bits: u32) {
        self.update_gate(|old| (old & 3) | bits << 2);
    }

    fn update_gate(&self, new: impl Fn(u32) -> u32) {
        // Relaxed, as the load in `post`. The closure always gives a value, so this cannot fail.
        let _ = self
            .producer
            .0
            .gate
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |old| Some(new(old)));
    }

    /// Lets an empty ring start at an index, for tests of wrapping.
    #[cfg(all(test, not(loom)))]
    pub(super) fn start_at(&self, index: usize) {
        self.producer.0.tail.store(index, Ordering::Relaxed);
        // SAFETY: the test has the only end in its hands.
        self.producer.0.seen.with_mut(|seen| unsafe { *seen = index });
        self.free(index);
    }
}

// SAFETY: a ring is filled by one thread and read by another; each cell is touched by one side at a
// time, as the indices say, and the pointers in the entries are only addresses until the engine
// follows them under the promises of the post.
unsafe impl<T, const N: usize> Send for Ring<T, N> {}
// SAFETY: as above.
unsafe impl<T, const N: usize> Sync for Ring<T, N> {}
