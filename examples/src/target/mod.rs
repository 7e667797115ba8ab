//! A storage target: one pinned thread serves any number of clients through a hub. The program `target`.
//!
//! A client asks to load or to store a block, and says where in its memory. The target does the rest by WRITE or
//! READ, and answers; the client's processor has no part in it. All clients share one completion queue
//! ([`Hub`]), and come and go as they like.
//!
//! `server` is the target, `client` one client, `wire` what they say to each other. They know nothing of the
//! device: both are in this process on the soft device, or in two on real ones.

mod client;
mod server;
#[cfg(feature = "librdmacm")]
mod verbs;
mod wire;

use std::time::{Duration, Instant};

use clap::Parser;
use nanoverbs::endpoint::{Driver, Idle, Options, Soft, SoftDevice};
use nanoverbs::hub::Hub;
use nanoverbs::poller::{Builder, End, IdlePolicy, Poller, Report, Serve};

use crate::{Failure, Place, output};
use client::Client;
use server::{Context, Target};

/// Clients at a time, at most.
const MOST: usize = 256;

/// Serves blocks to any number of clients with one thread.
///
/// The target keeps blocks in memory. Each client stores blocks of its own and loads them again, several
/// requests at a time, and checks every byte. The target reads and writes the clients' memory with READ and
/// WRITE; one completion queue and one thread are enough for all of them.
///
/// Without --listen and --connect the target and its clients are in this process, on a device made of
/// software.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "target",
    version,
    max_term_width = 100,
    after_help = "Examples:
  target                                  both ends here, on the soft device
  target --listen 10.0.0.1 --core 3       the target, on the RDMA interface with this address
  target --connect 10.0.0.1 --clients 64  so many clients

The exit code is 0 when every byte was right, 2 when the command line was wrong, and 1 when anything
else was."
)]
pub struct Args {
    /// Serve on this address of an RDMA interface, as 10.0.0.1:18515 or fd00::1
    #[arg(long, value_name = "ADDR", conflicts_with = "connect")]
    pub listen: Option<Place>,

    /// Be clients of the target there
    #[arg(long, value_name = "ADDR")]
    pub connect: Option<Place>,

    /// Clients, each with a connection of its own; on the soft device 64 at most
    #[arg(short, long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub clients: u16,

    /// Blocks that each client stores and loads again
    #[arg(short, long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub requests: u32,

    /// Bytes in a block, a multiple of 64; both ends want the same
    #[arg(short, long, value_name = "BYTES", default_value_t = 4096, value_parser = block_size)]
    pub size: u32,

    /// Requests that a client has under way at a time; both ends want the same
    #[arg(short, long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=8))]
    pub depth: u8,

    /// With --listen: end after so many clients have come and gone, instead of never
    #[arg(long, value_name = "CLIENTS", requires = "listen",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub visits: Option<u32>,

    /// The core of the target's thread
    #[arg(long, value_name = "NUMBER", conflicts_with = "connect")]
    pub core: Option<usize>,

    /// How long a client waits for the target
    #[arg(long, value_name = "SECONDS", default_value_t = 30,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub timeout: u32,
}

fn block_size(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(size) if size > 0 && size <= 1 << 20 && size % 64 == 0 => Ok(size),
        _ => Err("a block has a multiple of 64 bytes, and 1,048,576 at most".to_owned()),
    }
}

impl Args {
    fn patience(&self) -> Duration {
        Duration::from_secs(self.timeout.into())
    }

    fn depth(&self) -> usize {
        self.depth.into()
    }

    fn size(&self) -> usize {
        self.size as usize
    }

    /// A request takes a receive, and two sends for its data and its answer.
    fn target_options(&self, clients: usize) -> Options {
        let depth = u32::from(self.depth);
        Options::new()
            .depth(4 * depth.max(2), depth)
            .blocks(clients * 3 * self.depth(), self.size().max(64))
    }

    fn client_options(&self) -> Options {
        let depth = u32::from(self.depth);
        let idle = Idle::SpinThenYield { spins: 100 };
        Options::new().depth(2 * depth, depth).blocks(3 * self.depth(), 64).idle(idle)
    }

    /// The thread of the target.
    fn poller(&self, idle: IdlePolicy) -> Builder {
        let builder = Poller::builder().name("target").idle(idle).drain(self.patience());
        match self.core {
            Some(core) => builder.core(core),
            None => builder,
        }
    }
}

/// The whole program behind its command line.
///
/// # Errors
///
/// [`Failure`] with the sentence and the exit code.
pub fn run(args: &Args) -> Result<(), Failure> {
    match (&args.listen, &args.connect) {
        (None, None) => soft(args),
        #[cfg(feature = "librdmacm")]
        (Some(place), _) => verbs::listen(args, place),
        #[cfg(feature = "librdmacm")]
        (None, Some(place)) => verbs::connect(args, place),
        #[cfg(not(feature = "librdmacm"))]
        _ => Err(Failure::new(
            "this program was built without the features `verbs` and `declared`, one of which --listen \
             and --connect need; without them it uses the soft device",
        )),
    }
}

/// Rounds without an answer between two looks at the connections.
const LOOK_EVERY: u32 = 1024;

/// Queue pairs of the soft device: one at each end of each client.
const QPS: usize = 128;

/// The target on a thread of its own, all clients on this one.
fn soft(args: &Args) -> Result<(), Failure> {
    static DEVICE: SoftDevice<QPS> = SoftDevice::new();
    let clients = usize::from(args.clients);
    if clients > QPS / 2 {
        return Err(Failure::usage(format!(
            "{clients} clients, and the soft device has room for {}",
            QPS / 2
        )));
    }
    let hub: Hub<Soft<QPS>, Context, MOST> = args.target_options(clients).soft_hub(&DEVICE)?;
    let door = hub.door();
    let poller = args
        .poller(IdlePolicy::SpinThenYield { spins: 100 })
        .spawn(Serve::new(hub, Target::new(args)))
        .map_err(|refused| Failure::new(refused.to_string()))?;
    let clients = (0..args.clients)
        .map(|index| Client::new(door.connect(args.client_options())?, args, index))
        .collect::<Result<Vec<_>, _>>()?;
    let done = all(clients, args)?;
    poller.stop();
    print(args, Some(served(poller.join())?), Some(done))
}

/// Drives all clients until each has what it wanted. Says how long that took.
fn all<D: Driver>(mut clients: Vec<Client<D>>, args: &Args) -> Result<Duration, Failure> {
    let began = Instant::now();
    let mut heard = began;
    let mut quiet = 0_u32;
    while !clients.iter().all(Client::is_done) {
        let mut is_idle = true;
        for client in &mut clients {
            is_idle &= client.step()? == 0;
        }
        if is_idle {
            if heard.elapsed() > args.patience() {
                return Err(Failure::peer_gone("the target does not answer"));
            }
            quiet = quiet.wrapping_add(1);
            if quiet.is_multiple_of(LOOK_EVERY) {
                clients.iter_mut().for_each(Client::look);
            }
            std::thread::yield_now();
        } else {
            heard = Instant::now();
        }
    }
    Ok(began.elapsed())
}

/// What the target has done, when its thread ended as it should.
fn served<D: Driver>(
    report: Report<Serve<D, Context, Target, MOST>>,
) -> Result<(String, Target), Failure> {
    match report.end {
        End::Finished | End::Stopped { .. } => {
            let (hub, target) = report.work.into_parts();
            Ok((hub.device_name(), target))
        }
        End::Failed(error) => Err(Failure::new(error.to_string())),
        end => Err(Failure::new(format!("the target's thread ended: {end:?}"))),
    }
}

fn print(
    args: &Args,
    served: Option<(String, Target)>,
    done: Option<Duration>,
) -> Result<(), Failure> {
    let mut lines = Vec::new();
    if let Some((device, target)) = served {
        let Target { clients, loads, stores, .. } = target;
        lines.push(("device", device));
        lines.push((
            "target",
            format!("{clients} clients, {loads} loads and {stores} stores, one thread"),
        ));
    }
    if let Some(took) = done {
        let Args { clients, requests, size, depth, .. } = args;
        let all = f64::from(*clients) * f64::from(*requests) * 2.0;
        let rate = all / took.as_secs_f64();
        let bytes = rate * f64::from(*size) / 1e6;
        lines.push((
            "clients",
            format!("{clients}, each {requests} blocks of {size} bytes stored and loaded again, {depth} at a time"),
        ));
        lines.push(("rate", format!("{rate:.0} requests a second, {bytes:.0} MB/s")));
        lines.push(("checked", "every byte that was loaded: all as they were stored".to_owned()));
    }
    output::table(&lines)
}
