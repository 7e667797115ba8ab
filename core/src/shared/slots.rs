//! Where the receives of a shared queue rest while a device has them, and what they end as.

use core::fmt;
use core::mem::MaybeUninit;

use crate::abi::QpNum;
use crate::completion::Outcome;
use crate::slot::Arrival;

/// Storage for the receives of one shared queue: `N` slots, a power of two.
///
/// A queue borrows it for its whole life and gives it back by [`super::SharedRecvQueue::into_storage`].
#[repr(C, align(64))]
pub struct SharedRecvSlots<C, const N: usize>(pub(super) [SharedSlot<C>; N]);

pub(super) struct SharedSlot<C> {
    pub(super) arrival: Arrival,
    /// The low half of the id of its receive.
    pub(super) ticket: u32,
    /// The queue pair that took it.
    pub(super) qp_num: u32,
    /// The slot behind this one in its list.
    pub(super) next: u32,
    pub(super) state: State,
    pub(super) context: MaybeUninit<C>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    Free,
    /// Staged or posted: before the submit it is on the free list as well.
    Posted,
    Ended,
}

impl<C> SharedSlot<C> {
    const EMPTY: Self = Self {
        arrival: Arrival::EMPTY,
        ticket: 0,
        qp_num: 0,
        next: 0,
        state: State::Free,
        context: MaybeUninit::uninit(),
    };
}

impl<C, const N: usize> SharedRecvSlots<C, N> {
    const DEPTH_OK: () =
        assert!(N.is_power_of_two() && N <= 32768, "the depth is a power of two up to 32,768");

    /// Empty slots.
    pub const fn new() -> Self {
        const { Self::DEPTH_OK }
        Self([const { SharedSlot::EMPTY }; N])
    }
}

impl<C, const N: usize> Default for SharedRecvSlots<C, N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<C, const N: usize> fmt::Debug for SharedRecvSlots<C, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedRecvSlots").field("depth", &N).finish_non_exhaustive()
    }
}

/// A receive that has ended: what became of it, which queue pair took it, and the context that went in.
#[derive(Debug)]
#[must_use = "the context is in here"]
pub struct SharedEnded<C> {
    /// The local queue pair that took it; `None` when none did, because it was abandoned.
    pub queue_pair: Option<QpNum>,
    /// What became of it.
    pub outcome: Outcome,
    /// What went in at the post.
    pub context: C,
}
