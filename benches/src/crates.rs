//! Other crates on the same provider, as they are published.
//!
//! `sideway` posts what everybody posts. `ibverbs` signals each request and has no call for a batch: it is
//! held against ours with each request signaled, its single calls against our chain as well.

use crate::bed::Shape;
use crate::instructions::{Counts, key, signaled_key};
use crate::object::{Entry, Mode, Objects};
use crate::report::Row;
use crate::ticks::{self, Series};

const OURS: &str = "rustc";

/// Who is measured with every request signaled.
pub(crate) fn beside_signals_all(entry: &Entry) -> bool {
    let ours = matches!(entry.name.as_str(), "token_single" | "token_chain");
    entry.signals_all() || ours && entry.compiler == OURS
}

/// Ours, another's, what that is, and the bar of the ratio in instructions on the null provider, where
/// there is one. In ticks it is always 1.
type Contest = (&'static str, &'static str, &'static str, Option<f64>);

const SIDEWAY: [Contest; 2] = [
    ("token_single", "sideway_single", "single, beside sideway's classic path", None),
    ("token_chain", "sideway_chain", "chain of 16, beside sideway's classic path", Some(0.2)),
];
const IBVERBS: [Contest; 2] = [
    ("token_single", "ibverbs_single", "single, all signaled, beside ibverbs", None),
    (
        "token_chain",
        "ibverbs_single",
        "chain of 16, all signaled, beside 16 calls of ibverbs, which has none for a batch",
        None,
    ),
];

/// Bar 7.
pub(crate) fn rows(objects: &Objects, counts: &Counts) -> Vec<Row> {
    let mut rows = Vec::new();
    for (mode, provider) in [(Mode::Null, "null"), (Mode::Mlx5, "mlx5-shaped")] {
        let shape = Shape::new(mode);
        let key_of = |label: &str| key(mode, 16, label);
        contest(objects, counts, &SIDEWAY, shape, provider, key_of, &mut rows);
        let shape = Shape { signal: 1, ..shape };
        let key_of = |label: &str| signaled_key(mode, label);
        contest(objects, counts, &IBVERBS, shape, provider, key_of, &mut rows);
    }
    rows
}

fn contest(
    objects: &Objects,
    counts: &Counts,
    contests: &[Contest],
    shape: Shape,
    provider: &str,
    key_of: impl Fn(&str) -> String,
    rows: &mut Vec<Row>,
) {
    let find = |name: &str| {
        let is_it = |e: &&Entry| e.name == name && (e.compiler == OURS || e.is_of_a_crate());
        objects.entries.iter().find(is_it)
    };
    for (ours, theirs, what, instructions) in contests {
        let what = format!("{what}, {provider}");
        let (Some(ours), Some(theirs)) = (find(ours), find(theirs)) else {
            let why = "benches/crates does not build here: it wants cmake and the headers of libnl";
            rows.push(Row::missing("7", what, "ticks", 1.0, why));
            continue;
        };
        let count = |entry: &Entry| counts.get(&key_of(&entry.label())).map(|n| n / 16.0);
        if let (Some(a), Some(b)) = (count(ours), count(theirs)) {
            match instructions {
                Some(limit) if shape.mode == Mode::Null => {
                    rows.push(Row::beside("7", what.clone(), "instructions", (a, b), *limit));
                }
                _ => println!("{what}: {a:.1} instructions, theirs {b:.1}"),
            }
        }
        let series: Vec<Series> =
            ticks::measure(&objects.provider, [ours, theirs].into_iter(), shape, 64, 500);
        let [a, b] = &series[..] else { continue };
        let numbers = (a.median(), b.median(), a.ratio_to(b));
        rows.push(Row::with_ratio("7", what, "ticks", numbers, 1.0));
    }
}
