//! rdma-core's rping: READs and WRITEs of pings, with either end. `rping --help` says how to call it.

use std::process::ExitCode;

use clap::Parser;
use nanoverbs_examples::{failure, rping};

fn main() -> ExitCode {
    failure::exit("rping", rping::run(&rping::Args::parse()))
}
