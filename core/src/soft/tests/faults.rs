//! Faults to order, and what completions look like.

use super::bed::*;
use super::std::vec;
use crate::abi::{Wc, WcStatus, opcode, wc_flags};
use crate::port::PollPort;
use crate::soft::{FailedFields, PostFault, Profile};

#[test]
fn held_answers_keep_completions_back_but_not_messages() {
    let device = device(Profile::STRICT);
    let mut bed = Bed::new(&device);
    bed.a.control.hold_acks(true);
    bed.receive(1, 8);
    bed.receive(2, 8);
    bed.send(3, 8, SIGNALED);
    bed.send(4, 8, SIGNALED);
    assert_eq!(bed.ids_and_statuses_at_b(), [(1, 0), (2, 0)]);
    assert!(poll(&mut bed.at_a).is_empty());
    bed.a.control.hold_acks(false);
    assert_eq!(bed.ids_and_statuses_at_a(), [(3, 0), (4, 0)]);
}

#[test]
fn a_refusal_is_an_answer_and_is_held_too() {
    let device = device(Profile::STRICT);
    let mut bed = Bed::new(&device);
    bed.a.control.hold_acks(true);
    bed.receive(1, 8);
    bed.receive(2, 4);
    for id in 3..6 {
        bed.send(id, 8, SIGNALED);
    }
    assert_eq!(bed.ids_and_statuses_at_b(), [(1, 0), (2, 1)]);
    assert!(poll(&mut bed.at_a).is_empty());
    bed.a.control.hold_acks(false);
    assert_eq!(bed.ids_and_statuses_at_a(), [(3, 0), (4, 9), (5, 5)]);
}

#[test]
fn a_held_read_lands_late() {
    let device = device(Profile::STRICT);
    let mut bed = Bed::new(&device);
    let there = bed.shared(1);
    bed.a.control.hold_acks(true);
    let list = [bed.sge(2048, 8)];
    post(&mut bed.a.send, &mut [rdma_wr(1, opcode::RDMA_READ, &list, remote(&there, 0))]);
    bed.steps(5);
    assert_eq!(read(bed.slice(2048, 8)), [2; 8]);
    there.write_at(0, &[6; 8]).unwrap();
    bed.a.control.hold_acks(false);
    assert_eq!(bed.ids_and_statuses_at_a(), [(1, 0)]);
    assert_eq!(read(bed.slice(2048, 8)), [6; 8]);
}

#[test]
fn held_flushes_come_when_they_are_let_go() {
    let device = device(Profile::STRICT);
    let mut bed = Bed::new(&device);
    bed.a.control.hold_flushes(true);
    bed.send(1, 8, 0);
    bed.a.control.disconnect();
    bed.steps(10);
    assert!(poll(&mut bed.at_a).is_empty());
    bed.a.control.hold_flushes(false);
    assert_eq!(bed.ids_and_statuses_at_a(), [(1, 5)]);
}

#[test]
fn a_cut_line_ends_in_silence_and_can_be_mended_in_time() {
    let device = device(Profile::STRICT);
    for cut_at_a in [false, true] {
        let mut bed = Bed::with(&device, |config| config.retry(6));
        let control = if cut_at_a { &bed.a.control } else { &bed.b.control };
        control.drop_peer(true);
        bed.receive(1, 8);
        bed.send(2, 8, SIGNALED);
        bed.steps(3);
        let control = if cut_at_a { &bed.a.control } else { &bed.b.control };
        control.drop_peer(false);
        assert_eq!(bed.ids_and_statuses_at_a(), [(2, 0)]);
        bed.a.control.drop_peer(true);
        bed.send(3, 8, 0);
        bed.steps(7);
        assert_eq!(bed.ids_and_statuses_at_a(), [(3, 12)]);
        assert_eq!(bed.ids_and_statuses_at_b(), [(1, 0)]);
        device.deregister(bed.region.registration());
    }
}

#[test]
fn a_request_fails_with_the_status_that_was_ordered() {
    let device = device(Profile::STRICT);
    let mut bed = Bed::new(&device);
    bed.a.control.fail_next_request(WcStatus::Other(0x77));
    bed.send(1, 8, 0);
    bed.send(2, 8, 0);
    assert_eq!(bed.ids_and_statuses_at_a(), [(1, 0x77), (2, 5)]);
}

fn marked() -> Wc {
    Wc { opcode: 77, byte_len: 77, imm_data: 77, wc_flags: 77, src_qp: 77, slid: 77, ..Wc::EMPTY }
}

#[test]
fn only_four_fields_of_a_failed_completion_mean_anything() {
    for (profile, opcode) in [
        (Profile::STRICT, 0xa5a5_a5a5),
        (Profile::STRICT.failed_fields(FailedFields::Zero), 0),
        (Profile::STRICT.failed_fields(FailedFields::Unwritten), 77),
    ] {
        let device = device(profile);
        let mut bed = Bed::new(&device);
        bed.a.control.disconnect();
        bed.send(1, 8, 0);
        let mut wc = [marked()];
        assert_eq!(bed.at_a.poll(&mut wc), 1);
        let wc = &wc[0];
        assert_eq!((wc.wr_id, wc.status), (1, 5));
        assert_eq!(wc.qp_num, bed.a.control.number().to_raw());
        let rest = [wc.opcode, wc.byte_len, wc.imm_data, wc.wc_flags, wc.src_qp];
        assert_eq!(rest, [opcode; 5]);
    }
}

#[test]
fn fields_of_a_good_completion_that_say_nothing_are_left_or_zero() {
    for (profile, left) in [(Profile::STRICT, 77), (Profile::STRICT.zeroes_good(true), 0)] {
        let device = device(profile);
        let mut bed = Bed::new(&device);
        bed.receive(1, 8);
        bed.send(2, 8, SIGNALED);
        let (mut sent, mut received) = ([marked()], [marked()]);
        assert_eq!(bed.at_a.poll(&mut sent), 1);
        assert_eq!(bed.at_b.poll(&mut received), 1);
        let fields = |wc: &Wc| (wc.opcode, wc.byte_len, wc.imm_data, wc.wc_flags, wc.src_qp);
        assert_eq!(fields(&sent[0]), (0, left, left, left, left));
        assert_eq!(fields(&received[0]), (128, 8, left, 0, left));
    }
}

#[test]
fn soft_roce_flags_a_header_on_every_receive_and_an_immediate_at_the_sender() {
    let device = device(Profile::rxe());
    let mut bed = Bed::new(&device);
    bed.receive(1, 8);
    bed.receive(2, 8);
    bed.send(3, 8, SIGNALED);
    let list = [bed.sge(0, 8)];
    let mut wr = send_wr(4, opcode::SEND_WITH_IMM, &list, SIGNALED);
    wr.imm_data = 5;
    post(&mut bed.a.send, &mut [wr]);
    let flags = |wcs: vec::Vec<Wc>| wcs.iter().map(|wc| wc.wc_flags).collect::<vec::Vec<_>>();
    assert_eq!(flags(poll(&mut bed.at_b)), [wc_flags::GRH, wc_flags::GRH | wc_flags::WITH_IMM]);
    assert_eq!(flags(poll(&mut bed.at_a)), [0, wc_flags::WITH_IMM]);
}

#[test]
fn a_post_to_a_shared_queue_fails_as_it_was_ordered_and_the_next_one_does_not() {
    let device = device(Profile::STRICT);
    let other = self::device(Profile::STRICT);
    let mut shared = device.shared_receive_queue(4).unwrap();
    let mut post = || post_recv(&mut shared.recv, &mut [recv_wr(1, &[]), recv_wr(2, &[])]);
    other.fail_next_recv(shared.id, PostFault::named(12, 1));
    assert_eq!(post(), (0, None), "another device's");
    device.fail_next_recv(shared.id, PostFault::named(12, 1));
    assert_eq!(post(), (12, Some(1)));
    device.fail_next_recv(shared.id, PostFault::unnamed(22, 0));
    assert_eq!(post(), (22, None));
    assert_eq!(post(), (12, Some(1)), "three of four places were taken");
}
