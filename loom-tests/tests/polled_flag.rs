//! A word that a peer's device writes behind its data, and a thread that polls it.
//!
//! Mutation notes. What makes the model of this file fail:
//!
//! * the load in `PolledFlag::load`, relaxed: the flag is seen and the data is not.
#![cfg(loom)]

use std::sync::Arc;

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use nanoverbs_core::{InOrder, PolledFlag};
use nanoverbs_loom_tests::model;

#[test]
fn f43_who_sees_the_flag_sees_the_data() {
    model(|| {
        // Two words of data and the flag, as atomic words, like all memory that a peer writes.
        let memory = Arc::new([(); 3].map(|()| AtomicUsize::new(0)));
        let written = memory.clone();
        let device = thread::spawn(move || {
            for turn in 1..=2 {
                // The bytes of one message in any order.
                written[1].store(turn, Ordering::Relaxed);
                written[0].store(turn, Ordering::Relaxed);
                // A device that keeps the order writes the last word behind them.
                written[2].store(turn, Ordering::Release);
            }
        });
        let flag = PolledFlag::over(&memory[2], InOrder::said_by_the_device());
        let mut last = 0;
        while last < 2 {
            let turn = flag.load();
            assert!(turn >= last, "the flag does not go back");
            for word in &memory[..2] {
                assert!(word.load(Ordering::Relaxed) >= turn, "data behind its flag");
            }
            last = turn;
            thread::yield_now();
        }
        device.join().unwrap();
    });
}
