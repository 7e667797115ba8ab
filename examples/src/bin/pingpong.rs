//! A message there and back, many times, timed. `pingpong --help` says how to call it.

use std::process::ExitCode;

use clap::Parser;
use nanoverbs_examples::{failure, pingpong};

fn main() -> ExitCode {
    failure::exit("pingpong", pingpong::run(&pingpong::Args::parse()))
}
