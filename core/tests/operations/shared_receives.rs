//! The receive queue that many queue pairs share.

use std::rc::Rc;

use nanoverbs_core::soft::{CompletionQueue, Control, Profile, QpConfig, RecvEnd, SharedReceiveId};
use nanoverbs_core::{
    Block, Cause, Completions, Group, Outcome, Pool, PushError, RecvConfig, RecvStaging,
    ReserveError, SharedEnded, SharedRecvQueue, SharedRecvSlots, SubmitError, WcStatus, op,
};

use crate::bed::*;

type Context = (Option<Block>, Rc<()>);
type Shared = SharedRecvQueue<'static, RecvEnd<'static, 32>, Context, 8>;

/// Two servers that share a receive queue, and a client of each.
struct Bed {
    device: &'static Dev,
    clients: [Side<Option<Block>>; 2],
    servers: [Control<'static, 6, 32>; 2],
    shared: Shared,
    id: SharedReceiveId,
    completions: Completions<CompletionQueue<'static, 6, 32>>,
    pool: Pool,
    token: Rc<()>,
}

fn bed(profile: Profile, depth: u32) -> Bed {
    let device: &'static Dev = device(profile);
    let domain = device.domain();
    let queue = device.completion_queue(64).unwrap();
    let made = device.shared_receive_queue(depth).unwrap();
    let config = QpConfig::new(domain).shared_receive(made.id).rnr_retry(0);
    let first = device.queue_pair(config, &queue, &queue).unwrap();
    let client = side(device, domain);
    client.control.connect(&first.control).unwrap();
    let second = device.queue_pair(config, &queue, &queue).unwrap();
    let other = side(device, domain);
    other.control.connect(&second.control).unwrap();
    let shared =
        SharedRecvQueue::new(made.recv, leak(SharedRecvSlots::new()), RecvConfig::new(domain));
    Bed {
        device,
        clients: [client, other],
        servers: [first.control, second.control],
        shared: shared.unwrap(),
        id: made.id,
        completions: Completions::new(queue, 64),
        pool: pool(device, domain, 32, 16),
        token: Rc::new(()),
    }
}

impl Bed {
    fn post_recv(&mut self, count: usize) {
        let mut staging = RecvStaging::<8, 1>::new();
        let mut link = staging.link();
        let mut chain = self.shared.reserve(&mut link, count).unwrap();
        for _ in 0..count {
            let context = (self.pool.allocate(), Rc::clone(&self.token));
            chain.push(context).map_err(|rejected| rejected.error).unwrap();
        }
        assert_eq!(chain.submit().unwrap(), count as u32);
    }

    fn send(&mut self, client: usize, byte: u8) {
        let block = filled(&mut self.pool, 16, byte);
        self.clients[client].post(op::Send::new().signaled(), Some(block)).unwrap();
    }

    fn poll(&mut self) {
        for _ in 0..4 {
            for completion in self.completions.poll().unwrap() {
                assert!(completion.is_recv());
                assert_eq!(self.shared.retire(completion).unwrap(), 1);
            }
        }
    }

    fn received(&mut self) -> SharedEnded<Context> {
        self.poll();
        self.shared.take().expect("a message came")
    }
}

#[test]
fn whoever_gets_a_message_takes_the_next_receive_and_is_named() {
    for profile in profiles() {
        let mut bed = bed(profile, 8);
        for round in 0..20_u8 {
            bed.post_recv(4);
            for at in 0..4 {
                bed.send(usize::from(at % 2), round + at);
            }
            for at in 0..4 {
                let ended = bed.received();
                let message = ended.message().unwrap();
                assert_eq!(message.len(), 16);
                let byte = message[0];
                let server = usize::from((byte - round) % 2);
                assert_eq!(ended.queue_pair, Some(bed.servers[server].number()), "{at}");
            }
            assert_eq!((bed.shared.in_flight(), bed.shared.free()), (0, 8));
            bed.clients.iter_mut().for_each(|client| while client.try_sent().is_some() {});
        }
    }
}

#[test]
fn what_waits_to_be_taken_still_has_its_slot() {
    let mut bed = bed(Profile::STRICT, 8);
    bed.post_recv(8);
    bed.send(0, 1);
    bed.poll();
    assert_eq!((bed.shared.in_flight(), bed.shared.ended(), bed.shared.free()), (7, 1, 0));
    let mut staging = RecvStaging::<8, 1>::new();
    let mut link = staging.link();
    let full = ReserveError::Full { asked: 1, free: 0 };
    assert_eq!(bed.shared.reserve(&mut link, 1).unwrap_err(), full);
    drop(bed.received());
    assert!(bed.shared.reserve(&mut link, 1).is_ok());
}

#[test]
fn a_queue_pair_that_fails_leaves_the_receives_to_the_others() {
    let mut bed = bed(Profile::STRICT, 8);
    bed.post_recv(4);
    bed.send(0, 1);
    drop(bed.received());
    bed.servers[0].disconnect();
    bed.poll();
    assert!(bed.shared.take().is_none(), "no receive is flushed");
    assert_eq!((bed.shared.in_flight(), bed.shared.closed()), (3, None));
    bed.send(1, 7);
    let ended = bed.received();
    assert_eq!(ended.queue_pair, Some(bed.servers[1].number()));
    assert_eq!(ended.context.0.as_ref().unwrap()[..], [7; 16]);
}

#[test]
fn a_failed_receive_ends_its_queue_pair_and_not_the_shared_queue() {
    let mut bed = bed(Profile::STRICT, 8);
    let mut staging = RecvStaging::<8, 1>::new();
    let mut link = staging.link();
    // No memory: a message with bytes does not fit.
    let mut chain = bed.shared.reserve(&mut link, 1).unwrap();
    chain.push((None, Rc::clone(&bed.token))).unwrap();
    chain.submit().unwrap();
    bed.post_recv(1);
    bed.send(0, 1);
    let ended = bed.received();
    let Outcome::Failed(failure) = ended.outcome else { panic!("{:?}", ended.outcome) };
    assert_eq!(failure.status(), WcStatus::LocalLength);
    assert_eq!(ended.queue_pair, Some(bed.servers[0].number()));
    assert_eq!(bed.shared.closed(), None);
    bed.send(1, 2);
    assert!(bed.received().outcome.is_done());
}

#[test]
fn only_the_end_of_the_device_s_queue_gives_posted_receives_back() {
    let mut bed = bed(Profile::STRICT, 8);
    bed.post_recv(5);
    bed.send(1, 1);
    bed.poll();
    // A chain that was forgotten leaks, and its slots are still free.
    let mut staging = RecvStaging::<8, 1>::new();
    let mut link = staging.link();
    let mut chain = bed.shared.reserve(&mut link, 2).unwrap();
    chain.push((None, Rc::new(()))).unwrap();
    std::mem::forget(chain);
    drop(bed.servers);
    // SAFETY: the queue pairs are destroyed, and the queue's own end posts no more.
    unsafe { bed.shared.abandon() };
    let (mut done, mut abandoned) = (0, 0);
    while let Some(ended) = bed.shared.take() {
        match (ended.outcome, ended.queue_pair) {
            (Outcome::Done(_), Some(_)) => done += 1,
            (Outcome::Abandoned, None) => abandoned += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((done, abandoned), (1, 4));
    assert_eq!(Rc::strong_count(&bed.token), 1, "every context is back");
    let closed = ReserveError::Closed(Cause::Gone);
    assert_eq!(bed.shared.reserve(&mut link, 1).unwrap_err(), closed);
    assert!(bed.shared.into_storage().is_ok());
}

#[test]
fn a_chain_that_is_dropped_or_taken_apart_gives_its_contexts_back() {
    let mut bed = bed(Profile::STRICT, 8);
    let mut staging = RecvStaging::<4, 1>::new();
    let mut link = staging.link();
    for take_apart in [false, true] {
        let mut chain = bed.shared.reserve(&mut link, 2).unwrap();
        for _ in 0..2 {
            chain.push((bed.pool.allocate(), Rc::clone(&bed.token))).unwrap();
        }
        let more = chain.push((None, Rc::clone(&bed.token))).unwrap_err();
        assert_eq!(more.error, PushError::ChainFull);
        drop(more);
        assert_eq!((chain.len(), Rc::strong_count(&bed.token)), (2, 3));
        if take_apart {
            let mut count = 0;
            chain.into_contexts(|context| {
                assert!(context.0.is_some());
                count += 1;
            });
            assert_eq!(count, 2);
        } else {
            drop(chain);
        }
        assert_eq!(Rc::strong_count(&bed.token), 1);
        assert_eq!((bed.shared.in_flight(), bed.shared.free()), (0, 8));
    }
    bed.post_recv(8);
    bed.send(0, 3);
    assert!(bed.received().outcome.is_done());
}

#[test]
fn f62_a_device_that_is_taken_away_gives_every_shared_receive_back() {
    for profile in profiles() {
        let mut bed = bed(profile, 8);
        bed.post_recv(6);
        for client in 0..2 {
            bed.send(client, 1);
        }
        for _ in 0..4 {
            bed.device.progress();
        }
        assert!(!bed.shared.try_abandon(), "it lives");
        // What a chain that was never posted has left on its slots is not taken for receives.
        let mut staging = RecvStaging::<8, 1>::new();
        let mut link = staging.link();
        let mut chain = bed.shared.reserve(&mut link, 2).unwrap();
        chain.push((None, Rc::clone(&bed.token))).unwrap();
        std::mem::forget(chain);
        bed.device.remove();
        // What had come before is still given, then no more.
        for completion in bed.completions.poll().unwrap() {
            bed.shared.retire(completion).unwrap();
        }
        assert!(bed.completions.poll().is_err());
        assert!(bed.shared.try_abandon());
        assert_eq!((bed.shared.in_flight(), bed.shared.ended()), (0, 6));
        for at in 0..6 {
            let ended = bed.shared.take().unwrap();
            assert_eq!(ended.outcome.is_done(), at < 2, "{:?}", ended.outcome);
            assert_eq!(ended.queue_pair.is_some(), at < 2);
            assert!(at < 2 || matches!(ended.outcome, Outcome::Abandoned));
            assert!(ended.context.0.is_some());
        }
        assert!(bed.shared.take().is_none());
        assert_eq!(bed.shared.closed(), Some(Cause::Gone));
        // All but the one in the chain that was forgotten.
        assert_eq!(Rc::strong_count(&bed.token), 2);
        // Again, nothing comes twice; and the storage is free.
        assert!(bed.shared.try_abandon() && bed.shared.take().is_none());
        assert!(bed.shared.into_storage().is_ok());
    }
}

#[test]
fn a_shared_queue_of_a_device_that_is_gone_takes_no_receives() {
    let device = device(Profile::STRICT);
    let domain = device.domain();
    device.remove();
    let made = device.shared_receive_queue(8).unwrap();
    let slots = leak(SharedRecvSlots::<(), 8>::new());
    let mut shared = SharedRecvQueue::new(made.recv, slots, RecvConfig::new(domain)).unwrap();
    let mut staging = RecvStaging::<1, 1>::new();
    let mut link = staging.link();
    let mut chain = shared.reserve(&mut link, 1).unwrap();
    chain.push(()).unwrap();
    let refused = chain.submit().unwrap_err();
    assert!(matches!(refused, SubmitError::Partial { accepted: 0, code: 5, .. }), "{refused:?}");
    drop(refused);
    assert!(shared.try_abandon() && shared.take().is_none());
}

#[test]
fn a_shared_queue_says_once_that_it_runs_low() {
    let mut bed = bed(Profile::STRICT, 8);
    bed.post_recv(4);
    bed.shared.arm_limit(3).unwrap();
    bed.send(0, 1);
    bed.poll();
    assert!(!bed.device.ran_low(bed.id), "three are left");
    bed.send(1, 1);
    bed.poll();
    assert!(bed.device.ran_low(bed.id));
    assert!(!bed.device.ran_low(bed.id), "once");
    bed.send(0, 1);
    bed.poll();
    assert!(!bed.device.ran_low(bed.id), "it was not armed again");
}

#[test]
fn a_shared_queue_has_a_seat_in_a_group() {
    let device = device(Profile::STRICT);
    let domain = device.domain();
    let queue = device.completion_queue(64).unwrap();
    let made = device.shared_receive_queue(8).unwrap();
    let config = QpConfig::new(domain).shared_receive(made.id);
    let server = device.queue_pair(config, &queue, &queue).unwrap();
    let mut client = side::<Option<Block>>(device, domain);
    client.control.connect(&server.control).unwrap();
    let mut completions = Completions::<_, 4>::new(queue, 64);
    let mut group = Group::<4>::new();
    let joined = group.join(&mut completions, 0, 4).unwrap();
    let slots = leak(SharedRecvSlots::<Option<Block>, 8>::new());
    let config = RecvConfig::new(domain);
    let mut shared = SharedRecvQueue::with_seat(made.recv, slots, config, joined.recv).unwrap();
    assert_eq!(shared.depth(), 4, "no deeper than its seat");
    let mut staging = RecvStaging::<1, 1>::new();
    let mut link = staging.link();
    let mut chain = shared.reserve(&mut link, 1).unwrap();
    chain.push(None).unwrap();
    chain.submit().unwrap();
    client.post(op::Send::new().signaled(), None).unwrap();
    for completion in completions.poll().unwrap() {
        let route = nanoverbs_core::Route::Recv(joined.member.index());
        assert_eq!(group.route(&completion), route);
        shared.retire(completion).unwrap();
    }
    assert!(shared.take().unwrap().outcome.is_done());
}
