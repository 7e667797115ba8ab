//! The count of contexts that can never come back.

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
