//! What the models in `tests/` share. Without `--cfg loom` there is nothing here, and there are no
//! models.
//!
//! A model runs its closure once for every interleaving of its threads and for every value that a
//! weakly ordered load may see. See the README for how to run one, and how to replay one.
#![cfg(loom)]

pub mod device;

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::model::Builder;

/// Threads change at most this often where they need not. Enough for every mutant to be found, and
/// `LOOM_MAX_PREEMPTIONS` sets another bound.
const PREEMPTIONS: usize = 3;

/// Steps of one interleaving. The software device takes more than the thousand that loom allows
/// for.
const STEPS: usize = 20_000;

/// Runs `body` in all interleavings, with a bound on the preemptions, and says how many those were.
///
/// # Panics
///
/// When there was only one: then the threads share nothing that loom sees, and the model shows
/// nothing.
pub fn model(body: impl Fn() + Send + Sync + 'static) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let body = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        body();
    };
    if env::var_os("LOOM_LOG").is_some() {
        // This one writes the log, and takes its bound from the environment.
        loom::model(body);
    } else {
        let mut builder = Builder::new();
        builder.preemption_bound.get_or_insert(PREEMPTIONS);
        builder.max_branches = builder.max_branches.max(STEPS);
        builder.check(body);
    }
    let count = count.load(Ordering::Relaxed);
    println!("{count} interleavings");
    let is_replay = env::var_os("LOOM_CHECKPOINT_FILE").is_some();
    assert!(count > 1 || is_replay, "a model with one interleaving shows nothing");
}

/// Lends `value` for the length of `run` as if for ever, because loom's threads are `'static`, and
/// gives it back.
///
/// # Safety
///
/// Every thread that `run` lets near the value has been joined when `run` returns, and nothing that
/// borrows the value is left.
pub unsafe fn lend<T: 'static>(value: T, run: impl FnOnce(&'static mut T)) -> T {
    let place = Box::into_raw(Box::new(value));
    // SAFETY: the box was just made, and nobody else reaches it.
    run(unsafe { &mut *place });
    // SAFETY: made by `Box::into_raw` above; the caller promises that no borrow is left.
    *unsafe { Box::from_raw(place) }
}

/// Takes `count` values, giving way to the other thread whenever there is none.
pub fn take<T>(count: usize, mut next: impl FnMut() -> Option<T>) -> Vec<T> {
    let mut taken = Vec::new();
    while taken.len() < count {
        match next() {
            Some(value) => taken.push(value),
            None => loom::thread::yield_now(),
        }
    }
    taken
}
