//! Devices, domains, queues, memory: what can be had, and what is refused before the device is
//! asked.

use std::any::Any;
use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nanoverbs::cm::{Connector, Listener};
use nanoverbs::endpoint::{EndpointError, Options};
use nanoverbs::memory::{
    LocalMemory, Pages, PagesError, PagesOptions, RegisterCause, Rights, SharedBuffer,
    SharedMemory, release,
};
use nanoverbs::{
    Arm, Atomics, CompletionChannel, CompletionQueue, CompletionQueueError, Deadline, Device,
    DomainError, OpenError, ProtectionDomain, QueuePairError, QueuePairOptions, devices,
};
use nanoverbs_core::{Access, Block};

use crate::ends::{
    PATIENCE, PIECE, PROMPT, Setup, address, completions, connected, options, queues,
};

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

/// Huge pages that the system sets aside, as many as it was told.
fn huge_pages(count: usize) {
    fs::write("/proc/sys/vm/nr_hugepages", count.to_string()).expect("root may");
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f71_huge_pages_are_registered_whole_or_refused_and_never_replaced() {
    // What made registering a part of a huge page fail on older kernels.
    for variable in ["RDMAV_FORK_SAFE", "RDMAV_HUGEPAGES_SAFE"] {
        // SAFETY: no other thread of this process looks at its environment.
        unsafe { std::env::set_var(variable, "1") };
    }
    huge_pages(0);
    let refused = PagesOptions::new().huge().map(1).map(drop);
    assert!(matches!(refused, Err(PagesError::NoHugePages { pages: 1, .. })), "{refused:?}");

    huge_pages(4);
    let pages = PagesOptions::new().huge().map(3 << 20).expect("two of the four");
    assert_eq!((pages.len(), pages.addr().addr().get() % (2 << 20)), (4 << 20, 0));
    let listener = Listener::bind(address()).expect("a listener");
    let device = listener.device().expect("no error").expect("of one interface");
    let domain = device.domain().expect("a domain");
    let memory = SharedMemory::register(pages, &domain, Rights::READ_SOURCE).expect("memory");
    assert_eq!(memory.region().len(), 4 << 20, "the whole mapping");
    // A message from the middle of it, over the border of both pages.
    let at = (2 << 20) - 20;
    memory.region().write_at(at, &[7; 40]).expect("inside");
    let memory = Arc::new(memory);
    let options = Options::new().depth(1, 1).blocks(1, 64);
    let peer = listener.local_addr();
    let heard = std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let ready = options.accept::<Block>(&listener, PATIENCE).unwrap().receives(1).unwrap();
            let mut server = ready.establish(PATIENCE).unwrap();
            server.recv_completion(PATIENCE).unwrap().context[..40].to_vec()
        });
        let ready = options.connect::<SharedBuffer>(peer, PATIENCE).unwrap().no_receives();
        let mut client = ready.establish(PATIENCE).unwrap();
        client.post_send(memory.buffer(at, 40).expect("inside")).unwrap();
        assert!(client.send_completion(PATIENCE).unwrap().outcome.is_done());
        server.join().expect("it ends well")
    });
    assert_eq!(heard, [7; 40]);
    let memory = Arc::into_inner(memory).expect("no request has it");
    assert_eq!(memory.deregister().expect("nothing uses it").len(), 4 << 20);
    huge_pages(0);
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f72_on_demand_paging_is_refused_by_name_and_never_replaced() {
    let device = device();
    assert!(!device.limits().on_demand, "Soft-RoCE has none");
    let domain = device.domain().expect("a domain");
    let pages = Pages::new(8192).expect("pages");
    let rights = Rights::READ_SOURCE.and(Rights::ON_DEMAND);
    let refused = SharedMemory::register(pages, &domain, rights).expect_err("there is none");
    let expected = RegisterCause::Unsupported { what: "on-demand paging" };
    assert_eq!((refused.cause, refused.pages.len()), (expected, 8192));
    assert_eq!(refused.to_string(), "this device has no on-demand paging");

    let listener = Listener::bind(address()).expect("a listener");
    let mut end = Options::new().connect::<Block>(listener.local_addr(), PATIENCE).expect("a way");
    let refused = end.share(64, rights).map(drop);
    assert!(
        matches!(refused, Err(EndpointError::Register(cause)) if cause == expected),
        "{refused:?}"
    );
}

/// How many objects of each kind the kernel has: its own, and this process's, because no other one runs.
fn in_the_kernel() -> String {
    let shown = command("rdma resource show").output().expect("it runs");
    assert!(shown.status.success());
    let shown = String::from_utf8(shown.stdout).expect("text");
    // librdmacm keeps a device open that it has used once.
    shown.split(" ctx").next().expect("a piece").to_owned()
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f63_handles_dropped_in_any_order_leave_nothing_in_the_kernel() {
    let before = in_the_kernel();
    for turn in 0..6 {
        let (client, server) = connected(&Setup { receives: 2, ..Setup::default() });
        assert_ne!(in_the_kernel(), before, "it shows what there is");
        let parts = client.parts;
        let (queue_pair, connection) = (parts.queue_pair, client.connection);
        let queues = (Arc::clone(queue_pair.send_completions()), parts.send_poll, parts.recv_poll);
        let domain = Arc::clone(queue_pair.domain());
        let device = Arc::clone(domain.device());
        let mut all: [Box<dyn Any>; 7] = [
            Box::new(device),
            Box::new(domain),
            Box::new(queues),
            Box::new(queue_pair),
            Box::new(parts.memory),
            Box::new(connection),
            Box::new(server),
        ];
        all.rotate_left(turn);
        if turn % 2 == 1 {
            all.reverse();
        }
        let began = Instant::now();
        all.into_iter().for_each(drop);
        assert!(began.elapsed() < PROMPT, "{turn}: {:?}", began.elapsed());
        assert_eq!(in_the_kernel(), before, "{turn}");
    }
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f63_a_set_up_that_stops_half_way_leaves_nothing_in_the_kernel() {
    let before = in_the_kernel();
    // Too many pieces are refused when the queue pair is to be made, behind everything else.
    for sges in [1, 33] {
        let made = queue_pair(QueuePairOptions::new(4, 4).sges(sges, 1), 8);
        assert_eq!(made.is_ok(), sges == 1);
        assert_eq!(in_the_kernel(), before);
    }
    let stopped = std::panic::catch_unwind(|| {
        let _ends = connected(&Setup { receives: 2, ..Setup::default() });
        panic!("in the middle");
    });
    assert!(stopped.is_err());
    assert_eq!(in_the_kernel(), before);
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
    assert!((patience..PROMPT).contains(&began.elapsed()));
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
    assert!(began.elapsed() < PROMPT, "{:?}", began.elapsed());
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
    // The connections may have heard of their end before anybody heard why.
    let told = Deadline::after(PATIENCE);
    while !device.is_removed() {
        assert!(!told.has_passed(), "nobody is told");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(removal.try_wait().expect("a child").is_none(), "it waits for the last handle");
    drop((client, server, device));
    let began = Instant::now();
    while removal.try_wait().expect("a child").is_none() {
        assert!(began.elapsed() < PROMPT, "something still holds the device");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(devices(), Ok(vec!["rxe1".to_owned()]));
    drop(second);
}
