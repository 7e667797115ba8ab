//! A receive queue that queue pairs share, through the real librdmacm.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use nanoverbs::cm::{ConnectParams, Connection, Connector, Listener};
use nanoverbs::event::{DeviceEventKind, Subject};
use nanoverbs::memory::{LocalMemory, Pages, release};
use nanoverbs::{CompletionQueue, QueuePairError, QueuePairOptions, SharedReceiveQueue};
use nanoverbs_core::{
    Block, BlockHeader, Completions, Outcome, Pool, PoolRoot, RecvStaging, SharedEnded,
    SharedRecvQueue, SharedRecvSlots,
};

use crate::ends::{End, PATIENCE, PROMPT, Parts, address, options, queues};

type Queue = SharedRecvQueue<'static, nanoverbs::port::SharedRecvPort, Block, 8>;

/// Two servers that share a receive queue, and a client of each.
struct Bed {
    clients: Vec<End>,
    servers: Vec<Connection>,
    completions: Completions<nanoverbs::port::PollPort>,
    receives: Queue,
    shared: Arc<SharedReceiveQueue>,
    pool: Pool,
}

fn client(peer: std::net::SocketAddr) -> End {
    let route = Connector::new().resolve(peer, PATIENCE).expect("a route");
    let domain = route.device().domain().expect("a domain");
    let (send, recv) = queues(route.device());
    let outgoing = route.create_queue_pair(&domain, &send, &recv, options()).expect("a queue pair");
    let parts = Parts::new(outgoing.queue_pair());
    let connection = outgoing.connect(&ConnectParams::new(), PATIENCE).expect("a connection");
    End { parts, connection }
}

fn bed() -> Bed {
    bed_of(QueuePairOptions::new(8, 0))
}

/// With servers' queue pairs of these sizes.
fn bed_of(sizes: QueuePairOptions) -> Bed {
    let listener = Listener::bind(address()).expect("a listener");
    let peer = listener.local_addr();
    thread::scope(|scope| {
        let clients = scope.spawn(move || vec![client(peer), client(peer)]);
        let mut shared = None;
        let mut servers = Vec::new();
        for _ in 0..2 {
            let request = listener.accept(PATIENCE).expect("a request");
            let domain = request.device().domain().expect("a domain");
            let (send, recv) = queues(request.device());
            let shared = shared.get_or_insert_with(|| {
                let shared = SharedReceiveQueue::new(&domain, &recv, 8, 1).expect("a queue");
                assert_eq!(recv.free(), 0, "a place for each receive");
                let short = SharedReceiveQueue::new(&domain, &recv, 1, 1).map(drop);
                let small = QueuePairError::CompletionQueueTooSmall { need: 1, have: 0 };
                assert_eq!(short, Err(small));
                shared
            });
            // The second one needs no places of its own.
            let incoming =
                request.create_queue_pair(&domain, &send, &*shared, sizes).expect("a queue pair");
            assert_eq!(incoming.queue_pair().recv_depth(), 0);
            servers.push(incoming.accept(&ConnectParams::new(), PATIENCE).expect("a connection"));
        }
        let shared: Arc<SharedReceiveQueue> = shared.expect("made above");
        let poll = shared.completions().poll_port().expect("a port");
        // SAFETY: the queue is dropped before the last handle of its device's queue.
        let port = unsafe { shared.recv_port() }.expect("a port");
        let slots = Box::leak(Box::new(SharedRecvSlots::new()));
        let receives = SharedRecvQueue::new(port, slots, shared.recv_config()).expect("a queue");
        let pages = Pages::new(4096).expect("pages");
        let memory = LocalMemory::register(pages, shared.domain()).expect("memory");
        let headers = Vec::leak((0..16).map(|_| BlockHeader::new()).collect());
        let root = Box::leak(Box::new(PoolRoot::new()));
        let pool = Pool::new(root, headers, memory.into_region(), 256).expect("a pool");
        let completions = Completions::new(poll, 8);
        let clients = clients.join().expect("the clients end well");
        Bed { clients, servers, completions, receives, shared, pool }
    })
}

impl Bed {
    fn post(&mut self, count: usize) {
        let mut staging = RecvStaging::<8, 1>::new();
        let mut link = staging.link();
        let mut chain = self.receives.reserve(&mut link, count).expect("room");
        for _ in 0..count {
            chain.push(self.pool.allocate().expect("a block")).expect("a receive");
        }
        assert_eq!(chain.submit().expect("posted"), count as u32);
    }

    fn send(&mut self, client: usize, bytes: &[u8]) {
        let parts = &mut self.clients[client].parts;
        parts.write(8, bytes);
        assert_eq!(parts.post_send(8, bytes.len(), 0), 0);
        assert_eq!(parts.sent(1)[0].status, 0);
    }

    fn received(&mut self) -> SharedEnded<Block> {
        let began = Instant::now();
        loop {
            for completion in self.completions.poll().expect("it can be polled") {
                assert!(completion.is_recv());
                self.receives.retire(completion).expect("it is of this queue");
            }
            if let Some(ended) = self.receives.take() {
                return ended;
            }
            assert!(began.elapsed() < PATIENCE, "no message came");
            thread::yield_now();
        }
    }
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn ops_a_shared_queue_serves_whichever_queue_pair_gets_a_message() {
    serves_whichever_gets_a_message(bed());
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn apart_queue_pairs_share_a_queue_as_well() {
    serves_whichever_gets_a_message(bed_of(QueuePairOptions::new(8, 0).apart()));
}

fn serves_whichever_gets_a_message(mut bed: Bed) {
    let mut numbers = [None; 2];
    for round in 0..40_u8 {
        bed.post(4);
        for at in 0..4_u8 {
            let client = usize::from(at % 2);
            bed.send(client, &[round, at]);
            let ended = bed.received();
            assert_eq!(ended.outcome.success().unwrap().byte_len(), Some(2));
            assert_eq!(ended.context[..2], [round, at]);
            // Each client's messages come to its own server.
            assert_eq!(*numbers[client].get_or_insert(ended.queue_pair), ended.queue_pair);
        }
    }
    assert_ne!(numbers[0], numbers[1]);
    assert_eq!((bed.receives.in_flight(), bed.receives.free()), (0, 8));
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn ops_a_shared_queue_keeps_its_receives_when_a_queue_pair_ends() {
    let mut bed = bed();
    bed.post(3);
    bed.send(0, b"one");
    drop(bed.received());
    bed.servers[0].disconnect().expect("it can");
    drop(bed.servers.remove(0));
    bed.send(1, b"two");
    assert_eq!(bed.received().context[..3], *b"two");
    assert_eq!((bed.receives.in_flight(), bed.receives.closed()), (1, None));
    // The device's queue goes with its last queue pair; then the last receive comes back.
    let shared = bed.shared.destroy().expect_err("a queue pair is left");
    drop(bed.servers);
    shared.destroy().expect("none is left");
    // SAFETY: the device's queue is destroyed.
    unsafe { bed.receives.abandon() };
    let last = bed.receives.take().expect("it comes back");
    assert!(matches!((last.outcome, last.queue_pair), (Outcome::Abandoned, None)));
    drop(last);
    let (_, _, region) = bed.pool.close().expect("every block is back");
    assert!(release(region).is_ok());
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn ops_a_shared_queue_is_refused_where_it_does_not_belong() {
    let device = nanoverbs::Device::open("rxe0").expect("rxe0");
    let other = nanoverbs::Device::open("rxe0").expect("rxe0");
    let domain = device.domain().expect("a domain");
    let queue = CompletionQueue::new(&other, 8, None).expect("a queue");
    let refused = SharedReceiveQueue::new(&domain, &queue, 8, 1).map(drop);
    assert_eq!(refused, Err(QueuePairError::WrongDevice));
    let queue = CompletionQueue::new(&device, 8, None).expect("a queue");
    let refused = SharedReceiveQueue::new(&domain, &queue, 8, 33).map(drop);
    assert!(matches!(refused, Err(QueuePairError::Call(_))), "{refused:?}");
    assert_eq!(queue.free(), 8, "its places are free again");
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f65_f66_a_shared_queue_that_runs_low_is_told_and_nothing_waits_for_a_last_receive() {
    let mut bed = bed();
    let device = Arc::clone(bed.shared.domain().device());
    bed.post(4);
    bed.receives.arm_limit(3).expect("it can");
    assert_eq!(device.poll_event(), Ok(None), "four are left");
    for at in 0..2 {
        bed.send(at, b"one");
        drop(bed.received());
    }
    crate::readable(&*device);
    let event = device.poll_event().expect("no error").expect("two are left");
    assert_eq!(event.kind, DeviceEventKind::SharedReceiveLimit);
    assert_eq!(event.subject, Subject::SharedReceiveQueue(bed.shared.id()));
    // rxe never tells of a last receive; closing ends all the same.
    let began = Instant::now();
    drop(bed.servers);
    bed.shared.destroy().expect("no queue pair is left");
    // SAFETY: the device's queue is destroyed.
    unsafe { bed.receives.abandon() };
    assert_eq!(std::iter::from_fn(|| bed.receives.take()).count(), 2);
    assert_eq!(device.poll_event(), Ok(None));
    assert!(began.elapsed() < PROMPT, "{:?}", began.elapsed());
}
