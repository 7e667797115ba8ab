//! The two ends. They know endpoints and nothing of the device behind them.

use std::time::{Duration, Instant};

use nanoverbs::endpoint::{Driver, Endpoint, PostError, Prepared, Shared, WaitError};
use nanoverbs::memory::Rights;
use nanoverbs::nanoverbs_core::{Block, Ended, Outcome, Part, RemoteRegion, ReserveError};

use super::Args;
use crate::{Failure, pattern};

/// The context of every request: the buffers that it uses. They come back with its completion.
/// A READ asks for as many bytes as they have, so each is a part of a block, as long as it shall be.
pub(super) type Buffers = heapless::Vec<Part, 8>;

/// The seed of what the server writes.
const ROUND: u64 = 2;

/// What the client saw.
pub(super) struct Found {
    pub(super) device: String,
    pub(super) too_early: ReserveError,
    pub(super) advertised: String,
    pub(super) too_long: String,
    pub(super) took: Duration,
}

/// A client that is connected, and has posted a receive for the advertisement.
pub(super) struct Client<D: Driver> {
    endpoint: Endpoint<D, Buffers>,
    too_early: ReserveError,
}

/// Tries a READ before the connection stands, and connects.
pub(super) fn knock<D: Driver>(
    mut prepared: Prepared<D, Buffers>,
    args: &Args,
) -> Result<Client<D>, Failure> {
    let Err(too_early) = prepared.reserve_sends(1).map(drop) else {
        return Err(Failure::new("a request was taken before the connection stood"));
    };
    let endpoint = receiving(prepared, args)?;
    Ok(Client { endpoint, too_early })
}

/// Connects with one receive posted: the peer has one thing to say.
fn receiving<D: Driver>(
    mut prepared: Prepared<D, Buffers>,
    args: &Args,
) -> Result<Endpoint<D, Buffers>, Failure> {
    let receive = buffers(1, RemoteRegion::WIRE_LEN, || prepared.block())?;
    Ok(prepared.receives_into([receive])?.establish(args.patience())?)
}

impl<D: Driver> Client<D> {
    pub(super) fn read(mut self, args: &Args) -> Result<Found, Failure> {
        let endpoint = &mut self.endpoint;
        let total = args.total();
        let message = done(endpoint.recv_completion(args.patience()))?;
        let remote = message
            .first()
            .and_then(|part| part.first_chunk())
            .and_then(|wire| RemoteRegion::from_wire(wire).ok())
            .ok_or_else(|| Failure::new("what the server has sent is no advertisement"))?;
        if remote.len() != total as u64 {
            return Err(Failure::new(format!(
                "the server advertises {} bytes and {total} are to be read; give both ends the \
                 same --size and --pieces",
                remote.len()
            )));
        }
        drop(message);

        let len = args.size as usize;
        let mut pieces = buffers(args.pieces.into(), len, || endpoint.block())?;
        // One byte of it is left out.
        let shorter = remote.at(0, total as u64 - 1)?;
        let too_long = match endpoint.post_read(shorter, pieces) {
            Err(PostError::Refused { context, cause }) => {
                pieces = context;
                cause.to_string()
            }
            Err(error) => return Err(Failure::new(error.to_string())),
            Ok(()) => return Err(Failure::new("a READ was taken that is longer than its source")),
        };

        let began = Instant::now();
        endpoint.post_read(remote, pieces).map_err(refused)?;
        let pieces = done(endpoint.send_completion(args.patience()))?;
        let took = began.elapsed();
        check(&pieces, args)?;

        // An empty message says that the memory is needed no more.
        endpoint.post_send(Buffers::new()).map_err(refused)?;
        done(endpoint.send_completion(args.patience()))?;
        Ok(Found {
            device: endpoint.device_name(),
            too_early: self.too_early,
            advertised: format!(
                "{} bytes at {:#x} with the key {:#x}",
                remote.len(),
                remote.addr(),
                remote.rkey().to_raw()
            ),
            too_long,
            took,
        })
    }
}

/// A server whose memory is advertised. As long as this lives it can be read.
pub(super) struct Server<D: Driver> {
    endpoint: Endpoint<D, Buffers>,
    _memory: Shared,
}

/// Registers memory, fills it, connects, and says where it is.
pub(super) fn advertise<D: Driver>(
    mut prepared: Prepared<D, Buffers>,
    args: &Args,
) -> Result<Server<D>, Failure> {
    let mut content = vec![0; args.total()];
    pattern::fill(&mut content, ROUND);
    let memory = prepared.share(content.len(), Rights::READ_SOURCE)?;
    memory.write_at(0, &content)?;

    let mut endpoint = receiving(prepared, args)?;
    // Whole pages were registered; the client gets what it is to read.
    let wire = memory.advertise().at(0, content.len() as u64)?.to_wire();
    let mut message = buffers(1, wire.len(), || endpoint.block())?;
    for part in &mut message {
        part.copy_from_slice(&wire);
    }
    endpoint.post_send(message).map_err(refused)?;
    done(endpoint.send_completion(args.patience()))?;
    Ok(Server { endpoint, _memory: memory })
}

impl<D: Driver> Server<D> {
    /// Waits until the client says that it has what it wanted.
    pub(super) fn wait_for_the_end(mut self, args: &Args) -> Result<(), Failure> {
        done(self.endpoint.recv_completion(args.patience())).map(drop)
    }

    #[cfg(feature = "librdmacm")]
    pub(super) fn device_name(&self) -> String {
        self.endpoint.device_name()
    }
}

/// So many buffers of `len` bytes each.
fn buffers(
    count: usize,
    len: usize,
    mut next: impl FnMut() -> Option<Block>,
) -> Result<Buffers, Failure> {
    let parts = (0..count.min(8)).map_while(|_| Part::new(next()?, len).ok());
    let buffers: Buffers = parts.collect();
    if buffers.len() == count {
        Ok(buffers)
    } else {
        Err(Failure::new("the endpoint has no block left"))
    }
}

fn done(ended: Result<Ended<Buffers>, WaitError>) -> Result<Buffers, Failure> {
    let ended = ended.map_err(|error| Failure::new(error.to_string()))?;
    match ended.outcome {
        Outcome::Done(_) => Ok(ended.context),
        Outcome::Failed(failure) => Err(Failure::new(failure.to_string())),
        Outcome::Flushed | Outcome::Abandoned => {
            Err(Failure::new("the peer has ended the connection, or is gone"))
        }
    }
}

fn refused(error: PostError<Buffers>) -> Failure {
    Failure::new(error.to_string())
}

fn check(pieces: &Buffers, args: &Args) -> Result<(), Failure> {
    let bytes: Vec<u8> = pieces.iter().flat_map(|part| part.iter()).copied().collect();
    if bytes.len() != args.total() {
        return Err(Failure::new(format!(
            "{} bytes were read instead of {}",
            bytes.len(),
            args.total()
        )));
    }
    match pattern::first_wrong(&bytes, ROUND) {
        None => Ok(()),
        Some(at) => Err(Failure::new(format!(
            "byte {} of buffer {} is wrong ({:#04x})",
            at % args.size as usize,
            at / args.size as usize,
            bytes[at]
        ))),
    }
}
