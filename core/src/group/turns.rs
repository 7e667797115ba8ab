//! Whose turn it is: a fair order for members that have outcomes to take.

use core::fmt;

/// A line of members with work, each once, served a budget at a time. The polling thread owns it.
///
/// A completion queue is first come, first served: a busy queue pair fills it, and a loop that
/// handles everything a completion brings before it looks at the next one serves nobody else
/// meanwhile. So retire the whole batch, which only marks what has ended, and say [`Turns::ready`]
/// for each; then serve a [`Turns::round`]. Who has more than the budget goes to the end of the
/// line.
///
/// Invariant: each index is in the line at most once, so `N` places suffice.
///
/// ```
/// use nanoverbs_core::Turns;
///
/// let mut ended = [100, 3, 0, 1]; // outcomes that wait at each of four members
/// let mut turns = Turns::<4>::new(8);
/// for index in [0, 0, 1, 3] {
///     turns.ready(index);
/// }
/// let mut order = Vec::new();
/// let served = turns.round(|index| {
///     if ended[index] == 0 {
///         return false; // a queue's `take` gave nothing
///     }
///     ended[index] -= 1; // a queue's `take` gave one
///     order.push(index);
///     true
/// });
/// assert_eq!(served, 8 + 3 + 1);
/// assert_eq!(order, [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 3]);
/// assert_eq!(turns.waiting(), 1); // member 0 has 92 more
/// ```
pub struct Turns<const N: usize> {
    line: [u16; N],
    flags: [u8; N],
    head: u32,
    tail: u32,
    budget: u32,
    /// What is left of the turn of the member at the front, for [`Turns::next`].
    left: u32,
}

/// The index is in the line.
const IN_LINE: u8 = 1;
/// And has work, unless it was forgotten.
const READY: u8 = 2;

impl<const N: usize> Turns<N> {
    const SIZE_OK: () = assert!(
        N.is_power_of_two() && N <= 65536,
        "the size of a group is a power of two up to 65,536"
    );
    const MASK: u32 = (N as u32).wrapping_sub(1);

    /// Nobody waits. In a round each member is served `budget` times at most, and once at least.
    pub const fn new(budget: u32) -> Self {
        const { Self::SIZE_OK }
        let budget = if budget == 0 { 1 } else { budget };
        Self { line: [0; N], flags: [0; N], head: 0, tail: 0, budget, left: budget }
    }

    /// Member `index` has work. It goes to the end of the line, if it is not in it. An index that
    /// is not below `N` is nobody's.
    #[inline(always)]
    pub fn ready(&mut self, index: usize) {
        let Some(flags) = self.flags.get_mut(index) else { return };
        if *flags & IN_LINE == 0 {
            self.line[(self.tail & Self::MASK) as usize] = index as u16;
            self.tail = self.tail.wrapping_add(1);
        }
        *flags = IN_LINE | READY;
    }

    /// Member `index` has left: it is not served again until it is ready again.
    pub fn forget(&mut self, index: usize) {
        if let Some(flags) = self.flags.get_mut(index) {
            *flags &= IN_LINE;
        }
    }

    /// Serves everybody who waits now, in order. `serve` does one piece of work of the member and
    /// says whether there was one. Returns how many pieces were done.
    ///
    /// When `serve` panics the member is still in the line.
    #[inline]
    pub fn round(&mut self, mut serve: impl FnMut(usize) -> bool) -> usize {
        let (end, mut done) = (self.tail, 0_usize);
        while self.head != end {
            let index = self.line[(self.head & Self::MASK) as usize];
            let at = (u32::from(index) & Self::MASK) as usize;
            let mut left = if self.flags[at] & READY == 0 { 0 } else { self.budget };
            let mut has_more = left != 0;
            while left != 0 {
                if !serve(at) {
                    has_more = false;
                    break;
                }
                done = done.wrapping_add(1);
                left = left.wrapping_sub(1);
            }
            self.pass(at, has_more);
        }
        done
    }

    /// One piece of work of the member whose turn it is; `None` when nobody has any. `serve` gives a piece
    /// of the member's, or `None` when it has none left. The same order as that of [`Turns::round`], piece by
    /// piece, so that the caller may do something else in between: post, for example, or say
    /// [`Turns::ready`].
    ///
    /// ```
    /// use nanoverbs_core::Turns;
    ///
    /// let mut ended = [3, 1];
    /// let mut turns = Turns::<2>::new(2);
    /// turns.ready(0);
    /// turns.ready(1);
    /// let mut order = Vec::new();
    /// while let Some(index) = turns.next(|index| {
    ///     let left: i32 = ended[index] - 1;
    ///     (left >= 0).then(|| {
    ///         ended[index] = left;
    ///         index
    ///     })
    /// }) {
    ///     order.push(index);
    /// }
    /// assert_eq!(order, [0, 0, 1, 0]);
    /// ```
    #[inline(always)]
    pub fn next<T>(&mut self, mut serve: impl FnMut(usize) -> Option<T>) -> Option<T> {
        while self.head != self.tail {
            let index = self.line[(self.head & Self::MASK) as usize];
            let at = (u32::from(index) & Self::MASK) as usize;
            let is_ready = self.flags[at] & READY != 0;
            if is_ready && self.left != 0 {
                if let Some(piece) = serve(at) {
                    self.left = self.left.wrapping_sub(1);
                    return Some(piece);
                }
                self.pass(at, false);
            } else {
                // Its turn is over, and it may have more.
                self.pass(at, is_ready);
            }
        }
        None
    }

    /// The turn of the member at the front is over.
    #[inline(always)]
    fn pass(&mut self, at: usize, has_more: bool) {
        self.head = self.head.wrapping_add(1);
        self.left = self.budget;
        self.flags[at] = 0;
        if has_more {
            self.ready(at);
        }
    }

    /// How many members wait for their turn.
    pub const fn waiting(&self) -> usize {
        self.tail.wrapping_sub(self.head) as usize
    }

    /// How often a member is served in a round, at most.
    pub const fn budget(&self) -> u32 {
        self.budget
    }
}

impl<const N: usize> fmt::Debug for Turns<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turns")
            .field("waiting", &self.waiting())
            .field("budget", &self.budget)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
