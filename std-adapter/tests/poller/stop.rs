//! A poller that was asked to stop ends, whatever it is about.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nanoverbs::poller::{End, IdlePolicy, Poller, StopHandle, Turn, Woken};

use super::{PATIENCE, POLICIES, in_a_process_of_its_own, joined, nothing, wait_until};

type Nothing = Woken<fn(usize) -> Turn>;

/// A poller that idles, as deep as its policy goes.
fn idling(idle: IdlePolicy) -> Poller<Nothing> {
    let work: Nothing = Woken(nothing);
    let poller = Poller::builder().idle(idle).spawn(work).unwrap();
    wait_until("it idles", || {
        let stats = poller.stats();
        match idle {
            IdlePolicy::Spin => stats.turns > 1000,
            IdlePolicy::SpinThenYield { .. } => stats.yields > 10,
            _ => stats.sleeps > 0,
        }
    });
    poller
}

#[test]
fn it_ends_from_its_own_handle_another_thread_and_a_drop() {
    for idle in POLICIES {
        let poller = idling(idle);
        poller.stop();
        assert!(matches!(joined(poller).end, End::Stopped { drained: true }));

        let poller = idling(idle);
        let stop = poller.stop_handle();
        assert!(!stop.is_requested());
        thread::spawn(move || stop.stop()).join().unwrap();
        assert!(poller.stop_handle().is_requested());
        assert!(matches!(joined(poller).end, End::Stopped { drained: true }));

        let (poller, began) = (idling(idle), Instant::now());
        let gauge = poller.gauge();
        drop(poller);
        assert!(began.elapsed() < PATIENCE);
        let turns = gauge.read().turns;
        thread::sleep(Duration::from_millis(20));
        assert_eq!(gauge.read().turns, turns, "it is gone");
    }
}

#[test]
fn a_stop_that_meets_the_falling_asleep_is_not_lost() {
    let idle = IdlePolicy::SpinThenSleep { spins: 3, longest: Duration::from_secs(3600) };
    for round in 0..300 {
        let poller = Poller::builder().idle(idle).spawn(Woken(nothing)).unwrap();
        for _ in 0..round % 50 {
            std::hint::spin_loop();
        }
        poller.stop();
        assert!(matches!(joined(poller).end, End::Stopped { drained: true }));
    }
}

static STOP: OnceLock<StopHandle> = OnceLock::new();

extern "C" fn on_signal(_signal: i32) {
    if let Some(stop) = STOP.get() {
        stop.stop();
    }
}

/// Stops a poller by a signal to this process.
fn stopped_by_a_signal(idle: IdlePolicy) {
    let poller = idling(idle);
    assert!(STOP.set(poller.stop_handle()).is_ok());
    // SAFETY: the handler does what a handler may; errno is the calling thread's own.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
        *libc::__errno_location() = libc::ENOTTY;
        assert_eq!(libc::raise(libc::SIGUSR1), 0);
        assert_eq!(*libc::__errno_location(), libc::ENOTTY, "a handler leaves errno alone");
    }
    assert!(matches!(joined(poller).end, End::Stopped { drained: true }));
}

#[test]
fn a_signal_handler_stops_a_spinner() {
    in_a_process_of_its_own("stop::a_signal_handler_stops_a_spinner", || {
        stopped_by_a_signal(POLICIES[0]);
    });
}

#[test]
fn a_signal_handler_stops_a_yielder() {
    in_a_process_of_its_own("stop::a_signal_handler_stops_a_yielder", || {
        stopped_by_a_signal(POLICIES[1]);
    });
}

#[test]
fn a_signal_handler_stops_a_sleeper() {
    in_a_process_of_its_own("stop::a_signal_handler_stops_a_sleeper", || {
        stopped_by_a_signal(POLICIES[2]);
    });
}

#[test]
fn signals_are_not_handled_on_the_poller() {
    in_a_process_of_its_own("stop::signals_are_not_handled_on_the_poller", || {
        static IS_HANDLED: AtomicBool = AtomicBool::new(false);
        extern "C" fn handle(_: i32) {
            IS_HANDLED.store(true, Ordering::SeqCst);
        }
        let poller = idling(IdlePolicy::Spin);
        // SAFETY: the handler stores a flag; the thread lives.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handle as *const () as usize;
            assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
            let (pid, tid) = (libc::getpid(), poller.thread_id());
            assert_eq!(libc::syscall(libc::SYS_tgkill, pid, tid, libc::SIGUSR1), 0);
        }
        thread::sleep(Duration::from_millis(50));
        assert!(!IS_HANDLED.load(Ordering::SeqCst));
        poller.stop();
        let _ = joined(poller);
    });
}

#[test]
fn what_was_handed_over_before_the_stop_is_dealt_with() {
    let mut left = 1000;
    let (started, starts) = std::sync::mpsc::sync_channel(1);
    let mut is_first = true;
    let poller = Poller::builder()
        .drain(PATIENCE)
        .spawn(move |_: usize| {
            if std::mem::take(&mut is_first) {
                started.send(()).unwrap();
                thread::sleep(Duration::from_millis(20));
            }
            if left == 0 {
                return Turn::Idle;
            }
            left -= 1;
            if left % 2 == 0 { Turn::Busy(1) } else { Turn::Pending }
        })
        .unwrap();
    starts.recv().unwrap();
    poller.stop();
    let report = joined(poller);
    assert!(matches!(report.end, End::Stopped { drained: true }), "{:?}", report.end);
    assert_eq!(report.stats.completions, 500);
}

#[test]
fn work_that_never_rests_is_cut_off_after_its_time_to_drain() {
    for turn in [Turn::Busy(1), Turn::Pending] {
        let drain = Duration::from_millis(30);
        let work = move |_: usize| turn;
        let poller = Poller::builder().drain(drain).spawn(work).unwrap();
        wait_until("it turns", || poller.stats().turns > 0);
        let began = Instant::now();
        poller.stop();
        assert!(matches!(joined(poller).end, End::Stopped { drained: false }));
        assert!(began.elapsed() >= drain);
    }
}

#[test]
fn the_drop_of_a_poller_that_is_stuck_has_a_bound() {
    let (free, until_free) = std::sync::mpsc::channel::<()>();
    let until_free = std::sync::Mutex::new(until_free);
    let work = move |_: usize| {
        let _ = until_free.lock().unwrap().recv();
        Turn::Finished
    };
    let poller = Poller::builder().drain(Duration::ZERO).spawn(work).unwrap();
    let began = Instant::now();
    drop(poller);
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(1) && took < PATIENCE, "{took:?}");
    drop(free);
}

#[test]
fn a_join_with_a_deadline_gives_the_poller_back() {
    let poller = idling(IdlePolicy::Spin);
    let poller = poller.join_until(Duration::from_millis(10)).expect_err("it runs");
    poller.stop();
    assert!(matches!(joined(poller).end, End::Stopped { drained: true }));
}
