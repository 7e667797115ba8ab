//! What a queue remembers of a request beside its context.

use core::ptr::NonNull;

use crate::abi::{Wc, WcStatus};
use crate::completion::{Failure, Operation, Outcome, Success};

/// The slot of a sequence in an array of `N`, a power of two. Where a slot is a power of two of eight bytes long,
/// the index is masked in steps of eight bytes, which an addressing mode multiplies by. (In bytes, the compiler
/// would put the multiplication in front of the mask.)
///
/// # Safety
///
/// `slots` points to `N` of them.
#[inline(always)]
pub(crate) unsafe fn at<S, const N: usize>(slots: NonNull<S>, sequence: u32) -> *mut S {
    let (slots, mask) = (slots.as_ptr(), N.wrapping_sub(1));
    let steps = if size_of::<S>().is_power_of_two() { size_of::<S>() / 8 } else { 0 };
    if steps == 0 {
        // SAFETY: the mask keeps the index below N.
        return unsafe { slots.add(sequence as usize & mask) };
    }
    let step = (sequence as usize).wrapping_mul(steps) & mask.wrapping_mul(steps);
    // SAFETY: as above.
    unsafe { slots.cast::<u64>().add(step).cast() }
}

/// Eight bytes, written whole by a push, so that nothing of an earlier request is left.
///
/// They are laid out so that a push writes them with one store of a constant, and a take sees with one
/// compare that nothing is special.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(crate) struct Meta {
    pub(crate) operation: Operation,
    spare: u8,
    /// How the request ended, and [`Meta::CREDIT`]; 0 when it was done and holds no credit.
    state: u16,
    /// The length in bytes of a READ or an atomic; the device's status once the request has failed.
    pub(crate) len: u32,
}

impl Meta {
    pub(crate) const EMPTY: Self = Self::new(Operation::Send, false, 0);

    /// In `state`: the request is a READ or an atomic.
    const CREDIT: u16 = 1 << 8;

    /// A request that will be done if nothing bad happens.
    #[inline(always)]
    pub(crate) const fn new(operation: Operation, credit: bool, len: u32) -> Self {
        Self { operation, spare: 0, state: if credit { Self::CREDIT } else { 0 }, len }
    }

    /// Whether it was done and holds no credit.
    #[inline(always)]
    pub(crate) const fn is_plain(&self) -> bool {
        self.state == 0
    }

    /// 1 for a READ or an atomic.
    #[inline(always)]
    pub(crate) const fn credit(self) -> u8 {
        (self.state >> 8) as u8
    }

    #[inline(always)]
    pub(crate) const fn end(self) -> End {
        End::of(self.state as u8)
    }

    pub(crate) const fn set_end(&mut self, end: End) {
        self.state = (self.state & Self::CREDIT) | end as u16;
    }
}

/// How a request ended, or will if nothing bad happens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum End {
    Done = 0,
    Failed = 1,
    Flushed = 2,
    Abandoned = 3,
}

impl End {
    #[inline(always)]
    const fn of(number: u8) -> Self {
        match number {
            0 => Self::Done,
            1 => Self::Failed,
            2 => Self::Flushed,
            _ => Self::Abandoned,
        }
    }
}

/// What the completion of a receive said, kept until the context is taken.
///
/// No two neighbours here are neighbours in a [`Wc`]: a compiler would copy such a pair with one load, and that waits
/// until everything stored before it has left the processor, because the device's library has just written two.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Arrival {
    /// Bytes; the device's status when it failed.
    pub(crate) len: u32,
    src_qp: u32,
    /// Immediate or key; the maker's code when it failed.
    pub(crate) imm_data: u32,
    flags: u16,
    /// The operation, for which eight bits are enough (the codes of arrivals are 128 and 129), and above it how
    /// the receive ended.
    how: u16,
}

impl Arrival {
    pub(crate) const EMPTY: Self =
        Self { len: 0, src_qp: 0, imm_data: 0, flags: 0, how: Self::how(0, End::Done) };

    #[inline(always)]
    const fn how(opcode: u32, end: End) -> u16 {
        opcode as u8 as u16 | (end as u16) << 8
    }

    /// What a good completion says.
    #[inline(always)]
    pub(crate) const fn new(wc: &Wc) -> Self {
        Self {
            len: wc.byte_len,
            src_qp: wc.src_qp,
            imm_data: wc.imm_data,
            flags: wc.wc_flags as u16,
            how: Self::how(wc.opcode, End::Done),
        }
    }

    #[inline(always)]
    pub(crate) const fn end(self) -> End {
        End::of((self.how >> 8) as u8)
    }

    pub(crate) const fn set_end(&mut self, end: End) {
        self.how = Self::how(self.how as u32, end);
    }

    /// What a bad one says.
    #[cold]
    pub(crate) fn failed(status: u32, vendor: u32) -> Self {
        let status = WcStatus::from_raw(status);
        if status == WcStatus::Flushed {
            return Self { how: Self::how(0, End::Flushed), ..Self::EMPTY };
        }
        let how = Self::how(0, End::Failed);
        Self { len: status.to_raw(), imm_data: vendor, how, ..Self::EMPTY }
    }

    #[inline(always)]
    pub(crate) const fn outcome(self) -> Outcome {
        match self.end() {
            End::Done => Outcome::Done(Success {
                operation: Operation::Recv,
                len: self.len,
                flags: self.flags as u32,
                imm_data: self.imm_data,
                src_qp: self.src_qp,
                opcode: self.how as u8 as u32,
            }),
            End::Failed => Outcome::Failed(Failure {
                operation: Operation::Recv,
                status: WcStatus::from_raw(self.len),
                vendor: self.imm_data,
            }),
            End::Flushed => Outcome::Flushed,
            End::Abandoned => Outcome::Abandoned,
        }
    }
}

static_assertions::const_assert_eq!(size_of::<Meta>(), 8);
static_assertions::const_assert_eq!(size_of::<Arrival>(), 16);
