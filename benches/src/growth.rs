//! What grows: queue pairs on one completion queue, and completions in a poll; and receives on many queue pairs.

use crate::bed::Shape;
use crate::instructions::{Counts, QPS, group_key, key, poll_key};
use crate::object::{Entry, Kind, Mode, Objects};
use crate::report::Row;
use crate::ticks::{self, Series};

/// Ours, and one of each of C's.
fn is_shown(entry: &Entry) -> bool {
    matches!(entry.compiler, "rustc" | "gcc -O3")
}

/// All of it: tables for people, and the rows of bar 5 and of the growth of groups.
pub(crate) fn rows(objects: &Objects, counts: &Counts) -> Vec<Row> {
    queue_pairs(objects);
    polls(objects, counts);
    let mut rows = receives(objects, counts);
    rows.extend(groups(objects, counts));
    rows
}

fn table<T: ToString>(what: &str, columns: &[T], lines: &[(String, Vec<f64>)]) {
    let columns: String = columns.iter().map(|n| format!("{:>8}", n.to_string())).collect();
    println!("{what:<44} {columns}");
    for (label, numbers) in lines {
        let numbers: String = numbers.iter().map(|n| format!("{n:>8.1}")).collect();
        println!("{label:<44} {numbers}");
    }
    println!();
}

/// Series by column as lines.
fn lines(columns: &[Vec<Series>]) -> Vec<(String, Vec<f64>)> {
    let first = columns.first().map_or(&[][..], |column| column);
    let medians = |at: usize| columns.iter().map(|column| column[at].median()).collect();
    first.iter().enumerate().map(|(at, series)| (series.entry.label(), medians(at))).collect()
}

/// Ticks a request with more and more queue pairs on one completion queue, each in turn.
fn queue_pairs(objects: &Objects) {
    let columns: Vec<Vec<Series>> = QPS
        .iter()
        .map(|qps| {
            let names = ["post_send", "twin_single", "twin_chain", "token_single", "token_chain"];
            let entries = objects.entries.iter();
            let entries = entries.filter(|e| is_shown(e) && names.contains(&e.name.as_str()));
            let shape = Shape { qps: *qps, ..Shape::new(Mode::Mlx5) };
            let (rounds, repetitions) =
                (u64::from((*qps).max(64)), if *qps > 256 { 10 } else { 100 });
            ticks::measure(&objects.provider, entries, shape, rounds, repetitions)
        })
        .collect();
    table("ticks a request, by queue pairs, 16 on each", &QPS, &lines(&columns));
}

/// Cost of a completion by how many come in a poll.
fn polls(objects: &Objects, counts: &Counts) {
    const BATCHES: [u32; 4] = [1, 4, 16, 32];
    let is_polling = |e: &&Entry| matches!(e.name.as_str(), "poll" | "twin_poll") && is_shown(e);
    let by_instructions: Vec<_> = objects
        .entries
        .iter()
        .filter(is_polling)
        .map(|entry| {
            let count = |n: &u32| {
                let count = counts.get(&poll_key(*n, *n, &entry.label()));
                count.map_or(f64::NAN, |count| count / f64::from(*n))
            };
            (entry.label(), BATCHES.iter().map(count).collect())
        })
        .collect();
    table("instructions a completion, by completions a poll", &BATCHES, &by_instructions);
    let columns: Vec<Vec<Series>> = BATCHES
        .iter()
        .map(|n| {
            let names = ["chain_context", "twin_chain", "token_chain"];
            let entries = objects.entries.iter();
            let entries = entries.filter(|e| is_shown(e) && names.contains(&e.name.as_str()));
            let shape = Shape { round: *n, chain: *n, signal: 1, ..Shape::new(Mode::Mlx5) };
            ticks::measure(&objects.provider, entries, shape, u64::from(1024 / n), 300)
        })
        .collect();
    table("ticks a post and its completion, by completions a poll", &BATCHES, &lines(&columns));
}

/// Bar 5, for receives.
pub(crate) fn receives(objects: &Objects, counts: &Counts) -> Vec<Row> {
    let by_instructions: Vec<_> = objects
        .entries
        .iter()
        .filter(|entry| entry.kind() == Kind::Recv)
        .map(|entry| {
            let count = counts.get(&key(Mode::Recv, 16, &entry.label()));
            (entry.label(), vec![count.map_or(f64::NAN, |count| count / 16.0)])
        })
        .collect();
    table("a receive and its completion", &["instr."], &by_instructions);
    let shape = Shape { qps: 1024, ..Shape::new(Mode::Recv) };
    let contests = [
        (
            "recv_single",
            "1,024 queue pairs in turn, cold, receives one by one, beside rdma_post_recv with a context",
        ),
        (
            "recv_chain",
            "1,024 queue pairs in turn, cold, receives in chains of 16, beside C's with a context",
        ),
    ];
    let rows = contests.iter().filter_map(|(name, what)| {
        let entries = objects.entries.iter();
        let entries = entries.filter(|e| e.kind() == Kind::Recv && e.name == *name && is_shown(e));
        let series = ticks::measure(&objects.provider, entries, shape, 64, 1600);
        let ours = series.iter().find(|s| !s.entry.is_c())?;
        let c = series.iter().find(|s| s.entry.is_c())?;
        let numbers = (ours.median(), c.median(), ours.ratio_to(c));
        Some(Row::with_ratio("5", *what, "ticks", numbers, 1.00))
    });
    rows.collect()
}

/// A completion that finds its queue through a group: with 4,096 members beside 16.
fn groups(objects: &Objects, counts: &Counts) -> Vec<Row> {
    let mut rows = Vec::new();
    let ours = |name: &str| {
        objects.entries.iter().find(|e| e.name == name && e.compiler == "rustc").cloned()
    };
    if let Some(entry) = ours("group_poll") {
        let count = |qps: &u32| {
            counts.get(&group_key(*qps, &entry.label())).map_or(f64::NAN, |count| count / 16.0)
        };
        let counts: Vec<f64> = QPS.iter().map(count).collect();
        table(
            "instructions a completion through a group, by members",
            &QPS,
            &[(entry.label(), counts.clone())],
        );
        let what = "a completion through a group of 4,096 members, beside one of 16";
        if let [_, few, _, many] = counts[..]
            && many.is_finite()
        {
            rows.push(Row::beside("7.2", what, "instructions", (many, few), 1.25));
        }
    }
    if let Some(entry) = ours("group_single") {
        let columns: Vec<Vec<Series>> = QPS
            .iter()
            .map(|qps| {
                let shape = Shape { qps: *qps, signal: 1, ..Shape::new(Mode::Mlx5) };
                let rounds = u64::from((*qps).max(64));
                let repetitions = if *qps > 256 { 10 } else { 100 };
                ticks::measure(&objects.provider, [&entry].into_iter(), shape, rounds, repetitions)
            })
            .collect();
        let what = "ticks a post and its completion through a group, by members";
        table(what, &QPS, &lines(&columns));
    }
    rows
}
