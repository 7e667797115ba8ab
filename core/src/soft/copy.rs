//! The copies that the engine makes, from a row of pieces to a row of pieces.
//!
//! Called under the engine's lock, on the thread that drives the device.
//!
//! Invariant: private memory is touched plainly, because its ownership travels with the rings;
//! shared memory by atomic words only.

use core::mem::MaybeUninit;
use core::ptr::NonNull;

use super::memory::Piece;
use crate::shared_bytes;

/// The pieces of one message.
pub(super) struct Pieces<const N: usize> {
    list: [MaybeUninit<Piece>; N],
    len: usize,
}

impl<const N: usize> Pieces<N> {
    #[inline(always)]
    pub(super) const fn new() -> Self {
        Self { list: [const { MaybeUninit::uninit() }; N], len: 0 }
    }

    /// Adds a piece; more than fit are not expected, and are left out.
    #[inline(always)]
    pub(super) fn push(&mut self, piece: Piece) {
        if let Some(place) = self.list.get_mut(self.len) {
            place.write(piece);
            self.len = self.len.wrapping_add(1);
        }
    }

    /// Takes `bytes` off the front.
    pub(super) fn skip(&mut self, mut bytes: usize) {
        // SAFETY: `push` wrote the first `len`, which is at most N.
        let list: &mut [Piece] =
            unsafe { core::slice::from_raw_parts_mut(self.list.as_mut_ptr().cast(), self.len) };
        for piece in list {
            let step = bytes.min(piece.len);
            // SAFETY: `step` is at most the piece's length.
            piece.addr = unsafe { piece.addr.add(step) };
            piece.len = piece.len.wrapping_sub(step);
            bytes = bytes.wrapping_sub(step);
        }
    }

    #[inline(always)]
    pub(super) fn as_slice(&self) -> &[Piece] {
        // SAFETY: `push` wrote the first `len`, which is at most N.
        unsafe { core::slice::from_raw_parts(self.list.as_ptr().cast(), self.len) }
    }
}

/// Copies bytes from one row to another, until either ends.
///
/// # Safety
///
/// Both rows were looked up under the lock that is still held, and the promises of the posts hold:
/// nobody else uses the private pieces.
#[inline(always)]
pub(super) unsafe fn copy(from: &[Piece], into: &[Piece]) {
    if let ([from], [into]) = (from, into) {
        // SAFETY: both are at least as long as the shorter.
        unsafe { run(*from, *into, from.len.min(into.len)) };
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { copy_rows(from, into) }
}

/// [`copy`] for more pieces than one.
///
/// # Safety
///
/// As for [`copy`].
unsafe fn copy_rows(from: &[Piece], into: &[Piece]) {
    let (mut from, mut into) = (from.iter().copied(), into.iter().copied());
    let (Some(mut source), Some(mut target)) = (from.next(), into.next()) else {
        return;
    };
    loop {
        let len = source.len.min(target.len);
        // SAFETY: both are at least as long as the shorter.
        unsafe { run(source, target, len) };
        for (piece, row) in [(&mut source, &mut from), (&mut target, &mut into)] {
            if piece.len > len {
                // SAFETY: `len` is less than the piece's length.
                piece.addr = unsafe { piece.addr.add(len) };
                piece.len = piece.len.wrapping_sub(len);
            } else if let Some(next) = row.next() {
                *piece = next;
            } else {
                return;
            }
        }
    }
}

/// Copies `len` bytes.
///
/// # Safety
///
/// Both pieces are at least that long, and may be touched.
#[inline(always)]
unsafe fn run(from: Piece, into: Piece, len: usize) {
    // SAFETY: the caller's promise. Private pieces may overlap, then it is the program's own memory
    // on both sides; shared ones are reached by atomic words.
    unsafe {
        match (from.is_shared, into.is_shared) {
            (false, false) => into.addr.copy_from(from.addr, len),
            (true, false) => shared_bytes::load(from.addr, into.addr.as_ptr(), len),
            (false, true) => shared_bytes::store(from.addr.as_ptr(), into.addr, len),
            (true, true) => bounce(from.addr, into.addr, len),
        }
    }
}

/// Copies from shared memory to shared memory, by way of the stack.
///
/// # Safety
///
/// As for [`run`], both pieces being shared.
unsafe fn bounce(from: NonNull<u8>, into: NonNull<u8>, len: usize) {
    let mut buffer = [0_u8; 256];
    let mut at = 0;
    while at < len {
        let step = len.wrapping_sub(at).min(buffer.len());
        // SAFETY: `at + step` is at most `len`, and `step` at most the buffer's length.
        unsafe {
            shared_bytes::load(from.add(at), buffer.as_mut_ptr(), step);
            shared_bytes::store(buffer.as_ptr(), into.add(at), step);
        }
        at = at.wrapping_add(step);
    }
}
