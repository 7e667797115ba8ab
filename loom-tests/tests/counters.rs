//! The counters: one thread counts, another one reads.
//!
//! Mutation notes. What makes the model of this file fail:
//!
//! * the release with which `Counters::polled` adds completions or empty polls, relaxed: they are
//!   seen without their polls;
//! * either acquire load in `Counters::read`, relaxed: the same, from the other side.
#![cfg(loom)]

use std::sync::Arc;

use loom::thread;
use nanoverbs_core::Counters;
use nanoverbs_loom_tests::model;

#[test]
fn no_reading_has_a_completion_or_an_empty_poll_without_its_poll() {
    model(|| {
        let counters = Arc::new(Counters::new());
        let other = counters.clone();
        // The reader is the spawned thread: loom compares a store with the last access only, and
        // when the reader goes first, that is the load that the writer has just made itself.
        let reader = thread::spawn(move || {
            let mut last = other.read();
            for _ in 0..2 {
                assert!(last.polls >= last.empty_polls + last.completions.div_ceil(2), "{last:?}");
                let now = other.read();
                assert!(now.polls >= last.polls && now.completions >= last.completions);
                assert!(now.empty_polls >= last.empty_polls);
                assert!(now.longest_turn >= last.longest_turn);
                last = now;
            }
        });
        counters.polled(0);
        counters.turned(5);
        counters.polled(2);
        counters.turned(3);
        reader.join().unwrap();
        let end = counters.read();
        assert_eq!((end.polls, end.empty_polls, end.completions, end.longest_turn), (2, 1, 2, 5));
    });
}
