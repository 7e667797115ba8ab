//! Signals during every call that blocks: none of them ends early, late, or with an error of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nanoverbs::cm::{
    ConnectError, ConnectParams, Connector, DatagramAddress, Datagrams, FindError, ListenError,
    Listener, Lookup, Share,
};
use nanoverbs::endpoint::{Options, WaitError};
use nanoverbs::{Arm, CompletionChannel, CompletionQueue, Deadline, Device, QueuePairOptions};
use nanoverbs_core::{Completions, Outcome};

use crate::ends::{self, PATIENCE, PROMPT, Setup, connected, options, queues};
use crate::faults::{address, pair, says, soon};

static SIGNALS: AtomicU32 = AtomicU32::new(0);

extern "C" fn on_signal(_: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

/// Interrupts the calling thread every millisecond while `work` runs.
fn interrupted<R>(work: impl FnOnce() -> R) -> R {
    // SAFETY: all zeros are a valid action, without SA_RESTART; the handler only counts.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
    }
    // SAFETY: the thread's own name.
    let thread = unsafe { libc::pthread_self() };
    let (is_over, before) = (AtomicBool::new(false), SIGNALS.load(Ordering::Relaxed));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                // SAFETY: the thread waits for this one.
                unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        while SIGNALS.load(Ordering::Relaxed) == before {
            std::thread::yield_now();
        }
        let result = work();
        is_over.store(true, Ordering::Relaxed);
        result
    })
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f35_no_blocking_call_minds_a_signal() {
    let patience = Duration::from_millis(200);
    let listener = Listener::bind(address(7618)).unwrap();
    let began = Instant::now();
    let accepted = interrupted(|| listener.accept(patience).map(drop));
    assert_eq!(accepted, Err(ListenError::TimedOut));
    assert!((patience..PROMPT).contains(&began.elapsed()), "{:?}", began.elapsed());
    drop(listener);
    let (mut client, mut server) = interrupted(|| pair(address(7618), Options::new(), 2));
    interrupted(|| (0..20).for_each(|byte| says(&mut client, &mut server, byte)));
    let began = Instant::now();
    let waited = interrupted(|| client.recv_completion(Deadline::after(patience)).map(drop));
    assert_eq!(waited, Err(WaitError::TimedOut { in_flight: 2 }));
    assert!((patience..PROMPT).contains(&began.elapsed()), "{:?}", began.elapsed());
    let closed = interrupted(|| client.close(soon()));
    assert_eq!(closed.receives.len(), 2);
    let ended = interrupted(|| server.recv_completion(soon())).unwrap();
    assert!(matches!(ended.outcome, Outcome::Flushed));
}

/// What waits in vain for this long, and what it says then.
fn in_vain<R>(work: impl FnOnce(Duration) -> R) -> R {
    let patience = Duration::from_millis(200);
    let began = Instant::now();
    let said = interrupted(|| work(patience));
    assert!((patience..PROMPT).contains(&began.elapsed()), "{:?}", began.elapsed());
    said
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f35_no_step_of_a_connection_minds_a_signal() {
    let listener = Listener::bind(ends::address()).expect("a listener");
    let peer = listener.local_addr();
    let found = interrupted(|| Lookup::connect(&peer.ip().to_string(), "7471").run());
    assert_eq!(found.expect("an address").len(), 1);
    let route = interrupted(|| Connector::new().resolve(peer, PATIENCE)).expect("a route");
    let device = Arc::clone(route.device());
    let domain = device.domain().expect("a domain");
    let (send, recv) = queues(&device);
    let outgoing = route.create_queue_pair(&domain, &send, &recv, options()).expect("a queue pair");
    // Nobody takes the request.
    let refused = in_vain(|patience| outgoing.connect(&ConnectParams::new(), patience).map(drop));
    assert_eq!(refused, Err(ConnectError::TimedOut { peer }));

    let (client, _server) = interrupted(|| connected(&Setup::default()));
    assert_eq!(in_vain(|patience| client.connection.wait_ended(patience)), Ok(false));
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f35_no_wait_for_completions_or_events_minds_a_signal() {
    let device = Device::open("rxe0").expect("the bed's device");
    let channel = CompletionChannel::new(&device).expect("a channel");
    let queue = CompletionQueue::new(&device, 8, Some(&channel)).expect("a queue");
    queue.arm(Arm::Any).expect("it can");
    assert_eq!(in_vain(|patience| channel.wait(patience)), Ok(false));
    let mut completions = Completions::<_, 8>::new(queue.poll_port().expect("a port"), 8);
    assert_eq!(in_vain(|patience| channel.wait_any(&mut [&mut completions], patience)), Ok(false));

    let (mut client, _server) = pair(address(7622), Options::new(), 2);
    let mut halves = client.split();
    let waited = in_vain(|patience| halves.recv.completion(patience).map(drop));
    assert_eq!(waited, Err(WaitError::TimedOut { in_flight: 2 }));
}

fn datagrams() -> Datagrams {
    let address = DatagramAddress::bind(ends::address()).expect("an address");
    let domain = address.device().domain().expect("a domain");
    let queue = CompletionQueue::new(address.device(), 16, None).expect("a queue");
    address.create_queue_pair(&domain, &queue, &queue, QueuePairOptions::new(8, 8)).expect("a pair")
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f35_no_step_of_datagrams_minds_a_signal() {
    let (server, client) = (datagrams(), datagrams());
    let peer = server.local_addr();
    // Nobody takes the question.
    let found = in_vain(|patience| client.find(peer, b"", patience).map(drop));
    assert_eq!(found, Err(FindError::TimedOut { peer }));
    assert!(in_vain(|patience| client.wait_event(patience)).expect("no error").is_none());
    let group = "239.1.2.3:7471".parse().expect("an address");
    interrupted(|| client.join(group, Share::Full, PATIENCE)).expect("it is joined").leave();
}
