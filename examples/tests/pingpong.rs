//! The program `pingpong` as a user meets it: what it prints, and how it ends. What needs an RDMA
//! device is in `std-adapter/rxe/cases`.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn pingpong(line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pingpong"))
        .args(line.split_whitespace())
        .output()
        .expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What it says to a line that is wrong. It says it in one sentence, and does not panic.
fn complaint(line: &str, code: i32) -> String {
    let output = pingpong(line);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{line}: {said}");
    assert!(!said.contains("panicked"), "{line}: {said}");
    assert!(output.stdout.is_empty(), "{line}: {}", text(&output.stdout));
    if code == 1 {
        assert!(said.starts_with("pingpong: ") && said.lines().count() == 1, "{line}: {said}");
    }
    said
}

#[test]
fn without_arguments_it_plays_on_the_soft_device_and_prints_every_percentile() {
    let output = pingpong("-n 1000 --warmup 100 -e");
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for word in ["soft", "1,000 round trips of 64 bytes, SENDs", "messages a second", "every byte"]
    {
        assert!(said.contains(word), "{word}: {said}");
    }
    for word in ["p50 ", "p90 ", "p99 ", "p99.9 ", "p99.99 ", "max "] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(output.stderr.is_empty(), "no bar without a terminal: {}", text(&output.stderr));
}

#[test]
fn all_sizes_depths_and_threads_end_well() {
    for line in [
        "-n 500 -s 1 --threads 1",
        "-n 100 -s 13 -t 7 --threads 2",
        "-n 500 -s 64 -t 64 --threads 1 --warmup 0",
        "-n 500 -s 256 -I 256 -t 3 -e",
        "-n 50 -s 64K -t 4 --cpu none --warmup 10",
        "-n 10 -s 1M --threads 1 --warmup 10",
        "-n 1 --warmup 0",
        "-n 500 -s 1 --verb write --threads 1",
        "-n 300 -s 13 -t 7 --verb write -e",
        "-n 500 -s 256 -I 256 -t 3 --verb write -e",
        "-n 50 -s 64K -t 4 --verb write --threads 1 --warmup 10",
        "-n 500 -s 2 --verb read --threads 1 --warmup 0",
        "-n 300 -s 100 -t 16 --verb read -e",
        "-n 1000 --rate --threads 1",
        "-n 1001 -s 13 -t 64 --rate -e --warmup 7",
        "-n 100 -s 4096 -t 3 --rate --threads 1 --warmup 0",
        "-n 100 -I 64 --rate -e",
    ] {
        let output = pingpong(line);
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
    }
}

#[test]
fn json_has_the_numbers_that_are_printed() {
    let file = std::env::temp_dir().join(format!("pingpong-{}.json", std::process::id()));
    let output = pingpong(&format!("-n 1000 -s 128 -t 2 -I 128 -e --json {}", file.display()));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert_eq!((json["size"].as_u64(), json["iters"].as_u64()), (Some(128), Some(1000)));
    assert_eq!((json["depth"].as_u64(), json["inline"].as_bool()), (Some(2), Some(true)));
    let nanos = |name: &str| json["round_trip_ns"][name].as_u64().unwrap();
    assert!(0 < nanos("p50") && nanos("p50") <= nanos("p99.99"));
    assert!(nanos("p99.99") <= nanos("max"));
    assert!(json["messages_per_second"].as_f64().unwrap() > 0.0);
}

#[test]
fn what_is_played_is_said_by_its_name() {
    for (line, words, ways) in [
        ("-n 200 --verb write -e", "200 round trips of 64 bytes, WRITEs there", "both ways"),
        ("-n 200 --verb read -e", "200 round trips of 64 bytes, READs, 1 at", "one way"),
        ("-n 200 --rate -t 8 -e", "200 messages of 64 bytes, SENDs one way, 8 at", "one way"),
    ] {
        let output = pingpong(line);
        let said = text(&output.stdout);
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        assert!(said.contains(words) && said.contains(ways), "{line}: {said}");
        // One way there is no round trip to time.
        assert_eq!(said.contains("p99.9 "), !line.contains("--rate"), "{line}: {said}");
    }
}

#[test]
fn json_says_what_was_played() {
    let file = std::env::temp_dir().join(format!("pingpong-games-{}.json", std::process::id()));
    for (line, verb, rate) in [
        ("--verb write -e", "write", false),
        ("--verb read -e", "read", false),
        ("--rate -t 4 -e", "send", true),
    ] {
        let output = pingpong(&format!("-n 300 {line} --json {}", file.display()));
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        let json: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!((json["verb"].as_str(), json["rate"].as_bool()), (Some(verb), Some(rate)));
        assert_eq!(json["in_order"].as_bool(), Some(false));
        assert_eq!(json["round_trip_ns"].is_null(), rate, "{line}");
        // A round trip of WRITEs is two messages, everything else here is one.
        let messages = if verb == "write" { 600.0 } else { 300.0 };
        let (rate, seconds) = (&json["messages_per_second"], &json["seconds"]);
        let counted = rate.as_f64().unwrap() * seconds.as_f64().unwrap();
        assert!((counted - messages).abs() < 1.0, "{line}: {counted}");
    }
}

#[test]
fn a_wrong_line_is_named_with_exit_code_2() {
    for (line, words) in [
        ("-s 0", "'0' for '--size"),
        ("-s many", "as in 64, 64K or 1M"),
        ("-n 0", "'0' for '--iters"),
        ("-t 65", "'65' for '--depth"),
        ("--timeout 0", "'0' for '--timeout"),
        ("--cpu x", "2 or 2,3, or none"),
        ("--faster", "'--faster'"),
        ("leftover", "'leftover'"),
        ("--listen 10.0.0.1 --connect 10.0.0.1", "cannot be used with"),
        ("--connect 10.0.0.1:99999", "from 1 to 65535"),
        ("--listen 10.0.0.1 --threads 2", "--threads is for the soft device"),
        ("--connect 10.0.0.1 --cpu 0,1", "--cpu takes one number"),
        ("--threads 2 --cpu 0", "do not fit"),
        ("-s 64M -t 64", "make one of them smaller"),
        ("-s 4M -t 64 --verb write", "make one of them smaller"),
        ("--verb fly", "possible values: send, write, read"),
        ("--rate --verb write", "--rate is for SENDs"),
        ("--rate --verb read", "--rate is for SENDs"),
        ("--in-order", "--in-order is for --verb write"),
        ("--in-order --rate", "--in-order is for --verb write"),
        ("--in-order --verb write", "the soft one promises no order"),
        ("--listen 10.0.0.1 --in-order --verb write -e", "leave one of them out"),
        ("--verb read -I 64", "a READ fetches"),
    ] {
        let said = complaint(line, 2);
        assert!(said.contains(words), "{line}: {said}");
    }
}

#[test]
fn what_this_machine_does_not_have_is_named_with_exit_code_1() {
    for (line, words) in [
        ("--cpu 1023", "core 1023 cannot be had; this thread may run on"),
        ("--threads 1 --cpu 99999", "--cpu none does without"),
        ("-I 1000 -n 10", "at most 256 bytes inline"),
        ("-n 10 --json /nowhere/at/all.json", "/nowhere/at/all.json cannot be written"),
    ] {
        let said = complaint(line, 1);
        assert!(said.contains(words), "{line}: {said}");
    }
}

#[test]
fn a_reader_who_leaves_is_no_reason_to_panic() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_pingpong"))
        .args(["-n", "20000", "--threads", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).starts_with("pingpong: the standard output cannot be written"));
}

#[cfg(feature = "librdmacm")]
#[test]
fn an_address_without_an_rdma_device_is_said_at_once() {
    // With devices or without them: the loopback interface never has one.
    for line in ["--listen 127.0.0.1", "--connect 127.0.0.1", "--connect [::1]:7471"] {
        let said = complaint(line, 1);
        assert!(said.contains("RDMA") || said.contains("rdma"), "{line}: {said}");
    }
    let said = complaint("--connect no-such-host.invalid", 1);
    assert!(said.contains("no address is known for no-such-host.invalid"), "{said}");
}

#[cfg(not(feature = "librdmacm"))]
#[test]
fn without_a_binding_it_says_what_is_missing() {
    for line in ["--listen 10.0.0.1", "--connect 10.0.0.1"] {
        let said = complaint(line, 1);
        assert!(said.contains("built without the features `verbs` and `declared`"), "{said}");
    }
}
