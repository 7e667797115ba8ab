//! Datagrams.

use super::bed::*;
use crate::abi::{SendWr, Sge, Target, UdTarget, opcode, wc_flags};
use crate::soft::{ControlError, Profile, State};

const QKEY: u32 = 0x1111;

fn datagram(id: u64, list: &[Sge], to: u32, qkey: u32) -> SendWr {
    let ud = UdTarget { ah: core::ptr::null_mut(), remote_qpn: to, remote_qkey: qkey };
    SendWr { target: Target { ud }, ..send_wr(id, opcode::SEND, list, SIGNALED) }
}

fn bed(device: &Dev) -> Bed<'_> {
    Bed::unconnected(device, |config| config.datagram(QKEY).mtu(1024))
}

#[test]
fn a_datagram_arrives_behind_forty_bytes() {
    let device = device(Profile::STRICT);
    let mut bed = bed(&device);
    assert_eq!(bed.a.control.state(), State::ReadyToSend);
    bed.receive(1, 104);
    let to = bed.b.control.number().to_raw();
    let list = [bed.sge(0, 64)];
    let mut wr = datagram(2, &list, to, QKEY);
    wr.opcode = opcode::SEND_WITH_IMM;
    wr.imm_data = 3;
    post(&mut bed.a.send, &mut [wr]);
    let at_b = poll(&mut bed.at_b);
    assert_eq!((at_b[0].wr_id, at_b[0].byte_len, at_b[0].imm_data), (1, 104, 3));
    assert_eq!(at_b[0].src_qp, bed.a.control.number().to_raw());
    assert_eq!(at_b[0].wc_flags, wc_flags::GRH | wc_flags::WITH_IMM);
    let received = read(bed.slice(2048, 105));
    assert_eq!((received[39], received[40], received[103], received[104]), (0xa5, 1, 1, 2));
    assert_eq!(bed.ids_and_statuses_at_a(), [(2, 0)]);
}

#[test]
fn a_datagram_that_cannot_arrive_is_lost_and_its_sender_is_well() {
    let device = device(Profile::STRICT);
    let mut bed = bed(&device);
    let to = bed.b.control.number().to_raw();
    bed.receive(1, 1000);
    let list = [bed.sge(0, 64)];
    let long = [bed.sge(0, 1025)];
    let mut requests = [
        datagram(1, &list, to, QKEY + 1),
        datagram(2, &list, to + 100, QKEY),
        datagram(3, &long, to, QKEY),
    ];
    post(&mut bed.a.send, &mut requests);
    assert_eq!(bed.ids_and_statuses_at_a(), [(1, 0), (2, 0), (3, 0)]);
    assert!(poll(&mut bed.at_b).is_empty());
    post(&mut bed.a.send, &mut [datagram(4, &list, to, 1 << 31)]);
    assert_eq!(bed.ids_and_statuses_at_b(), [(1, 0)], "the sender's own key");
    post(&mut bed.a.send, &mut [datagram(5, &list, to, QKEY)]);
    assert_eq!(bed.ids_and_statuses_at_a(), [(4, 0), (5, 0)], "no receive: lost, no waiting");
}

#[test]
fn a_datagram_that_does_not_fit_is_lost_or_ends_its_receiver() {
    for (profile, ends) in [(Profile::STRICT, false), (Profile::rxe(), true)] {
        let device = device(profile);
        let mut bed = bed(&device);
        let to = bed.b.control.number().to_raw();
        bed.receive(1, 103);
        let list = [bed.sge(0, 64)];
        post(&mut bed.a.send, &mut [datagram(2, &list, to, QKEY)]);
        assert_eq!(bed.ids_and_statuses_at_a(), [(2, 0)]);
        let at_b = bed.ids_and_statuses_at_b();
        assert_eq!(at_b, if ends { &[(1, 2)][..] } else { &[] });
        assert_eq!(bed.b.control.state() == State::Error, ends);
    }
}

#[test]
fn a_datagram_queue_pair_knows_only_messages_and_no_peer() {
    let device = device(Profile::STRICT);
    let mut bed = bed(&device);
    let list = [bed.sge(0, 8)];
    let wr = send_wr(1, opcode::RDMA_WRITE, &list, 0);
    assert_eq!(post(&mut bed.a.send, &mut [wr]).0, 22);
    assert_eq!(bed.a.control.connect(&bed.b.control), Err(ControlError::Datagram));
}
