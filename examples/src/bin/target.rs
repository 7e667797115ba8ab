//! A storage target and its clients. `target --help` says how to call it.

use std::process::ExitCode;

use clap::Parser;
use nanoverbs_examples::{failure, target};

fn main() -> ExitCode {
    failure::exit("target", target::run(&target::Args::parse()))
}
