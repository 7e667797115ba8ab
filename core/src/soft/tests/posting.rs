//! What a post takes and what it refuses.

use super::bed::*;
use super::std::vec;
use super::std::vec::Vec;
use crate::abi::{AtomicTarget, Sge, Target, opcode, send_flags};
use crate::port::{RecvPort, SendPort};
use crate::soft::{PostFault, Profile};

#[test]
fn a_full_queue_refuses_by_name_and_keeps_what_came_before() {
    let device = device(Profile::STRICT);
    let mut bed = Bed::with(&device, |config| config.send_depth(3).recv_depth(2));
    let list = [bed.sge(0, 8)];
    let mut requests: Vec<_> =
        (0..5).map(|id| send_wr(id, opcode::SEND, &list, SIGNALED)).collect();
    assert_eq!(post(&mut bed.a.send, &mut requests), (12, Some(3)));
    assert_eq!(bed.send(9, 8, SIGNALED), 12);
    assert_eq!((bed.receive(0, 8), bed.receive(1, 8), bed.receive(2, 8)), (0, 0, 12));
    assert_eq!(bed.ids_and_statuses_at_a(), [(0, 0), (1, 0)]);
    assert_eq!(bed.send(3, 8, SIGNALED), 0);
    assert_eq!(bed.send(4, 8, SIGNALED), 0);
    assert_eq!(bed.send(5, 8, SIGNALED), 12);
}

#[test]
fn an_unsignaled_run_holds_its_slots_until_a_completion_behind_it_was_polled() {
    let device = device(Profile::STRICT);
    let mut bed = Bed::with(&device, |config| config.send_depth(4));
    for id in 0..4 {
        bed.receive(id, 8);
        assert_eq!(bed.send(id, 8, if id == 2 { SIGNALED } else { 0 }), 0);
    }
    assert_eq!(poll(&mut bed.at_b).len(), 4, "all were carried out");
    assert_eq!(bed.send(4, 8, 0), 12, "done, but not polled");
    assert_eq!(bed.ids_and_statuses_at_a(), [(2, 0)]);
    for id in 4..7 {
        assert_eq!(bed.send(id, 8, 0), 0);
    }
    assert_eq!(bed.send(7, 8, 0), 12, "the last one of the first run still holds its slot");
}

#[test]
fn a_queue_where_nothing_is_signaled_is_full_for_ever() {
    let device = device(Profile::STRICT);
    let mut bed = Bed::with(&device, |config| config.send_depth(2));
    bed.receive(0, 8);
    bed.receive(1, 8);
    bed.send(0, 8, 0);
    bed.send(1, 8, 0);
    assert_eq!(poll(&mut bed.at_b).len(), 2);
    assert!(poll(&mut bed.at_a).is_empty());
    assert_eq!(bed.send(2, 8, 0), 12);
}

#[test]
fn slots_are_free_at_once_on_a_device_that_is_kind() {
    let device = device(Profile::STRICT.early_slots(true));
    let mut bed = Bed::with(&device, |config| config.send_depth(2));
    for id in 0..20 {
        assert_eq!(bed.receive(id, 8), 0);
        assert_eq!(bed.send(id, 8, 0), 0);
        bed.steps(1);
        poll(&mut bed.at_b);
    }
}

#[test]
fn an_empty_chain_is_taken() {
    let device = device(Profile::STRICT);
    let mut bed = Bed::new(&device);
    let (mut bad, mut bad_recv) = (core::ptr::null_mut(), core::ptr::null_mut());
    // SAFETY: a null chain names no memory.
    unsafe {
        assert_eq!(bed.a.send.post_send(core::ptr::null_mut(), &mut bad), 0);
        assert_eq!(bed.a.recv.post_recv(core::ptr::null_mut(), &mut bad_recv), 0);
    }
    assert!(bad.is_null() && bad_recv.is_null());
}

#[test]
fn too_many_pieces_are_refused() {
    let device = device(Profile::STRICT.max_read_sges(1));
    let mut bed = Bed::with(&device, |config| config.sges(2));
    let list = vec![bed.sge(0, 8); 3];
    let mut three = send_wr(0, opcode::SEND, &list, 0);
    assert_eq!(post(&mut bed.a.send, &mut [three]), (22, Some(0)));
    three.num_sge = 2;
    assert_eq!(post(&mut bed.a.send, &mut [three]), (0, None));
    three.num_sge = -1;
    assert_eq!(post(&mut bed.a.send, &mut [three]), (22, Some(0)));
    three.num_sge = 2;
    three.opcode = opcode::RDMA_READ;
    assert_eq!(post(&mut bed.a.send, &mut [three]), (22, Some(0)), "a READ has fewer");
    assert_eq!(post_recv(&mut bed.b.recv, &mut [recv_wr(1, &list)]), (22, Some(0)));
}

#[test]
fn the_third_of_five_is_refused_and_two_go_out() {
    let device = device(Profile::STRICT);
    let mut bed = Bed::new(&device);
    let list = [bed.sge(0, 8)];
    let five = vec![bed.sge(0, 8); 5];
    let mut requests = [
        send_wr(0, opcode::SEND, &list, SIGNALED),
        send_wr(1, opcode::SEND, &list, SIGNALED),
        send_wr(2, opcode::SEND, &five, SIGNALED),
        send_wr(3, opcode::SEND, &list, SIGNALED),
        send_wr(4, opcode::SEND, &list, SIGNALED),
    ];
    assert_eq!(post(&mut bed.a.send, &mut requests), (22, Some(2)));
    for id in 0..5 {
        bed.receive(id, 8);
    }
    assert_eq!(bed.ids_and_statuses_at_a(), [(0, 0), (1, 0)]);
    assert_eq!(poll(&mut bed.at_b).len(), 2);
}

#[test]
fn too_much_inline_data_is_refused() {
    let device = device(Profile::STRICT);
    let mut bed = Bed::with(&device, |config| config.inline(16));
    assert_eq!(bed.a.control.caps().inline, 16);
    let flags = send_flags::INLINE;
    let mut list = [bed.sge(0, 8), bed.sge(0, 9)];
    assert_eq!(post(&mut bed.a.send, &mut [send_wr(0, opcode::SEND, &list, flags)]).0, 22);
    list[1].length = u32::MAX;
    assert_eq!(post(&mut bed.a.send, &mut [send_wr(0, opcode::SEND, &list, flags)]).0, 22);
    list[1].length = 8;
    assert_eq!(post(&mut bed.a.send, &mut [send_wr(0, opcode::SEND, &list, flags)]).0, 0);
    let read = send_wr(0, opcode::RDMA_READ, &list, flags);
    assert_eq!(post(&mut bed.a.send, &mut [read]).0, 22, "an answer cannot be inline");
}

#[test]
fn a_device_without_inline_data_grants_none() {
    let device = device(Profile::STRICT.no_inline(true));
    let mut bed = Bed::new(&device);
    assert_eq!(bed.a.control.caps().inline, 0);
    assert_eq!(bed.send(0, 1, send_flags::INLINE), 22);
    assert_eq!(bed.send(0, 0, send_flags::INLINE), 0);
}

#[test]
fn a_piece_of_no_length_is_refused_where_the_device_does_so() {
    let device = device(Profile::STRICT.empty_sges_refused(true));
    let mut bed = Bed::new(&device);
    let list = [bed.sge(0, 8), Sge::EMPTY];
    assert_eq!(post(&mut bed.a.send, &mut [send_wr(0, opcode::SEND, &list, 0)]).0, 22);
    assert_eq!(post_recv(&mut bed.b.recv, &mut [recv_wr(0, &list)]).0, 22);
    assert_eq!(post(&mut bed.a.send, &mut [send_wr(0, opcode::SEND, &[], 0)]).0, 0);
}

#[test]
fn an_unknown_operation_is_refused_at_once_or_fails_later() {
    for op in [10, 11, 31, 32, 0xdead_beef] {
        let strict = device(Profile::STRICT);
        let mut bed = Bed::new(&strict);
        let list = [bed.sge(0, 8)];
        assert_eq!(post(&mut bed.a.send, &mut [send_wr(0, op, &list, 0)]), (22, Some(0)));
        let late = device(Profile::rxe());
        let mut bed = Bed::new(&late);
        let list = [bed.sge(0, 8)];
        assert_eq!(post(&mut bed.a.send, &mut [send_wr(0, op, &list, 0)]), (0, None));
        assert_eq!(bed.ids_and_statuses_at_a(), [(0, 2)]);
    }
}

#[test]
fn a_crooked_atomic_is_refused_at_once_or_fails_later() {
    let atomic = |bed: &Bed<'_>, list: &[Sge], addr| {
        let target = AtomicTarget {
            remote_addr: addr,
            compare_add: 0,
            swap: 0,
            rkey: bed.region.registration().rkey,
        };
        let mut wr = send_wr(1, opcode::ATOMIC_FETCH_AND_ADD, list, SIGNALED);
        wr.target = Target { atomic: target };
        wr
    };
    for (len, addr, late) in [(8, 4, 9), (4, 8, 1)] {
        let strict = device(Profile::STRICT);
        let mut bed = Bed::new(&strict);
        let list = [bed.sge(0, len)];
        let wr = atomic(&bed, &list, addr);
        assert_eq!(post(&mut bed.a.send, &mut [wr]).0, 0);
        assert_eq!(bed.ids_and_statuses_at_a(), [(1, late)]);
        let rxe = device(Profile::rxe());
        let mut bed = Bed::new(&rxe);
        let list = [bed.sge(0, len)];
        let wr = atomic(&bed, &list, addr);
        assert_eq!(post(&mut bed.a.send, &mut [wr]).0, 22);
    }
}

#[test]
fn a_message_of_more_than_two_gibibytes_fails() {
    let device = device(Profile::STRICT);
    let mut bed = Bed::new(&device);
    let half = Sge { length: 1 << 30, ..bed.sge(0, 8) };
    let list = [half, half, Sge { length: 1, ..half }];
    assert_eq!(post(&mut bed.a.send, &mut [send_wr(1, opcode::SEND, &list, 0)]).0, 0);
    assert_eq!(bed.ids_and_statuses_at_a(), [(1, 1)]);
}

#[test]
fn the_device_takes_k_of_n_when_told_to() {
    let device = device(Profile::STRICT);
    for k in 0..4_u16 {
        let mut bed = Bed::new(&device);
        bed.a.control.fail_next_send(PostFault::named(12, k));
        let list = [bed.sge(0, 8)];
        let mut requests: Vec<_> =
            (0..4).map(|id| send_wr(id, opcode::SEND, &list, SIGNALED)).collect();
        assert_eq!(post(&mut bed.a.send, &mut requests), (12, Some(usize::from(k))));
        for id in 0..4 {
            bed.receive(id, 8);
        }
        assert_eq!(poll(&mut bed.at_b).len(), usize::from(k));
        assert_eq!(poll(&mut bed.at_a).len(), usize::from(k));
        assert_eq!(bed.send(9, 8, 0), 0, "only one post was to fail");
    }
}

#[test]
fn a_fault_that_lies_further_on_waits_for_the_next_post() {
    let device = device(Profile::STRICT);
    let mut bed = Bed::new(&device);
    bed.a.control.fail_next_send(PostFault::named(-1, 3));
    let list = [bed.sge(0, 8)];
    let mut requests: Vec<_> =
        (0..2).map(|id| send_wr(id, opcode::SEND, &list, SIGNALED)).collect();
    assert_eq!(post(&mut bed.a.send, &mut requests), (0, None));
    let mut requests: Vec<_> =
        (2..4).map(|id| send_wr(id, opcode::SEND, &list, SIGNALED)).collect();
    assert_eq!(post(&mut bed.a.send, &mut requests), (-1, Some(1)));
}

#[test]
fn an_error_may_name_nothing_though_some_were_taken() {
    let device = device(Profile::STRICT);
    for taken in [0, 1, 9] {
        let mut bed = Bed::new(&device);
        bed.a.control.fail_next_send(PostFault::unnamed(-22, taken));
        bed.b.control.fail_next_recv(PostFault::unnamed(5, taken));
        let list = [bed.sge(0, 8)];
        let mut requests: Vec<_> =
            (0..3).map(|id| send_wr(id, opcode::SEND, &list, SIGNALED)).collect();
        assert_eq!(post(&mut bed.a.send, &mut requests), (-22, None));
        let mut requests: Vec<_> = (0..3).map(|id| recv_wr(id, &list)).collect();
        assert_eq!(post_recv(&mut bed.b.recv, &mut requests), (5, None));
        assert_eq!(poll(&mut bed.at_a).len(), usize::from(taken.min(3)));
    }
}
