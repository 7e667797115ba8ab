//! The program `doctor`, as a user calls it.

use std::process::{Command, Output};

fn doctor(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_doctor")).args(args).output().unwrap()
}

/// What it says, in text and as JSON.
fn said(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn it_says_a_line_for_each_check_and_ends_well() {
    let output = doctor(&[]);
    assert_eq!(output.status.code(), Some(0));
    let said = said(&output);
    for check in ["isolation", "tick", "governor", "device-node", "locked-memory", "real-time"] {
        assert!(said.contains(check), "{said}");
    }
    assert!(said.lines().last().unwrap().ends_with(" wanting"), "{said}");
}

#[test]
fn its_json_has_the_same_findings() {
    let output = doctor(&["--json", "--cpu", "0"]);
    assert_eq!(output.status.code(), Some(0));
    let value: serde_json::Value = serde_json::from_str(&said(&output)).unwrap();
    let findings = value["findings"].as_array().unwrap();
    assert!(findings.len() >= 13);
    for finding in findings {
        let verdict = finding["verdict"].as_str().unwrap();
        assert!(["fine", "wanting", "unknown"].contains(&verdict));
        for key in ["check", "read", "why", "advice"] {
            assert!(!finding[key].as_str().unwrap().is_empty(), "{finding}");
        }
    }
}

#[test]
fn findings_are_an_error_only_when_it_is_strict() {
    // No host has this core.
    let args = ["--cpu", "8191", "--quiet"];
    let output = doctor(&args);
    assert_eq!(output.status.code(), Some(0));
    assert!(said(&output).starts_with("wanting"), "{}", said(&output));
    assert_eq!(doctor(&["--cpu", "8191", "--strict"]).status.code(), Some(1));
}

#[test]
fn bad_input_is_named_and_ends_with_2() {
    for (args, name) in [
        (vec!["--cpu", "x"], "'x'"),
        (vec!["--cpu", ""], "''"),
        (vec!["--root", "/nowhere"], "/nowhere"),
        (vec!["--unknown"], "--unknown"),
    ] {
        let output = doctor(&args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(complaint.contains(name) && !complaint.contains("panicked"), "{complaint}");
    }
}
