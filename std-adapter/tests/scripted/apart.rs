//! Queue pairs beside the identifier: moved by the adapter, and told of to the connection manager.

use std::sync::Arc;
use std::time::Duration;

use nanoverbs::cm::{
    AcceptError, ConnectError, ConnectParams, Connection, ConnectionEvent, EventChannel,
    ListenOptions, Listener, Outgoing, ReadDepths, Request, RnrTimer, Step,
};
use nanoverbs::{CompletionQueue, Device, QueuePairError, QueuePairOptions};

use crate::connections::{PATIENCE, kind, route};
use crate::script::{Handle, Move, Script};

const INIT: u32 = 1;
const READY_TO_RECEIVE: u32 = 2;
const READY_TO_SEND: u32 = 3;
const ERROR: u32 = 6;
const CONNECT_RESPONSE: u32 = 5;

fn apart() -> QueuePairOptions {
    QueuePairOptions::new(4, 4).apart()
}

fn queue(device: &Arc<Device>) -> Arc<CompletionQueue> {
    CompletionQueue::new(device, 8, None).expect("a completion queue")
}

fn outgoing(channel: &EventChannel) -> Outgoing {
    let route = route(1, channel);
    let domain = route.device().domain().expect("a domain");
    let (send, recv) = (queue(route.device()), queue(route.device()));
    route.create_queue_pair(&domain, &send, &recv, apart()).expect("a queue pair")
}

fn params() -> ConnectParams {
    ConnectParams::new().rnr_timer(timer()).reads(3, 5)
}

fn timer() -> RnrTimer {
    RnrTimer::at_least(Duration::from_millis(1))
}

/// A request, with the channel's listener and its identifier.
fn request(channel: &EventChannel) -> (Listener, Request, Handle) {
    let listener = ListenOptions::new().on(channel).bind(Script::addr(1, 7471)).expect("one");
    let peer = Script::request(Script::last("rdma_listen"), b"hello");
    let request = listener.accept(PATIENCE).expect("a request");
    (listener, request, peer)
}

fn states(moves: &[Move]) -> Vec<Option<u32>> {
    moves.iter().map(|it| it.state).collect()
}

#[test]
fn a_client_s_queue_pair_is_ready_before_its_peer_is_told() {
    let script = Script::new();
    let channel = EventChannel::new().expect("a channel");
    let pending = outgoing(&channel);
    assert_eq!(states(&Script::moves(0)), [Some(INIT)], "receives can be posted");
    let step = pending.start(&params()).expect("it begins");
    let id = Script::last("rdma_connect");
    let Ok(Step::Pending(step)) = step.poll() else { panic!("nobody has answered") };
    assert_eq!(Script::moves(0).len(), 1);
    Script::event(id, CONNECT_RESPONSE, 0, b"welcome");
    let Ok(Step::Done(connection)) = step.poll() else { panic!("the peer has answered") };
    let moves = Script::moves(0);
    // And nothing else: some devices do not let the timer be changed once it is ready to send.
    assert_eq!(states(&moves), [INIT, INIT, READY_TO_RECEIVE, READY_TO_SEND].map(Some));
    // The timer from the first moment; READs as the connection manager has them.
    assert_eq!((moves[2].min_rnr_timer, moves[2].reads_in), (Some(timer().code()), Some(16)));
    assert_eq!(moves[3].reads_out, Some(16));
    assert!(Script::was_called(id, "rdma_establish"));
    assert_eq!(connection.reads(), ReadDepths { reads_out: 3, reads_in: 5 });
    assert_eq!(connection.rnr_timer(), Some(timer()));
    let data = connection.private_data().expect("an answer has data");
    assert_eq!(&data.as_bytes()[..7], b"welcome");
    ends(connection, id, &channel);
    drop(channel);
    script.finish();
}

#[test]
fn a_server_s_queue_pair_is_ready_when_it_accepts() {
    let script = Script::new();
    let channel = EventChannel::new().expect("a channel");
    let (listener, request, id) = request(&channel);
    let domain = request.device().domain().expect("a domain");
    let (send, recv) = (queue(request.device()), queue(request.device()));
    let pending = request.create_queue_pair(&domain, &send, &recv, apart()).expect("a queue pair");
    // The false library complains when it is accepted in another state than ready to send.
    let step = pending.start(&params()).expect("it begins");
    let moves = Script::moves(0);
    assert_eq!(states(&moves), [INIT, INIT, READY_TO_RECEIVE, READY_TO_SEND].map(Some));
    assert_eq!((moves[2].min_rnr_timer, moves[2].reads_in), (Some(timer().code()), Some(5)));
    assert_eq!(moves[3].reads_out, Some(3));
    Script::event(id, kind::ESTABLISHED, 0, &[]);
    let Ok(Step::Done(connection)) = step.poll() else { panic!("it was confirmed") };
    assert!(!Script::was_called(id, "rdma_establish"), "that is for who has asked");
    ends(connection, id, &channel);
    drop((listener, send, recv, domain, channel));
    script.finish();
}

/// It ends as any other does: by this side, and by the peer.
fn ends(connection: Connection, id: Handle, channel: &EventChannel) {
    connection.disconnect().expect("it can");
    assert_eq!(Script::queue_pair_state(0), ERROR);
    assert!(Script::was_called(id, "rdma_disconnect"));
    Script::event(id, kind::DISCONNECTED, 0, &[]);
    assert_eq!(connection.poll_event(), Ok(Some(ConnectionEvent::Disconnected)));
    drop(connection);
    let step = outgoing(channel).start(&params()).expect("it begins");
    let id = Script::last("rdma_connect");
    Script::event(id, CONNECT_RESPONSE, 0, &[]);
    let Ok(Step::Done(connection)) = step.poll() else { panic!("the peer has answered") };
    Script::event(id, kind::DISCONNECTED, 0, &[]);
    assert_eq!(connection.wait_ended(PATIENCE), Ok(true));
    assert_eq!(Script::queue_pair_state(1), ERROR);
}

#[test]
fn a_device_that_refuses_a_state_is_named_and_nobody_is_told_that_it_stands() {
    for refused in [READY_TO_RECEIVE, READY_TO_SEND] {
        let script = Script::new();
        let channel = EventChannel::new().expect("a channel");
        Script::refuse_state(refused);
        let step = outgoing(&channel).start(&params()).expect("it begins");
        let id = Script::last("rdma_connect");
        Script::event(id, CONNECT_RESPONSE, 0, &[]);
        let error = step.poll().map(drop).expect_err("the device says no");
        let ConnectError::Call(error) = error else { panic!("{error}") };
        assert_eq!((error.call(), error.errno()), ("ibv_modify_qp", libc::EINVAL));
        assert!(!Script::was_called(id, "rdma_establish"));

        let (listener, request, id) = request(&channel);
        let domain = request.device().domain().expect("a domain");
        let (send, recv) = (queue(request.device()), queue(request.device()));
        let pending = request.create_queue_pair(&domain, &send, &recv, apart()).expect("one");
        let error = pending.start(&params()).map(drop).expect_err("the device says no");
        let AcceptError::Call(error) = error else { panic!("{error}") };
        assert_eq!((error.call(), error.errno()), ("ibv_modify_qp", libc::EINVAL));
        assert!(!Script::was_called(id, "rdma_accept"));
        drop((listener, send, recv, domain, channel));
        script.finish();
    }
}

#[test]
fn one_that_cannot_be_made_leaves_nothing_and_takes_no_place() {
    let script = Script::new();
    let channel = EventChannel::new().expect("a channel");
    Script::refuse_state(INIT);
    let at = route(1, &channel);
    let domain = at.device().domain().expect("a domain");
    // Room for one queue pair, and not for two.
    let (send, recv) =
        (queue(at.device()), CompletionQueue::new(at.device(), 4, None).expect("one"));
    let error =
        at.create_queue_pair(&domain, &send, &recv, apart()).expect_err("the device says no");
    let QueuePairError::Call(error) = error else { panic!("{error}") };
    assert_eq!((error.call(), error.errno()), ("ibv_modify_qp", libc::EINVAL));
    Script::refuse_state(ERROR);
    let at = route(1, &channel);
    let pending = at.create_queue_pair(&domain, &send, &recv, apart()).expect("there is room");
    // One that is not connected is dropped, and so is one that waits for its answer.
    drop(pending);
    drop(outgoing(&channel).start(&params()).expect("it begins"));
    drop((send, recv, domain, channel));
    script.finish();
}

#[test]
fn what_is_not_an_answer_ends_or_changes_nothing_as_for_other_queue_pairs() {
    for event in kind::ALL.filter(|event| *event != kind::CONNECT_REQUEST) {
        let script = Script::new();
        let channel = EventChannel::new().expect("a channel");
        let step = outgoing(&channel).start(&params()).expect("it begins");
        Script::event(Script::last("rdma_connect"), event, -19, &[]);
        let came = step.poll();
        match event {
            // iWARP knows no response: the kernel has moved the queue pair.
            CONNECT_RESPONSE | kind::ESTABLISHED => assert!(matches!(came, Ok(Step::Done(_)))),
            kind::CONNECT_ERROR
            | kind::UNREACHABLE
            | kind::REJECTED
            | kind::DISCONNECTED
            | kind::DEVICE_REMOVAL => assert!(came.is_err(), "{event}"),
            _ => assert!(matches!(came, Ok(Step::Pending(_))), "{event}"),
        }
        drop((came, channel));
        script.finish();
    }
}

#[test]
fn on_iwarp_the_kernel_moves_it_when_it_connects_and_ends() {
    let script = Script::new();
    Script::make_iwarp(1);
    let channel = EventChannel::new().expect("a channel");
    let step = outgoing(&channel).start(&params()).expect("it begins");
    let id = Script::last("rdma_connect");
    Script::event(id, kind::ESTABLISHED, 0, &[]);
    let Ok(Step::Done(connection)) = step.poll() else { panic!("it was established") };
    assert!(!Script::was_called(id, "rdma_establish"));
    let before = states(&Script::moves(0));
    connection.disconnect().expect("it can");
    // The error state would cut it off where it shall end in order.
    assert_eq!(states(&Script::moves(0)), before);
    assert!(Script::was_called(id, "rdma_disconnect"));
    drop((connection, channel));
    script.finish();
}
