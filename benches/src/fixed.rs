//! What does not vary: sizes, symbols, and what the steady state does not do.

use std::process::Command;

use nanoverbs_core::SendStaging;

use crate::object;
use crate::report::Row;

/// Bar 8.
pub(crate) fn memory() -> Vec<Row> {
    let staging = size_of::<SendStaging<16, 1>>() as f64;
    // Asserted where the type is known: core/src/send.rs.
    let hot = 64.0;
    vec![
        Row::alone("8", "staging of 16 requests of one piece, a thread", "bytes", staging, 2560.0),
        Row::alone("8", "hot state of a queue with a port of 16 bytes", "bytes", hot, 64.0),
    ]
}

/// Bar 9: the functions of `core/examples/hot_path.rs`, one call site of a step each.
pub(crate) fn code(skipped: &mut Vec<String>) -> Vec<Row> {
    let dir = object::out_dir().join("code");
    let _ = std::fs::remove_dir_all(dir.join("measured/examples"));
    let built = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["rustc", "--quiet", "--profile", "measured", "-p", "nanoverbs-core"])
        .args(["--example", "hot_path", "--target-dir"])
        .arg(&dir)
        .args(["--", "--emit=obj", "-Ccodegen-units=1"])
        .status();
    if !built.is_ok_and(|status| status.success()) {
        skipped.push("bar 9: the example hot_path does not build".to_owned());
        return Vec::new();
    }
    let objects = std::fs::read_dir(dir.join("measured/examples")).expect("cargo made it");
    let objects: Vec<_> = objects
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "o"))
        .collect();
    let Ok(output) = Command::new("nm").arg("-S").args(&objects).output() else {
        skipped.push("bar 9: nm is not installed".to_owned());
        return Vec::new();
    };
    let symbols = String::from_utf8_lossy(&output.stdout).into_owned();
    let size_of = |name: &str| {
        symbols.lines().find_map(|line| {
            let mut words = line.split_whitespace();
            let (_, size, _, symbol) = (words.next()?, words.next()?, words.next()?, words.next()?);
            (symbol == name).then(|| i64::from_str_radix(size, 16).unwrap_or(0) as f64)
        })
    };
    let mut rows = Vec::new();
    for (name, what) in [
        ("hot_send_one", "code of one call site of reserve, push and submit"),
        ("hot_send_chain", "code of one call site of reserve, allocate, push 16 times and submit"),
    ] {
        match size_of(name) {
            Some(size) => rows.push(Row::alone("9", what, "bytes", size, 1024.0)),
            None => skipped.push(format!("bar 9: {name} is not in the object code")),
        }
    }
    let words = ["panic", "unwrap_failed", "expect_failed", "slice_index", "unreachable"];
    let panics = symbols
        .lines()
        .filter(|line| line.trim_start().starts_with("U "))
        .filter(|line| words.iter().any(|word| line.contains(word)))
        .count();
    rows.push(Row::alone("9", "panic symbols in the hot path's code", "count", panics as f64, 0.0));
    rows
}

/// Bar 10, on the soft device: what the example `steady` says of itself.
pub(crate) fn steady(skipped: &mut Vec<String>) -> Vec<Row> {
    let program = object::target_dir().join("measured/examples/steady");
    let Ok(output) = Command::new(program).output() else {
        skipped.push("bar 10: the example steady is not built".to_owned());
        return Vec::new();
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "steady: {text}{}", String::from_utf8_lossy(&output.stderr));
    let mut rows = Vec::new();
    for (name, what) in [
        ("allocations", "allocations in a million operations on the soft device"),
        ("faults", "page faults in a million operations on the soft device"),
        ("system calls", "system calls in a million operations, under seccomp strict"),
    ] {
        let number = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        match number {
            Some(count) => rows.push(Row::alone("10", what, "count", count, 0.0)),
            None => skipped.push(format!("bar 10: {name} cannot be counted here")),
        }
    }
    rows
}
