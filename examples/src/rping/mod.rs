//! rdma-core's `rping`, in the same words on the wire: either end may be theirs.
//!
//! The client tells the server where a ping is, the server READs it and says "go ahead", the client tells
//! where it shall be written to, the server WRITEs it and says "go ahead". So a round uses a SEND each
//! way twice, a READ and a WRITE.

mod client;
mod end;
mod server;
mod text;
#[cfg(feature = "librdmacm")]
mod verbs;
mod wire;

use std::time::Duration;

use clap::Parser;
use nanoverbs::endpoint::{Idle, Options, SoftDevice};

use crate::{Failure, Place, output};
use client::{Client, Played};
use end::End;
use server::Server;

/// READs and WRITEs pings, as rdma-core's rping does: either end may be theirs.
///
/// Without -s and -c both ends are in this process, on a device made of software.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "rping",
    max_term_width = 100,
    after_help = "Examples:
  rping -V                            both ends here, on the soft device
  rping -s -a 10.0.0.1                the server, on the RDMA interface with this address
  rping -c -a 10.0.0.1 -V -C 1000     the client; checks every byte of 1,000 pings
  rping -s -P                         a server on all RDMA interfaces, for one client after the other
                                      and for many at a time, until it is stopped

The exit code is 0 when all went well, 2 when the command line was wrong, and 1 when anything else was."
)]
pub struct Args {
    /// Be the server
    #[arg(short, long, conflicts_with = "client", help_heading = "Where")]
    pub server: bool,

    /// Be the client
    #[arg(short, long, requires = "address", help_heading = "Where")]
    pub client: bool,

    /// Where the server listens, as 10.0.0.1 or fd00::1; for a server, :: is any address of IPv6 [default
    /// for a server: any address of IPv4]
    #[arg(short, long, value_name = "ADDR", help_heading = "Where")]
    pub address: Option<Place>,

    /// The server's port, when the address has none
    #[arg(short, long, default_value_t = 7174, value_parser = clap::value_parser!(u16).range(1..),
          help_heading = "Where")]
    pub port: u16,

    /// The address that the client comes from, which picks its device
    #[arg(short = 'I', long, value_name = "ADDR", requires = "client", help_heading = "Where")]
    pub source: Option<Place>,

    /// Go on when a client has gone, and serve many at a time
    #[arg(short = 'P', long, requires = "server", help_heading = "What")]
    pub persistent: bool,

    /// Bytes in a ping; for a server, in the longest one that it takes [default: 64, for a server 65536]
    #[arg(short = 'S', long, value_name = "BYTES", help_heading = "What",
          value_parser = clap::value_parser!(u32).range(text::SHORTEST as i64..=text::LONGEST as i64))]
    pub size: Option<u32>,

    /// Pings; 0 goes on until one end is stopped [default: 0, on the soft device 1000]. A server goes on
    /// as long as its client
    #[arg(short = 'C', long, help_heading = "What",
          value_parser = clap::value_parser!(u32).range(..=i64::from(i32::MAX)))]
    pub count: Option<u32>,

    /// Show every ping
    #[arg(short, long, help_heading = "What")]
    pub verbose: bool,

    /// Check every byte, at this end
    #[arg(short = 'V', long, help_heading = "What")]
    pub validate: bool,

    /// How long to wait for an answer. A server waits for its clients without end
    #[arg(long, value_name = "SECONDS", default_value_t = 30,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub timeout: u32,
}

impl Args {
    fn patience(&self) -> Duration {
        Duration::from_secs(self.timeout.into())
    }

    fn ping_len(&self) -> usize {
        self.size.map_or(64, |size| size as usize)
    }

    /// The longest ping that a server takes.
    fn room(&self) -> usize {
        self.size.map_or(text::LONGEST, |size| size as usize)
    }

    /// Two receives and a message under way, and a ping.
    fn options(&self, block: usize) -> Options {
        Options::new().depth(4, 2).blocks(6, block).idle(Idle::SpinThenWait { spins: 100 })
    }
}

/// The whole program behind its command line.
///
/// # Errors
///
/// [`Failure`] with the sentence and the exit code.
pub fn run(args: &Args) -> Result<(), Failure> {
    match (args.server, args.client) {
        (false, false) => soft(args)?.print(args),
        #[cfg(feature = "librdmacm")]
        (true, _) => verbs::serve(args),
        #[cfg(feature = "librdmacm")]
        (_, true) => verbs::play(args)?.print(args),
        #[cfg(not(feature = "librdmacm"))]
        _ => Err(Failure::new(
            "this rping was built without the feature `verbs`, which -s and -c need; without them it \
             plays on the soft device",
        )),
    }
}

/// Both ends in this process, a thread each.
fn soft(args: &Args) -> Result<Played, Failure> {
    static DEVICE: SoftDevice = SoftDevice::new();
    let args = &Args { count: args.count.or(Some(1000)), ..args.clone() };
    let [client, server] = args.options(args.room()).soft_pair(&DEVICE)?;
    let (client, server) = (Client::new(client, args)?, Server::new(server, args)?);
    std::thread::scope(|scope| {
        let server = scope.spawn(move || server.serve(args));
        let played = client.play(args);
        let served = server.join().map_err(|_| Failure::new("the server has panicked"))?;
        match (played, served) {
            (Ok(played), Ok(_)) => Ok(played),
            (Err(failure), Ok(_)) | (Ok(_), Err(failure)) => Err(failure),
            (Err(client), Err(server)) => Err(client.cause(server)),
        }
    })
}

impl Played {
    fn print(&self, args: &Args) -> Result<(), Failure> {
        let Self { device, pings, took } = self;
        let each = took.as_secs_f64() * 1e6 / (*pings as f64).max(1.0);
        let checked = if args.validate { ", every byte as it was sent" } else { "" };
        output::table(&[
            ("device", device.clone()),
            ("pings", format!("{pings} of {} bytes there and back{checked}", args.ping_len())),
            ("each", format!("{each:.1} µs")),
        ])
    }
}

#[cfg(test)]
mod tests;
