//! Over librdmacm, with endpoints: a server that only waits, and clients with a thread each.

use std::net::SocketAddr;
use std::time::Duration;

use nanoverbs::Deadline;
use nanoverbs::cm::Listener;
use nanoverbs::endpoint::{Endpoint, Options, PostError, Verbs, WaitError};
use nanoverbs::memory::Rights;
use nanoverbs::nanoverbs_core::{Part, RemoteRegion};

use super::{Args, Seen, Watch};
use crate::Failure;

/// How long one end waits for the other.
const PATIENCE: Duration = Duration::from_secs(60);

fn options() -> Options {
    Options::new().depth(8, 8).blocks(8, 64)
}

fn soon() -> Deadline {
    Deadline::after(PATIENCE)
}

fn refused(error: &PostError<Part>) -> Failure {
    Failure::new(error.to_string())
}

fn gone(error: WaitError) -> Failure {
    match error {
        WaitError::Disconnected => Failure::peer_gone("the other end has gone"),
        error => Failure::new(error.to_string()),
    }
}

/// Shares a counter, tells every client where it is, and looks at it when all have gone.
pub(super) fn serve(args: &Args, addr: SocketAddr) -> Result<u64, Failure> {
    let listener = Listener::bind(addr)?;
    let mut counter = None;
    let mut clients: Vec<Endpoint<Verbs, Part>> = Vec::new();
    for _ in 0..args.clients {
        // Its receive is for the word that the client has done.
        let ready = options().accept(&listener, Deadline::NEVER)?.receives(1)?;
        let mut client = ready.establish(soon())?;
        // One memory for all: the connections of a device share a protection domain.
        let shared = match &counter {
            Some(shared) => shared,
            None => counter.insert(client.share(8, Rights::ATOMIC_TARGET)?),
        };
        let wire = shared.advertise().to_wire();
        let block = client.block().ok_or_else(|| Failure::new("no block is left"))?;
        let mut message =
            Part::new(block, wire.len()).map_err(|_| Failure::new("a short block"))?;
        message.copy_from_slice(&wire);
        client.post_send(message).map_err(|error| refused(&error))?;
        clients.push(client);
    }
    for client in &mut clients {
        let told = client.send_completion(soon()).map_err(gone)?;
        let done = client.recv_completion(Deadline::NEVER).map_err(gone)?;
        if !told.outcome.is_done() || !done.outcome.is_done() {
            return Err(Failure::peer_gone("a client has gone before it was done"));
        }
    }
    let mut bytes = [0; 8];
    if let Some(counter) = &counter {
        counter.read_at(0, &mut bytes)?;
    }
    Ok(u64::from_ne_bytes(bytes))
}

/// Runs the clients, a thread each.
pub(super) fn count(args: &Args, addr: SocketAddr) -> Result<Vec<Seen>, Failure> {
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..args.clients).map(|_| scope.spawn(move || client(args, addr))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| Failure::new("a client has panicked"))?)
            .collect()
    })
}

fn client(args: &Args, addr: SocketAddr) -> Result<Seen, Failure> {
    let ready = options().connect::<Part>(addr, soon())?.receives(1)?;
    let mut end = ready.establish(soon())?;
    let told = end.recv_completion(soon()).map_err(gone)?;
    let wire: Option<&[u8; RemoteRegion::WIRE_LEN]> = told.context.first_chunk();
    let (true, Some(wire)) = (told.outcome.is_done(), wire) else {
        return Err(Failure::peer_gone("the server has not said where its counter is"));
    };
    let remote = RemoteRegion::from_wire(wire)?;
    let mut word = told.context;
    word.set_len(8);
    let mut watch = Watch::new(args.step);
    for _ in 0..args.rounds {
        end.post_fetch_add(remote, args.step, word).map_err(|error| refused(&error))?;
        let ended = end.send_completion(soon()).map_err(gone)?;
        word = ended.context;
        match (ended.outcome.success(), word.word()) {
            (Some(_), Some(value)) => watch.value(value)?,
            _ => return Err(Failure::new(format!("an addition ended so: {:?}", ended.outcome))),
        }
    }
    end.post_send(word).map_err(|error| refused(&error))?;
    let told = end.send_completion(soon()).map_err(gone)?;
    if !told.outcome.is_done() {
        return Err(Failure::peer_gone("the server has gone before it was told"));
    }
    Ok(watch.end())
}
