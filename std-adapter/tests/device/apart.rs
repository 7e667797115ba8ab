//! Queue pairs beside the identifier: the adapter moves them, and the other end cannot tell.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use nanoverbs::QpState;
use nanoverbs::cm::{
    ConnectError, ConnectParams, Connector, Listener, ReadDepths, RnrRetry, RnrTimer,
};
use nanoverbs::endpoint::{Endpoint, Options, Verbs, WaitError};
use nanoverbs::memory::Rights;
use nanoverbs_core::{Block, Outcome, RemoteRegion};

use crate::ends::{PATIENCE, Setup, address, connected, ip, options, queues};

type E = Endpoint<Verbs, Block>;

/// Who makes its queue pair apart: the client, the server.
const WHO: [(bool, bool); 3] = [(true, false), (false, true), (true, true)];

fn pair(at: SocketAddr, (client, server): (bool, bool)) -> (E, E) {
    let own = |apart: bool| {
        let options = Options::new().blocks(16, 256).depth(8, 8);
        if apart { options.apart() } else { options }
    };
    let listener = Listener::bind(at).expect("a listener");
    let peer = listener.local_addr();
    thread::scope(|scope| {
        let server = scope.spawn(move || {
            let prepared = own(server).accept(&listener, PATIENCE).expect("a request");
            prepared.receives(4).expect("receives").establish(PATIENCE).expect("a connection")
        });
        let prepared = own(client).connect(peer, PATIENCE).expect("a route");
        let client = prepared.receives(4).expect("receives").establish(PATIENCE);
        (client.expect("a connection"), server.join().expect("the server ends well"))
    })
}

/// A message each way, a READ and a WRITE.
fn exchange(a: &mut E, b: &mut E) {
    for round in 0..20_u8 {
        let (from, to) = if round % 2 == 0 { (&mut *a, &mut *b) } else { (&mut *b, &mut *a) };
        let mut block = from.block().expect("a block");
        block.set_len(3).expect("inside");
        block.fill(round);
        from.post_send(block).expect("posted");
        assert!(from.send_completion(PATIENCE).expect("sent").outcome.is_done());
        let arrived = to.recv_completion(PATIENCE).expect("a message");
        assert_eq!(arrived.message(), Some(&[round; 3][..]));
        to.post_recv(arrived.context).expect("posted");
    }
    for turned in [false, true] {
        let (near, far) = if turned { (&mut *b, &mut *a) } else { (&mut *a, &mut *b) };
        let rights = Rights::READ_SOURCE.and(Rights::WRITE_TARGET);
        let shared = far.share(4096, rights).expect("memory");
        shared.write_at(0, &[7; 64]).expect("inside");
        let remote = RemoteRegion::from_wire(&shared.advertise().to_wire()).expect("a region");
        let mut block = near.block().expect("a block");
        block.set_len(64).expect("inside");
        near.post_read(remote, block).expect("posted");
        let read = near.send_completion(PATIENCE).expect("read");
        assert_eq!(read.message(), Some(&[7; 64][..]));
        let target = remote.at(64, 64).expect("inside");
        near.post_write(target, read.context).expect("posted");
        assert!(near.send_completion(PATIENCE).expect("written").outcome.is_done());
        let mut back = [0; 64];
        shared.read_at(64, &mut back).expect("inside");
        assert_eq!(back, [7; 64]);
    }
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn apart_both_kinds_of_queue_pair_talk_to_each_other_over_ipv4_and_ipv6() {
    for at in [address(), SocketAddr::new(ip("NANOVERBS_RXE_ADDR6"), 0)] {
        for who in WHO {
            let (mut client, mut server) = pair(at, who);
            exchange(&mut client, &mut server);
            // Both ends go, one by a goodbye and one that hears it; every block is back.
            let closed = client.close(PATIENCE);
            assert_eq!((closed.sends.len(), closed.receives.len()), (0, 4), "{who:?}");
            for _ in 0..4 {
                let ended = server.recv_completion(PATIENCE).expect("it is flushed");
                assert!(matches!(ended.outcome, Outcome::Flushed), "{:?}", ended.outcome);
            }
            let end = server.recv_completion(PATIENCE).expect_err("nothing is left");
            assert_eq!(end, WaitError::Disconnected, "{who:?}");
            let _ = server.close(PATIENCE);
        }
    }
    assert_eq!(nanoverbs_core::leaked_contexts(), 0);
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn apart_what_was_agreed_on_is_what_the_device_has() {
    let timer = RnrTimer::at_least(Duration::from_millis(2));
    let times = |times| RnrRetry::times(times).expect("in range");
    let setup = Setup {
        options: options().apart(),
        client: ConnectParams::new().rnr_timer(timer).reads(4, 2).rnr_retry(times(3)),
        server: ConnectParams::new().rnr_timer(timer).reads(8, 3).rnr_retry(times(4)),
        ..Setup::default()
    };
    let (client, server) = connected(&setup);
    // What goes out of the one comes in at the other.
    assert_eq!(client.connection.reads(), ReadDepths { reads_out: 3, reads_in: 2 });
    assert_eq!(server.connection.reads(), ReadDepths { reads_out: 2, reads_in: 3 });
    let view = |end: &crate::ends::End| end.parts.queue_pair.view().expect("a view");
    let (client, server) = (view(&client), view(&server));
    for view in [client, server] {
        assert_eq!((view.state, view.rnr_timer), (QpState::ReadyToSend, timer));
    }
    assert_eq!((client.rnr_retry, server.rnr_retry), (4, 3), "each has the other's");
    assert!(client.reads.reads_out >= 3 && server.reads.reads_in >= 3, "{client:?} {server:?}");
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn apart_the_timer_is_in_force_before_the_connection_stands() {
    let timer = RnrTimer::at_least(Duration::from_millis(2));
    let params = ConnectParams::new().rnr_timer(timer);
    for apart in [true, false] {
        let listener = Listener::bind(address()).expect("a listener");
        let peer = listener.local_addr();
        thread::scope(|scope| {
            let client = scope.spawn(move || {
                let route = Connector::new().resolve(peer, PATIENCE).expect("a route");
                let domain = route.device().domain().expect("a domain");
                let (send, recv) = queues(route.device());
                let pending = route.create_queue_pair(&domain, &send, &recv, options());
                pending.expect("a queue pair").connect(&params, PATIENCE).expect("a connection")
            });
            let request = listener.accept(PATIENCE).expect("a request");
            let domain = request.device().domain().expect("a domain");
            let (send, recv) = queues(request.device());
            let own = if apart { options().apart() } else { options() };
            let pending = request.create_queue_pair(&domain, &send, &recv, own).expect("one");
            let queue_pair = std::sync::Arc::clone(pending.queue_pair());
            assert_eq!(queue_pair.view().expect("a view").state, QpState::Init);
            let step = pending.start(&params).expect("it begins");
            // The peer may send from here on. Who leaves it to librdmacm has the timer only later.
            let view = queue_pair.view().expect("a view");
            assert_eq!(view.state, QpState::ReadyToSend);
            assert_eq!(view.rnr_timer == timer, apart, "{:?}", view.rnr_timer);
            let connection = step.wait(PATIENCE).expect("a connection");
            assert_eq!(queue_pair.view().expect("a view").rnr_timer, timer);
            drop((client.join().expect("the client ends well"), connection));
        });
    }
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn apart_refusals_and_nobody_are_named_and_all_is_given_back() {
    let listener = Listener::bind(address()).expect("a listener");
    let peer = listener.local_addr();
    let connect = move |peer: SocketAddr| {
        let route = Connector::new().resolve(peer, PATIENCE).expect("a route");
        let domain = route.device().domain().expect("a domain");
        let (send, recv) = queues(route.device());
        let room = (send.free(), recv.free());
        let pending = route.create_queue_pair(&domain, &send, &recv, options().apart());
        let came = pending.expect("a queue pair").connect(&ConnectParams::new(), PATIENCE);
        let error = came.map(drop).expect_err("nobody agrees");
        assert_eq!((send.free(), recv.free()), room, "its places are free again");
        error
    };
    let mut nobody = peer;
    nobody.set_port(7998);
    assert_eq!(connect(nobody), ConnectError::NobodyListens { peer: nobody });
    thread::scope(|scope| {
        let client = scope.spawn(move || connect(peer));
        let request = listener.accept(PATIENCE).expect("a request");
        let domain = request.device().domain().expect("a domain");
        let (send, recv) = queues(request.device());
        let own = options().apart();
        let pending = request.create_queue_pair(&domain, &send, &recv, own).expect("one");
        pending.reject(b"not today").expect("it can");
        let error = client.join().expect("the client ends well");
        let ConnectError::Rejected { private_data: Some(data), .. } = error else {
            panic!("{error}")
        };
        assert_eq!(&data.as_bytes()[..9], b"not today");
    });
}
