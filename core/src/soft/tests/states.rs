//! States, failure, flush, destruction.

use super::bed::*;
use super::std::vec::Vec;
use crate::abi::opcode;
use crate::soft::{ControlError, Profile, QpConfig, QueuePairError, State};

#[test]
fn receives_are_taken_from_init_on_and_sends_when_ready() {
    let device = device(Profile::STRICT);
    let mut bed = Bed::unconnected(&device, |config| config.in_reset());
    assert_eq!(bed.b.control.state(), State::Reset);
    assert_eq!((bed.receive(1, 8), bed.send(1, 8, 0)), (22, 22));
    bed.b.control.init().unwrap();
    bed.a.control.init().unwrap();
    assert_eq!((bed.receive(1, 8), bed.send(1, 8, 0)), (0, 22));
    bed.a.control.ready_to_receive(&bed.b.control).unwrap();
    bed.b.control.ready_to_receive(&bed.a.control).unwrap();
    assert_eq!((bed.receive(2, 8), bed.send(1, 8, 0)), (0, 22));
    bed.a.control.ready_to_send().unwrap();
    assert_eq!(bed.send(3, 8, SIGNALED), 0);
    assert_eq!(bed.ids_and_statuses_at_b(), [(1, 0)], "ready to receive is enough");
    assert_eq!(bed.ids_and_statuses_at_a(), [(3, 0)]);
}

#[test]
fn a_wrong_step_is_refused_with_the_state() {
    let device = device(Profile::STRICT);
    let bed = Bed::unconnected(&device, |config| config);
    let wrong = Err(ControlError::WrongState(State::Init));
    assert_eq!(bed.a.control.init(), wrong);
    assert_eq!(bed.a.control.ready_to_send(), wrong);
    bed.a.control.connect(&bed.b.control).unwrap();
    let wrong = Err(ControlError::WrongState(State::ReadyToSend));
    assert_eq!(bed.a.control.connect(&bed.b.control), wrong);
    bed.a.control.disconnect();
    let wrong = Err(ControlError::WrongState(State::Error));
    assert_eq!(bed.a.control.ready_to_receive(&bed.b.control), wrong);
    let other = device_of_its_own();
    let stranger = Bed::unconnected(&other, |config| config);
    assert_eq!(bed.b.control.connect(&stranger.b.control), Err(ControlError::OtherDevice));
}

fn device_of_its_own() -> Dev {
    device(Profile::STRICT)
}

#[test]
fn a_send_before_it_is_ready_goes_out_later_on_some_devices() {
    let device = device(Profile::rxe());
    let mut bed = Bed::unconnected(&device, |config| config);
    let list = [bed.sge(0, 8)];
    let wr = send_wr(1, opcode::SEND, &list, SIGNALED);
    assert_eq!(post(&mut bed.a.send, &mut [wr]), (22, None), "nothing is named");
    bed.receive(2, 8);
    bed.a.control.connect(&bed.b.control).unwrap();
    assert_eq!(bed.ids_and_statuses_at_a(), [(1, 0)]);
    assert_eq!(bed.ids_and_statuses_at_b(), [(2, 0)]);
}

#[test]
fn a_disconnect_flushes_each_request_once_signaled_or_not() {
    let device = device(Profile::STRICT);
    let mut bed = Bed::new(&device);
    bed.a.control.hold_acks(true);
    bed.receive(100, 8);
    for id in 0..4 {
        bed.send(id, 8, if id % 2 == 0 { SIGNALED } else { 0 });
    }
    let list = [bed.sge(2048, 8)];
    let mut requests: Vec<_> = (10..13).map(|id| recv_wr(id, &list)).collect();
    post_recv(&mut bed.a.recv, &mut requests);
    assert_eq!(bed.ids_and_statuses_at_b(), [(100, 0)]);
    bed.a.control.disconnect();
    assert_eq!(bed.a.control.state(), State::Error);
    assert_eq!(bed.b.control.state(), State::ReadyToSend, "the peer is not told");
    let flushed = [(0, 5), (1, 5), (2, 5), (3, 5), (10, 5), (11, 5), (12, 5)];
    assert_eq!(bed.ids_and_statuses_at_a(), flushed);
    assert!(poll(&mut bed.at_a).is_empty());
}

#[test]
fn posts_in_the_error_state_are_taken_and_flushed() {
    let device = device(Profile::STRICT);
    let mut bed = Bed::new(&device);
    bed.a.control.disconnect();
    bed.b.control.disconnect();
    assert_eq!((bed.send(1, 8, 0), bed.receive(2, 8)), (0, 0));
    assert_eq!(bed.ids_and_statuses_at_a(), [(1, 5)]);
    assert_eq!(bed.ids_and_statuses_at_b(), [(2, 5)]);
}

#[test]
fn receives_posted_in_the_error_state_are_forgotten_on_some_devices() {
    let device = device(Profile::rxe());
    let mut bed = Bed::new(&device);
    bed.receive(1, 8);
    bed.b.control.disconnect();
    bed.receive(2, 8);
    assert_eq!(bed.ids_and_statuses_at_b(), [(1, 5)]);
}

#[test]
fn a_failure_in_the_middle_ends_what_is_before_it_well_and_flushes_what_is_behind() {
    let device = device(Profile::STRICT);
    let mut bed = Bed::new(&device);
    for id in 0..5 {
        bed.receive(id, 8);
    }
    let list = [bed.sge(0, 8)];
    let bad = [crate::abi::Sge { lkey: NO_KEY, ..bed.sge(0, 8) }];
    let mut requests = [
        send_wr(0, opcode::SEND, &list, SIGNALED),
        send_wr(1, opcode::SEND, &list, 0),
        send_wr(2, opcode::SEND, &bad, 0),
        send_wr(3, opcode::SEND, &list, 0),
        send_wr(4, opcode::SEND, &list, SIGNALED),
    ];
    post(&mut bed.a.send, &mut requests);
    assert_eq!(bed.ids_and_statuses_at_a(), [(0, 0), (2, 4), (3, 5), (4, 5)]);
    assert_eq!(bed.ids_and_statuses_at_b(), [(0, 0), (1, 0)]);
}

#[test]
fn a_peer_that_failed_or_is_gone_is_given_its_retries() {
    for (count, is_gone) in [(0, false), (3, true), (7, false), (7, true)] {
        let device = device(Profile::STRICT);
        let mut bed = Bed::with(&device, |config| config.retry(count));
        bed.receive(9, 8);
        bed.b.control.disconnect();
        assert_eq!(bed.ids_and_statuses_at_b(), [(9, 5)]);
        let Bed { mut a, b, mut at_a, region, .. } = bed;
        if is_gone {
            b.control.destroy();
        }
        let list = [piece(region.slice(0, 8).unwrap())];
        post(&mut a.send, &mut [send_wr(1, opcode::SEND, &list, 0)]);
        for _ in 0..count {
            device.progress();
        }
        assert!(at_a.is_idle());
        device.progress();
        assert_eq!(ids_and_statuses(&mut at_a), [(1, 12)]);
    }
}

#[test]
fn a_retry_count_of_seven_is_for_ever_on_some_devices() {
    let device = device(Profile::rxe());
    let mut bed = Bed::new(&device);
    bed.b.control.disconnect();
    bed.send(1, 8, 0);
    bed.steps(if cfg!(miri) { 100 } else { 1000 });
    assert!(poll(&mut bed.at_a).is_empty());
}

#[test]
fn a_destroyed_queue_pair_refuses_posts_and_gives_no_completion() {
    let device = device(Profile::STRICT);
    let bed = Bed::new(&device);
    let Bed { mut a, mut at_a, region, mut b, .. } = bed;
    let list = [piece(region.slice(0, 8).unwrap())];
    let wr = send_wr(1, opcode::SEND, &list, SIGNALED);
    let receive = recv_wr(1, &list);
    post(&mut a.send, &mut [wr]);
    a.control.destroy();
    post_recv(&mut b.recv, &mut [receive]);
    assert!(poll(&mut at_a).is_empty());
    assert_eq!(post(&mut a.send, &mut [wr]), (22, Some(0)));
    assert_eq!(post_recv(&mut a.recv, &mut [receive]), (22, Some(0)));
}

#[test]
fn completions_outlive_their_queue_pair_and_its_place_waits_for_them() {
    let device = device(Profile::STRICT);
    let mut bed = Bed::new(&device);
    bed.receive(1, 8);
    bed.send(2, 8, SIGNALED);
    bed.steps(1);
    let Bed { a, mut at_a, at_b, b, domain, .. } = bed;
    let number = a.control.number();
    let config = QpConfig::new(domain);
    let c = device.queue_pair(config, &at_b, &at_b).unwrap();
    let d = device.queue_pair(config, &at_b, &at_b).unwrap();
    a.control.destroy();
    let full = |result: Result<Qp<'_>, _>| assert_eq!(result.unwrap_err(), QueuePairError::NoRoom);
    full(device.queue_pair(config, &at_b, &at_b));
    drop((a.send, a.recv));
    full(device.queue_pair(config, &at_b, &at_b));
    assert_eq!(ids_and_statuses(&mut at_a), [(2, 0)]);
    let next = device.queue_pair(config, &at_b, &at_b).unwrap();
    assert_ne!(next.control.number(), number, "a number is not used again soon");
    drop((b, c, d));
}

#[test]
fn a_new_queue_pair_starts_clean_where_an_old_one_was() {
    let device = device(Profile::STRICT);
    for _ in 0..if cfg!(miri) { 8 } else { 20 } {
        let mut bed = Bed::with(&device, |config| config.send_depth(2).recv_depth(2));
        bed.receive(1, 8);
        bed.receive(2, 8);
        assert_eq!((bed.send(3, 8, 0), bed.send(4, 8, SIGNALED), bed.send(5, 8, 0)), (0, 0, 12));
        assert_eq!(bed.ids_and_statuses_at_b(), [(1, 0), (2, 0)]);
        assert_eq!(bed.ids_and_statuses_at_a(), [(4, 0)]);
        bed.send(6, 8, 0);
        device.deregister(bed.region.registration());
    }
}

#[test]
fn numbers_are_used_again_at_once_on_some_devices() {
    let device = device(Profile::STRICT.reuses_numbers(true));
    let bed = Bed::new(&device);
    let number = bed.a.control.number();
    let Bed { a, at_a, domain, .. } = bed;
    a.control.destroy();
    let next = device.queue_pair(QpConfig::new(domain), &at_a, &at_a).unwrap();
    assert_eq!(next.control.number(), number);
    drop((a.send, a.recv));
}
