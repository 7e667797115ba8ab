//! What a device grants, and what a program may rely on.

use nanoverbs_core::soft::{Profile, QpConfig, QueuePairError};
use nanoverbs_core::{
    Block, Completions, CqTooSmall, Outcome, PushError, RecvConfig, RecvQueue, RecvSlots,
    ReserveError, SendConfig, SendQueue, SendSlots, SendStaging, WcStatus, op,
};

use crate::bed::*;

#[test]
fn f03_a_missing_receive_is_waited_for_as_often_as_was_said() {
    for (tries, is_there_in_time) in [(0, false), (2, false), (6, true), (7, true)] {
        let device = device(Profile::STRICT);
        let domain = device.domain();
        let config = QpConfig::new(domain).rnr_retry(tries);
        let mut a = side_with::<Option<Block>>(device, domain, config);
        let mut b = side::<Option<Block>>(device, domain);
        a.control.connect(&b.control).unwrap();
        a.post(op::Send::new(), None).unwrap();
        for _ in 0..4 {
            device.progress();
        }
        b.post_recv(None);
        let Some(ended) = (0..4).find_map(|_| a.try_sent()) else {
            // A silent request that went well has no completion.
            assert!(is_there_in_time, "{tries}");
            assert!(b.received().outcome.is_done());
            continue;
        };
        let Outcome::Failed(failure) = ended.outcome else { panic!("{:?}", ended.outcome) };
        assert_eq!((failure.status(), is_there_in_time), (WcStatus::RnrRetryExceeded, false));
    }
}

#[test]
fn f10_a_completion_queue_has_room_for_every_slot_or_the_queues_do_not_join_it() {
    let device = device(Profile::STRICT);
    let domain = device.domain();
    let queue = device.completion_queue(12).unwrap();
    let capacity = queue.capacity() as u32;
    let config = QpConfig::new(domain).send_depth(4).recv_depth(4);
    let pairs = [(); 2].map(|()| device.queue_pair(config, &queue, &queue).unwrap());
    let mut completions = Completions::<_>::new(queue, capacity);
    let [first, second] = pairs;
    let caps = first.control.caps();
    completions.attach(caps.send_depth + caps.recv_depth).unwrap();
    let caps = second.control.caps();
    let refused = completions.attach(caps.send_depth + caps.recv_depth);
    assert_eq!(refused, Err(CqTooSmall { need: 16, have: 12 }));
    // What was refused has reserved nothing, and what leaves makes room.
    completions.detach(8);
    completions.attach(12).unwrap();
}

#[test]
fn f11_the_depth_that_counts_is_the_least_of_asked_granted_and_stored() {
    let device = device(Profile::mlx5_like());
    let domain = device.domain();
    let queue = device.completion_queue(64).unwrap();
    let config = QpConfig::new(domain).send_depth(5).recv_depth(3);
    let pair = device.queue_pair(config, &queue, &queue).unwrap();
    let peer = side::<u32>(device, domain);
    peer.control.connect(&pair.control).unwrap();
    let granted = pair.control.caps();
    assert_eq!((granted.send_depth, granted.recv_depth), (8, 4), "the device rounds up");
    let config = SendConfig::new(domain).depth(5).chain(2).period(3);
    let mut sends: SendQueue<'_, _, u32, 32> =
        SendQueue::new(pair.send, leak(SendSlots::new()), config).unwrap();
    sends.open();
    assert_eq!(sends.depth(), 5, "the device's own rounding is never relied on");
    let mut staging = SendStaging::<8, 1>::new();
    let mut link = staging.link();
    for _ in 0..2 {
        let mut chain = sends.reserve(&mut link, 2).unwrap();
        for at in 0..2 {
            // SAFETY: no memory is named.
            unsafe { chain.push_raw(op::Send::new(), &[], at) }.unwrap();
        }
        chain.submit().unwrap();
    }
    let full = ReserveError::Full { asked: 2, free: 1 };
    assert_eq!(sends.reserve(&mut link, 2).unwrap_err(), full);
    let recvs: RecvQueue<'_, _, Option<Block>, 2> =
        RecvQueue::new(pair.recv, leak(RecvSlots::new()), RecvConfig::new(domain).depth(3))
            .unwrap();
    assert_eq!(recvs.depth(), 2, "there is storage for two");
}

#[test]
fn f13_inline_data_is_limited_by_what_was_granted_not_by_what_was_asked_for() {
    let device = device(Profile::STRICT.no_inline(true));
    let domain = device.domain();
    let queue = device.completion_queue(64).unwrap();
    let pair = device.queue_pair(QpConfig::new(domain).inline(64), &queue, &queue).unwrap();
    assert_eq!(pair.control.caps().inline, 0, "some devices have none");
    let config = SendConfig::new(domain).max_inline(pair.control.caps().inline as u16);
    let mut sends: SendQueue<'_, _, Block, 32> =
        SendQueue::new(pair.send, leak(SendSlots::new()), config).unwrap();
    sends.open();
    let mut staging = SendStaging::<1, 1>::new();
    let mut link = staging.link();
    let mut pool = pool(device, domain, 1, 8);
    let mut chain = sends.reserve(&mut link, 1).unwrap();
    let refused = chain.push_inline(op::Send::new(), filled(&mut pool, 8, 1)).unwrap_err();
    assert_eq!(refused.error, PushError::InlineTooLong { given: 8, max: 0 });
    // What the device has no room for is refused when the queue pair is made.
    let refused = device.queue_pair(QpConfig::new(domain).inline(65), &queue, &queue);
    assert!(matches!(refused.map(drop), Err(QueuePairError::Inline { .. })));
}

#[test]
fn f64_silent_requests_come_back_once_the_queue_pair_is_destroyed_without_a_promise() {
    for profile in profiles() {
        let device = device(profile);
        let (mut a, mut b, domain) = pair::<Option<Block>>(device);
        let mut pool = pool(device, domain, 4, 8);
        b.post_recv(Some(pool.allocate().unwrap()));
        b.post_recv(Some(pool.allocate().unwrap()));
        a.post(op::Send::new(), Some(filled(&mut pool, 8, 1))).unwrap();
        assert!(b.received().outcome.is_done());
        a.control.disconnect();
        assert!(a.try_sent().is_none(), "it is done, and nothing will say so");
        assert_eq!((a.sends.in_flight(), a.sends.silent()), (1, 1));
        assert!(!a.sends.try_abandon() && !b.recvs.try_abandon(), "they live");
        let (Side { mut sends, control: one, .. }, Side { mut recvs, control: other, .. }) = (a, b);
        drop((one, other));
        assert!(sends.try_abandon() && recvs.try_abandon());
        for ended in [sends.take(), recvs.take()] {
            let ended = ended.expect("it comes back");
            assert!(ended.context.is_some() && matches!(ended.outcome, Outcome::Abandoned));
        }
        assert!(sends.into_storage().is_ok() && recvs.into_storage().is_ok());
    }
}
