//! What devices do differently, and faults to order.
//!
//! A device takes its profile when it is made and keeps it. Tests pick one by name and change what
//! they are about: `Profile::rxe().overrun(Overrun::Fatal)`.
//!
//! Invariant: the strict profile is all zeros, so that a device in a `static` costs no space in the
//! program's image.

/// How a device behaves where devices differ.
///
/// [`Profile::STRICT`] keeps to the specification and does nobody a favour: what a program may not
/// rely on does not happen.
///
/// ```
/// use nanoverbs_core::soft::{Device, Profile};
///
/// static DEVICE: Device<2, 16> = Device::with_profile(Profile::STRICT.max_read_sges(1));
/// # assert_eq!(DEVICE.profile(), Profile::STRICT.max_read_sges(1));
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Profile {
    pub(super) equal_keys: bool,
    pub(super) early_slots: bool,
    pub(super) max_read_sges: u32,
    pub(super) empty_sges_refused: bool,
    pub(super) no_inline: bool,
    pub(super) rounds_depths: bool,
    pub(super) queues_unready: bool,
    pub(super) failed: FailedFields,
    pub(super) zeroes_good: bool,
    pub(super) grh: GrhFlag,
    pub(super) sender_imm_flag: bool,
    pub(super) statuses: Statuses,
    pub(super) reuses_numbers: bool,
    pub(super) overrun: Overrun,
    pub(super) seven_is_for_ever: bool,
    pub(super) depth_zero_hangs: bool,
    pub(super) checks_late: bool,
    pub(super) forgets_receives: bool,
    pub(super) failures_wake: bool,
}

/// What the fields of a failed completion hold, beside id, status, queue pair and vendor code.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum FailedFields {
    /// Numbers that mean nothing.
    #[default]
    Rubbish,
    /// Zero, which reads as the opcode SEND.
    Zero,
    /// What the caller's array held before.
    Unwritten,
}

/// Whether completions claim that a routing header precedes the message.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum GrhFlag {
    /// Those of datagrams do.
    #[default]
    Datagrams,
    /// Those of every receive do.
    Always,
    /// None does, though the 40 bytes are there.
    Never,
}

/// Which status says what.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Statuses {
    /// As the specification has them: a message too long is 9 at the sender and 1 at the receiver,
    /// a bad receive buffer 11 and 4, a bad piece of one's own 4. A datagram that does not fit is
    /// dropped.
    #[default]
    Specification,
    /// As Soft-RoCE has them: 11 and 2 for both, 2 for one's own, and 2 for a datagram that does
    /// not fit, which is the end of its receiver.
    SoftRoce,
}

/// What becomes of a completion queue that has no room.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Overrun {
    /// The completion is lost, the completion queue is broken (polls give what it holds and then
    /// −5), and every queue pair on it fails.
    #[default]
    Fatal,
    /// The completion is lost. A queue pair that loses one of a send goes on; one that loses one of
    /// a receive fails.
    Loses,
}

impl Profile {
    /// The specification to the letter. The profile of [`super::Device::new`].
    pub const STRICT: Self = Self {
        equal_keys: false,
        early_slots: false,
        max_read_sges: 0,
        empty_sges_refused: false,
        no_inline: false,
        rounds_depths: false,
        queues_unready: false,
        failed: FailedFields::Rubbish,
        zeroes_good: false,
        grh: GrhFlag::Datagrams,
        sender_imm_flag: false,
        statuses: Statuses::Specification,
        reuses_numbers: false,
        overrun: Overrun::Fatal,
        seven_is_for_ever: false,
        depth_zero_hangs: false,
        checks_late: false,
        forgets_receives: false,
        failures_wake: false,
    };

    /// What Linux Soft-RoCE does.
    pub const fn rxe() -> Self {
        Self {
            equal_keys: true,
            early_slots: true,
            queues_unready: true,
            failed: FailedFields::Zero,
            zeroes_good: true,
            grh: GrhFlag::Always,
            sender_imm_flag: true,
            statuses: Statuses::SoftRoce,
            overrun: Overrun::Loses,
            seven_is_for_ever: true,
            depth_zero_hangs: true,
            checks_late: true,
            forgets_receives: true,
            ..Self::STRICT
        }
    }

    /// What network cards of the mlx5 family do, as far as it shows here.
    pub const fn mlx5_like() -> Self {
        Self {
            equal_keys: true,
            max_read_sges: 30,
            rounds_depths: true,
            failed: FailedFields::Unwritten,
            failures_wake: true,
            ..Self::STRICT
        }
    }

    /// Whether a region's two keys are the same number (and its remote key 0 without remote
    /// rights). If not, a mix-up of the two shows.
    #[must_use]
    pub const fn equal_keys(self, yes: bool) -> Self {
        Self { equal_keys: yes, ..self }
    }

    /// Whether the slot of a request is free as soon as the request is done. If not, it is free
    /// when the completion that ends it, or a later one, was polled: an unsignaled run holds its
    /// slots until then.
    #[must_use]
    pub const fn early_slots(self, yes: bool) -> Self {
        Self { early_slots: yes, ..self }
    }

    /// How many pieces a READ may have; 0 means as many as any other request (`max_sge_rd`).
    #[must_use]
    pub const fn max_read_sges(self, max: u32) -> Self {
        Self { max_read_sges: max, ..self }
    }

    /// Whether a post with a piece of no length is refused.
    #[must_use]
    pub const fn empty_sges_refused(self, yes: bool) -> Self {
        Self { empty_sges_refused: yes, ..self }
    }

    /// Whether queue pairs get no inline data, whatever they ask for.
    #[must_use]
    pub const fn no_inline(self, yes: bool) -> Self {
        Self { no_inline: yes, ..self }
    }

    /// Whether a depth is rounded up to a power of two when it is granted.
    #[must_use]
    pub const fn rounds_depths(self, yes: bool) -> Self {
        Self { rounds_depths: yes, ..self }
    }

    /// Whether a send that is posted before the queue pair is ready is refused in words only:
    /// EINVAL, no request named, and it goes out once the queue pair is ready.
    #[must_use]
    pub const fn queues_unready(self, yes: bool) -> Self {
        Self { queues_unready: yes, ..self }
    }

    /// What the other fields of a failed completion hold.
    #[must_use]
    pub const fn failed_fields(self, fields: FailedFields) -> Self {
        Self { failed: fields, ..self }
    }

    /// Whether the fields of a good completion that say nothing are zero. If not, they are left as
    /// they were in the caller's array.
    #[must_use]
    pub const fn zeroes_good(self, yes: bool) -> Self {
        Self { zeroes_good: yes, ..self }
    }

    /// Which completions have the routing header flag.
    #[must_use]
    pub const fn grh_flag(self, flag: GrhFlag) -> Self {
        Self { grh: flag, ..self }
    }

    /// Whether the sender's completion has the immediate flag, too, though it carries none.
    #[must_use]
    pub const fn sender_imm_flag(self, yes: bool) -> Self {
        Self { sender_imm_flag: yes, ..self }
    }

    /// Which status says what.
    #[must_use]
    pub const fn statuses(self, statuses: Statuses) -> Self {
        Self { statuses, ..self }
    }

    /// Whether a new queue pair gets the number of one that was destroyed, at once.
    #[must_use]
    pub const fn reuses_numbers(self, yes: bool) -> Self {
        Self { reuses_numbers: yes, ..self }
    }

    /// What becomes of a completion queue that has no room.
    #[must_use]
    pub const fn overrun(self, overrun: Overrun) -> Self {
        Self { overrun, ..self }
    }

    /// Whether a retry count of 7 for a silent peer means for ever. (For a peer without receives it
    /// always does.)
    #[must_use]
    pub const fn seven_is_for_ever(self, yes: bool) -> Self {
        Self { seven_is_for_ever: yes, ..self }
    }

    /// Whether a READ on a queue pair with no READ depth waits for ever. If not, it fails with 2.
    #[must_use]
    pub const fn depth_zero_hangs(self, yes: bool) -> Self {
        Self { depth_zero_hangs: yes, ..self }
    }

    /// Whether an unknown operation is taken, and fails with 2, and a crooked atomic is refused
    /// by the post. If not, the first is refused by the post, and the second fails (with 9 for its
    /// address, with 1 for its length).
    #[must_use]
    pub const fn checks_late(self, yes: bool) -> Self {
        Self { checks_late: yes, ..self }
    }

    /// Whether receives that are posted after the queue pair has failed are never flushed.
    #[must_use]
    pub const fn forgets_receives(self, yes: bool) -> Self {
        Self { forgets_receives: yes, ..self }
    }

    /// Whether a failed request ends a wait for solicited completions
    /// ([`Device::take_event`](super::Device::take_event)), as the specification wants. A flushed receive
    /// always does.
    #[must_use]
    pub const fn failures_wake(self, yes: bool) -> Self {
        Self { failures_wake: yes, ..self }
    }
}

/// A fault for a post to come, see [`super::Control::fail_next_send`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PostFault {
    code: i16,
    taken: u16,
    named: bool,
}

impl PostFault {
    const MOST: u32 = 0x1fff;

    /// The post returns `code`, which is not 0, and names no request of the chain: the caller
    /// cannot know that the device took the first `taken`.
    pub const fn unnamed(code: i16, taken: u16) -> Self {
        Self { code, taken, named: false }
    }

    /// The device takes `taken` requests more, of this chain and those behind it, and refuses the
    /// next one by name, with `code`, which is not 0.
    pub const fn named(code: i16, taken: u16) -> Self {
        Self { code, taken, named: true }
    }

    /// In 30 bits, 0 when it is no fault.
    pub(super) const fn to_bits(self) -> u32 {
        if self.code == 0 {
            return 0;
        }
        let most = Self::MOST;
        let taken = if (self.taken as u32) < most { self.taken as u32 } else { most };
        ((self.code as u16 as u32) << 14) | (taken << 1) | self.named as u32
    }

    pub(super) const fn from_bits(bits: u32) -> Option<Self> {
        let code = (bits >> 14) as u16 as i16;
        if code == 0 {
            return None;
        }
        Some(Self { code, taken: (bits >> 1) as u16 & 0x1fff, named: bits & 1 != 0 })
    }

    /// The same after `count` more requests were taken, in bits.
    pub(super) fn less(self, count: usize) -> u32 {
        let taken = self.taken().saturating_sub(count) as u16;
        Self { taken, ..self }.to_bits()
    }

    pub(super) const fn code(self) -> i32 {
        self.code as i32
    }

    pub(super) const fn taken(self) -> usize {
        self.taken as usize
    }

    pub(super) const fn is_named(self) -> bool {
        self.named
    }
}
