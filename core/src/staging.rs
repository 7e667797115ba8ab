//! The preallocated work requests of one chain, and the rows of pieces that they point to.
//!
//! A device copies a work request while it is posted, so these arrays need the length of one chain
//! only. They belong to the posting thread, not to a queue: one set serves all of its queues and
//! stays in the first-level cache.
//!
//! The arrays are linked once. The last entry's `next` is null for ever, a chain of n requests is
//! the last n entries, and a single request is the last one alone.
//!
//! Invariant: while a [`SendLink`] or [`RecvLink`] lives it borrows its arrays, so they cannot move, and
//! entry i points to entry i + 1 and to row i.

use core::marker::PhantomData;
use core::mem::offset_of;
use core::ptr::NonNull;

use crate::abi::{RecvWr, SendWr, Sge, pair};

macro_rules! staging {
    ($Staging:ident, $Link:ident, $Wr:ident, $queue:literal, $doc:literal) => {
        #[doc = concat!("Work requests for ", $queue, " queues: chains of up to `CHAIN`, each of up to `SGES` pieces.")]
        ///
        #[doc = $doc]
        ///
        /// Place it in a `static` (see [`crate::Place`]), on the stack or in a `Box`; link it once.
        #[repr(C, align(64))]
        pub struct $Staging<const CHAIN: usize, const SGES: usize> {
            requests: [$Wr; CHAIN],
            rows: [[Sge; SGES]; CHAIN],
        }

        impl<const CHAIN: usize, const SGES: usize> $Staging<CHAIN, SGES> {
            const CHAIN_OK: () =
                assert!(CHAIN >= 1 && CHAIN <= 1024, "a chain is between 1 and 1,024 requests");
            const SGES_OK: () = assert!(SGES <= 255, "a request has at most 255 pieces");

            /// Unlinked arrays.
            pub const fn new() -> Self {
                const { Self::CHAIN_OK };
                const { Self::SGES_OK };
                Self { requests: [$Wr::EMPTY; CHAIN], rows: [[Sge::EMPTY; SGES]; CHAIN] }
            }

            /// Links the requests to each other and to their rows. Once, at start-up.
            pub fn link(&mut self) -> $Link<'_, CHAIN, SGES> {
                let arrays = NonNull::from(self);
                let link = $Link { arrays, lifetime: PhantomData };
                let mut next = core::ptr::null_mut();
                for index in (0..CHAIN).rev() {
                    let place = index * $Link::<CHAIN, SGES>::STEP;
                    let request = link.request_at(place);
                    // SAFETY: `index` is below CHAIN, and `arrays` is borrowed exclusively.
                    unsafe {
                        (*request).sg_list = link.row_at(place);
                        (*request).next = next;
                    }
                    next = request;
                }
                link
            }
        }

        impl<const CHAIN: usize, const SGES: usize> Default for $Staging<CHAIN, SGES> {
            fn default() -> Self {
                Self::new()
            }
        }

        impl<const CHAIN: usize, const SGES: usize> core::fmt::Debug for $Staging<CHAIN, SGES> {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.debug_struct(stringify!($Staging))
                    .field("chain", &CHAIN)
                    .field("sges", &SGES)
                    .finish_non_exhaustive()
            }
        }

        // SAFETY: unlinked, or linked through a handle that borrows it, it is plain storage.
        unsafe impl<const CHAIN: usize, const SGES: usize> Send for $Staging<CHAIN, SGES> {}

        #[doc = concat!("Linked work requests for ", $queue, " queues, see [`", stringify!($Staging), "`].")]
        #[derive(Debug)]
        pub struct $Link<'s, const CHAIN: usize, const SGES: usize> {
            arrays: NonNull<$Staging<CHAIN, SGES>>,
            lifetime: PhantomData<&'s mut $Staging<CHAIN, SGES>>,
        }

        // SAFETY: it is an exclusive borrow of plain storage.
        unsafe impl<const CHAIN: usize, const SGES: usize> Send for $Link<'_, CHAIN, SGES> {}

        impl<const CHAIN: usize, const SGES: usize> $Link<'_, CHAIN, SGES> {
            /// The same arrays for as long as `self` is borrowed.
            #[inline(always)]
            pub(crate) const fn reborrow(&mut self) -> $Link<'_, CHAIN, SGES> {
                $Link { arrays: self.arrays, lifetime: PhantomData }
            }

            /// Chains count entries in places: bytes of a row of one piece. So a request and its row are
            /// both one addressing mode away, and a chain keeps one number for both. Where pointers are
            /// short, a request may not be a multiple of that.
            pub(crate) const STEP: usize =
                if size_of::<$Wr>().is_multiple_of(size_of::<Sge>()) { size_of::<Sge>() } else { 4 };
            /// The place behind the last entry.
            pub(crate) const END: usize = CHAIN * Self::STEP;

            /// The request at a place, which the caller keeps at most `END`; there is none there.
            #[inline(always)]
            pub(crate) const fn request_at(&self, place: usize) -> *mut $Wr {
                let offset = place.wrapping_mul(size_of::<$Wr>() / Self::STEP);
                // SAFETY: the field lies inside the arrays; the place stays inside the field.
                unsafe { (&raw mut (*self.arrays.as_ptr()).requests).byte_add(offset).cast() }
            }

            /// The pieces of the request at a place, which the caller keeps below `END`.
            #[inline(always)]
            pub(crate) const fn row_at(&self, place: usize) -> *mut Sge {
                // SAFETY: as for `request_at`.
                unsafe { (&raw mut (*self.arrays.as_ptr()).rows).byte_add(place.wrapping_mul(SGES * size_of::<Sge>() / Self::STEP)).cast() }
            }
        }
    };
}

staging!(
    SendStaging,
    SendLink,
    SendWr,
    "send",
    "144 bytes a request with one piece; 16 of them are 2,304 bytes."
);
staging!(RecvStaging, RecvLink, RecvWr, "receive", "48 bytes a request with one piece.");

/// Writes everything that each request says, whatever it is, so that nothing of an earlier one is left.
///
/// Flags and immediate go in one store of eight bytes: nearly always the immediate is a constant 0.
///
/// # Safety
///
/// `request` is valid for writes.
#[inline(always)]
pub(crate) unsafe fn write_head(
    request: *mut SendWr,
    id: u64,
    count: u32,
    opcode: u32,
    flags: u32,
    imm_data: u32,
) {
    // SAFETY: the caller's promise; the two fields are neighbours, as asserted below, and the
    // pointers are those of the whole request.
    unsafe {
        (&raw mut (*request).wr_id).write(id);
        (&raw mut (*request).num_sge).write(count as i32);
        (&raw mut (*request).opcode).write(opcode);
        let at = request.cast::<u8>();
        at.add(offset_of!(SendWr, send_flags)).cast::<u64>().write(pair(flags, imm_data));
    }
}

const _: () = {
    assert!(offset_of!(SendWr, imm_data) == offset_of!(SendWr, send_flags) + 4);
    assert!(offset_of!(SendWr, send_flags) % 8 == 0);
    assert!(align_of::<SendWr>() == align_of::<u64>());
};

#[cfg(target_pointer_width = "64")]
static_assertions::const_assert_eq!(size_of::<SendStaging<16, 1>>(), 2304);
