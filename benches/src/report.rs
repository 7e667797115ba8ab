//! The bars: what was measured, what it is held against, and whether it holds.

use serde_json::{Value, json};

/// One row of the report.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) bar: &'static str,
    pub(crate) what: String,
    pub(crate) unit: &'static str,
    /// `None` where it could not be measured.
    pub(crate) ours: Option<f64>,
    /// What C (or another crate) needs for the same.
    pub(crate) reference: Option<f64>,
    pub(crate) ratio: Option<f64>,
    /// Of the ratio where there is a reference, of `ours` where there is none.
    pub(crate) limit: f64,
    /// `None` where it could not be measured.
    pub(crate) holds: Option<bool>,
    /// Why it was not measured, or does not hold.
    pub(crate) why: Option<String>,
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
        let holds = Some(ratio <= limit + 0.005);
        let (ours, reference, ratio) = (Some(ours), Some(reference), Some(ratio));
        Self { bar, what: what.into(), unit, ours, reference, ratio, limit, holds, why: None }
            .explained()
    }

    /// Ours alone.
    pub(crate) fn alone(
        bar: &'static str,
        what: impl Into<String>,
        unit: &'static str,
        ours: f64,
        limit: f64,
    ) -> Self {
        let (holds, ours) = (Some(ours <= limit + 0.005), Some(ours));
        let (reference, ratio, what) = (None, None, what.into());
        Self { bar, what, unit, ours, reference, ratio, limit, holds, why: None }.explained()
    }

    /// What could not be measured here.
    pub(crate) fn missing(
        bar: &'static str,
        what: impl Into<String>,
        unit: &'static str,
        limit: f64,
        why: impl Into<String>,
    ) -> Self {
        let (ours, reference, ratio, holds) = (None, None, None, None);
        let (what, why) = (what.into(), Some(why.into()));
        Self { bar, what, unit, ours, reference, ratio, limit, holds, why }
    }

    /// With the reason when it does not hold and that is known.
    fn explained(mut self) -> Self {
        if self.holds == Some(false) {
            let is_of_it =
                |reason: &&(&str, &str, &str)| reason.0 == self.bar && self.what.contains(reason.1);
            self.why = REASONS.iter().find(is_of_it).map(|reason| reason.2.to_owned());
        }
        self
    }

    fn json(&self) -> Value {
        let round = |n: f64| (n * 1000.0).round() / 1000.0;
        json!({
            "bar": self.bar,
            "what": self.what,
            "unit": self.unit,
            "ours": self.ours.map(round),
            "reference": self.reference.map(round),
            "ratio": self.ratio.map(round),
            "limit": self.limit,
            "holds": self.holds,
            "why": self.why,
        })
    }
}

/// What is known of the bars that have been seen not to hold: the bar, a part of the measure's name, and why.
const REASONS: &[(&str, &str, &str)] = &[
    (
        "1",
        "32 bytes",
        "a context of 32 bytes goes into its slot and is read from there; the twin's has 8",
    ),
    (
        "1b",
        "",
        "what is more than a bare call is the work itself: to reserve 6 instructions, the slot and \
         its context 6, checks 7, signaling 8, the outcome 11",
    ),
    (
        "2",
        "32 bytes",
        "a context of 32 bytes goes into its slot and is read from there; the twin's has 8",
    ),
    (
        "3",
        "",
        "the provider takes 109 instructions of a request in a chain and 143 of a call: for the bar \
         44 were left, and checks, slot and outcome take 53",
    ),
    (
        "3b",
        "",
        "the chain in C stores five words and a context; limits, the chain's end, signaling and the \
         outcome are more than that",
    ),
    (
        "4",
        "",
        "a completion is held against its queue, both ends of what is in flight and its status",
    ),
    (
        "5",
        "receives",
        "C's has no check and keeps 8 bytes a receive; ours keeps what arrived as well, 24",
    ),
    ("6", "", "two threads that spin are disturbed by whatever else runs on a shared machine"),
    ("7", "ibverbs", "that crate checks bounds alone, and knows neither credits nor outcomes"),
    ("11", "", "a shared machine takes the processor away from whoever runs"),
];

/// The table, for people.
pub(crate) fn print(rows: &[Row]) {
    println!(
        "{:<3} {:<98} {:>9} {:>9} {:>7} {:>7}",
        "bar", "what", "ours", "reference", "ratio", "limit"
    );
    for row in rows {
        println!(
            "{:<3} {:<98} {:>9} {:>9} {:>7} {:>7}  {}",
            row.bar,
            format!("{}, {}", row.what, row.unit),
            number(row.ours),
            number(row.reference),
            number(row.ratio),
            number(Some(row.limit)),
            match row.holds {
                Some(true) => "holds",
                Some(false) => "DOES NOT HOLD",
                None => "not measured",
            },
        );
        if let Some(why) = &row.why {
            println!("      {why}");
        }
    }
}

fn number(n: Option<f64>) -> String {
    n.map_or_else(String::new, |n| format!("{n:.2}"))
}

/// `target/bench/report.md`: what the README shows.
pub(crate) fn write_markdown(rows: &[Row]) {
    let mut text = format!("Measured on {} on {}.\n\n", today(), machine());
    text += "| bar | what | unit | ours | reference | ratio | limit | |\n";
    text += "|---|---|---|---|---|---|---|---|\n";
    let mut reasons: Vec<&str> = Vec::new();
    for row in rows {
        let mut verdict = verdict(row.holds).to_owned();
        if let Some(why) = &row.why {
            let known = reasons.iter().position(|reason| reason == why);
            let at = known.unwrap_or_else(|| {
                reasons.push(why);
                reasons.len() - 1
            });
            verdict += &format!(" ({})", at + 1);
        }
        let (ours, reference) = (number(row.ours), number(row.reference));
        let (ratio, limit) = (number(row.ratio), number(Some(row.limit)));
        text += &format!(
            "| {} | {} | {} | {ours} | {reference} | {ratio} | {limit} | {verdict} |\n",
            row.bar, row.what, row.unit
        );
    }
    text.push('\n');
    for (at, why) in reasons.iter().enumerate() {
        text += &format!("{}. {why}\n", at + 1);
    }
    let path = crate::object::out_dir().join("report.md");
    std::fs::write(&path, text).expect("target is writable");
    println!("written: {}", path.display());
}

/// Whether a bar holds, as the README says it.
pub(crate) const fn verdict(holds: Option<bool>) -> &'static str {
    match holds {
        Some(true) => "holds",
        Some(false) => "**does not**",
        None => "not measured",
    }
}

fn today() -> String {
    let output = std::process::Command::new("date").arg("+%-d %B %Y").env("LC_ALL", "C").output();
    output.map_or_else(
        |_| "an unknown day".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

/// Puts what was measured last into the README: the table and the plot of `make bench` between its first two
/// marks, the table of `make rxe-bench` between the others. Where there is none, the README stays as it is.
pub(crate) fn publish() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace");
    let (out, readme) = (crate::object::out_dir(), root.join("README.md"));
    let mut text = std::fs::read_to_string(&readme).expect("there is a README");
    if let Ok(table) = std::fs::read_to_string(out.join("report.md")) {
        text = between(&text, "figures", &table);
        std::fs::copy(out.join("cost.svg"), root.join("benches/cost.svg")).expect("a plot");
    }
    if let Some(table) = crate::guest::markdown() {
        text = between(&text, "guest figures", &table);
    }
    std::fs::write(&readme, text).expect("writable");
    println!("written: {}", readme.display());
}

/// The text with a table between the marks of this name.
fn between(text: &str, name: &str, table: &str) -> String {
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->\n"));
    let (before, rest) = text.split_once(&begin).expect("the README marks where figures begin");
    let (_, after) = rest.split_once(&end).expect("the README marks where figures end");
    format!("{before}{begin}{table}{end}{after}")
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

/// Processor, number of them, compilers.
pub(crate) fn machine() -> String {
    let first_line = |program: &str| {
        let output = std::process::Command::new(program).arg("--version").output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).lines().next()?.to_owned())
    };
    let tools: Vec<_> = ["gcc", "clang", "rustc"].into_iter().filter_map(first_line).collect();
    format!("{}; {}", machine_alone(), tools.join("; "))
}

/// Processor, and number of them.
pub(crate) fn machine_alone() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("an unknown processor", |(_, name)| name);
    // Not those that this thread may use: it pins itself on the way.
    let processors = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    format!("{model}, {processors} processors")
}
