//! The tail: five million operations, one post, poll and take each, timed one by one, in turn with C.

use crate::bed::{Bed, Shape};
use crate::object::{Mode, Objects};
use crate::report::Row;
use crate::ticks::now;

const OPERATIONS: u64 = 5_000_000;
const BLOCK: u64 = 10_000;
const LONGEST: usize = 1 << 16;

struct Histogram {
    counts: Vec<u32>,
    max: u64,
}

impl Histogram {
    fn new() -> Self {
        Self { counts: vec![0; LONGEST], max: 0 }
    }

    fn add(&mut self, ticks: u64) {
        self.counts[(ticks as usize).min(LONGEST - 1)] += 1;
        self.max = self.max.max(ticks);
    }

    /// The least value that a share of all does not exceed.
    fn at(&self, share: f64) -> f64 {
        let wanted = (OPERATIONS as f64 * share) as u64;
        let mut seen = 0;
        for (ticks, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= wanted {
                return ticks as f64;
            }
        }
        LONGEST as f64
    }
}

/// Bar 11.
pub(crate) fn rows(objects: &Objects) -> Vec<Row> {
    let shape = Shape { round: 1, chain: 1, signal: 1, ..Shape::new(Mode::Mlx5) };
    let entries = objects.entries.iter().filter(|e| match e.name.as_str() {
        "token_single" => e.compiler == "rustc",
        "post_send" | "twin_single" => e.is_c(),
        _ => false,
    });
    let beds: Vec<_> = entries.map(|e| Bed::open(&objects.provider, e, shape)).collect();
    let mut histograms: Vec<_> = beds.iter().map(|_| Histogram::new()).collect();
    for block in 0..OPERATIONS / BLOCK {
        for step in 0..beds.len() {
            let at = (step + block as usize) % beds.len();
            beds[at].run(64);
            for _ in 0..BLOCK {
                let start = now();
                beds[at].run(1);
                histograms[at].add(now() - start);
            }
        }
    }
    println!(
        "{:<30} {:>7} {:>7} {:>7} {:>7} {:>9}",
        "tail, ticks", "p50", "p99", "p99.9", "p99.99", "max"
    );
    for (bed, h) in beds.iter().zip(&histograms) {
        let [a, b, c, d] = [0.5, 0.99, 0.999, 0.9999].map(|share| h.at(share));
        println!("{:<30} {a:>7} {b:>7} {c:>7} {d:>7} {:>9}", bed.entry().label(), h.max);
    }
    println!();
    let find = |name: &str| {
        beds.iter()
            .zip(&histograms)
            .filter(|(bed, _)| bed.entry().name == name)
            .map(|(_, h)| h)
            .min_by(|a, b| a.at(0.9999).total_cmp(&b.at(0.9999)))
    };
    let mut rows = Vec::new();
    if let (Some(ours), Some(c), Some(twin)) =
        (find("token_single"), find("post_send"), find("twin_single"))
    {
        let p9999 = ours.at(0.9999);
        let what = "p99.99 of 5 million operations, beside its own p50";
        rows.push(Row::beside("11", what, "ticks", (p9999, ours.at(0.5)), 2.0));
        let what = "p99.99 of 5 million operations, beside rdma_post_send";
        rows.push(Row::beside("11", what, "ticks", (p9999, c.at(0.9999)), 1.1));
        let what = "p99.99 of 5 million operations, beside the twin in C";
        rows.push(Row::beside("11", what, "ticks", (p9999, twin.at(0.9999)), 1.1));
    }
    rows
}
