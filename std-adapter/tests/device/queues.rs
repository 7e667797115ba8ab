//! Completion queues: waiting for several, arming, channels, and what a device may have beside.

use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nanoverbs::{
    Arm, ArmRefused, CompletionChannel, CompletionQueue, CompletionQueueError,
    CompletionQueueOptions, Device, DomainError, ProtectionDomain, WaitAnyError,
};
use nanoverbs_core::Completions;
use nanoverbs_core::abi::send_flags;

use crate::ends::{PATIENCE, PROMPT, Setup, connected};

/// Both queues of a side wake one channel.
fn on_a_channel(device: &Arc<Device>) -> (Arc<CompletionQueue>, Arc<CompletionQueue>) {
    let channel = CompletionChannel::new(device).expect("a channel");
    let queue = || CompletionQueue::new(device, 8, Some(&channel)).expect("a queue");
    (queue(), queue())
}

fn setup() -> Setup {
    Setup { receives: 8, queues: on_a_channel, ..Setup::default() }
}

fn channel_of(queue: &CompletionQueue) -> Arc<CompletionChannel> {
    Arc::clone(queue.channel().expect("it has one"))
}

fn is_readable(what: &impl AsFd) -> bool {
    let fd = what.as_fd().as_raw_fd();
    let mut polled = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, of an open descriptor.
    unsafe { libc::poll(&raw mut polled, 1, 0) == 1 }
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f32_one_wait_for_two_queues_misses_neither() {
    let (client, mut server) = connected(&setup());
    let mut parts = client.parts;
    let queue_pair = Arc::clone(&parts.queue_pair);
    let channel = channel_of(queue_pair.send_completions());
    drop((parts.send_poll, parts.recv_poll));
    let port = |queue: &Arc<CompletionQueue>| queue.poll_port().expect("a port");
    let mut sent: Completions<_, 4> = Completions::new(port(queue_pair.send_completions()), 8);
    let mut received: Completions<_, 4> = Completions::new(port(queue_pair.recv_completions()), 8);
    assert_eq!(channel.wait_any(&mut [&mut sent, &mut received], Duration::ZERO), Ok(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..6 {
                server.parts.received(1);
                thread::sleep(Duration::from_millis(if round % 2 == 0 { 0 } else { 5 }));
                assert_eq!(server.parts.post_send(8, 4, 0), 0);
                server.parts.sent(1);
            }
        });
        for _ in 0..6 {
            // Each round brings a completion to each queue, in whatever order.
            // SAFETY: the piece stays registered until the end of the test.
            let wr = |port: &mut nanoverbs::port::SendPort| unsafe { send(port) };
            assert_eq!(wr(&mut parts.send), 0);
            let (mut sends, mut receives) = (0, 0);
            while sends == 0 || receives == 0 {
                let woken = channel.wait_any(&mut [&mut sent, &mut received], PATIENCE);
                assert_eq!(woken, Ok(true), "{sends} {receives}");
                sends += sent.poll().expect("it can be polled").count();
                receives += received.poll().expect("it can be polled").count();
            }
        }
    });
    let other = CompletionChannel::new(queue_pair.domain().device()).expect("a channel");
    let refused = other.wait_any(&mut [&mut sent], Duration::ZERO);
    assert_eq!(refused, Err(WaitAnyError::OtherChannel));
    drop(parts.memory);
}

/// A signaled send of nothing.
///
/// # Safety
///
/// The queue pair is connected.
unsafe fn send(port: &mut nanoverbs::port::SendPort) -> i32 {
    let mut wr = nanoverbs_core::abi::SendWr {
        opcode: nanoverbs_core::abi::opcode::SEND,
        send_flags: send_flags::SIGNALED,
        ..nanoverbs_core::abi::SendWr::EMPTY
    };
    let mut bad = std::ptr::null_mut();
    // SAFETY: one request without pieces, and the caller's promise.
    unsafe { nanoverbs_core::port::SendPort::post_send(port, &raw mut wr, &mut bad) }
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f33_solicited_arming_is_refused_where_sends_complete_and_wakes_where_it_may() {
    let (mut client, mut server) = connected(&setup());
    let sends = client.parts.queue_pair.send_completions();
    assert_eq!(sends.arm(Arm::Solicited), Err(ArmRefused::SolicitedWithSends));
    let receives = Arc::clone(server.parts.queue_pair.recv_completions());
    let channel = channel_of(&receives);
    receives.arm(Arm::Solicited).expect("only receives complete here");
    assert_eq!(client.parts.post_send(8, 4, 0), 0);
    server.parts.received(1);
    assert_eq!(channel.wait(Duration::from_millis(100)), Ok(false), "it was not flagged");
    assert_eq!(client.parts.post_send(9, 4, send_flags::SOLICITED), 0);
    assert_eq!(channel.wait(PATIENCE), Ok(true));
    assert_eq!(server.parts.received(1)[0].status, 0);
    let alone = CompletionQueue::new(receives.device(), 4, None).expect("a queue");
    assert_eq!(alone.arm(Arm::Any), Err(ArmRefused::NoChannel));
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f34_more_completions_than_a_batch_do_not_wait_for_another_event() {
    let (mut client, server) = connected(&setup());
    let parts = server.parts;
    let queue = Arc::clone(parts.queue_pair.recv_completions());
    let channel = channel_of(&queue);
    drop(parts.recv_poll);
    let mut received: Completions<_, 4> = Completions::new(queue.poll_port().expect("a port"), 8);
    queue.arm(Arm::Any).expect("it can");
    for piece in 8..15 {
        assert_eq!(client.parts.post_send(piece, 4, 0), 0);
    }
    client.parts.sent(7);
    let mut taken = 0;
    while taken < 7 {
        assert_eq!(channel.wait_any(&mut [&mut received], PATIENCE), Ok(true), "{taken}");
        // One batch a wake-up.
        taken += received.poll().expect("it can be polled").count();
    }
    assert_eq!(taken, 7);
    assert_eq!(channel.wait_any(&mut [&mut received], Duration::from_millis(50)), Ok(false));
    assert!(!is_readable(&*channel), "the descriptor does not spin an event loop");
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f35_two_waiters_and_one_event_end_both_at_their_time() {
    let (mut client, server) = connected(&setup());
    let queue = Arc::clone(server.parts.queue_pair.recv_completions());
    let channel = channel_of(&queue);
    assert_eq!(channel.drain(), Ok(0), "nothing is no error");
    queue.arm(Arm::Any).expect("it can");
    let patience = Duration::from_secs(2);
    let began = Instant::now();
    let mut woken = thread::scope(|scope| {
        let wait = || scope.spawn(|| channel.wait(patience).expect("no error"));
        let waiters = [wait(), wait()];
        assert_eq!(client.parts.post_send(8, 4, 0), 0);
        waiters.map(|waiter| waiter.join().expect("it ends well"))
    });
    woken.sort_unstable();
    assert_eq!(woken, [false, true]);
    assert!((patience..PROMPT).contains(&began.elapsed()), "{:?}", began.elapsed());
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f36_events_that_nobody_took_do_not_hold_up_a_queue() {
    let (mut client, mut server) = connected(&setup());
    let queues = [
        Arc::clone(server.parts.queue_pair.recv_completions()),
        Arc::clone(client.parts.queue_pair.recv_completions()),
    ];
    for queue in &queues {
        queue.arm(Arm::Any).expect("it can");
    }
    assert_eq!(client.parts.post_send(8, 4, 0), 0);
    assert_eq!(server.parts.post_send(8, 4, 0), 0);
    assert_eq!(server.parts.received(1).len() + client.parts.received(1).len(), 2);
    let began = Instant::now();
    drop((client, server, queues));
    assert!(began.elapsed() < PROMPT, "{:?}", began.elapsed());
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn what_the_device_has_not_is_left_out_and_told() {
    let extras = |device: &Arc<Device>| {
        let options = CompletionQueueOptions::new(8).timestamps();
        // SAFETY: these are polled by their test's one thread, which makes and destroys everything
        // on them.
        let options = unsafe { options.single_threaded() };
        let queue = options.make(device).expect("a queue");
        assert!(!queue.has_timestamps(), "rxe has no clock");
        assert!(!queue.is_single_threaded(), "a plain queue took its place");
        assert!(queue.timed_port().is_err());
        queue
    };
    let device = Device::open("rxe0").expect("a device");
    drop(extras(&device));
    assert_eq!(device.clock_khz(), None);
    let vectors = device.vectors();
    assert!(vectors > 0);
    let refused = CompletionQueueOptions::new(8).vector(vectors).make(&device).map(drop);
    assert_eq!(refused, Err(CompletionQueueError::Vector { given: vectors, vectors }));
    CompletionQueueOptions::new(8).vector(vectors - 1).make(&device).expect("the last one");
    // SAFETY: nothing is made in it.
    let domain = unsafe { ProtectionDomain::single_threaded(&device) }.map(drop);
    assert_eq!(domain, Err(DomainError::Unsupported));
    let setup = Setup {
        receives: 1,
        queues: |device| {
            let queue = || CompletionQueueOptions::new(8).timestamps().make(device);
            (queue().expect("a queue"), queue().expect("a queue"))
        },
        ..Setup::default()
    };
    let (mut client, mut server) = connected(&setup);
    client.parts.write(8, b"plain");
    assert_eq!(client.parts.post_send(8, 5, 0), 0);
    assert_eq!(server.parts.received(1)[0].byte_len, 5);
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn a_queue_of_a_single_thread_works_where_it_can_be_had() {
    let setup = Setup {
        receives: 1,
        queues: |device| {
            // SAFETY: only the test's one thread uses them once both ends are made.
            let queue = || unsafe { CompletionQueueOptions::new(8).single_threaded() }.make(device);
            (queue().expect("a queue"), queue().expect("a queue"))
        },
        ..Setup::default()
    };
    let (mut client, mut server) = connected(&setup);
    let told = client.parts.queue_pair.send_completions().is_single_threaded();
    println!("rxe grants a queue of a single thread: {told}");
    client.parts.write(8, b"alone");
    assert_eq!(client.parts.post_send(8, 5, 0), 0);
    assert_eq!(server.parts.received(1)[0].byte_len, 5);
    assert_eq!(client.parts.sent(1)[0].status, 0);
}
