//! What a case is made of: a setup, and steps of eight bytes each.
//!
//! Bytes and not a tree of strategies, so that the same cases can be found by a fuzzer; a step of
//! fixed size, so that leaving one out leaves the others what they were.

use nanoverbs_core::WcStatus;
use nanoverbs_core::soft::{FailedFields, GrhFlag, Overrun, PostFault, Profile, Statuses};

use crate::reference::Atomic;

/// How the bed is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) profile: Profile,
    pub(crate) send_depth: u32,
    pub(crate) recv_depth: u32,
    pub(crate) chain: u16,
    pub(crate) period: u16,
    pub(crate) sges: u32,
    pub(crate) inline: u32,
    pub(crate) reads: u8,
    pub(crate) retry: u32,
    pub(crate) rnr_retry: u32,
    pub(crate) signals_all: bool,
    /// 1, 2 or 4 completion queues for the four queues.
    pub(crate) queues: usize,
    /// A completion queue may overrun.
    pub(crate) is_tight: bool,
    /// Steps of the first life, in 256ths of all; then the queue pairs are made anew.
    pub(crate) first_life: u8,
    pub(crate) opens_late: bool,
    /// The queue pairs are destroyed while everything is under way.
    pub(crate) ends_badly: bool,
    /// Queues are dropped with contexts that nobody took.
    pub(crate) drops: bool,
    /// Both sides take their receives from one queue.
    pub(crate) shares: bool,
}

impl Setup {
    pub(crate) fn decode(b: [u8; 16]) -> Self {
        let bit = |at: usize, n: u8| b[at] >> n & 1 != 0;
        let profile = match b[0] % 4 {
            0 => Profile::STRICT,
            1 => Profile::rxe(),
            2 => Profile::mlx5_like(),
            _ => Profile::STRICT
                .equal_keys(bit(1, 0))
                .early_slots(bit(1, 1))
                .max_read_sges(b[2].into())
                .empty_sges_refused(bit(1, 2))
                .no_inline(bit(1, 3))
                .rounds_depths(bit(1, 4))
                .failed_fields(match b[3] % 3 {
                    0 => FailedFields::Rubbish,
                    1 => FailedFields::Zero,
                    _ => FailedFields::Unwritten,
                })
                .zeroes_good(bit(1, 5))
                .sender_imm_flag(bit(1, 6))
                .reuses_numbers(bit(1, 7))
                .overrun(if bit(3, 7) { Overrun::Fatal } else { Overrun::Loses })
                .seven_is_for_ever(bit(3, 6))
                .forgets_receives(bit(3, 5))
                .grh_flag(match b[14] / 8 % 3 {
                    0 => GrhFlag::Datagrams,
                    1 => GrhFlag::Always,
                    _ => GrhFlag::Never,
                })
                .statuses(if bit(11, 3) { Statuses::SoftRoce } else { Statuses::Specification })
                .checks_late(bit(11, 4))
                .queues_unready(bit(11, 5))
                .depth_zero_hangs(bit(11, 6)),
        };
        let send_depth = 1 + u32::from(b[4] % 16);
        // The queue refuses what could wedge it: `period + 2 * chain <= depth + 2`.
        let chain = 1 + u32::from(b[5]) % send_depth.div_ceil(2);
        let period = 1 + u32::from(b[6]) % (send_depth + 2 - 2 * chain);
        Self {
            profile,
            send_depth,
            recv_depth: 1 + u32::from(b[7] % 16),
            chain: chain as u16,
            period: period as u16,
            sges: 1 + u32::from(b[8] % 2),
            inline: [0, 16, 32][usize::from(b[8] / 2 % 3)],
            reads: b[9] % 5,
            retry: u32::from(b[10] % 8),
            rnr_retry: [7, 7, 3, 0][usize::from(b[10] / 8 % 4)],
            signals_all: b[11] % 8 == 7,
            queues: [1, 2, 4][usize::from(b[12] % 3)],
            is_tight: b[12] / 3 % 8 == 7,
            first_life: b[13],
            opens_late: b[14] % 8 == 7,
            ends_badly: b[15] % 4 == 3,
            drops: b[15] / 4 % 4 == 3,
            shares: b[15] & 128 != 0,
        }
    }
}

/// The kind of one request, and what is odd about it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    pub(crate) kind: Kind,
    pub(crate) signaled: bool,
    pub(crate) fence: bool,
    pub(crate) blocks: u8,
    pub(crate) is_long: bool,
    /// Too long to be inline, longer than the remote memory, crooked, or empty.
    pub(crate) is_odd: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Send,
    SendImmediate,
    SendInline,
    Write,
    Read,
    WriteImmediate,
    Raw,
    Atomic,
    WriteInline,
}

impl Item {
    const fn decode(b: u8) -> Self {
        let kind = match b & 7 {
            0 => Kind::Send,
            1 => Kind::SendImmediate,
            2 => Kind::SendInline,
            3 => Kind::Write,
            4 => Kind::Read,
            5 => Kind::WriteImmediate,
            6 if b & 32 != 0 => Kind::Raw,
            6 => Kind::Atomic,
            _ => Kind::WriteInline,
        };
        let blocks = 1 + (b >> 5 & 1);
        let (signaled, fence) = (b & 8 != 0, b & 16 != 0);
        Self { kind, signaled, fence, blocks, is_long: b & 64 != 0, is_odd: b & 128 != 0 }
    }

    /// What an atomic does to the word, which is near 0 all the time.
    pub(crate) fn atomic(&self) -> Option<Atomic> {
        (self.kind == Kind::Atomic).then_some(match (self.is_long, self.fence) {
            (false, false) => Atomic::Add(1),
            (false, true) => Atomic::Add(u64::MAX),
            (true, yes) => Atomic::Swap(yes.into(), (!yes).into()),
        })
    }
}

/// What becomes of a chain, or of what a device left of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fate {
    Submit,
    Drop,
    TakeApart,
    /// Leaked, when no block leaks with it; dropped otherwise.
    Forget,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
    pub(crate) side: usize,
    pub(crate) reserved: u32,
    pub(crate) items: [Option<Item>; 4],
    pub(crate) fate: Fate,
    pub(crate) rest: Fate,
    pub(crate) fault: Option<PostFault>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Send(Chain),
    Recv(Chain),
    Progress(u8),
    /// `take` completions of one poll are looked at; `astray` offers each to a wrong queue first; `keep`
    /// puts them aside.
    Poll {
        queue: usize,
        take: usize,
        astray: bool,
        keep: bool,
    },
    RetireKept,
    Take {
        side: usize,
        recv: bool,
        count: u8,
    },
    HoldAcks(usize, bool),
    HoldFlushes(usize, bool),
    DropPeer(usize, bool),
    FailNext(usize, WcStatus),
    Disconnect(usize),
    Close(usize, bool),
    Open,
    Destroy(usize),
    RemoveDevice,
}

impl Step {
    pub(crate) fn decode(b: [u8; 8]) -> Self {
        let side = usize::from(b[1] & 1);
        let yes = b[1] & 2 != 0;
        match b[0] % 32 {
            0..=9 => Self::Send(Chain::decode(b)),
            10..=15 => Self::Recv(Chain::decode(b)),
            16..=18 => Self::Progress(b[1] % 4 + 1),
            19..=24 => {
                let (queue, take) = (b[1].into(), usize::from(b[2] % 6));
                Self::Poll { queue, take, astray: b[3] & 1 != 0, keep: b[4] % 4 == 3 }
            }
            25..=27 => Self::Take { side, recv: yes, count: b[2] % 8 + 1 },
            28 => Self::RetireKept,
            29 => Self::HoldAcks(side, yes),
            30 => match b[2] % 4 {
                0 => Self::HoldFlushes(side, yes),
                1 => Self::DropPeer(side, yes),
                _ => Self::Open,
            },
            _ => match b[2] % 8 {
                0 => Self::FailNext(side, WcStatus::Other(1 + u32::from(b[3] % 30))),
                1 => Self::Disconnect(side),
                2 => Self::Close(side, yes),
                3 => Self::Destroy(side),
                4..=5 => Self::HoldAcks(side, false),
                6 if b[3] % 4 == 3 => Self::RemoveDevice,
                _ => Self::DropPeer(side, false),
            },
        }
    }
}

impl Chain {
    fn decode(b: [u8; 8]) -> Self {
        let fate = |n: u8| match n % 8 {
            5 => Fate::Drop,
            6 => Fate::TakeApart,
            7 => Fate::Forget,
            _ => Fate::Submit,
        };
        let many = usize::from(b[1] >> 4) % 5;
        let mut items = [None; 4];
        for (at, item) in items.iter_mut().enumerate().take(many) {
            *item = Some(Item::decode(b[2 + at]));
        }
        let (code, taken) = (12 + i16::from(b[7] & 1) * 10, u16::from(b[7] >> 2 & 7));
        let fault = match b[7] >> 5 {
            6 => Some(PostFault::named(code, taken)),
            7 if b[7] & 2 != 0 => Some(PostFault::unnamed(code, taken)),
            _ => None,
        };
        Self {
            side: usize::from(b[1] & 1),
            reserved: u32::from(b[1] >> 1 & 7) % 6,
            items,
            fate: fate(b[6]),
            rest: fate(b[6] >> 3),
            fault,
        }
    }
}
