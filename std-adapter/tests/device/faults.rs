//! What goes wrong around a program: the peer is killed, the wire is cut, the device goes, signals come,
//! the process forks. Each ends in a defined outcome before its deadline, and no block is lost.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nanoverbs::Deadline;
use nanoverbs::cm::{AckTimeout, ConnectParams, Listener, Retry, RnrRetry};
use nanoverbs::endpoint::{
    BlockPool, Endpoint, EndpointError, Options, PostError, Prepared, Ready, Verbs, WaitError,
};
use nanoverbs::memory::{RegisterCause, Rights};
use nanoverbs_core::{Block, Ended, Outcome, RemoteRegion, WcStatus, op};

use crate::ends::{PROMPT, ip};

type End = Endpoint<Verbs, Block>;

pub(crate) fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(30))
}

pub(crate) fn address(port: u16) -> SocketAddr {
    SocketAddr::new(ip("NANOVERBS_RXE_ADDR"), port)
}

fn with(params: ConnectParams) -> Options {
    Options::new().params(params)
}

/// A client and a server, each with so many receives.
pub(crate) fn pair(addr: SocketAddr, options: Options, receives: usize) -> (End, End) {
    let listener = Listener::bind(addr).unwrap();
    let ready = |prepared: Prepared<Verbs, Block>| -> Ready<Verbs, Block> {
        prepared.receives(receives).unwrap()
    };
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let prepared = options.accept(&listener, soon()).unwrap();
            ready(prepared).establish(soon()).unwrap()
        });
        let client = ready(options.connect(addr, soon()).unwrap());
        (client.establish(soon()).unwrap(), server.join().unwrap())
    })
}

/// Sends a message and sees it arrive.
pub(crate) fn says(client: &mut End, server: &mut End, byte: u8) {
    let mut block = client.block().unwrap();
    block.set_len(32).unwrap();
    block.fill(byte);
    client.post_send(block).unwrap();
    let arrived = server.recv_completion(soon()).unwrap();
    assert_eq!(arrived.outcome.success().unwrap().byte_len(), Some(32));
    assert_eq!(arrived.context[..32], [byte; 32]);
    assert!(client.send_completion(soon()).unwrap().outcome.is_done());
    server.post_recv(arrived.context).unwrap();
}

/// Every block of a pool can be had again.
fn assert_whole(pool: &mut BlockPool) {
    let all: Vec<Block> = std::iter::from_fn(|| pool.allocate()).collect();
    assert_eq!(all.len(), pool.capacity(), "blocks are lost");
}

pub(crate) fn shell(lines: &str) -> String {
    let script = format!(". /bed/lib.sh\n{lines}");
    let out = Command::new("sh").args(["-eu", "-c", &script]).output().unwrap();
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{lines}: {errors}");
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}

/// A wire between 10.1.0.1 and 10.1.0.2, which can be cut and be made to lose.
fn wire(port: u16) -> SocketAddr {
    shell("veth_pair");
    SocketAddr::from(([10, 1, 0, 2], port))
}

/// Short of patience: a lost packet is noticed after 140 ms, and given up on after `times` more.
fn hasty(times: u8) -> ConnectParams {
    let retry = Retry::times(times).unwrap();
    ConnectParams::new().ack_timeout(AckTimeout::code(15).unwrap()).retry(retry)
}

const CONNECTIONS: u16 = 8;
const EACH: usize = 42;
const PEER: &str = "NANOVERBS_TEST_PEER";

/// Not a test by itself: the peer of the one below, in a process of its own, until it is killed.
#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f64_the_peer_that_is_killed() {
    let Ok(port) = std::env::var(PEER) else { return };
    let listener = Listener::bind(address(port.parse().unwrap())).unwrap();
    println!("peer: listens");
    let mut all = vec![];
    loop {
        let options = with(ConnectParams::new());
        let mut prepared: Prepared<Verbs, Block> = options.accept(&listener, soon()).unwrap();
        let rights = Rights::READ_SOURCE.and(Rights::WRITE_TARGET);
        let shared = prepared.share(1 << 16, rights).unwrap();
        let wire: Vec<_> = shared.advertise().to_wire().iter().map(u8::to_string).collect();
        let end = prepared.no_receives().establish(soon()).unwrap();
        println!("peer: {}", wire.join(" "));
        all.push((end, shared));
    }
}

struct Peer {
    child: Child,
    told: BufReader<std::process::ChildStdout>,
}

impl Peer {
    fn start(port: u16) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "faults::f64_the_peer_that_is_killed", "--ignored", "--nocapture"])
            .env(PEER, port.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let told = BufReader::new(child.stdout.take().unwrap());
        let mut peer = Self { child, told };
        assert_eq!(peer.line(), "listens");
        peer
    }

    /// What it says next.
    fn line(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.told.read_line(&mut line).unwrap(), 0, "the peer has ended");
            // The test harness says things as well.
            if let Some((_, said)) = line.split_once("peer: ") {
                return said.trim().to_owned();
            }
        }
    }

    fn memory(&mut self) -> RemoteRegion {
        let said = self.line();
        let bytes: Vec<u8> = said.split(' ').map(|byte| byte.parse().unwrap()).collect();
        RemoteRegion::from_wire(&bytes.try_into().unwrap()).unwrap()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f64_a_killed_peer_gives_every_block_back_and_another_takes_its_place() {
    let mut peer = Peer::start(7600);
    let params = hasty(6).rnr_retry(RnrRetry::FOREVER).reads(64, 64);
    let options = with(params).depth(128, 128).blocks(4 * EACH, 256);
    let mut ends = vec![];
    for _ in 0..CONNECTIONS {
        let prepared: Prepared<Verbs, Block> = options.connect(address(7600), soon()).unwrap();
        let mut end = prepared.receives(EACH).unwrap().establish(soon()).unwrap();
        let memory = peer.memory();
        // Nobody posted a receive, so the SENDs wait, and all that is behind them.
        for _ in 0..EACH {
            let block = end.block().unwrap();
            end.post_send(block).unwrap();
        }
        for _ in 0..EACH {
            let block = end.block().unwrap();
            end.post_read(memory, block).unwrap();
            let block = end.block().unwrap();
            end.post_write(memory, block).unwrap();
        }
        assert!(end.block().is_none());
        assert_eq!((end.sends_in_flight(), end.receives_posted()), (3 * EACH as u32, EACH as u32));
        ends.push(end);
    }
    drop(peer);
    let began = Instant::now();
    let mut pools = vec![];
    for mut end in ends {
        for _ in 0..3 * EACH {
            let ended = end.send_completion(soon()).unwrap();
            assert!(!ended.outcome.is_done(), "{:?}", ended.outcome);
        }
        for _ in 0..EACH {
            let ended = end.recv_completion(soon()).unwrap();
            assert!(matches!(ended.outcome, Outcome::Flushed), "{:?}", ended.outcome);
        }
        assert_eq!(end.send_completion(soon()).map(drop), Err(WaitError::Disconnected));
        let mut pool = end.close(soon()).pool.unwrap();
        assert_whole(&mut pool);
        pools.push(pool);
    }
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    // The same memory, on a connection to the next peer.
    let mut peer = Peer::start(7600);
    let prepared: Prepared<Verbs, Block> = options.connect(address(7600), soon()).unwrap();
    let mut end = prepared.no_receives().establish(soon()).unwrap();
    let memory = peer.memory();
    for pool in &mut pools {
        end.post_write(memory, pool.allocate().unwrap()).unwrap();
        assert!(end.send_completion(soon()).unwrap().outcome.is_done());
    }
    drop(end);
    pools.iter_mut().for_each(assert_whole);
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f40_a_lossy_and_slow_wire_delivers_everything_once() {
    let addr = wire(7610);
    shell("drop_every v1 9\nwire v0 delay 2ms 1ms");
    let (mut client, mut server) = pair(addr, with(hasty(6)).depth(16, 16), 16);
    for byte in 0..100 {
        says(&mut client, &mut server, byte);
    }
    assert_ne!(shell("lost v1"), "0", "no packet was lost");
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f40_a_cut_wire_ends_waits_at_their_deadline_and_sends_after_their_retries() {
    let addr = wire(7611);
    let (mut client, mut server) = pair(addr, with(hasty(3)), 4);
    says(&mut client, &mut server, 1);
    shell("wire v0 loss 100%\nwire v1 loss 100%");
    // An idle connection does not notice.
    let began = Instant::now();
    let patience = Duration::from_millis(300);
    let waited = client.recv_completion(Deadline::after(patience)).map(drop);
    assert_eq!(waited, Err(WaitError::TimedOut { in_flight: 4 }));
    assert!((patience..PROMPT).contains(&began.elapsed()));
    for _ in 0..3 {
        let block = client.block().unwrap();
        client.post_send(block).unwrap();
    }
    let ended: Vec<Ended<Block>> =
        (0..3).map(|_| client.send_completion(soon()).unwrap()).collect();
    let Outcome::Failed(failure) = ended[0].outcome else { panic!("{:?}", ended[0].outcome) };
    assert_eq!(failure.status(), WcStatus::RetryExceeded);
    assert!(ended[1..].iter().all(|ended| matches!(ended.outcome, Outcome::Flushed)));
    drop(ended);
    for end in [client, server] {
        let mut closed = end.close(soon());
        closed.receives.clear();
        closed.sends.clear();
        assert_whole(closed.pool.as_mut().unwrap());
    }
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f40_a_link_that_goes_down_fails_the_next_send_and_a_new_connection_works_when_it_is_up() {
    let (mut client, mut server) = pair(address(7612), with(hasty(3)), 4);
    says(&mut client, &mut server, 1);
    shell("ip link set d0 down");
    let block = client.block().unwrap();
    client.post_send(block).unwrap();
    let ended = client.send_completion(soon()).unwrap();
    assert!(matches!(ended.outcome, Outcome::Failed(_)), "{:?}", ended.outcome);
    drop(ended);
    // Up before the connection manager has to say anything: on Soft-RoCE a send of its own that fails is its
    // last.
    shell("ip link set d0 up\nip addr replace fd00::1/64 dev d0 nodad");
    std::thread::sleep(Duration::from_millis(500));
    let closed = client.close(soon());
    assert_eq!(closed.receives.len(), 4);
    drop((closed, server));
    let (mut client, mut server) = pair(address(7613), with(hasty(3)), 4);
    says(&mut client, &mut server, 2);
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f62_a_device_that_is_deleted_under_load_gives_every_block_back() {
    // librdmacm lets go of a removed device only when another one is left.
    shell("ip link add d1 type dummy\nip link set d1 up\nrdma link add rxe1 type rxe netdev d1");
    let params = ConnectParams::new().rnr_retry(RnrRetry::FOREVER);
    let (mut client, mut server) = pair(address(7614), with(params), 2);
    for _ in 0..32 {
        let block = client.block().unwrap();
        client.post_send(block).unwrap();
    }
    let mut removal = Command::new("rdma").args(["link", "delete", "rxe0"]).spawn().unwrap();
    let mut outcomes = 0;
    while client.sends_in_flight() != 0 {
        drop(client.send_completion(soon()).unwrap());
        outcomes += 1;
    }
    while let Ok(Some(_)) = client.try_send_completion() {
        outcomes += 1;
    }
    assert_eq!(outcomes, 32);
    while server.receives_posted() != 0 {
        drop(server.recv_completion(soon()).unwrap());
    }
    for end in [client, server] {
        let mut closed = end.close(soon());
        closed.receives.clear();
        closed.sends.clear();
        assert_whole(closed.pool.as_mut().unwrap());
    }
    let began = Instant::now();
    while removal.try_wait().unwrap().is_none() {
        assert!(began.elapsed() < PROMPT, "something still holds the device");
        std::thread::sleep(Duration::from_millis(20));
    }
    // Ends once this process has.
    let _ = Command::new("ip").args(["link", "del", "d1"]).spawn();
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f42_a_receiver_that_stops_posting_makes_its_peer_wait_and_then_fail_by_name() {
    let times = RnrRetry::times(2).unwrap();
    let (mut client, mut server) = pair(address(7615), with(hasty(6).rnr_retry(times)), 2);
    for _ in 0..6 {
        let block = client.block().unwrap();
        client.post_send(block).unwrap();
    }
    let ends: Vec<_> = (0..6).map(|_| client.send_completion(soon()).unwrap().outcome).collect();
    assert!(ends[..2].iter().all(Outcome::is_done), "{ends:?}");
    let Outcome::Failed(failure) = ends[2] else { panic!("{ends:?}") };
    assert_eq!(failure.status(), WcStatus::RnrRetryExceeded);
    assert!(ends[3..].iter().all(|end| matches!(end, Outcome::Flushed)), "{ends:?}");
    for _ in 0..2 {
        assert!(server.recv_completion(soon()).unwrap().outcome.is_done());
    }
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f70_an_endpoint_that_may_not_lock_its_memory_says_so_and_one_that_may_works() {
    let limit = libc::rlimit { rlim_cur: 65_536, rlim_max: 65_536 };
    // SAFETY: plain system calls of a process that runs this test alone.
    unsafe {
        assert_eq!(libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit), 0);
        assert_eq!(libc::setuid(1000), 0);
    }
    let listener = Listener::bind(address(7616)).unwrap();
    let options = Options::new().blocks(64, 4096);
    let refused = options.connect::<Block>(listener.local_addr(), soon()).map(drop);
    let Err(EndpointError::Register(RegisterCause::LockedMemoryLimit { bytes, limit })) = refused
    else {
        panic!("{refused:?}")
    };
    assert_eq!((bytes, limit), (64 * 4096, Some(65_536)));
    drop(listener);
    let (mut client, mut server) = pair(address(7617), Options::new().blocks(7, 4096), 2);
    says(&mut client, &mut server, 1);
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f68_a_forked_child_that_drops_everything_harms_nothing_of_its_parents() {
    let (mut client, mut server) = pair(address(7619), Options::new(), 4);
    let mut shared = client.share(4096, Rights::WRITE_TARGET).ok();
    says(&mut client, &mut server, 1);
    // SAFETY: the child drops what it has and ends; no other thread holds a lock.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        shared = None;
        drop((client.close(soon()), server, shared));
        // SAFETY: ends the child without running anything more of the parent's.
        unsafe { libc::_exit(7) };
    }
    let mut status = 0;
    // SAFETY: `status` is a place for a number.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(libc::WEXITSTATUS(status), 7);
    for byte in 2..20 {
        says(&mut client, &mut server, byte);
    }
    let block = server.block().unwrap();
    server.post_write(shared.as_ref().unwrap().advertise(), block).unwrap();
    assert!(server.send_completion(soon()).unwrap().outcome.is_done());
    assert_eq!(client.close(soon()).receives.len(), 4);
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f16_what_was_granted_and_taken_back_is_refused_and_harms_nobody_else() {
    let (mut client, mut server) = pair(address(7620), Options::new(), 2);
    let (mut other, mut other_server) = pair(address(7621), Options::new(), 2);
    let rights = Rights::READ_SOURCE.and(Rights::WRITE_TARGET);
    let granted = server.share(4096, rights).unwrap();
    let kept = other_server.share(4096, rights).unwrap();
    let (memory, kept_memory) = (granted.advertise(), kept.advertise());
    let write = |end: &mut End, memory: RemoteRegion| {
        let mut block = end.block().unwrap();
        block.fill(0xee);
        block.set_len(64).unwrap();
        end.post_write(memory, block).unwrap();
        end.send_completion(soon()).unwrap().outcome
    };
    assert!(write(&mut client, memory).is_done());
    drop(granted);
    // What has its place in the address space now is not reached either.
    let next = server.share(4096, rights).unwrap();
    let Outcome::Failed(failure) = write(&mut client, memory) else { panic!("it was refused") };
    assert_eq!(failure.status(), WcStatus::RemoteAccess);
    let mut bytes = [0; 64];
    next.read_at(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 64]);
    assert!(write(&mut other, kept_memory).is_done());
    says(&mut other, &mut other_server, 1);
    // The one that asked is closed, and says why.
    let block = client.block().unwrap();
    let refused = client.post(op::Send::new(), block);
    assert!(matches!(refused, Err(PostError::Refused { .. })), "{refused:?}");
}
