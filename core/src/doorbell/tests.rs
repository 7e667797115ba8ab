extern crate std;

use super::*;

#[test]
fn a_ring_before_the_nap_keeps_the_waiter_awake_once() {
    let bell = Doorbell::new();
    assert!(!bell.ring(), "nobody sleeps");
    assert!(!bell.ring());
    assert!(bell.arm().is_none());
    assert!(bell.arm().is_some());
}

#[test]
fn the_first_ring_of_a_nap_says_to_wake_and_the_next_do_not() {
    let bell = Doorbell::new();
    let nap = bell.arm().unwrap();
    assert!(!nap.is_over());
    assert!(bell.ring());
    assert!(!bell.ring());
    assert!(nap.is_over());
    drop(nap);
    assert!(!bell.ring(), "awake");
}

#[test]
fn a_nap_that_ends_by_itself_leaves_the_bell_quiet() {
    let bell = Doorbell::new();
    drop(bell.arm().unwrap());
    assert!(!bell.ring());
}

#[test]
fn a_second_waiter_stays_awake_and_does_not_disturb_the_first() {
    let bell = Doorbell::new();
    let nap = bell.arm().unwrap();
    assert!(bell.arm().is_none());
    assert!(!nap.is_over());
    assert!(bell.ring());
}

#[test]
fn a_thousand_naps_end() {
    let bell = Doorbell::new();
    let turn = AtomicU32::new(0);
    let count = if cfg!(miri) { 30 } else { 1000 };
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            for round in 1..=count {
                while turn.load(Ordering::Relaxed) < round {
                    let Some(nap) = bell.arm() else { continue };
                    while !nap.is_over() {
                        std::thread::park();
                    }
                }
            }
        });
        for _ in 0..count {
            turn.fetch_add(1, Ordering::Relaxed);
            if bell.ring() {
                sleeper.thread().unpark();
            }
        }
    });
}
