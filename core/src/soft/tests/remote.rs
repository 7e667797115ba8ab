//! READ, WRITE, atomics and invalidation.

use super::bed::*;
use super::std::vec;
use crate::abi::{Access, AtomicTarget, RKey, SendWr, Sge, Target, opcode, send_flags, wc_flags};
use crate::abi::{Wc, wc_opcode};
use crate::region::SharedRegion;
use crate::soft::Profile;

fn bytes_of(region: &SharedRegion, offset: usize, len: usize) -> vec::Vec<u8> {
    let mut bytes = vec![0; len];
    region.read_at(offset, &mut bytes).unwrap();
    bytes
}

fn atomic(op: u32, list: &[Sge], to: (u64, RKey), compare_add: u64, swap: u64) -> SendWr {
    let target = AtomicTarget { remote_addr: to.0, compare_add, swap, rkey: to.1 };
    SendWr { target: Target { atomic: target }, ..send_wr(1, op, list, SIGNALED) }
}

#[test]
fn a_write_lands_and_only_the_writer_hears_of_it() {
    let device = device(Profile::STRICT);
    let mut bed = Bed::new(&device);
    let there = bed.shared(8);
    for (offset, len) in [(0, 8), (3, 2), (5, 17), (63, 1), (0, 64)] {
        there.write_at(0, &[7; 64]).unwrap();
        let list = [bed.sge(0, len)];
        let to = remote(&there, offset as u64);
        post(&mut bed.a.send, &mut [rdma_wr(1, opcode::RDMA_WRITE, &list, to)]);
        let at_a = poll(&mut bed.at_a);
        assert_eq!((at_a[0].status, at_a[0].opcode), (0, wc_opcode::RDMA_WRITE));
        let mut wanted = vec![7; 64];
        wanted[offset..offset + len].fill(1);
        assert_eq!(bytes_of(&there, 0, 64), wanted);
    }
    assert!(poll(&mut bed.at_b).is_empty());
}

#[test]
fn a_write_with_an_immediate_takes_a_receive_and_leaves_its_buffer_alone() {
    let device = device(Profile::STRICT);
    let mut bed = Bed::new(&device);
    let there = bed.shared(8);
    bed.receive(5, 1);
    let list = [bed.sge(0, 64)];
    let mut wr = rdma_wr(1, opcode::RDMA_WRITE_WITH_IMM, &list, remote(&there, 0));
    wr.imm_data = 77;
    post(&mut bed.a.send, &mut [wr, wr]);
    let at_b = poll(&mut bed.at_b);
    assert_eq!(at_b.len(), 1);
    assert_eq!((at_b[0].wr_id, at_b[0].opcode), (5, wc_opcode::RECV_RDMA_WITH_IMM));
    assert_eq!((at_b[0].byte_len, at_b[0].imm_data), (64, 77));
    assert_eq!(at_b[0].wc_flags, wc_flags::WITH_IMM);
    assert_eq!(read(bed.slice(2048, 1)), [2]);
    assert_eq!(bytes_of(&there, 0, 64), [1; 64]);
    assert_eq!(bed.ids_and_statuses_at_a(), [(1, 0)], "the second waits for a receive");
    bed.receive(6, 0);
    assert_eq!(bed.ids_and_statuses_at_b(), [(6, 0)]);
}

#[test]
fn a_read_fetches_into_all_its_pieces() {
    let device = device(Profile::STRICT);
    let mut bed = Bed::new(&device);
    let there = bed.shared(8);
    let pattern: vec::Vec<u8> = (0..64).collect();
    there.write_at(0, &pattern).unwrap();
    let list = [bed.sge(2048, 3), bed.sge(2060, 20)];
    post(&mut bed.a.send, &mut [rdma_wr(1, opcode::RDMA_READ, &list, remote(&there, 9))]);
    let at_a = poll(&mut bed.at_a);
    assert_eq!((at_a[0].status, at_a[0].opcode), (0, wc_opcode::RDMA_READ));
    assert_eq!(at_a[0].byte_len, 23);
    assert_eq!(read(bed.slice(2048, 4)), [9, 10, 11, 2]);
    assert_eq!(read(bed.slice(2060, 20)), (12..32).collect::<vec::Vec<u8>>());
}

#[test]
fn shared_memory_may_be_the_near_end_too() {
    let device = device(Profile::STRICT);
    let mut bed = Bed::new(&device);
    let (here, there) = (bed.shared(80), bed.shared(80));
    here.write_at(0, &[3; 640]).unwrap();
    let list = [piece(here.slice(1, 600).unwrap())];
    post(&mut bed.a.send, &mut [rdma_wr(1, opcode::RDMA_WRITE, &list, remote(&there, 2))]);
    assert_eq!(bed.ids_and_statuses_at_a(), [(1, 0)]);
    assert_eq!(bytes_of(&there, 0, 603), [vec![0; 2], vec![3; 600], vec![0]].concat());
    there.write_at(0, &[4; 16]).unwrap();
    let list = [piece(here.slice(8, 16).unwrap())];
    post(&mut bed.a.send, &mut [rdma_wr(2, opcode::RDMA_READ, &list, remote(&there, 0))]);
    assert_eq!(bed.ids_and_statuses_at_a(), [(2, 0)]);
    assert_eq!(bytes_of(&here, 7, 18), [vec![3], vec![4; 16], vec![3]].concat());
    let list = [piece(here.slice(0, 64).unwrap())];
    post_recv(&mut bed.b.recv, &mut [recv_wr(3, &list)]);
    bed.send(4, 10, SIGNALED);
    assert_eq!(bed.ids_and_statuses_at_b(), [(3, 0)]);
    assert_eq!(bytes_of(&here, 0, 10), [1; 10]);
}

#[test]
fn a_key_without_the_right_ends_both_sides() {
    for op in [opcode::RDMA_READ, opcode::RDMA_WRITE, opcode::ATOMIC_FETCH_AND_ADD] {
        let device = device(Profile::STRICT);
        let mut bed = Bed::new(&device);
        let poor = device.register_shared(bed.domain, words(1), Access::LOCAL_WRITE).unwrap();
        bed.receive(3, 8);
        let list = [bed.sge(0, 8)];
        let wr = if op == opcode::ATOMIC_FETCH_AND_ADD {
            atomic(op, &list, remote(&poor, 0), 1, 0)
        } else {
            rdma_wr(1, op, &list, remote(&poor, 0))
        };
        post(&mut bed.a.send, &mut [wr]);
        assert_eq!(bed.ids_and_statuses_at_a(), [(1, 10)]);
        assert_eq!(bed.ids_and_statuses_at_b(), [(3, 5)], "the target failed, too");
    }
}

#[test]
fn a_wrong_remote_address_or_key_is_refused() {
    let device = device(Profile::STRICT);
    let right = |bed: &Bed<'_>| {
        let region = bed.shared(2);
        (remote(&region, 0), region.registration().lkey.to_raw())
    };
    type Wrong = fn((u64, RKey), u32) -> (u64, RKey);
    let wrongs: [Wrong; 6] = [
        |to, _| (to.0 + 9, to.1),
        |to, _| (to.0 - 1, to.1),
        |to, _| (u64::MAX - 3, to.1),
        |to, _| (to.0, RKey::from_raw(0)),
        |to, _| (to.0, RKey::from_raw(to.1.to_raw() ^ 1)),
        |to, lkey| (to.0, RKey::from_raw(lkey)),
    ];
    for wrong in wrongs {
        let mut bed = Bed::new(&device);
        let (to, lkey) = right(&bed);
        let list = [bed.sge(0, 8)];
        let wr = rdma_wr(1, opcode::RDMA_WRITE, &list, wrong(to, lkey));
        post(&mut bed.a.send, &mut [wr]);
        assert_eq!(bed.ids_and_statuses_at_a(), [(1, 10)]);
        assert!(!poll(&mut bed.at_b).is_empty() || bed.b.control.state() as u32 == 4);
        device.deregister(bed.region.registration());
    }
}

#[test]
fn a_local_key_passes_for_a_remote_one_where_they_are_equal() {
    let device = device(Profile::mlx5_like());
    let mut bed = Bed::new(&device);
    let there = bed.shared(2);
    let lkey = there.registration().lkey.to_raw();
    let list = [bed.sge(0, 8)];
    let to = (remote(&there, 0).0, RKey::from_raw(lkey));
    post(&mut bed.a.send, &mut [rdma_wr(1, opcode::RDMA_WRITE, &list, to)]);
    assert_eq!(bed.ids_and_statuses_at_a(), [(1, 0)]);
    assert_eq!(bed.region.registration().rkey.to_raw(), 0, "private memory has no remote key");
}

#[test]
fn memory_of_another_domain_is_out_of_reach() {
    let device = device(Profile::STRICT);
    let mut bed = Bed::new(&device);
    let foreign = device.register_shared(device.domain(), words(1), ALL).unwrap();
    let list = [bed.sge(0, 8)];
    post(&mut bed.a.send, &mut [rdma_wr(1, opcode::RDMA_READ, &list, remote(&foreign, 0))]);
    assert_eq!(bed.ids_and_statuses_at_a(), [(1, 10)]);
}

#[test]
fn memory_that_was_taken_back_is_out_of_reach_of_peers() {
    let device = device(Profile::STRICT);
    let mut bed = Bed::new(&device);
    let there = bed.shared(1);
    let to = remote(&there, 0);
    let memory = device.take_back_shared(there).unwrap();
    let again = device.register_shared(bed.domain, memory, ALL).unwrap();
    assert_ne!(remote(&again, 0).1, to.1, "a new registration has new keys");
    let list = [bed.sge(0, 8)];
    post(&mut bed.a.send, &mut [rdma_wr(1, opcode::RDMA_WRITE, &list, to)]);
    assert_eq!(bed.ids_and_statuses_at_a(), [(1, 10)]);
}

#[test]
fn a_queue_pair_that_forbids_it_finds_the_request_invalid() {
    let device = device(Profile::STRICT);
    let mut bed = Bed::with(&device, |config| config.access(Access::REMOTE_WRITE));
    let there = bed.shared(1);
    let list = [bed.sge(0, 8)];
    post(&mut bed.a.send, &mut [rdma_wr(1, opcode::RDMA_WRITE, &list, remote(&there, 0))]);
    post(&mut bed.a.send, &mut [rdma_wr(2, opcode::RDMA_READ, &list, remote(&there, 0))]);
    assert_eq!(bed.ids_and_statuses_at_a(), [(1, 0), (2, 9)]);
}

#[test]
fn nothing_is_asked_for_a_request_of_no_length() {
    let device = device(Profile::STRICT);
    let mut bed = Bed::new(&device);
    let nowhere = (0, RKey::from_raw(0));
    post(&mut bed.a.send, &mut [rdma_wr(1, opcode::RDMA_WRITE, &[], nowhere)]);
    post(&mut bed.a.send, &mut [rdma_wr(2, opcode::RDMA_READ, &[], nowhere)]);
    assert_eq!(bed.ids_and_statuses_at_a(), [(1, 0), (2, 0)]);
}

#[test]
fn atomics_change_the_value_and_bring_the_old_one_back() {
    let device = device(Profile::STRICT);
    let mut bed = Bed::new(&device);
    let there = bed.shared(2);
    there.write_at(8, &0x0102_0304_0506_0708_u64.to_ne_bytes()).unwrap();
    let value =
        |region: &SharedRegion| u64::from_ne_bytes(bytes_of(region, 8, 8).try_into().unwrap());
    let to = remote(&there, 8);
    let list = [bed.sge(0, 8)];
    let old = |bed: &mut Bed<'_>, opcode| {
        let at_a = poll(&mut bed.at_a);
        assert_eq!((at_a[0].status, at_a[0].opcode, at_a[0].byte_len), (0, opcode, 8));
        u64::from_ne_bytes(read(bed.slice(0, 8)).try_into().unwrap())
    };
    let add = atomic(opcode::ATOMIC_FETCH_AND_ADD, &list, to, 2, 0);
    post(&mut bed.a.send, &mut [add]);
    assert_eq!(old(&mut bed, wc_opcode::FETCH_ADD), 0x0102_0304_0506_0708);
    assert_eq!(value(&there), 0x0102_0304_0506_070a);
    let miss = atomic(opcode::ATOMIC_CMP_AND_SWP, &list, to, 5, 6);
    post(&mut bed.a.send, &mut [miss]);
    assert_eq!(old(&mut bed, wc_opcode::COMP_SWAP), 0x0102_0304_0506_070a);
    assert_eq!(value(&there), 0x0102_0304_0506_070a);
    let hit = atomic(opcode::ATOMIC_CMP_AND_SWP, &list, to, 0x0102_0304_0506_070a, u64::MAX);
    post(&mut bed.a.send, &mut [hit]);
    assert_eq!(old(&mut bed, wc_opcode::COMP_SWAP), 0x0102_0304_0506_070a);
    assert_eq!(value(&there), u64::MAX);
    let wrap = atomic(opcode::ATOMIC_FETCH_AND_ADD, &list, to, 2, 0);
    post(&mut bed.a.send, &mut [wrap]);
    assert_eq!(old(&mut bed, wc_opcode::FETCH_ADD), u64::MAX);
    assert_eq!(value(&there), 1);
}

#[test]
fn a_read_without_depth_hangs_or_fails() {
    for (profile, status) in [(Profile::STRICT, Some(2)), (Profile::rxe(), None)] {
        let device = device(profile);
        let mut bed = Bed::with(&device, |config| config.read_depth(0));
        let there = bed.shared(1);
        bed.receive(3, 8);
        let list = [bed.sge(0, 8)];
        post(&mut bed.a.send, &mut [rdma_wr(1, opcode::RDMA_READ, &list, remote(&there, 0))]);
        bed.send(2, 8, SIGNALED);
        bed.steps(100);
        match status {
            Some(status) => assert_eq!(bed.ids_and_statuses_at_a(), [(1, status), (2, 5)]),
            None => {
                assert!(poll(&mut bed.at_a).is_empty(), "neither it nor what is behind it");
                bed.a.control.disconnect();
                assert_eq!(bed.ids_and_statuses_at_a(), [(1, 5), (2, 5)]);
            }
        }
    }
}

#[test]
fn more_reads_than_the_depth_wait_and_more_than_the_peer_takes_are_refused() {
    let device = device(Profile::STRICT);
    for (depth, responder, statuses) in [(2, 16, [0, 0, 0]), (16, 2, [0, 0, 9])] {
        let mut bed =
            Bed::with(&device, |config| config.read_depth(depth).responder_depth(responder));
        let there = bed.shared(1);
        bed.a.control.hold_acks(true);
        let list = [bed.sge(0, 8)];
        for id in 0..3 {
            let wr = rdma_wr(id, opcode::RDMA_READ, &list, remote(&there, 0));
            post(&mut bed.a.send, &mut [wr]);
        }
        bed.steps(10);
        assert!(bed.at_a.is_idle());
        bed.a.control.hold_acks(false);
        let got: vec::Vec<_> = poll(&mut bed.at_a).iter().map(|wc: &Wc| wc.status).collect();
        assert_eq!(got, statuses);
    }
}

#[test]
fn a_write_overtakes_a_read_unless_it_is_fenced() {
    for (flags, seen) in [(0, 1), (send_flags::FENCE, 9)] {
        let device = device(Profile::STRICT);
        let mut bed = Bed::new(&device);
        let there = bed.shared(1);
        there.write_at(0, &[9; 8]).unwrap();
        bed.a.control.hold_acks(true);
        let (into, from) = ([bed.sge(2048, 8)], [bed.sge(0, 8)]);
        let read_it = rdma_wr(1, opcode::RDMA_READ, &into, remote(&there, 0));
        let mut write_it = rdma_wr(2, opcode::RDMA_WRITE, &from, remote(&there, 0));
        write_it.send_flags |= flags;
        post(&mut bed.a.send, &mut [read_it, write_it]);
        bed.steps(3);
        bed.a.control.hold_acks(false);
        assert_eq!(bed.ids_and_statuses_at_a(), [(1, 0), (2, 0)]);
        assert_eq!(read(bed.slice(2048, 8)), [seen; 8]);
        assert_eq!(bytes_of(&there, 0, 8), [1; 8]);
    }
}

#[test]
fn a_send_may_invalidate_the_peers_key() {
    let device = device(Profile::STRICT);
    let mut bed = Bed::new(&device);
    let there = bed.shared(1);
    let to = remote(&there, 0);
    bed.receive(1, 8);
    bed.receive(2, 8);
    let list = [bed.sge(0, 8)];
    let mut wr = send_wr(3, opcode::SEND_WITH_INV, &list, SIGNALED);
    wr.imm_data = to.1.to_raw();
    post(&mut bed.a.send, &mut [wr]);
    let at_b = poll(&mut bed.at_b);
    assert_eq!((at_b[0].wc_flags, at_b[0].imm_data), (wc_flags::WITH_INV, to.1.to_raw()));
    post(&mut bed.a.send, &mut [rdma_wr(4, opcode::RDMA_WRITE, &list, to)]);
    assert_eq!(bed.ids_and_statuses_at_a(), [(3, 0), (4, 10)]);
}

#[test]
fn invalidating_a_key_that_is_none_fails() {
    let device = device(Profile::rxe());
    let mut bed = Bed::new(&device);
    bed.receive(1, 8);
    let list = [bed.sge(0, 8)];
    let mut wr = send_wr(3, opcode::SEND_WITH_INV, &list, SIGNALED);
    wr.imm_data = 0x7777;
    post(&mut bed.a.send, &mut [wr]);
    assert_eq!(bed.ids_and_statuses_at_b(), [(1, 9)]);
    assert_eq!(bed.ids_and_statuses_at_a(), [(3, 0)]);
}

#[test]
fn a_key_of_ones_own_can_be_invalidated() {
    let device = device(Profile::STRICT);
    let mut bed = Bed::new(&device);
    let there = bed.shared(1);
    let mut wr = send_wr(3, opcode::LOCAL_INV, &[], SIGNALED);
    wr.imm_data = there.registration().rkey.to_raw();
    post(&mut bed.b.send, &mut [wr, wr]);
    let at_b = poll(&mut bed.at_b);
    assert_eq!((at_b[0].status, at_b[0].opcode), (0, wc_opcode::LOCAL_INV));
    assert_eq!(at_b[1].status, 2, "the second time it is none any more");
}
