//! Boxed storage that a queue borrows for as long as it lives.

use std::ptr::NonNull;

/// A box whose content is lent as `&'static mut`, and freed by hand.
pub(super) struct Lent<T>(NonNull<T>);

// SAFETY: it owns its content as a box does.
unsafe impl<T: Send> Send for Lent<T> {}

impl<T> Lent<T> {
    /// A box, and its content.
    pub(super) fn new(value: T) -> (Self, &'static mut T) {
        let content = NonNull::from(Box::leak(Box::new(value)));
        // SAFETY: just leaked, and nobody else has it; `free` takes the promise that it is given up.
        (Self(content), unsafe { &mut *content.as_ptr() })
    }

    /// Frees the content.
    ///
    /// # Safety
    ///
    /// Whatever borrowed the content is gone.
    pub(super) unsafe fn free(self) {
        // SAFETY: made of a box by `new`, and freed once, because `self` ends here.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
