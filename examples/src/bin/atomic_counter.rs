//! Several clients add to one number at the same time. `atomic_counter --help` says how to call it.

use std::process::ExitCode;

use clap::Parser;
use nanoverbs_examples::{atomic_counter, failure};

fn main() -> ExitCode {
    failure::exit("atomic_counter", atomic_counter::run(&atomic_counter::Args::parse()))
}
