//! The steady state on the soft device: a million operations that allocate nothing, touch no new page
//! and make no system call.
//!
//! The last is proved by a child under seccomp's strict mode, which the kernel kills at the first call
//! that is not `read`, `write` or `exit`.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::alloc::{GlobalAlloc, Layout, System};

use nanoverbs_core::soft::{CompletionQueue, Device, QpConfig, RecvEnd, SendEnd};
use nanoverbs_core::{
    Block, BlockHeader, Completions, Pool, RecvConfig, RecvLink, RecvQueue, RecvSlots, RecvStaging,
    SendConfig, SendLink, SendQueue, SendSlots, SendStaging, op,
};

const OPERATIONS: usize = 1_000_000;

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

type Sends = SendQueue<'static, SendEnd<'static, 64>, Block, 64>;
type Recvs = RecvQueue<'static, RecvEnd<'static, 64>, Block, 64>;

struct Loop {
    pool: Pool,
    sends: Sends,
    recvs: Recvs,
    staging: SendLink<'static, 16, 1>,
    receiving: RecvLink<'static, 16, 1>,
    completions: Completions<CompletionQueue<'static, 2, 64>, 32>,
}

fn set_up() -> Option<Loop> {
    let device: &'static Device<2, 64> = Box::leak(Box::new(Device::new()));
    let domain = device.domain();
    let memory = Box::leak(vec![0_u8; 64 * 256].into_boxed_slice());
    let region = device.register(domain, memory).ok()?;
    let headers = Box::leak((0..256).map(|_| BlockHeader::new()).collect());
    let pool = Pool::new(Box::leak(Box::default()), headers, region, 64).ok()?;
    let queue = device.completion_queue(256).ok()?;
    let a = device.queue_pair(QpConfig::new(domain), &queue, &queue).ok()?;
    let b = device.queue_pair(QpConfig::new(domain), &queue, &queue).ok()?;
    a.control.connect(&b.control).ok()?;
    core::mem::forget((a.control, b.control));
    let slots: &'static mut SendSlots<Block, 64> = Box::leak(Box::default());
    let mut sends = SendQueue::new(a.send, slots, SendConfig::new(domain)).ok()?;
    sends.open();
    let slots: &'static mut RecvSlots<Block, 64> = Box::leak(Box::default());
    let recvs = RecvQueue::new(b.recv, slots, RecvConfig::new(domain)).ok()?;
    let staging: &'static mut SendStaging<16, 1> = Box::leak(Box::default());
    let receiving: &'static mut RecvStaging<16, 1> = Box::leak(Box::default());
    let (staging, receiving) = (staging.link(), receiving.link());
    let completions = Completions::new(queue, 256);
    Some(Loop { pool, sends, recvs, staging, receiving, completions })
}

impl Loop {
    /// Sends `count` messages in chains of 16, receives them, and says how many came.
    fn run(&mut self, count: usize) -> Option<usize> {
        let mut arrived = 0;
        for _ in 0..count / 16 {
            let mut chain = self.recvs.reserve(&mut self.receiving, 16).ok()?;
            for _ in 0..16 {
                chain.push(self.pool.allocate()?).ok()?;
            }
            chain.submit().ok()?;
            let mut chain = self.sends.reserve(&mut self.staging, 16).ok()?;
            for _ in 0..16 {
                chain.push(op::Send::new(), self.pool.allocate()?).ok()?;
            }
            chain.submit().ok()?;
            let until = arrived + 16;
            while arrived < until {
                for completion in self.completions.poll().ok()? {
                    if completion.is_recv() {
                        self.recvs.retire(completion).ok()?;
                    } else {
                        self.sends.retire(completion).ok()?;
                    }
                }
                while let Some(ended) = self.recvs.take() {
                    arrived += usize::from(ended.outcome.is_done());
                }
                while self.sends.take().is_some() {}
            }
        }
        Some(arrived)
    }
}

fn faults() -> i64 {
    // SAFETY: a structure on the stack, for this process.
    unsafe {
        let mut usage: libc::rusage = core::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage.ru_minflt + usage.ru_majflt
    }
}

fn main() {
    let Some(mut steady) = set_up() else {
        eprintln!("the soft device refuses the set-up");
        std::process::exit(1);
    };
    let warm = steady.run(4096);
    assert_eq!(warm, Some(4096), "every message arrives");
    faults();
    let before = (ALLOCATIONS.load(Ordering::Relaxed), faults());
    let arrived = steady.run(OPERATIONS);
    let after = (ALLOCATIONS.load(Ordering::Relaxed), faults());
    assert_eq!(arrived, Some(OPERATIONS), "every message arrives");
    println!("allocations {}", after.0 - before.0);
    println!("faults {}", after.1 - before.1);

    // SAFETY: one thread; the child runs the loop and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // What `fork` shares is copied at the first write; that is not the loop's.
        let code = if steady.run(4096) == Some(4096) { 0 } else { 3 };
        // SAFETY: a number; from here on every other call than `exit` kills.
        let strict = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT) };
        let code = match (strict, code) {
            (0, 0) if steady.run(OPERATIONS) == Some(OPERATIONS) => 0,
            (0, _) => 3,
            _ => 4,
        };
        // SAFETY: `exit`, the one call that is allowed here; libc's own would be `exit_group`.
        unsafe { libc::syscall(libc::SYS_exit, code) };
    }
    let mut status = 0;
    // SAFETY: waits for the child from above.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0 {
        println!("system calls 0");
    } else if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 4 {
        println!("system calls unknown: no seccomp here");
    } else {
        println!("system calls 1");
    }
}
