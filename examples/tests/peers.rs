//! The programs whose other end may be rdma-core's, as a user meets them: `rping`, `hello` and
//! `connections`. What needs an RDMA device is in `std-adapter/rxe/cases`.

use std::process::{Command, Output};

/// Runs a program: its name, and its options.
fn run(line: &str) -> Output {
    let (name, options) = line.split_once(' ').unwrap_or((line, ""));
    let program = match name {
        "rping" => env!("CARGO_BIN_EXE_rping"),
        "hello" => env!("CARGO_BIN_EXE_hello"),
        "connections" => env!("CARGO_BIN_EXE_connections"),
        name => panic!("no program {name}"),
    };
    Command::new(program).args(options.split_whitespace()).output().expect("the program starts")
}

/// What it prints when it ends well.
fn said(line: &str) -> String {
    let output = run(line);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && errors.is_empty(), "{line}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn without_addresses_they_play_with_themselves_on_the_soft_device() {
    for (line, words) in [
        ("rping -V", "1000 of 64 bytes there and back, every byte as it was sent"),
        ("rping -C 3 -S 26 -v", "ping data: rdma-ping-2: CDEFGHIJKLMN\n"),
        ("rping -C 3 -S 26 -v", "server ping data: rdma-ping-0: ABCDEFGHIJKL\n"),
        ("hello", "heard 16 bytes: yes, I am here!!\n"),
        ("connections", "10 of 100 bytes each way on each of them"),
        ("connections -c 3 -C 127 -S 4096", "3 connections"),
    ] {
        let said = said(line);
        assert!(said.contains(words), "{line}: {said}");
    }
}

#[test]
fn a_wrong_line_ends_with_exit_code_2() {
    for line in [
        "rping -s -c",
        "rping -c",
        "rping -P",
        "rping -S 25",
        "rping -S 65537",
        "rping -C -1",
        "rping -p 0",
        "rping -I 10.0.0.1 -s",
        "hello --listen 10.0.0.1 --connect 10.0.0.1",
        "connections -C 128",
        "connections -c 0",
        "connections -S 0",
    ] {
        let output = run(line);
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(output.stdout.is_empty(), "{line}");
    }
}

#[test]
fn an_end_that_cannot_be_reached_is_said_in_one_sentence() {
    for line in [
        "rping -s -a 127.0.0.1",
        "rping -c -a 127.0.0.1",
        "hello --listen 127.0.0.1",
        "hello --connect ::1",
        "connections --listen 127.0.0.1",
        "connections --connect 127.0.0.1",
    ] {
        let output = run(line);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line}: {said}");
        let name = line.split(' ').next().unwrap();
        assert!(said.starts_with(&format!("{name}: ")), "{line}: {said}");
        assert_eq!(said.lines().count(), 1, "{line}: {said}");
    }
}
