//! Each refusal of the library's beside what the device says when it is asked all the same: later, in other
//! words, or never. (Memory that a device may not write is not among them: the adapter makes none.)

use std::sync::Arc;
use std::time::{Duration, Instant};

use nanoverbs::cm::{ConnectParams, Connector, Listener, RnrRetry};
use nanoverbs::memory::{LocalMemory, Pages, Rights, SharedMemory};
use nanoverbs::{CompletionQueue, Device, ProtectionDomain, QpState, QueuePair, QueuePairOptions};
use nanoverbs_core::abi::{RdmaTarget, SendWr, Sge, Target, opcode, send_flags};
use nanoverbs_core::port::{PollPort as _, SendPort};
use nanoverbs_core::{
    Access, Block, BlockHeader, Cause, Completions, Outcome, Pool, PoolRoot, PushError, RKey,
    RemoteRegion, ReserveError, SendBuffers, SendConfig, SendLink, SendQueue, SendSlots,
    SendStaging, SubmitError, op,
};

use crate::ends::{PATIENCE, PIECE, Parts, Queues, Setup, address, connected, options, queues};

/// No request may come this far.
struct Nowhere;

// SAFETY: it takes nothing.
unsafe impl SendPort for Nowhere {
    unsafe fn post_send(&mut self, _: *mut SendWr, _: &mut *mut SendWr) -> i32 {
        panic!("the device was asked")
    }
}

fn leak<T>(value: T) -> &'static mut T {
    Box::leak(Box::new(value))
}

type Queue<C> = SendQueue<'static, Nowhere, C, 16>;

/// Room for more completions than the plain ends have.
fn deep(device: &Arc<Device>) -> Queues {
    let queue = || CompletionQueue::new(device, 16, None).expect("a completion queue");
    (queue(), queue())
}

/// A queue with the sizes of a queue pair's.
fn queue<C>(config: SendConfig) -> (Queue<C>, SendLink<'static, 8, 4>) {
    let slots = leak(SendSlots::new());
    let mut queue = SendQueue::new(Nowhere, slots, config.chain(1).period(2)).expect("a queue");
    queue.open();
    (queue, leak(SendStaging::new()).link())
}

/// What a queue pair's queue says to a request.
fn refused<C: SendBuffers, O: op::Operation<C>>(
    queue_pair: &QueuePair,
    operation: O,
    context: C,
) -> PushError {
    let (mut queue, mut link) = queue::<C>(queue_pair.send_config().reads(4));
    let mut chain = queue.reserve(&mut link, 1).expect("room for one");
    chain.push(operation, context).map_err(|rejected| rejected.error).expect_err("it is refused")
}

/// A pool of blocks of 64 bytes on a queue pair's memory, or on other.
fn pool(memory: LocalMemory) -> Pool {
    let headers = Vec::leak((0..8).map(|_| BlockHeader::new()).collect());
    Pool::new(leak(PoolRoot::new()), headers, memory.into_region(), 64).expect("a pool")
}

fn memory(domain: &Arc<ProtectionDomain>) -> LocalMemory {
    LocalMemory::register(Pages::new(4096).expect("pages"), domain).expect("memory")
}

/// Posts a request past all checks; what the post returns, and whether a request was named.
fn by_hand(parts: &mut Parts, mut wr: SendWr, sges: &mut [Sge]) -> (i32, bool) {
    (wr.sg_list, wr.num_sge) = (sges.as_mut_ptr(), sges.len() as i32);
    let mut bad = std::ptr::null_mut();
    // SAFETY: one request, on memory that stays mapped until the end of the test.
    let code = unsafe { parts.send.post_send(&raw mut wr, &mut bad) };
    (code, !bad.is_null())
}

fn send(flags: u32) -> SendWr {
    SendWr { opcode: opcode::SEND, send_flags: send_flags::SIGNALED | flags, ..SendWr::EMPTY }
}

fn rdma(operation: u32, to: &RemoteRegion) -> SendWr {
    let rdma = RdmaTarget::new(to.addr(), to.rkey());
    SendWr { opcode: operation, target: Target { rdma }, ..send(0) }
}

fn own_piece(parts: &Parts, len: u32) -> Sge {
    let region = parts.memory.region().registration();
    Sge::new(region.addr.as_ptr(), len, region.lkey)
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn refusal_of_a_send_before_the_connection() {
    let listener = Listener::bind(address()).expect("a listener");
    let route = Connector::new().resolve(listener.local_addr(), PATIENCE).expect("a route");
    let domain = route.device().domain().expect("a domain");
    let (sends, receives) = queues(route.device());
    let pair = route.create_queue_pair(&domain, &sends, &receives, options()).expect("a pair");
    let mut parts = Parts::new(pair.queue_pair());
    let slots = leak(SendSlots::<Block, 16>::new());
    let config = pair.queue_pair().send_config().chain(1).period(2);
    let mut queue = SendQueue::new(Nowhere, slots, config).expect("a queue");
    let mut link = leak(SendStaging::<8, 4>::new()).link();
    assert_eq!(queue.reserve(&mut link, 1).unwrap_err(), ReserveError::NotConnected);
    // The device says no, names no request, and keeps it.
    let mut sge = [own_piece(&parts, 8)];
    assert_eq!(by_hand(&mut parts, send(0), &mut sge), (libc::EINVAL, false));
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn refusals_of_sizes() {
    let (mut client, server) = connected(&Setup { receives: 1, ..Setup::default() });
    let queue_pair = client.connection.queue_pair().clone();
    let mut blocks = pool(memory(queue_pair.domain()));
    // Pieces: one was asked for, and the device has made room for four.
    let two = [blocks.allocate().expect("one"), blocks.allocate().expect("two")];
    let error = refused(&queue_pair, op::Send::new(), two);
    assert_eq!(error, PushError::TooManySges { given: 2, max: 1 });
    let mut five = [own_piece(&client.parts, 8); 5];
    assert_eq!(by_hand(&mut client.parts, send(0), &mut five), (libc::EINVAL, true));
    // Bytes inline.
    let max = queue_pair.inline();
    let (mut queue, mut link) = queue::<Block>(queue_pair.send_config().max_inline(max as u16 - 1));
    let mut chain = queue.reserve(&mut link, 1).expect("room for one");
    let long = chain.push_inline(op::Send::new(), blocks.allocate().expect("a block"));
    let expected = PushError::InlineTooLong { given: 64, max: max - 1 };
    assert_eq!(long.map_err(|rejected| rejected.error), Err(expected));
    drop(chain);
    let mut sge = [own_piece(&client.parts, max + 1)];
    let inline = send(send_flags::INLINE);
    assert_eq!(by_hand(&mut client.parts, inline, &mut sge), (libc::EINVAL, true));
    // Nothing of all this has gone out: the next message is the first.
    assert_eq!(client.parts.post_send(8, 4, 0), 0);
    let (sent, mut server) = (client.parts.sent(1), server);
    assert_eq!((sent[0].status, server.parts.received(1)[0].byte_len), (0, 4));
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn refusal_of_more_than_the_queue_holds() {
    let patient = ConnectParams::new().rnr_retry(RnrRetry::FOREVER);
    let setup = Setup { client: patient, server: patient, ..Setup::default() };
    let (mut client, _server) = connected(&setup);
    let config = client.connection.queue_pair().send_config();
    let (mut queue, mut link) = queue::<u32>(config.depth(8));
    let room = queue.free();
    assert_eq!(room, 8, "as was asked for");
    let mut chain = queue.reserve(&mut link, 1).expect("room");
    // SAFETY: no memory is named, and nothing is posted: the chain is dropped.
    unsafe { chain.push_raw(op::Send::new(), &[], 0) }.expect("it fits");
    drop(chain);
    // The device has its own idea of the depth: 15 for 8. Its peer has no receives, so nothing ends.
    let mut sge = [own_piece(&client.parts, 8)];
    let taken = (0..).take_while(|_| by_hand(&mut client.parts, send(0), &mut sge).0 == 0).count();
    assert_eq!(taken, 15);
    assert_eq!(by_hand(&mut client.parts, send(0), &mut sge), (libc::ENOMEM, true));
    client.parts.queue_pair.to_error().expect("it can");
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f19_refusal_of_memory_of_another_domain() {
    let (mut client, _server) = connected(&Setup::default());
    let queue_pair = client.connection.queue_pair().clone();
    let other = ProtectionDomain::new(queue_pair.domain().device()).expect("a domain");
    let foreign = memory(&other);
    let mut sge = [{
        let region = foreign.region().registration();
        Sge::new(region.addr.as_ptr(), 8, region.lkey)
    }];
    // The device takes it and fails it, and the connection with it.
    assert_eq!(by_hand(&mut client.parts, send(0), &mut sge), (0, false));
    assert_eq!(client.parts.sent(1)[0].status, 2);
    let mut blocks = pool(foreign);
    let error = refused(&queue_pair, op::Send::new(), blocks.allocate().expect("a block"));
    let (given, queue) = (other.id(), queue_pair.domain().id());
    assert_eq!(error, PushError::WrongDomain { given, queue });
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f19_refusal_of_a_piece_outside_of_its_region() {
    let (mut client, _server) = connected(&Setup::default());
    let len = 16 * PIECE;
    let outside = client.parts.memory.region().slice(len - 4, 8).map(drop);
    let told = "8 bytes at offset 4092 are not inside a region of 4096 bytes";
    assert_eq!(outside.expect_err("it ends behind the region").to_string(), told);
    let region = *client.parts.memory.region().registration();
    let sge = Sge::new(region.addr.as_ptr().wrapping_add(len - 4), 8, region.lkey);
    // The device takes it and fails it, and the connection with it.
    assert_eq!(by_hand(&mut client.parts, send(0), &mut [sge]), (0, false));
    assert_eq!(client.parts.sent(1)[0].status, 4);
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f22_refusal_of_more_than_a_message_holds() {
    const LONG: usize = 9 << 20;
    let (mut client, _server) = connected(&Setup::default());
    let queue_pair = client.connection.queue_pair().clone();
    let pages = Pages::new(LONG).expect("pages");
    let memory = LocalMemory::register(pages, queue_pair.domain()).expect("memory");
    let registration = *memory.region().registration();
    let mut sge = [Sge::new(registration.addr.as_ptr(), LONG as u32, registration.lkey)];
    let headers = Vec::leak(vec![BlockHeader::new()]);
    let pool = Pool::new(leak(PoolRoot::new()), headers, memory.into_region(), LONG);
    let block = pool.expect("a pool").allocate().expect("the block");
    let error = refused(&queue_pair, op::Send::new(), block);
    assert_eq!(error, PushError::MessageTooLong { total: LONG as u64, max: 8 << 20 });
    // Soft-RoCE takes what is longer than it says that it takes.
    assert_eq!(by_hand(&mut client.parts, send(0), &mut sge), (0, false));
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn refusals_of_keys_bounds_and_rights_of_the_peers_memory() {
    let share = |rights, end: &crate::ends::End| {
        let pages = Pages::new(4096).expect("pages");
        let domain = end.connection.queue_pair().domain();
        SharedMemory::register(pages, domain, rights).expect("memory")
    };
    for case in ["bounds", "rights", "key"] {
        let (mut client, server) = connected(&Setup::default());
        let queue_pair = client.connection.queue_pair().clone();
        let source = share(Rights::READ_SOURCE, &server);
        let claim = source.region().advertise();
        let mut blocks = pool(memory(queue_pair.domain()));
        let block = blocks.allocate().expect("a block");
        let (wrong, operation) = match case {
            "bounds" => {
                let last = claim.at(4092, 4).expect("inside");
                let error = refused(&queue_pair, op::Read::new(last), block);
                assert_eq!(error, PushError::RemoteTooShort { total: 64, remote: 4 });
                (last, opcode::RDMA_READ)
            }
            "rights" => {
                let error = refused(&queue_pair, op::Write::new(claim), block);
                let (needs, has) = (Access::REMOTE_WRITE, claim.access());
                assert_eq!(error, PushError::RemoteAccess { needs, has });
                (claim, opcode::RDMA_WRITE)
            }
            // Nobody can know another's keys: here a key is what the peer said.
            _ => {
                let key = RKey::from_raw(claim.rkey().to_raw() ^ 0x00ff_0000);
                let wrong = RemoteRegion::new(claim.addr(), 64, key, claim.access());
                (wrong.expect("a region"), opcode::RDMA_READ)
            }
        };
        let mut sge = [own_piece(&client.parts, 64)];
        let wr = rdma(operation, &wrong);
        assert_eq!(by_hand(&mut client.parts, wr, &mut sge), (0, false), "{case}");
        // The peer's kernel refuses it, and both sides are broken.
        assert_eq!(client.parts.sent(1)[0].status, 10, "{case}");
        let began = Instant::now();
        while server.connection.queue_pair().view().expect("a view").state != QpState::Error {
            assert!(began.elapsed() < PATIENCE, "{case}");
        }
    }
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f25_refusal_of_a_read_where_none_was_agreed_on() {
    // Whoever accepts decides, and the device then waits for ever.
    let none = ConnectParams::new().reads(0, 0);
    let (mut client, server) = connected(&Setup { server: none, ..Setup::default() });
    let queue_pair = client.connection.queue_pair().clone();
    let pages = Pages::new(4096).expect("pages");
    let domain = server.connection.queue_pair().domain();
    let source = SharedMemory::register(pages, domain, Rights::READ_SOURCE).expect("memory");
    let claim = source.region().advertise();
    let mut blocks = pool(memory(queue_pair.domain()));
    let config = queue_pair.send_config().reads(client.connection.reads().reads_out);
    let (mut queue, mut link) = queue::<Block>(config);
    let mut chain = queue.reserve(&mut link, 1).expect("room for one");
    let refused = chain.push(op::Read::new(claim), blocks.allocate().expect("a block"));
    assert_eq!(refused.map_err(|rejected| rejected.error), Err(PushError::ReadsNotNegotiated));
    drop(chain);
    let mut sge = [own_piece(&client.parts, 8)];
    let wr = rdma(opcode::RDMA_READ, &claim);
    assert_eq!(by_hand(&mut client.parts, wr, &mut sge), (0, false));
    std::thread::sleep(Duration::from_millis(300));
    let mut into = [nanoverbs_core::abi::Wc::EMPTY];
    assert_eq!(client.parts.send_poll.poll(&mut into), 0, "nothing, for as long as one waits");
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f07_what_the_device_did_not_take_of_a_chain_goes_out_once() {
    // The device has room for seven, and is made to look as if it had room for sixteen.
    let patient = ConnectParams::new().rnr_retry(RnrRetry::FOREVER);
    let few = QueuePairOptions::new(4, 16);
    let setup = Setup { client: patient, server: patient, options: few, queues: deep, receives: 0 };
    let (mut client, mut server) = connected(&setup);
    let config = client.connection.queue_pair().send_config().depth(16).chain(5).period(2);
    // SAFETY: the queue goes before the queue pair, and the ends are connected.
    let port = unsafe { client.connection.queue_pair().send_port() }.expect("a port");
    let mut queue =
        SendQueue::<_, u64, 16>::new(port, leak(SendSlots::new()), config).expect("one");
    queue.open();
    let mut link = leak(SendStaging::<8, 1>::new()).link();
    let mut posted = 0;
    let mut chain_of = |queue: &mut SendQueue<'static, _, u64, 16>, count: usize| {
        let mut chain = queue.reserve(&mut link, count).expect("room");
        for _ in 0..count {
            // SAFETY: no memory is named.
            unsafe { chain.push_raw(op::Send::new().immediate(posted).signaled(), &[], 0) }
                .expect("fits");
            posted += 1;
        }
        match chain.submit() {
            Ok(_) => None,
            Err(SubmitError::Partial { accepted, code, rest }) => {
                Some((accepted, code, rest.len(), drop(rest)))
            }
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(chain_of(&mut queue, 5), None);
    let counters = (queue.in_flight(), queue.free());
    assert_eq!(counters, (5, 11));
    assert_eq!(chain_of(&mut queue, 5), Some((2, libc::ENOMEM, 3, ())), "two had room");
    assert_eq!(queue.in_flight(), 7);
    // Now the peer takes them: seven, each once, in their order.
    for piece in 0..10 {
        assert_eq!(server.parts.post_recv(piece, PIECE), 0);
    }
    let came: Vec<_> =
        server.parts.received(7).iter().map(|wc| u32::from_be(wc.imm_data)).collect();
    assert_eq!(came, [0, 1, 2, 3, 4, 5, 6]);
    let began = Instant::now();
    let mut completions = Completions::<_, 16>::new(&mut client.parts.send_poll, 16);
    while queue.in_flight() > 0 {
        for completion in completions.poll().expect("a poll") {
            queue.retire(completion).expect("its own");
        }
        assert!(began.elapsed() < PATIENCE);
    }
    assert_eq!(std::iter::from_fn(|| queue.take()).filter(|it| it.outcome.is_done()).count(), 7);
    std::thread::sleep(Duration::from_millis(100));
    let mut into = [nanoverbs_core::abi::Wc::EMPTY];
    assert_eq!(server.parts.recv_poll.poll(&mut into), 0, "and no eighth");
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f08_what_was_refused_without_a_word_stays_in_flight_until_it_is_flushed() {
    let listener = Listener::bind(address()).expect("a listener");
    let route = Connector::new().resolve(listener.local_addr(), PATIENCE).expect("a route");
    let domain = route.device().domain().expect("a domain");
    let (sends, receives) = queues(route.device());
    let pair = route.create_queue_pair(&domain, &sends, &receives, options()).expect("a pair");
    let queue_pair = pair.queue_pair().clone();
    // SAFETY: it is too early, which is what this is about: the memory stays until the queue is empty.
    let port = unsafe { queue_pair.send_port() }.expect("a port");
    let config = queue_pair.send_config().chain(1).period(2);
    let mut queue =
        SendQueue::<_, Block, 16>::new(port, leak(SendSlots::new()), config).expect("one");
    // Opened as if it were connected.
    queue.open();
    let mut link = leak(SendStaging::<8, 1>::new()).link();
    let mut blocks = pool(memory(&domain));
    let mut chain = queue.reserve(&mut link, 1).expect("room");
    chain.push(op::Send::new(), blocks.allocate().expect("a block")).expect("it fits");
    let Err(SubmitError::Unknown { code }) = chain.submit() else { panic!("it was refused") };
    assert_eq!(code, libc::EINVAL);
    assert_eq!((queue.in_flight(), queue.closed()), (1, Some(Cause::Unknown { code })));
    assert!(queue.take().is_none(), "the buffer may still be sent");
    assert_eq!(
        queue.reserve(&mut link, 1).unwrap_err(),
        ReserveError::Closed(Cause::Unknown { code })
    );
    queue_pair.to_error().expect("it can");
    let began = Instant::now();
    let mut completions = Completions::<_, 4>::new(sends.poll_port().expect("a port"), 8);
    while queue.in_flight() > 0 {
        for completion in completions.poll().expect("a poll") {
            queue.retire(completion).expect("its own");
        }
        assert!(began.elapsed() < PATIENCE, "the device had kept it, so it flushes it");
    }
    let ended = queue.take().expect("it comes back");
    assert!(matches!(ended.outcome, Outcome::Flushed), "{:?}", ended.outcome);
    assert!(queue.take().is_none());
}
