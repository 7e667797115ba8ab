//! Server and clients in one process, on the soft device: the steps of a request, one by one.

use std::time::Duration;

use nanoverbs::Deadline;
use nanoverbs::nanoverbs_core::soft::{CompletionQueue, Device, QpConfig, SendEnd};
use nanoverbs::nanoverbs_core::{
    Access, BlockHeader, Completions, Domain, Part, Pool, PoolRoot, RemoteRegion, SendConfig,
    SendQueue, SendSlots, SendStaging, op,
};

use super::{Args, MOST_SOFT, Seen, Watch};
use crate::Failure;

const QPS: usize = 2 * MOST_SOFT as usize;
/// Additions that a client has under way.
const DEPTH: usize = 16;

type Dev = Device<QPS, DEPTH>;

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(error.to_string())
}

pub(super) fn run(args: &Args) -> Result<(u64, Vec<Seen>), Failure> {
    // It lives as long as the program, as a device does.
    let device: &'static Dev = Box::leak(Box::new(Device::new()));
    let domain = device.domain();
    let access = Access::LOCAL_WRITE.with(Access::REMOTE_ATOMIC);
    let counter = Box::leak(Box::new([0_u64; 1]));
    let counter = device.register_shared(domain, counter, access).map_err(failed)?;
    let remote = counter.advertise();

    let mut clients = Vec::new();
    let mut servers = Vec::new();
    for _ in 0..args.clients {
        let (sent, idle) = (device.completion_queue(DEPTH), device.completion_queue(1));
        let (sent, idle) = (sent.map_err(failed)?, idle.map_err(failed)?);
        let config = QpConfig::new(domain);
        let client = device.queue_pair(config, &sent, &sent).map_err(failed)?;
        // The server's ends never post: its program does not notice.
        let server = device.queue_pair(config, &idle, &idle).map_err(failed)?;
        client.control.connect(&server.control).map_err(failed)?;
        servers.push((server, idle));
        clients.push((client, sent));
    }
    let seen = std::thread::scope(|scope| {
        let threads: Vec<_> = clients
            .into_iter()
            .map(|(client, sent)| {
                // Its control stays here: the queue pair is destroyed with it, when all is done.
                let thread =
                    scope.spawn(move || count(args, device, domain, client.send, sent, remote));
                (client.control, thread)
            })
            .collect();
        let mut seen = Vec::new();
        for (_control, thread) in threads {
            seen.push(thread.join().map_err(|_| Failure::new("a client has panicked"))??);
        }
        Ok::<_, Failure>(seen)
    })?;
    let mut bytes = [0; 8];
    counter.read_at(0, &mut bytes)?;
    Ok((u64::from_ne_bytes(bytes), seen))
}

/// One client: keeps as many additions under way as fit.
fn count(
    args: &Args,
    device: &'static Dev,
    domain: Domain,
    port: SendEnd<'static, DEPTH>,
    sent: CompletionQueue<'static, QPS, DEPTH>,
    remote: RemoteRegion,
) -> Result<Seen, Failure> {
    // 1. Set up: memory, and a place for every request.
    let memory = Box::leak(vec![0; DEPTH * 8].into_boxed_slice());
    let region = device.register(domain, memory).map_err(failed)?;
    let headers: Vec<_> = (0..DEPTH).map(|_| BlockHeader::new()).collect();
    let root = Box::leak(Box::new(PoolRoot::new()));
    let mut pool = Pool::new(root, Vec::leak(headers), region, 8).map_err(failed)?;
    let (mut slots, mut staging) = (SendSlots::<Part, DEPTH>::new(), SendStaging::<1, 1>::new());
    let config = SendConfig::new(domain).reads(DEPTH as u8);
    let mut sends = SendQueue::new(port, &mut slots, config).map_err(failed)?;
    let mut completions = Completions::<_, DEPTH>::new(sent, DEPTH as u32);
    let mut link = staging.link();
    sends.open();

    let patience = Deadline::after(Duration::from_secs(600));
    let (mut watch, mut posted, mut ended) = (Watch::new(args.step), 0, 0);
    while ended < args.rounds {
        // 2. to 4. Reserve, push, submit.
        while posted < args.rounds
            && let Some(block) = pool.allocate()
        {
            let add = op::FetchAdd::new(remote, args.step).signaled();
            let mut chain = sends.reserve(&mut link, 1).map_err(failed)?;
            chain.push(add, block.into()).map_err(failed)?;
            chain.submit().map_err(failed)?;
            posted += 1;
        }
        // 6. and 7. Poll, retire, take. The block goes back to its pool with the drop.
        for completion in completions.poll().map_err(failed)? {
            sends.retire(completion).map_err(failed)?;
        }
        let before = ended;
        while let Some(request) = sends.take() {
            match (request.outcome.success(), request.context.word()) {
                (Some(_), Some(value)) => watch.value(value)?,
                _ => return Err(Failure::new(format!("it ended so: {:?}", request.outcome))),
            }
            ended += 1;
        }
        if ended == before {
            // Another thread drives the device just now.
            std::thread::yield_now();
            if patience.has_passed() {
                return Err(Failure::new("the soft device has not answered in ten minutes"));
            }
        }
    }
    Ok(watch.end())
}
