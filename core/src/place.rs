//! Storage in statics, for programs without an allocator.

use core::cell::UnsafeCell;
use core::fmt;

use crate::sync::machine::{AtomicBool, Ordering};

/// A place in a `static` whose content can be taken once, as `&'static mut`.
///
/// Queues borrow their storage; a program without an allocator keeps it in statics and takes each
/// of them out once at start-up.
///
/// ```
/// use nanoverbs_core::Place;
///
/// static NUMBERS: Place<[u32; 4]> = Place::new([0; 4]);
///
/// let numbers = NUMBERS.take().expect("the first take gets it");
/// numbers[0] = 7;
/// assert!(NUMBERS.take().is_none(), "there is only one");
/// ```
pub struct Place<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

impl<T> Place<T> {
    /// A place that holds `value`.
    pub const fn new(value: T) -> Self {
        Self { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// The content, the first time; `None` ever after. Any thread may call.
    #[expect(clippy::mut_from_ref, reason = "the flag hands the content out once")]
    pub fn take(&'static self) -> Option<&'static mut T> {
        // Relaxed: the flag only decides who is first; the content was written before the static
        // was reachable, so there is nothing to publish.
        if self.taken.swap(true, Ordering::Relaxed) {
            return None;
        }
        // SAFETY: the swap above returned `false` to this call alone, so this is the only
        // reference that is ever made from the cell.
        Some(unsafe { &mut *self.value.get() })
    }
}

// SAFETY: the content is reached through `take` only, by one thread, once; sharing the place is
// therefore sending the content.
unsafe impl<T: Send> Sync for Place<T> {}

impl<T> fmt::Debug for Place<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("taken", &self.taken).finish_non_exhaustive()
    }
}
