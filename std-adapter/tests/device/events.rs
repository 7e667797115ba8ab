//! Asynchronous events of the device: told once, acknowledged, and closing what they concern.

use std::os::fd::AsFd;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use nanoverbs::event::{DeviceEventKind, Subject};
use nanoverbs::{Device, QpState};

use crate::ends::{PATIENCE, PIECE, PROMPT, Parts, Setup, connected};
use crate::readable;

/// What the device says next, within a second or so.
fn next_event(device: &Device) -> nanoverbs::event::DeviceEvent {
    let began = Instant::now();
    loop {
        if let Some(event) = device.poll_event().expect("it can be asked") {
            return event;
        }
        assert!(began.elapsed() < PATIENCE, "nothing happened");
        std::thread::yield_now();
    }
}

/// Posts a send as soon as the device has room: what arrived may not be acknowledged yet.
fn post(parts: &mut Parts, piece: usize) {
    let began = Instant::now();
    loop {
        match parts.post_send(piece, 8, 0) {
            0 => break,
            code => assert_eq!(code, libc::ENOMEM),
        }
        assert!(began.elapsed() < PATIENCE, "the device has no room");
    }
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f10_f66_an_overflowing_queue_is_told_and_closes_its_queue_pairs() {
    let (mut client, mut server) = connected(&Setup { receives: 8, ..Setup::default() });
    let device = Arc::clone(client.parts.queue_pair.domain().device());
    assert_eq!(device.poll_event(), Ok(None));
    let queue = Arc::clone(client.parts.queue_pair.send_completions());
    // Raw requests, and nobody polls the 15 places that rxe gives for 8. On hardware the queue pair
    // would be in the error state by itself.
    for round in 0..3 {
        for piece in 8..16 {
            post(&mut client.parts, piece);
        }
        server.parts.received(8);
        for piece in (0..8).filter(|_| round < 2) {
            assert_eq!(server.parts.post_recv(piece, PIECE), 0);
        }
    }
    readable(&*device);
    assert!(!queue.has_failed(), "nobody has looked");
    assert_eq!(client.parts.queue_pair.view().expect("a view").state, QpState::ReadyToSend);
    let event = next_event(&device);
    assert_eq!(event.kind, DeviceEventKind::CompletionQueueError);
    assert_eq!(event.subject, Subject::CompletionQueue(queue.id()));
    assert!(queue.has_failed());
    assert!(client.parts.queue_pair.has_failed());
    assert_eq!(client.parts.queue_pair.view().expect("a view").state, QpState::Error);
    assert!(!server.parts.queue_pair.has_failed(), "its queues are others");
    while device.poll_event().expect("it can be asked").is_some() {}
    let began = Instant::now();
    drop((client, server, queue));
    assert!(began.elapsed() < PROMPT, "{:?}", began.elapsed());
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f66_unread_events_do_not_hold_up_an_end() {
    let (mut client, mut server) = connected(&Setup { receives: 8, ..Setup::default() });
    for _ in 0..3 {
        for piece in 8..16 {
            post(&mut client.parts, piece);
        }
        server.parts.received(8);
        for piece in 0..8 {
            assert_eq!(server.parts.post_recv(piece, PIECE), 0);
        }
    }
    let device = Arc::clone(client.parts.queue_pair.domain().device());
    readable(&*device);
    let began = Instant::now();
    drop((client, server));
    assert!(began.elapsed() < PROMPT, "{:?}", began.elapsed());
    // What is left of them is about something that is gone, and does no harm.
    while device.poll_event().expect("it can be asked").is_some() {}
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn a_port_that_goes_down_is_told_and_closes_nothing() {
    let (mut client, mut server) = connected(&Setup { receives: 1, ..Setup::default() });
    let device = Device::open("rxe0").expect("a device");
    let link = |state| {
        let status = Command::new("/usr/sbin/ip").args(["link", "set", "d0", state]).status();
        assert!(status.expect("it runs").success());
    };
    let wait_for = |kind| {
        readable(&*device);
        loop {
            let event = next_event(&device);
            if event.kind == kind {
                break assert_eq!(event.subject, Subject::Port(1));
            }
        }
    };
    link("down");
    wait_for(DeviceEventKind::PortError);
    assert!(!client.parts.queue_pair.has_failed());
    link("up");
    wait_for(DeviceEventKind::PortActive);
    client.parts.write(8, b"still here");
    assert_eq!(client.parts.post_send(8, 10, 0), 0);
    assert_eq!(server.parts.received(1)[0].status, 0);
    assert_eq!(server.parts.read(0, 10), b"still here");
    let _ = device.as_fd();
}
