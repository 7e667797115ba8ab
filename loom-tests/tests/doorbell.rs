//! The doorbell: whoever rings after handing over wakes who sleeps, and no ring is lost.
//!
//! Mutation notes. What makes a model of this file fail:
//!
//! * the swap in `Doorbell::ring`, without its release: the waiter answers, does not see the work
//!   yet, and sleeps for ever;
//! * the same, without its acquire, or the exchange in `Doorbell::arm` without its release: the
//!   ringer reads the sleeper's handle before it is written;
//! * the exchange in `Doorbell::arm` that takes a ring, or the swap that ends a nap, without its
//!   acquire: the waiter does not see the work that it was woken for;
//! * a `ring` that says to wake nobody.
#![cfg(loom)]

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::Notify;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread::{self, Thread};
use nanoverbs_core::{Doorbell, Ring};
use nanoverbs_loom_tests::{lend, model};

#[test]
fn no_value_is_slept_over() {
    model(|| {
        let run = |ring: &'static mut Ring<u32, 2>| {
            let (mut producer, mut consumer) = ring.split();
            let shared = Arc::new((Doorbell::new(), Notify::new()));
            let other = shared.clone();
            let hands_over = thread::spawn(move || {
                let (bell, wake) = &*other;
                for value in 1..=2 {
                    producer.push(value).unwrap();
                    if bell.ring() {
                        wake.notify();
                    }
                }
            });
            let (bell, wake) = &*shared;
            let mut sum = 0;
            while sum < 3 {
                let before = sum;
                sum += consumer.drain(2).sum::<u32>();
                if sum > before {
                    continue;
                }
                // The other thread has more to say, so a nap that nobody ends is a deadlock.
                if let Some(nap) = bell.arm() {
                    while !nap.is_over() {
                        wake.wait();
                    }
                }
            }
            hands_over.join().unwrap();
        };
        // SAFETY: the thread has been joined.
        drop(unsafe { lend(Ring::new(), run) });
    });
}

/// Work that is published by the bell alone.
struct Desk {
    bell: Doorbell,
    work: AtomicUsize,
    note: UnsafeCell<u32>,
    sleeper: UnsafeCell<Option<Thread>>,
}

// SAFETY: the bell says who may look at the cells, and loom checks it.
unsafe impl Sync for Desk {}
// SAFETY: as above.
unsafe impl Send for Desk {}

impl Desk {
    fn new() -> Self {
        Self {
            bell: Doorbell::new(),
            work: AtomicUsize::new(0),
            note: UnsafeCell::new(0),
            sleeper: UnsafeCell::new(None),
        }
    }
}

#[test]
fn the_bell_publishes_the_work_to_the_waiter_and_the_waiter_to_the_ringer() {
    model(|| {
        let desk = Arc::new(Desk::new());
        let other = desk.clone();
        let rings = thread::spawn(move || {
            // SAFETY: nobody rang yet, so the waiter does not look.
            other.note.with_mut(|note| unsafe { *note = 7 });
            if other.bell.ring() {
                // SAFETY: the waiter sleeps, and wrote it before it armed.
                let sleeper = other.sleeper.with(|sleeper| unsafe { (*sleeper).clone() });
                sleeper.expect("written before arming").unpark();
            }
        });
        // SAFETY: nobody was told to wake us yet.
        desk.sleeper.with_mut(|sleeper| unsafe { *sleeper = Some(thread::current()) });
        if let Some(nap) = desk.bell.arm() {
            while !nap.is_over() {
                thread::park();
            }
        }
        // SAFETY: the bell was rung after it was written.
        desk.note.with(|note| assert_eq!(unsafe { *note }, 7));
        rings.join().unwrap();
    });
}

#[test]
fn a_nap_may_end_by_itself_and_the_next_arming_sees_what_was_rung_for() {
    model(|| {
        let desk = Arc::new(Desk::new());
        let other = desk.clone();
        let rings = thread::spawn(move || {
            // Relaxed: the bell publishes it.
            other.work.store(1, Ordering::Relaxed);
            let _ = other.bell.ring();
        });
        let sees_work = || desk.work.load(Ordering::Relaxed) == 1;
        // The nap ends at once, as by a time-out. Either it has swallowed the ring, and then the
        // work is visible, or the ring is still to come.
        drop(desk.bell.arm());
        if !sees_work() {
            match desk.bell.arm() {
                None => assert!(sees_work(), "the bell kept it awake, and there was nothing"),
                Some(nap) => {
                    rings.join().unwrap();
                    assert!(nap.is_over(), "neither the work nor the ring was seen");
                    return;
                }
            }
        }
        rings.join().unwrap();
    });
}
