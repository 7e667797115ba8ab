//! Both ends in this process, on the soft device.

use std::sync::atomic::AtomicU64;
use std::thread;

use nanoverbs::endpoint::{Endpoint, Idle, Soft, SoftDevice};
use nanoverbs::nanoverbs_core::Block;

use super::players::{Client, Server, Tally};
use super::report::{Report, Role};
use super::{Args, watch};
use crate::Failure;
use crate::cpu::{self, Cpus};

static DEVICE: SoftDevice = SoftDevice::new();

type End = Endpoint<Soft, Block>;

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
    let [client, server] = plan.options(args.inline, idle).soft_pair::<Block>(&DEVICE)?;
    let client = client.receives(plan.depth as usize)?.establish(patience)?;
    let server = server.receives(plan.depth as usize)?.establish(patience)?;
    let device = client.device_name();
    let tally = match seats.cpus[..] {
        [one] => alone(args, one, client, server)?,
        [one, other] => together(args, [one, other], client, server)?,
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
    args: &Args,
    cpus: [Option<usize>; 2],
    client: End,
    server: End,
) -> Result<Tally, Failure> {
    let (plan, patience, progress) = (args.plan(), args.patience(), AtomicU64::new(0));
    let client = Client::new(client, plan, args.inline, patience, &progress)?;
    let server = Server::new(server, plan, args.inline, patience, None)?;
    thread::scope(|scope| {
        let server =
            watch::start(scope, "server", move || cpu::pin(cpus[1]).and_then(|()| server.play()))?;
        let client =
            watch::start(scope, "client", move || cpu::pin(cpus[0]).and_then(|()| client.play()))?;
        match (watch::watch(client, &progress, plan.rounds()), watch::join(server)) {
            (Ok(tally), Ok(())) => Ok(tally),
            (Ok(_), Err(failure)) | (Err(failure), Ok(())) => Err(failure),
            (Err(client), Err(server)) => Err(client.cause(server)),
        }
    })
}

/// One thread for both ends: each ping is answered before its pong is waited for.
fn alone(args: &Args, cpu: Option<usize>, client: End, server: End) -> Result<Tally, Failure> {
    let (plan, patience, progress) = (args.plan(), args.patience(), AtomicU64::new(0));
    let mut client = Client::new(client, plan, args.inline, patience, &progress)?;
    let mut server = Server::new(server, plan, args.inline, patience, None)?;
    let play = move || {
        cpu::pin(cpu)?;
        while !client.is_done() {
            for _ in 0..client.send()? {
                server.answer()?;
            }
            client.receive()?;
            server.tidy()?;
        }
        server.finish()?;
        Ok(client.finish())
    };
    thread::scope(|scope| {
        let both = watch::start(scope, "both ends", play)?;
        watch::watch(both, &progress, plan.rounds())
    })
}
