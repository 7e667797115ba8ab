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
        match self.state as u8 {
            0 => End::Done,
            1 => End::Failed,
            2 => End::Flushed,
            _ => End::Abandoned,
        }
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

/// What the completion of a receive said, kept until the context is taken.
#[derive(Clone, Copy)]
pub(crate) struct Arrival {
    /// Bytes; the device's status when it failed.
    pub(crate) len: u32,
    /// Immediate or key; the maker's code when it failed.
    pub(crate) imm_data: u32,
    src_qp: u32,
    flags: u16,
    /// Fits: the codes of arrivals are 128 and 129.
    opcode: u8,
    pub(crate) end: End,
}

impl Arrival {
    pub(crate) const EMPTY: Self =
        Self { len: 0, imm_data: 0, src_qp: 0, flags: 0, opcode: 0, end: End::Done };

    /// What a good completion says.
    #[inline(always)]
    pub(crate) const fn new(wc: &Wc) -> Self {
        Self {
            len: wc.byte_len,
            imm_data: wc.imm_data,
            src_qp: wc.src_qp,
            flags: wc.wc_flags as u16,
            opcode: wc.opcode as u8,
            end: End::Done,
        }
    }

    /// What a bad one says.
    #[cold]
    pub(crate) fn failed(status: u32, vendor: u32) -> Self {
        let status = WcStatus::from_raw(status);
        if status == WcStatus::Flushed {
            return Self { end: End::Flushed, ..Self::EMPTY };
        }
        Self { len: status.to_raw(), imm_data: vendor, end: End::Failed, ..Self::EMPTY }
    }

    #[inline(always)]
    pub(crate) const fn outcome(self) -> Outcome {
        match self.end {
            End::Done => Outcome::Done(Success {
                operation: Operation::Recv,
                len: self.len,
                flags: self.flags as u32,
                imm_data: self.imm_data,
                src_qp: self.src_qp,
                opcode: self.opcode as u32,
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
