//! The stop flag, and a shutdown that loses nothing between threads.
//!
//! Mutation notes. What makes the models of this file fail:
//!
//! * the store in `Stop::request`, relaxed: the poller stops before it sees what was handed over
//!   first;
//! * the load in `Stop::is_requested`, relaxed: the same, from the other side.
#![cfg(loom)]

use std::sync::Arc;

use loom::thread;
use nanoverbs_core::{Full, Ring, Stop};
use nanoverbs_loom_tests::{lend, model};

#[test]
fn close_beside_hand_over_loses_nothing_that_was_handed_over_before() {
    model(|| {
        let run = |ring: &'static mut Ring<Box<u32>, 2>| {
            let (mut producer, mut consumer) = ring.split();
            let stop = Arc::new(Stop::new());
            let other = stop.clone();
            let poller = thread::spawn(move || {
                let mut taken = 0;
                loop {
                    let is_last = other.is_requested();
                    taken += consumer.drain(2).count();
                    if is_last {
                        break taken;
                    }
                    thread::yield_now();
                }
            });
            let mut handed_over = 0;
            for value in 1..=3 {
                // A value that does not fit comes back, and is this thread's to account for.
                match producer.push(Box::new(value)) {
                    Ok(()) => handed_over += 1,
                    Err(Full(back)) => assert_eq!(*back, value),
                }
            }
            stop.request();
            assert_eq!(poller.join().unwrap(), handed_over);
        };
        // SAFETY: the thread has been joined.
        drop(unsafe { lend(Ring::new(), run) });
    });
}

#[test]
fn what_is_handed_over_after_the_poller_stopped_is_left_in_the_ring() {
    model(|| {
        let run = |ring: &'static mut Ring<Box<u32>, 2>| {
            let place: *mut Ring<Box<u32>, 2> = ring;
            // SAFETY: the halves of this split are gone when the ring is split again below.
            let (mut producer, mut consumer) = unsafe { &mut *place }.split();
            let stop = Arc::new(Stop::new());
            let other = stop.clone();
            let poller = thread::spawn(move || {
                while !other.is_requested() {
                    thread::yield_now();
                }
                // The reason was handed over before the request.
                assert_eq!(consumer.pop().as_deref(), Some(&1), "the reason is there");
                consumer.drain(1).count()
            });
            producer.push(Box::new(1)).unwrap();
            stop.request();
            producer.push(Box::new(2)).unwrap();
            let taken = poller.join().unwrap();
            // SAFETY: the consumer went with its thread, and the producer is not used again.
            let left = unsafe { &mut *place }.split().1.len();
            assert_eq!(taken + left, 1);
        };
        // SAFETY: the thread has been joined.
        drop(unsafe { lend(Ring::new(), run) });
    });
}
