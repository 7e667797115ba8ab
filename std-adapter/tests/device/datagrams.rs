//! Datagrams: queue pairs at addresses, peers that are asked for them, multicast groups.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nanoverbs::CompletionQueue;
use nanoverbs::cm::{
    BindError, DatagramAddress, DatagramEvent, Datagrams, FindError, JoinError, PrivateData, Share,
    Step,
};
use nanoverbs::memory::{LocalMemory, Pages};
use nanoverbs::port::{PollPort, RecvPort};
use nanoverbs::{QpState, QueuePairOptions};
use nanoverbs_core::{
    BlockHeader, Completions, Datagram, Ended, Pool, PoolRoot, RecvQueue, RecvSlots, RecvStaging,
    SendQueue, SendSlots, SendStaging, op, port,
};

use crate::ends::{PATIENCE, PROMPT, address, ip};
use crate::readable;

fn datagrams(at: SocketAddr) -> Datagrams {
    let address = DatagramAddress::bind(at).expect("an address");
    let device = address.device().clone();
    let domain = device.domain().expect("a domain");
    let queue = CompletionQueue::new(&device, 16, None).expect("a queue");
    address.create_queue_pair(&domain, &queue, &queue, QueuePairOptions::new(8, 8)).expect("a pair")
}

/// Answers the next peer that asks.
fn serve(server: &Datagrams, data: &[u8]) -> PrivateData {
    let event = server.wait_event(PATIENCE).expect("no error");
    let Some(DatagramEvent::Request(request)) = event else { panic!("{event:?}") };
    let said = *request.private_data();
    request.accept(server, data).expect("it can be said");
    said
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn a_peer_is_found_by_its_address() {
    for at in [address(), SocketAddr::new(ip("NANOVERBS_RXE_ADDR6"), 0)] {
        let (server, client) = (datagrams(at), datagrams(at));
        assert_eq!(server.queue_pair().view().expect("a view").state, QpState::ReadyToSend);
        let peer = server.local_addr();
        assert_ne!(peer.port(), 0);
        let handle = std::thread::scope(|scope| {
            let found = scope.spawn(|| client.find(peer, b"who are you", PATIENCE));
            let said = serve(&server, b"me");
            assert_eq!(said.first(), Some(*b"who are you\0"));
            found.join().expect("it ends well").expect("it is found")
        });
        assert_eq!(handle.remote_qp(), server.queue_pair().number());
        assert_eq!(handle.qkey(), 0x0123_4567);
        assert!(!handle.as_raw().is_null());
        let began = Instant::now();
        drop((server, client, handle));
        assert!(began.elapsed() < PROMPT, "{:?}", began.elapsed());
    }
}

/// Polls until a receive has ended.
fn arrived(
    received: &mut Completions<PollPort>,
    receives: &mut RecvQueue<'static, port::Datagrams<RecvPort>, Datagram, 8>,
) -> Ended<Datagram> {
    let began = Instant::now();
    loop {
        for completion in received.poll().expect("it can be polled") {
            // The sends of this queue pair complete here as well, and end no receive.
            drop(receives.retire(completion));
        }
        if let Some(ended) = receives.take() {
            return ended;
        }
        assert!(began.elapsed() < PATIENCE, "no datagram came");
    }
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f75_only_the_message_of_a_datagram_is_handed_out() {
    let (server, client) = (datagrams(address()), datagrams(address()));
    let handle = std::thread::scope(|scope| {
        let found = scope.spawn(|| client.find(server.local_addr(), b"", PATIENCE));
        serve(&server, b"");
        found.join().expect("it ends well").expect("it is found")
    });
    let domain = server.queue_pair().domain();
    let memory = LocalMemory::register(Pages::new(4096).expect("pages"), domain).expect("memory");
    // 64 bytes of message each, behind the prefix.
    let headers = Vec::leak((0..4).map(|_| BlockHeader::new()).collect());
    let root = Box::leak(Box::new(PoolRoot::new()));
    let len = 64 + Datagram::PREFIX;
    let mut pool = Pool::new(root, headers, memory.into_region(), len).expect("a pool");
    let mut next = || Datagram::new(pool.allocate().expect("a block")).expect("long enough");

    let pair = server.queue_pair();
    let mut received = Completions::new(pair.recv_completions().poll_port().expect("a port"), 16);
    // SAFETY: the queue is not used after the queue pair.
    let port = unsafe { pair.datagram_recv_port() }.expect("a port");
    // SAFETY: as above.
    let wrong = unsafe { pair.recv_port() }.map(drop);
    assert_eq!(wrong.expect_err("it is for datagrams").errno(), libc::EPROTOTYPE);
    let slots = Box::leak(Box::new(RecvSlots::new()));
    let mut receives = RecvQueue::new(port, slots, pair.recv_config()).expect("a queue");
    let mut staging = RecvStaging::<1, 1>::new();
    let mut link = staging.link();
    let mut chain = receives.reserve(&mut link, 1).expect("room");
    chain.push(next()).expect("a receive");
    chain.submit().expect("posted");

    let pair = client.queue_pair();
    // SAFETY: the queue is not used after the queue pair.
    let port = unsafe { pair.datagram_send_port() }.expect("a port");
    let slots = Box::leak(Box::new(SendSlots::<_, 8>::new()));
    let mut sends = SendQueue::new(port, slots, pair.send_config()).expect("a queue");
    sends.open();
    let mut staging = SendStaging::<1, 1>::new();
    let mut link = staging.link();
    let mut message = next();
    assert_eq!((message.len(), message.capacity()), (64, 64));
    message.fill(5);
    let mut chain = sends.reserve(&mut link, 1).expect("room");
    chain.push(op::Datagram::new(handle.peer()).immediate(9).signaled(), message).expect("one");
    chain.submit().expect("posted");

    let ended = arrived(&mut received, &mut receives);
    let success = *ended.outcome.success().expect("it is good");
    assert_eq!(ended.context.payload(&success), [5; 64]);
    assert_eq!((success.immediate(), success.source()), (Some(9), pair.number()));
    // An IPv6 header fills the prefix; of one of IPv4 Soft-RoCE leaves the first half zero.
    let header = ended.context.header();
    if address().is_ipv6() {
        assert_eq!(header[0] >> 4, 6);
    } else {
        assert_eq!((&header[..20], header[20]), (&[0; 20][..], 0x45));
    }
    // However often it is answered, there is one handle for the way back, which here is the way there.
    let answers = [(); 3].map(|()| server.answer(success.source(), header).expect("a way"));
    assert!(answers.iter().all(|answer| answer.as_raw() == answers[0].as_raw()));
    assert_eq!(answers[2].remote_qp(), pair.number());
    drop((client, server));
    // What was in flight has gone with the queue pairs; the send was not polled.
    // SAFETY: both queue pairs are destroyed.
    unsafe { sends.abandon() };
    assert!(sends.take().is_some());
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn one_thread_asks_and_answers() {
    let (server, client) = (datagrams(address()), datagrams(address()));
    let mut lookup = client.start_find(server.local_addr(), b"", PATIENCE).expect("it begins");
    let handle = loop {
        lookup = match lookup.poll().expect("no error") {
            Step::Done(handle) => break handle,
            Step::Pending(lookup) => lookup,
        };
        while let Some(event) = server.poll_event().expect("no error") {
            let DatagramEvent::Request(request) = event else { panic!("{event:?}") };
            request.accept(&server, b"").expect("it can be said");
        }
        let mut fds = [lookup.as_fd(), server.as_fd()].map(|fd| libc::pollfd {
            fd: std::os::fd::AsRawFd::as_raw_fd(&fd),
            events: libc::POLLIN,
            revents: 0,
        });
        // SAFETY: two entries, of open descriptors.
        assert!(unsafe { libc::poll(fds.as_mut_ptr(), 2, 20_000) } > 0, "nothing happened");
    };
    assert_eq!(handle.remote_qp(), server.queue_pair().number());
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn a_peer_that_is_not_there_or_does_not_want_is_told_apart() {
    let client = datagrams(address());
    let mut peer = address();
    peer.set_port(7999);
    assert_eq!(client.find(peer, b"", PATIENCE).map(drop), Err(FindError::NobodyListens { peer }));
    let server = datagrams(address());
    let peer = server.local_addr();
    let refused = std::thread::scope(|scope| {
        let found = scope.spawn(|| client.find(peer, b"", PATIENCE).map(drop));
        let event = server.wait_event(PATIENCE).expect("no error");
        let Some(DatagramEvent::Request(request)) = event else { panic!("{event:?}") };
        request.reject(b"not today").expect("it can be said");
        found.join().expect("it ends well")
    });
    assert_eq!(refused, Err(FindError::Rejected { peer }));
    let patience = Duration::from_millis(300);
    assert_eq!(client.find(peer, b"", patience).map(drop), Err(FindError::TimedOut { peer }));
    let data = [0; PrivateData::MAX_ASK + 1];
    let refused = client.find(peer, &data, PATIENCE).map(drop);
    assert!(matches!(refused, Err(FindError::PrivateDataTooLong(_))), "{refused:?}");
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f49_private_data_of_datagrams_has_limits_of_its_own() {
    let (server, client) = (datagrams(address()), datagrams(address()));
    let peer = server.local_addr();
    std::thread::scope(|scope| {
        let found = scope.spawn(|| client.find(peer, &[7; PrivateData::MAX_ASK], PATIENCE));
        let said = serve(&server, &[8; PrivateData::MAX_TELL]);
        assert_eq!(said.as_bytes(), [7; PrivateData::MAX_ASK]);
        found.join().expect("it ends well").expect("it is found");
    });
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn groups_are_joined_and_left() {
    let group = "239.1.2.3:7471".parse().expect("an address");
    let second = datagrams(address());
    for share in [Share::Full, Share::SendOnly] {
        let first = datagrams(address());
        let joined = first.join(group, share, PATIENCE).expect("it is joined");
        assert_eq!(joined.addr(), group);
        assert_eq!(joined.handle().remote_qp().to_raw(), 0x00ff_ffff, "all members");
        assert_eq!(joined.handle().qkey(), 0x0123_4567);
        let mut joining = second.start_join(group, share).expect("it begins");
        let other = loop {
            readable(&joining);
            joining = match joining.poll().expect("no error") {
                Step::Done(joined) => break joined,
                Step::Pending(joining) => joining,
            };
        };
        joined.check().expect("it stands");
        // The address goes before its membership; the queue pair does not.
        let queue_pair = Arc::clone(first.queue_pair());
        drop(first);
        let queue_pair = queue_pair.destroy().expect_err("the membership holds it");
        joined.leave();
        queue_pair.destroy().expect("this was the last one");
        other.leave();
    }
    // One that is given up while it joins.
    let began = Instant::now();
    drop(second.start_join(group, Share::Full).expect("it begins"));
    drop(second);
    assert!(began.elapsed() < PROMPT, "{:?}", began.elapsed());
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn what_is_no_group_cannot_be_joined() {
    let datagrams = datagrams(address());
    let group = address();
    let refused = datagrams.join(group, Share::Full, PATIENCE).map(drop);
    assert_eq!(refused, Err(JoinError::NotAGroup { group }));
    let group = "[ff05::1234]:7471".parse().expect("an address");
    let refused = datagrams.join(group, Share::Full, PATIENCE).map(drop);
    // rxe refuses IPv6 groups (524, ENOTSUPP of the kernel).
    assert!(matches!(refused, Err(JoinError::Call(_) | JoinError::Refused { .. })), "{refused:?}");
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f52_datagrams_need_the_address_of_a_device() {
    for addr in ["127.0.0.1:0", "0.0.0.0:0"] {
        let addr = addr.parse().expect("an address");
        let bound = DatagramAddress::bind(addr).map(drop);
        assert_eq!(bound, Err(BindError::NoRdmaDeviceForAddress { addr }));
    }
}
