//! Steps of connections and their events: each of them in each state.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nanoverbs::cm::{
    Accepting, ConnectError, ConnectParams, Connecting, Connection, ConnectionEvent, Connector,
    EventChannel, EventKind, Incoming, ListenOptions, Listener, Outgoing, Resolving, Route, Step,
};
use nanoverbs::endpoint::{Options, Ready, Verbs, WaitError};
use nanoverbs::{CompletionQueue, Device, QueuePairError, QueuePairOptions};
use nanoverbs_core::Block;

use crate::script::{Handle, Script};

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Kinds of event, `rdma_cm_event_type`.
pub(crate) mod kind {
    pub(crate) const ADDR_ERROR: u32 = 1;
    pub(crate) const ROUTE_ERROR: u32 = 3;
    pub(crate) const CONNECT_REQUEST: u32 = 4;
    pub(crate) const CONNECT_ERROR: u32 = 6;
    pub(crate) const UNREACHABLE: u32 = 7;
    pub(crate) const REJECTED: u32 = 8;
    pub(crate) const ESTABLISHED: u32 = 9;
    pub(crate) const DISCONNECTED: u32 = 10;
    pub(crate) const DEVICE_REMOVAL: u32 = 11;
    pub(crate) const TIMEWAIT_EXIT: u32 = 15;
    /// All that there are, and one that there is not.
    pub(crate) const ALL: std::ops::RangeInclusive<u32> = 0..=17;
}

fn options() -> QueuePairOptions {
    QueuePairOptions::new(4, 4)
}

fn queue(device: &Arc<Device>) -> Arc<CompletionQueue> {
    CompletionQueue::new(device, 16, None).expect("a completion queue")
}

pub(crate) fn route(host: u8, channel: &EventChannel) -> Route {
    let connector = Connector::new().on(channel);
    connector.resolve(Script::addr(host, 7471), PATIENCE).expect("a route")
}

pub(crate) fn outgoing(host: u8, channel: &EventChannel) -> Outgoing {
    let route = route(host, channel);
    let domain = route.device().domain().expect("a domain");
    let (send, recv) = (queue(route.device()), queue(route.device()));
    route.create_queue_pair(&domain, &send, &recv, options()).expect("a queue pair")
}

pub(crate) fn connecting(host: u8, channel: &EventChannel) -> (Connecting, Handle) {
    let step = outgoing(host, channel).start(&ConnectParams::new()).expect("it begins");
    (step, Script::last("rdma_connect"))
}

pub(crate) fn connected(host: u8, channel: &EventChannel) -> (Connection, Handle) {
    let (step, id) = connecting(host, channel);
    Script::event(id, kind::ESTABLISHED, 0, &[]);
    (step.wait(PATIENCE).expect("a connection"), id)
}

fn listener(host: u8, channel: &EventChannel) -> (Listener, Handle) {
    let listener = ListenOptions::new().on(channel).bind(Script::addr(host, 7471));
    (listener.expect("a listener"), Script::last("rdma_listen"))
}

fn incoming(host: u8, channel: &EventChannel) -> (Listener, Incoming, Handle) {
    let (listener, id) = listener(host, channel);
    let peer = Script::request(id, b"hello");
    let request = listener.accept(PATIENCE).expect("a request");
    let domain = request.device().domain().expect("a domain");
    let (send, recv) = (queue(request.device()), queue(request.device()));
    let pair = request.create_queue_pair(&domain, &send, &recv, options());
    (listener, pair.expect("a queue pair"), peer)
}

fn accepting(host: u8, channel: &EventChannel) -> (Listener, Accepting, Handle) {
    let (listener, incoming, id) = incoming(host, channel);
    (listener, incoming.start(&ConnectParams::new()).expect("it begins"), id)
}

/// Whether the step is done, pending or has failed, after everything that there is.
fn came<T, S, E: std::fmt::Debug>(step: Result<Step<T, S>, E>) -> (&'static str, Option<T>) {
    match step {
        Ok(Step::Done(it)) => ("done", Some(it)),
        Ok(Step::Pending(_)) => ("pending", None),
        Err(_) => ("failed", None),
    }
}

#[test]
fn f46_nothing_that_is_dropped_waits_for_an_event_that_was_told() {
    let script = Script::new();
    let channel = EventChannel::new().expect("a channel");
    // Told, and not told yet: errors, rejections, ends, requests.
    for told in [false, true] {
        let (connection, id) = connected(1, &channel);
        Script::event(id, kind::DISCONNECTED, 0, &[]);
        if told {
            assert_eq!(connection.poll_event(), Ok(Some(ConnectionEvent::Disconnected)));
        }
        drop(connection);
        let (step, id) = connecting(1, &channel);
        Script::event(id, kind::REJECTED, 28, b"no");
        if told {
            let refused = step.wait(PATIENCE);
            assert!(matches!(refused, Err(ConnectError::Rejected { .. })), "{refused:?}");
        }
        let step = Connector::new().on(&channel).start(Script::addr(1, 1), PATIENCE);
        let step: Resolving = step.expect("it begins");
        Script::event(Script::last("rdma_resolve_addr"), kind::ADDR_ERROR, -113, &[]);
        if told {
            step.wait(PATIENCE).expect_err("an error was told");
        }
        let (listener, id) = listener(1, &channel);
        Script::request(id, b"one");
        Script::request(id, b"two");
        if told {
            drop(listener.accept(PATIENCE).expect("a request"));
        }
    }
    drop(channel);
    script.finish();
}

#[test]
fn f46_moving_to_another_channel_waits_for_no_event_and_takes_them_along() {
    let script = Script::new();
    let (shared, own) = (EventChannel::new().expect("one"), EventChannel::new().expect("two"));
    let (listener, id) = listener(1, &shared);
    let peer = Script::request(id, b"hello");
    // One event of it is fetched and told before it moves, one lies in its box, one is not fetched.
    let mut request = listener.accept(PATIENCE).expect("a request");
    Script::event(peer, kind::TIMEWAIT_EXIT, 0, &[]);
    assert_eq!(shared.poll_token(), Ok(Some(request.token())));
    Script::event(peer, kind::UNREACHABLE, -110, &[]);
    request.move_to(&own).expect("it can");
    assert_eq!(shared.poll_token(), Ok(None), "nothing of it is left there");
    assert_eq!(own.poll_token(), Ok(Some(request.token())));
    drop((request, listener, shared, own));
    script.finish();
}

#[test]
fn f47_each_event_in_each_state_has_one_result_and_none_is_a_panic() {
    let ends = [kind::REJECTED, kind::CONNECT_ERROR, kind::UNREACHABLE, kind::DISCONNECTED];
    for event in kind::ALL.filter(|event| *event != kind::CONNECT_REQUEST) {
        let script = Script::new();
        let channel = EventChannel::new().expect("a channel");
        let removed = event == kind::DEVICE_REMOVAL;

        let step = Connector::new().on(&channel).start(Script::addr(1, 1), PATIENCE);
        let step: Resolving = step.expect("it begins");
        Script::event(Script::last("rdma_resolve_addr"), event, -19, &[]);
        let expected = match event {
            // Its own address and route are found as well, in this world.
            _ if removed => "failed",
            kind::ADDR_ERROR | kind::ROUTE_ERROR => "failed",
            _ => "done",
        };
        assert_eq!(came(step.poll()).0, expected, "resolving, {event}");

        let (step, id) = connecting(1, &channel);
        Script::event(id, event, -19, &[]);
        let expected = match event {
            kind::ESTABLISHED => "done",
            _ if removed || ends.contains(&event) => "failed",
            _ => "pending",
        };
        assert_eq!(came(step.poll()).0, expected, "connecting, {event}");

        let (listener, step, id) = accepting(1, &channel);
        Script::event(id, event, -19, &[]);
        assert_eq!(came(step.poll()).0, expected, "accepting, {event}");
        Script::event(Script::last("rdma_listen"), event, -19, &[]);
        assert_eq!(listener.poll_request().is_err(), removed, "listening, {event}");
        drop(listener);

        // Established, and again when it has ended.
        let (connection, id) = connected(1, &channel);
        let expected = match event {
            kind::DISCONNECTED => ConnectionEvent::Disconnected,
            kind::UNREACHABLE => ConnectionEvent::Unreachable,
            kind::DEVICE_REMOVAL => ConnectionEvent::DeviceRemoved,
            _ => connection_event(event),
        };
        for has_ended in [removed || event == kind::DISCONNECTED, true] {
            Script::event(id, event, -19, &[]);
            assert_eq!(connection.poll_event(), Ok(Some(expected)), "connected, {event}");
            assert_eq!(connection.has_ended(), has_ended, "connected, {event}");
            Script::event(id, kind::DISCONNECTED, 0, &[]);
            while connection.poll_event().expect("no error").is_some() {}
        }
        drop((connection, channel));
        script.finish();
    }
}

/// The event of an established connection that is none of the three that mean something.
fn connection_event(event: u32) -> ConnectionEvent {
    let kinds = [
        EventKind::AddressResolved,
        EventKind::AddressError,
        EventKind::RouteResolved,
        EventKind::RouteError,
        EventKind::ConnectRequest,
        EventKind::ConnectResponse,
        EventKind::ConnectError,
        EventKind::Unreachable,
        EventKind::Rejected,
        EventKind::Established,
        EventKind::Disconnected,
        EventKind::DeviceRemoved,
        EventKind::MulticastJoined,
        EventKind::MulticastError,
        EventKind::AddressChanged,
        EventKind::TimewaitExit,
    ];
    ConnectionEvent::Other(kinds.get(event as usize).copied().unwrap_or(EventKind::Other(event)))
}

#[test]
fn f40_a_goodbye_is_told_from_a_removed_device_whichever_comes_first() {
    let script = Script::new();
    for (first, second, expected) in [
        (kind::DISCONNECTED, kind::DEVICE_REMOVAL, WaitError::Disconnected),
        (kind::DEVICE_REMOVAL, kind::DISCONNECTED, WaitError::Broken),
    ] {
        let channel = EventChannel::new().expect("a channel");
        let options = Options::new().depth(4, 4).blocks(8, 64);
        let prepared = options.connect_route::<Block>(route(1, &channel)).expect("an endpoint");
        let step = prepared.no_receives().start().expect("it begins");
        let id = Script::last("rdma_connect");
        Script::event(id, kind::ESTABLISHED, 0, &[]);
        let Ok(Step::Done(mut endpoint)) = step.poll() else { panic!("it was established") };
        assert_eq!(endpoint.end(), None);
        // Both are there before anybody looks.
        Script::event(id, first, 0, &[]);
        Script::event(id, second, 0, &[]);
        assert_eq!(endpoint.end(), Some(expected));
        assert_eq!(endpoint.recv_completion(PATIENCE).map(drop), Err(expected));
        drop((endpoint, channel));
    }
    script.finish();
}

#[test]
fn f47_events_of_what_is_gone_reach_nobody() {
    let script = Script::new();
    let channel = EventChannel::new().expect("a channel");
    let (gone, id) = connected(1, &channel);
    let (stays, other) = connected(1, &channel);
    gone.disconnect().expect("it can");
    Script::event(id, kind::DISCONNECTED, 0, &[]);
    Script::event(other, kind::UNREACHABLE, -110, &[]);
    Script::event(id, kind::TIMEWAIT_EXIT, 0, &[]);
    // One of its events is fetched already, another is on its way.
    assert_eq!(channel.poll_token(), Ok(Some(gone.token())));
    drop(gone);
    assert_eq!(channel.poll_token(), Ok(Some(stays.token())));
    assert_eq!(stays.poll_event(), Ok(Some(ConnectionEvent::Unreachable)));
    assert_eq!(channel.poll_token(), Ok(None));
    drop((stays, channel));
    script.finish();
}

#[test]
fn f47_a_peer_that_was_lost_sight_of_is_not_taken_for_one_that_has_gone() {
    let script = Script::new();
    let channel = EventChannel::new().expect("a channel");
    let (connection, id) = connected(1, &channel);
    Script::event(id, kind::UNREACHABLE, -110, &[]);
    assert_eq!(connection.poll_event(), Ok(Some(ConnectionEvent::Unreachable)));
    assert!(!connection.has_ended());
    assert_eq!(connection.wait_ended(Duration::from_millis(1)), Ok(false));
    // TIMEWAIT_EXIT alone ends nothing; and the end is not waited for by its help.
    Script::event(id, kind::DISCONNECTED, 0, &[]);
    assert_eq!(connection.wait_ended(PATIENCE), Ok(true));
    assert_eq!(Script::queue_pair_state(0), 6, "flushed from here on");
    drop((connection, channel));
    script.finish();
}

#[test]
fn f49_private_data_is_copied_before_its_event_is_acknowledged() {
    let script = Script::new();
    let channel = EventChannel::new().expect("a channel");
    let (listener, incoming, _) = incoming(1, &channel);
    assert_eq!(incoming.request().private_data().as_bytes(), b"hello");
    let (step, id) = connecting(1, &channel);
    Script::event(id, kind::REJECTED, 28, &[7; 148]);
    let Err(ConnectError::Rejected { private_data: Some(data), .. }) = step.wait(PATIENCE) else {
        panic!("it was rejected")
    };
    assert_eq!(data.as_bytes(), [7; 148]);
    // An event of a kind that carries none, whatever lies in its place.
    let (step, id) = connecting(1, &channel);
    Script::event(id, kind::UNREACHABLE, -110, &[7; 9]);
    let unreachable = ConnectError::Unreachable { peer: Script::addr(1, 7471) };
    assert_eq!(step.wait(PATIENCE).map(drop), Err(unreachable));
    drop((incoming, listener, channel));
    script.finish();
}

#[test]
fn f55_a_domain_of_another_device_or_a_device_that_is_none_is_refused() {
    let script = Script::new();
    let channel = EventChannel::new().expect("a channel");
    let (here, there) = (route(1, &channel), route(2, &channel));
    let domain = there.device().domain().expect("a domain");
    let (send, recv) = (queue(here.device()), queue(here.device()));
    let refused = here.create_queue_pair(&domain, &send, &recv, options());
    assert!(matches!(refused, Err(QueuePairError::WrongDevice)), "{refused:?}");
    // An address that resolves, and has no device that this library could use.
    let nowhere: SocketAddr = "10.9.9.9:1".parse().expect("an address");
    let refused = Connector::new().on(&channel).resolve(nowhere, PATIENCE).expect_err("no device");
    assert!(refused.to_string().starts_with("no RDMA device leads to 10.9.9.9; "), "{refused}");
    drop((there, domain, send, recv, channel));
    script.finish();
}

#[test]
fn f59_steps_that_share_a_channel_take_their_own_events_and_no_others() {
    let script = Script::new();
    let channel = EventChannel::new().expect("a channel");
    let (first, one) = connecting(1, &channel);
    let (second, two) = connecting(2, &channel);
    let (third, three) = connecting(1, &channel);
    // Answers come in another order than the questions, and who is asked first fetches all.
    Script::event(three, kind::ESTABLISHED, 0, &[]);
    Script::event(one, kind::REJECTED, 28, b"one");
    Script::event(two, kind::ESTABLISHED, 0, &[]);
    let second = second.wait(PATIENCE).expect("a connection");
    assert!(matches!(first.wait(PATIENCE), Err(ConnectError::Rejected { .. })));
    let third = third.wait(PATIENCE).expect("a connection");
    assert_eq!((second.poll_event(), third.poll_event()), (Ok(None), Ok(None)), "told once");
    drop((second, third, channel));
    script.finish();
}

#[test]
fn f59_every_kind_of_bad_news_wakes_who_waits_and_a_channel_lasts_as_long_as_a_waiter() {
    for bad in [
        kind::REJECTED,
        kind::CONNECT_ERROR,
        kind::UNREACHABLE,
        kind::DISCONNECTED,
        kind::DEVICE_REMOVAL,
    ] {
        let script = Script::new();
        let channel = EventChannel::new().expect("a channel");
        let (step, id) = connecting(1, &channel);
        // The last handle but the waiter's.
        drop(channel);
        let began = Instant::now();
        let waiter = thread::spawn(move || step.wait(PATIENCE).map(drop));
        Script::event(id, bad, -19, &[]);
        let result = waiter.join().expect("it ends well");
        assert!(result.is_err() && began.elapsed() < PATIENCE, "{bad}: {result:?}");
        script.finish();
    }
}

#[test]
fn f59_who_waits_alone_is_woken_for_what_somebody_else_has_fetched() {
    let script = Script::new();
    let channel = EventChannel::new().expect("a channel");
    let bind = || ListenOptions::new().on(&channel).bind(Script::addr(1, 7471));
    let listener = bind().expect("a listener");
    let id = Script::last("rdma_listen");
    let began = Instant::now();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| listener.accept(PATIENCE).map(drop));
        // It sleeps; whoever fetches right behind the event is faster than who has to wake.
        thread::sleep(Duration::from_millis(50));
        Script::request(id, b"");
        let _ = channel.poll_token().expect("events");
        assert_eq!(waiter.join().expect("it ends well"), Ok(()));
    });
    assert!(began.elapsed() < PATIENCE / 2, "it slept on for {:?}", began.elapsed());
    drop((listener, channel));
    script.finish();
}

#[test]
fn f35_a_readable_descriptor_may_have_nothing_for_who_asks() {
    let script = Script::new();
    let channel = EventChannel::new().expect("a channel");
    let (first, id) = connecting(1, &channel);
    let (second, _) = connecting(1, &channel);
    Script::event(id, kind::ESTABLISHED, 0, &[]);
    let mut polled =
        libc::pollfd { fd: channel.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, of an open descriptor.
    assert_eq!(unsafe { libc::poll(&raw mut polled, 1, 0) }, 1);
    // Another step asks first: nothing for it, and nothing is lost.
    let Ok(Step::Pending(second)) = second.poll() else { panic!("no event of its own") };
    // SAFETY: as above.
    assert_eq!(unsafe { libc::poll(&raw mut polled, 1, 0) }, 0, "it was fetched");
    assert_eq!(channel.poll_token(), Ok(Some(first.token())));
    assert!(matches!(first.poll(), Ok(Step::Done(_))));
    // A deadline is kept, however often something else comes in between.
    let began = Instant::now();
    let timed_out = second.wait(Duration::from_millis(30)).map(drop);
    assert!(matches!(timed_out, Err(ConnectError::TimedOut { .. })), "{timed_out:?}");
    assert!(began.elapsed() >= Duration::from_millis(30));
    drop(channel);
    script.finish();
}

#[test]
fn f59_an_endpoint_is_connected_without_a_call_that_blocks() {
    let script = Script::new();
    let channel = EventChannel::new().expect("a channel");
    let options = Options::new().depth(4, 4).blocks(8, 64);
    let ready = |options: Options, at: Route| -> Ready<Verbs, Block> {
        options.connect_route(at).expect("an endpoint").receives(2).expect("receives")
    };
    let step = ready(options, route(1, &channel)).start().expect("it begins");
    let id = Script::last("rdma_connect");
    let Ok(Step::Pending(step)) = step.poll() else { panic!("nobody has answered") };
    Script::event(id, kind::ESTABLISHED, 0, &[]);
    assert_eq!(channel.poll_token(), Ok(step.token()));
    let Ok(Step::Done(mut endpoint)) = step.poll() else { panic!("it was established") };
    assert_eq!(
        (endpoint.receives_posted(), endpoint.reads(), endpoint.has_ended()),
        (2, (16, 0), false)
    );
    // A refusal, and one that is given up: their receives are given back with their memory.
    let step = ready(options, route(1, &channel)).start().expect("it begins");
    Script::event(Script::last("rdma_connect"), kind::REJECTED, 28, &[]);
    step.poll().expect_err("it was rejected");
    drop(ready(options, route(1, &channel)).start().expect("it begins"));
    drop((endpoint, channel));
    script.finish();
}
