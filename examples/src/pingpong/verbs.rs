//! One end in this process, the other in another, on a real device.

use std::sync::atomic::AtomicU64;
use std::thread;

use nanoverbs::Deadline;
use nanoverbs::cm::{ConnectError, ConnectParams, Listener, PrivateData, Request, RnrRetry};
use nanoverbs::endpoint::{EndpointError, Idle};
use nanoverbs::nanoverbs_core::RemoteRegion;

use super::players::{self, Mailbox, Message, Role as End, Setup};
use super::report::{Report, Role};
use super::{Args, Game, Plan, watch};
use crate::cpu::{self, Cpus};
use crate::{Failure, Place};

/// Precedes the words of a refusal.
const SORRY: &[u8; 8] = b"nvsorry1";

/// Waits for a client, plays with it, and is over.
pub(super) fn listen(args: &Args, place: &Place) -> Result<Report, Failure> {
    let patience = args.patience();
    let listener = Listener::bind(place.resolve()?)?;
    let (cpu, idle) = seat(args, 1)?;
    eprintln!("pingpong: listening on {}", listener.local_addr());
    let (request, plan) = agreed(args, &listener, Deadline::after(patience))?;
    let peer = request.peer_addr();
    let clients = memory(request.private_data().as_bytes());
    // Nothing here is in a hurry while the client reads.
    let idle = if plan.game == Game::Read { Idle::SpinThenWait { spins: 0 } } else { idle };
    let setup = Setup { plan, inline: args.inline, patience, idle };
    let options = plan.options(args.inline, idle).params(params(&plan));
    let mut endpoint = options.accept_request::<Message>(request)?;
    let mut mailbox = Mailbox::new(&mut endpoint, plan, End::Server)?;
    mailbox.reaches(clients);
    // The answer is the plan once more, so that the client knows whom it has reached.
    endpoint.send_along(&introduction(&plan, mailbox.advertise()?));
    let endpoint = endpoint.receives(plan.receives())?.establish(patience)?;
    let device = endpoint.device_name();
    let progress = AtomicU64::new(0);
    thread::scope(|scope| {
        let counter = &progress;
        let play = move || {
            cpu::pin(cpu)?;
            players::serve(endpoint, mailbox, setup, Some(counter))
        };
        let server = watch::start(scope, "server", play)?;
        watch::watch(server, &progress, plan.rounds())
    })?;
    Ok(Report {
        device,
        role: Role::Server,
        peer: Some(peer),
        plan,
        inline: args.inline,
        sleeps: idle != Idle::Spin,
        cpus: vec![cpu],
        tally: None,
    })
}

/// The next request of a client that wants to play what this side was told to, if it was.
fn agreed(
    args: &Args,
    listener: &Listener,
    deadline: Deadline,
) -> Result<(Request, Plan), Failure> {
    loop {
        let request = listener.accept(deadline)?;
        let peer = request.peer_addr();
        let Some(plan) = Plan::from_wire(request.private_data().as_bytes()) else {
            eprintln!("pingpong: {peer} is not a pingpong of this version, and was refused");
            refuse(request, "this is a pingpong, and no request of one came");
            continue;
        };
        if let Some(contradiction) = plan.contradiction(args) {
            refuse(request, &contradiction);
            return Err(Failure::new(format!(
                "the client {peer} was told something else: {contradiction}"
            )));
        }
        return Ok((request, plan));
    }
}

fn refuse(request: Request, words: &str) {
    let mut data = SORRY.to_vec();
    data.extend_from_slice(words.as_bytes());
    data.truncate(PrivateData::MAX_REJECT);
    // A peer that has gone meanwhile needs no refusal.
    let _ = request.reject(&data);
}

/// Plays with the server at `place`.
pub(super) fn connect(args: &Args, place: &Place) -> Result<Report, Failure> {
    let (plan, patience) = (args.plan(), args.patience());
    let peer = place.resolve()?;
    let (cpu, idle) = seat(args, 0)?;
    let setup = Setup { plan, inline: args.inline, patience, idle };
    let options = plan.options(args.inline, idle).params(params(&plan));
    let mut endpoint = options.connect::<Message>(peer, patience)?;
    let mut mailbox = Mailbox::new(&mut endpoint, plan, End::Client)?;
    endpoint.send_along(&introduction(&plan, mailbox.advertise()?));
    let endpoint = endpoint.receives(plan.receives())?.establish(patience).map_err(refused)?;
    if Plan::from_wire(endpoint.private_data()) != Some(plan) {
        return Err(Failure::new(format!(
            "the program on {peer} is not a pingpong of this version"
        )));
    }
    mailbox.reaches(memory(endpoint.private_data()));
    let device = endpoint.device_name();
    let progress = AtomicU64::new(0);
    let tally = thread::scope(|scope| {
        let counter = &progress;
        let play = move || {
            cpu::pin(cpu)?;
            players::lead(endpoint, mailbox, setup, counter)
        };
        let client = watch::start(scope, "client", play)?;
        watch::watch(client, &progress, plan.rounds())
    })?;
    Ok(Report {
        device,
        role: Role::Client,
        peer: Some(peer),
        plan,
        inline: args.inline,
        sleeps: idle != Idle::Spin,
        cpus: vec![cpu],
        tally: Some(tally),
    })
}

/// What either end sends along: the plan, and where its memory is if it has some.
fn introduction(plan: &Plan, memory: Option<RemoteRegion>) -> Vec<u8> {
    let mut data = plan.to_wire().to_vec();
    if let Some(memory) = memory {
        data.extend(memory.to_wire());
    }
    data
}

/// Where the memory is of who has sent this along. One that is none makes WRITEs and READs fail.
fn memory(introduction: &[u8]) -> Option<RemoteRegion> {
    RemoteRegion::from_wire(introduction.get(Plan::WIRE_LEN..)?.first_chunk()?).ok()
}

fn params(plan: &Plan) -> ConnectParams {
    let params = ConnectParams::new();
    // Who only sends is sooner done than the other, and waits for it.
    if plan.game == Game::Rate { params.rnr_retry(RnrRetry::FOREVER) } else { params }
}

/// A refusal in the server's own words, where it has sent some.
fn refused(error: EndpointError) -> Failure {
    if let EndpointError::Connect(ConnectError::Rejected { peer, private_data: Some(data) }) =
        &error
        && let Some(words) = data.as_bytes().strip_prefix(SORRY)
    {
        let len = words.iter().position(|&byte| byte == 0).unwrap_or(words.len());
        let words = String::from_utf8_lossy(&words[..len]);
        return Failure::new(format!("the server {peer} refused: {words}"));
    }
    error.into()
}

/// The processor of this end, and how it waits. The two ends have different ones, in case that they
/// are on one machine.
fn seat(args: &Args, end: usize) -> Result<(Option<usize>, Idle), Failure> {
    let allowed = cpu::allowed()?;
    let cpu = match args.cpu.clone().unwrap_or_default() {
        Cpus::None => None,
        Cpus::List(list) => list.first().copied(),
        Cpus::Auto => allowed.get(end).or(allowed.first()).copied(),
    };
    cpu::check(&[cpu])?;
    Ok((cpu, args.idle(allowed.len() >= 2)))
}
