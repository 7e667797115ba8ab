//! Hand-off of values from one thread to one other thread.
//!
//! The producer half lives on the thread that hands over, the consumer half on the thread that
//! takes. Neither ever waits: a full ring gives the value back, an empty one nothing.
//!
//! Indices run free and wrap. Each half keeps the other's index as it last saw it and looks again
//! only when that is not enough; a batch is published by one store.
//!
//! Invariant: `tail - head ≤ N` in wrapping arithmetic; slots in `head..tail` are initialised, and
//! the consumer's. All others are the producer's.
//!
//! ```
//! use nanoverbs_core::Ring;
//!
//! let mut ring = Ring::<u32, 4>::new();
//! let (mut producer, mut consumer) = ring.split();
//! producer.push(1).unwrap();
//! let mut grant = producer.reserve(2).unwrap();
//! grant.write(2).unwrap();
//! grant.write(3).unwrap();
//! grant.commit();
//! assert_eq!(consumer.pop(), Some(1));
//! assert!(consumer.drain(16).eq([2, 3]));
//! ```

use core::fmt;
use core::mem::MaybeUninit;

use crate::sync::{AtomicUsize, Cell, Ordering, Padded, array, const_unless_loom, padded};

/// A ring of `N` values, a power of two. Split it to use it.
pub struct Ring<T, const N: usize> {
    /// The next slot to take; the consumer writes it.
    head: Padded<AtomicUsize>,
    /// The oldest value that was not taken: the consumer's own, and never behind `head`. Kept here and not
    /// in the consumer, so that a value that was taken out of a drain which was then forgotten is not
    /// taken again after the next split.
    taken: Padded<Cell<usize>>,
    /// The next slot to fill; the producer writes it.
    tail: Padded<AtomicUsize>,
    slots: [Cell<MaybeUninit<T>>; N],
}

// SAFETY: the halves hand each value from one thread to the other; a value is never shared.
unsafe impl<T: Send, const N: usize> Sync for Ring<T, N> {}
// SAFETY: an owned ring is its values.
unsafe impl<T: Send, const N: usize> Send for Ring<T, N> {}

impl<T, const N: usize> Ring<T, N> {
    const CAPACITY_OK: () =
        assert!(N.is_power_of_two(), "the capacity of a ring is a power of two");
    const MASK: usize = N.wrapping_sub(1);

    const_unless_loom! {
        /// An empty ring.
        pub fn new() -> Self {
            const { Self::CAPACITY_OK }
            Self {
                head: padded(0),
                taken: Padded(Cell::new(0)),
                tail: padded(0),
                slots: array![Cell::new(MaybeUninit::uninit()); N],
            }
        }
    }

    /// The two halves. When both are gone the ring can be split again, with what is left in it.
    pub fn split(&mut self) -> (Producer<'_, T, N>, Consumer<'_, T, N>) {
        let ring = &*self;
        // SAFETY: the ring is borrowed exclusively, so no consumer writes it.
        let taken = ring.taken.0.with(|taken| unsafe { *taken });
        // Relaxed: the ring is borrowed exclusively, so whatever wrote these has been joined.
        let (head, tail) =
            (ring.head.0.load(Ordering::Relaxed), ring.tail.0.load(Ordering::Relaxed));
        (Producer { ring, tail, head }, Consumer { ring, head: taken, given_up: head, tail })
    }

    #[inline(always)]
    fn slot(&self, index: usize) -> &Cell<MaybeUninit<T>> {
        // SAFETY: the mask keeps the index below N.
        unsafe { self.slots.get_unchecked(index & Self::MASK) }
    }
}

impl<T, const N: usize> Default for Ring<T, N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T, const N: usize> Drop for Ring<T, N> {
    fn drop(&mut self) {
        let (_, mut consumer) = self.split();
        while consumer.pop().is_some() {}
    }
}

impl<T, const N: usize> fmt::Debug for Ring<T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("capacity", &N).finish_non_exhaustive()
    }
}

/// The ring is full. The value comes back.
pub struct Full<T>(pub T);

impl<T> fmt::Debug for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Full(..)")
    }
}

impl<T> fmt::Display for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the ring is full")
    }
}

impl<T> core::error::Error for Full<T> {}

/// The half that hands values over.
#[derive(Debug)]
pub struct Producer<'r, T, const N: usize> {
    ring: &'r Ring<T, N>,
    /// What the ring's tail is: only this half writes it.
    tail: usize,
    /// The consumer's index, as last seen.
    head: usize,
}

impl<T, const N: usize> Producer<'_, T, N> {
    /// Hands a value over.
    ///
    /// # Errors
    ///
    /// [`Full`] with the value.
    #[inline(always)]
    pub fn push(&mut self, value: T) -> Result<(), Full<T>> {
        let Some(mut grant) = self.reserve(1) else {
            return Err(Full(value));
        };
        grant.write(value)?;
        grant.commit();
        Ok(())
    }

    /// Room for `n` values that are published together, or `None` when fewer fit.
    #[inline(always)]
    pub fn reserve(&mut self, n: usize) -> Option<Grant<'_, T, N>> {
        if self.free(n) < n {
            return None;
        }
        let (from, end) = (self.tail, self.tail.wrapping_add(n));
        Some(Grant { ring: self.ring, tail: &mut self.tail, from, to: from, end })
    }

    /// Values that fit now. The consumer makes room at any time, so it may be more already.
    #[inline(always)]
    pub fn room(&mut self) -> usize {
        self.free(N)
    }

    #[inline(always)]
    fn free(&mut self, wanted: usize) -> usize {
        let free = N.wrapping_sub(self.tail.wrapping_sub(self.head));
        if free >= wanted {
            return free;
        }
        // Acquire, pairs with the release in `Drain`'s drop: the consumer is done with the
        // slots that it gave up.
        self.head = self.ring.head.0.load(Ordering::Acquire);
        N.wrapping_sub(self.tail.wrapping_sub(self.head))
    }
}

/// Room in a ring, reserved. Dropped, it publishes nothing and drops what was written.
#[must_use = "nothing is handed over until the grant is committed"]
pub struct Grant<'p, T, const N: usize> {
    ring: &'p Ring<T, N>,
    tail: &'p mut usize,
    from: usize,
    to: usize,
    end: usize,
}

impl<T, const N: usize> Grant<'_, T, N> {
    /// Writes the next value.
    ///
    /// # Errors
    ///
    /// [`Full`] with the value, when as many as were reserved have been written.
    #[inline(always)]
    pub fn write(&mut self, value: T) -> Result<(), Full<T>> {
        if self.to == self.end {
            return Err(Full(value));
        }
        // SAFETY: the slot lies in the reserved range, which is the producer's.
        self.ring.slot(self.to).with_mut(|slot| unsafe {
            (*slot).write(value);
        });
        self.to = self.to.wrapping_add(1);
        Ok(())
    }

    /// Hands over what was written, all at once. Says how many.
    #[inline(always)]
    pub fn commit(mut self) -> usize {
        let written = self.to.wrapping_sub(self.from);
        *self.tail = self.to;
        // Release, pairs with the acquire in `Consumer::available`: the slots' bytes are visible.
        self.ring.tail.0.store(self.to, Ordering::Release);
        self.from = self.to;
        written
    }
}

impl<T, const N: usize> Drop for Grant<'_, T, N> {
    #[inline(always)]
    fn drop(&mut self) {
        while self.from != self.to {
            // SAFETY: written by this grant and not published.
            self.ring.slot(self.from).with_mut(|slot| unsafe { (*slot).assume_init_drop() });
            self.from = self.from.wrapping_add(1);
        }
    }
}

impl<T, const N: usize> fmt::Debug for Grant<'_, T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant")
            .field("written", &self.to.wrapping_sub(self.from))
            .field("reserved", &self.end.wrapping_sub(self.from))
            .finish_non_exhaustive()
    }
}

/// The half that takes values.
#[derive(Debug)]
pub struct Consumer<'r, T, const N: usize> {
    ring: &'r Ring<T, N>,
    /// The oldest value that was not taken.
    head: usize,
    /// What the ring's head is: only this half writes it. Less than `head` while slots are taken and
    /// not given up, as when a drain was forgotten.
    given_up: usize,
    /// The producer's index, as last seen.
    tail: usize,
}

impl<'r, T, const N: usize> Consumer<'r, T, N> {
    /// Takes the oldest value, if there is one.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<T> {
        self.drain(1).next()
    }

    /// Takes up to `max` values; the producer gets all their room back at once, when the iterator is
    /// dropped. What is not taken out of it stays.
    #[inline(always)]
    pub fn drain(&mut self, max: usize) -> Drain<'_, T, N> {
        let end = self.head.wrapping_add(self.available(max).min(max));
        let (head, given_up) = (&mut self.head, &mut self.given_up);
        Drain { ring: self.ring, head, given_up, end }
    }

    /// Values that can be taken now. The producer adds some at any time, so it may be more already.
    #[inline(always)]
    pub fn len(&mut self) -> usize {
        self.available(N)
    }

    /// Whether there is nothing to take now.
    #[inline(always)]
    pub fn is_empty(&mut self) -> bool {
        self.available(1) == 0
    }

    #[inline(always)]
    fn available(&mut self, wanted: usize) -> usize {
        let available = self.tail.wrapping_sub(self.head);
        if available >= wanted {
            return available;
        }
        // Acquire, pairs with the release in `Grant::commit`: the slots' bytes are visible.
        self.tail = self.ring.tail.0.load(Ordering::Acquire);
        self.tail.wrapping_sub(self.head)
    }
}

/// Values on their way out of a ring.
pub struct Drain<'c, T, const N: usize> {
    ring: &'c Ring<T, N>,
    head: &'c mut usize,
    given_up: &'c mut usize,
    end: usize,
}

impl<T, const N: usize> Iterator for Drain<'_, T, N> {
    type Item = T;

    #[inline(always)]
    fn next(&mut self) -> Option<T> {
        let at = *self.head;
        if at == self.end {
            return None;
        }
        // SAFETY: slots in `head..end` are initialised and the consumer's. The two stores below pass
        // this one, so that it is taken once, also when this drain is forgotten.
        let value = self.ring.slot(at).with(|slot| unsafe { (*slot).assume_init_read() });
        *self.head = at.wrapping_add(1);
        // SAFETY: only the consumer writes it, and nobody else looks while there is one.
        self.ring.taken.0.with_mut(|taken| unsafe { *taken = at.wrapping_add(1) });
        Some(value)
    }

    #[inline(always)]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.end.wrapping_sub(*self.head);
        (left, Some(left))
    }
}

impl<T, const N: usize> ExactSizeIterator for Drain<'_, T, N> {}

impl<T, const N: usize> Drop for Drain<'_, T, N> {
    #[inline(always)]
    fn drop(&mut self) {
        if *self.head != *self.given_up {
            *self.given_up = *self.head;
            // Release, pairs with the acquire in `Producer::free`: the slots are given up.
            self.ring.head.0.store(*self.head, Ordering::Release);
        }
    }
}

impl<T, const N: usize> fmt::Debug for Drain<'_, T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drain").field("left", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
