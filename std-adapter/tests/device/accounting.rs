//! Credits, order, and who gets what, on the real device: the field's cases of lost count.

use std::sync::Arc;
use std::thread;

use nanoverbs::cm::{ConnectParams, Connector, Listener, RnrRetry};
use nanoverbs::endpoint::{Options, Prepared, Refusal, Verbs};
use nanoverbs::memory::Rights;
use nanoverbs::{CompletionQueue, QueuePairOptions};
use nanoverbs_core::{
    Block, Completion, Completions, Consumer, Group, Joined, Outcome, Producer, PushError,
    ReserveError, Ring, Route, SendQueue, SendSlots, SendStaging, WcStatus, op,
};

use crate::ends::{self, PATIENCE};
use crate::faults::{address, pair, soon};

fn patient() -> Options {
    Options::new().params(ConnectParams::new().rnr_retry(RnrRetry::FOREVER)).depth(8, 8)
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f05_who_never_signals_fills_the_queue_and_goes_on_once_the_peer_receives() {
    let (mut client, mut server) = pair(address(7640), patient(), 0);
    for _ in 0..3 {
        // The peer has no receives, so that nothing ends.
        let mut posted = 0;
        let refused = loop {
            let block = client.block().unwrap();
            match client.post(op::Send::new(), block) {
                Ok(()) => posted += 1,
                Err(error) => break error.refusal(),
            }
        };
        assert!(
            matches!(refused, Some(Refusal::Reserve(ReserveError::Full { .. }))),
            "{refused:?}"
        );
        assert_eq!((posted, client.sends_in_flight()), (8, 8), "no less than was asked for");
        for _ in 0..8 {
            let block = server.block().unwrap();
            server.post_recv(block).unwrap();
        }
        for _ in 0..8 {
            assert!(server.recv_completion(soon()).unwrap().outcome.is_done());
            assert!(client.send_completion(soon()).unwrap().outcome.is_done());
        }
    }
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f06_refused_posts_cost_no_credit() {
    let (mut client, mut server) = pair(address(7641), patient(), 0);
    let shared = server.share(64, Rights::READ_SOURCE).unwrap();
    let short = shared.advertise().at(0, 4).unwrap();
    for _ in 0..1000 {
        let block = client.block().unwrap();
        let error = client.post_read(short, block).unwrap_err();
        let cause = error.refusal();
        assert!(
            matches!(cause, Some(Refusal::Push(PushError::RemoteTooShort { .. }))),
            "{cause:?}"
        );
        assert_eq!((client.sends_in_flight(), client.reads().0), (0, 128));
    }
    // The queue has as much room as on its first day, and the device agrees.
    for _ in 0..8 {
        let block = client.block().unwrap();
        client.post_send(block).unwrap();
    }
    assert_eq!(
        client.reserve_sends(1).map(drop).unwrap_err(),
        ReserveError::Full { asked: 1, free: 0 }
    );
    for _ in 0..8 {
        let block = server.block().unwrap();
        server.post_recv(block).unwrap();
        assert!(server.recv_completion(soon()).unwrap().outcome.is_done());
        assert!(client.send_completion(soon()).unwrap().outcome.is_done());
    }
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f38_silent_requests_end_with_a_later_one_and_a_silent_failure_ends_the_rest() {
    let options = Options::new().params(ConnectParams::new().rnr_retry(RnrRetry::NEVER));
    let (mut client, mut server) = pair(address(7642), options, 3);
    let silent = op::Send::new();
    for operation in [silent, silent, silent.signaled()] {
        let block = client.block().unwrap();
        client.post(operation, block).unwrap();
    }
    for _ in 0..3 {
        assert!(client.send_completion(soon()).unwrap().outcome.is_done());
        assert!(server.recv_completion(soon()).unwrap().outcome.is_done());
    }
    // The peer has no receive left: the first of these fails, and has a completion of its own.
    let blocks = [(); 3].map(|()| client.block().unwrap());
    let mut chain = client.reserve_sends(3).unwrap();
    for block in blocks {
        chain.push(silent, block).unwrap();
    }
    chain.submit().unwrap();
    let ends = [(); 3].map(|()| client.send_completion(soon()).unwrap().outcome);
    let Outcome::Failed(failure) = ends[0] else { panic!("{ends:?}") };
    assert_eq!(failure.status(), WcStatus::RnrRetryExceeded);
    assert!(ends[1..].iter().all(|end| matches!(end, Outcome::Flushed)), "{ends:?}");
    assert_eq!(client.sends_in_flight(), 0);
}

/// A queue of one of the threads that share a completion queue.
struct Desk<'r> {
    queue: SendQueue<'static, nanoverbs::port::SendPort, u32, 8>,
    completions: Consumer<'r, Completion, 16>,
}

const EACH: u32 = 200;

impl Desk<'_> {
    /// Posts messages without a byte, as many as there is room for, until all have ended in their order.
    fn work(mut self, first: u32) {
        let mut staging = SendStaging::<4, 1>::new();
        let mut link = staging.link();
        let all = first..first + EACH;
        let (mut next, mut expected, deadline) = (all.start, all.start, soon());
        while expected != all.end {
            while next != all.end && self.queue.free() > 0 {
                let mut chain = self.queue.reserve(&mut link, 1).unwrap();
                // SAFETY: no memory is named.
                unsafe { chain.push_raw(op::Send::new().immediate(next).signaled(), &[], next) }
                    .unwrap();
                chain.submit().unwrap();
                next += 1;
            }
            for completion in self.completions.drain(16) {
                self.queue.retire(completion).unwrap();
            }
            for ended in std::iter::from_fn(|| self.queue.take()) {
                assert!(ended.outcome.is_done());
                assert_eq!(ended.context, expected);
                expected += 1;
            }
            assert!(!deadline.has_passed(), "{expected} of {all:?}");
            thread::yield_now();
        }
    }
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f41_threads_that_share_a_completion_queue_get_the_outcomes_of_their_own() {
    let listener = Listener::bind(ends::address()).expect("a listener");
    let peer = listener.local_addr();
    let params = ConnectParams::new().rnr_retry(RnrRetry::FOREVER);
    let options = Options::new().params(params);
    let (mut mine, mut yours) = (Ring::new(), Ring::new());
    let (my_producer, my_consumer) = mine.split();
    let (your_producer, your_consumer) = yours.split();
    thread::scope(|scope| {
        let servers = scope.spawn(|| {
            let server = || {
                let prepared: Prepared<Verbs, Block> = options.accept(&listener, soon()).unwrap();
                prepared.receives(16).unwrap().establish(soon()).unwrap()
            };
            let mut servers = [server(), server()];
            for _ in 0..EACH {
                for server in &mut servers {
                    let ended = server.recv_completion(soon()).unwrap();
                    assert!(ended.outcome.is_done());
                    server.post_recv(ended.context).unwrap();
                }
            }
            servers
        });
        let routes = [(); 2].map(|()| Connector::new().resolve(peer, PATIENCE).expect("a route"));
        let device = Arc::clone(routes[0].device());
        let domain = device.domain().expect("a domain");
        let queue = CompletionQueue::new(&device, 20, None).expect("a queue");
        let mut completions: Completions<_, 4> =
            Completions::new(queue.poll_port().expect("a port"), 20);
        let mut group = Group::<2>::new();
        let connections = routes.map(|route| {
            let sizes = QueuePairOptions::new(8, 1);
            let outgoing =
                route.create_queue_pair(&domain, &queue, &queue, sizes).expect("a queue pair");
            outgoing.connect(&params, PATIENCE).expect("a connection")
        });
        let mut desk = |at: usize, completions: &mut Completions<_, 4>, consumer| {
            let Joined { member, send, .. } = group.join(completions, 8, 1).unwrap();
            assert_eq!(member.index(), at);
            let pair = connections[at].queue_pair();
            // SAFETY: the queue ends before its connection does.
            let port = unsafe { pair.send_port() }.expect("a port");
            let (slots, config) = (Box::leak(Box::new(SendSlots::new())), pair.send_config());
            let mut queue =
                SendQueue::with_seat(port, slots, config.chain(1).period(2), send).expect("one");
            queue.open();
            Desk { queue, completions: consumer }
        };
        let desks =
            [desk(0, &mut completions, my_consumer), desk(1, &mut completions, your_consumer)];
        let workers = desks.into_iter().zip([0, 1 << 16]);
        let workers: Vec<_> =
            workers.map(|(desk, first)| scope.spawn(move || desk.work(first))).collect();
        // This thread alone polls, and hands each completion to whose it is.
        let mut producers: [Producer<'_, Completion, 16>; 2] = [my_producer, your_producer];
        let (mut left, deadline) = (2 * EACH, soon());
        while left > 0 {
            for completion in completions.poll().expect("it can be polled") {
                let Route::Send(at) = group.route(&completion) else { panic!("a stranger's") };
                producers[at].push(completion).expect("room for all that can be in flight");
                left -= 1;
            }
            assert!(!deadline.has_passed(), "{left} are left");
            thread::yield_now();
        }
        for worker in workers {
            worker.join().expect("it ends well");
        }
        assert_eq!(group.stale(), 0);
        drop((servers.join().expect("they end well"), connections));
    });
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f74_threads_that_share_a_queue_keep_its_order_and_its_credits() {
    let (mut client, mut server) = pair(address(7644), patient().inline(8), 8);
    let mut rings: [Ring<u64, 4>; 2] = [Ring::new(), Ring::new()];
    thread::scope(|scope| {
        let mut orders = vec![];
        for (ring, of) in rings.iter_mut().zip(0_u64..) {
            let (mut producer, consumer) = ring.split();
            orders.push(consumer);
            scope.spawn(move || {
                for order in 0..300 {
                    let mut value = (of << 32) | order;
                    while let Err(back) = producer.push(value) {
                        value = back.0;
                        thread::yield_now();
                    }
                }
            });
        }
        let receiver = scope.spawn(move || {
            let mut came = vec![];
            while came.len() < 600 {
                let ended = server.recv_completion(soon()).unwrap();
                came.push(u64::from_ne_bytes(*ended.context.first_chunk().unwrap()));
                server.post_recv(ended.context).unwrap();
            }
            came
        });
        let (mut posted, mut ended, deadline) = (vec![], 0, soon());
        while ended < 600 {
            for ring in &mut orders {
                if client.sends_in_flight() < 8
                    && let Some(order) = ring.pop()
                {
                    let mut block = client.block().unwrap();
                    block.set_len(8).unwrap();
                    block.copy_from_slice(&order.to_ne_bytes());
                    client.post_send_inline(block).unwrap();
                    posted.push(order);
                }
            }
            while let Some(sent) = client.try_send_completion().unwrap() {
                assert!(sent.outcome.is_done());
                ended += 1;
            }
            assert_eq!(client.sends_in_flight() as usize, posted.len() - ended);
            assert!(!deadline.has_passed(), "{ended}");
        }
        let came = receiver.join().expect("it ends well");
        assert_eq!(came, posted, "the order of the posts");
        for of in 0..2_u64 {
            let of_one: Vec<_> = came.iter().filter(|order| *order >> 32 == of).collect();
            assert_eq!(of_one.len(), 300);
            assert!(of_one.is_sorted(), "the order of each thread");
        }
    });
}
