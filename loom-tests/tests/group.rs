//! A group whose members come and go on one thread while another one polls.
//!
//! The poller owns group and completion queue. The other thread asks it to let a queue pair join,
//! posts, destroys the queue pair with a completion still on its way, lets it leave, and joins
//! anew, in a group of one and a completion queue of one: every index, number and place is used
//! again at once.
//!
//! Mutation notes. What makes the model of this file fail:
//!
//! * a group that gives the next member the number of the last one: an old completion ends a new
//!   request;
//! * a group that gives the room back before the completion queue was seen empty: it is overrun;
//! * the release in `Grant::commit`, relaxed: a seat is read before it is written.
#![cfg(loom)]

use loom::thread;
use nanoverbs_core::abi::Wc;
use nanoverbs_core::{
    Completion, Completions, Consumer, Group, JoinError, Joined, Member, Producer, Ring, Route,
};
use nanoverbs_loom_tests::device::{Cq, Desk, Wire};
use nanoverbs_loom_tests::{lend, model, take};

enum Ask {
    Join,
    Leave(Member),
    End,
}

enum Tell {
    Joined(Joined),
    Ended(Completion),
}

#[derive(Default)]
struct Shared {
    done: Ring<Wc, 1>,
    asked: Ring<Ask, 4>,
    told: Ring<Tell, 4>,
}

/// The poller: what was asked for, then one poll.
fn poll(cq: Cq<1, 1>, mut asked: Consumer<'static, Ask, 4>, mut told: Producer<'static, Tell, 4>) {
    let mut completions: Completions<_, 1> = Completions::new(cq, 1);
    let mut group = Group::<1>::new();
    let mut wants_to_join = false;
    loop {
        for ask in asked.drain(4) {
            match ask {
                Ask::Join => wants_to_join = true,
                Ask::Leave(member) => group.leave(member).unwrap(),
                Ask::End => return,
            }
        }
        if wants_to_join {
            match group.join(&mut completions, 1, 0) {
                Ok(joined) => {
                    assert!(told.push(Tell::Joined(joined)).is_ok());
                    wants_to_join = false;
                }
                Err(JoinError::Leaving { leaving: 1 }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        for completion in completions.poll().unwrap() {
            match group.route(&completion) {
                Route::Send(0) => assert!(told.push(Tell::Ended(completion)).is_ok()),
                route => assert_eq!(route, Route::Stale),
            }
        }
        thread::yield_now();
    }
}

#[test]
fn a_completion_of_a_queue_that_left_ends_no_request_of_the_next_one() {
    model(|| {
        let run = |shared: &'static mut Shared| {
            let (done, cq) = shared.done.split();
            let (mut ask, asked) = shared.asked.split();
            let (tell, mut told) = shared.told.split();
            let poller = thread::spawn(move || poll(Cq([cq]), asked, tell));

            let mut late = None;
            let mut join = |late: &mut Option<Completion>| {
                loop {
                    match take(1, || told.pop()).pop().unwrap() {
                        Tell::Joined(joined) => return joined,
                        Tell::Ended(completion) => *late = Some(completion),
                    }
                }
            };
            assert!(ask.push(Ask::Join).is_ok());
            let first = join(&mut late);
            let mut desk = Desk::new(Wire::new(done), first.send);
            desk.post(Box::new("first"));
            // SAFETY: the device has no memory of the request, and no completion of it is retired
            // in this queue.
            unsafe { desk.queue.abandon() };
            assert!(!desk.queue.take().unwrap().outcome.is_done());
            let (mut wire, _) = desk.queue.into_storage().unwrap();
            assert!(ask.push(Ask::Leave(first.member)).is_ok());
            assert!(ask.push(Ask::Join).is_ok());

            let second = join(&mut late);
            assert_eq!(second.member.index(), 0);
            wire.status = 5;
            let mut desk = Desk::new(wire, second.send);
            desk.post(Box::new("second"));
            if let Some(completion) = late.take() {
                assert!(desk.queue.retire(completion).is_err(), "it is of the first one");
            }
            let Tell::Ended(completion) = take(1, || told.pop()).pop().unwrap() else {
                panic!("nobody asked to join");
            };
            assert_eq!(desk.queue.retire(completion).unwrap(), 1);
            // The second one's completion says that it failed; the first one's did not.
            assert!(!desk.queue.take().unwrap().outcome.is_done());
            assert!(ask.push(Ask::End).is_ok());
            poller.join().unwrap();
        };
        // SAFETY: the thread has been joined, and nothing here is used again.
        drop(unsafe { lend(Shared::default(), run) });
    });
}
