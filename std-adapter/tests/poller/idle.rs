//! Each idle policy does what its name says.

use std::time::{Duration, Instant};

use nanoverbs::poller::{End, IdlePolicy, Poller, Turn, Woken};

use super::{POLICIES, joined, nothing, wait_until};

#[test]
fn a_poller_that_spins_neither_yields_nor_sleeps() {
    let poller = Poller::builder().idle(IdlePolicy::Spin).spawn(nothing).unwrap();
    wait_until("it turns", || poller.stats().turns > 10_000);
    poller.stop();
    let stats = joined(poller).stats;
    assert_eq!((stats.yields, stats.sleeps, stats.completions), (0, 0, 0));
    assert_eq!(stats.turns, stats.empty_turns);
}

#[test]
fn a_poller_yields_after_its_spins_and_not_before() {
    let idle = IdlePolicy::SpinThenYield { spins: 99 };
    let poller = Poller::builder().idle(idle).spawn(nothing).unwrap();
    wait_until("it yields", || poller.stats().yields > 100);
    poller.stop();
    let stats = joined(poller).stats;
    // The last empty turn is that of the drain.
    assert_eq!(stats.yields as usize, stats.empty_turns - 99 - 1);

    let mut left = 1000;
    let busy = move |_: usize| {
        left -= 1;
        match left {
            0 => Turn::Finished,
            _ if left % 100 == 0 => Turn::Busy(1),
            _ => Turn::Idle,
        }
    };
    let stats = joined(Poller::builder().idle(idle).spawn(busy).unwrap()).stats;
    assert_eq!(stats.yields, 0, "each run of empty turns has 99");
}

#[test]
fn a_poller_sleeps_after_its_spins_until_it_is_woken() {
    let idle = IdlePolicy::SpinThenSleep { spins: 50, longest: Duration::from_secs(3600) };
    let poller = Poller::builder().idle(idle).spawn(Woken(nothing)).unwrap();
    for sleeps in 1..20 {
        wait_until("it sleeps", || poller.stats().sleeps == sleeps);
        let turns = poller.stats().turns;
        assert_eq!(turns, 51 * sleeps as usize);
        if sleeps == 1 {
            std::thread::sleep(Duration::from_millis(50));
            assert_eq!(poller.stats().turns, turns, "it sleeps on");
        }
        poller.waker().wake();
    }
    poller.stop();
    assert!(matches!(joined(poller).end, End::Stopped { drained: true }));
}

#[test]
fn a_sleep_is_no_longer_than_its_bound() {
    let idle = IdlePolicy::SpinThenSleep { spins: 0, longest: Duration::from_millis(1) };
    let began = Instant::now();
    let poller = Poller::builder().idle(idle).spawn(Woken(nothing)).unwrap();
    wait_until("it wakes by itself", || poller.stats().sleeps >= 20);
    assert!(began.elapsed() >= Duration::from_millis(19));
    poller.stop();
    let _ = joined(poller);
}

#[test]
fn a_sleeper_takes_no_processor_time() {
    let idle = IdlePolicy::SpinThenSleep { spins: 10, longest: Duration::from_secs(3600) };
    let poller = Poller::builder().idle(idle).spawn(Woken(nothing)).unwrap();
    wait_until("it sleeps", || poller.stats().sleeps == 1);
    let stat = format!("/proc/self/task/{}/stat", poller.thread_id());
    wait_until("the kernel says so", || {
        let line = std::fs::read_to_string(&stat).unwrap();
        line.rsplit(')').next().unwrap().trim_start().starts_with('S')
    });
    poller.stop();
    let _ = joined(poller);
}

#[test]
fn under_every_policy_the_work_is_done() {
    for idle in POLICIES {
        let mut left = 1000_u32;
        let work = Woken(move |batch: usize| {
            assert_eq!(batch, 7);
            left -= 1;
            if left == 0 { Turn::Finished } else { Turn::Busy(batch) }
        });
        let report = joined(Poller::builder().idle(idle).batch(7).spawn(work).unwrap());
        assert!(matches!(report.end, End::Finished), "{:?}", report.end);
        assert_eq!((report.stats.turns, report.stats.completions), (999, 7 * 999));
        assert_eq!((report.stats.sleeps, report.stats.yields), (0, 0), "it had work all the time");
    }
}
