//! Many connections between two processes, a few messages each way on each of them.
//!
//! Either end may be rdma-core's `ucmatose`: the server sends first, on all connections; the client
//! answers on all of them; the server ends the connections.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use nanoverbs::endpoint::{Driver, Endpoint, Options, Prepared, SoftDevice, WaitError};
use nanoverbs::nanoverbs_core::Block;
use nanoverbs_examples::{Failure, Place, failure, output};

/// The port of ucmatose.
#[cfg(feature = "librdmacm")]
const PORT: u16 = 7471;

/// Makes many connections and sends messages both ways on each of them.
///
/// Without an address both ends are in this process, on devices made of software. The other end may be
/// rdma-core's ucmatose, told the same numbers.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "connections",
    version,
    max_term_width = 100,
    after_help = "Examples:
  connections                           both ends here, on the soft device
  connections --listen 10.0.0.1         the server; ucmatose -b 10.0.0.1 -c 100 is one, too
  connections --connect 10.0.0.1        the client; ucmatose -s 10.0.0.1 -c 100 is one, too"
)]
struct Args {
    /// Wait for the connections on this address of an RDMA interface, as 10.0.0.1:7471 or fd00::1
    #[arg(long, value_name = "ADDR", conflicts_with = "connect")]
    listen: Option<Place>,

    /// Connect to the server there
    #[arg(long, value_name = "ADDR")]
    connect: Option<Place>,

    /// Connections
    #[arg(short, long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    connections: u16,

    /// Messages each way on each connection
    #[arg(short = 'C', long, default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..i64::from(Options::MAX_DEPTH)))]
    count: u32,

    /// Bytes in a message
    #[arg(short = 'S', long, value_name = "BYTES", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    size: u32,

    /// How long to wait for the other end
    #[arg(long, value_name = "SECONDS", default_value_t = 30,
          value_parser = clap::value_parser!(u32).range(1..))]
    timeout: u32,
}

impl Args {
    fn patience(&self) -> Duration {
        Duration::from_secs(self.timeout.into())
    }

    /// Each has memory for all of its messages. One receive more than messages tells the client that the
    /// connection has ended.
    fn options(&self) -> Options {
        let (sends, receives) = (self.count, self.count + 1);
        Options::new()
            .depth(sends, receives)
            .blocks((sends + receives) as usize, self.size as usize)
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    failure::exit("connections", run(&args))
}

fn run(args: &Args) -> Result<(), Failure> {
    let began = Instant::now();
    let connected = match (&args.listen, &args.connect) {
        (None, None) => soft(args)?,
        #[cfg(feature = "librdmacm")]
        (Some(place), _) => listen(args, place)?,
        #[cfg(feature = "librdmacm")]
        (None, Some(place)) => connect(args, place)?,
        #[cfg(not(feature = "librdmacm"))]
        _ => {
            return Err(Failure::new(
                "this program was built without the feature `verbs`, which --listen and --connect need; \
                 without them it uses the soft device",
            ));
        }
    };
    let Args { connections, count, size, .. } = args;
    let (connected, took) = (connected.duration_since(began), began.elapsed());
    output::table(&[
        ("connected", format!("{connections} connections after {connected:.1?}")),
        ("messages", format!("{count} of {size} bytes each way on each of them, in {took:.1?}")),
    ])
}

/// Both ends on one thread: each wait finds what the step before it has posted.
fn soft(args: &Args) -> Result<Instant, Failure> {
    let (mut clients, mut servers) = (Vec::new(), Vec::new());
    for _ in 0..args.connections {
        // It lives as long as the program, as a device does.
        let device = Box::leak(Box::new(SoftDevice::new()));
        let [client, server] = args.options().soft_pair(device)?;
        clients.push(End::new(client, args)?);
        servers.push(End::new(server, args)?);
    }
    let connected = Instant::now();
    all(&mut servers, End::say)?;
    all(&mut clients, End::hear)?;
    all(&mut servers, End::said)?;
    all(&mut clients, End::say)?;
    all(&mut servers, End::hear)?;
    all(&mut clients, End::said)?;
    drop(servers);
    all(&mut clients, End::wait_for_the_end)?;
    Ok(connected)
}

/// The server: sends, then hears, then ends the connections with the drop.
#[cfg(feature = "librdmacm")]
fn listen(args: &Args, place: &Place) -> Result<Instant, Failure> {
    use nanoverbs::{Deadline, cm::Listener};

    let listener = Listener::bind(place.clone().or_port(PORT).resolve()?)?;
    eprintln!("connections: listening on {}", listener.local_addr());
    let mut ends = Vec::new();
    for at in 0..args.connections {
        let deadline = if at == 0 { Deadline::NEVER } else { args.patience().into() };
        ends.push(End::new(args.options().accept(&listener, deadline)?, args)?);
    }
    let connected = Instant::now();
    for step in [End::say, End::said, End::hear] {
        all(&mut ends, step)?;
    }
    Ok(connected)
}

/// The client: hears, then answers, then waits for the server to end the connections.
#[cfg(feature = "librdmacm")]
fn connect(args: &Args, place: &Place) -> Result<Instant, Failure> {
    let peer = place.clone().or_port(PORT).resolve()?;
    let mut ends = Vec::new();
    for _ in 0..args.connections {
        ends.push(End::new(args.options().connect(peer, args.patience())?, args)?);
    }
    let connected = Instant::now();
    for step in [End::hear, End::say, End::said, End::wait_for_the_end] {
        all(&mut ends, step)?;
    }
    Ok(connected)
}

/// One step on every connection.
fn all<D: Driver>(
    ends: &mut [End<D>],
    step: impl Fn(&mut End<D>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    for (at, end) in ends.iter_mut().enumerate() {
        step(end).map_err(|failure| Failure::new(format!("connection {at}: {failure}")))?;
    }
    Ok(())
}

/// One end of one connection.
struct End<D: Driver> {
    endpoint: Endpoint<D, Block>,
    count: u32,
    size: u32,
    patience: Duration,
}

impl<D: Driver> End<D> {
    fn new(prepared: Prepared<D, Block>, args: &Args) -> Result<Self, Failure> {
        let Args { count, size, .. } = *args;
        let patience = args.patience();
        let endpoint = prepared.receives(count as usize + 1)?.establish(patience)?;
        Ok(Self { endpoint, count, size, patience })
    }

    /// Posts all messages.
    fn say(&mut self) -> Result<(), Failure> {
        for number in 0..self.count {
            let block = self.endpoint.block();
            let mut block = block.ok_or_else(|| Failure::new("no block is free"))?;
            block.set_len(self.size as usize)?;
            block.fill(number as u8);
            self.endpoint.post_send(block).map_err(failed)?;
        }
        Ok(())
    }

    /// Waits until all messages have arrived.
    fn said(&mut self) -> Result<(), Failure> {
        for number in 0..self.count {
            let sent = self.endpoint.send_completion(self.patience).map_err(failed)?;
            if !sent.outcome.is_done() {
                return Err(gone(&format!("message {number} was not sent: {:?}", sent.outcome)));
            }
        }
        Ok(())
    }

    /// Waits for all messages of the other end.
    fn hear(&mut self) -> Result<(), Failure> {
        for number in 0..self.count {
            let heard = self.endpoint.recv_completion(self.patience).map_err(failed)?;
            match heard.message() {
                Some(message) if message.len() == self.size as usize => {}
                Some(message) => {
                    return Err(Failure::new(format!(
                        "message {number} has {} bytes instead of {}; give both ends the same \
                         numbers",
                        message.len(),
                        self.size
                    )));
                }
                None => return Err(gone(&format!("message {number} did not come"))),
            }
        }
        Ok(())
    }

    /// Waits until the server ends the connection: the last receive comes back empty.
    fn wait_for_the_end(&mut self) -> Result<(), Failure> {
        match self.endpoint.recv_completion(self.patience) {
            Err(WaitError::Disconnected) => Ok(()),
            Ok(ended) if !ended.outcome.is_done() => Ok(()),
            Ok(_) => Err(Failure::new(format!(
                "there was one message more than {}; give both ends the same numbers",
                self.count
            ))),
            Err(error) => Err(failed(error)),
        }
    }
}

fn gone(what: &str) -> Failure {
    Failure::peer_gone(format!("{what}; the other end has gone"))
}

fn failed(error: impl std::error::Error) -> Failure {
    Failure::new(error.to_string())
}
