//! The steady state on the soft device: a million operations that allocate nothing, touch no new page
//! and make no system call.
//!
//! The last is proved by a child under seccomp's strict mode, which the kernel kills at the first call
//! that is not `read`, `write` or `exit`.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::alloc::{GlobalAlloc, Layout, System};

use nanoverbs_benches::soft::Loop;

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

fn faults() -> i64 {
    // SAFETY: a structure on the stack, for this process.
    unsafe {
        let mut usage: libc::rusage = core::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage.ru_minflt + usage.ru_majflt
    }
}

fn main() {
    let Some(mut steady) = Loop::new() else {
        eprintln!("the soft device refuses the set-up");
        std::process::exit(1);
    };
    let warm = steady.run(4096, 16);
    assert_eq!(warm, Some(4096), "every message arrives");
    faults();
    let before = (ALLOCATIONS.load(Ordering::Relaxed), faults());
    let arrived = steady.run(OPERATIONS, 16);
    let after = (ALLOCATIONS.load(Ordering::Relaxed), faults());
    assert_eq!(arrived, Some(OPERATIONS), "every message arrives");
    println!("allocations {}", after.0 - before.0);
    println!("faults {}", after.1 - before.1);

    // SAFETY: one thread; the child runs the loop and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // What `fork` shares is copied at the first write; that is not the loop's.
        let code = if steady.run(4096, 16) == Some(4096) { 0 } else { 3 };
        // SAFETY: a number; from here on every other call than `exit` kills.
        let strict = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT) };
        let code = match (strict, code) {
            (0, 0) if steady.run(OPERATIONS, 16) == Some(OPERATIONS) => 0,
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
