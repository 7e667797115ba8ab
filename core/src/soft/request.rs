//! What the rings hold: copies of the work requests, with their pieces and their inline bytes.
//!
//! Written during the post, on the posting thread; read by the engine.
//!
//! Invariant: a copy holds what its operation uses. The fields of a work request that its operation
//! does not use are copied without being looked at, or not at all: they may be uninitialised.

use core::mem::MaybeUninit;

use super::ring::{INVALID, Limits};
use crate::abi::{BindMw, RecvWr, SendWr, Sge, Target, opcode, send_flags};

/// The longest message, 2 GiB, as every device has it.
pub(super) const MAX_MESSAGE: u32 = 1 << 31;

/// Stands for every length beyond.
const TOO_LONG: u64 = MAX_MESSAGE as u64 + 1;

/// A copied [`SendWr`].
pub(super) struct SendRequest<const SGES: usize, const INLINE: usize> {
    pub(super) wr_id: u64,
    pub(super) opcode: u32,
    pub(super) flags: u32,
    /// The sum of the pieces' lengths; more than [`MAX_MESSAGE`] stands for any more.
    pub(super) length: u32,
    sges: u32,
    imm: MaybeUninit<u32>,
    target: Target,
    /// Of a window's bind only.
    bind: MaybeUninit<BindMw>,
    list: MaybeUninit<[Sge; SGES]>,
    inline: MaybeUninit<[u8; INLINE]>,
}

impl<const SGES: usize, const INLINE: usize> SendRequest<SGES, INLINE> {
    /// Checks a work request and copies it.
    ///
    /// # Safety
    ///
    /// `wr` is valid, its list too; `into` is valid for writes; `limits` asks for no more than
    /// `SGES` pieces and `INLINE` bytes.
    #[inline(always)]
    pub(super) unsafe fn copy(wr: *mut SendWr, limits: &Limits, into: *mut Self) -> i32 {
        // SAFETY: `wr` is valid, and the four fields mean something for every operation.
        let (id, op, count, flags) =
            unsafe { ((*wr).wr_id, (*wr).opcode, (*wr).num_sge, (*wr).send_flags) };
        let known = op < 32 && limits.opcodes & (1 << op) != 0;
        if !known && !limits.other_opcodes {
            return INVALID;
        }
        let most = if op == opcode::RDMA_READ { limits.read_sges } else { limits.sges };
        let count = count as u32;
        if count > most {
            return INVALID;
        }
        // SAFETY: as above; a list of no pieces is not followed.
        let from = unsafe { (*wr).sg_list };
        let mut total = 0_u64;
        if flags & send_flags::INLINE == 0 {
            // SAFETY: `into` is valid.
            let list: *mut Sge = unsafe { (&raw mut (*into).list).cast() };
            // SAFETY: the caller's promise, and `count` is at most `SGES`.
            match unsafe { copy_list(from, count, list, limits) } {
                Some(sum) => total = sum,
                None => return INVALID,
            }
        } else {
            if !matches!(
                op,
                opcode::SEND
                    | opcode::SEND_WITH_IMM
                    | opcode::SEND_WITH_INV
                    | opcode::RDMA_WRITE
                    | opcode::RDMA_WRITE_WITH_IMM
            ) {
                return INVALID;
            }
            // SAFETY: `into` is valid.
            let bytes: *mut u8 = unsafe { (&raw mut (*into).inline).cast() };
            for at in 0..count as usize {
                // SAFETY: the list has `count` pieces.
                let piece = unsafe { *from.add(at) };
                // Both are less than 2^32: no overflow.
                let end = total.wrapping_add(u64::from(piece.length));
                if end > u64::from(limits.inline) {
                    return INVALID;
                }
                // SAFETY: `end` is at most `INLINE`, and the caller lends the bytes for the call.
                unsafe {
                    bytes
                        .add(total as usize)
                        .copy_from(piece.addr.pointer(), piece.length as usize);
                }
                total = end;
            }
        }
        let length = total.min(TOO_LONG) as u32;
        let is_atomic = matches!(op, opcode::ATOMIC_CMP_AND_SWP | opcode::ATOMIC_FETCH_AND_ADD);
        if is_atomic && limits.crooked_atomics_refused {
            // SAFETY: an atomic has its target.
            let addr = unsafe { (*wr).target.atomic.remote_addr };
            if length != 8 || addr & 7 != 0 {
                return INVALID;
            }
        }
        // SAFETY: `into` is valid. The immediate and the target are copied as bytes, whatever they
        // hold.
        unsafe {
            (&raw mut (*into).wr_id).write(id);
            (&raw mut (*into).opcode).write(op);
            (&raw mut (*into).flags).write(flags);
            (&raw mut (*into).length).write(length);
            (&raw mut (*into).sges).write(count);
            (&raw mut (*into).imm)
                .write((&raw const (*wr).imm_data).cast::<MaybeUninit<u32>>().read());
            (&raw mut (*into).target).write((*wr).target);
        }
        if op == opcode::BIND_MW {
            // SAFETY: as above, and this operation has it.
            unsafe { (&raw mut (*into).bind).cast::<BindMw>().write((*wr).bind_mw) };
        }
        0
    }

    pub(super) const fn is_inline(&self) -> bool {
        self.flags & send_flags::INLINE != 0
    }

    pub(super) const fn is_solicited(&self) -> bool {
        self.flags & send_flags::SOLICITED != 0
    }

    /// The pieces; none when the data is inline.
    #[inline(always)]
    pub(super) fn list(&self) -> &[Sge] {
        if self.is_inline() {
            return &[];
        }
        // SAFETY: the copy wrote as many pieces as `sges` says.
        unsafe { core::slice::from_raw_parts(self.list.as_ptr().cast(), self.sges as usize) }
    }

    /// Where the inline bytes start.
    #[inline(always)]
    pub(super) fn inline_bytes(&self) -> *const u8 {
        self.inline.as_ptr().cast()
    }

    /// The immediate.
    ///
    /// # Safety
    ///
    /// The operation has one.
    #[inline(always)]
    pub(super) unsafe fn imm(&self) -> u32 {
        // SAFETY: the caller's promise; whoever posts such an operation wrote it.
        unsafe { self.imm.assume_init() }
    }

    /// What a window's bind asks for.
    ///
    /// # Safety
    ///
    /// The operation is that.
    pub(super) unsafe fn bind(&self) -> &BindMw {
        // SAFETY: the caller's promise; the copy wrote it then.
        unsafe { self.bind.assume_init_ref() }
    }

    /// The target, of which the reader picks the part that belongs to the operation.
    #[inline(always)]
    pub(super) const fn target(&self) -> &Target {
        &self.target
    }
}

/// A copied [`RecvWr`].
pub(super) struct RecvRequest<const SGES: usize> {
    pub(super) wr_id: u64,
    /// The sum of the pieces' lengths.
    pub(super) capacity: u64,
    sges: u32,
    list: MaybeUninit<[Sge; SGES]>,
}

impl<const SGES: usize> RecvRequest<SGES> {
    /// Checks a work request and copies it.
    ///
    /// # Safety
    ///
    /// As for [`SendRequest::copy`].
    #[inline(always)]
    pub(super) unsafe fn copy(wr: *mut RecvWr, limits: &Limits, into: *mut Self) -> i32 {
        // SAFETY: `wr` is valid.
        let (id, from, count) = unsafe { ((*wr).wr_id, (*wr).sg_list, (*wr).num_sge as u32) };
        if count > limits.sges {
            return INVALID;
        }
        // SAFETY: `into` is valid.
        let list: *mut Sge = unsafe { (&raw mut (*into).list).cast() };
        // SAFETY: the caller's promise, and `count` is at most `SGES`.
        let Some(capacity) = (unsafe { copy_list(from, count, list, limits) }) else {
            return INVALID;
        };
        // SAFETY: `into` is valid.
        unsafe {
            (&raw mut (*into).wr_id).write(id);
            (&raw mut (*into).capacity).write(capacity);
            (&raw mut (*into).sges).write(count);
        }
        0
    }

    #[inline(always)]
    pub(super) fn list(&self) -> &[Sge] {
        // SAFETY: the copy wrote as many pieces as `sges` says.
        unsafe { core::slice::from_raw_parts(self.list.as_ptr().cast(), self.sges as usize) }
    }
}

/// Copies `count` pieces; returns the sum of their lengths, or nothing when one is refused.
///
/// # Safety
///
/// `from` is valid for `count` pieces, `into` for as many.
#[inline(always)]
unsafe fn copy_list(from: *const Sge, count: u32, into: *mut Sge, limits: &Limits) -> Option<u64> {
    let mut total = 0;
    for at in 0..count as usize {
        // SAFETY: the caller's promise.
        let piece = unsafe { *from.add(at) };
        if piece.length == 0 && limits.empty_sges_refused {
            return None;
        }
        // At most 2^32 pieces of at most 2^32 − 1 bytes: no overflow.
        total = u64::wrapping_add(total, u64::from(piece.length));
        // SAFETY: the caller's promise.
        unsafe { into.add(at).write(piece) };
    }
    Some(total)
}
