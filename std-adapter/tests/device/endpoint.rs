//! Endpoints over the real librdmacm: every step of a request, and what comes back when it goes
//! wrong.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use nanoverbs::Deadline;
use nanoverbs::cm::{ConnectParams, Connector, EventChannel, ListenOptions, Listener, RnrRetry};
use nanoverbs::endpoint::{Endpoint, Establishing, Idle, Options, Ready, Step, Verbs, WaitError};
use nanoverbs::memory::Rights;
use nanoverbs_core::{Block, Outcome, RemoteRegion, ReserveError, WcStatus};

type End<C = Block> = Endpoint<Verbs, C>;
type Blocks = heapless::Vec<Block, 8>;

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

fn address(port: u16) -> SocketAddr {
    let host = std::env::var("NANOVERBS_RXE_ADDR").unwrap();
    SocketAddr::new(host.parse().unwrap(), port)
}

/// Both ends: the server's readied by one closure, the client's by another.
fn connected<C: Send + 'static>(
    addr: SocketAddr,
    options: Options,
    server: impl FnOnce(nanoverbs::endpoint::Prepared<Verbs, C>) -> Ready<Verbs, C> + Send,
    client: impl FnOnce(nanoverbs::endpoint::Prepared<Verbs, C>) -> Ready<Verbs, C>,
) -> (End<C>, End<C>) {
    let listener = Listener::bind(addr).unwrap();
    std::thread::scope(|scope| {
        let server = scope.spawn(move || {
            let prepared = options.accept(&listener, soon()).unwrap();
            server(prepared).establish(soon()).unwrap()
        });
        let ready = client(options.connect(addr, soon()).unwrap());
        (ready.establish(soon()).unwrap(), server.join().unwrap())
    })
}

fn pair(port: u16, options: Options, receives: usize) -> (End, End) {
    let ready = move |prepared: nanoverbs::endpoint::Prepared<Verbs, Block>| {
        prepared.receives(receives).unwrap()
    };
    connected(address(port), options, ready, ready)
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn endpoint_messages_and_blocks_come_back_over_ipv4_and_ipv6() {
    let v6 = std::env::var("NANOVERBS_RXE_ADDR6").unwrap();
    for addr in [address(7500), SocketAddr::new(v6.parse().unwrap(), 7501)] {
        for idle in
            [Idle::Spin, Idle::SpinThenYield { spins: 10 }, Idle::SpinThenWait { spins: 10 }]
        {
            let ready = |prepared: nanoverbs::endpoint::Prepared<Verbs, Block>| {
                prepared.receives(4).unwrap()
            };
            let options = Options::new().inline(64).idle(idle);
            let (mut client, mut server) = connected(addr, options, ready, ready);
            for round in 0..50_u8 {
                let mut block = client.block().unwrap();
                block.set_len(64).unwrap();
                block.fill(round);
                if round % 2 == 0 {
                    client.post_send(block).unwrap();
                } else {
                    client.post_send_inline(block).unwrap();
                }
                assert!(client.send_completion(soon()).unwrap().outcome.is_done());
                let ended = server.recv_completion(soon()).unwrap();
                assert_eq!(ended.outcome.success().unwrap().byte_len(), Some(64));
                assert_eq!(&ended.context[..64], [round; 64]);
                server.post_recv(ended.context).unwrap();
            }
            let closed = client.close(soon());
            assert_eq!(closed.receives.len(), 4);
        }
    }
    assert_eq!(nanoverbs_core::leaked_contexts(), 0);
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn endpoint_scattered_read_and_gathered_write_move_every_byte() {
    let options = Options::new().sges(8).blocks(16, 1024);
    let (mut client, mut server) = connected::<Blocks>(
        address(7502),
        options,
        |prepared| prepared.no_receives(),
        |prepared| prepared.no_receives(),
    );
    let shared = server.share(16384, Rights::READ_SOURCE.and(Rights::WRITE_TARGET)).unwrap();
    let pattern: Vec<u8> = (0..8192_u32).map(|at| (at * 7 + at / 256) as u8).collect();
    shared.write_at(0, &pattern).unwrap();
    let remote = RemoteRegion::from_wire(&shared.advertise().to_wire()).unwrap();
    let blocks: Blocks = (0..8).map(|_| client.block().unwrap()).collect();
    client.post_read(remote.at(0, 8192).unwrap(), blocks).unwrap();
    let read = client.send_completion(soon()).unwrap();
    assert_eq!(read.outcome.success().unwrap().byte_len(), Some(8192));
    assert!(read.context.iter().flat_map(|block| block.iter()).eq(&pattern));
    client.post_write(remote.at(8192, 8192).unwrap(), read.context).unwrap();
    assert!(client.send_completion(soon()).unwrap().outcome.is_done());
    let mut back = vec![0; 8192];
    shared.read_at(8192, &mut back).unwrap();
    assert_eq!(back, pattern);
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn endpoint_answer_names_memory_of_its_own() {
    let addr = address(7519);
    let listener = Listener::bind(addr).unwrap();
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let mut server = Options::new().accept::<Block>(&listener, soon()).unwrap();
            let shared = server.share(64, Rights::READ_SOURCE).unwrap();
            shared.write_at(0, &[7; 64]).unwrap();
            server.send_along(&shared.advertise().at(0, 64).unwrap().to_wire());
            (server.no_receives().establish(soon()).unwrap(), shared)
        });
        let client = Options::new().blocks(1, 64).connect::<Block>(addr, soon()).unwrap();
        let mut client = client.no_receives().establish(soon()).unwrap();
        let wire = *client.private_data().first_chunk().unwrap();
        let block = client.block().unwrap();
        client.post_read(RemoteRegion::from_wire(&wire).unwrap(), block).unwrap();
        let read = client.send_completion(soon()).unwrap();
        assert!(read.outcome.is_done());
        assert_eq!(&read.context[..], [7; 64]);
        drop(server.join().unwrap());
    });
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f01_a_peer_without_a_receive_fails_the_send_by_name_and_flushes_the_rest() {
    let params = ConnectParams::new().rnr_retry(RnrRetry::NEVER);
    let (mut client, _server) = connected::<Block>(
        address(7503),
        Options::new().params(params),
        |prepared| prepared.no_receives(),
        |prepared| prepared.receives(2).unwrap(),
    );
    for _ in 0..2 {
        let block = client.block().unwrap();
        client.post_send(block).unwrap();
    }
    let failed = client.send_completion(soon()).unwrap();
    let Outcome::Failed(failure) = failed.outcome else { panic!("{:?}", failed.outcome) };
    assert_eq!(failure.status(), WcStatus::RnrRetryExceeded);
    assert!(matches!(client.send_completion(soon()).unwrap().outcome, Outcome::Flushed));
    for _ in 0..2 {
        assert!(matches!(client.recv_completion(soon()).unwrap().outcome, Outcome::Flushed));
    }
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f04_a_message_longer_than_the_receive_fails_both_ends_and_the_buffers_come_back() {
    let (mut client, mut server) = connected::<Blocks>(
        address(7504),
        Options::new().sges(2).blocks(8, 64),
        |mut prepared| {
            let buffers: Vec<Blocks> =
                (0..3).map(|_| [prepared.block().unwrap()].into_iter().collect()).collect();
            prepared.receives_into(buffers).unwrap()
        },
        |prepared| prepared.no_receives(),
    );
    let exact: Blocks = [client.block().unwrap()].into_iter().collect();
    client.post_send(exact).unwrap();
    assert!(client.send_completion(soon()).unwrap().outcome.is_done());
    assert_eq!(
        server.recv_completion(soon()).unwrap().outcome.success().unwrap().byte_len(),
        Some(64)
    );
    let mut byte = client.block().unwrap();
    byte.set_len(1).unwrap();
    let longer: Blocks = [client.block().unwrap(), byte].into_iter().collect();
    client.post_send(longer).unwrap();
    // Soft-RoCE says 11 to the sender and 2 to the receiver; hardware 9 and 1.
    let sent = client.send_completion(soon()).unwrap();
    assert!(matches!(sent.outcome, Outcome::Failed(f) if f.status() == WcStatus::RemoteOperation));
    let failed = server.recv_completion(soon()).unwrap();
    let Outcome::Failed(failure) = failed.outcome else { panic!("{:?}", failed.outcome) };
    assert_eq!(failure.status(), WcStatus::LocalQpOperation);
    assert_eq!(failed.context[0].capacity(), 64);
    assert!(matches!(server.recv_completion(soon()).unwrap().outcome, Outcome::Flushed));
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f16_a_read_that_was_given_up_on_keeps_its_buffer() {
    let (mut client, mut server) = pair(7505, Options::new().blocks(2, 64), 0);
    let shared = server.share(4096, Rights::READ_SOURCE).unwrap();
    // The deadline has passed before the device can answer, or it has answered: never both.
    let block = client.block().unwrap();
    client.post_read(shared.advertise().at(0, 64).unwrap(), block).unwrap();
    match client.send_completion(Duration::ZERO) {
        Err(WaitError::TimedOut { in_flight }) => {
            assert_eq!(in_flight, 1);
            let other = client.block().unwrap();
            assert!(client.block().is_none(), "the other block is the device's");
            drop(other);
            assert!(client.send_completion(soon()).unwrap().outcome.is_done());
        }
        ended => assert!(ended.unwrap().outcome.is_done()),
    }
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f23_a_read_before_the_connection_is_an_error_and_a_receive_is_not() {
    let _listener = Listener::bind(address(7506)).unwrap();
    let mut prepared = Options::new().connect::<Block>(address(7506), soon()).unwrap();
    assert_eq!(prepared.reserve_sends(1).unwrap_err(), ReserveError::NotConnected);
    let mut ready = prepared.receives(1).unwrap();
    let block = ready.block().unwrap();
    ready.post_recv(block).unwrap();
    assert_eq!(ready.reserve_sends(1).unwrap_err(), ReserveError::NotConnected);
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f29_a_failed_receive_is_a_receive_whatever_the_device_claims() {
    let (mut client, mut server) = pair(7507, Options::new(), 1);
    drop(server.close(soon()));
    // Soft-RoCE completes the flushed receive with opcode 0, which is SEND.
    let failed = client.recv_completion(soon()).unwrap();
    assert!(matches!(failed.outcome, Outcome::Flushed));
    assert_eq!(client.recv_completion(soon()).unwrap_err(), WaitError::Disconnected);
    server = pair(7507, Options::new(), 1).1;
    assert_eq!(server.strays(), 0);
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f64_closing_with_work_outstanding_gives_every_context_back_once() {
    let (mut client, _server) = connected::<Block>(
        address(7508),
        Options::new().blocks(16, 64),
        |prepared| prepared.no_receives(),
        |prepared| prepared.receives(4).unwrap(),
    );
    for _ in 0..2 {
        let block = client.block().unwrap();
        client.post_send(block).unwrap();
    }
    let closed = client.close(soon());
    assert_eq!((closed.sends.len(), closed.receives.len()), (2, 4));
    assert!(closed.receives.iter().all(|ended| matches!(ended.outcome, Outcome::Flushed)));
    drop((closed.sends, closed.receives));
    let mut pool = closed.pool.unwrap();
    let blocks: Vec<_> = (0..16).map_while(|_| pool.allocate()).collect();
    assert_eq!(blocks.len(), 16, "every block is back");
    assert_eq!(nanoverbs_core::leaked_contexts(), 0);
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f40_a_wait_ends_at_its_deadline_and_loses_nothing() {
    let (mut client, mut server) = pair(7509, Options::new(), 1);
    let began = Instant::now();
    let error = server.recv_completion(Duration::from_millis(200)).unwrap_err();
    assert_eq!(error, WaitError::TimedOut { in_flight: 1 });
    assert!(began.elapsed() >= Duration::from_millis(200));
    let block = client.block().unwrap();
    client.post_send(block).unwrap();
    assert!(server.recv_completion(soon()).unwrap().outcome.is_done());
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn endpoint_both_ends_in_one_thread_and_no_call_blocks() {
    let v6 = std::env::var("NANOVERBS_RXE_ADDR6").unwrap();
    for addr in [address(7520), SocketAddr::new(v6.parse().unwrap(), 7521)] {
        let channel = EventChannel::new().unwrap();
        let listener = ListenOptions::new().on(&channel).bind(addr).unwrap();
        let options = Options::new().idle(Idle::Spin);
        let mut resolving = Some(Connector::new().on(&channel).start(addr, soon()).unwrap());
        let (mut client, mut server) = (None, None);
        let (mut client_end, mut server_end) = (None, None);
        while client_end.is_none() || server_end.is_none() {
            crate::readable(&channel);
            while let Some(token) = channel.poll_token().unwrap() {
                if token == listener.token() {
                    let request = listener.poll_request().unwrap().unwrap();
                    let ready = options.accept_request(request).unwrap().receives(2).unwrap();
                    server = Some(ready.start().unwrap());
                } else if resolving.as_ref().is_some_and(|step| step.token() == token) {
                    match resolving.take().unwrap().poll().unwrap() {
                        Step::Done(route) => {
                            let ready = options.connect_route(route).unwrap().receives(2).unwrap();
                            client = Some(ready.start().unwrap());
                        }
                        Step::Pending(step) => resolving = Some(step),
                    }
                } else {
                    for (step, end) in
                        [(&mut client, &mut client_end), (&mut server, &mut server_end)]
                    {
                        if step.as_ref().and_then(Establishing::token) == Some(token) {
                            match step.take().unwrap().poll().unwrap() {
                                Step::Done(done) => *end = Some(done),
                                Step::Pending(pending) => *step = Some(pending),
                            }
                        }
                    }
                }
            }
        }
        let (mut client, mut server): (End, End) = (client_end.unwrap(), server_end.unwrap());
        let mut block = client.block().unwrap();
        block.set_len(5).unwrap();
        block.copy_from_slice(b"hello");
        client.post_send(block).unwrap();
        let ended = server.recv_completion(soon()).unwrap();
        assert_eq!(&ended.context[..5], b"hello");
    }
}
