//! One message there and one back: the smallest program with two ends.
//!
//! Either end may be rdma-core's `rdma_client` or `rdma_server`, which say 16 bytes of nothing each.

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::Parser;
use nanoverbs::endpoint::{Driver, Endpoint, Options, Prepared, SoftDevice};
use nanoverbs::nanoverbs_core::{Block, Ended};
use nanoverbs_examples::{Failure, Place, failure, output};

/// The port of rdma_client and rdma_server.
#[cfg(feature = "librdmacm")]
const PORT: u16 = 7471;
/// How long one end waits for the other.
const PATIENCE: Duration = Duration::from_secs(30);

const QUESTION: &[u8; 16] = b"are you there???";
const ANSWER: &[u8; 16] = b"yes, I am here!!";

/// Sends a message of 16 bytes and gets one back.
///
/// Without an address both ends are in this process, on a device made of software. The other end may be
/// rdma-core's rdma_server or rdma_client.
#[derive(Debug, Parser)]
#[command(
    name = "hello",
    version,
    max_term_width = 100,
    after_help = "Examples:
  hello                               both ends here, on the soft device
  hello --listen 10.0.0.1             the server; a client is hello --connect 10.0.0.1, or
                                      rdma_client -s 10.0.0.1
  hello --connect 10.0.0.1            the client, also of rdma_server -s 10.0.0.1"
)]
struct Args {
    /// Wait for one client on this address of an RDMA interface, as 10.0.0.1:7471 or fd00::1
    #[arg(long, value_name = "ADDR", conflicts_with = "connect")]
    listen: Option<Place>,

    /// Say hello to the server there
    #[arg(long, value_name = "ADDR")]
    connect: Option<Place>,
}

fn main() -> ExitCode {
    failure::exit("hello", run(Args::parse()))
}

fn run(args: Args) -> Result<(), Failure> {
    match (args.listen, args.connect) {
        (None, None) => soft(),
        #[cfg(feature = "librdmacm")]
        (Some(place), _) => {
            let listener = nanoverbs::cm::Listener::bind(place.or_port(PORT).resolve()?)?;
            eprintln!("hello: listening on {}", listener.local_addr());
            answer(options().accept(&listener, nanoverbs::Deadline::NEVER)?)
        }
        #[cfg(feature = "librdmacm")]
        (None, Some(place)) => ask(options().connect(place.or_port(PORT).resolve()?, PATIENCE)?),
        #[cfg(not(feature = "librdmacm"))]
        _ => Err(Failure::new(
            "this hello was built without the feature `verbs`, which --listen and --connect need; \
             without them it talks to itself on the soft device",
        )),
    }
}

fn soft() -> Result<(), Failure> {
    static DEVICE: SoftDevice = SoftDevice::new();
    let [client, server] = options().soft_pair(&DEVICE)?;
    thread::scope(|scope| {
        let server = scope.spawn(|| answer(server));
        ask(client)?;
        server.join().map_err(|_| Failure::new("the server has panicked"))?
    })
}

/// A block for the message that comes, and one for that which goes.
fn options() -> Options {
    Options::new().depth(1, 1).blocks(2, QUESTION.len())
}

fn ask<D: Driver>(prepared: Prepared<D, Block>) -> Result<(), Failure> {
    let mut end = prepared.receives(1)?.establish(PATIENCE)?;
    say(&mut end, QUESTION)?;
    hear(&mut end)
}

fn answer<D: Driver>(prepared: Prepared<D, Block>) -> Result<(), Failure> {
    let mut end = prepared.receives(1)?.establish(PATIENCE)?;
    hear(&mut end)?;
    say(&mut end, ANSWER)
}

fn say<D: Driver>(end: &mut Endpoint<D, Block>, words: &[u8]) -> Result<(), Failure> {
    let mut block = end.block().ok_or_else(|| Failure::new("no block is free"))?;
    block.set_len(words.len())?;
    block.copy_from_slice(words);
    end.post_send(block).map_err(failed)?;
    done(&end.send_completion(PATIENCE).map_err(failed)?)
}

fn hear<D: Driver>(end: &mut Endpoint<D, Block>) -> Result<(), Failure> {
    let arrived = end.recv_completion(PATIENCE).map_err(failed)?;
    done(&arrived)?;
    let heard = arrived.message().unwrap_or_default();
    output::line(&format!("heard {} bytes: {}", heard.len(), heard.escape_ascii()))
}

fn done(ended: &Ended<Block>) -> Result<(), Failure> {
    match ended.outcome.is_done() {
        true => Ok(()),
        false => Err(Failure::new(format!("the other end has gone: {:?}", ended.outcome))),
    }
}

fn failed(error: impl std::error::Error) -> Failure {
    Failure::new(error.to_string())
}
