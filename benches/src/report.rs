//! The bars: what was measured, what it is held against, and whether it holds.

use serde_json::{Value, json};

/// One row of the report.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) bar: &'static str,
    pub(crate) what: String,
    pub(crate) unit: &'static str,
    pub(crate) ours: f64,
    /// What C (or another crate) needs for the same.
    pub(crate) reference: Option<f64>,
    pub(crate) ratio: Option<f64>,
    /// Of the ratio where there is a reference, of `ours` where there is none.
    pub(crate) limit: f64,
    pub(crate) holds: bool,
}

impl Row {
    /// Ours beside a reference.
    pub(crate) fn beside(
        bar: &'static str,
        what: impl Into<String>,
        unit: &'static str,
        (ours, reference): (f64, f64),
        limit: f64,
    ) -> Self {
        Self::with_ratio(bar, what, unit, (ours, reference, ours / reference), limit)
    }

    /// The same with a ratio that was taken pair by pair.
    pub(crate) fn with_ratio(
        bar: &'static str,
        what: impl Into<String>,
        unit: &'static str,
        (ours, reference, ratio): (f64, f64, f64),
        limit: f64,
    ) -> Self {
        // Half a percent is what two builds of the same source differ in.
        let holds = ratio <= limit + 0.005;
        let (reference, ratio) = (Some(reference), Some(ratio));
        Self { bar, what: what.into(), unit, ours, reference, ratio, limit, holds }
    }

    /// Ours alone.
    pub(crate) fn alone(
        bar: &'static str,
        what: impl Into<String>,
        unit: &'static str,
        ours: f64,
        limit: f64,
    ) -> Self {
        let holds = ours <= limit + 0.005;
        Self { bar, what: what.into(), unit, ours, reference: None, ratio: None, limit, holds }
    }

    fn json(&self) -> Value {
        let round = |n: f64| (n * 1000.0).round() / 1000.0;
        json!({
            "bar": self.bar,
            "what": self.what,
            "unit": self.unit,
            "ours": round(self.ours),
            "reference": self.reference.map(round),
            "ratio": self.ratio.map(round),
            "limit": self.limit,
            "holds": self.holds,
        })
    }
}

/// The table, for people.
pub(crate) fn print(rows: &[Row]) {
    println!(
        "{:<3} {:<86} {:>9} {:>9} {:>7} {:>7}",
        "bar", "what", "ours", "reference", "ratio", "limit"
    );
    for row in rows {
        let number = |n: Option<f64>| n.map_or_else(String::new, |n| format!("{n:.2}"));
        println!(
            "{:<3} {:<86} {:>9} {:>9} {:>7} {:>7}  {}",
            row.bar,
            format!("{}, {}", row.what, row.unit),
            number(Some(row.ours)),
            number(row.reference),
            number(row.ratio),
            number(Some(row.limit)),
            if row.holds { "holds" } else { "DOES NOT HOLD" },
        );
    }
}

/// `target/bench/report.json`.
pub(crate) fn write(rows: &[Row], skipped: &[String]) {
    let report = json!({
        "machine": machine(),
        "bars": rows.iter().map(Row::json).collect::<Vec<_>>(),
        "skipped": skipped,
    });
    let path = crate::object::out_dir().join("report.json");
    let text = serde_json::to_string_pretty(&report).expect("numbers and text");
    std::fs::write(&path, text + "\n").expect("target is writable");
    println!("\nwritten: {}", path.display());
}

/// Processor, number of them, kernel, compilers.
pub(crate) fn machine() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("an unknown processor", |(_, name)| name);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let first_line = |program: &str| {
        let output = std::process::Command::new(program).arg("--version").output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).lines().next()?.to_owned())
    };
    let tools: Vec<_> = ["gcc", "clang", "rustc"].into_iter().filter_map(first_line).collect();
    format!("{model}, {processors} processors; {}", tools.join("; "))
}
