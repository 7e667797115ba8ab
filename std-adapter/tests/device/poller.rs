//! Pollers on real completion queues: they sleep on events, and wake for everything.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::thread;
use std::time::{Duration, Instant};

use nanoverbs::cm::Listener;
use nanoverbs::endpoint::{Endpoint, Idle, Options, Side, Verbs};
use nanoverbs::poller::{
    Drive, End, Handler, IdlePolicy, Poller, Report, Scheduling, StopHandle, allowed_cores,
    pin_this_thread,
};
use nanoverbs_core::{Block, Ended, Outcome, Ring};

use crate::ends::PATIENCE;

type E = Endpoint<Verbs, Block>;

/// Sleeps at once, and only an event ends it.
const SLEEP: IdlePolicy =
    IdlePolicy::SpinThenSleep { spins: 0, longest: Duration::from_secs(3600) };

/// Two connected ends, with `receives` posted on each: the client's, the server's.
fn pair(port: u16, receives: usize) -> (E, E) {
    let host = std::env::var("NANOVERBS_RXE_ADDR").unwrap();
    let addr = SocketAddr::new(host.parse().unwrap(), port);
    let options = Options::new().idle(Idle::SpinThenWait { spins: 10 }).blocks(64, 64);
    let listener = Listener::bind(addr).unwrap();
    thread::scope(|scope| {
        let server = scope.spawn(move || {
            let prepared = options.accept(&listener, PATIENCE).unwrap();
            prepared.receives(receives).unwrap().establish(PATIENCE).unwrap()
        });
        let client = options.connect(addr, PATIENCE).unwrap().receives(receives).unwrap();
        (client.establish(PATIENCE).unwrap(), server.join().unwrap())
    })
}

/// Sends back what comes, and receives into what was sent.
fn echo(endpoint: &mut E, side: Side, ended: Ended<Block>) -> ControlFlow<()> {
    if ended.outcome.is_done() {
        let posted = match side {
            Side::Recv => endpoint.post_send(ended.context),
            Side::Send => endpoint.post_recv(ended.context),
        };
        posted.unwrap();
    }
    ControlFlow::Continue(())
}

fn ping(client: &mut E, round: usize) {
    let mut block = client.block().unwrap();
    block.fill(round as u8);
    client.post_send(block).unwrap();
    assert!(client.send_completion(PATIENCE).unwrap().outcome.is_done());
    let back = client.recv_completion(PATIENCE).unwrap().context;
    assert!(back.iter().all(|byte| *byte == round as u8));
    client.post_recv(back).unwrap();
}

fn joined<W>(poller: Poller<W>) -> Report<W> {
    poller.join_until(PATIENCE).expect("it ends")
}

fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_true() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        thread::yield_now();
    }
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f42_a_poller_echoes_under_every_policy() {
    let policies = [
        IdlePolicy::Spin,
        IdlePolicy::SpinThenYield { spins: 100 },
        IdlePolicy::SpinThenSleep { spins: 100, longest: Duration::from_secs(3600) },
        SLEEP,
    ];
    for (idle, port) in policies.into_iter().zip(7700..) {
        let (mut client, server) = pair(port, 4);
        let poller = Poller::builder().idle(idle).drain(PATIENCE);
        let poller = poller.spawn(Drive::with(server, echo)).unwrap();
        let began = Instant::now();
        for round in 0..500 {
            ping(&mut client, round);
        }
        println!("{idle:?}: {:?} a round trip, {:?}", began.elapsed() / 500, poller.stats());
        poller.stop();
        let report = joined(poller);
        assert!(matches!(report.end, End::Stopped { drained: true }), "{:?}", report.end);
        assert_eq!(report.stats.completions, 1000);
        let closed = report.work.into_parts().0.close(PATIENCE);
        assert_eq!(closed.receives.len(), 4);
    }
    assert_eq!(nanoverbs_core::leaked_contexts(), 0);
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f32_a_sleeping_poller_misses_no_completion_of_either_queue() {
    let (mut client, server) = pair(7710, 4);
    let poller = Poller::builder().idle(SLEEP).drain(PATIENCE);
    let poller = poller.spawn(Drive::with(server, echo)).unwrap();
    for round in 0..3000 {
        // Now and then it is fast asleep, and at all other times about to be.
        if round % 100 == 0 {
            let sleeps = poller.stats().sleeps;
            wait_until("it sleeps", || {
                let now = poller.stats();
                now.sleeps > 0 && (now.sleeps > sleeps || now.completions == 2 * round)
            });
            thread::sleep(Duration::from_millis(2));
        }
        ping(&mut client, round);
    }
    poller.stop();
    let report = joined(poller);
    println!("{:?}", report.stats);
    assert_eq!(report.stats.completions, 6000);
    assert!(report.stats.sleeps > 30, "{:?}", report.stats);
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f34_more_completions_than_a_batch_are_all_taken_after_one_wake_up() {
    let (mut client, server) = pair(7720, 16);
    let handler = |_: &mut E, _, ended: Ended<Block>| {
        assert!(ended.outcome.is_done());
        ControlFlow::Continue(())
    };
    let poller =
        Poller::builder().idle(SLEEP).batch(2).spawn(Drive::with(server, handler)).unwrap();
    wait_until("it sleeps", || poller.stats().sleeps > 0);
    for _ in 0..16 {
        let block = client.block().unwrap();
        client.post_send(block).unwrap();
    }
    wait_until("all came", || poller.stats().completions == 16);
    poller.stop();
    let _ = joined(poller);
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f33_the_pollers_own_sends_wake_it() {
    /// Posts an order, and keeps the time of its completion.
    struct Post<'r>(nanoverbs_core::Consumer<'r, u8, 4>, u32);
    impl Handler<Verbs, Block> for Post<'_> {
        fn begin(&mut self, endpoint: &mut E, _: usize) -> usize {
            let Some(order) = self.0.pop() else { return 0 };
            let mut block = endpoint.block().unwrap();
            block.fill(order);
            endpoint.post_send(block).unwrap();
            1
        }

        fn ended(&mut self, _: &mut E, side: Side, ended: Ended<Block>) -> ControlFlow<()> {
            assert!(side == Side::Send && ended.outcome.is_done());
            self.1 += 1;
            ControlFlow::Continue(())
        }
    }
    let (client, mut server) = pair(7730, 4);
    let mut ring = Ring::new();
    let (mut orders, taken) = ring.split();
    thread::scope(|scope| {
        let poller = Poller::builder().idle(SLEEP).drain(PATIENCE);
        let poller = poller.spawn_scoped(scope, Drive::new(client, Post(taken, 0)));
        let poller = poller.map_err(|error| error.cause).unwrap();
        let waker = poller.waker();
        for order in 0..100 {
            orders.push(order).unwrap();
            waker.wake();
            let came = server.recv_completion(PATIENCE).unwrap().context;
            assert_eq!(came[0], order);
            server.post_recv(came).unwrap();
            // An order and its completion.
            wait_until("it heard of its send", || {
                poller.stats().completions == 2 * (usize::from(order) + 1)
            });
        }
        poller.stop();
        let report = joined(poller);
        println!("{:?}", report.stats);
        let (client, post) = report.work.into_parts();
        assert_eq!((post.1, client.sends_in_flight()), (100, 0));
        assert!(report.stats.sleeps > 0);
    });
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f40_a_peer_that_leaves_wakes_the_sleeper_and_every_receive_comes_back() {
    for (idle, port) in [IdlePolicy::Spin, SLEEP].into_iter().zip(7740..) {
        let (client, server) = pair(port, 4);
        let handler = |_: &mut E, side, ended: Ended<Block>| {
            assert!(side == Side::Recv && matches!(ended.outcome, Outcome::Flushed));
            ControlFlow::Continue(())
        };
        let poller = Poller::builder().idle(idle).spawn(Drive::with(server, handler)).unwrap();
        wait_until("it idles", || poller.stats().turns > 0);
        thread::sleep(Duration::from_millis(20));
        let began = Instant::now();
        drop(client);
        let report = joined(poller);
        println!("{idle:?}: noticed after {:?}", began.elapsed());
        assert!(matches!(report.end, End::Disconnected), "{:?}", report.end);
        assert_eq!(report.stats.completions, 4);
    }
}

static STOP: std::sync::OnceLock<StopHandle> = std::sync::OnceLock::new();

extern "C" fn on_signal(_: i32) {
    if let Some(stop) = STOP.get() {
        stop.stop();
    }
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn a_signal_handler_stops_a_poller_that_sleeps_on_events() {
    let (_client, server) = pair(7750, 4);
    let poller = Poller::builder().idle(SLEEP).spawn(Drive::with(server, echo)).unwrap();
    assert!(STOP.set(poller.stop_handle()).is_ok());
    wait_until("it sleeps", || poller.stats().sleeps > 0);
    // SAFETY: the handler does what a handler may.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGTERM, &raw const action, std::ptr::null_mut()), 0);
        assert_eq!(libc::raise(libc::SIGTERM), 0);
    }
    let report = joined(poller);
    assert!(matches!(report.end, End::Stopped { drained: true }), "{:?}", report.end);
    let closed = report.work.into_parts().0.close(PATIENCE);
    assert_eq!(closed.receives.len(), 4);
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f42_both_ends_on_one_core_make_progress_when_they_yield_or_sleep() {
    let core = allowed_cores().unwrap().iter().next().unwrap();
    for (idle, port) in [IdlePolicy::SpinThenYield { spins: 10 }, SLEEP].into_iter().zip(7760..) {
        let (mut client, server) = pair(port, 4);
        let poller = Poller::builder().core(core).idle(idle).spawn(Drive::with(server, echo));
        let poller = poller.unwrap();
        pin_this_thread(core).unwrap();
        let began = Instant::now();
        for round in 0..1000 {
            ping(&mut client, round);
        }
        println!("{idle:?}: {:?} a round trip", began.elapsed() / 1000);
        poller.stop();
        let _ = joined(poller);
    }
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn a_poller_with_everything_that_a_host_can_give() {
    let (mut client, server) = pair(7770, 4);
    let core = allowed_cores().unwrap().iter().last().unwrap();
    let poller = Poller::builder()
        .name("everything")
        .core(core)
        .scheduling(Scheduling::Fifo { priority: 10 })
        .idle(SLEEP)
        .lock_memory()
        .prefault_stack(256 << 10)
        .spawn(Drive::with(server, echo))
        .unwrap();
    for round in 0..200 {
        ping(&mut client, round);
    }
    let stat = std::fs::read_to_string(format!("/proc/self/task/{}/stat", poller.thread_id()));
    let stat = stat.unwrap();
    let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    // Of proc(5): processor, rt_priority, policy; the third field is the first after the name.
    assert_eq!((fields[36], fields[37], fields[38]), (core.to_string().as_str(), "10", "1"));
    poller.stop();
    let _ = joined(poller);
}
