//! Instructions a request, exact: callgrind counts N and 2 N rounds, and the difference is N rounds.
//!
//! The program starts itself under valgrind (`bench count PLAN`); that child runs every contender of
//! the plan and has callgrind write its counters out under a name after each run.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::process::{Command, Stdio};

use crate::bed::{Bed, Shape};
use crate::crates;
use crate::object::{self, Kind, Mode, Objects};

const ROUNDS: u64 = 200;

/// Instructions by mode, chain length and label of the contender; those of consuming under their own.
pub(crate) type Counts = BTreeMap<String, f64>;

/// The key of a count.
pub(crate) fn key(mode: Mode, chain: u32, label: &str) -> String {
    format!("{mode:?} {chain} {label}")
}

/// The key of what consuming costs a round: `completions` of them, `outcomes` in all.
pub(crate) fn poll_key(completions: u32, outcomes: u32, label: &str) -> String {
    format!("poll {completions} {outcomes} {label}")
}

/// The key of a count with every request signaled.
pub(crate) fn signaled_key(mode: Mode, label: &str) -> String {
    format!("{mode:?} signaled {label}")
}

/// The key of what consuming 16 completions costs that come from as many queue pairs, or from all there are.
pub(crate) fn group_key(qps: u32, label: &str) -> String {
    format!("group {qps} {label}")
}

pub(crate) const POLLS: [(u32, u32); 6] = [(1, 1), (1, 16), (16, 16), (4, 16), (4, 4), (32, 32)];
pub(crate) const QPS: [u32; 4] = [1, 16, 256, 4096];
pub(crate) const CHAINS: [u32; 6] = [1, 2, 4, 8, 16, 32];

/// Counts under callgrind, or `None` without valgrind. `all`: every chain length, not 16 alone.
pub(crate) fn count(all: bool) -> Option<Counts> {
    if Command::new("valgrind").arg("--version").stdout(Stdio::null()).status().is_err() {
        return None;
    }
    let mut counts = Counts::new();
    for plan in ["posts", "polls"] {
        let dir = object::out_dir().join(format!("callgrind-{plan}"));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("target is writable");
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--error-exitcode=9"])
            .arg(format!("--callgrind-out-file={}", dir.join("out").display()))
            .arg(std::env::current_exe().expect("this program has a path"))
            .args(["count", plan, if all { "all" } else { "short" }])
            .output()
            .expect("valgrind was there a moment ago");
        assert!(
            output.status.success(),
            "under callgrind: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        read(&dir, &mut counts);
    }
    Some(counts)
}

fn read(dir: &std::path::Path, counts: &mut Counts) {
    let mut totals = BTreeMap::new();
    for file in std::fs::read_dir(dir).expect("made above") {
        let text =
            std::fs::read_to_string(file.expect("an entry").path()).expect("callgrind's text");
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        let Some(trigger) = field("desc: Trigger: Client Request: ") else { continue };
        let Some(total) = field("totals: ").or_else(|| field("summary: ")) else { continue };
        let total: f64 = total.trim().parse().expect("a number");
        totals.insert(trigger.to_owned(), total);
    }
    for (name, twice) in &totals {
        if let Some(name) = name.strip_suffix("|2") {
            let once = totals[&format!("{name}|1")];
            counts.insert(name.to_owned(), (twice - once) / ROUNDS as f64);
        }
    }
}

/// What runs under callgrind.
pub(crate) fn child(objects: &Objects, plan: &str, all: bool) {
    match plan {
        "posts" => {
            for mode in [Mode::Null, Mode::Mlx5, Mode::BlueFlame] {
                for entry in objects.entries.iter().filter(|e| e.kind() == Kind::Post) {
                    for chain in CHAINS {
                        if chain != 16 && !(all && entry.is_chain()) {
                            continue;
                        }
                        let round = chain.max(16);
                        let shape = Shape { chain, round, signal: round, ..Shape::new(mode) };
                        let bed = Bed::open(&objects.provider, entry, shape);
                        dump(objects, &bed, &key(mode, chain, &entry.label()));
                    }
                }
            }
            let signaled = objects.entries.iter().filter(|e| crates::beside_signals_all(e));
            for entry in signaled.filter(|_| all) {
                for mode in [Mode::Null, Mode::Mlx5] {
                    let shape = Shape { signal: 1, ..Shape::new(mode) };
                    let bed = Bed::open(&objects.provider, entry, shape);
                    dump(objects, &bed, &signaled_key(mode, &entry.label()));
                }
            }
            for entry in objects.entries.iter().filter(|e| e.kind() == Kind::Recv && all) {
                let bed = Bed::open(&objects.provider, entry, Shape::new(Mode::Recv));
                dump(objects, &bed, &key(Mode::Recv, 16, &entry.label()));
            }
            for entry in objects.entries.iter().filter(|e| e.name == "empty_poll") {
                let bed = Bed::open(&objects.provider, entry, Shape::new(Mode::Empty));
                dump(objects, &bed, &key(Mode::Empty, 16, &entry.label()));
            }
        }
        _ => {
            // From here on only sections count.
            (objects.provider.section)();
            for entry in objects.entries.iter() {
                if !matches!(entry.name.as_str(), "poll" | "twin_poll") {
                    continue;
                }
                for (completions, outcomes) in POLLS {
                    let shape = Shape {
                        chain: outcomes,
                        round: outcomes,
                        signal: outcomes / completions,
                        ..Shape::new(Mode::Mlx5)
                    };
                    let bed = Bed::open(&objects.provider, entry, shape);
                    dump(objects, &bed, &poll_key(completions, outcomes, &entry.label()));
                }
            }
            for entry in objects.entries.iter().filter(|e| e.name == "group_poll" && all) {
                for qps in QPS {
                    let shape = Shape { qps, signal: 1, ..Shape::new(Mode::Mlx5) };
                    let bed = Bed::open(&objects.provider, entry, shape);
                    dump(objects, &bed, &group_key(qps, &entry.label()));
                }
            }
        }
    }
}

fn dump(objects: &Objects, bed: &Bed<'_>, name: &str) {
    let dump = |suffix: &str| {
        let name = CString::new(format!("{name}{suffix}")).expect("no NUL");
        (objects.provider.dump)(name.as_ptr());
    };
    bed.run(8);
    dump("|0");
    bed.run(ROUNDS);
    dump("|1");
    bed.run(2 * ROUNDS);
    dump("|2");
}
