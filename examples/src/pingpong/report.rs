//! What a run found, for people and for programs.

use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::plan::{Game, Plan};
use super::players::Tally;
use crate::{Failure, output};

/// Which end this process played.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role {
    /// Both, on so many threads.
    Both {
        /// One or two.
        threads: usize,
    },
    /// The client.
    #[cfg(feature = "librdmacm")]
    Client,
    /// The server.
    #[cfg(feature = "librdmacm")]
    Server,
}

/// What a run found.
pub(super) struct Report {
    pub(super) device: String,
    pub(super) role: Role,
    pub(super) peer: Option<SocketAddr>,
    pub(super) plan: Plan,
    pub(super) inline: u32,
    /// Whether threads sleep that wait.
    pub(super) sleeps: bool,
    /// One for each thread, the client's first.
    pub(super) cpus: Vec<Option<usize>>,
    /// The client's; a server takes no times.
    pub(super) tally: Option<Tally>,
}

const PERCENTILES: [(&str, f64); 5] =
    [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9), ("p99.99", 99.99)];

impl Report {
    /// For people.
    pub(super) fn print(&self) -> Result<(), Failure> {
        let Plan { game, size, iters, warmup, depth } = self.plan;
        let inline = if self.is_inline() { ", inline" } else { "" };
        let mut lines = vec![
            ("device", self.device.clone()),
            (
                "played",
                format!(
                    "{} {}s of {size} bytes, {game}, {depth} at a time{inline}, after {} to warm up",
                    grouped(iters),
                    game.round(),
                    grouped(warmup)
                ),
            ),
            ("threads", self.threads()),
        ];
        if let Some(peer) = self.peer {
            lines.insert(1, ("peer", peer.to_string()));
        }
        let ends =
            if matches!(self.role, Role::Both { .. }) { "at both ends" } else { "at this end" };
        let checked = match (game, self.role) {
            // Its program takes no part.
            #[cfg(feature = "librdmacm")]
            (Game::Read, Role::Server) => {
                "nothing: the client has read, and has said goodbye".into()
            }
            #[cfg(feature = "librdmacm")]
            (Game::Rate, Role::Client) => "all arrived; the other end looks at the bytes".into(),
            _ => format!("every byte of every message, {ends}: all as they were sent"),
        };
        lines.push(("checked", checked));
        if let Some(tally) = &self.tally {
            let rate = grouped(self.messages_per_second(tally) as u64);
            let ways = if game.messages() == 2 { "both ways and" } else { "one way," };
            lines.push(("rate", format!("{rate} messages a second, {ways} checks included")));
            let mut name = "round trip";
            for (percentile, nanos) in trips(tally) {
                lines.push((name, format!("{percentile:<7}{:>12.2} µs", nanos as f64 / 1000.0)));
                name = "";
            }
        }
        output::table(&lines)
    }

    /// For programs. Times are in nanoseconds.
    pub(super) fn json(&self) -> Value {
        let mut value = json!({
            "program": "pingpong",
            "version": env!("CARGO_PKG_VERSION"),
            "device": self.device,
            "role": match self.role {
                Role::Both { .. } => "both",
                #[cfg(feature = "librdmacm")]
                Role::Client => "client",
                #[cfg(feature = "librdmacm")]
                Role::Server => "server",
            },
            "peer": self.peer.map(|peer| peer.to_string()),
            "threads": self.cpus.len(),
            "cpus": self.cpus,
            "sleeps": self.sleeps,
            "verb": match self.plan.game {
                Game::Send | Game::Rate => "send",
                Game::Write | Game::WriteInOrder => "write",
                Game::Read => "read",
            },
            "in_order": self.plan.game == Game::WriteInOrder,
            "rate": self.plan.game == Game::Rate,
            "size": self.plan.size,
            "iters": self.plan.iters,
            "warmup": self.plan.warmup,
            "depth": self.plan.depth,
            "inline": self.is_inline(),
        });
        if let Some(tally) = &self.tally {
            if !tally.trips.is_empty() {
                let mut times: serde_json::Map<String, Value> =
                    trips(tally).map(|(name, nanos)| (name.to_owned(), nanos.into())).collect();
                times.insert("min".to_owned(), tally.trips.min().into());
                times.insert("mean".to_owned(), tally.trips.mean().into());
                value["round_trip_ns"] = times.into();
            }
            value["seconds"] = tally.elapsed.as_secs_f64().into();
            value["messages_per_second"] = self.messages_per_second(tally).into();
        }
        value
    }

    fn is_inline(&self) -> bool {
        self.plan.size <= self.inline as usize
    }

    fn messages_per_second(&self, tally: &Tally) -> f64 {
        (self.plan.game.messages() * self.plan.iters) as f64 / tally.elapsed.as_secs_f64().max(1e-9)
    }

    fn threads(&self) -> String {
        let names: &[&str] = match self.role {
            Role::Both { threads: 2 } => &["the client", "the server"],
            Role::Both { .. } => &["both ends"],
            #[cfg(feature = "librdmacm")]
            Role::Client => &["the client"],
            #[cfg(feature = "librdmacm")]
            Role::Server => &["the server"],
        };
        let seats = names.iter().zip(&self.cpus).map(|(name, cpu)| match cpu {
            Some(cpu) => format!("{name} on CPU {cpu}"),
            None => format!("{name}, not pinned"),
        });
        let how = if self.sleeps {
            "; they sleep until something comes"
        } else {
            "; they poll without pause"
        };
        seats.collect::<Vec<_>>().join(", ") + how
    }
}

fn trips(tally: &Tally) -> impl Iterator<Item = (&'static str, u64)> + '_ {
    let percentiles =
        PERCENTILES.iter().map(|&(name, at)| (name, tally.trips.value_at_percentile(at)));
    percentiles.chain([("max", tally.trips.max())]).filter(|_| !tally.trips.is_empty())
}

/// `1,234,567`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A file that is there already, and waits for its content.
pub(super) struct JsonFile {
    file: File,
    path: PathBuf,
}

pub(super) fn create(path: &Path) -> Result<JsonFile, Failure> {
    match File::create(path) {
        Ok(file) => Ok(JsonFile { file, path: path.to_owned() }),
        Err(error) => Err(unwritable(path, &error)),
    }
}

impl JsonFile {
    pub(super) fn write(mut self, report: &Report) -> Result<(), Failure> {
        writeln!(self.file, "{:#}", report.json()).map_err(|error| unwritable(&self.path, &error))
    }
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("the file {} cannot be written: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::grouped;

    #[test]
    fn large_numbers_are_grouped_by_thousands() {
        assert_eq!(grouped(7), "7");
        assert_eq!(grouped(1000), "1,000");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }
}
