//! What cannot be had is refused before the work begins, and the work comes back.

use std::time::Duration;

use nanoverbs::poller::{
    Builder, IdlePolicy, Poller, Refused, Scheduling, Turn, allowed_cores, pin_this_thread,
};

use super::{in_a_process_of_its_own, joined, nothing};

/// What the builder refuses. Work that must not begin comes back.
fn refused(builder: Builder) -> Refused {
    let error = builder
        .spawn(|_: usize| -> Turn { panic!("the work began") })
        .expect_err("it cannot be had");
    let work = error.work;
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(1))).is_err());
    error.cause
}

#[test]
fn names_that_no_thread_can_have_are_refused() {
    for name in ["", "sixteen letters.", "a\0b"] {
        let cause = refused(Poller::builder().name(name));
        assert!(matches!(&cause, Refused::Name { asked } if asked == name), "{cause}");
        assert!(cause.to_string().contains("1 to 15 bytes"), "{cause}");
    }
}

#[test]
fn f42_a_batch_without_bound_is_refused() {
    for batch in [0, Builder::MAX_BATCH + 1, usize::MAX] {
        let cause = refused(Poller::builder().batch(batch));
        assert!(matches!(cause, Refused::Batch { asked, .. } if asked == batch), "{cause}");
    }
}

#[test]
fn a_stack_beyond_measure_is_refused() {
    let cause = refused(Poller::builder().prefault_stack(usize::MAX));
    assert!(matches!(cause, Refused::Stack { asked: usize::MAX, .. }), "{cause}");
}

#[test]
fn work_that_nobody_wakes_may_not_sleep() {
    let idle = IdlePolicy::SpinThenSleep { spins: 1, longest: Duration::from_secs(1) };
    let cause = refused(Poller::builder().idle(idle));
    assert!(matches!(cause, Refused::CannotSleep), "{cause}");
}

#[test]
fn a_core_that_is_not_there_is_refused() {
    for core in [8191, 8192, usize::MAX] {
        let cause = refused(Poller::builder().core(core));
        let allowed = allowed_cores().unwrap();
        assert!(
            matches!(&cause, Refused::Core { asked, allowed: a } if *asked == core && *a == allowed)
        );
        let said = cause.to_string();
        assert!(said.contains(&core.to_string()) && said.contains(&allowed.to_string()), "{said}");
        assert!(matches!(pin_this_thread(core), Err(Refused::Core { .. })));
    }
}

#[test]
fn a_core_outside_of_the_mask_is_refused_and_one_inside_is_had() {
    let all = allowed_cores().unwrap();
    let first = all.iter().next().unwrap();
    pin_this_thread(first).unwrap();
    assert_eq!(allowed_cores().unwrap().iter().collect::<Vec<_>>(), [first]);
    if let Some(other) = all.iter().nth(1) {
        let cause = refused(Poller::builder().core(other));
        assert!(matches!(cause, Refused::Core { asked, .. } if asked == other), "{cause}");
    }
    let mut seen = None;
    let work = move |_: usize| match seen {
        Some(_) => Turn::Finished,
        None => {
            seen = Some(allowed_cores().unwrap());
            assert_eq!(seen.as_ref().unwrap().len(), 1);
            Turn::Busy(1)
        }
    };
    let report = joined(Poller::builder().core(first).spawn(work).unwrap());
    assert!(matches!(report.end, nanoverbs::poller::End::Finished), "{:?}", report.end);
}

#[test]
fn priorities_that_fifo_does_not_have_are_refused() {
    for priority in [0, 100, -1] {
        let cause = refused(Poller::builder().scheduling(Scheduling::Fifo { priority }));
        assert!(matches!(cause, Refused::Priority { asked, .. } if asked == priority), "{cause}");
    }
}

/// Gives up what root has, and lowers a limit to `most`, or to what it is. Says which.
fn without_rights(resource: libc::__rlimit_resource_t, most: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: changes limits and the user of this process, which is the test's own.
    unsafe {
        assert_eq!(libc::getrlimit(resource, &raw mut limit), 0);
        let most = limit.rlim_max.min(most);
        limit = libc::rlimit { rlim_cur: most, rlim_max: most };
        assert_eq!(libc::setrlimit(resource, &raw const limit), 0);
        if libc::geteuid() == 0 {
            assert_eq!(libc::setresuid(65534, 65534, 65534), 0);
        }
    }
    limit.rlim_cur
}

#[test]
fn fifo_without_permission_is_refused() {
    in_a_process_of_its_own("refusals::fifo_without_permission_is_refused", || {
        let most = without_rights(libc::RLIMIT_RTPRIO, 5);
        let cause = refused(Poller::builder().scheduling(Scheduling::Fifo { priority: 6 }));
        let Refused::Fifo { priority: 6, limit, error } = &cause else { panic!("{cause}") };
        assert_eq!((*limit, error.errno()), (Some(most), libc::EPERM));
        let said = cause.to_string();
        assert!(said.contains("priority 6") && said.contains(&format!("up to {most}")), "{said}");
        assert!(said.contains("ulimit -r") && said.contains("CAP_SYS_NICE"), "{said}");
    });
}

#[test]
fn fifo_is_in_force_when_it_is_granted() {
    let scheduling = Scheduling::Fifo { priority: 1 };
    let work = |_: usize| {
        // SAFETY: asks about the calling thread.
        assert_eq!(unsafe { libc::sched_getscheduler(0) }, libc::SCHED_FIFO);
        Turn::Finished
    };
    match Poller::builder().scheduling(scheduling).spawn(work) {
        Ok(poller) => assert!(matches!(joined(poller).end, nanoverbs::poller::End::Finished)),
        // Not everywhere may a test have it.
        Err(error) => assert!(matches!(error.cause, Refused::Fifo { .. }), "{error}"),
    }
}

#[test]
fn locking_beyond_the_limit_is_refused() {
    in_a_process_of_its_own("refusals::locking_beyond_the_limit_is_refused", || {
        let most = without_rights(libc::RLIMIT_MEMLOCK, 65536);
        let cause = refused(Poller::builder().lock_memory());
        assert!(
            matches!(cause, Refused::LockMemory { limit, .. } if limit == Some(most)),
            "{cause}"
        );
        let said = cause.to_string();
        assert!(said.contains(&format!("{most} bytes")) && said.contains("ulimit -l"), "{said}");
        // Nothing is locked.
        assert!(locked() == 0);
        let poller = Poller::builder().spawn(nothing).unwrap();
        poller.stop();
        let _ = joined(poller);
    });
}

#[test]
fn memory_is_locked_before_the_work_begins() {
    in_a_process_of_its_own("refusals::memory_is_locked_before_the_work_begins", || {
        let work = |_: usize| {
            assert!(locked() > 0);
            Turn::Finished
        };
        match Poller::builder().lock_memory().spawn(work) {
            Ok(poller) => assert!(matches!(joined(poller).end, nanoverbs::poller::End::Finished)),
            Err(error) => assert!(matches!(error.cause, Refused::LockMemory { .. }), "{error}"),
        }
    });
}

/// Kilobytes that this process has locked.
fn locked() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_thread_that_cannot_be_had_is_an_error() {
    in_a_process_of_its_own("refusals::a_thread_that_cannot_be_had_is_an_error", || {
        // No room for a stack of this size.
        let limit = libc::rlimit { rlim_cur: 1 << 30, rlim_max: 1 << 30 };
        // SAFETY: a limit of this process, which is the test's own.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
        let hog: Vec<u8> = Vec::with_capacity(900 << 20);
        let cause = refused(Poller::builder().prefault_stack(Builder::MAX_STACK));
        assert!(matches!(cause, Refused::Thread(_)), "{cause}");
        drop(hog);
    });
}

#[test]
fn a_prefaulted_stack_costs_no_fault_later() {
    fn deep(bytes: usize) {
        let mut piece = [0_u8; 2048];
        std::hint::black_box(&mut piece);
        if bytes > 0 {
            deep(bytes.saturating_sub(piece.len()));
        }
        std::hint::black_box(&mut piece);
    }
    fn faults() -> i64 {
        // SAFETY: numbers, filled by the call.
        unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage), 0);
            usage.ru_minflt
        }
    }
    let work = |_: usize| {
        let before = faults();
        deep(256 << 10);
        let there = faults() - before;
        assert!(there < 8, "{there} faults");
        Turn::Finished
    };
    let report = joined(Poller::builder().prefault_stack(1 << 20).spawn(work).unwrap());
    assert!(matches!(report.end, nanoverbs::poller::End::Finished), "{:?}", report.end);
}
