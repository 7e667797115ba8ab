//! The software device: one thread posts, another polls, and whoever polls drives it.
//!
//! Mutation notes. What makes a model of this file fail:
//!
//! * the release store of a ring's tail in `Ring::take`, or the acquire load in `Ring::tail`,
//!   relaxed: the engine reads a request before it is written;
//! * the release store in `Ring::free`, or the acquire load of `freed`, relaxed: a request is
//!   written while the engine reads it;
//! * the release store of a completion queue's tail in `push`, or the acquire load in `drain`,
//!   relaxed: a completion is read before it is written;
//! * the release store of its head in `drain`, or the acquire load in `push`, relaxed: a completion
//!   is written while it is read;
//! * the acquire of the lock, or the release store in `unlock`, relaxed: two threads have the
//!   engine;
//! * the release in `Slot::drop_end`, or the acquire load in `is_free`, relaxed: a new queue pair's
//!   rings are made ready before the old one's posts are over;
//! * a `Completions::arm` that does not look once more, or an engine that raises no event: a thread sleeps
//!   over a completion.
#![cfg(loom)]

use std::io::Write;

use loom::sync::Arc;
use loom::sync::atomic::AtomicBool;
use loom::sync::atomic::Ordering::Relaxed;
use loom::thread;
use nanoverbs_core::abi::{RecvWr, SendWr, Wc, opcode, send_flags};
use nanoverbs_core::port::{PollPort, RecvPort, SendPort};
use nanoverbs_core::soft::{Device, Overrun, Profile, QpConfig, QueuePair, RecvEnd, SendEnd};
use nanoverbs_core::{Armed, Completions};
use nanoverbs_loom_tests::{lend, take};

type Small = Device<2, 2, 1, 8>;

/// Runs a model. Its first complaint ends the process: the handles of a device would use loom's
/// objects when they are dropped, which is no more possible then, and never ends.
fn model(body: impl Fn() + Send + Sync + 'static) {
    std::panic::set_hook(Box::new(|complaint| {
        // Loom ends its threads by a panic without words.
        let payload = complaint.payload();
        if payload.is::<&str>() || payload.is::<String>() {
            let _ = writeln!(std::io::stderr(), "{complaint}");
            std::process::exit(101);
        }
    }));
    nanoverbs_loom_tests::model(body);
}

/// Posts an empty message.
fn send<const N: usize>(end: &mut SendEnd<'_, N, 1, 8>, id: u64) -> i32 {
    let mut wr = SendWr {
        wr_id: id,
        opcode: opcode::SEND,
        send_flags: send_flags::SIGNALED,
        ..SendWr::EMPTY
    };
    // SAFETY: a chain of one request that names no memory.
    unsafe { end.post_send(&raw mut wr, &mut core::ptr::null_mut()) }
}

/// Posts a receive for an empty message.
fn receive<const N: usize>(end: &mut RecvEnd<'_, N, 1, 8>, id: u64) -> i32 {
    let mut wr = RecvWr { wr_id: id, ..RecvWr::EMPTY };
    // SAFETY: a chain of one request that names no memory.
    unsafe { end.post_recv(&raw mut wr, &mut core::ptr::null_mut()) }
}

fn poll(queue: &mut impl PollPort) -> Option<u64> {
    let mut wc = [Wc::EMPTY];
    let count = queue.poll(&mut wc);
    assert!(count >= 0);
    (count == 1).then(|| {
        assert_eq!(wc[0].status, 0);
        wc[0].wr_id
    })
}

/// One thread posts three sends into a ring of two; the other posts their receives and polls.
fn posts_beside_polls(profile: Profile) {
    let run = |device: &'static mut Small| {
        let device = &*device;
        let domain = device.domain();
        let mut sent = device.completion_queue(2).unwrap();
        let mut received = device.completion_queue(2).unwrap();
        let config = QpConfig::new(domain);
        let pair = device.queue_pair(config, &sent, &received).unwrap();
        pair.control.connect(&pair.control).unwrap();
        let QueuePair { send: mut sender, recv: mut receiver, control } = pair;
        assert_eq!((receive(&mut receiver, 1), receive(&mut receiver, 2)), (0, 0));
        let posts = thread::spawn(move || {
            for id in 1..=3 {
                while send(&mut sender, id) != 0 {
                    thread::yield_now();
                }
            }
        });
        let first = take(1, || poll(&mut received));
        assert_eq!(receive(&mut receiver, 3), 0);
        let ends = take(3, || poll(&mut sent));
        let rest = take(2, || poll(&mut received));
        assert_eq!((first, ends, rest), (vec![1], vec![1, 2, 3], vec![2, 3]));
        posts.join().unwrap();
        drop((control, receiver, sent, received));
    };
    // SAFETY: the thread has been joined, and the handles were dropped.
    let _ = unsafe { lend(Small::with_profile(profile), run) };
}

#[test]
fn one_thread_posts_and_another_polls_what_frees_its_slots() {
    model(|| posts_beside_polls(Profile::STRICT));
}

#[test]
fn one_thread_posts_and_another_drives_what_frees_its_slots() {
    model(|| posts_beside_polls(Profile::STRICT.early_slots(true)));
}

#[test]
fn two_pollers_drive_by_turns() {
    model(|| {
        let run = |device: &'static mut Small| {
            let device = &*device;
            let config = QpConfig::new(device.domain());
            let mut at_a = device.completion_queue(2).unwrap();
            let mut at_b = device.completion_queue(1).unwrap();
            let mut a = device.queue_pair(config, &at_a, &at_a).unwrap();
            let mut b = device.queue_pair(config, &at_b, &at_b).unwrap();
            a.control.connect(&b.control).unwrap();
            let other = thread::spawn(move || {
                assert_eq!(receive(&mut b.recv, 1), 0);
                assert_eq!(take(1, || poll(&mut at_b)), [1]);
                assert_eq!(receive(&mut b.recv, 2), 0);
                assert_eq!(take(1, || poll(&mut at_b)), [2]);
                (b, at_b)
            });
            assert_eq!((send(&mut a.send, 3), send(&mut a.send, 4)), (0, 0));
            assert_eq!(take(2, || poll(&mut at_a)), [3, 4]);
            drop(other.join().unwrap());
            drop((a, at_a));
        };
        // SAFETY: the thread has been joined, and the handles were dropped.
        let _ = unsafe { lend(Small::new(), run) };
    });
}

#[test]
fn a_completions_place_is_written_again_when_it_was_read() {
    model(|| {
        let run = |device: &'static mut Small| {
            let device = &*device;
            let mut sent = device.completion_queue(1).unwrap();
            let received = device.completion_queue(2).unwrap();
            let config = QpConfig::new(device.domain());
            let mut pair = device.queue_pair(config, &sent, &received).unwrap();
            pair.control.connect(&pair.control).unwrap();
            assert_eq!((receive(&mut pair.recv, 1), receive(&mut pair.recv, 2)), (0, 0));
            assert_eq!(send(&mut pair.send, 3), 0);
            assert_eq!(device.progress(), 1);
            let was_read = Arc::new(AtomicBool::new(false));
            let reads = thread::spawn({
                let was_read = was_read.clone();
                move || {
                    assert_eq!(poll(&mut sent), Some(3));
                    // Says so, and orders nothing.
                    was_read.store(true, Relaxed);
                    sent
                }
            });
            while !was_read.load(Relaxed) {
                thread::yield_now();
            }
            assert_eq!(send(&mut pair.send, 4), 0);
            assert_eq!(device.progress(), 1);
            drop((reads.join().unwrap(), received, pair));
        };
        // It need not see yet that there is room. What would be lost then is not missed.
        let profile = Profile::STRICT.early_slots(true).overrun(Overrun::Loses);
        // SAFETY: the thread has been joined, and the handles were dropped.
        let _ = unsafe { lend(Small::with_profile(profile), run) };
    });
}

#[test]
fn a_place_is_used_again_when_its_ends_are_gone() {
    model(|| {
        let run = |device: &'static mut Small| {
            let device = &*device;
            let config = QpConfig::new(device.domain());
            let queue = device.completion_queue(2).unwrap();
            let first = device.queue_pair(config, &queue, &queue).unwrap();
            let second = device.queue_pair(config, &queue, &queue).unwrap();
            first.control.connect(&first.control).unwrap();
            let QueuePair { send: mut sender, recv, control } = first;
            let posts = thread::spawn(move || {
                // Taken or refused, whichever comes first.
                send(&mut sender, 1);
                drop((sender, recv));
            });
            control.destroy();
            let mut third = loop {
                match device.queue_pair(config, &queue, &queue) {
                    Ok(third) => break third,
                    Err(_) => thread::yield_now(),
                }
            };
            third.control.connect(&second.control).unwrap();
            assert_eq!(send(&mut third.send, 2), 0);
            posts.join().unwrap();
            drop((second, third, queue));
        };
        // SAFETY: the thread has been joined, and the handles were dropped.
        let _ = unsafe { lend(Small::new(), run) };
    });
}

#[test]
fn f32_a_completion_is_found_behind_the_arming_or_raises_the_event() {
    model(|| {
        let run = |device: &'static mut Small| {
            let device = &*device;
            let config = QpConfig::new(device.domain());
            let sent = device.completion_queue(1).unwrap();
            let received = device.completion_queue(1).unwrap();
            let mut pair = device.queue_pair(config, &sent, &received).unwrap();
            pair.control.connect(&pair.control).unwrap();
            assert_eq!(receive(&mut pair.recv, 1), 0);
            let queue = received.id();
            let posts = thread::spawn(move || {
                assert_eq!(send(&mut pair.send, 2), 0);
                device.progress();
                pair
            });
            let mut completions: Completions<_, 1> = Completions::new(received, 1);
            let armed = completions.arm(false).unwrap();
            let pair = posts.join().unwrap();
            // Somebody has to drive, at the latest the thread that joined.
            device.progress();
            assert!(armed == Armed::Ready || device.take_event(queue), "it was slept over");
            assert_eq!(completions.poll().unwrap().count(), 1);
            drop((pair, completions, sent));
        };
        // SAFETY: the thread has been joined, and the handles were dropped.
        let _ = unsafe { lend(Small::new(), run) };
    });
}
