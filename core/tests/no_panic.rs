//! The hot path has no panic: its object code, built as users build it and with overflow checks on,
//! refers to none. A function that does panic shows that the search would find one.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The undefined symbols of the objects that `--emit=obj` leaves for the example.
fn symbols(flags: &[&str]) -> String {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("no-panic");
    let _ = std::fs::remove_dir_all(target.join("release/examples"));
    let status = Command::new(env!("CARGO"))
        .current_dir(manifest)
        .args(["rustc", "--quiet", "--release", "--example", "hot_path", "--target-dir"])
        .arg(&target)
        .args(["--", "--emit=obj", "-Ccodegen-units=1"])
        .args(flags)
        .env_remove("RUSTFLAGS")
        .status()
        .expect("cargo runs");
    assert!(status.success(), "the example builds");
    let objects: Vec<_> = std::fs::read_dir(target.join("release/examples"))
        .expect("cargo leaves a folder of examples")
        .map(|entry| entry.expect("it can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "o"))
        .collect();
    assert!(!objects.is_empty(), "rustc leaves an object");
    let output = Command::new("nm").args(&objects).output().expect("nm runs: it is in binutils");
    assert!(output.status.success());
    String::from_utf8(output.stdout).expect("symbols are text")
}

fn panics(symbols: &str) -> Vec<&str> {
    let words = ["panic", "unwrap_failed", "expect_failed", "slice_index", "unreachable"];
    symbols
        .lines()
        .filter(|line| line.trim_start().starts_with("U "))
        .filter(|line| words.iter().any(|word| line.contains(word)))
        .collect()
}

#[test]
fn the_hot_path_has_no_panic_symbol() {
    for flags in [&[][..], &["-Coverflow-checks=on"]] {
        let symbols = symbols(flags);
        for function in [
            "hot_send_chain",
            "hot_fetch_add",
            "hot_datagram",
            "hot_take_datagram",
            "hot_poll_shared",
        ] {
            let symbol = format!(" T {function}");
            assert!(symbols.contains(&symbol), "{function} is there:\n{symbols}");
        }
        assert_eq!(panics(&symbols), [""; 0], "with flags {flags:?}");
    }
    let found = symbols(&["--cfg", "with_a_panic"]);
    assert!(!panics(&found).is_empty(), "a panic would be found");
}
