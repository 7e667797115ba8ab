//! Both ends in this process, on the soft device.

use std::sync::atomic::AtomicU64;
use std::thread;

use nanoverbs::endpoint::{Endpoint, Idle, Soft, SoftDevice};

use super::players::{
    Client, Mailbox, Message, Receiver, Role as End, Sender, Server, Setup, Tally,
};
use super::report::{Report, Role};
use super::{Args, Game, players, watch};
use crate::Failure;
use crate::cpu::{self, Cpus};

static DEVICE: SoftDevice = SoftDevice::new();

/// What an end plays on.
type Ready = (Endpoint<Soft, Message>, Mailbox);

/// Where the players sit.
struct Seats {
    /// One for each thread.
    cpus: Vec<Option<usize>>,
    /// Whether each thread has a processor of its own.
    is_spacious: bool,
}

impl Seats {
    fn new(args: &Args) -> Result<Self, Failure> {
        let allowed = cpu::allowed()?;
        let listed = match &args.cpu {
            Some(Cpus::List(list)) => Some(list.clone()),
            _ => None,
        };
        let threads = match (args.threads, &listed) {
            (Some(threads), _) => usize::from(threads),
            (None, Some(list)) => list.len(),
            (None, None) => allowed.len().clamp(1, 2),
        };
        let cpus: Vec<_> = match (&args.cpu, &listed) {
            (Some(Cpus::None), _) => vec![None; threads],
            (_, Some(list)) => list.iter().copied().map(Some).collect(),
            _ => allowed.iter().cycle().take(threads).copied().map(Some).collect(),
        };
        let is_shared = cpus.len() == 2 && cpus[0].is_some() && cpus[0] == cpus[1];
        Ok(Self { is_spacious: allowed.len() >= threads && !is_shared, cpus })
    }
}

pub(super) fn play(args: &Args) -> Result<Report, Failure> {
    let (plan, patience) = (args.plan(), args.patience());
    let seats = Seats::new(args)?;
    cpu::check(&seats.cpus)?;
    let idle = args.idle(seats.is_spacious);
    let setup = Setup { plan, inline: args.inline, patience, idle };
    let [mut client, mut server] = plan.options(args.inline, idle).soft_pair::<Message>(&DEVICE)?;
    let mut clients = Mailbox::new(&mut client, plan, End::Client)?;
    let mut servers = Mailbox::new(&mut server, plan, End::Server)?;
    clients.reaches(servers.advertise()?);
    servers.reaches(clients.advertise()?);
    let client = client.receives(plan.receives())?.establish(patience)?;
    let server = server.receives(plan.receives())?.establish(patience)?;
    let device = client.device_name();
    let (client, server) = ((client, clients), (server, servers));
    let tally = match (plan.game, &seats.cpus[..]) {
        (Game::Rate, [one]) => rate_alone(setup, *one, client, server)?,
        (_, [one]) => alone(setup, *one, client, server)?,
        (_, [one, other]) => together(setup, [*one, *other], client, server)?,
        _ => return Err(Failure::usage("one or two threads play")),
    };
    Ok(Report {
        device: format!("{device} (in this process, no hardware)"),
        role: Role::Both { threads: seats.cpus.len() },
        peer: None,
        plan,
        inline: args.inline,
        cpus: seats.cpus,
        sleeps: idle != Idle::Spin,
        tally: Some(tally),
    })
}

/// Two threads, one for each end.
fn together(
    setup: Setup,
    cpus: [Option<usize>; 2],
    client: Ready,
    server: Ready,
) -> Result<Tally, Failure> {
    let progress = AtomicU64::new(0);
    thread::scope(|scope| {
        let server = watch::start(scope, "server", move || {
            cpu::pin(cpus[1])?;
            let (endpoint, mailbox) = server;
            players::serve(endpoint, mailbox, setup, None)
        })?;
        let counter = &progress;
        let client = watch::start(scope, "client", move || {
            cpu::pin(cpus[0])?;
            let (endpoint, mailbox) = client;
            players::lead(endpoint, mailbox, setup, counter)
        })?;
        match (watch::watch(client, &progress, setup.plan.rounds()), watch::join(server)) {
            (Ok(tally), Ok(())) => Ok(tally),
            (Ok(_), Err(failure)) | (Err(failure), Ok(())) => Err(failure),
            (Err(client), Err(server)) => Err(client.cause(server)),
        }
    })
}

/// One thread for both ends: each ping is answered before its pong is waited for.
fn alone(setup: Setup, cpu: Option<usize>, client: Ready, server: Ready) -> Result<Tally, Failure> {
    let progress = AtomicU64::new(0);
    let mut client = Client::new(client.0, client.1, setup, &progress)?;
    let mut server = Server::new(server.0, server.1, setup, None)?;
    on_one_thread(setup, cpu, &progress, move || {
        while !client.is_done() {
            for _ in 0..client.send()? {
                server.answer()?;
            }
            client.receive()?;
            server.tidy()?;
        }
        client.say_goodbye()?;
        server.finish()?;
        Ok(client.finish())
    })
}

/// The same one way: what was sent is taken before more is sent.
fn rate_alone(
    setup: Setup,
    cpu: Option<usize>,
    sender: Ready,
    receiver: Ready,
) -> Result<Tally, Failure> {
    let progress = AtomicU64::new(0);
    let mut sender = Sender::new(sender.0, sender.1, setup, &progress)?;
    let mut receiver = Receiver::new(receiver.0, receiver.1, setup, None)?;
    on_one_thread(setup, cpu, &progress, move || {
        while !sender.is_done() {
            sender.send()?;
            receiver.take(None)?;
            sender.collect()?;
        }
        // All of it has arrived.
        while !receiver.is_done() {
            receiver.take(None)?;
        }
        let tally = sender.finish()?;
        receiver.finish()?;
        Ok(tally)
    })
}

fn on_one_thread(
    setup: Setup,
    cpu: Option<usize>,
    progress: &AtomicU64,
    play: impl FnOnce() -> Result<Tally, Failure> + Send,
) -> Result<Tally, Failure> {
    thread::scope(|scope| {
        let both = watch::start(scope, "both ends", move || cpu::pin(cpu).and_then(|()| play()))?;
        watch::watch(both, progress, setup.plan.rounds())
    })
}
