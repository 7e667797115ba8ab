//! Boxed storage that a queue borrows for as long as it lives.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use nanoverbs_core::{RecvLink, RecvStaging, SendLink, SendStaging};

use super::{CHAIN, SGES};

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

/// The arrays in which requests are built, linked: one set for all queues of a thread.
pub(super) struct Links {
    pub(super) send: SendLink<'static, CHAIN, SGES>,
    pub(super) recv: RecvLink<'static, CHAIN, SGES>,
    send_staging: ManuallyDrop<Lent<SendStaging<CHAIN, SGES>>>,
    recv_staging: ManuallyDrop<Lent<RecvStaging<CHAIN, SGES>>>,
}

impl Links {
    pub(super) fn new() -> Self {
        let (send_staging, send_arrays) = Lent::new(SendStaging::new());
        let (recv_staging, recv_arrays) = Lent::new(RecvStaging::new());
        Self {
            send: send_arrays.link(),
            recv: recv_arrays.link(),
            send_staging: ManuallyDrop::new(send_staging),
            recv_staging: ManuallyDrop::new(recv_staging),
        }
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        // SAFETY: each is taken once, here; the links are not used any more, and have no drop of their own.
        unsafe {
            ManuallyDrop::take(&mut self.send_staging).free();
            ManuallyDrop::take(&mut self.recv_staging).free();
        }
    }
}
