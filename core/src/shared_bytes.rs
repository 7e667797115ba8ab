//! Copies between private memory and memory that a peer may touch meanwhile.
//!
//! Called by shared regions on any thread, and by the soft device from the thread that drives it.
//!
//! Invariant: the shared side is touched by relaxed atomics of one size only, aligned machine
//! words; a piece that starts or ends inside a word takes the word whole, and writes its part of it
//! by compare and exchange. Shared memory is therefore aligned to, and as long as, whole words. The
//! private side is plain.

use core::ptr::NonNull;

use crate::sync::machine::{AtomicUsize as Word, Ordering};

const WORD: usize = size_of::<usize>();
/// Shared memory orders nothing; a completion does.
const RELAXED: Ordering = Ordering::Relaxed;

/// A run of bytes inside one word of shared memory.
struct Part {
    /// The word, and the byte of it that the run starts with.
    word: *mut usize,
    skip: usize,
    /// The private bytes that belong there.
    at: usize,
    len: usize,
}

/// Calls `each` with the word-sized parts that `len` bytes from `shared` on are made of.
///
/// # Safety
///
/// `shared` is valid for `len` bytes, and so is the whole of the first and the last word.
unsafe fn parts(shared: NonNull<u8>, len: usize, mut each: impl FnMut(Part)) {
    let mut at = 0;
    while at < len {
        let skip = (shared.addr().get().wrapping_add(at)) % WORD;
        let run = (WORD - skip).min(len - at);
        // SAFETY: `at < len`, and the word that holds this byte is valid as a whole.
        let word = unsafe { shared.as_ptr().add(at).sub(skip) }.cast();
        each(Part { word, skip, at, len: run });
        // At most `len`: no overflow.
        at = at.wrapping_add(run);
    }
}

/// Copies `len` bytes from shared memory.
///
/// # Safety
///
/// `from` is valid for `len` bytes with whole words at both ends, and all access to it is by
/// atomic words; `into` is valid for `len` bytes and nobody else uses it.
pub(crate) unsafe fn load(from: NonNull<u8>, into: *mut u8, len: usize) {
    let copy = |part: Part| {
        // SAFETY: the word is aligned and valid, and everybody reaches it by atomics.
        let word = unsafe { Word::from_ptr(part.word) }.load(RELAXED);
        // SAFETY: `at + len` is at most the length that `into` is valid for, and a word holds
        // `skip + len` bytes.
        unsafe {
            let bytes = (&raw const word).cast::<u8>().add(part.skip);
            bytes.copy_to_nonoverlapping(into.add(part.at), part.len);
        }
    };
    // SAFETY: the caller's promise.
    unsafe { parts(from, len, copy) }
}

/// Copies `len` bytes to shared memory.
///
/// # Safety
///
/// `from` is valid for `len` bytes and nobody writes it; `into` is valid for `len` bytes with whole
/// words at both ends, and all access to it is by atomic words.
pub(crate) unsafe fn store(from: *const u8, into: NonNull<u8>, len: usize) {
    let copy = |part: Part| {
        // SAFETY: the word is aligned and valid, and everybody reaches it by atomics.
        let shared = unsafe { Word::from_ptr(part.word) };
        let merge = |mut word: usize| {
            // SAFETY: `at + len` is at most the length that `from` is valid for, and a word holds
            // `skip + len` bytes.
            unsafe {
                let bytes = (&raw mut word).cast::<u8>().add(part.skip);
                bytes.copy_from_nonoverlapping(from.add(part.at), part.len);
            }
            word
        };
        if part.len == WORD {
            shared.store(merge(0), RELAXED);
        } else {
            // The closure always gives a value, so this cannot fail.
            let _ = shared.fetch_update(RELAXED, RELAXED, |word| Some(merge(word)));
        }
    };
    // SAFETY: the caller's promise.
    unsafe { parts(into, len, copy) }
}
