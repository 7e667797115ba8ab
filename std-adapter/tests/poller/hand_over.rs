//! Two threads, rings between them, nothing lost.

use std::thread;
use std::time::Duration;

use nanoverbs::poller::{End, IdlePolicy, Poller, Turn, Woken, allowed_cores};
use nanoverbs_core::Ring;

use super::{PATIENCE, POLICIES, joined};

const ORDERS: u64 = if cfg!(miri) { 100 } else { 10_000 };

#[test]
fn orders_go_to_the_poller_and_answers_come_back_also_those_in_flight_at_the_stop() {
    for idle in POLICIES {
        let mut orders = Ring::<u64, 64>::new();
        let mut answers = Ring::<u64, 64>::new();
        let (mut order, mut taken) = orders.split();
        let (mut answer, mut answered) = answers.split();
        let sum = thread::scope(|scope| {
            let work = Woken(move |batch: usize| {
                // Never more than can be answered: nothing is taken that would have no place.
                let many = batch.min(answer.room());
                let Some(mut grant) = answer.reserve(many) else { return Turn::Pending };
                for order in taken.drain(many) {
                    let _ = grant.write(2 * order);
                }
                match grant.commit() {
                    0 if many > 0 => Turn::Idle,
                    0 => Turn::Pending,
                    count => Turn::Busy(count),
                }
            });
            let mut builder = Poller::builder().name("poll").idle(idle).batch(8).drain(PATIENCE);
            // A core of its own, where there are two.
            let cores = allowed_cores().unwrap();
            if cores.len() > 1 {
                builder = builder.core(cores.iter().last().unwrap());
            }
            let poller = builder.spawn_scoped(scope, work).map_err(|error| error.cause).unwrap();
            let waker = poller.waker();
            let (mut sent, mut sum, mut count) = (0, 0, 0);
            while sent < ORDERS {
                let batch = (ORDERS - sent).min(5);
                if let Some(mut grant) = order.reserve(batch as usize) {
                    for next in sent..sent + batch {
                        grant.write(next).unwrap();
                    }
                    grant.commit();
                    waker.wake();
                    sent += batch;
                }
                let came = answered.drain(64).inspect(|value| sum += value).count() as u64;
                count += came;
                if came == 0 {
                    thread::yield_now();
                }
            }
            // At once, with orders and answers in flight.
            poller.stop();
            while count < ORDERS {
                let came = answered.drain(64).inspect(|value| sum += value).count() as u64;
                count += came;
                if came == 0 {
                    thread::yield_now();
                }
            }
            let report = joined(poller);
            assert!(matches!(report.end, End::Stopped { drained: true }), "{:?}", report.end);
            assert_eq!(report.stats.completions as u64, ORDERS);
            assert_eq!(answered.pop(), None);
            sum
        });
        assert_eq!(sum, ORDERS * (ORDERS - 1));
    }
}

#[test]
fn a_sleeping_poller_is_woken_for_each_order() {
    let idle = IdlePolicy::SpinThenSleep { spins: 0, longest: Duration::from_secs(3600) };
    let mut orders = Ring::<u32, 2>::new();
    let (mut order, mut taken) = orders.split();
    let (done, dones) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let work = Woken(move |batch: usize| match taken.drain(batch).last() {
            Some(order) => {
                done.send(order).unwrap();
                Turn::Busy(1)
            }
            None => Turn::Idle,
        });
        let poller = Poller::builder().idle(idle).spawn_scoped(scope, work);
        let poller = poller.map_err(|error| error.cause).unwrap();
        let waker = poller.waker();
        for round in 0..2000 {
            order.push(round).unwrap();
            waker.wake();
            assert_eq!(dones.recv_timeout(PATIENCE), Ok(round));
        }
        poller.stop();
        let report = joined(poller);
        assert!(report.stats.sleeps > 0);
        assert_eq!(report.stats.completions, 2000);
    });
}
