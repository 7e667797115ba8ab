//! Devices, domains, queues, memory: what can be had, and what is refused before the device is
//! asked.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nanoverbs::cm::{Connector, Listener};
use nanoverbs::memory::{LocalMemory, Pages, RegisterCause, Rights, SharedMemory, release};
use nanoverbs::{
    Arm, Atomics, CompletionChannel, CompletionQueue, CompletionQueueError, Device, DomainError,
    OpenError, ProtectionDomain, QueuePairError, QueuePairOptions, devices,
};
use nanoverbs_core::Access;

use crate::ends::{PATIENCE, PIECE, Setup, address, completions, connected, options, queues};

fn device() -> Arc<Device> {
    Device::open("rxe0").expect("the bed's device")
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn devices_are_listed_and_opened_by_name() {
    assert_eq!(devices(), Ok(vec!["rxe0".to_owned()]));
    let limits = device().limits();
    assert_eq!((limits.sges, limits.read_sges, limits.reads_out), (32, 32, 128));
    assert_eq!(limits.packet, 1024);
    assert_eq!((limits.atomics, limits.iwarp), (Atomics::Device, false));
    assert_eq!(Device::at(address().ip()).expect("it has this one").name(), "rxe0");
    let missing = Device::open("rxe9").map(drop);
    assert_eq!(missing, Err(OpenError::NoSuchDevice { name: "rxe9".to_owned() }));
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn one_domain_a_device_unless_another_is_asked_for() {
    let device = device();
    let domain = device.domain().expect("a domain");
    assert!(Arc::ptr_eq(&domain, &device.domain().expect("the same")));
    let other = ProtectionDomain::new(&device).expect("another");
    assert_ne!(domain.id(), other.id());
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn memory_is_registered_by_what_it_is_for() {
    let device = device();
    let domain = device.domain().expect("a domain");
    let local = LocalMemory::register(Pages::new(8192).expect("pages"), &domain).expect("memory");
    let registration = local.region().registration();
    assert_eq!((registration.access, registration.domain), (Access::LOCAL_WRITE, domain.id()));
    let rights = Rights::READ_SOURCE.and(Rights::WRITE_TARGET).and(Rights::ATOMIC_TARGET);
    let pages = Pages::new(4096).expect("pages");
    let shared = SharedMemory::register(pages, &domain, rights).expect("memory");
    let advertised = shared.region().advertise();
    assert_eq!(advertised.len(), 4096);
    assert!(advertised.access().has(Access::REMOTE_READ));
    assert_ne!(advertised.rkey().to_raw(), 0);
    // Parents may go first.
    drop((device, domain));
    shared.region().write_at(5, b"shared").expect("inside");
    let mut bytes = [0; 6];
    shared.region().read_at(5, &mut bytes).expect("inside");
    assert_eq!(&bytes, b"shared");
    assert_eq!(shared.deregister().expect("nothing uses it").as_slice()[5..11], *b"shared");
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f16_a_region_that_went_its_own_way_comes_back_or_stays_registered() {
    let domain = device().domain().expect("a domain");
    let memory = LocalMemory::register(Pages::new(4096).expect("pages"), &domain).expect("memory");
    let region = memory.into_region();
    let memory = release(region).expect("it is ours");
    assert_eq!(memory.deregister().expect("nothing uses it").len(), 4096);
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f70_too_little_locked_memory_is_named_with_its_limit() {
    let limit = libc::rlimit { rlim_cur: 65_536, rlim_max: 65_536 };
    // SAFETY: plain system calls of a process that runs this test alone.
    unsafe {
        assert_eq!(libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit), 0);
        assert_eq!(libc::setuid(1000), 0);
    }
    let domain = device().domain().expect("a domain");
    let pages = Pages::new(131_072).expect("pages");
    let error = LocalMemory::register(pages, &domain).expect_err("more than the limit");
    let expected = RegisterCause::LockedMemoryLimit { bytes: 131_072, limit: Some(65_536) };
    assert_eq!(error.cause, expected);
    assert!(error.to_string().contains("ulimit -l"), "{error}");
    assert_eq!(error.pages.len(), 131_072, "they come back");
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f11_only_the_depth_that_was_asked_for_is_relied_on() {
    let device = device();
    let queue = CompletionQueue::new(&device, 4, None).expect("a queue");
    assert_eq!((queue.depth(), queue.granted()), (4, 7), "rxe rounds up");
    for given in [0, 32_768] {
        let refused = CompletionQueue::new(&device, given, None).map(drop);
        assert_eq!(refused, Err(CompletionQueueError::Depth { given, max: 32_767 }));
    }
}

/// Makes a queue pair with these sizes on a completion queue of this depth for each side.
fn queue_pair(sizes: QueuePairOptions, depth: u32) -> Result<(u32, u32, u32), QueuePairError> {
    let listener = Listener::bind(address()).expect("a listener");
    let route = Connector::new().resolve(listener.local_addr(), PATIENCE).expect("a route");
    let device = Arc::clone(route.device());
    let domain = device.domain().expect("a domain");
    let queue = CompletionQueue::new(&device, depth, None).expect("a queue");
    let outgoing = route.create_queue_pair(&domain, &queue, &queue, sizes)?;
    let made = outgoing.queue_pair();
    let inline = (made.inline_asked(), made.inline_granted(), made.inline());
    drop(outgoing);
    assert_eq!(queue.free(), depth, "its places are free again");
    Ok(inline)
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f13_what_was_granted_inline_is_told() {
    let sizes = QueuePairOptions::new(4, 4);
    assert_eq!(queue_pair(sizes.inline(64), 8), Ok((64, 64, 64)));
    assert_eq!(queue_pair(sizes.inline(512), 8), Ok((512, 512, 512)));
    assert_eq!(queue_pair(sizes.inline(0), 8), Ok((0, 16, 0)), "rxe gives 16 a piece");
    // 513 is refused; half of it is not.
    assert_eq!(queue_pair(sizes.inline(513), 8), Ok((513, 256, 256)));
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f10_a_completion_queue_has_a_place_for_every_request() {
    let need = QueuePairError::CompletionQueueTooSmall { need: 4, have: 3 };
    assert_eq!(queue_pair(QueuePairOptions::new(4, 4), 7), Err(need));
    assert!(queue_pair(QueuePairOptions::new(4, 4), 8).is_ok());
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f12_sizes_beyond_the_device_are_refused_by_name() {
    let wide = QueuePairOptions::new(4, 4).sges(33, 1);
    assert_eq!(queue_pair(wide, 8), Err(QueuePairError::TooManySges { given: 33, max: 32 }));
    let deep = QueuePairOptions::new(4, 2_000_000);
    let refused = queue_pair(deep, 8);
    assert!(
        matches!(refused, Err(QueuePairError::TooDeep { given: 2_000_000, .. })),
        "{refused:?}"
    );
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f55_a_domain_of_another_opening_of_the_device_is_refused() {
    let listener = Listener::bind(address()).expect("a listener");
    let route = Connector::new().resolve(listener.local_addr(), PATIENCE).expect("a route");
    let (send, recv) = queues(route.device());
    let other = device().domain().expect("a domain");
    let refused = route.create_queue_pair(&other, &send, &recv, options()).map(drop);
    assert_eq!(refused, Err(QueuePairError::WrongDevice));
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f32_an_armed_queue_wakes_and_an_idle_one_ends_at_the_deadline() {
    let (mut client, server) = connected(&Setup { receives: 1, ..Setup::default() });
    drop(server);
    // A queue of our own, with a channel.
    let device = Arc::clone(client.parts.queue_pair.domain().device());
    let channel = CompletionChannel::new(&device).expect("a channel");
    let queue = CompletionQueue::new(&device, 8, Some(&channel)).expect("a queue");
    assert_eq!(queue.poll_port().map(drop), Ok(()));
    queue.arm(Arm::Any).expect("it can");
    let began = Instant::now();
    let patience = Duration::from_millis(200);
    assert_eq!(channel.wait(patience), Ok(false));
    assert!((patience..10 * patience).contains(&began.elapsed()));
    assert!(client.parts.recv_poll.queue().arm(Arm::Any).is_err(), "it has no channel");
    // The peer's end flushes the receive.
    assert_eq!(client.connection.wait_ended(PATIENCE), Ok(true));
    assert_eq!(client.parts.received(1)[0].status, 5);
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f36_events_are_acknowledged_so_that_a_queue_goes_at_once() {
    let listener = Listener::bind(address()).expect("a listener");
    let peer = listener.local_addr();
    let route = Connector::new().resolve(peer, PATIENCE).expect("a route");
    let device = Arc::clone(route.device());
    let domain = device.domain().expect("a domain");
    let channel = CompletionChannel::new(&device).expect("a channel");
    let queue = CompletionQueue::new(&device, 16, Some(&channel)).expect("a queue");
    let outgoing =
        route.create_queue_pair(&domain, &queue, &queue, options()).expect("a queue pair");
    let mut poll = queue.poll_port().expect("a port");
    assert!(queue.poll_port().is_err(), "there is one");
    // SAFETY: the port is used before the queue pair is dropped.
    let mut recv = unsafe { outgoing.queue_pair().recv_port() }.expect("a port");
    let memory = LocalMemory::register(Pages::new(PIECE).expect("pages"), &domain).expect("memory");
    let mut wr = nanoverbs_core::abi::RecvWr::EMPTY;
    for _ in 0..2 {
        let mut bad = std::ptr::null_mut();
        queue.arm(Arm::Any).expect("it can");
        // SAFETY: one request without pieces.
        let ret =
            unsafe { nanoverbs_core::port::RecvPort::post_recv(&mut recv, &raw mut wr, &mut bad) };
        assert_eq!(ret, 0);
        outgoing.queue_pair().to_error().expect("it can");
        assert_eq!(channel.wait(PATIENCE), Ok(true));
        assert_eq!(completions(&mut poll, 1)[0].status, 5);
    }
    let began = Instant::now();
    drop((outgoing, poll, queue, memory, channel));
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f68_handles_refuse_in_a_forked_child() {
    let device = device();
    // SAFETY: the child calls nothing but this library and `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let refused = matches!(device.domain(), Err(DomainError::WrongProcess(_)));
        // SAFETY: ends the child without running anything of the parent's.
        unsafe { libc::_exit(if refused { 7 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: `status` is a place for a number.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(libc::WEXITSTATUS(status), 7);
    device.domain().expect("the parent goes on");
}

/// A device beside rxe0, gone at the end of the test. librdmacm lets go of a removed device only
/// when another one is left.
struct SecondDevice;

fn command(line: &str) -> Command {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().expect("a program"));
    command.args(words);
    command
}

impl SecondDevice {
    fn new() -> Self {
        for line in [
            "ip link add d1 type dummy",
            "ip link set d1 up",
            "rdma link add rxe1 type rxe netdev d1",
        ] {
            assert!(command(line).status().expect("it runs").success(), "{line}");
        }
        Self
    }
}

impl Drop for SecondDevice {
    fn drop(&mut self) {
        // Takes rxe1 along, and ends once this process has: looking for devices has opened it.
        let _ = command("ip link del d1").spawn();
    }
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f62_a_removed_device_is_told_flushed_and_let_go() {
    let second = SecondDevice::new();
    let (mut client, server) = connected(&Setup { receives: 2, ..Setup::default() });
    let device = Arc::clone(client.parts.queue_pair.domain().device());
    assert!(!device.is_removed());
    let mut removal = command("rdma link delete rxe0").spawn().expect("it runs");
    for end in [&client, &server] {
        assert_eq!(end.connection.wait_ended(PATIENCE), Ok(true));
    }
    assert!(client.parts.received(2).iter().all(|wc| wc.status == 5));
    assert!(device.is_removed());
    assert!(removal.try_wait().expect("a child").is_none(), "it waits for the last handle");
    drop((client, server, device));
    let began = Instant::now();
    while removal.try_wait().expect("a child").is_none() {
        assert!(began.elapsed() < Duration::from_secs(10), "something still holds the device");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(devices(), Ok(vec!["rxe1".to_owned()]));
    drop(second);
}
