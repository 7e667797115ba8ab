//! What this host lacks that a latency-critical program would want.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use nanoverbs::Cores;
use nanoverbs::doctor::{Doctor, Finding, Verdict};
use serde_json::json;

/// Looks for what a latency-critical program would want and this host lacks.
///
/// That is: isolation and frequency of its cores, its clock, its memory, the place of the RDMA
/// device, and what this process may do. It changes nothing.
///
/// Each line is a check: fine, wanting, or unknown where the host does not say. What is wanting comes
/// with the reason and with what helps. Not everything that is wanting is wrong: a machine that is
/// shared, or that saves power, should be as it is.
///
/// Exit code: 0, also when something is wanting; with --strict 1 then; 2 when it was called wrongly.
#[derive(Parser)]
#[command(name = "doctor", version)]
struct Args {
    /// The cores that pollers are to have, as in 2 or 2-3,6: each is looked at. Without it, all
    /// that this process may use
    #[arg(short, long, value_name = "CORES", value_parser = cores)]
    cpu: Option<Cores>,
    /// The RDMA device that they poll. Without it, every one
    #[arg(short, long, value_name = "NAME")]
    device: Option<String>,
    /// Only what is wanting
    #[arg(short, long)]
    quiet: bool,
    /// As JSON, for a program
    #[arg(long)]
    json: bool,
    /// Exit code 1 when anything is wanting
    #[arg(long)]
    strict: bool,
    /// Read proc and sys below this directory: a copy from another host
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if !args.root.join("proc").is_dir() && !args.root.join("sys").is_dir() {
        let root = args.root.display();
        // Nobody is left to be told when this cannot be written.
        let _ = writeln!(
            io::stderr(),
            "doctor: {root} has neither proc nor sys; --root names a copy of both"
        );
        return ExitCode::from(2);
    }
    let mut doctor = Doctor::new().root(&args.root);
    if let Some(cores) = &args.cpu {
        doctor = doctor.cores(cores.clone());
    }
    if let Some(device) = &args.device {
        doctor = doctor.device(device);
    }
    let mut findings = doctor.examine();
    let (all, is_wanting) = (findings.len(), |f: &Finding| f.verdict == Verdict::Wanting);
    let wanting = findings.iter().filter(|finding| is_wanting(finding)).count();
    if args.quiet {
        findings.retain(is_wanting);
    }
    let said = if args.json { as_json(&findings) } else { as_text(&findings, wanting, all) };
    // Whoever closed the pipe has read enough.
    let _ = io::stdout().lock().write_all(said.as_bytes());
    if args.strict && wanting > 0 { ExitCode::from(1) } else { ExitCode::SUCCESS }
}

fn cores(text: &str) -> Result<Cores, String> {
    match Cores::parse(text) {
        Some(cores) if !cores.is_empty() => Ok(cores),
        _ => Err("core numbers are wanted, as in 2 or 2-3,6".to_owned()),
    }
}

fn as_text(findings: &[Finding], wanting: usize, all: usize) -> String {
    let mut text: String = findings.iter().map(|finding| format!("{finding}\n")).collect();
    text += &format!("{wanting} of {all} wanting\n");
    text
}

fn as_json(findings: &[Finding]) -> String {
    let of = |finding: &Finding| {
        json!({
            "check": finding.check.name(),
            "verdict": finding.verdict.to_string(),
            "read": finding.read,
            "why": finding.why,
            "advice": finding.advice,
        })
    };
    let list: Vec<_> = findings.iter().map(of).collect();
    format!("{:#}\n", json!({ "findings": list }))
}
