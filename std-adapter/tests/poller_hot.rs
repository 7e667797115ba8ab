//! While there is work, and while it spins, a poller neither allocates nor makes a system call: the kernel ends
//! the process at the first one.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use nanoverbs::endpoint::{Endpoint, Options, Side, Soft, SoftDevice};
use nanoverbs::hub::{Event, Hub, Key};
use nanoverbs::poller::{Drive, Gauge, IdlePolicy, Poller, Serve, Turn, Work};
use nanoverbs_core::{Block, Ended};

const PATIENCE: Duration = Duration::from_secs(60);

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: the system's allocator, counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// From now on the only system call of this thread is the one that ends it.
fn seal() {
    let exit = libc::SYS_exit as u32;
    // The number of the call is the first word of what a filter sees.
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let equals = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let give = (libc::BPF_RET | libc::BPF_K) as u16;
    let line = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        line(load, 0, 0, 0),
        line(equals, 0, 1, exit),
        line(give, 0, 0, libc::SECCOMP_RET_ALLOW),
        line(give, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program outlives the call, which copies it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program), 0);
    }
}

/// What a sealed thread and its test tell each other.
struct Seal {
    is_sealed: AtomicBool,
    shall_end: AtomicBool,
    allocated: AtomicU64,
}

impl Seal {
    const fn new() -> Self {
        let (is_sealed, shall_end) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { is_sealed, shall_end, allocated: AtomicU64::new(u64::MAX) }
    }

    /// Spins a while longer, ends the thread, and says how many allocations it has made since it was sealed.
    fn allocations(&self, gauge: &Gauge) -> u64 {
        let turns = gauge.read().turns;
        while gauge.read().turns < turns + 100_000 {
            std::thread::yield_now();
        }
        self.shall_end.store(true, Ordering::Relaxed);
        while self.allocated.load(Ordering::Relaxed) == u64::MAX {
            std::thread::yield_now();
        }
        assert!(self.is_sealed.load(Ordering::Relaxed));
        self.allocated.load(Ordering::Relaxed)
    }
}

/// Work that is sealed in its first turn.
struct Sealed<W>(W, &'static Seal);

impl<W: Work> Work for Sealed<W> {
    fn turn(&mut self, batch: usize) -> Turn {
        let Self(work, told) = self;
        if !told.is_sealed.load(Ordering::Relaxed) {
            seal();
            ALLOCATIONS.set(0);
            told.is_sealed.store(true, Ordering::Relaxed);
        }
        if told.shall_end.load(Ordering::Relaxed) {
            told.allocated.store(ALLOCATIONS.get(), Ordering::Relaxed);
            // SAFETY: ends this thread, which has nothing that others wait for.
            unsafe { libc::syscall(libc::SYS_exit, 0) };
        }
        work.turn(batch)
    }
}

fn ping<const QPS: usize>(client: &mut Endpoint<Soft<QPS>, Block>) {
    let block = client.block().unwrap();
    client.post_send(block).unwrap();
    drop(client.send_completion(PATIENCE).unwrap());
    let back = client.recv_completion(PATIENCE).unwrap().context;
    client.post_recv(back).unwrap();
}

type E = Endpoint<Soft, Block>;

fn echo(endpoint: &mut E, side: Side, ended: Ended<Block>) -> ControlFlow<()> {
    let posted = match side {
        Side::Recv => endpoint.post_send(ended.context),
        Side::Send => endpoint.post_recv(ended.context),
    };
    if posted.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}

static DEVICE: SoftDevice = SoftDevice::new();

#[test]
fn a_poller_makes_no_system_call_and_no_allocation_while_it_works_and_spins() {
    static SEAL: Seal = Seal::new();
    let [client, server] = Options::new().soft_pair::<Block>(&DEVICE).unwrap();
    let mut client = client.receives(4).unwrap().establish(PATIENCE).unwrap();
    let server = server.receives(4).unwrap().establish(PATIENCE).unwrap();
    let work = Sealed(Drive::with(server, echo), &SEAL);
    let poller = Poller::builder().idle(IdlePolicy::Spin).spawn(work).unwrap();
    let gauge = poller.gauge();
    (0..500).for_each(|_| ping(&mut client));
    assert_eq!(SEAL.allocations(&gauge), 0);
    assert!(gauge.read().completions >= 999);
    // Its thread is gone without a report.
    std::mem::forget(poller);
}

type H = Hub<Soft<16>, Block, 8>;

fn echo_of_a_hub(hub: &mut H, key: Key, side: Side, ended: Ended<Block>) -> ControlFlow<()> {
    let Ok(mut peer) = hub.peer(key) else { return ControlFlow::Break(()) };
    let posted = match side {
        Side::Recv => peer.post_send(ended.context),
        Side::Send => peer.post_recv(ended.context),
    };
    if posted.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}

static HUBS_DEVICE: SoftDevice<16> = SoftDevice::new();

#[test]
fn a_hub_makes_no_system_call_and_no_allocation_while_it_works_and_spins() {
    static SEAL: Seal = Seal::new();
    let options = Options::new().blocks(64, 64);
    let mut hub: H = options.soft_hub(&HUBS_DEVICE).unwrap();
    let door = hub.door();
    let mut clients: Vec<_> = (0..8)
        .map(|_| door.connect::<Block>(options).unwrap().receives(4).unwrap())
        .map(|ready| ready.establish(PATIENCE).unwrap())
        .collect();
    while let Some(event) = hub.poll_event().unwrap() {
        if let Event::Request(request) = event {
            hub.accept(request).unwrap().receives(4).unwrap().start().unwrap();
        }
    }
    let work = Sealed(Serve::with(hub, echo_of_a_hub), &SEAL);
    let poller = Poller::builder().idle(IdlePolicy::Spin).spawn(work).unwrap();
    let gauge = poller.gauge();
    for _ in 0..100 {
        clients.iter_mut().for_each(ping);
    }
    assert_eq!(SEAL.allocations(&gauge), 0);
    assert!(gauge.read().completions >= 1599);
    // Its thread is gone without a report.
    std::mem::forget(poller);
}
