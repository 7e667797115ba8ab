//! SEND and receive between connected queue pairs.

use super::std::vec;

use super::bed::*;
use crate::abi::{Sge, Wc, opcode, send_flags, wc_flags, wc_opcode};
use crate::port::PollPort;
use crate::soft::Profile;

#[test]
fn a_message_arrives_and_both_sides_hear_of_it() {
    let device = device(Profile::STRICT);
    let mut bed = Bed::new(&device);
    assert_eq!(bed.receive(7, 64), 0);
    assert_eq!(bed.send(8, 64, SIGNALED), 0);
    let at_b = poll(&mut bed.at_b);
    assert_eq!(at_b.len(), 1);
    assert_eq!((at_b[0].wr_id, at_b[0].status), (7, 0));
    assert_eq!((at_b[0].opcode, at_b[0].byte_len), (wc_opcode::RECV, 64));
    assert_eq!(at_b[0].qp_num, bed.b.control.number().to_raw());
    assert_eq!(at_b[0].wc_flags, 0);
    let at_a = poll(&mut bed.at_a);
    assert_eq!(at_a.len(), 1);
    assert_eq!((at_a[0].wr_id, at_a[0].status), (8, 0));
    assert_eq!(at_a[0].opcode, wc_opcode::SEND);
    assert_eq!(at_a[0].qp_num, bed.a.control.number().to_raw());
    assert_eq!(read(bed.slice(2048, 65)), [vec![1; 64], vec![2]].concat());
}

#[test]
fn an_unsignaled_message_arrives_and_only_the_receiver_hears_of_it() {
    let device = device(Profile::STRICT);
    let mut bed = Bed::new(&device);
    bed.receive(1, 64);
    bed.send(2, 8, 0);
    assert_eq!(bed.ids_and_statuses_at_b(), [(1, 0)]);
    assert!(poll(&mut bed.at_a).is_empty());
}

#[test]
fn pieces_are_gathered_and_scattered_in_order() {
    let device = device(Profile::STRICT);
    let mut bed = Bed::new(&device);
    let memory = bytes(64, 0);
    for (at, byte) in memory.iter_mut().enumerate() {
        *byte = at as u8;
    }
    let source = device.register(bed.domain, memory).unwrap();
    let cut = |at, len| piece(source.slice(at, len).unwrap());
    let from = [cut(0, 3), cut(10, 1), cut(20, 0), cut(30, 12)];
    let into = [bed.sge(2048, 2), bed.sge(2060, 7), bed.sge(2080, 100)];
    post_recv(&mut bed.b.recv, &mut [recv_wr(1, &into)]);
    post(&mut bed.a.send, &mut [send_wr(2, opcode::SEND, &from, SIGNALED)]);
    assert_eq!(poll(&mut bed.at_b)[0].byte_len, 16);
    assert_eq!(read(bed.slice(2048, 2)), [0, 1]);
    assert_eq!(read(bed.slice(2060, 8)), [2, 10, 30, 31, 32, 33, 34, 2]);
    assert_eq!(read(bed.slice(2080, 8)), [35, 36, 37, 38, 39, 40, 41, 2]);
}

#[test]
fn inline_bytes_are_copied_during_the_post() {
    let device = device(Profile::STRICT);
    let mut bed = Bed::new(&device);
    bed.receive(1, 64);
    {
        let mut payload = [9_u8; 5];
        let mut tail = [8_u8; 2];
        // No key: inline bytes need no registration.
        let list =
            [Sge::new(payload.as_mut_ptr(), 5, NO_KEY), Sge::new(tail.as_mut_ptr(), 2, NO_KEY)];
        let flags = SIGNALED | send_flags::INLINE;
        let result = post(&mut bed.a.send, &mut [send_wr(2, opcode::SEND, &list, flags)]);
        assert_eq!(result, (0, None));
        payload.fill(0);
    }
    assert_eq!(poll(&mut bed.at_b)[0].byte_len, 7);
    assert_eq!(read(bed.slice(2048, 8)), [9, 9, 9, 9, 9, 8, 8, 2]);
}

#[test]
fn an_empty_message_is_a_message() {
    let device = device(Profile::STRICT);
    let mut bed = Bed::new(&device);
    post_recv(&mut bed.b.recv, &mut [recv_wr(1, &[]), recv_wr(2, &[])]);
    let empty = [Sge::EMPTY];
    let mut requests =
        [send_wr(3, opcode::SEND, &[], SIGNALED), send_wr(4, opcode::SEND, &empty, SIGNALED)];
    assert_eq!(post(&mut bed.a.send, &mut requests), (0, None));
    let at_b = poll(&mut bed.at_b);
    assert_eq!(at_b.iter().map(|wc| wc.byte_len).collect::<vec::Vec<_>>(), [0, 0]);
    assert_eq!(bed.ids_and_statuses_at_a(), [(3, 0), (4, 0)]);
}

#[test]
fn an_immediate_arrives_beside_the_message() {
    let device = device(Profile::STRICT);
    let mut bed = Bed::new(&device);
    bed.receive(1, 64);
    let list = [bed.sge(0, 4)];
    let mut wr = send_wr(2, opcode::SEND_WITH_IMM, &list, SIGNALED);
    wr.imm_data = 0x89ab_cdef_u32.to_be();
    post(&mut bed.a.send, &mut [wr]);
    let at_b = poll(&mut bed.at_b);
    assert_eq!(at_b[0].wc_flags & wc_flags::WITH_IMM, wc_flags::WITH_IMM);
    assert_eq!(u32::from_be(at_b[0].imm_data), 0x89ab_cdef);
}

#[test]
fn messages_keep_their_order_across_many_turns_of_the_rings() {
    let device = device(Profile::STRICT);
    let mut bed = Bed::new(&device);
    for round in 0..if cfg!(miri) { 30 } else { 100_u64 } {
        for at in 0..4 {
            assert_eq!(bed.receive(round * 4 + at, 8), 0);
        }
        for at in 0..4 {
            let flags = if at == 3 { SIGNALED } else { 0 };
            assert_eq!(bed.send(1000 + round * 4 + at, 8, flags), 0);
        }
        let got: vec::Vec<u64> = poll(&mut bed.at_b).iter().map(|wc| wc.wr_id).collect();
        assert_eq!(got, (round * 4..round * 4 + 4).collect::<vec::Vec<_>>());
        assert_eq!(bed.ids_and_statuses_at_a(), [(1003 + round * 4, 0)]);
    }
}

#[test]
fn indices_wrap() {
    let device = device(Profile::STRICT);
    for start in [usize::MAX - 3, usize::MAX] {
        let mut bed = Bed::unconnected(&device, |config| config);
        bed.a.control.start_at(start);
        bed.b.control.start_at(start);
        bed.a.control.connect(&bed.b.control).unwrap();
        for round in 0..8 {
            bed.receive(round, 8);
            bed.receive(round, 8);
            assert_eq!(bed.send(round, 8, 0), 0);
            assert_eq!(bed.send(round, 8, SIGNALED), 0);
            assert_eq!(bed.ids_and_statuses_at_b(), [(round, 0), (round, 0)]);
            assert_eq!(bed.ids_and_statuses_at_a(), [(round, 0)]);
        }
    }
}

#[test]
fn a_ring_is_full_also_where_its_indices_wrap() {
    let device = device(Profile::STRICT);
    for start in (0..8).map(|back| usize::MAX - back) {
        let mut bed = Bed::unconnected(&device, |config| config);
        bed.a.control.start_at(start);
        bed.a.control.connect(&bed.b.control).unwrap();
        // Nobody has a receive, so all of them wait.
        assert!((0..8).all(|id| bed.send(id, 8, SIGNALED) == 0));
        assert_eq!(bed.send(8, 8, SIGNALED), 12, "from {start:#x} on");
    }
}

#[test]
fn a_sender_waits_for_a_late_receive_for_ever_with_a_count_of_seven() {
    let device = device(Profile::STRICT);
    let mut bed = Bed::new(&device);
    bed.send(1, 8, SIGNALED);
    bed.steps(if cfg!(miri) { 100 } else { 1000 });
    assert!(poll(&mut bed.at_a).is_empty());
    bed.receive(2, 8);
    assert_eq!(bed.ids_and_statuses_at_a(), [(1, 0)]);
}

#[test]
fn a_missing_receive_ends_the_sender_after_its_count_of_steps() {
    for count in 0..6 {
        let device = device(Profile::STRICT);
        let mut bed = Bed::with(&device, |config| config.rnr_retry(count));
        bed.send(1, 8, 0);
        bed.send(2, 8, 0);
        bed.steps(count as usize);
        assert!(bed.at_a.is_idle());
        bed.steps(1);
        assert_eq!(bed.ids_and_statuses_at_a(), [(1, 13), (2, 5)]);
        assert!(poll(&mut bed.at_b).is_empty(), "the receiver is well");
    }
}

#[test]
fn a_receive_too_small_ends_both_sides() {
    for (profile, sender, receiver) in [(Profile::STRICT, 9, 1), (Profile::rxe(), 11, 2)] {
        let device = device(profile);
        let mut bed = Bed::new(&device);
        bed.receive(1, 63);
        bed.receive(2, 64);
        bed.send(3, 64, 0);
        bed.send(4, 1, 0);
        assert_eq!(bed.ids_and_statuses_at_a(), [(3, sender), (4, 5)]);
        assert_eq!(bed.ids_and_statuses_at_b(), [(1, receiver), (2, 5)]);
        assert_eq!(read(bed.slice(2048, 1)), [2], "nothing was written");
    }
}

#[test]
fn a_wrong_local_key_ends_the_sender() {
    for (profile, status) in [(Profile::STRICT, 4), (Profile::rxe(), 2)] {
        let device = device(profile);
        let mut bed = Bed::new(&device);
        let other = device.register(device.domain(), bytes(64, 0)).unwrap();
        let right = bed.sge(0, 8);
        let wrong = [
            Sge { lkey: NO_KEY, ..right },
            piece(other.slice(0, 8).unwrap()),
            Sge { length: 4097, ..right },
            Sge { addr: crate::abi::Addr::new(right.addr.pointer().wrapping_sub(8)), ..right },
        ];
        for (at, sge) in wrong.into_iter().enumerate() {
            if at > 0 {
                drop(bed);
                bed = Bed::new(&device);
            }
            bed.receive(1, 64);
            // The last piece is wrong in each case, and the region is that of the first bed:
            // foreign to the later ones.
            let list = [bed.sge(0, 8), sge];
            post(&mut bed.a.send, &mut [send_wr(2, opcode::SEND, &list, 0)]);
            assert_eq!(bed.ids_and_statuses_at_a(), [(2, status)]);
            assert!(poll(&mut bed.at_b).is_empty(), "the peer hears nothing");
        }
    }
}

#[test]
fn a_receive_into_memory_of_another_domain_ends_both_sides() {
    for (profile, receiver) in [(Profile::STRICT, 4), (Profile::rxe(), 2)] {
        let device = device(profile);
        let mut bed = Bed::new(&device);
        let other = device.register(device.domain(), bytes(64, 0)).unwrap();
        let list = [piece(other.slice(0, 64).unwrap())];
        post_recv(&mut bed.b.recv, &mut [recv_wr(1, &list)]);
        bed.send(2, 8, SIGNALED);
        assert_eq!(bed.ids_and_statuses_at_a(), [(2, 11)]);
        assert_eq!(bed.ids_and_statuses_at_b(), [(1, receiver)]);
    }
}

#[test]
fn memory_that_was_deregistered_is_out_of_reach() {
    let device = device(Profile::STRICT);
    let mut bed = Bed::new(&device);
    let extra = device.register(bed.domain, bytes(64, 3)).unwrap();
    let list = [piece(extra.slice(0, 8).unwrap())];
    bed.receive(1, 64);
    post(&mut bed.a.send, &mut [send_wr(2, opcode::SEND, &list, SIGNALED)]);
    assert_eq!(device.take_back(extra).unwrap().len(), 64);
    assert_eq!(bed.ids_and_statuses_at_a(), [(2, 4)]);
}

#[test]
fn a_queue_pair_may_be_its_own_peer() {
    let device = device(Profile::STRICT);
    let mut bed = Bed::unconnected(&device, |config| config);
    bed.b.control.connect(&bed.b.control).unwrap();
    bed.receive(1, 64);
    let list = [bed.sge(0, 16)];
    post(&mut bed.b.send, &mut [send_wr(2, opcode::SEND, &list, SIGNALED)]);
    assert_eq!(bed.ids_and_statuses_at_b(), [(1, 0), (2, 0)]);
}

#[test]
fn a_poll_writes_no_more_than_it_was_asked_for() {
    let device = device(Profile::STRICT);
    let mut bed = Bed::new(&device);
    for id in 0..3 {
        bed.receive(id, 8);
        bed.send(id, 8, SIGNALED);
    }
    assert_eq!(bed.at_a.poll(&mut []), 0);
    let mut two = [Wc::EMPTY; 2];
    assert_eq!(bed.at_a.poll(&mut two), 2);
    assert_eq!(two[1].wr_id, 1);
    assert_eq!(bed.at_a.poll(&mut two), 1);
    assert_eq!(bed.at_a.poll(&mut two), 0);
}

#[test]
fn a_shared_receive_queue_serves_whoever_comes_first() {
    let device = device(Profile::STRICT);
    let mut shared = device.shared_receive_queue(4).unwrap();
    let mut bed = Bed::unconnected(&device, |config| config);
    let config = crate::soft::QpConfig::new(bed.domain).shared_receive(shared.id);
    let mut c = device.queue_pair(config, &bed.at_b, &bed.at_b).unwrap();
    bed.a.control.connect(&c.control).unwrap();
    let mut lists = [[bed.sge(2048, 8)], [bed.sge(2056, 8)]];
    let [first, second] = &mut lists;
    let mut requests = [recv_wr(1, first), recv_wr(2, second)];
    assert_eq!(post_recv(&mut shared.recv, &mut requests), (0, None));
    assert_eq!(post_recv(&mut c.recv, &mut [recv_wr(3, &[])]).0, 22);
    bed.send(4, 8, SIGNALED);
    let at_b = poll(&mut bed.at_b);
    assert_eq!((at_b[0].wr_id, at_b[0].qp_num), (1, c.control.number().to_raw()));
    c.control.disconnect();
    assert!(poll(&mut bed.at_b).is_empty(), "a flush does not touch the shared queue");
}
