//! What a person sees while a long run goes on.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::Failure;

/// A run that takes less has no bar.
const LONG: Duration = Duration::from_secs(1);
const EVERY: Duration = Duration::from_millis(100);

/// Starts a thread that wakes the calling one when it is over.
pub(super) fn start<'scope, T: Send + 'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    name: &str,
    play: impl FnOnce() -> Result<T, Failure> + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, Result<T, Failure>>, Failure> {
    let watcher = thread::current();
    let play = move || {
        let result = play();
        watcher.unpark();
        result
    };
    thread::Builder::new()
        .name(name.to_owned())
        .spawn_scoped(scope, play)
        .map_err(|error| Failure::new(format!("no thread can be started: {error}")))
}

/// Waits for a player, and shows a progress bar when that takes long and somebody looks.
pub(super) fn watch<T>(
    player: ScopedJoinHandle<'_, Result<T, Failure>>,
    progress: &AtomicU64,
    rounds: u64,
) -> Result<T, Failure> {
    if io::stderr().is_terminal() {
        let began = Instant::now();
        let mut bar = None;
        while !player.is_finished() {
            thread::park_timeout(EVERY);
            if began.elapsed() >= LONG {
                // Relaxed: a number for people.
                bar.get_or_insert_with(|| new_bar(rounds))
                    .set_position(progress.load(Ordering::Relaxed));
            }
        }
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
    }
    join(player)
}

/// Waits for a player in silence.
pub(super) fn join<T>(player: ScopedJoinHandle<'_, Result<T, Failure>>) -> Result<T, Failure> {
    player.join().unwrap_or_else(|_| {
        Err(Failure::new("a thread of this program has panicked, which is a bug; please report it"))
    })
}

fn new_bar(rounds: u64) -> ProgressBar {
    let style =
        ProgressStyle::with_template("{wide_bar} {human_pos} of {human_len} rounds, {eta} left");
    let bar = ProgressBar::new(rounds);
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
