//! One client: stores blocks of its own, loads them again, and compares.

use std::time::Duration;

use nanoverbs::endpoint::{Driver, Endpoint, Prepared, Shared};
use nanoverbs::memory::Rights;
use nanoverbs::nanoverbs_core::{Block, Outcome};

use super::Args;
use super::wire::{Ask, Wish, answered};
use crate::{Failure, pattern};

/// A connected client. It has as many blocks under way as its depth says.
pub(super) struct Client<D: Driver> {
    endpoint: Endpoint<D, Block>,
    /// A piece for each request under way, which the target reads and writes.
    memory: Shared,
    size: usize,
    /// For each piece what the target was asked for, or nothing any more.
    wishes: Vec<Option<Wish>>,
    /// Blocks that are yet to be stored.
    left: u32,
    /// What the next one is filled with; what each piece was.
    seed: u64,
    seeds: Vec<u64>,
    bytes: Vec<u8>,
    patience: Duration,
}

impl<D: Driver> Client<D> {
    /// Connects, with a receive for each answer.
    pub(super) fn new(
        prepared: Prepared<D, Block>,
        args: &Args,
        index: u16,
    ) -> Result<Self, Failure> {
        let (depth, size) = (args.depth(), args.size());
        let mut endpoint = prepared.receives(depth)?.establish(args.patience())?;
        let rights = Rights::READ_SOURCE.and(Rights::WRITE_TARGET);
        let memory = endpoint.share(depth * size, rights)?;
        let mut client = Self {
            endpoint,
            memory,
            size,
            wishes: vec![None; depth],
            left: args.requests,
            seed: u64::from(index) << 32,
            seeds: vec![0; depth],
            bytes: vec![0; size],
            patience: args.patience(),
        };
        (0..depth).try_for_each(|piece| client.store(piece))?;
        Ok(client)
    }

    pub(super) fn is_done(&self) -> bool {
        self.left == 0 && self.wishes.iter().all(Option::is_none)
    }

    /// Deals with the answers that are there. Says how many.
    pub(super) fn step(&mut self) -> Result<usize, Failure> {
        while let Some(sent) = self.endpoint.try_send_completion().map_err(failed)? {
            check(sent.outcome)?;
        }
        let mut count = 0;
        while let Some(ended) = self.endpoint.try_recv_completion().map_err(failed)? {
            check(ended.outcome)?;
            let number = ended.message().and_then(answered);
            self.endpoint.post_recv(ended.context).map_err(failed)?;
            self.answer(number.unwrap_or(u32::MAX) as usize)?;
            count += 1;
        }
        Ok(count)
    }

    /// Looks whether the target has ended the connection: then what is posted here comes back flushed. Makes
    /// system calls.
    pub(super) fn look(&mut self) {
        let _ = self.endpoint.has_ended();
    }

    fn answer(&mut self, piece: usize) -> Result<(), Failure> {
        match self.wishes.get_mut(piece).and_then(Option::take) {
            None => Err(Failure::new("the target answers what nobody asked")),
            Some(Wish::Store) => {
                // What is there now shall come from the target.
                self.memory.write_at(piece * self.size, &vec![0; self.size])?;
                self.ask(piece, Wish::Load)
            }
            Some(Wish::Load) => {
                self.memory.read_at(piece * self.size, &mut self.bytes)?;
                if let Some(at) = pattern::first_wrong(&self.bytes, self.seeds[piece]) {
                    return Err(Failure::new(format!(
                        "byte {at} of block {piece} is not what was stored"
                    )));
                }
                self.store(piece)
            }
        }
    }

    /// Stores the next block, if there is one.
    fn store(&mut self, piece: usize) -> Result<(), Failure> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(()) };
        self.left = left;
        self.seed += 1;
        self.seeds[piece] = self.seed;
        pattern::fill(&mut self.bytes, self.seed);
        self.memory.write_at(piece * self.size, &self.bytes)?;
        self.ask(piece, Wish::Store)
    }

    fn ask(&mut self, piece: usize, wish: Wish) -> Result<(), Failure> {
        let offset = (piece * self.size) as u64;
        let memory = self.memory.advertise().at(offset, self.size as u64)?;
        let number = piece as u32;
        // An answer may be faster than the news that its request was sent.
        let mut block = loop {
            match self.endpoint.block() {
                Some(block) => break block,
                None => {
                    let sent = self.endpoint.send_completion(self.patience).map_err(failed)?;
                    check(sent.outcome)?;
                }
            }
        };
        Ask { wish, number, memory }.write(&mut block)?;
        self.endpoint.post_send(block).map_err(failed)?;
        self.wishes[piece] = Some(wish);
        Ok(())
    }
}

fn check(outcome: Outcome) -> Result<(), Failure> {
    match outcome {
        Outcome::Done(_) => Ok(()),
        // The end of a connection may catch up with what is on its way.
        Outcome::Failed(failure) => Err(Failure::peer_gone(format!("{failure}; {GONE}"))),
        Outcome::Flushed | Outcome::Abandoned => Err(Failure::peer_gone(GONE)),
    }
}

fn failed(error: impl std::error::Error) -> Failure {
    Failure::new(error.to_string())
}

const GONE: &str =
    "the target has ended the connection; give both ends the same --size and --depth";
