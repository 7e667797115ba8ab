//! Many queue pairs on one completion queue: which of them a completion belongs to.
//!
//! A [`Group`] is a directory, not an owner. The queues stay in the caller's arrays, of any type
//! and depth; a member is a number below `N`, and [`Group::route`] turns a completion into that
//! number with one mask and one compare. The thread that polls owns the group; the seats of a
//! member, which carry its identity into its two queues, go to whichever thread makes those.
//!
//! To keep one busy member from starving the others, retire every completion at once, which is
//! cheap, and take the outcomes in [`Turns`], so many a member and round.
//!
//! Invariants:
//!
//! * Every index is a member's, or it waits in `line`: ready in `head..ripe`, and in `ripe..tail`
//!   until its member's last completions are out: the completion queue was seen empty, or as many
//!   went by as it can hold. Only then is the room of that member in the completion queue given
//!   back, because its last completions may have filled it.
//! * No two members ever have the same number, so a completion of a member that left is
//!   [`Route::Stale`], also when its index is used again.

mod seat;
mod turns;

pub use seat::{Joined, Member, RecvSeat, SendSeat};
pub use turns::Turns;

use core::fmt;

use crate::completion::{Completion, Completions, CqTooSmall, PollError};
use crate::id::{self, Serial};
use crate::port::PollPort;

/// Up to `N` queue pairs on one completion queue; `N` is a power of two.
///
/// A directory, not an owner: the queues stay in the caller's arrays, of any type and depth. The
/// thread that polls owns the group; the seats of a member go to whichever thread makes its queues.
///
/// A group is ten bytes a member: place it in a `static` ([`crate::Place`]) or a `Box` when `N` is
/// large.
///
/// ```
/// use nanoverbs_core::{Completions, Group, Joined, Route};
/// # use nanoverbs_core::{Domain, RecvConfig, RecvQueue, RecvSlots};
/// # use nanoverbs_core::{SendConfig, SendQueue, SendSlots, soft::{Device, QpConfig}};
/// #
/// # static DEVICE: Device<1, 64> = Device::new();
/// # let domain = DEVICE.domain();
/// # let cq = DEVICE.completion_queue(64)?;
/// # let pair = DEVICE.queue_pair(QpConfig::new(domain), &cq, &cq)?;
/// # let (send_port, recv_port) = (pair.send, pair.recv);
/// let mut completions: Completions<_> = Completions::new(cq, 64);
/// let mut group = Group::<16>::new();
///
/// // Eight sends and eight receives of this queue pair, at most, will be in flight.
/// let Joined { member, send, recv } = group.join(&mut completions, 8, 8)?;
/// let (mut send_slots, mut recv_slots) = (SendSlots::<(), 8>::new(), RecvSlots::<(), 8>::new());
/// let mut sends =
///     SendQueue::with_seat(send_port, &mut send_slots, SendConfig::new(domain), send)?;
/// let mut receives =
///     RecvQueue::with_seat(recv_port, &mut recv_slots, RecvConfig::new(domain), recv)?;
///
/// for completion in completions.poll()? {
///     match group.route(&completion) {
///         Route::Send(index) => {
///             assert_eq!(index, member.index());
///             sends.retire(completion)?;
///         }
///         Route::Recv(index) => {
///             assert_eq!(index, member.index());
///             receives.retire(completion)?;
///         }
///         Route::Stale => {} // of a queue pair that has left; counted
///     }
/// }
/// // … destroy the queue pair, then:
/// group.leave(member).expect("it is of this group");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Group<const N: usize> {
    /// The serial of the member's send queue, which is even. Of an index without a member, the last
    /// one's, made odd, so that nothing compares equal.
    members: [u32; N],
    /// Room in the completion queue that the member has reserved.
    room: [u32; N],
    /// Indices without a member. The positions run free and wrap.
    line: [u16; N],
    head: u32,
    ripe: u32,
    tail: u32,
    /// How many completions were routed; wraps.
    routed: u32,
    /// Where `tail` was when so many had been; `ripe` when nobody waits for that.
    marked: u32,
    marked_at: u32,
    /// The block of numbers that is being handed out, or `None` before the first member.
    block: Option<u32>,
    stale: usize,
}

impl<const N: usize> Group<N> {
    const SIZE_OK: () = assert!(
        N.is_power_of_two() && N <= 65536,
        "the size of a group is a power of two up to 65,536"
    );
    const MASK: u32 = (N as u32).wrapping_sub(1);
    const VACANT: u32 = 1;

    /// A group without members.
    pub const fn new() -> Self {
        const { Self::SIZE_OK }
        let mut line = [0; N];
        let mut index = 0;
        while index < N {
            line[index] = index as u16;
            index += 1;
        }
        Self {
            members: [Self::VACANT; N],
            room: [0; N],
            line,
            head: 0,
            ripe: N as u32,
            tail: N as u32,
            routed: 0,
            marked: N as u32,
            marked_at: 0,
            block: None,
            stale: 0,
        }
    }

    /// Makes a queue pair a member, before it is created on this completion queue: reserves room
    /// for `sends` and `receives` in flight, and gives the seats to make its two queues with
    /// ([`crate::SendQueue::with_seat`], [`crate::RecvQueue::with_seat`]).
    ///
    /// Where a member has left and there is no index or room without it, this looks whether its last
    /// completions are out ([`Group::settle`]).
    ///
    /// # Errors
    ///
    /// [`JoinError`]; nothing has changed then.
    pub fn join<P: PollPort, const BATCH: usize>(
        &mut self,
        completions: &mut Completions<P, BATCH>,
        sends: u32,
        receives: u32,
    ) -> Result<Joined, JoinError> {
        let room = sends.saturating_add(receives);
        if self.head == self.ripe {
            self.settle(completions).map_err(JoinError::Poll)?;
        }
        if self.head == self.ripe {
            return Err(match self.leaving() {
                0 => JoinError::Full { members: N as u32 },
                leaving => JoinError::Leaving { leaving },
            });
        }
        let index = self.line[(self.head & Self::MASK) as usize];
        let number = self.number(index).ok_or(JoinError::NoSerial)?;
        if completions.attach(room).is_err() {
            self.settle(completions).map_err(JoinError::Poll)?;
            completions.attach(room).map_err(JoinError::CqTooSmall)?;
        }
        self.head = self.head.wrapping_add(1);
        let (send, recv) = Serial::pair(number);
        self.members[usize::from(index)] = send.number();
        self.room[usize::from(index)] = room;
        Ok(Joined {
            member: Member { index, serial: send },
            send: SendSeat { serial: send, depth: sends },
            recv: RecvSeat { serial: recv, depth: receives },
        })
    }

    /// A number whose low bits are `index`, and that nobody had. An index takes one number from
    /// each block, so a block lasts until an index comes round again.
    fn number(&mut self, index: u16) -> Option<u32> {
        let last = self.members[usize::from(index)] & !1;
        if let Some(block) = self.block {
            let number = block | u32::from(index);
            if Serial::pair(number).0.number() != last {
                return Some(number);
            }
        }
        let block = id::numbers(N as u32)?;
        self.block = Some(block);
        Some(block | u32::from(index))
    }

    /// Whose completion it is. One that is nobody's is counted; drop it.
    #[inline(always)]
    pub fn route(&mut self, completion: &Completion) -> Route {
        self.routed = self.routed.wrapping_add(1);
        let serial = completion.serial();
        let index = ((serial >> 1) & Self::MASK) as usize;
        if self.members[index] != serial & !1 {
            return self.nobody();
        }
        if serial & 1 == 0 { Route::Send(index) } else { Route::Recv(index) }
    }

    #[cold]
    #[inline(never)]
    fn nobody(&mut self) -> Route {
        self.stale = self.stale.wrapping_add(1);
        Route::Stale
    }

    /// Ends a membership, once the queue pair is destroyed: completions of it that are still on
    /// their way are stale from now on. Its index and its room come back when those are out, see
    /// [`Group::settle`].
    ///
    /// # Errors
    ///
    /// The member, when it is of another group.
    pub fn leave(&mut self, member: Member) -> Result<(), Member> {
        let index = member.index();
        match self.members.get_mut(index) {
            Some(serial) if *serial == member.serial.number() => *serial |= 1,
            _ => return Err(member),
        }
        self.line[(self.tail & Self::MASK) as usize] = member.index;
        self.tail = self.tail.wrapping_add(1);
        Ok(())
    }

    /// Takes the indices and the room of those who left back, if the completion queue is empty now, or as
    /// many completions were routed since an earlier call as it can hold: theirs are out then. Says how
    /// many. Call it when [`Group::leaving`] is not 0; what it finds in the completion queue stays for
    /// the next poll.
    ///
    /// # Errors
    ///
    /// [`PollError`] when the device refuses to be polled; nothing has changed then.
    pub fn settle<P: PollPort, const BATCH: usize>(
        &mut self,
        completions: &mut Completions<P, BATCH>,
    ) -> Result<u32, PollError> {
        let before = self.ripe;
        if before == self.tail {
            return Ok(0);
        }
        let is_empty = completions.poll()?.len() == 0;
        // What was fetched before the mark may have been routed behind it: a batch at most.
        let all = completions.capacity().saturating_add(BATCH as u32);
        let out = self.routed.wrapping_sub(self.marked_at) >= all;
        let end = match (is_empty, out) {
            (true, _) => self.tail,
            (false, true) => self.marked,
            (false, false) => self.ripe,
        };
        while self.ripe != end {
            let index = self.line[(self.ripe & Self::MASK) as usize];
            completions.detach(self.room[usize::from(index)]);
            self.ripe = self.ripe.wrapping_add(1);
        }
        if self.marked.wrapping_sub(before) <= end.wrapping_sub(before) {
            (self.marked, self.marked_at) = (self.tail, self.routed);
        }
        Ok(end.wrapping_sub(before))
    }

    /// How many members there are.
    pub const fn len(&self) -> usize {
        N.wrapping_sub(self.tail.wrapping_sub(self.head) as usize)
    }

    /// Whether there are no members.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many have left and wait for their last completions to be out.
    pub const fn leaving(&self) -> u32 {
        self.tail.wrapping_sub(self.ripe)
    }

    /// How many completions were nobody's. The count wraps.
    pub const fn stale(&self) -> usize {
        self.stale
    }
}

impl<const N: usize> Default for Group<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> fmt::Debug for Group<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group")
            .field("members", &self.len())
            .field("leaving", &self.leaving())
            .field("stale", &self.stale)
            .finish_non_exhaustive()
    }
}

/// Whose completion it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use = "it says which queue retires the completion"]
pub enum Route {
    /// The send queue's of the member with this index.
    Send(usize),
    /// The receive queue's of the member with this index.
    Recv(usize),
    /// Of no member: its queue pair has left, or never joined.
    Stale,
}

/// Why a queue pair cannot join.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum JoinError {
    /// There are as many members as there can be.
    Full {
        /// How many that is.
        members: u32,
    },
    /// The only indices left are of members who left, and their last completions may not be out yet. Poll
    /// and retire, then try again.
    Leaving {
        /// How many those are.
        leaving: u32,
    },
    /// As [`ConfigError::NoSerial`](crate::ConfigError::NoSerial).
    NoSerial,
    /// The completion queue could be overrun.
    CqTooSmall(CqTooSmall),
    /// The completion queue cannot be polled any more.
    Poll(PollError),
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { members } => write!(f, "the group has {members} members already"),
            Self::Leaving { leaving } => {
                write!(
                    f,
                    "{leaving} members have left, and their last completions may not be out yet"
                )
            }
            Self::NoSerial => crate::ConfigError::NoSerial.fmt(f),
            Self::CqTooSmall(error) => error.fmt(f),
            Self::Poll(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for JoinError {}

#[cfg(all(test, not(loom)))]
#[expect(unsafe_code, reason = "ports promise what they do")]
mod tests;
