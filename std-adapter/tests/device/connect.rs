//! Making and ending connections.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use nanoverbs::QpState;
use nanoverbs::cm::{
    AckTimeout, BindError, ConnectError, ConnectParams, ConnectionEvent, Connector, ListenError,
    Listener, PrivateData, PrivateDataTooLong, ReadDepths, ResolveError, Retry, RnrRetry, RnrTimer,
    Step,
};

use crate::ends::{
    PATIENCE, PIECE, PROMPT, SECOND, Setup, address, connected, connected_at, ip, options, queues,
};
use crate::readable;

/// Connects to `peer` with no receive posted.
fn connect(peer: SocketAddr, params: &ConnectParams) -> Result<(), ConnectError> {
    let route = Connector::new().resolve(peer, PATIENCE).expect("a route");
    let domain = route.device().domain().expect("a domain");
    let (send, recv) = queues(route.device());
    let outgoing = route.create_queue_pair(&domain, &send, &recv, options()).expect("a queue pair");
    outgoing.connect(params, 2 * SECOND).map(drop)
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f48_private_data_travels_both_ways_and_arrives_padded() {
    let setup = Setup {
        client: ConnectParams::new().private_data(b"from the client"),
        server: ConnectParams::new().private_data(b"from the server"),
        ..Setup::default()
    };
    let (client, server) = connected(&setup);
    let at_server = server.connection.private_data().expect("a request carries data");
    assert_eq!(at_server.as_bytes().len(), 56);
    assert_eq!(at_server.first(), Some(*b"from the client\0"));
    let at_client = client.connection.private_data().expect("an answer carries data");
    assert_eq!(at_client.as_bytes().len(), 196);
    assert_eq!(at_client.first(), Some(*b"from the server\0"));
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn both_ends_know_both_addresses_and_the_same_device() {
    let (client, server) = connected(&Setup::default());
    let (client_end, server_end) = (&client.connection, &server.connection);
    assert_eq!(client_end.peer_addr(), server_end.local_addr());
    assert_eq!(client_end.local_addr(), server_end.peer_addr());
    assert_eq!(client_end.local_addr().ip(), address().ip());
    let domain = |end: &crate::ends::End| end.parts.queue_pair.domain().id();
    assert_eq!(domain(&client), domain(&server), "one domain a device by default");
    assert_eq!(client.parts.queue_pair.domain().device().name(), "rxe0");
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn ipv6_connects_as_well() {
    let at = SocketAddr::new(ip("NANOVERBS_RXE_ADDR6"), 0);
    let (mut client, mut server) = connected_at(at, &Setup { receives: 1, ..Setup::default() });
    assert_eq!(client.connection.local_addr().ip(), at.ip());
    assert_eq!(server.connection.peer_addr(), client.connection.local_addr());
    client.parts.write(9, b"six");
    assert_eq!(client.parts.post_send(9, 3, 0), 0);
    assert_eq!(server.parts.received(1)[0].byte_len, 3);
    assert_eq!(server.parts.read(0, 3), b"six");
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn a_connection_to_nobody_says_so() {
    let mut peer = address();
    peer.set_port(7999);
    let began = Instant::now();
    assert_eq!(connect(peer, &ConnectParams::new()), Err(ConnectError::NobodyListens { peer }));
    assert!(began.elapsed() < PROMPT);
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f52_an_address_without_a_device_is_named() {
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, 7471));
    let bound = Listener::bind(addr).map(drop);
    assert_eq!(bound, Err(BindError::NoRdmaDeviceForAddress { addr }));
    let resolved = Connector::new().resolve(addr, SECOND).map(drop);
    assert_eq!(resolved, Err(ResolveError::NoRdmaDeviceForAddress { addr }));
    let v6 = SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, 7471));
    let bound = Listener::bind(v6).map(drop);
    assert_eq!(bound, Err(BindError::NoRdmaDeviceForAddress { addr: v6 }));
    let resolved = Connector::new().resolve(v6, SECOND).map(drop);
    assert_eq!(resolved, Err(ResolveError::NoRdmaDeviceForAddress { addr: v6 }));
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn an_address_that_is_not_ours_or_has_no_way_is_named() {
    let addr = SocketAddr::from(([192, 0, 2, 1], 7471));
    let bound = Listener::bind(addr).map(drop);
    assert!(
        matches!(
            bound,
            Err(BindError::NoRdmaDeviceForAddress { .. } | BindError::NotOurAddress { .. })
        ),
        "{bound:?}"
    );
    let resolved = Connector::new().resolve(addr, SECOND).map(drop);
    assert_eq!(resolved, Err(ResolveError::NoRoute { addr }));
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn a_port_in_use_is_named_and_free_again_after_the_listener() {
    let first = Listener::bind(address()).expect("a listener");
    let addr = first.local_addr();
    assert_ne!(addr.port(), 0, "the system chose one");
    assert_eq!(Listener::bind(addr).map(drop), Err(BindError::AddressInUse { addr }));
    drop(first);
    Listener::bind(addr).expect("free again");
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn waiting_for_a_request_ends_at_the_deadline() {
    let listener = Listener::bind(address()).expect("a listener");
    assert!(listener.poll_request().expect("no error").is_none());
    let began = Instant::now();
    let patience = Duration::from_millis(300);
    assert_eq!(listener.accept(patience).map(drop), Err(ListenError::TimedOut));
    assert!((patience..PROMPT).contains(&began.elapsed()));
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn waiting_for_a_connection_ends_at_the_deadline_and_leaves_promptly() {
    let listener = Listener::bind(address()).expect("a listener");
    let peer = listener.local_addr();
    let began = Instant::now();
    // Nobody takes the request.
    assert_eq!(connect(peer, &ConnectParams::new()), Err(ConnectError::TimedOut { peer }));
    assert!(began.elapsed() < PROMPT, "{:?}", began.elapsed());
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn a_refusal_arrives_with_its_reason() {
    let listener = Listener::bind(address()).expect("a listener");
    let peer = listener.local_addr();
    let client = thread::spawn(move || connect(peer, &ConnectParams::new()));
    let request = listener.accept(PATIENCE).expect("a request");
    request.reject(b"not today").expect("it can be said");
    match client.join().expect("the client ends well") {
        Err(ConnectError::Rejected { private_data: Some(data), .. }) => {
            assert_eq!(data.as_bytes().len(), PrivateData::MAX_REJECT);
            assert_eq!(data.first(), Some(*b"not today\0"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn a_dropped_request_is_refused() {
    let listener = Listener::bind(address()).expect("a listener");
    let peer = listener.local_addr();
    let client = thread::spawn(move || connect(peer, &ConnectParams::new()));
    drop(listener.accept(PATIENCE).expect("a request"));
    let refused = client.join().expect("the client ends well");
    assert!(
        matches!(refused, Err(ConnectError::Rejected { .. } | ConnectError::Refused { .. })),
        "{refused:?}"
    );
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f49_private_data_is_as_long_as_its_call_allows() {
    let most = Setup {
        client: ConnectParams::new().private_data(&[7; PrivateData::MAX_CONNECT]),
        server: ConnectParams::new().private_data(&[8; PrivateData::MAX_ACCEPT]),
        ..Setup::default()
    };
    let (client, server) = connected(&most);
    assert_eq!(server.connection.private_data().map(|d| d.as_bytes().to_vec()), Some(vec![7; 56]));
    assert_eq!(client.connection.private_data().map(|d| d.as_bytes().to_vec()), Some(vec![8; 196]));
    let peer = address();
    for given in [57, 255, 256, 5000] {
        let params = ConnectParams::new().private_data(&vec![0; given]);
        let too_long = PrivateDataTooLong { given, max: 56 };
        assert_eq!(connect(peer, &params), Err(ConnectError::PrivateDataTooLong(too_long)));
    }
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f03_defaults_are_finite_and_reach_the_queue_pair() {
    let (client, server) = connected(&Setup::default());
    for end in [&client, &server] {
        let view = end.parts.queue_pair.view().expect("a view");
        assert_eq!(view.state, QpState::ReadyToSend);
        assert_eq!((view.retry, view.rnr_retry), (6, 6));
        assert_eq!(view.rnr_timer, RnrTimer::default());
        assert_eq!(end.connection.rnr_timer(), Some(RnrTimer::default()));
    }
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f03_retries_cross_as_they_should() {
    let times = |n| RnrRetry::times(n).expect("in range");
    let setup = Setup {
        client: ConnectParams::new()
            .retry(Retry::times(2).expect("in range"))
            .rnr_retry(times(3))
            .ack_timeout(AckTimeout::code(14).expect("in range")),
        server: ConnectParams::new().retry(Retry::times(5).expect("in range")).rnr_retry(times(4)),
        ..Setup::default()
    };
    let (client, server) = connected(&setup);
    let client = client.parts.queue_pair.view().expect("a view");
    let server = server.parts.queue_pair.view().expect("a view");
    assert_eq!((client.retry, server.retry), (2, 2), "of the connecting side");
    assert_eq!((client.rnr_retry, server.rnr_retry), (4, 3), "each has the other's");
    assert_eq!(client.ack_timeout, 14);
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f25_reads_are_agreed_on_as_the_smaller_of_both() {
    let setup = Setup {
        client: ConnectParams::new().reads(4, 9),
        server: ConnectParams::new().reads(2, 3),
        ..Setup::default()
    };
    let (client, server) = connected(&setup);
    assert_eq!(client.connection.reads(), ReadDepths { reads_out: 3, reads_in: 2 });
    assert_eq!(server.connection.reads(), ReadDepths { reads_out: 2, reads_in: 3 });
    let (client, server) = connected(&Setup::default());
    let all = ReadDepths { reads_out: 128, reads_in: 128 };
    assert_eq!((client.connection.reads(), server.connection.reads()), (all, all));
    let too_many = connect(address(), &ConnectParams::new().reads(200, 1));
    assert!(matches!(too_many, Err(ConnectError::ReadDepth(_))), "{too_many:?}");
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f47_the_end_of_a_peer_is_seen_and_flushes() {
    let (client, mut server) = connected(&Setup { receives: 2, ..Setup::default() });
    assert_eq!(server.connection.poll_event(), Ok(None));
    assert!(!server.connection.has_ended());
    drop(client);
    assert_eq!(server.connection.wait_ended(PATIENCE), Ok(true));
    let flushed = server.parts.received(2);
    assert!(flushed.iter().all(|wc| wc.status == 5), "{flushed:?}");
    let view = server.parts.queue_pair.view().expect("a view");
    assert_eq!(view.state, QpState::Error);
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f46_handles_may_be_dropped_in_any_order_at_any_time() {
    let began = Instant::now();
    let (client, server) = connected(&Setup { receives: 8, ..Setup::default() });
    let queue_pair = std::sync::Arc::clone(client.connection.queue_pair());
    let queue_pair = queue_pair.destroy().expect_err("others hold it");
    drop(server);
    // Its event, the peer's end, is never taken.
    let crate::ends::End { parts, connection } = client;
    drop(connection);
    let memory = parts.memory;
    drop((parts.recv_poll, parts.send_poll, parts.queue_pair));
    queue_pair.destroy().expect("this was the last one");
    let pages = memory.deregister().expect("nothing uses it");
    assert_eq!(pages.len(), 16 * PIECE);
    assert!(began.elapsed() < PROMPT, "{:?}", began.elapsed());
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn one_thread_makes_both_ends_without_a_blocking_call() {
    let listener = Listener::bind(address()).expect("a listener");
    let peer = listener.local_addr();
    let params = ConnectParams::new();
    let mut route = Connector::new().start(peer, PATIENCE).expect("it begins");
    let route = loop {
        route = match route.poll().expect("a route") {
            Step::Done(route) => break route,
            Step::Pending(route) => route,
        };
        readable(&route);
    };
    let domain = route.device().domain().expect("a domain");
    let (send, recv) = queues(route.device());
    let client = route.create_queue_pair(&domain, &send, &recv, options()).expect("a queue pair");
    let client = client.start(&params).expect("it begins");
    readable(&listener);
    let request = listener.poll_request().expect("no error").expect("a request");
    let (send, recv) = queues(request.device());
    let server = request.create_queue_pair(&domain, &send, &recv, options()).expect("a queue pair");
    let mut server = server.start(&params).expect("it begins");
    let mut client = client;
    let client = loop {
        readable(&client);
        client = match client.poll().expect("no error") {
            Step::Done(connection) => break connection,
            Step::Pending(client) => client,
        };
    };
    let server = loop {
        server = match server.poll().expect("no error") {
            Step::Done(connection) => break connection,
            Step::Pending(server) => server,
        };
        readable(&server);
    };
    assert_eq!(client.poll_event(), Ok(None));
    server.disconnect().expect("it can");
    readable(&client);
    assert_eq!(client.poll_event(), Ok(Some(ConnectionEvent::Disconnected)));
}
