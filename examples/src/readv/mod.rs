//! One READ of a peer's memory into several buffers: the program `readv`.
//!
//! The server registers memory, and tells the client where it is with the first message. The client
//! reads it with a single request, scattered into buffers of its own; the server's program does not
//! notice. Both ends are in this process on the soft device, or in two on real ones.

mod ends;
#[cfg(feature = "librdmacm")]
mod verbs;

use std::time::Duration;

use clap::Parser;
use nanoverbs::endpoint::{Idle, Options, SoftDevice};

use crate::{Failure, Place, output};
use ends::{Buffers, Found};

/// Reads a peer's memory into several buffers with one request.
///
/// The server registers memory and advertises it. The client reads it with one scattered READ and
/// checks every byte. On the way it shows two requests that are refused before a device sees them:
/// one before the connection stands, and one that is longer than what was advertised.
///
/// Without --listen and --connect both ends are in this process, on a device made of software.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "readv",
    version,
    max_term_width = 100,
    after_help = "Examples:
  readv                               both ends here, on the soft device
  readv --listen 10.0.0.1             the server, on the RDMA interface with this address
  readv --connect 10.0.0.1            the client

The exit code is 0 when every byte was right, 2 when the command line was wrong, and 1 when anything
else was."
)]
pub struct Args {
    /// Wait for one client on this address of an RDMA interface, as 10.0.0.1:18515 or fd00::1
    #[arg(long, value_name = "ADDR", conflicts_with = "connect")]
    pub listen: Option<Place>,

    /// Read the memory of the readv that listens there
    #[arg(long, value_name = "ADDR")]
    pub connect: Option<Place>,

    /// Bytes in each buffer
    #[arg(short, long, value_name = "BYTES", default_value_t = 4096,
          value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    pub size: u32,

    /// Buffers
    #[arg(short, long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=8))]
    pub pieces: u8,

    /// How long to wait for the peer, to come and to answer
    #[arg(long, value_name = "SECONDS", default_value_t = 30,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub timeout: u32,
}

impl Args {
    fn total(&self) -> usize {
        self.size as usize * usize::from(self.pieces)
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(self.timeout.into())
    }

    /// Buffers for the pieces, and a few for what is said before and after.
    fn options(&self) -> Options {
        Options::new()
            .depth(4, 4)
            .sges(self.pieces)
            .blocks(usize::from(self.pieces) + 2, self.size.max(64) as usize)
            .idle(Idle::SpinThenWait { spins: 1000 })
    }
}

/// The whole program behind its command line.
///
/// # Errors
///
/// [`Failure`] with the sentence and the exit code.
pub fn run(args: &Args) -> Result<(), Failure> {
    match (&args.listen, &args.connect) {
        (None, None) => soft(args)?.print(args),
        #[cfg(feature = "librdmacm")]
        (Some(place), _) => verbs::listen(args, place),
        #[cfg(feature = "librdmacm")]
        (None, Some(place)) => verbs::connect(args, place)?.print(args),
        #[cfg(not(feature = "librdmacm"))]
        _ => Err(Failure::new(
            "this readv was built without the features `verbs` and `declared`, one of which --listen \
             and --connect need; without them it reads on the soft device",
        )),
    }
}

/// Both ends on one thread: each wait finds what the step before it has posted.
fn soft(args: &Args) -> Result<Found, Failure> {
    static DEVICE: SoftDevice = SoftDevice::new();
    let [client, server] = args.options().soft_pair::<Buffers>(&DEVICE)?;
    let client = ends::knock(client, args)?;
    let server = ends::advertise(server, args)?;
    let found = client.read(args)?;
    server.wait_for_the_end(args)?;
    Ok(found)
}

impl Found {
    fn print(&self, args: &Args) -> Result<(), Failure> {
        let Args { size, pieces, .. } = args;
        output::table(&[
            ("device", self.device.clone()),
            ("too early", format!("a READ before the connection is refused: {}", self.too_early)),
            ("advertised", self.advertised.clone()),
            ("too long", format!("a READ of one byte more is refused: {}", self.too_long)),
            (
                "read",
                format!(
                    "one request brought {} bytes into {pieces} buffers of {size}, in {:.1} µs",
                    args.total(),
                    self.took.as_nanos() as f64 / 1000.0
                ),
            ),
            ("checked", "every byte of every buffer: all as the server wrote them".to_owned()),
        ])
    }
}
