//! What the loop has: channels, queues, memory, and the steps and connections by their names.

use std::collections::HashMap;
use std::error::Error;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use nanoverbs::cm::{
    Accepting, ConnectParams, Connecting, Connector, EventChannel, ListenOptions, Listener,
    Resolving, Step, Token,
};
use nanoverbs::memory::{LocalMemory, Pages};
use nanoverbs::nanoverbs_core::{
    Armed, BlockHeader, Completions, Group, Pool, PoolRoot, RecvStaging, Route, SendStaging,
};
use nanoverbs::port::PollPort;
use nanoverbs::{
    CompletionChannel, CompletionQueue, Device, ProtectionDomain, QueuePair, QueuePairOptions,
};

use crate::peer::{DEPTH, Links, Peer};

/// Connections at a time, of both ends.
const MOST: usize = 256;
const BLOCK: usize = 64;
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection on its way.
enum Stage {
    Resolving(Resolving),
    Connecting(Connecting, usize),
    Accepting(Box<Accepting>, usize),
    Connected(usize),
}

/// Everything of the loop.
pub(crate) struct Hub {
    peers: Vec<Option<Peer>>,
    stages: HashMap<Token, Stage>,
    group: Box<Group<MOST>>,
    completions: Completions<PollPort, 32>,
    queue: Arc<CompletionQueue>,
    wakes: Arc<CompletionChannel>,
    pool: Pool,
    links: Links,
    domain: Arc<ProtectionDomain>,
    device: Arc<Device>,
    listener: Listener,
    channel: EventChannel,
    messages: u32,
    answers: u32,
    params: ConnectParams,
}

impl Hub {
    pub(crate) fn new(addr: SocketAddr, messages: u32) -> Result<Self, Box<dyn Error>> {
        let channel = EventChannel::new()?;
        let listener = ListenOptions::new().on(&channel).bind(addr)?;
        let device = listener.device()?.ok_or("listen at the address of one device")?;
        let domain = device.domain()?;
        let wakes = CompletionChannel::new(&device)?;
        let depth = (2 * MOST * DEPTH) as u32;
        let queue = CompletionQueue::new(&device, depth, Some(&wakes))?;
        let blocks = 2 * MOST * DEPTH;
        let memory = LocalMemory::register(Pages::new(blocks * BLOCK)?, &domain)?;
        let headers: Box<[_]> = (0..blocks).map(|_| BlockHeader::new()).collect();
        let (root, headers) = (Box::leak(Box::new(PoolRoot::new())), Box::leak(headers));
        let pool = Pool::new(root, headers, memory.into_region(), BLOCK)
            .map_err(|refused| refused.cause)?;
        let (send, recv) = (Box::new(SendStaging::new()), Box::new(RecvStaging::new()));
        Ok(Self {
            peers: (0..MOST).map(|_| None).collect(),
            stages: HashMap::new(),
            group: Box::new(Group::new()),
            completions: Completions::new(queue.poll_port()?, depth),
            queue,
            wakes,
            pool,
            links: Links { send: Box::leak(send).link(), recv: Box::leak(recv).link() },
            domain,
            device,
            listener,
            channel,
            messages,
            answers: 0,
            params: ConnectParams::new(),
        })
    }

    /// What epoll shall watch.
    pub(crate) fn descriptors(&self) -> [BorrowedFd<'_>; 3] {
        [self.channel.as_fd(), self.wakes.as_fd(), self.device.as_fd()]
    }

    /// Begins one more connection.
    pub(crate) fn connect(&mut self) -> Result<(), Box<dyn Error>> {
        let connector = Connector::new().on(&self.channel);
        let step = connector.start(self.listener.local_addr(), PATIENCE)?;
        self.stages.insert(step.token(), Stage::Resolving(step));
        Ok(())
    }

    /// Whether a connection stands, or is on its way.
    pub(crate) fn is_busy(&self) -> bool {
        !self.stages.is_empty()
    }

    pub(crate) fn answers(&self) -> u32 {
        self.answers
    }

    /// Takes each connection that something has happened to one step further.
    pub(crate) fn steps(&mut self) -> Result<(), Box<dyn Error>> {
        while let Some(token) = self.channel.poll_token()? {
            if token == self.listener.token() {
                self.requests()?;
            } else if let Some(stage) = self.stages.remove(&token) {
                let stage = self.advance(stage)?;
                self.stages.insert(token, stage);
            }
        }
        self.bury();
        Ok(())
    }

    fn requests(&mut self) -> Result<(), Box<dyn Error>> {
        while let Some(request) = self.listener.poll_request()? {
            let (queue, options) = (&self.queue, options());
            let incoming = request.create_queue_pair(&self.domain, queue, queue, options)?;
            let at = self.seat(incoming.queue_pair(), None)?;
            let step = incoming.start(&self.params)?;
            self.stages.insert(step.token(), Stage::Accepting(Box::new(step), at));
        }
        Ok(())
    }

    fn advance(&mut self, stage: Stage) -> Result<Stage, Box<dyn Error>> {
        let (connection, at) = match stage {
            Stage::Resolving(step) => {
                let route = match step.poll()? {
                    Step::Done(route) => route,
                    Step::Pending(step) => return Ok(Stage::Resolving(step)),
                };
                let (queue, options) = (&self.queue, options());
                let outgoing = route.create_queue_pair(&self.domain, queue, queue, options)?;
                let at = self.seat(outgoing.queue_pair(), Some(self.messages))?;
                return Ok(Stage::Connecting(outgoing.start(&self.params)?, at));
            }
            Stage::Connecting(step, at) => match step.poll()? {
                Step::Done(connection) => (connection, at),
                Step::Pending(step) => return Ok(Stage::Connecting(step, at)),
            },
            Stage::Accepting(step, at) => match step.poll()? {
                Step::Done(connection) => (connection, at),
                Step::Pending(step) => return Ok(Stage::Accepting(Box::new(step), at)),
            },
            Stage::Connected(at) => {
                if let Some(peer) = &mut self.peers[at] {
                    peer.look()?;
                }
                return Ok(Stage::Connected(at));
            }
        };
        if let Some(peer) = &mut self.peers[at] {
            peer.connected(connection, &mut self.pool, &mut self.links)?;
        }
        Ok(Stage::Connected(at))
    }

    /// Makes a queue pair a member of the completion queue's group.
    fn seat(
        &mut self,
        queue_pair: &Arc<QueuePair>,
        messages: Option<u32>,
    ) -> Result<usize, Box<dyn Error>> {
        let depth = DEPTH as u32;
        let joined = self.group.join(&mut self.completions, depth, depth)?;
        let at = joined.member.index();
        let (pool, links) = (&mut self.pool, &mut self.links);
        self.peers[at] = Some(Peer::new(queue_pair, joined, messages, pool, links)?);
        Ok(at)
    }

    /// Gives out completions until there is none and the next one wakes.
    pub(crate) fn completions(&mut self) -> Result<(), Box<dyn Error>> {
        self.wakes.drain()?;
        loop {
            for completion in self.completions.poll()? {
                match self.group.route(&completion) {
                    Route::Send(at) => {
                        if let Some(peer) = &mut self.peers[at] {
                            peer.sent(completion)?;
                        }
                    }
                    Route::Recv(at) => {
                        if let Some(peer) = &mut self.peers[at] {
                            let (pool, links) = (&mut self.pool, &mut self.links);
                            self.answers += peer.received(completion, pool, links)?;
                        }
                    }
                    Route::Stale => {}
                }
            }
            self.bury();
            if self.completions.arm(false)? == Armed::Quiet {
                return Ok(());
            }
        }
    }

    /// Lets go of the connections that have ended and have nothing in flight.
    fn bury(&mut self) {
        let (peers, group) = (&mut self.peers, &mut self.group);
        self.stages.retain(|_, stage| {
            let Stage::Connected(at) = stage else { return true };
            let Some(peer) = peers[*at].take_if(|peer| peer.is_over()) else { return true };
            // The queue pair first, then the membership.
            group.leave(peer.into_member()).is_err()
        });
    }

    /// What the device has to say; what that ends is closed when it is told.
    pub(crate) fn device_events(&mut self) -> Result<(), Box<dyn Error>> {
        while let Some(event) = self.device.poll_event()? {
            eprintln!("{}: {:?} of {:?}", self.device.name(), event.kind, event.subject);
        }
        Ok(())
    }
}

fn options() -> QueuePairOptions {
    QueuePairOptions::new(DEPTH as u32, DEPTH as u32)
}
