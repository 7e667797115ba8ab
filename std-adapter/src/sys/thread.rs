//! The calling thread as the kernel sees it: cores, scheduling, locked memory, signals, the time.

use std::mem;

use super::{CallError, minus_one};
use crate::Cores;
use crate::cores::MOST;

/// One bit a core.
type Mask = [u64; MOST / 64];

/// The cores that the calling thread may run on.
pub(crate) fn allowed_cores() -> Result<Cores, CallError> {
    let mut mask: Mask = [0; MOST / 64];
    // SAFETY: the kernel writes no more than the size that it is given, and the mask is that large.
    let ret = unsafe { libc::sched_getaffinity(0, size_of::<Mask>(), mask.as_mut_ptr().cast()) };
    minus_one("sched_getaffinity", ret)?;
    Ok((0..MOST).filter(|core| mask[core / 64] >> (core % 64) & 1 == 1).collect())
}

/// Lets the calling thread run on one core only.
pub(crate) fn pin(core: usize) -> Result<(), CallError> {
    let mut mask: Mask = [0; MOST / 64];
    match mask.get_mut(core / 64) {
        Some(word) => *word |= 1 << (core % 64),
        None => return Err(CallError::new("sched_setaffinity", libc::EINVAL)),
    }
    // SAFETY: the kernel reads as much as the mask has.
    let ret = unsafe { libc::sched_setaffinity(0, size_of::<Mask>(), mask.as_ptr().cast()) };
    minus_one("sched_setaffinity", ret)
}

/// The priorities of `SCHED_FIFO`.
pub(crate) fn fifo_priorities() -> (i32, i32) {
    // SAFETY: both take a number and give one.
    unsafe {
        (
            libc::sched_get_priority_min(libc::SCHED_FIFO),
            libc::sched_get_priority_max(libc::SCHED_FIFO),
        )
    }
}

/// Puts the calling thread under `SCHED_FIFO`.
pub(crate) fn fifo(priority: i32) -> Result<(), CallError> {
    schedule(libc::SCHED_FIFO, priority)
}

/// Takes the calling thread out of the real-time classes, if it inherited one.
pub(crate) fn normal_scheduling() -> Result<(), CallError> {
    let (mut policy, mut param) = (0, no_param());
    // SAFETY: both are places for what is asked for.
    let ret = unsafe {
        libc::pthread_getschedparam(libc::pthread_self(), &raw mut policy, &raw mut param)
    };
    if ret != 0 {
        return Err(CallError::new("pthread_getschedparam", ret));
    }
    match policy {
        libc::SCHED_FIFO | libc::SCHED_RR => schedule(libc::SCHED_OTHER, 0),
        _ => Ok(()),
    }
}

fn schedule(policy: i32, priority: i32) -> Result<(), CallError> {
    let mut param = no_param();
    param.sched_priority = priority;
    // SAFETY: the calling thread lives, and the parameters outlive the call.
    let ret =
        unsafe { libc::pthread_setschedparam(libc::pthread_self(), policy, &raw const param) };
    if ret == 0 { Ok(()) } else { Err(CallError::new("pthread_setschedparam", ret)) }
}

fn no_param() -> libc::sched_param {
    // SAFETY: a structure of numbers.
    unsafe { mem::zeroed() }
}

/// Locks everything that the process has mapped and will map.
pub(crate) fn lock_all_memory() -> Result<(), CallError> {
    // SAFETY: changes no content.
    minus_one("mlockall", unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) })
}

/// How many bytes this process may lock; `None` when there is no limit.
pub(crate) fn locked_memory_limit() -> Option<u64> {
    limit(libc::RLIMIT_MEMLOCK)
}

/// The highest `SCHED_FIFO` priority without the capability; `None` when there is no limit.
pub(crate) fn fifo_limit() -> Option<u64> {
    limit(libc::RLIMIT_RTPRIO)
}

fn limit(resource: libc::__rlimit_resource_t) -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a place for the structure.
    let ret = unsafe { libc::getrlimit(resource, &raw mut limit) };
    (ret == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// The kernel's number of the calling thread.
pub(crate) fn thread_id() -> i32 {
    // SAFETY: takes nothing and gives a number.
    unsafe { libc::gettid() }
}

/// Keeps the handlers of signals away from the calling thread, but for those of its own faults, and of
/// profilers.
pub(crate) fn block_signals() -> Result<(), CallError> {
    // SAFETY: a set is numbers, and is filled before it is used; the signals exist.
    let ret = unsafe {
        let mut set = mem::zeroed();
        libc::sigfillset(&raw mut set);
        for signal in [
            libc::SIGABRT,
            libc::SIGBUS,
            libc::SIGFPE,
            libc::SIGILL,
            libc::SIGPROF,
            libc::SIGSEGV,
            libc::SIGSYS,
            libc::SIGTRAP,
        ] {
            libc::sigdelset(&raw mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut())
    };
    if ret == 0 { Ok(()) } else { Err(CallError::new("pthread_sigmask", ret)) }
}

/// A clock that costs a few nanoseconds and never a system call, in a unit of its own.
#[inline(always)]
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the counter.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// A clock, in nanoseconds.
#[inline(always)]
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(crate) fn ticks() -> u64 {
    use std::sync::OnceLock;
    use std::time::Instant;
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    BEGAN.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Restores `errno` when it is dropped, for what a signal handler may call.
pub(crate) struct KeepErrno(i32);

impl KeepErrno {
    pub(crate) fn new() -> Self {
        // SAFETY: the calling thread's own errno.
        Self(unsafe { *libc::__errno_location() })
    }
}

impl Drop for KeepErrno {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.0 };
    }
}
