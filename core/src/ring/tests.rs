extern crate std;
use std::sync::Arc;

use super::*;

fn starting_at<T, const N: usize>(index: usize) -> Ring<T, N> {
    let ring = Ring::new();
    ring.head.0.store(index, Ordering::Relaxed);
    ring.tail.0.store(index, Ordering::Relaxed);
    // SAFETY: nobody else has the ring yet.
    ring.taken.0.with_mut(|taken| unsafe { *taken = index });
    ring
}

#[test]
fn full_ring_gives_the_value_back() {
    let mut ring = Ring::<_, 2>::new();
    let (mut producer, _consumer) = ring.split();
    producer.push(1).unwrap();
    producer.push(2).unwrap();
    let Err(Full(3)) = producer.push(3) else { panic!("it was full") };
    assert!(producer.reserve(1).is_none());
}

#[test]
fn indices_wrap_without_losing_a_value() {
    let mut ring = starting_at::<_, 4>(usize::MAX - 3);
    let (mut producer, mut consumer) = ring.split();
    for round in 0..20_u32 {
        let mut grant = producer.reserve(3).unwrap();
        for at in 0..3 {
            grant.write(round * 3 + at).unwrap();
        }
        assert_eq!(grant.commit(), 3);
        assert!(consumer.drain(8).eq(round * 3..round * 3 + 3));
    }
}

#[test]
fn a_dropped_grant_hands_nothing_over_and_drops_what_it_holds() {
    let value = Arc::new(());
    let mut ring = Ring::<_, 4>::new();
    let (mut producer, mut consumer) = ring.split();
    let mut grant = producer.reserve(2).unwrap();
    grant.write(value.clone()).unwrap();
    drop(grant);
    assert!(consumer.pop().is_none());
    assert_eq!(Arc::strong_count(&value), 1);
    assert_eq!(producer.room(), 4);
}

#[test]
fn a_grant_takes_no_more_than_was_reserved() {
    let mut ring = Ring::<_, 4>::new();
    let (mut producer, _consumer) = ring.split();
    let mut grant = producer.reserve(1).unwrap();
    grant.write(1).unwrap();
    assert!(grant.write(2).is_err());
}

#[test]
fn what_is_left_in_a_ring_is_there_after_splitting_again_and_dropped_in_the_end() {
    let value = Arc::new(());
    let mut ring = Ring::<_, 4>::new();
    ring.split().0.push(value.clone()).unwrap();
    ring.split().0.push(value.clone()).unwrap();
    let (mut producer, mut consumer) = ring.split();
    assert_eq!((producer.room(), consumer.len()), (2, 2));
    assert!(consumer.drain(1).next().is_some());
    assert_eq!(Arc::strong_count(&value), 2);
    drop(ring);
    assert_eq!(Arc::strong_count(&value), 1);
}

#[test]
fn two_threads_see_every_value_once_in_order() {
    let count = if cfg!(miri) { 300 } else { 100_000_u32 };
    let mut ring = Ring::<_, 8>::new();
    let (mut producer, mut consumer) = ring.split();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut next = 0;
            while next < count {
                match producer.push(next) {
                    Ok(()) => next += 1,
                    Err(_) => std::thread::yield_now(),
                }
            }
        });
        let mut next = 0;
        while next < count {
            for value in consumer.drain(4) {
                assert_eq!(value, next);
                next += 1;
            }
            std::thread::yield_now();
        }
    });
}
