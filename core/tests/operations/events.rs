//! Armed completion queues and their events; queues and devices that break while nobody reads events.

use nanoverbs_core::soft::{CqId, Profile, QpConfig};
use nanoverbs_core::{
    Armed, Block, Cause, Completions, Outcome, PollError, RecvConfig, RecvQueue, RecvSlots,
    SendConfig, SendQueue, SendSlots, SubmitError, op,
};

use crate::bed::*;

type Plain = Side<Option<Block>>;

/// Arms a side's queue, which must be empty.
fn arm(side: &mut Plain, solicited_only: bool) -> CqId {
    assert_eq!(side.completions.arm(solicited_only), Ok(Armed::Quiet));
    side.completions.port().id()
}

fn drive(device: &Dev) {
    for _ in 0..4 {
        device.progress();
    }
}

#[test]
fn f32_an_event_comes_for_what_comes_after_the_look_and_once_an_arming() {
    for profile in profiles() {
        let device = device(profile);
        let (mut a, mut b, _) = pair::<Option<Block>>(device);
        (0..3).for_each(|_| b.post_recv(None));
        let queue = arm(&mut b, false);
        assert!(!device.take_event(queue), "nothing has come");
        (0..2).for_each(|_| a.post(op::Send::new(), None).unwrap());
        drive(device);
        assert!(device.take_event(queue));
        assert!(!device.take_event(queue), "two completions, one arming, one event");
        // What is there already raises none, so arming must say that it is there.
        assert_eq!(b.completions.arm(false), Ok(Armed::Ready));
        assert!(b.received().outcome.is_done() && b.received().outcome.is_done());
        a.post(op::Send::new(), None).unwrap();
        drive(device);
        assert!(!device.take_event(queue), "it was not armed again");
        assert!(b.received().outcome.is_done());
    }
}

#[test]
fn f33_armed_for_solicited_completions_a_queue_sleeps_through_the_sends_of_its_own_side() {
    for profile in profiles() {
        let device = device(profile);
        let (mut a, mut b, _) = pair::<Option<Block>>(device);
        (0..3).for_each(|_| b.post_recv(None));
        let (at_a, at_b) = (arm(&mut a, true), arm(&mut b, true));
        a.post(op::Send::new().signaled(), None).unwrap();
        drive(device);
        assert!(!device.take_event(at_a), "a send of its own wakes nobody");
        assert!(!device.take_event(at_b), "the message was not flagged");
        a.post(op::Send::new().signaled().solicited(), None).unwrap();
        drive(device);
        assert!(!device.take_event(at_a));
        assert!(device.take_event(at_b));
        // A WRITE with an immediate may be flagged as well.
        assert!(b.received().outcome.is_done() && b.received().outcome.is_done());
        assert!(a.sent().outcome.is_done() && a.sent().outcome.is_done());
        let region = shared(device, device.domain(), 1, ALL);
        let write = op::Write::new(region.advertise().at(0, 0).unwrap()).immediate(1);
        let at_b = arm(&mut b, true);
        a.post(write.solicited(), None).unwrap();
        drive(device);
        assert!(device.take_event(at_b));
    }
}

#[test]
fn f33_whether_a_failed_send_ends_a_solicited_wait_depends_on_the_device() {
    for (profile, wakes) in [(Profile::rxe(), false), (Profile::mlx5_like(), true)] {
        let device = device(profile);
        let domain = device.domain();
        let mut a: Plain = side_with(device, domain, QpConfig::new(domain).rnr_retry(0));
        let b: Plain = side(device, domain);
        a.control.connect(&b.control).unwrap();
        let queue = arm(&mut a, true);
        a.post(op::Send::new(), None).unwrap();
        drive(device);
        assert_eq!(device.take_event(queue), wakes);
        assert!(matches!(a.sent().outcome, Outcome::Failed(_)), "either way it is there");
    }
}

#[test]
fn f34_more_completions_than_one_poll_takes_are_not_slept_over() {
    let device = device(Profile::STRICT);
    let (mut a, mut b, _) = pair::<Option<Block>>(device);
    let queue = device.completion_queue(64).unwrap();
    let id = queue.id();
    let pair = device.queue_pair(QpConfig::new(device.domain()), &queue, &queue).unwrap();
    let config = RecvConfig::new(device.domain());
    let mut recvs: RecvQueue<'_, _, Option<Block>, 32> =
        RecvQueue::new(pair.recv, leak(RecvSlots::new()), config).unwrap();
    let mut completions = Completions::<_, 4>::new(queue, 64);
    let domain = device.domain();
    let mut c: Plain = side(device, domain);
    c.control.connect(&pair.control).unwrap();
    let mut chain = recvs.reserve(&mut c.recv_link, 5).unwrap();
    (0..5).for_each(|_| chain.push(None).unwrap());
    chain.submit().unwrap();
    assert_eq!(completions.arm(false), Ok(Armed::Quiet));
    (0..5).for_each(|_| c.post(op::Send::new(), None).unwrap());
    drive(device);
    assert!(device.take_event(id));
    // One poll takes four of them, and no event will come for the fifth: arming finds it.
    for completion in completions.poll().unwrap() {
        recvs.retire(completion).unwrap();
    }
    assert_eq!(recvs.ended(), 4);
    assert_eq!(completions.arm(false), Ok(Armed::Ready));
    for completion in completions.poll().unwrap() {
        recvs.retire(completion).unwrap();
    }
    assert_eq!(recvs.ended(), 5);
    assert_eq!(completions.arm(false), Ok(Armed::Quiet));
    assert!(!device.take_event(id), "an event comes once");
    drop((a.try_sent(), b.try_received()));
    while recvs.take().is_some() {}
}

#[test]
fn f35_an_event_goes_to_one_of_two_who_wait_and_the_other_is_told_that_there_is_none() {
    let device = device(Profile::STRICT);
    let (mut a, mut b, _) = pair::<Option<Block>>(device);
    b.post_recv(None);
    let queue = arm(&mut b, false);
    a.post(op::Send::new(), None).unwrap();
    drive(device);
    let take = || device.take_event(queue);
    let taken = std::thread::scope(|scope| {
        let waiters = [scope.spawn(take), scope.spawn(take)];
        waiters.map(|waiter| waiter.join().unwrap())
    });
    assert_eq!(taken.iter().filter(|taken| **taken).count(), 1, "{taken:?}");
    assert!(b.received().outcome.is_done());
}

#[test]
fn f36_a_queue_goes_with_events_that_nobody_took_and_they_are_not_another_queues() {
    let device = device(Profile::STRICT);
    let (mut a, mut b, domain) = pair::<Option<Block>>(device);
    b.post_recv(None);
    let queue = arm(&mut b, false);
    a.post(op::Send::new(), None).unwrap();
    drive(device);
    assert!(b.received().outcome.is_done());
    drop(b);
    drop((a.try_sent(), a));
    assert!(!device.take_event(queue), "it is gone, and so is its event");
    // The next queue in its place has no events of its predecessor's, whatever name is asked for.
    let next: Plain = side(device, domain);
    assert!(!device.take_event(next.completions.port().id()));
    assert!(!device.take_event(queue));
}

#[test]
fn f65_who_shares_a_receive_queue_ends_without_waiting_for_its_last_receive() {
    // The device never says that the last receive was taken, and no marker is posted: what is in
    // flight is counted.
    for profile in profiles() {
        let device = device(profile);
        let domain = device.domain();
        let shared = device.shared_receive_queue(8).unwrap();
        let queue = device.completion_queue(64).unwrap();
        let config = QpConfig::new(domain).shared_receive(shared.id);
        let pair = device.queue_pair(config, &queue, &queue).unwrap();
        let mut sends: SendQueue<'_, _, u32, 32> =
            SendQueue::new(pair.send, leak(SendSlots::new()), SendConfig::new(domain)).unwrap();
        sends.open();
        let mut peer: Side<u32> = side(device, domain);
        peer.control.connect(&pair.control).unwrap();
        let mut chain = sends.reserve(&mut peer.send_link, 3).unwrap();
        for at in 0..3 {
            // SAFETY: no memory is named.
            unsafe { chain.push_raw(op::Send::new(), &[], at) }.unwrap();
        }
        chain.submit().unwrap();
        pair.control.disconnect();
        let mut completions = Completions::<_>::new(queue, 64);
        for _ in 0..8 {
            for completion in completions.poll().unwrap() {
                sends.retire(completion).unwrap();
            }
        }
        assert_eq!(sends.in_flight(), 0);
        let ended: Vec<_> = std::iter::from_fn(|| sends.take()).collect();
        assert_eq!(ended.iter().map(|ended| ended.context).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(ended.iter().all(|ended| matches!(ended.outcome, Outcome::Flushed)));
    }
}

#[test]
fn f66_a_completion_queue_that_breaks_ends_everything_though_nobody_reads_events() {
    let device = device(Profile::STRICT);
    let domain = device.domain();
    let queue = device.completion_queue(2).unwrap();
    let pair = device.queue_pair(QpConfig::new(domain), &queue, &queue).unwrap();
    let mut peer: Plain = side(device, domain);
    peer.control.connect(&pair.control).unwrap();
    let mut sends: SendQueue<'_, _, u32, 32> =
        SendQueue::new(pair.send, leak(SendSlots::new()), SendConfig::new(domain)).unwrap();
    sends.open();
    // The fault that attaching a queue prevents: room for two, and four complete.
    (0..4).for_each(|_| peer.post_recv(None));
    let mut chain = sends.reserve(&mut peer.send_link, 4).unwrap();
    for at in 0..4 {
        // SAFETY: no memory is named.
        unsafe { chain.push_raw(op::Send::new().signaled(), &[], at) }.unwrap();
    }
    chain.submit().unwrap();
    drive(device);
    let mut completions = Completions::<_>::new(queue, 2);
    let mut seen = 0;
    let error = loop {
        match completions.poll() {
            Ok(batch) => {
                for completion in batch {
                    seen += sends.retire(completion).unwrap();
                }
            }
            Err(error) => break error,
        }
    };
    assert_eq!((seen, error), (2, PollError { code: -5 }));
    sends.close();
    pair.control.destroy();
    // SAFETY: the queue pair is destroyed.
    unsafe { sends.abandon() };
    let outcomes: Vec<_> =
        std::iter::from_fn(|| sends.take()).map(|it| (it.context, it.outcome)).collect();
    assert_eq!(outcomes.len(), 4, "each comes back, once");
    assert!(outcomes[..2].iter().all(|(_, outcome)| outcome.is_done()));
    assert!(outcomes[2..].iter().all(|(_, outcome)| matches!(outcome, Outcome::Abandoned)));
}

#[test]
fn f62_a_device_that_is_taken_away_refuses_by_name_and_gives_every_context_back() {
    for profile in profiles() {
        let device = device(profile);
        let (mut a, mut b, domain) = pair::<Option<Block>>(device);
        let mut pool = pool(device, domain, 8, 8);
        (0..2).for_each(|_| b.post_recv(Some(pool.allocate().unwrap())));
        a.control.hold_acks(true);
        for _ in 0..2 {
            a.post(op::Send::new().signaled(), Some(filled(&mut pool, 8, 1))).unwrap();
        }
        drive(device);
        device.remove();
        drive(device);
        // Nobody is told: the next post and the next poll say it.
        let mut chain = a.sends.reserve(&mut a.send_link, 1).unwrap();
        chain.push(op::Send::new(), Some(filled(&mut pool, 8, 1))).unwrap();
        let Err(SubmitError::Partial { accepted: 0, code: 5, rest }) = chain.submit() else {
            panic!("nothing was taken")
        };
        drop(rest);
        // What had come before is still given, then no more.
        for completion in b.completions.poll().unwrap() {
            b.recvs.retire(completion).unwrap();
        }
        assert_eq!(b.completions.poll().map(|_| ()), Err(PollError { code: -5 }));
        assert_eq!(a.completions.poll().map(|_| ()), Err(PollError { code: -5 }));
        assert!((0..2).all(|_| b.recvs.take().unwrap().outcome.is_done()));
        a.sends.close();
        assert!(matches!(a.sends.closed(), Some(Cause::ByOwner)));
        // Its ports know, so it takes no promise to have the contexts back.
        let Side { mut sends, .. } = a;
        assert!(sends.try_abandon());
        for _ in 0..2 {
            let ended = sends.take().unwrap();
            assert!(ended.context.is_some() && matches!(ended.outcome, Outcome::Abandoned));
        }
        assert!(sends.take().is_none());
    }
}
