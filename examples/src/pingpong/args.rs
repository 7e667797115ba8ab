//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use nanoverbs::endpoint::Idle;

use super::plan::{Game, Plan};
use crate::cpu::Cpus;
use crate::{Failure, Place};

/// How the messages of a round trip go.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Verb {
    /// SEND, into a receive of the other end
    Send,
    /// WRITE, into memory of the other end
    Write,
    /// READ of the server's memory, whose program takes no part; one is a round trip
    Read,
}

/// Sends a message there and back, many times, and says how long it took.
///
/// Without --listen and --connect both ends are in this process, on a device made of software: no
/// RDMA hardware is needed. With them the two ends are two processes, which talk through librdmacm
/// and a real device.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "pingpong",
    version,
    max_term_width = 100,
    after_help = "Examples:
  pingpong                            both ends here, on the soft device
  pingpong -s 4096 -t 16 -n 1000000   larger messages, 16 under way at a time
  pingpong --listen 10.0.0.1          wait for one client on the RDMA interface with this address
  pingpong --connect 10.0.0.1 -s 64   the client, on another machine or on the same
  pingpong --rate -t 64               how many messages a second go one way

What perftest calls ib_send_lat, ib_write_lat and ib_read_lat is --verb send, --verb write --in-order and
--verb read; ib_send_bw is --rate. perftest halves the time of a round trip of SENDs or WRITEs.

Every byte of every message is checked, at both ends. The exit code is 0 when all were right, 2 when
the command line was wrong, and 1 when anything else was."
)]
pub struct Args {
    /// Wait for one client on this address of an RDMA interface, as 10.0.0.1:18515 or fd00::1
    #[arg(long, value_name = "ADDR", conflicts_with = "connect", help_heading = "Where")]
    pub listen: Option<Place>,

    /// Play with the pingpong that listens there
    #[arg(long, value_name = "ADDR", help_heading = "Where")]
    pub connect: Option<Place>,

    /// How messages go [default: send]
    #[arg(long, value_enum, value_name = "VERB", hide_default_value = true, help_heading = "What")]
    pub verb: Option<Verb>,

    /// With --verb write: look at the last byte of the memory to see that a message has arrived, as
    /// ib_write_lat does. Right only on a device that shows the bytes of a message in the order in which they
    /// were sent; on any other each WRITE brings an immediate, as without this option
    #[arg(long, help_heading = "What")]
    pub in_order: bool,

    /// SENDs one way, and how many go in a second: --depth of them under way, in chains behind one
    /// doorbell, most of them without a completion of their own
    #[arg(long, help_heading = "What")]
    pub rate: bool,

    /// Bytes in a message; K and M are understood [default: 64]
    #[arg(short, long, value_name = "BYTES", value_parser = bytes, help_heading = "What")]
    pub size: Option<usize>,

    /// Round trips, or messages that go one way, to time [default: 100000]
    #[arg(short = 'n', long, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000),
          help_heading = "What")]
    pub iters: Option<u64>,

    /// How many of them before the timed ones [default: 1000]
    #[arg(long, value_parser = clap::value_parser!(u64).range(0..=1_000_000_000_000),
          help_heading = "What")]
    pub warmup: Option<u64>,

    /// Messages under way at a time [default: 1]
    #[arg(short = 't', long,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(Plan::MAX_DEPTH)),
          help_heading = "What")]
    pub depth: Option<u32>,

    /// Messages of up to this many bytes travel inside their request (inline), which spares the
    /// device fetching them
    #[arg(short = 'I', long, value_name = "BYTES", default_value_t = 0, help_heading = "How")]
    pub inline: u32,

    /// The processors that the threads are pinned to: one number, or two for the client and the
    /// server of the soft device; `none` leaves them to the scheduler [default: the first and the
    /// second that this process may use]
    #[arg(long, value_name = "LIST", help_heading = "How")]
    pub cpu: Option<Cpus>,

    /// On the soft device: both ends on one thread, or on one each [default: 2 where there are two
    /// processors]
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=2), help_heading = "How")]
    pub threads: Option<u8>,

    /// Threads that wait sleep until the device wakes them, instead of polling without pause: slower,
    /// and right where both ends share a few processors
    #[arg(short, long, help_heading = "How")]
    pub events: bool,

    /// How long to wait for the peer, to come and to answer
    #[arg(long, value_name = "SECONDS", default_value_t = 30,
          value_parser = clap::value_parser!(u32).range(1..), help_heading = "How")]
    pub timeout: u32,

    /// Write the results to this file as well, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl Args {
    /// What no single option can be blamed for.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let is_remote = self.listen.is_some() || self.connect.is_some();
        let cpus = match &self.cpu {
            Some(Cpus::List(list)) => Some(list.len()),
            _ => None,
        };
        match (is_remote, self.threads, cpus) {
            (true, Some(_), _) => {
                return Err(Failure::usage(
                    "--threads is for the soft device; with --listen and --connect each end is a \
                     process with one thread",
                ));
            }
            (true, None, Some(2)) => {
                return Err(Failure::usage("--cpu takes one number with --listen and --connect"));
            }
            (false, Some(threads), Some(cpus)) if usize::from(threads) != cpus => {
                return Err(Failure::usage(format!(
                    "--threads {threads} and {cpus} in --cpu do not fit: each thread takes one CPU"
                )));
            }
            _ => {}
        }
        self.check_game(is_remote)?;
        self.plan().check()
    }

    /// The same for what is to be played.
    fn check_game(&self, is_remote: bool) -> Result<(), Failure> {
        let is_write = self.verb == Some(Verb::Write);
        let wrong = match (self.rate, self.in_order) {
            (true, _) if !matches!(self.verb, None | Some(Verb::Send)) => {
                "--rate is for SENDs, which go one way; leave --verb out"
            }
            (_, true) if !is_write => "--in-order is for --verb write",
            (_, true) if !is_remote => {
                "--in-order is for real devices; the soft one promises no order, and --verb write does \
                 without"
            }
            (_, true) if self.events => {
                "--in-order looks at memory, and --events waits for the device to say something; leave \
                 one of them out"
            }
            _ if self.verb == Some(Verb::Read) && self.inline > 0 => {
                "--inline is for messages that are sent, and a READ fetches them"
            }
            _ => return Ok(()),
        };
        Err(Failure::usage(wrong))
    }

    fn game(&self) -> Game {
        match (self.rate, self.verb, self.in_order) {
            (true, ..) => Game::Rate,
            (_, Some(Verb::Write), true) => Game::WriteInOrder,
            (_, Some(Verb::Write), false) => Game::Write,
            (_, Some(Verb::Read), _) => Game::Read,
            (_, Some(Verb::Send) | None, _) => Game::Send,
        }
    }

    /// The game, when one was named.
    #[cfg(any(feature = "librdmacm", test))]
    pub(super) fn told_game(&self) -> Option<Game> {
        (self.rate || self.verb.is_some()).then(|| self.game())
    }

    /// What is to be played, where nothing was said by default.
    pub(super) fn plan(&self) -> Plan {
        let default = Plan::default();
        Plan {
            game: self.game(),
            size: self.size.unwrap_or(default.size),
            iters: self.iters.unwrap_or(default.iters),
            warmup: self.warmup.unwrap_or(default.warmup),
            depth: self.depth.unwrap_or(default.depth),
        }
    }

    /// How a thread waits that has a processor of its own, or has none.
    pub(super) const fn idle(&self, is_spacious: bool) -> Idle {
        match (self.events, is_spacious) {
            (true, _) => Idle::SpinThenWait { spins: 0 },
            (false, true) => Idle::Spin,
            (false, false) => Idle::SpinThenWait { spins: 100 },
        }
    }

    pub(super) fn patience(&self) -> Duration {
        Duration::from_secs(self.timeout.into())
    }
}

fn bytes(text: &str) -> Result<usize, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    let number = digits.parse::<usize>().ok().and_then(|number| number.checked_mul(unit));
    match number {
        Some(number) if (1..=Plan::MAX_SIZE).contains(&number) => Ok(number),
        _ => Err(format!("a message has from 1 to {} bytes, as in 64, 64K or 1M", Plan::MAX_SIZE)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }

    #[test]
    fn sizes_may_have_a_unit() {
        assert_eq!(bytes("64"), Ok(64));
        assert_eq!(bytes("64K"), Ok(65536));
        assert_eq!(bytes("1m"), Ok(1 << 20));
        for text in ["", "0", "K", "-1", "1G", "99999999999999999999", "18014398509481985K"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
