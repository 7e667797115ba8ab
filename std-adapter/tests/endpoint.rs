//! Endpoints on the soft device: the front door without hardware.

use std::time::Duration;

use nanoverbs::Deadline;
use nanoverbs::endpoint::{
    Endpoint, EndpointError, Idle, Options, PostError, Refusal, Soft, SoftDevice, WaitError,
};
use nanoverbs::memory::Rights;
use nanoverbs_core::{
    Block, Outcome, PushError, RemoteRegion, ReserveError, WcStatus, op, soft::Profile,
};

type End<C> = Endpoint<Soft, C>;
/// Up to eight blocks.
type Blocks = heapless::Vec<Block, 8>;

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

fn device() -> &'static SoftDevice {
    Box::leak(Box::new(SoftDevice::new()))
}

fn pair_on<C>(device: &'static SoftDevice, options: Options, receives: usize) -> (End<C>, End<C>)
where
    C: From<Block> + nanoverbs_core::RecvBuffers,
{
    let [a, b] = options.soft_pair(device).unwrap();
    let a = a.receives(receives).unwrap().establish(soon()).unwrap();
    (a, b.receives(receives).unwrap().establish(soon()).unwrap())
}

fn pair(options: Options, receives: usize) -> (End<Block>, End<Block>) {
    pair_on(device(), options, receives)
}

#[test]
fn a_message_goes_there_and_both_blocks_come_back() {
    let (mut client, mut server) = pair(Options::new(), 1);
    let mut block = client.block().unwrap();
    block.set_len(5).unwrap();
    block.copy_from_slice(b"hello");
    client.post_send(block).unwrap();
    let arrived = server.recv_completion(soon()).unwrap();
    assert_eq!(arrived.message(), Some(&b"hello"[..]));
    let sent = client.send_completion(soon()).unwrap();
    assert!(sent.outcome.is_done());
    assert_eq!(&sent.context[..], b"hello");
}

#[test]
fn f42_two_threads_play_ping_pong_whichever_way_they_wait() {
    let waits = [Idle::Spin, Idle::SpinThenYield { spins: 10 }, Idle::SpinThenWait { spins: 1000 }];
    for idle in waits {
        ping_pong(Options::new().blocks(8, 64).idle(idle));
    }
}

fn ping_pong(options: Options) {
    let (mut client, mut server) = pair(options, 2);
    let rounds = if cfg!(miri) { 20 } else { 2000 };
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..rounds {
                let ping = server.recv_completion(soon()).unwrap().context;
                server.post_send(ping).unwrap();
                let pong = server.send_completion(soon()).unwrap().context;
                server.post_recv(pong).unwrap();
            }
        });
        for round in 0..rounds {
            let mut block = client.block().unwrap();
            block.fill(round as u8);
            client.post_send(block).unwrap();
            drop(client.send_completion(soon()).unwrap());
            let pong = client.recv_completion(soon()).unwrap().context;
            assert!(pong.iter().all(|&byte| byte == round as u8));
            client.post_recv(pong).unwrap();
        }
    });
}

#[test]
fn one_thread_sends_while_another_receives() {
    let (mut client, mut server) = pair(Options::new().blocks(64, 64), 16);
    let count: u32 = if cfg!(miri) { 40 } else { 300 };
    let (mut there, mut back) = (client.split(), server.split());
    std::thread::scope(|scope| {
        // The server echoes with both of its halves, the client uses one thread for each.
        scope.spawn(move || {
            for _ in 0..count {
                let ping = back.recv.completion(soon()).unwrap().context;
                back.send.post_send(ping).unwrap();
                let pong = back.send.completion(soon()).unwrap().context;
                back.recv.post_recv(pong).unwrap();
            }
        });
        scope.spawn(move || {
            for at in 0..count {
                let ended = there.recv.completion(soon()).unwrap();
                assert_eq!(&ended.context[..4], at.to_le_bytes());
                there.recv.post_recv(ended.context).unwrap();
            }
        });
        let pool = there.pool.unwrap();
        let mut at = 0_u32;
        while at < count {
            // No more than the peer has receives for.
            if there.send.in_flight() < 8 {
                let mut block = pool.allocate().unwrap();
                block[..4].copy_from_slice(&at.to_le_bytes());
                there.send.post_send(block).unwrap();
                at += 1;
            }
            while there.send.try_completion().unwrap().is_some() {}
        }
        while there.send.in_flight() > 0 {
            let _ = there.send.completion(soon()).unwrap();
        }
    });
}

#[test]
fn a_scattered_read_and_a_gathered_write_move_the_bytes() {
    let options = Options::new().sges(8).blocks(16, 64);
    let [a, b] = options.soft_pair::<Blocks>(device()).unwrap();
    let mut client = a.no_receives().establish(soon()).unwrap();
    let mut server = b.no_receives().establish(soon()).unwrap();
    let shared = server.share(4096, Rights::READ_SOURCE.and(Rights::WRITE_TARGET)).unwrap();
    let pattern: Vec<u8> = (0..256_u32).map(|byte| byte as u8).collect();
    shared.write_at(100, &pattern).unwrap();
    // What was advertised travels as bytes.
    let remote = RemoteRegion::from_wire(&shared.advertise().to_wire()).unwrap();

    let blocks: Blocks = (0..4).map(|_| client.block().unwrap()).collect();
    client.post_read(remote.at(100, 256).unwrap(), blocks).unwrap();
    let read = client.send_completion(soon()).unwrap();
    assert_eq!(read.outcome.success().unwrap().byte_len(), Some(256));
    assert!(read.context.iter().flat_map(|block| block.iter()).eq(&pattern));

    client.post_write(remote.at(1000, 256).unwrap(), read.context).unwrap();
    assert!(client.send_completion(soon()).unwrap().outcome.is_done());
    let mut back = [0; 256];
    shared.read_at(1000, &mut back).unwrap();
    assert_eq!(&back[..], &pattern);
}

#[test]
fn f01_a_peer_without_a_receive_makes_the_send_fail_by_name_and_everything_comes_back() {
    let options = Options::new().soft_rnr_retry(0);
    let [a, b] = options.soft_pair::<Block>(device()).unwrap();
    // The types ask for a decision; here it is the wrong one.
    let mut client = a.receives(2).unwrap().establish(soon()).unwrap();
    let _server = b.no_receives().establish(soon()).unwrap();
    let (first, second) = (client.block().unwrap(), client.block().unwrap());
    client.post_send(first).unwrap();
    client.post_send(second).unwrap();
    let failed = client.send_completion(soon()).unwrap();
    let Outcome::Failed(failure) = failed.outcome else { panic!("{:?}", failed.outcome) };
    assert_eq!(failure.status(), WcStatus::RnrRetryExceeded);
    assert!(matches!(client.send_completion(soon()).unwrap().outcome, Outcome::Flushed));
    for _ in 0..2 {
        assert!(matches!(client.recv_completion(soon()).unwrap().outcome, Outcome::Flushed));
    }
    let block = client.block().unwrap();
    let error = client.post_send(block).unwrap_err();
    assert!(matches!(error.refusal(), Some(Refusal::Reserve(ReserveError::Closed(_)))));
}

#[test]
fn f04_a_message_longer_than_the_receive_fails_by_name_and_the_buffers_come_back() {
    let rxe = Box::leak(Box::new(SoftDevice::with_profile(Profile::rxe())));
    let strict = [WcStatus::RemoteInvalidRequest, WcStatus::LocalLength];
    let merged = [WcStatus::RemoteOperation, WcStatus::LocalQpOperation];
    for (device, [at_sender, at_receiver]) in [(device(), strict), (rxe, merged)] {
        // A receive takes 64 bytes: exact fits, one more does not.
        let options = Options::new().sges(2).blocks(8, 64);
        let [a, b] = options.soft_pair::<Blocks>(device).unwrap();
        let mut client = a.no_receives().establish(soon()).unwrap();
        let mut server = b;
        let buffers: Vec<Blocks> =
            (0..3).map(|_| [server.block().unwrap()].into_iter().collect()).collect();
        let mut server = server.receives_into(buffers).unwrap().establish(soon()).unwrap();
        let exact: Blocks = [client.block().unwrap()].into_iter().collect();
        client.post_send(exact).unwrap();
        assert!(client.send_completion(soon()).unwrap().outcome.is_done());
        let fits = server.recv_completion(soon()).unwrap();
        assert_eq!(fits.outcome.success().unwrap().byte_len(), Some(64));
        let mut byte = client.block().unwrap();
        byte.set_len(1).unwrap();
        let longer: Blocks = [client.block().unwrap(), byte].into_iter().collect();
        client.post_send(longer).unwrap();
        let sent = client.send_completion(soon()).unwrap();
        assert!(matches!(sent.outcome, Outcome::Failed(failure) if failure.status() == at_sender));
        let failed = server.recv_completion(soon()).unwrap();
        let Outcome::Failed(failure) = failed.outcome else { panic!("{:?}", failed.outcome) };
        assert_eq!(failure.status(), at_receiver);
        assert_eq!(failed.context[0].capacity(), 64, "the buffer, and what it takes");
        assert!(matches!(server.recv_completion(soon()).unwrap().outcome, Outcome::Flushed));
    }
}

#[test]
fn f12_f19_f22_what_is_wrong_with_a_request_is_said_and_the_block_comes_back() {
    let (mut client, mut server) = pair(Options::new().blocks(4, 64), 1);
    let shared = server.share(64, Rights::READ_SOURCE).unwrap();
    let block = client.block().unwrap();
    let error = client.post_write(shared.advertise(), block).unwrap_err();
    let PostError::Refused { context: block, cause: Refusal::Push(cause) } = error else {
        panic!("{error:?}")
    };
    assert!(matches!(cause, PushError::RemoteAccess { .. }));
    let small = shared.advertise().at(0, 10).unwrap();
    let error = client.post_read(small, block).unwrap_err();
    assert_eq!(
        error.refusal(),
        Some(Refusal::Push(PushError::RemoteTooShort { total: 64, remote: 10 }))
    );
    // A block of one pair's memory is of another domain than the other's queue pair.
    let (mut other, _other) = pair(Options::new(), 1);
    let error = other.post_send(client.block().unwrap()).unwrap_err();
    assert!(matches!(error.refusal(), Some(Refusal::Push(PushError::WrongDomain { .. }))));
}

#[test]
fn f16_a_deadline_that_passes_gives_no_buffer_back() {
    let (mut client, _server) = pair(Options::new().blocks(2, 64), 1);
    // One block is posted as a receive, and nothing arrives.
    let error = client.recv_completion(Duration::from_millis(5)).unwrap_err();
    assert_eq!(error, WaitError::TimedOut { in_flight: 1 });
    let held = client.block().unwrap();
    assert!(client.block().is_none(), "the posted block is the device's");
    drop(held);
    assert_eq!(client.send_completion(soon()).unwrap_err(), WaitError::NothingPosted);
}

#[test]
fn f23_a_send_before_the_connection_is_an_error_and_a_receive_is_not() {
    let [mut a, b] = Options::new().soft_pair::<Block>(device()).unwrap();
    assert_eq!(a.reserve_sends(1).unwrap_err(), ReserveError::NotConnected);
    let mut ready = a.receives(1).unwrap();
    let block = ready.block().unwrap();
    ready.post_recv(block).unwrap();
    assert_eq!(ready.reserve_sends(1).unwrap_err(), ReserveError::NotConnected);
    let mut a = ready.establish(soon()).unwrap();
    assert!(a.reserve_sends(1).is_ok());
    assert_eq!(a.receives_posted(), 2);
    drop(b);
}

#[test]
fn f64_closing_with_work_outstanding_gives_every_context_back() {
    let device = device();
    let (mut client, server) = pair_on::<Block>(device, Options::new().blocks(16, 64), 4);
    for _ in 0..2 {
        let block = client.block().unwrap();
        client.post_send(block).unwrap();
    }
    let closed = client.close(soon());
    assert_eq!((closed.sends.len(), closed.receives.len()), (2, 4));
    assert!(closed.receives.iter().all(|ended| matches!(ended.outcome, Outcome::Flushed)));
    let mut pool = closed.pool.unwrap();
    drop((closed.sends, closed.receives));
    let blocks: Vec<_> = (0..16).map_while(|_| pool.allocate()).collect();
    assert_eq!(blocks.len(), 16, "every block is back");
    drop(server);
    // And the device has room for another pair.
    let _ = pair_on::<Block>(device, Options::new(), 1);
}

#[test]
fn f40_a_wait_for_a_peer_that_says_nothing_ends_at_its_deadline_and_loses_nothing() {
    let (mut client, mut server) = pair(Options::new().blocks(4, 64), 2);
    for _ in 0..3 {
        let error = client.recv_completion(Duration::from_millis(2)).unwrap_err();
        assert_eq!(error, WaitError::TimedOut { in_flight: 2 });
    }
    assert_eq!((client.receives_posted(), client.closed()), (2, None));
    // What comes after all finds its receive.
    let block = server.block().unwrap();
    server.post_send(block).unwrap();
    assert!(client.recv_completion(soon()).unwrap().outcome.is_done());
    assert_eq!(client.receives_posted(), 1);
}

#[test]
fn f63_an_endpoint_its_blocks_and_its_shared_memory_go_in_any_order() {
    let device = device();
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let (mut client, server) = pair_on::<Block>(device, Options::new().blocks(8, 64), 2);
        let shared = client.share(64, Rights::READ_SOURCE.and(Rights::WRITE_TARGET)).unwrap();
        let (posted, block) = (client.block().unwrap(), client.block());
        client.post_send(posted).unwrap();
        let mut parts = (Some(client), block, Some(shared));
        for part in order {
            match part {
                0 => drop(parts.0.take()),
                1 => drop(parts.1.take()),
                _ => drop(parts.2.take()),
            }
        }
        drop(server);
    }
    assert_eq!(nanoverbs_core::leaked_contexts(), 0);
}

#[test]
fn a_dropped_endpoint_leaks_nothing_and_frees_its_place() {
    let device = device();
    for _ in 0..5 {
        let (mut client, server) = pair_on::<Block>(device, Options::new(), 3);
        let block = client.block().unwrap();
        client.post_send(block).unwrap();
        drop((server, client));
    }
    assert_eq!(nanoverbs_core::leaked_contexts(), 0);
}

#[test]
fn f72_memory_that_is_brought_in_on_demand_is_refused_where_there_is_none() {
    let (mut client, _server) = pair(Options::new(), 1);
    let refused = client.share(64, Rights::READ_SOURCE.and(Rights::ON_DEMAND)).map(drop);
    let Err(EndpointError::SoftRegister(error)) = refused else { panic!("{refused:?}") };
    assert_eq!(error.to_string(), "the soft device has no on-demand paging");
    client.share(64, Rights::READ_SOURCE).unwrap();
}

#[test]
fn chains_go_out_together_and_silent_requests_end_with_a_later_one() {
    let (mut client, mut server) = pair(Options::new().blocks(64, 64).idle(Idle::Spin), 16);
    let blocks: Vec<_> = (0..8).map(|_| client.block().unwrap()).collect();
    let mut chain = client.reserve_sends(8).unwrap();
    for (at, block) in blocks.into_iter().enumerate() {
        let silent = op::Send::new();
        chain.push(if at == 7 { silent.signaled() } else { silent }, block).unwrap();
    }
    assert_eq!(chain.submit().unwrap(), 8);
    for _ in 0..8 {
        assert!(server.recv_completion(soon()).unwrap().outcome.is_done());
        assert!(client.send_completion(soon()).unwrap().outcome.is_done());
    }
    assert_eq!(client.sends_in_flight(), 0);
}

#[test]
fn inline_messages_are_copied_and_bounded_by_what_was_granted() {
    let (mut client, mut server) = pair(Options::new().inline(64), 1);
    assert_eq!(client.inline(), 64);
    let mut block = client.block().unwrap();
    block.set_len(65).unwrap();
    let PostError::Refused { context: mut block, cause } =
        client.post_send_inline(block).unwrap_err()
    else {
        panic!()
    };
    assert_eq!(cause, Refusal::Push(PushError::InlineTooLong { given: 65, max: 64 }));
    block.set_len(64).unwrap();
    block.fill(7);
    client.post_send_inline(block).unwrap();
    assert_eq!(&server.recv_completion(soon()).unwrap().context[..64], [7; 64]);
}

#[test]
fn a_peer_that_is_gone_is_an_error_and_not_a_hang() {
    let (mut client, server) = pair(Options::new(), 2);
    drop(server);
    let block = client.block().unwrap();
    client.post_send(block).unwrap();
    let sent = client.send_completion(soon()).unwrap();
    assert!(!sent.outcome.is_done());
    for _ in 0..2 {
        assert!(matches!(client.recv_completion(soon()).unwrap().outcome, Outcome::Flushed));
    }
    assert_eq!(client.recv_completion(soon()).unwrap_err(), WaitError::Disconnected);
}

#[test]
fn a_peer_that_only_leaves_ends_the_wait_for_its_message() {
    let (mut client, server) = pair(Options::new(), 1);
    drop(server);
    assert!(matches!(client.recv_completion(soon()).unwrap().outcome, Outcome::Flushed));
    assert_eq!(client.recv_completion(soon()).unwrap_err(), WaitError::Disconnected);
}

#[test]
fn sizes_out_of_range_are_refused_with_the_range() {
    let error = Options::new().depth(0, 1).soft_pair::<Block>(device()).unwrap_err();
    let text = error.to_string();
    assert_eq!(text, "the number of sends in flight is 0, and 1 to 128 are allowed");
    for options in [
        Options::new().depth(1, 129),
        Options::new().sges(9),
        Options::new().blocks(0, 64),
        Options::new().blocks(1, 0),
    ] {
        let error = options.soft_pair::<Block>(device()).unwrap_err();
        assert!(matches!(error, EndpointError::OutOfRange { .. }));
    }
}

#[test]
fn f65_closing_waits_for_no_completion_that_cannot_come() {
    let (mut client, mut server) = pair(Options::new(), 4);
    for _ in 0..3 {
        let block = client.block().unwrap();
        client.post(op::Send::new(), block).unwrap();
        assert!(server.recv_completion(soon()).unwrap().outcome.is_done());
    }
    assert_eq!(client.sends_in_flight(), 3);
    let began = std::time::Instant::now();
    let closed = client.close(soon());
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!((closed.sends.len(), closed.receives.len()), (3, 4));
    assert!(closed.sends.iter().all(|ended| matches!(ended.outcome, Outcome::Abandoned)));
    assert!(closed.receives.iter().all(|ended| matches!(ended.outcome, Outcome::Flushed)));
}

#[test]
fn f63_blocks_that_outlive_their_endpoint_give_its_memory_back_when_they_go() {
    let device = device();
    // More rounds than the device has rows for regions.
    for _ in 0..64 {
        let (mut client, server) = pair_on::<Block>(device, Options::new().blocks(4, 64), 1);
        let held = client.block().unwrap();
        drop((client, server));
        drop(held);
    }
}
