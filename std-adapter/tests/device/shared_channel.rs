//! Many steps on one channel, driven by one thread; options; moving between channels.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::thread;
use std::time::Instant;

use nanoverbs::cm::{
    Accepting, AckTimeout, BindError, ConnectError, ConnectParams, Connecting, Connection,
    ConnectionEvent, Connector, EventChannel, ListenOptions, Listener, Resolving, Route, Step,
    Token,
};

use crate::ends::{PATIENCE, PROMPT, address, options, queues};
use crate::readable;

enum Waiting {
    Resolving(Resolving),
    Connecting(Connecting),
    Accepting(Accepting),
    Connected(Connection),
}

/// A client and a server of many connections in one thread, on one descriptor.
struct Loop {
    channel: EventChannel,
    listener: Listener,
    steps: HashMap<Token, Waiting>,
}

impl Loop {
    fn new() -> Self {
        let channel = EventChannel::new().expect("a channel");
        let listener = ListenOptions::new().on(&channel).bind(address()).expect("a listener");
        Self { channel, listener, steps: HashMap::new() }
    }

    fn connect(&mut self) {
        let peer = self.listener.local_addr();
        let connector = Connector::new().on(&self.channel);
        let step = connector.start(peer, PATIENCE).expect("it begins");
        self.steps.insert(step.token(), Waiting::Resolving(step));
    }

    fn turn(&mut self) {
        readable(&self.channel);
        while let Some(token) = self.channel.poll_token().expect("events") {
            if token == self.listener.token() {
                while let Some(request) = self.listener.poll_request().expect("no error") {
                    let domain = request.device().domain().expect("a domain");
                    let (send, recv) = queues(request.device());
                    let incoming = request.create_queue_pair(&domain, &send, &recv, options());
                    let step = incoming.expect("a queue pair").start(&ConnectParams::new());
                    let step = step.expect("it begins");
                    self.steps.insert(step.token(), Waiting::Accepting(step));
                }
                continue;
            }
            let Some(step) = self.steps.remove(&token) else { continue };
            self.steps.insert(token, advance(step));
        }
    }

    fn connected(&self) -> usize {
        self.steps.values().filter(|step| matches!(step, Waiting::Connected(_))).count()
    }
}

fn with_queue_pair(route: Route) -> Connecting {
    let domain = route.device().domain().expect("a domain");
    let (send, recv) = queues(route.device());
    let outgoing = route.create_queue_pair(&domain, &send, &recv, options()).expect("a pair");
    outgoing.start(&ConnectParams::new()).expect("it begins")
}

fn advance(step: Waiting) -> Waiting {
    match step {
        Waiting::Resolving(step) => match step.poll().expect("a route") {
            Step::Done(route) => Waiting::Connecting(with_queue_pair(route)),
            Step::Pending(step) => Waiting::Resolving(step),
        },
        Waiting::Connecting(step) => match step.poll().expect("a connection") {
            Step::Done(connection) => Waiting::Connected(connection),
            Step::Pending(step) => Waiting::Connecting(step),
        },
        Waiting::Accepting(step) => match step.poll().expect("a connection") {
            Step::Done(connection) => Waiting::Connected(connection),
            Step::Pending(step) => Waiting::Accepting(step),
        },
        Waiting::Connected(connection) => {
            while connection.poll_event().expect("no error").is_some() {}
            Waiting::Connected(connection)
        }
    }
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f59_many_connections_share_one_descriptor_and_one_thread() {
    const CLIENTS: usize = 8;
    let mut all = Loop::new();
    (0..CLIENTS).for_each(|_| all.connect());
    while all.connected() < 2 * CLIENTS {
        all.turn();
    }
    // One of them ends; its peer hears of it, and no other does.
    let token = *all.steps.keys().next().expect("there are some");
    let Some(Waiting::Connected(gone)) = all.steps.remove(&token) else { panic!("connected") };
    let peer = gone.peer_addr();
    drop(gone);
    let ended = |all: &Loop| -> Vec<SocketAddr> {
        let connections = all.steps.values().filter_map(|step| match step {
            Waiting::Connected(connection) if connection.has_ended() => Some(connection),
            _ => None,
        });
        connections.map(Connection::local_addr).collect()
    };
    while ended(&all).is_empty() {
        all.turn();
    }
    assert_eq!(ended(&all), [peer]);
    let began = Instant::now();
    drop(all);
    assert!(began.elapsed() < PROMPT, "{:?}", began.elapsed());
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f47_events_of_what_was_dropped_trouble_nobody() {
    let mut all = Loop::new();
    for _ in 0..4 {
        all.connect();
    }
    // Two are given up in the middle of it, with events under way.
    let tokens: Vec<_> = all.steps.keys().copied().take(2).collect();
    tokens.iter().for_each(|token| drop(all.steps.remove(token)));
    while all.connected() < 4 {
        all.turn();
    }
    assert_eq!(all.steps.len(), 4);
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f46_a_listener_goes_with_the_requests_that_nobody_took() {
    let mut all = Loop::new();
    all.connect();
    // Until the client has asked, and the request lies in the listener's box. It may come in the same
    // breath as the step before it.
    let mut asked = false;
    while !asked {
        readable(&all.channel);
        while let Some(token) = all.channel.poll_token().expect("events") {
            asked |= token == all.listener.token();
            if let Some(step) = all.steps.remove(&token) {
                all.steps.insert(token, advance(step));
            }
        }
    }
    let Loop { channel, listener, steps } = all;
    let began = Instant::now();
    drop(listener);
    assert!(began.elapsed() < PROMPT, "{:?}", began.elapsed());
    let Some(Waiting::Connecting(step)) = steps.into_values().next() else { panic!("connecting") };
    let refused = step.wait(PATIENCE).map(drop);
    assert!(
        matches!(refused, Err(ConnectError::Rejected { .. } | ConnectError::Refused { .. })),
        "{refused:?}"
    );
    drop(channel);
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f59_a_request_moves_to_the_channel_of_who_will_serve_it() {
    let shared = EventChannel::new().expect("a channel");
    let listener = ListenOptions::new().on(&shared).bind(address()).expect("a listener");
    let peer = listener.local_addr();
    let client = thread::spawn(move || {
        let mut route = Connector::new().resolve(peer, PATIENCE).expect("a route");
        let other = EventChannel::new().expect("a channel");
        route.move_to(&other).expect("it can");
        with_queue_pair(route).wait(PATIENCE).expect("a connection")
    });
    let mut request = listener.accept(PATIENCE).expect("a request");
    let own = EventChannel::new().expect("a channel");
    request.move_to(&own).expect("it can");
    let domain = request.device().domain().expect("a domain");
    let (send, recv) = queues(request.device());
    let incoming = request.create_queue_pair(&domain, &send, &recv, options()).expect("a pair");
    let token = incoming.token();
    let accepting = incoming.start(&ConnectParams::new()).expect("it begins");
    readable(&own);
    assert_eq!(own.poll_token().expect("events"), Some(token));
    let server = accepting.wait(PATIENCE).expect("a connection");
    assert_eq!(shared.poll_token().expect("events"), None, "nothing comes there any more");
    let client = client.join().expect("the client ends well");
    client.disconnect().expect("it can");
    readable(&own);
    assert_eq!(server.poll_event(), Ok(Some(ConnectionEvent::Disconnected)));
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn two_threads_may_wait_on_one_channel() {
    let channel = EventChannel::new().expect("a channel");
    let listener = ListenOptions::new().on(&channel).bind(address()).expect("a listener");
    let peer = listener.local_addr();
    let connector = Connector::new().on(&channel);
    let client = thread::spawn(move || {
        let route = connector.resolve(peer, PATIENCE).expect("a route");
        with_queue_pair(route).wait(PATIENCE).expect("a connection")
    });
    let request = listener.accept(PATIENCE).expect("a request");
    let domain = request.device().domain().expect("a domain");
    let (send, recv) = queues(request.device());
    let incoming = request.create_queue_pair(&domain, &send, &recv, options()).expect("a pair");
    incoming.accept(&ConnectParams::new(), PATIENCE).expect("a connection");
    client.join().expect("the client ends well");
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn ipv6_alone_leaves_the_port_to_ipv4() {
    let any4 = |port| SocketAddr::from(([0, 0, 0, 0], port));
    let any6 = "[::]:0".parse().expect("an address");
    let six = ListenOptions::new().ipv6_only().bind(any6).expect("a listener");
    let port = six.local_addr().port();
    Listener::bind(any4(port)).expect("IPv4 is free");
    let both = ListenOptions::new().bind(any6).expect("a listener");
    let addr = any4(both.local_addr().port());
    assert_eq!(Listener::bind(addr).map(drop), Err(BindError::AddressInUse { addr }));
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn options_are_taken() {
    let listener = ListenOptions::new().backlog(4).tos(0x20).reuse_addr();
    let listener = listener.bind(address()).expect("a listener");
    let timeout = AckTimeout::code(14).expect("in range");
    let connector = Connector::new().tos(0x20).ack_timeout(timeout).reuse_addr();
    let route = connector.resolve(listener.local_addr(), PATIENCE).expect("a route");
    let client = thread::spawn(move || with_queue_pair(route).wait(PATIENCE).expect("connected"));
    let request = listener.accept(PATIENCE).expect("a request");
    let domain = request.device().domain().expect("a domain");
    let (send, recv) = queues(request.device());
    let incoming = request.create_queue_pair(&domain, &send, &recv, options()).expect("a pair");
    incoming.accept(&ConnectParams::new(), PATIENCE).expect("a connection");
    let client = client.join().expect("the client ends well");
    assert_eq!(client.queue_pair().view().expect("a view").ack_timeout, 14);
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn a_refusal_over_a_vendors_options_arrives() {
    let listener = Listener::bind(address()).expect("a listener");
    let peer = listener.local_addr();
    let client = thread::spawn(move || {
        let route = Connector::new().resolve(peer, PATIENCE).expect("a route");
        with_queue_pair(route).wait(PATIENCE).map(drop)
    });
    let request = listener.accept(PATIENCE).expect("a request");
    assert_eq!(request.offered_options(), None, "rxe has none");
    request.reject_options(b"no options").expect("it can be said");
    let refused = client.join().expect("the client ends well");
    // IB_CM_REJ_VENDOR_OPTION_NOT_SUPPORTED
    assert_eq!(refused, Err(ConnectError::Refused { peer, reason: 35 }));
}
