//! The id that travels with a request and names it in its completion: one codec, one module.
//!
//! One `u64`: the serial of the queue in the upper half, the sequence of the request in the lower.
//! Serials are unique in the process, even for a send queue and odd for a receive queue, so a
//! completion shows whose it is by itself. The slot of a request is its sequence under the depth's
//! mask. An id is built with one `or` and written with one store.
//!
//! Serials come from numbers that are counted up. A [`crate::Group`] takes them in blocks, so that the low
//! bits of a member's number are its index in the group, and gives both halves of a queue pair one number.

use crate::sync::machine::{AtomicU32, Ordering};

/// A queue's part of the id, already in the upper half.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Serial(u32);

impl Serial {
    /// A serial that no other queue of this process has, for a send queue.
    pub(crate) fn send() -> Self {
        Self(numbers(1) << 1)
    }

    /// The same for a receive queue.
    pub(crate) fn recv() -> Self {
        Self((numbers(1) << 1) | 1)
    }

    /// The serials of the two halves of a queue pair with this number, send and receive.
    pub(crate) const fn pair(number: u32) -> (Self, Self) {
        (Self(number << 1), Self((number << 1) | 1))
    }

    /// The part of the ids that this queue's requests share; [`with_sequence`] adds the rest.
    #[inline(always)]
    pub(crate) const fn high(self) -> u64 {
        (self.0 as u64) << 32
    }

    /// The number.
    #[inline(always)]
    pub(crate) const fn number(self) -> u32 {
        self.0
    }
}

/// `count` numbers, a power of two, that no other queue of this process has. The first one, which is a
/// multiple of `count`, is returned.
pub(crate) fn numbers(count: u32) -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let mask = count.wrapping_sub(1);
    let first_from = |next: u32| next.wrapping_add(mask) & !mask;
    // Relaxed: only uniqueness matters. It wraps after 2^31 queues; by then no completion of the
    // first one can still be in a completion queue, which was drained many times since.
    let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
    let step = |next| Some(first_from(next).wrapping_add(count));
    let (Ok(next) | Err(next)) = NEXT.fetch_update(set, fetch, step);
    first_from(next)
}

/// The id of the request with this sequence of the queue that `high` is of.
#[inline(always)]
pub(crate) const fn with_sequence(high: u64, sequence: u32) -> u64 {
    high | sequence as u64
}

/// Which half of a queue pair an id belongs to.
#[inline(always)]
pub(crate) const fn is_recv(id: u64) -> bool {
    id & (1 << 32) != 0
}

/// The serial in an id, as a number.
#[inline(always)]
pub(crate) const fn serial_of(id: u64) -> u32 {
    (id >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_out_again() {
        let (send, recv) = (Serial::send(), Serial::recv());
        assert_ne!(send, recv);
        for sequence in [0, 1, u32::MAX - 3, u32::MAX] {
            let id = with_sequence(send.high(), sequence);
            let other = with_sequence(recv.high(), sequence);
            assert_eq!((serial_of(id), id as u32), (send.number(), sequence));
            assert!(!is_recv(id) && is_recv(other));
            assert_eq!(serial_of(other), recv.number());
        }
    }
    #[test]
    fn numbers_come_in_blocks_that_do_not_overlap() {
        for count in [1, 4, 64] {
            let (first, second) = (numbers(count), numbers(count));
            assert_eq!((first % count, second % count), (0, 0));
            assert!(second.wrapping_sub(first) >= count);
        }
        let (send, recv) = Serial::pair(numbers(1));
        assert_eq!(send.number() | 1, recv.number());
    }
}
