//! Pollers, without hardware: what they refuse, how they idle, that they always end.

mod drive;
mod ends;
mod hand_over;
mod idle;
mod refusals;
mod stop;

use std::process::Command;
use std::time::{Duration, Instant};

use nanoverbs::poller::{IdlePolicy, Poller, Report, Turn};

const PATIENCE: Duration = Duration::from_secs(60);

/// Every policy, with small numbers.
const POLICIES: [IdlePolicy; 3] = [
    IdlePolicy::Spin,
    IdlePolicy::SpinThenYield { spins: 10 },
    // Longer than any test may take: only a wake-up ends it.
    IdlePolicy::SpinThenSleep { spins: 10, longest: Duration::from_secs(3600) },
];

fn nothing(_batch: usize) -> Turn {
    Turn::Idle
}

/// The report of a poller that ends by itself or has been stopped.
fn joined<W>(poller: Poller<W>) -> Report<W> {
    poller.join_until(PATIENCE).expect("it ends")
}

fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_true() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::yield_now();
    }
}

/// Runs `body` in a process that has nothing else to do: this test's program, with this test alone.
fn in_a_process_of_its_own(test: &str, body: impl FnOnce()) {
    const MARK: &str = "NANOVERBS_OWN_PROCESS";
    if std::env::var(MARK).is_ok_and(|name| name == test) {
        return body();
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(MARK, test)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}:\n{said}{complained}", output.status);
    assert!(said.contains("1 passed"), "{test} is not the name of the test:\n{said}");
}
