//! One READ of a peer's memory into several buffers. `readv --help` says how to call it.

use std::process::ExitCode;

use clap::Parser;
use nanoverbs_examples::{failure, readv};

fn main() -> ExitCode {
    failure::exit("readv", readv::run(&readv::Args::parse()))
}
