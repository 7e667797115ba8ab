//! The ring: one thread hands over, one takes.
//!
//! Mutation notes. What makes a model of this file fail:
//!
//! * the release store of the tail in `Grant::commit`, relaxed: the consumer reads a slot before it
//!   is written;
//! * the acquire load of the tail in `Consumer::available`, relaxed: the same, from the other side;
//! * the release store of the head in `Drain`'s drop, relaxed: the producer writes a slot that is
//!   being read;
//! * the acquire load of the head in `Producer::free`, relaxed: the same, from the other side;
//! * a tail that is published with each value of a grant: half a batch is seen;
//! * a ring whose drop leaves its values alone.
#![cfg(loom)]

use std::sync::Arc;

use loom::thread;
use nanoverbs_core::{Full, Ring};
use nanoverbs_loom_tests::{lend, model, take};

/// Pushes until it is in.
fn push<const N: usize>(producer: &mut nanoverbs_core::Producer<'_, Box<u32>, N>, value: u32) {
    let mut value = Box::new(value);
    while let Err(Full(back)) = producer.push(value) {
        value = back;
        thread::yield_now();
    }
}

#[test]
fn values_arrive_once_in_order_also_when_the_indices_pass_the_capacity() {
    model(|| {
        let run = |ring: &'static mut Ring<Box<u32>, 2>| {
            let (mut producer, mut consumer) = ring.split();
            let hands_over = thread::spawn(move || (1..=3).for_each(|v| push(&mut producer, v)));
            let taken = take(3, || consumer.pop());
            assert!(taken.iter().map(|value| **value).eq(1..=3));
            hands_over.join().unwrap();
            assert!(consumer.is_empty());
        };
        // SAFETY: the thread has been joined.
        drop(unsafe { lend(Ring::new(), run) });
    });
}

#[test]
fn a_batch_is_seen_whole() {
    model(|| {
        let run = |ring: &'static mut Ring<Box<u32>, 2>| {
            let (mut producer, mut consumer) = ring.split();
            let hands_over = thread::spawn(move || {
                let mut grant = producer.reserve(2).unwrap();
                grant.write(Box::new(1)).unwrap();
                grant.write(Box::new(2)).unwrap();
                assert_eq!(grant.commit(), 2);
                push(&mut producer, 3);
            });
            let mut taken = Vec::new();
            while taken.len() < 3 {
                let before = taken.len();
                taken.extend(consumer.drain(2));
                assert_ne!((before, taken.len()), (0, 1), "half a batch");
                thread::yield_now();
            }
            assert!(taken.iter().map(|value| **value).eq(1..=3));
            hands_over.join().unwrap();
        };
        // SAFETY: the thread has been joined.
        drop(unsafe { lend(Ring::new(), run) });
    });
}

#[test]
fn what_is_left_is_there_after_splitting_again_and_the_rest_is_dropped() {
    model(|| {
        let witness = Arc::new(());
        let held = witness.clone();
        let run = move |ring: &'static mut Ring<Arc<()>, 2>| {
            let place: *mut Ring<Arc<()>, 2> = ring;
            // SAFETY: the halves of this split are gone when the ring is split again below.
            let (mut producer, mut consumer) = unsafe { &mut *place }.split();
            let value = held.clone();
            let hands_over = thread::spawn(move || {
                producer.push(value.clone()).unwrap();
                // Whether this one fits depends on the other thread.
                drop(producer.push(value.clone()));
                drop(producer.push(value));
            });
            let seen = consumer.drain(2).count();
            hands_over.join().unwrap();
            // SAFETY: the producer went with its thread, and the consumer is not used again.
            let (mut producer, mut consumer) = unsafe { &mut *place }.split();
            let left = consumer.len();
            assert!(seen + left >= 2 && seen + left <= 3, "{seen} and {left}");
            assert_eq!(producer.room(), 2 - left);
            drop(consumer.pop());
            // One for `held`, one for the witness, and what is still in the ring.
            assert_eq!(Arc::strong_count(&held), 2 + left.saturating_sub(1));
        };
        // SAFETY: the thread has been joined.
        drop(unsafe { lend(Ring::new(), run) });
        assert_eq!(Arc::strong_count(&witness), 1, "the ring drops what is left in it");
    });
}
