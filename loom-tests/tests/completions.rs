//! One completion queue, two threads that each wait for their own request (F41), and one send queue
//! for two threads (F74).
//!
//! Only one thread can poll, because polling takes `&mut`, and only one can post to a queue. The
//! others are handed what is theirs through rings: completions by the poller, requests to the
//! poster.
//!
//! Mutation notes. What makes a model of this file fail:
//!
//! * the release in `Grant::commit`, relaxed: completions and requests are read before they are
//!   written;
//! * a `Group::route` that looks at the wrong bits: the other thread waits for ever;
//! * a `retire` that does not ask whose the completion is: a request ends that was not done.
#![cfg(loom)]

use loom::thread;
use nanoverbs_core::abi::Wc;
use nanoverbs_core::{Completion, Completions, Full, Group, Joined, Ring, Route};
use nanoverbs_loom_tests::device::{Cq, Desk, Wire};
use nanoverbs_loom_tests::{lend, model, take};

#[derive(Default)]
struct Shared {
    mine: Ring<Wc, 2>,
    yours: Ring<Wc, 2>,
    handed_over: Ring<Completion, 2>,
}

#[test]
fn f41_each_thread_gets_the_outcome_of_its_own_request() {
    model(|| {
        let run = |shared: &'static mut Shared| {
            let (mine, my_cq) = shared.mine.split();
            let (yours, your_cq) = shared.yours.split();
            let (mut hand_over, mut handed_over) = shared.handed_over.split();
            let mut completions: Completions<_, 4> = Completions::new(Cq([your_cq, my_cq]), 4);
            let mut group = Group::<2>::new();
            let me = group.join(&mut completions, 1, 0).unwrap();
            let you = group.join(&mut completions, 1, 0).unwrap();
            let (my_index, your_index) = (me.member.index(), you.member.index());
            let mut my_desk = Desk::new(Wire::new(mine), me.send);

            let other = thread::spawn(move || {
                let mut your_desk = Desk::new(Wire::new(yours), you.send);
                your_desk.post(Box::new("yours"));
                let completion = take(1, || handed_over.pop()).pop().unwrap();
                assert_eq!(your_desk.queue.retire(completion).unwrap(), 1);
                let ended = your_desk.queue.take().unwrap();
                assert!(ended.outcome.is_done());
                assert_eq!(*ended.context.1, "yours");
            });

            my_desk.post(Box::new("mine"));
            let (mut left, mut is_mine_done) = (2, false);
            while left > 0 {
                for completion in completions.poll().unwrap() {
                    left -= 1;
                    // A thread that took whatever came for its own would do this.
                    let completion = match group.route(&completion) {
                        Route::Send(index) if index == your_index => {
                            let refused = my_desk.queue.retire(completion).unwrap_err().0;
                            hand_over.push(refused).unwrap();
                            continue;
                        }
                        route => {
                            assert_eq!(route, Route::Send(my_index));
                            completion
                        }
                    };
                    assert_eq!(my_desk.queue.retire(completion).unwrap(), 1);
                    assert_eq!(*my_desk.queue.take().unwrap().context.1, "mine");
                    is_mine_done = true;
                }
                thread::yield_now();
            }
            assert!(is_mine_done);
            other.join().unwrap();
        };
        // SAFETY: the thread has been joined, and nothing here is used again.
        drop(unsafe { lend(Shared::default(), run) });
    });
}

#[derive(Default)]
struct Sharing {
    done: Ring<Wc, 2>,
    orders: Ring<Box<u32>, 2>,
}

#[test]
fn f74_two_threads_share_a_queue_through_a_ring_and_order_and_credits_hold() {
    model(|| {
        let run = |shared: &'static mut Sharing| {
            let (done, cq) = shared.done.split();
            let (mut orders, mut ordered) = shared.orders.split();
            let mut completions: Completions<_, 2> = Completions::new(Cq([cq]), 2);
            let mut group = Group::<1>::new();
            let Joined { member: _, send, .. } = group.join(&mut completions, 2, 0).unwrap();
            let mut desk = Desk::new(Wire::new(done), send);

            let other = thread::spawn(move || {
                for order in [10, 11] {
                    let mut order = Box::new(order);
                    while let Err(Full(back)) = orders.push(order) {
                        order = back;
                        thread::yield_now();
                    }
                }
            });

            let mut own = Some(Box::new(1));
            let (mut posted, mut ended) = (Vec::new(), Vec::new());
            while ended.len() < 3 {
                while desk.queue.free() > 0 {
                    let Some(order) = ordered.pop().or_else(|| own.take()) else { break };
                    posted.push(*order);
                    desk.post(order);
                }
                for completion in completions.poll().unwrap() {
                    assert_eq!(group.route(&completion), Route::Send(0));
                    desk.queue.retire(completion).unwrap();
                }
                ended.extend(std::iter::from_fn(|| desk.queue.take()).map(|done| *done.context.1));
                assert_eq!(desk.queue.free() as usize, 2 - (posted.len() - ended.len()));
                thread::yield_now();
            }
            other.join().unwrap();
            assert_eq!(ended, posted, "the order of the posts");
            assert_eq!(posted.iter().filter(|&&order| order >= 10).count(), 2);
            let ids = &desk.queue.port().posted;
            assert!(ids.is_sorted() && ids.len() == 3, "the order of the sequence numbers");
            assert!(desk.queue.take().is_none() && desk.queue.in_flight() == 0);
        };
        // SAFETY: the thread has been joined, and nothing here is used again.
        drop(unsafe { lend(Sharing::default(), run) });
    });
}
