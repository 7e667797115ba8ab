//! `pingpong` beside perftest in the guest of `make rxe`, for the README.
//!
//! `make rxe-bench` writes what the case prints to `target/bench/perftest.txt`: a line that says when and how often,
//! and a line for each figure.

use std::fmt::Write as _;

use crate::report::{machine_alone, verdict};

/// The ratio of latencies that the design asks for.
const LIMIT: f64 = 1.05;

/// The table of the last run; `None` when there was none, or what it wrote is something else.
pub(crate) fn markdown() -> Option<String> {
    table(&std::fs::read_to_string(crate::object::out_dir().join("perftest.txt")).ok()?)
}

fn table(text: &str) -> Option<String> {
    let (when, rows) = text.split_once('\n')?;
    let mut table = format!("Measured on {when}, on {}, emulated.\n\n", machine_alone());
    table += "| beside | bytes | unit | theirs | ours | ratio | limit | |\n";
    table += "|---|---|---|---|---|---|---|---|\n";
    for row in rows.lines() {
        let words: Vec<&str> = row.split_whitespace().collect();
        let [program, option, bytes, theirs, ours, ratio, unit, ..] = words[..] else {
            return None;
        };
        let (limit, verdict) = match ratio.parse::<f64>().ok()? {
            // More is better, and no bar is set.
            _ if !unit.starts_with("µs") => (String::new(), ""),
            ratio => (format!("{LIMIT:.2}"), verdict(Some(ratio <= LIMIT))),
        };
        let unit = if limit.is_empty() { "messages a second" } else { "µs" };
        let _ = writeln!(
            table,
            "| `{program} {option}` | {bytes} | {unit} | {theirs} | {ours} | {ratio} | {limit} | {verdict} |"
        );
    }
    Some(table)
}
