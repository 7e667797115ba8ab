//! The other ends, and the report.

use std::sync::Arc;
use std::time::Duration;

use nanoverbs::endpoint::WaitError;
use nanoverbs::poller::{End, IdlePolicy, Poller, Sources, Turn, Work};
use nanoverbs_core::{Armed, Recorder};

use super::{POLICIES, joined, nothing};

#[test]
fn a_panic_ends_the_poller_and_is_reported_with_the_work() {
    for (idle, words) in POLICIES.into_iter().zip(["one", "two", "three"]) {
        let witness = Arc::new(());
        let (work, mut turns) = (Arc::clone(&witness), 0);
        let poller = Poller::builder().idle(idle);
        let poller = poller.spawn(nanoverbs::poller::Woken(move |_: usize| {
            let _ = &work;
            turns += 1;
            assert!(turns < 5, "enough of {words}");
            Turn::Busy(2)
        }));
        let report = joined(poller.unwrap());
        assert_eq!(report.end.panic_message(), Some(format!("enough of {words}").as_str()));
        assert_eq!((report.stats.turns, report.stats.completions), (4, 8));
        assert_eq!(Arc::strong_count(&witness), 2, "the work came back");
        drop(report);
        assert_eq!(Arc::strong_count(&witness), 1);
    }
}

/// Work that fails where it is told to.
struct Failing {
    /// `None` fails in the turn.
    in_arm: Option<WaitError>,
}

impl Work for Failing {
    fn turn(&mut self, _: usize) -> Turn {
        match self.in_arm {
            Some(_) => Turn::Idle,
            None => Turn::Failed(WaitError::NothingPosted),
        }
    }

    fn can_sleep(&self) -> bool {
        true
    }

    fn arm(&mut self) -> Result<Armed, WaitError> {
        self.in_arm.map_or(Ok(Armed::Quiet), Err)
    }
}

#[test]
fn a_failure_is_reported_and_in_arming_too() {
    for idle in POLICIES {
        let poller = Poller::builder().idle(idle).spawn(Failing { in_arm: None }).unwrap();
        assert!(matches!(joined(poller).end, End::Failed(WaitError::NothingPosted)));
    }
    let failing = |error| {
        let work = Failing { in_arm: Some(error) };
        joined(Poller::builder().idle(POLICIES[2]).spawn(work).unwrap()).end
    };
    assert!(matches!(failing(WaitError::Broken), End::Failed(WaitError::Broken)));
    assert!(matches!(failing(WaitError::Disconnected), End::Disconnected));
}

/// Work that says `Ready` some times before it lets the poller sleep, and panics when it sleeps too early.
struct Ready {
    left: u32,
    asked: u32,
}

impl Work for Ready {
    fn turn(&mut self, _: usize) -> Turn {
        if self.asked == 5 { Turn::Finished } else { Turn::Idle }
    }

    fn can_sleep(&self) -> bool {
        true
    }

    fn arm(&mut self) -> Result<Armed, WaitError> {
        self.asked += 1;
        match self.left {
            0 => Ok(Armed::Quiet),
            _ => {
                self.left -= 1;
                Ok(Armed::Ready)
            }
        }
    }

    fn sources<'s>(&'s self, sources: &mut Sources<'s>) {
        assert_eq!(self.left, 0);
        sources.at_most(Duration::from_millis(1));
    }
}

#[test]
fn f32_what_came_before_the_arming_is_not_slept_through() {
    let poller = Poller::builder().idle(POLICIES[2]).spawn(Ready { left: 3, asked: 0 }).unwrap();
    let report = joined(poller);
    assert!(matches!(report.end, End::Finished), "{:?}", report.end);
    assert_eq!(report.stats.sleeps, 2);
}

/// Sleeps on more descriptors than there is place for.
struct Many(
    std::io::PipeReader,
    #[expect(dead_code, reason = "keeps it open")] std::io::PipeWriter,
);

impl Work for Many {
    fn turn(&mut self, _: usize) -> Turn {
        Turn::Idle
    }

    fn can_sleep(&self) -> bool {
        true
    }

    fn sources<'s>(&'s self, sources: &mut Sources<'s>) {
        for _ in 0..Sources::MOST {
            sources.add(std::os::fd::AsFd::as_fd(&self.0));
        }
    }
}

#[test]
fn too_many_descriptors_are_an_error_not_a_deaf_sleep() {
    let (reader, writer) = std::io::pipe().unwrap();
    let poller = Poller::builder().idle(POLICIES[2]).spawn(Many(reader, writer)).unwrap();
    let report = joined(poller);
    let End::Failed(WaitError::Call(error)) = report.end else { panic!("{:?}", report.end) };
    assert_eq!(error.errno(), libc::E2BIG);
}

/// Sleeps on a pipe.
struct Pipe(std::io::PipeReader);

impl Work for Pipe {
    fn turn(&mut self, _: usize) -> Turn {
        Turn::Idle
    }

    fn can_sleep(&self) -> bool {
        true
    }

    fn sources<'s>(&'s self, sources: &mut Sources<'s>) {
        sources.add(std::os::fd::AsFd::as_fd(&self.0));
    }
}

#[test]
fn a_source_of_the_work_ends_the_sleep() {
    use std::io::Write;
    let (reader, mut writer) = std::io::pipe().unwrap();
    let poller = Poller::builder().idle(POLICIES[2]).spawn(Pipe(reader)).unwrap();
    super::wait_until("it sleeps", || poller.stats().sleeps == 1);
    writer.write_all(b"x").unwrap();
    // Nobody reads it, so it sleeps no more.
    super::wait_until("it is awake", || poller.stats().sleeps > 10);
    poller.stop();
    let _ = joined(poller);
}

#[test]
fn the_longest_turn_is_measured_while_it_runs_and_afterwards() {
    let mut turns = 0;
    let poller = Poller::builder().idle(IdlePolicy::Spin).spawn(move |_: usize| {
        turns += 1;
        if turns == 100 {
            std::thread::sleep(Duration::from_millis(30));
        }
        Turn::Busy(1)
    });
    let poller = poller.unwrap();
    let gauge = poller.gauge();
    super::wait_until("it turns", || gauge.read().turns > 200);
    let longest = gauge.read().longest_turn;
    assert!(longest > Duration::from_millis(25) && longest < super::PATIENCE, "{longest:?}");
    poller.stop();
    assert!(joined(poller).stats.longest_turn >= Duration::from_millis(25));
}

#[test]
fn a_recorder_comes_back_with_what_it_recorded() {
    struct Measured {
        recorder: Recorder,
        last: std::time::Instant,
    }
    impl Work for Measured {
        fn turn(&mut self, _: usize) -> Turn {
            let now = std::time::Instant::now();
            self.recorder.record((now - self.last).as_nanos() as u64);
            self.last = now;
            if self.recorder.count() == 10_000 { Turn::Finished } else { Turn::Busy(1) }
        }
    }
    let work = Measured { recorder: Recorder::new(), last: std::time::Instant::now() };
    let report = joined(Poller::builder().spawn(work).unwrap());
    assert_eq!(report.work.recorder.count(), 10_000);
    assert!(report.work.recorder.quantile(99, 100) <= report.work.recorder.max());
}

#[test]
fn the_thread_has_its_name_and_its_handles_tell() {
    let poller = Poller::builder().name("fifteen letters").spawn(nothing).unwrap();
    let comm = std::fs::read_to_string(format!("/proc/self/task/{}/comm", poller.thread_id()));
    assert_eq!(comm.unwrap().trim(), "fifteen letters");
    assert!(format!("{poller:?}").contains("fifteen letters"));
    let (stop, waker, gauge) = (poller.stop_handle(), poller.waker(), poller.gauge());
    assert!(format!("{stop:?} {waker:?} {gauge:?}").contains("is_requested: false"));
    static_assertions::assert_impl_all!(nanoverbs::poller::StopHandle: Send, Sync, Clone);
    static_assertions::assert_impl_all!(nanoverbs::poller::Waker: Send, Sync, Clone);
    static_assertions::assert_impl_all!(nanoverbs::poller::Gauge: Send, Sync, Clone);
    stop.stop();
    let _ = joined(poller);
}
