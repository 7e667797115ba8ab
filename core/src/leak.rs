//! Contexts that can never come back are counted, and a panic of the user's code makes none more.

use core::marker::PhantomData;

use crate::sync::machine::{AtomicUsize, Ordering};

static LEAKED: AtomicUsize = AtomicUsize::new(0);

/// Notes contexts of requests that a device still has while their queue is dropped.
#[inline]
pub(crate) fn count(contexts: u32) {
    if contexts > 0 {
        // Relaxed: a counter, read by people.
        LEAKED.fetch_add(contexts as usize, Ordering::Relaxed);
    }
}

/// How many contexts were leaked in this process by queues that were dropped while a device still had
/// their requests. Not 0 means that a queue pair was dropped without being closed.
pub fn leaked_contexts() -> usize {
    LEAKED.load(Ordering::Relaxed)
}

/// Gives `each` what `next` has, until that has nothing more. What is left when `each` panics, or the
/// drop of a value, is dropped.
pub(crate) fn hand_on<T>(next: impl FnMut() -> Option<T>, mut each: impl FnMut(T)) {
    let mut rest = Rest { next, gives: PhantomData };
    while let Some(value) = (rest.next)() {
        each(value);
    }
}

struct Rest<T, F: FnMut() -> Option<T>> {
    next: F,
    gives: PhantomData<T>,
}

impl<T, F: FnMut() -> Option<T>> Drop for Rest<T, F> {
    fn drop(&mut self) {
        while (self.next)().is_some() {}
    }
}
