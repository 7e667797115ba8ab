//! The program `target` as a user meets it. What needs an RDMA device is in `std-adapter/rxe/cases`.

use std::process::{Command, Output};

fn target(line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_target"))
        .args(line.split_whitespace())
        .output()
        .expect("the program starts")
}

#[test]
fn every_client_stores_and_loads_and_every_byte_is_right() {
    for (line, words) in [
        ("-r 50", "16 clients, 800 loads and 800 stores, one thread"),
        ("-c 64 -r 20 -d 8 -s 64", "64 clients, 1280 loads and 1280 stores, one thread"),
        ("-c 1 -r 3 -d 1 -s 65536", "1 clients, 3 loads and 3 stores, one thread"),
        ("-c 3 -r 1 -d 8", "3 clients, 3 loads and 3 stores, one thread"),
    ] {
        let output = target(line);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains(words), "{line}: {said}");
        assert!(said.contains("every byte that was loaded"), "{line}: {said}");
    }
}

#[test]
fn a_wrong_line_ends_with_exit_code_2() {
    for line in [
        "-c 0",
        "-c 257",
        "-c 65",
        "-d 9",
        "-s 100",
        "-s 0",
        "--visits 3",
        "--listen 10.0.0.1 --connect 10.0.0.1",
        "--bogus",
    ] {
        let output = target(line);
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(output.stdout.is_empty(), "{line}");
    }
}

#[test]
fn an_end_that_cannot_be_reached_is_said_in_one_sentence() {
    for line in ["--listen 127.0.0.1", "--connect 127.0.0.1"] {
        let output = target(line);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line}: {said}");
        assert!(said.starts_with("target: ") && said.lines().count() == 1, "{line}: {said}");
    }
}
