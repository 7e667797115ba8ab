//! The id that travels with a request and names it in its completion: one codec, one module.
//!
//! One `u64`: the serial of the queue in the upper half, the sequence of the request in the lower.
//! Serials are unique in the process, even for a send queue and odd for a receive queue, so a
//! completion shows whose it is by itself. The slot of a request is its sequence under the depth's
//! mask. A queue keeps the id of its next request as one number, so that a push writes it with one store
//! and counts on with one addition.
//!
//! Serials come from numbers that are counted up. A [`crate::Group`] takes them in blocks, so that
//! the low bits of a member's number are its index in the group, and gives both halves of a queue
//! pair one number.

use crate::sync::machine::{AtomicU32, Ordering};

/// A queue's part of the id, already in the upper half.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Serial(u32);

impl Serial {
    /// A serial that no other queue of this process has had, for a send queue; `None` when there is none
    /// left.
    pub(crate) fn send() -> Option<Self> {
        numbers(1).map(|number| Self::pair(number).0)
    }

    /// The same for a receive queue.
    pub(crate) fn recv() -> Option<Self> {
        numbers(1).map(|number| Self::pair(number).1)
    }

    /// The serials of the two halves of a queue pair with this number, send and receive.
    pub(crate) const fn pair(number: u32) -> (Self, Self) {
        (Self(number << 1), Self((number << 1) | 1))
    }

    /// The number.
    #[inline(always)]
    pub(crate) const fn number(self) -> u32 {
        self.0
    }
}

/// `count` numbers, a power of two, that no other queue of this process has had. The first one, which
/// is a multiple of `count`, is returned; `None` when there are not so many left of 2^31.
///
/// Numbers are never used again: a completion may be kept for as long as a program likes, and must not end a
/// request of another queue then.
pub(crate) fn numbers(count: u32) -> Option<u32> {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    // Relaxed: only uniqueness matters.
    let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
    let step = |next| Some(run(next, count)?.wrapping_add(count));
    run(NEXT.fetch_update(set, fetch, step).ok()?, count)
}

/// The first of `count` numbers from `next` on.
fn run(next: u32, count: u32) -> Option<u32> {
    let first = next.checked_next_multiple_of(count)?;
    (first <= ALL.wrapping_sub(count)).then_some(first)
}

/// How many numbers there are: a serial is one bit more.
const ALL: u32 = 1 << 31;

/// The id of a request of a queue: of its next one, of the oldest in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Id(u64);

impl Id {
    pub(crate) const fn first(serial: Serial) -> Self {
        Self((serial.0 as u64) << 32)
    }

    /// Whether `id` is this one or behind it, and before `next`, which is of the same queue. The serial is the
    /// upper half of all three, so it is held against both ends with the sequence. False when the sequence
    /// wraps on the way to `next`: [`Id::is_followed_by`] says then.
    #[inline(always)]
    pub(crate) const fn is_simply_followed_by(self, id: u64, next: Self) -> bool {
        self.0 <= id && id < next.0
    }

    /// Whether `id` is this one or behind it, and before `next`, which is of the same queue.
    pub(crate) const fn is_followed_by(self, id: u64, next: Self) -> bool {
        let behind = (id as u32).wrapping_sub(self.sequence());
        let all = next.sequence().wrapping_sub(self.sequence());
        serial_of(id) == self.serial().number() && behind < all
    }

    /// The id that came with a completion, once it was held against those in flight.
    #[inline(always)]
    pub(crate) const fn from_raw(id: u64) -> Self {
        Self(id)
    }

    /// As it travels.
    #[inline(always)]
    pub(crate) const fn to_raw(self) -> u64 {
        self.0
    }

    #[inline(always)]
    pub(crate) const fn sequence(self) -> u32 {
        self.0 as u32
    }

    #[inline(always)]
    pub(crate) const fn serial(self) -> Serial {
        Serial((self.0 >> 32) as u32)
    }

    /// The one behind it. Once in 2^32 steps the sequence carries into the serial, which who steps
    /// looks for by [`Id::has_carried_in`].
    #[inline(always)]
    pub(crate) const fn step(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// The one behind it, of the same queue also where the sequence wraps.
    #[inline(always)]
    pub(crate) fn following(self) -> Self {
        let next = self.step();
        if next.has_carried_in(1) { self.wrapped() } else { next }
    }

    #[cold]
    #[inline(never)]
    const fn wrapped(self) -> Self {
        self.with_sequence(0)
    }

    /// Whether the sequence has wrapped in the last `steps`.
    #[inline(always)]
    pub(crate) const fn has_carried_in(self, steps: u32) -> bool {
        self.sequence() < steps
    }

    /// The id of the same queue with this sequence.
    #[inline(always)]
    pub(crate) const fn with_sequence(self, sequence: u32) -> Self {
        Self(self.0 & (u64::MAX << 32) | sequence as u64)
    }
}

/// The serial's number and the sequence in an id. They are read apart: each is held against another number,
/// and neither has to be cut out of the whole.
#[inline(always)]
pub(crate) const fn halves(id: &u64) -> (u32, u32) {
    // SAFETY: eight bytes that are initialised, read as two numbers.
    let [first, second] = unsafe { core::ptr::from_ref(id).cast::<[u32; 2]>().read() };
    if cfg!(target_endian = "little") { (second, first) } else { (first, second) }
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
        let (send, recv) = (Serial::send().unwrap(), Serial::recv().unwrap());
        assert_ne!(send, recv);
        for sequence in [0, 1, u32::MAX - 3, u32::MAX] {
            let id = Id::first(send).with_sequence(sequence).to_raw();
            let other = Id::first(recv).with_sequence(sequence).to_raw();
            assert_eq!((serial_of(id), id as u32), (send.number(), sequence));
            assert!(!is_recv(id) && is_recv(other));
            assert_eq!(serial_of(other), recv.number());
        }
    }
    #[test]
    fn a_step_over_the_end_is_seen() {
        let last = Id::first(Serial::send().unwrap()).with_sequence(u32::MAX);
        assert!(!last.has_carried_in(1) && !last.has_carried_in(1 << 16));
        assert!(last.step().has_carried_in(1) && last.step().has_carried_in(2));
        assert!(!last.step().step().has_carried_in(1) && last.step().step().has_carried_in(2));
        assert_eq!(last.step().sequence(), 0);
        assert_eq!(last.following().to_raw(), last.with_sequence(0).to_raw());
        assert_eq!(last.following().following().to_raw(), last.with_sequence(1).to_raw());
    }

    #[test]
    fn numbers_come_in_blocks_that_do_not_overlap() {
        for count in [1, 4, 64] {
            let (first, second) = (numbers(count).unwrap(), numbers(count).unwrap());
            assert_eq!((first % count, second % count), (0, 0));
            assert!(second.wrapping_sub(first) >= count);
        }
        let (send, recv) = Serial::pair(numbers(1).unwrap());
        assert_eq!(send.number() | 1, recv.number());
    }

    #[test]
    fn no_number_is_used_twice() {
        assert_eq!([run(1, 1), run(1, 64), run(64, 64)], [Some(1), Some(64), Some(64)]);
        assert_eq!(run(ALL - 64, 64), Some(ALL - 64));
        assert_eq!([run(ALL - 63, 64), run(ALL, 1), run(u32::MAX, 65536)], [None; 3]);
        assert_eq!(Serial::pair(ALL - 1).1.number(), u32::MAX);
    }
}
