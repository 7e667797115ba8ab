//! Every request has one outcome, and a refused post leaves no trace. On a scripted device, so that
//! each answer of a device can be forced.

mod common;

use std::rc::Rc;

use common::{Device, Tracked, pool, recv_queue, remote, send_config, send_queue};
use nanoverbs_core::abi::Wc;
use nanoverbs_core::port::PollPort;
use nanoverbs_core::{
    Cause, Completions, ConfigError, Ended, Foreign, Operation, Outcome, PollError, PushError,
    RecvStaging, ReserveError, SendConfig, SendQueue, SendSlots, SendStaging, SubmitError,
    WcStatus, op,
};

fn counters<C, const N: usize>(queue: &SendQueue<'_, Device, C, N>) -> (u32, u32, u32, (u32, u32)) {
    (queue.in_flight(), queue.ended(), queue.free(), queue.reads())
}

/// Polls once and retires everything; says how many requests have ended.
fn reap<C, const N: usize>(device: &Device, queue: &mut SendQueue<'_, Device, C, N>) -> u32 {
    let mut completions = Completions::<_, 16>::new(device.clone(), 64);
    let mut ended = 0;
    for completion in completions.poll().unwrap() {
        ended += queue.retire(completion).unwrap();
    }
    ended
}

fn post<const N: usize>(
    queue: &mut SendQueue<'_, Device, u64, N>,
    staging: &mut nanoverbs_core::SendLink<'_, 4, 1>,
    n: usize,
    operation: op::Send,
) {
    let mut chain = queue.reserve(staging, n).unwrap();
    for at in 0..n {
        // SAFETY: no memory is named.
        unsafe { chain.push_raw(operation, &[], at as u64) }.unwrap();
    }
    assert_eq!(chain.submit().unwrap(), n as u32);
}

#[test]
fn f05_who_never_signals_cannot_wedge_the_queue() {
    for (period, chain) in [(8, 4), (1, 1), (10, 4), (16, 1), (12, 3)] {
        let device = Device::default();
        let config = send_config().chain(chain).period(period);
        let mut queue = send_queue::<u64, 16>(&device, config);
        let mut staging = SendStaging::<4, 1>::new();
        let mut staging = staging.link();
        let (mut seen, mut given_back) = (0, 0);
        for round in 0..if cfg!(miri) { 24 } else { 200 } {
            let n = 1 + round % usize::from(chain);
            post(&mut queue, &mut staging, n, op::Send::new());
            // The device completes what is signaled, and nothing else.
            let sends = device.sends();
            for sent in sends[seen..].iter().filter(|sent| sent.is_signaled()) {
                device.complete(sent.wr_id, 0);
            }
            seen = sends.len();
            reap(&device, &mut queue);
            while queue.take().is_some() {
                given_back += 1;
            }
            assert!(queue.free() >= chain.into(), "the longest chain must fit, always");
        }
        assert_eq!(given_back + queue.in_flight() as usize, seen);
        // All are done, so nothing has to be leaked.
        if queue.in_flight() > 0 {
            device.complete(device.sends().last().unwrap().wr_id, 0);
            reap(&device, &mut queue);
        }
        assert_eq!(queue.in_flight(), 0);
    }
}

#[test]
fn f05_a_full_queue_says_so_before_the_device() {
    let device = Device::default();
    let mut queue = send_queue::<u64, 4>(&device, send_config().chain(2));
    let mut staging = SendStaging::<4, 1>::new();
    let mut staging = staging.link();
    post(&mut queue, &mut staging, 2, op::Send::new().signaled());
    post(&mut queue, &mut staging, 1, op::Send::new().signaled());
    let before = counters(&queue);
    let error = queue.reserve(&mut staging, 2).unwrap_err();
    assert_eq!(error, ReserveError::Full { asked: 2, free: 1 });
    assert_eq!((counters(&queue), device.calls()), (before, 2));
    // A completion that was retired frees no slot yet: its context still rests there.
    device.complete(device.sends()[0].wr_id, 0);
    assert_eq!(reap(&device, &mut queue), 1);
    assert!(queue.reserve(&mut staging, 2).is_err());
    assert!(queue.take().is_some());
    assert!(queue.reserve(&mut staging, 2).is_ok());
    for sent in &device.sends()[1..] {
        device.complete(sent.wr_id, 0);
    }
    reap(&device, &mut queue);
}

#[test]
fn a_queue_that_could_wedge_cannot_be_made() {
    let mut slots = SendSlots::<u64, 16>::new();
    let config = SendConfig::new(common::domain()).chain(5).period(9);
    let error = SendQueue::new(Device::default(), &mut slots, config).unwrap_err();
    assert_eq!(error, ConfigError::CouldWedge { period: 9, chain: 5, depth: 16 });
    let config = SendConfig::new(common::domain()).depth(0);
    let error = SendQueue::new(Device::default(), &mut slots, config).unwrap_err();
    assert_eq!(error, ConfigError::NoDepth);
    for depth in 1..=16 {
        let config = SendConfig::new(common::domain()).depth(depth);
        assert!(SendQueue::new(Device::default(), &mut slots, config).is_ok(), "depth {depth}");
    }
}

#[test]
fn f06_a_refused_post_leaves_every_counter_as_it_was() {
    let device = Device::default();
    let mut pool = pool(4, 64);
    let mut queue = send_queue::<_, 16>(&device, send_config());
    let mut staging = SendStaging::<4, 1>::new();
    let mut staging = staging.link();
    let before = counters(&queue);
    let mut chain = queue.reserve(&mut staging, 2).unwrap();
    chain.push(op::Read::new(remote(64)), pool.allocate().unwrap()).unwrap();
    chain.push(op::Read::new(remote(64)), pool.allocate().unwrap()).unwrap();
    device.refuse_next(12, Some(0));
    let Err(SubmitError::Partial { accepted: 0, code: 12, rest }) = chain.submit() else {
        panic!("nothing was taken")
    };
    let mut back = 0;
    rest.into_contexts(|_| back += 1);
    assert_eq!((back, counters(&queue)), (2, before));
}

#[test]
fn f07_a_partly_accepted_chain_says_how_much_and_keeps_the_rest() {
    let device = Device::default();
    let token = Rc::new(());
    let mut queue = send_queue::<Tracked, 16>(&device, send_config());
    let mut staging = SendStaging::<5, 1>::new();
    let mut staging = staging.link();
    let mut chain = queue.reserve(&mut staging, 5).unwrap();
    for _ in 0..5 {
        chain.push(op::Send::new().signaled(), (None, token.clone())).unwrap();
    }
    device.refuse_next(12, Some(2));
    let Err(SubmitError::Partial { accepted: 2, code: 12, rest }) = chain.submit() else {
        panic!("two were taken")
    };
    assert_eq!((rest.len(), Rc::strong_count(&token)), (3, 6));
    // The rest goes out as it is, once.
    assert_eq!(rest.submit().unwrap(), 3);
    let ids: Vec<_> = device.sends().iter().map(|sent| sent.wr_id as u32).collect();
    assert_eq!(ids, [0, 1, 2, 3, 4]);
    for sent in device.sends() {
        device.complete(sent.wr_id, 0);
    }
    assert_eq!(reap(&device, &mut queue), 5);
    assert_eq!(core::iter::from_fn(|| queue.take()).count(), 5);
    assert_eq!(Rc::strong_count(&token), 1);
}

#[test]
fn f07_after_a_partly_accepted_chain_slots_and_read_credits_still_come_back() {
    let device = Device::default();
    let config = send_config().chain(4).period(10).reads(4);
    let mut queue = send_queue::<(), 16>(&device, config);
    let mut staging = SendStaging::<4, 1>::new();
    let mut staging = staging.link();
    let mut seen = 0;
    for round in 0..if cfg!(miri) { 24 } else { 300 } {
        let mut chain = queue.reserve(&mut staging, 4).unwrap();
        for at in 0..4 {
            if (round + at) % 3 == 0 {
                chain.push(op::Read::new(remote(8)), ()).unwrap();
            } else {
                chain.push(op::Send::new(), ()).unwrap();
            }
        }
        device.refuse_next(12, Some(round % 4));
        match chain.submit() {
            Err(SubmitError::Partial { rest, .. }) if round % 5 < 3 => drop(rest),
            Err(SubmitError::Partial { rest, .. }) => assert!(rest.submit().is_ok()),
            other => panic!("{other:?}"),
        }
        let sends = device.sends();
        for sent in sends[seen..].iter().filter(|sent| sent.is_signaled()) {
            device.complete(sent.wr_id, 0);
        }
        seen = sends.len();
        reap(&device, &mut queue);
        while queue.take().is_some() {}
        let (max, out) = queue.reads();
        assert!(queue.free() >= 4, "round {round}: the longest chain must fit");
        assert!(out < max, "round {round}: a READ must fit, {out} of {max} are out");
    }
}

#[test]
fn f08_an_error_without_a_word_keeps_everything_in_flight_and_closes() {
    let device = Device::default();
    let token = Rc::new(());
    let mut queue = send_queue::<Tracked, 16>(&device, send_config());
    let mut staging = SendStaging::<2, 1>::new();
    let mut staging = staging.link();
    let mut chain = queue.reserve(&mut staging, 2).unwrap();
    chain.push(op::Send::new(), (None, token.clone())).unwrap();
    chain.push(op::Send::new(), (None, token.clone())).unwrap();
    device.refuse_next(22, None);
    let Err(SubmitError::Unknown { code: 22 }) = chain.submit() else { panic!("no word") };
    assert_eq!((queue.in_flight(), Rc::strong_count(&token)), (2, 3));
    assert!(queue.take().is_none());
    let error = queue.reserve(&mut staging, 1).unwrap_err();
    assert_eq!(error, ReserveError::Closed(Cause::Unknown { code: 22 }));
    // The first did go out, the second is flushed when the queue pair drains.
    device.complete(device.sends()[0].wr_id, 0);
    device.complete(device.sends()[1].wr_id, 5);
    assert_eq!(reap(&device, &mut queue), 2);
    assert!(queue.take().unwrap().outcome.is_done());
    assert!(matches!(queue.take().unwrap().outcome, Outcome::Flushed));
    assert_eq!(queue.closed(), Some(Cause::Unknown { code: 22 }));
}

#[test]
fn f17_a_request_shows_nothing_of_the_one_before_it() {
    let device = Device::default();
    let mut pool = pool(4, 64);
    let mut queue = send_queue::<_, 16>(&device, send_config());
    let mut staging = SendStaging::<2, 1>::new();
    let mut staging = staging.link();
    let mut chain = queue.reserve(&mut staging, 1).unwrap();
    chain.push(op::Send::new().immediate(7).signaled().solicited(), pool.allocate()).unwrap();
    chain.submit().unwrap();
    let mut chain = queue.reserve(&mut staging, 1).unwrap();
    chain.push(op::Send::new(), None).unwrap();
    chain.submit().unwrap();
    let sends = device.sends();
    assert_eq!(sends[0].imm_data, 7_u32.to_be());
    assert_eq!((sends[1].imm_data, sends[1].flags, sends[1].sges.len()), (0, 0, 0));
    let chain = queue.reserve(&mut staging, 2).unwrap();
    assert_eq!((chain.submit().unwrap(), device.calls()), (0, 2), "an empty chain is no call");
    // Shorter than reserved: cut, posted, and whole again for the next.
    for n in [1, 2] {
        let mut chain = queue.reserve(&mut staging, 2).unwrap();
        for _ in 0..n {
            chain.push(op::Send::new().signaled(), None).unwrap();
        }
        assert_eq!(chain.submit().unwrap(), n);
    }
    assert_eq!(device.sends().len(), 5);
    device.complete(device.sends()[4].wr_id, 0);
    assert_eq!(reap(&device, &mut queue), 5);
}

#[test]
fn f29_a_failed_completion_is_read_by_its_id_alone() {
    let device = Device::default();
    let mut sends = send_queue::<u64, 4>(&device, send_config());
    let mut recvs = recv_queue::<u64, 4>(&device);
    let (mut staging, mut receiving) = (SendStaging::<4, 1>::new(), RecvStaging::<1, 1>::new());
    let (mut staging, mut receiving) = (staging.link(), receiving.link());
    post(&mut sends, &mut staging, 1, op::Send::new().signaled());
    let mut chain = recvs.reserve(&mut receiving, 1).unwrap();
    // SAFETY: no memory is named.
    unsafe { chain.push_raw(&[], 42) }.unwrap();
    chain.submit().unwrap();
    // As Soft-RoCE does: the failed receive claims to be a SEND of rubbish length.
    let rubbish =
        Wc { byte_len: 0xdead, wc_flags: 2, imm_data: 9, vendor_err: 0x51, ..Wc::default() };
    device.complete_with(Wc { wr_id: device.sends()[0].wr_id, status: 12, opcode: 128, ..rubbish });
    device.complete_with(Wc { wr_id: device.recvs()[0].wr_id, status: 5, opcode: 0, ..rubbish });
    let mut completions = Completions::<_, 4>::new(device.clone(), 8);
    for completion in completions.poll().unwrap() {
        if completion.is_recv() {
            recvs.retire(completion).unwrap();
        } else {
            sends.retire(completion).unwrap();
        }
    }
    let Some(Ended { outcome: Outcome::Failed(failure), .. }) = sends.take() else { panic!() };
    assert_eq!(failure.operation(), Operation::Send);
    assert_eq!((failure.status(), failure.vendor_code()), (WcStatus::RetryExceeded, 0x51));
    let ended = recvs.take().unwrap();
    assert!(matches!((ended.outcome, ended.context), (Outcome::Flushed, 42)));
    assert_eq!(recvs.closed(), Some(Cause::Flushed));
}

#[test]
fn f38_silent_requests_before_the_failure_are_done_and_after_it_flushed() {
    let device = Device::default();
    let mut queue = send_queue::<u64, 16>(&device, send_config().period(16).chain(1));
    let mut staging = SendStaging::<4, 1>::new();
    let mut staging = staging.link();
    for _ in 0..6 {
        post(&mut queue, &mut staging, 1, op::Send::new());
    }
    let id = |at: usize| device.sends()[at].wr_id;
    // U U fails U flushed(5): the device reports the second, and later only the last.
    device.complete_with(Wc { wr_id: id(2), status: 10, vendor_err: 3, ..Wc::EMPTY });
    device.complete(id(5), 5);
    assert_eq!(reap(&device, &mut queue), 6);
    let ends: Vec<_> = core::iter::from_fn(|| queue.take()).map(|ended| ended.outcome).collect();
    assert!(ends[..2].iter().all(Outcome::is_done));
    assert!(
        matches!(ends[2], Outcome::Failed(failure) if failure.status() == WcStatus::RemoteAccess)
    );
    assert!(ends[3..].iter().all(|end| matches!(end, Outcome::Flushed)));
    assert!(matches!(queue.reserve(&mut staging, 1), Err(ReserveError::Closed(Cause::Failed(_)))));
}

#[test]
fn f39_a_completion_of_another_queue_or_of_an_ended_request_comes_back() {
    let device = Device::default();
    let mut one = send_queue::<u64, 4>(&device, send_config());
    let mut other = send_queue::<u64, 4>(&device, send_config());
    let mut staging = SendStaging::<4, 1>::new();
    let mut staging = staging.link();
    post(&mut one, &mut staging, 1, op::Send::new().signaled());
    let id = device.sends()[0].wr_id;
    for status in [0, 5] {
        device.complete(id, status);
        device.complete(id + 1, status);
    }
    let mut completions = Completions::<_, 8>::new(device.clone(), 8);
    let mut batch = completions.poll().unwrap();
    let Foreign(completion) = other.retire(batch.next().unwrap()).unwrap_err();
    assert_eq!(one.retire(completion).unwrap(), 1);
    assert!(one.retire(batch.next().unwrap()).is_err(), "never posted");
    assert!(one.retire(batch.next().unwrap()).is_err(), "has ended");
    assert!(one.retire(batch.next().unwrap()).is_err());
    assert!(one.take().unwrap().outcome.is_done());
    assert!(one.take().is_none());
    assert_eq!(one.closed(), None, "a stale failure closes nothing");
}

#[test]
fn what_a_batch_has_left_over_comes_with_the_next_poll() {
    let device = Device::default();
    let mut queue = send_queue::<u64, 4>(&device, send_config().chain(2));
    let mut staging = SendStaging::<4, 1>::new();
    let mut staging = staging.link();
    post(&mut queue, &mut staging, 2, op::Send::new().signaled());
    device.sends().iter().for_each(|sent| device.complete(sent.wr_id, 0));
    let mut completions = Completions::<_, 4>::new(device, 8);
    let first = completions.poll().unwrap().next().unwrap();
    queue.retire(first).unwrap();
    assert_eq!(completions.poll().unwrap().len(), 1);
    let second = completions.poll().unwrap().next().unwrap();
    queue.retire(second).unwrap();
    assert_eq!(completions.poll().unwrap().len(), 0);
}

/// Gives three completions, and after that says that it is broken. Notes how many it is asked for.
#[derive(Default)]
struct Breaks(Vec<usize>);

// SAFETY: no queue retires what comes out of it, so nothing is freed on its word.
unsafe impl PollPort for Breaks {
    fn poll(&mut self, into: &mut [Wc]) -> i32 {
        self.0.push(into.len());
        if self.0.len() > 1 {
            return -5;
        }
        for (at, entry) in into.iter_mut().enumerate().take(3) {
            *entry = Wc { wr_id: (at as u64) << 32, ..Wc::EMPTY };
        }
        3
    }
}

#[test]
fn what_is_left_over_moves_with_its_completions_and_comes_before_an_error() {
    let mut completions = Completions::<_, 4>::new(Breaks::default(), 8);
    assert_eq!(completions.poll().unwrap().next().unwrap().serial(), 0);
    let mut completions = Box::new(completions);
    let left: Vec<_> = completions.poll().unwrap().map(|left| left.serial()).collect();
    assert_eq!(left, [1, 2]);
    assert_eq!(completions.poll().unwrap_err(), PollError { code: -5 });
    assert_eq!(
        completions.port().0,
        [4, 0, 4],
        "nothing is asked for while something is left over"
    );
}

#[test]
fn a_dropped_chain_posts_nothing_and_drops_its_contexts() {
    let device = Device::default();
    let token = Rc::new(());
    let mut queue = send_queue::<Tracked, 16>(&device, send_config());
    let mut staging = SendStaging::<2, 1>::new();
    let mut staging = staging.link();
    let before = counters(&queue);
    let mut chain = queue.reserve(&mut staging, 2).unwrap();
    chain.push(op::Send::new(), (None, token.clone())).unwrap();
    let rejected = {
        chain.push(op::Send::new(), (None, token.clone())).unwrap();
        chain.push(op::Send::new(), (None, token.clone())).unwrap_err()
    };
    assert_eq!(rejected.error, PushError::ChainFull);
    drop(rejected);
    drop(chain);
    assert_eq!((counters(&queue), Rc::strong_count(&token), device.calls()), (before, 1, 0));
}

#[test]
fn f64_what_is_left_when_the_queue_pair_is_gone_comes_back_as_abandoned() {
    let device = Device::default();
    let mut sends = send_queue::<u64, 4>(&device, send_config().chain(2));
    let mut recvs = recv_queue::<u64, 4>(&device);
    let (mut staging, mut receiving) = (SendStaging::<4, 1>::new(), RecvStaging::<4, 1>::new());
    let (mut staging, mut receiving) = (staging.link(), receiving.link());
    post(&mut sends, &mut staging, 2, op::Send::new());
    let mut chain = recvs.reserve(&mut receiving, 4).unwrap();
    for context in 0..4 {
        // SAFETY: no memory is named.
        unsafe { chain.push_raw(&[], context) }.unwrap();
    }
    chain.submit().unwrap();
    // SAFETY: the scripted device uses no memory.
    unsafe {
        sends.abandon();
        recvs.abandon();
    }
    let (mut abandoned, mut order) = (0, Vec::new());
    while let Some(ended) = sends.take() {
        abandoned += usize::from(matches!(ended.outcome, Outcome::Abandoned));
    }
    while let Some(ended) = recvs.take() {
        abandoned += usize::from(matches!(ended.outcome, Outcome::Abandoned));
        order.push(ended.context);
    }
    assert_eq!((abandoned, order), (6, vec![0, 1, 2, 3]));
    assert_eq!(sends.reserve(&mut staging, 1).unwrap_err(), ReserveError::Closed(Cause::Gone));
    assert!(sends.into_storage().is_ok() && recvs.into_storage().is_ok());
}

#[test]
fn a_queue_dropped_with_work_in_flight_leaks_and_counts_it() {
    let device = Device::default();
    let token = Rc::new(());
    let before = nanoverbs_core::leaked_contexts();
    let mut queue = send_queue::<Tracked, 4>(&device, send_config().chain(2));
    let mut staging = SendStaging::<2, 1>::new();
    let mut staging = staging.link();
    let mut chain = queue.reserve(&mut staging, 2).unwrap();
    chain.push(op::Send::new().signaled(), (None, token.clone())).unwrap();
    chain.push(op::Send::new().signaled(), (None, token.clone())).unwrap();
    chain.submit().unwrap();
    device.complete(device.sends()[0].wr_id, 0);
    reap(&device, &mut queue);
    let queue = queue.into_storage().unwrap_err();
    drop(queue);
    assert_eq!(Rc::strong_count(&token), 2, "one was done and dropped, one is in flight");
    assert!(nanoverbs_core::leaked_contexts() > before);
}
