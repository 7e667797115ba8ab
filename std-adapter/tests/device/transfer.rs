//! Requests made by hand, through the ports.

use std::time::{Duration, Instant};

use nanoverbs::cm::{ConnectParams, RnrRetry, RnrTimer};
use nanoverbs_core::abi::{send_flags, wc_opcode};

use crate::ends::{PIECE, Setup, connected};

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f23_receives_posted_before_the_connection_take_the_first_messages() {
    let (mut client, mut server) = connected(&Setup { receives: 4, ..Setup::default() });
    client.parts.write(8, b"hello");
    client.parts.write(9, b"world");
    assert_eq!(client.parts.post_send(8, 5, 0), 0);
    assert_eq!(client.parts.post_send(9, 5, send_flags::INLINE), 0);
    let received = server.parts.received(2);
    for (i, wc) in received.iter().enumerate() {
        assert_eq!((wc.status, wc.opcode, wc.byte_len), (0, wc_opcode::RECV, 5), "{wc:?}");
        assert_eq!(wc.wr_id, 100 + i as u64);
        assert_eq!(wc.qp_num, server.parts.queue_pair.number().to_raw());
    }
    assert_eq!(server.parts.read(0, 5), b"hello");
    assert_eq!(server.parts.read(1, 5), b"world");
    let sent = client.parts.sent(2);
    assert_eq!(
        sent.iter().map(|wc| (wc.status, wc.wr_id)).collect::<Vec<_>>(),
        [(0, 208), (0, 209)]
    );
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn messages_go_to_and_fro() {
    let (mut client, mut server) = connected(&Setup { receives: 1, ..Setup::default() });
    for round in 0..200_u32 {
        client.parts.write(8, &round.to_be_bytes());
        assert_eq!(client.parts.post_send(8, 4, 0), 0);
        assert_eq!(server.parts.received(1)[0].status, 0);
        let echo = server.parts.read(0, 4);
        assert_eq!(server.parts.post_recv(0, PIECE), 0);
        server.parts.write(8, &echo);
        assert_eq!(server.parts.post_send(8, 4, 0), 0);
        assert_eq!(client.parts.received(1)[0].byte_len, 4);
        assert_eq!(client.parts.read(0, 4), round.to_be_bytes());
        assert_eq!(client.parts.post_recv(0, PIECE), 0);
        client.parts.sent(1);
        server.parts.sent(1);
    }
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f64_disconnecting_flushes_everything_in_flight() {
    let patient = ConnectParams::new().rnr_retry(RnrRetry::FOREVER);
    let (mut client, _server) =
        connected(&Setup { client: patient, server: patient, ..Setup::default() });
    for piece in 0..4 {
        assert_eq!(client.parts.post_recv(piece, PIECE), 0);
    }
    // The server has no receive, so these stay.
    for piece in 8..10 {
        assert_eq!(client.parts.post_send(piece, 8, 0), 0);
    }
    client.connection.disconnect().expect("it can");
    let (sent, received) = (client.parts.sent(2), client.parts.received(4));
    assert!(sent.iter().chain(&received).all(|wc| wc.status == 5), "{sent:?} {received:?}");
    client.connection.disconnect().expect("again");
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f03_a_late_receive_costs_milliseconds_not_655() {
    let timer = RnrTimer::at_least(Duration::from_millis(1));
    let params = ConnectParams::new().rnr_timer(timer);
    let setup = Setup { client: params, server: params, ..Setup::default() };
    let took = || {
        let (mut client, mut server) = connected(&setup);
        assert_eq!(client.parts.post_send(8, 8, 0), 0);
        std::thread::sleep(Duration::from_millis(3));
        let began = Instant::now();
        assert_eq!(server.parts.post_recv(0, PIECE), 0);
        assert_eq!(server.parts.received(1)[0].status, 0);
        began.elapsed()
    };
    // With the long timer it is so each time; a busy machine takes long only now and then.
    assert!((0..10).any(|_| took() < Duration::from_millis(300)));
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f29_a_failed_completion_keeps_its_id_and_status() {
    let (mut client, mut server) = connected(&Setup::default());
    assert_eq!(server.parts.post_recv(0, 60), 0);
    assert_eq!(server.parts.post_recv(1, PIECE), 0);
    assert_eq!(client.parts.post_send(8, 64, 0), 0);
    // Too long for the receive. Hardware says 9 to the sender and 1 to the receiver.
    let sent = client.parts.sent(1);
    assert_eq!((sent[0].wr_id, sent[0].status), (208, 11));
    let received = server.parts.received(2);
    let told: Vec<_> = received.iter().map(|wc| (wc.wr_id, wc.status)).collect();
    assert_eq!(told, [(100, 2), (101, 5)]);
}
