//! The target: what it does for each client. It knows the hub, and nothing of the device behind it.

use std::ops::ControlFlow;
use std::time::Duration;

use nanoverbs::endpoint::{Driver, Side};
use nanoverbs::hub::{Event, Hub, Key, Peer};
use nanoverbs::nanoverbs_core::{Block, Ended, Outcome, op};
use nanoverbs::poller::Host;

use super::wire::{Ask, Wish, answer};
use super::{Args, MOST};
use crate::Failure;

/// What a request of the target's carries: its block, and what it is for.
pub(super) type Context = (Block, Task);

/// What a request of the target's is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Task {
    /// A receive for what a client asks.
    Ask,
    /// A block on its way to a client.
    Data,
    /// A block on its way from a client.
    Fetch(u32),
    /// The answer.
    Answer,
}

/// The blocks, and what was done with them.
pub(super) struct Target {
    store: Vec<u8>,
    size: usize,
    depth: usize,
    visits: Option<u32>,
    pub(super) clients: u32,
    pub(super) gone: u32,
    pub(super) loads: u64,
    pub(super) stores: u64,
}

impl Target {
    /// Room for the blocks of as many clients as there may be.
    pub(super) fn new(args: &Args) -> Self {
        let (size, depth) = (args.size(), args.depth());
        let store = vec![0; MOST * depth * size];
        let visits = args.visits;
        Self { store, size, depth, visits, clients: 0, gone: 0, loads: 0, stores: 0 }
    }

    /// A client's block with this number: each has as many as it may have requests under way.
    fn block(&mut self, client: Key, number: u32) -> Option<&mut [u8]> {
        let number = number as usize;
        let at = client.index() * self.depth + number;
        self.store.chunks_exact_mut(self.size).nth(at).filter(|_| number < self.depth)
    }

    /// What a client asks for.
    fn ask<D: Driver>(
        &mut self,
        mut peer: Peer<'_, D, Context>,
        block: Block,
        asked: Option<Ask>,
    ) -> Result<(), Failure> {
        // The next request may come at once.
        peer.post_recv((block, Task::Ask)).map_err(failed)?;
        let Ask { wish, number, memory } = asked.ok_or_else(|| Failure::new("it asks nonsense"))?;
        let memory = memory.at(0, self.size as u64)?;
        let mut data = peer.block().ok_or_else(|| Failure::new("no block is free"))?;
        let stored =
            self.block(peer.key(), number).ok_or_else(|| Failure::new("there is no such block"))?;
        match wish {
            Wish::Store => peer.post_read(memory, (data, Task::Fetch(number))).map_err(failed),
            Wish::Load => {
                data.copy_from_slice(stored);
                self.loads += 1;
                let mut said = peer.block().ok_or_else(|| Failure::new("no block is free"))?;
                answer(&mut said, number)?;
                // The answer stays behind the data: one doorbell, one completion.
                let mut chain = peer.reserve_sends(2).map_err(failed)?;
                chain.push(op::Write::new(memory), (data, Task::Data)).map_err(failed)?;
                let last = op::Send::new().signaled();
                chain.push(last, (said, Task::Answer)).map_err(failed)?;
                chain.submit().map_err(|error| Failure::new(error.to_string()))?;
                Ok(())
            }
        }
    }

    /// A block has come from a client.
    fn fetched<D: Driver>(
        &mut self,
        mut peer: Peer<'_, D, Context>,
        mut block: Block,
        number: u32,
    ) -> Result<(), Failure> {
        if let Some(stored) = self.block(peer.key(), number) {
            stored.copy_from_slice(&block);
        }
        self.stores += 1;
        answer(&mut block, number)?;
        peer.post_send((block, Task::Answer)).map_err(failed)
    }
}

impl<D: Driver> Host<D, Context, MOST> for Target {
    fn ended(
        &mut self,
        hub: &mut Hub<D, Context, MOST>,
        key: Key,
        _: Side,
        ended: Ended<Context>,
    ) -> ControlFlow<()> {
        let Ok(mut peer) = hub.peer(key) else { return ControlFlow::Continue(()) };
        let asked = ended.message().and_then(Ask::read);
        let (block, task) = ended.context;
        let went = match (ended.outcome, task) {
            (Outcome::Done(_), Task::Ask) => self.ask(peer, block, asked),
            (Outcome::Done(_), Task::Fetch(number)) => self.fetched(peer, block, number),
            // The block goes back to the pool.
            (Outcome::Done(_), Task::Data | Task::Answer) => Ok(()),
            (Outcome::Failed(_), _) => {
                peer.disconnect();
                Ok(())
            }
            // The end of the connection, of which the hub will tell.
            (Outcome::Flushed | Outcome::Abandoned, _) => Ok(()),
        };
        // A client that asks nonsense, or for more than it agreed on, is sent away.
        if let (Err(why), Ok(mut peer)) = (went, hub.peer(key)) {
            eprintln!("target: client {}: {why}", key.index());
            peer.disconnect();
        }
        ControlFlow::Continue(())
    }

    fn event(&mut self, hub: &mut Hub<D, Context, MOST>, event: Event<D>) -> ControlFlow<()> {
        match event {
            Event::Request(request) => {
                // One that cannot be had is refused, and the others go on.
                if let Err(why) = welcome(hub, request, self.depth) {
                    eprintln!("target: a client was refused: {why}");
                }
            }
            Event::Established(_) => self.clients += 1,
            Event::Ended { key, .. } | Event::Failed { key, .. } => {
                let _ = hub.close(key, Duration::ZERO, |_, ended| drop(ended));
                self.gone += 1;
                if self.visits.is_some_and(|visits| self.gone >= visits) {
                    return ControlFlow::Break(());
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Takes a client in, with a receive for each request that it may have under way.
fn welcome<D: Driver>(
    hub: &mut Hub<D, Context, MOST>,
    request: nanoverbs::hub::Request<D>,
    depth: usize,
) -> Result<(), Failure> {
    let mut joining = hub.accept(request)?;
    let blocks: Vec<_> = (0..depth).map_while(|_| joining.block()).collect();
    if blocks.len() < depth {
        return Err(Failure::new("no block is free"));
    }
    joining.receives_into(blocks.into_iter().map(|block| (block, Task::Ask)))?.start()?;
    Ok(())
}

fn failed(error: impl std::error::Error) -> Failure {
    Failure::new(error.to_string())
}
