//! Arm and wait (F32): a completion that comes while the poller goes to sleep is not slept over.
//!
//! The device adds a completion first and raises the event then, if the queue is armed; hardware
//! does these two in one order for everybody, the model by an exchange on both sides.
//!
//! Mutation note. What makes the model of this file fail: a `Completions::arm` that does not look
//! once more behind the arming.
#![cfg(loom)]

use std::sync::Arc;

use loom::sync::Notify;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use nanoverbs_core::abi::Wc;
use nanoverbs_core::port::{ArmPort, PollPort};
use nanoverbs_core::{Armed, Completions, Ring};
use nanoverbs_loom_tests::device::Cq;
use nanoverbs_loom_tests::{lend, model};

struct Event {
    is_armed: AtomicBool,
    channel: Notify,
}

struct Armable {
    cq: Cq<1, 2>,
    event: Arc<Event>,
}

// SAFETY: the queue inside keeps the promises.
unsafe impl PollPort for Armable {
    fn poll(&mut self, into: &mut [Wc]) -> i32 {
        self.cq.poll(into)
    }
}

impl ArmPort for Armable {
    fn arm(&mut self, _: bool) -> i32 {
        // Acquire, pairs with the release of the device's exchange: what came before it is found.
        self.event.is_armed.swap(true, Ordering::AcqRel);
        0
    }
}

#[test]
fn f32_no_completion_is_slept_over() {
    model(|| {
        let run = |ring: &'static mut Ring<Wc, 2>| {
            let (mut done, cq) = ring.split();
            let event =
                Arc::new(Event { is_armed: AtomicBool::new(false), channel: Notify::new() });
            let armable = Armable { cq: Cq([cq]), event: event.clone() };
            let mut completions: Completions<_, 2> = Completions::new(armable, 2);
            let other = event.clone();
            let device = thread::spawn(move || {
                for wr_id in 0..2 {
                    done.push(Wc { wr_id, ..Wc::EMPTY }).unwrap();
                    if other.is_armed.swap(false, Ordering::AcqRel) {
                        other.channel.notify();
                    }
                }
            });
            let mut polled = 0;
            while polled < 2 {
                polled += completions.poll().unwrap().count();
                if polled < 2 && completions.arm(false).unwrap() == Armed::Quiet {
                    // A wait that no event ends is a deadlock.
                    event.channel.wait();
                }
            }
            device.join().unwrap();
        };
        // SAFETY: the thread has been joined, and the completion queue is not used again.
        drop(unsafe { lend(Ring::new(), run) });
    });
}
