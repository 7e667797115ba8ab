//! The program `readv` as a user meets it. What needs an RDMA device is in `std-adapter/rxe/cases`.

use std::process::{Command, Output};

fn readv(line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_readv"))
        .args(line.split_whitespace())
        .output()
        .expect("the program starts")
}

#[test]
fn one_request_fills_several_buffers_and_early_and_long_ones_are_refused() {
    let output = readv("");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for words in [
        "before the connection is refused: the queue pair is not connected yet",
        "16384 bytes into 4 buffers of 4096",
        "refused: the message has 16384 bytes, and the peer's region 16383",
        "every byte of every buffer",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn every_number_of_buffers_works() {
    for line in
        ["-p 1 -s 64", "-p 8 -s 64", "-p 8 -s 65536", "-p 3 -s 128", "-p 3 -s 100", "-p 8 -s 1"]
    {
        let output = readv(line);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_wrong_line_ends_with_exit_code_2() {
    for line in
        ["-p 0", "-p 9", "-s 0", "-s 1e9", "--listen 10.0.0.1 --connect 10.0.0.1", "--bogus"]
    {
        let output = readv(line);
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(output.stdout.is_empty(), "{line}");
    }
}

#[test]
fn an_end_that_cannot_be_reached_is_said_in_one_sentence() {
    for line in ["--listen 127.0.0.1", "--connect 127.0.0.1"] {
        let output = readv(line);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line}: {said}");
        assert!(said.starts_with("readv: ") && said.lines().count() == 1, "{line}: {said}");
    }
}
