//! Memory of either end that the other one writes or reads.
//!
//! It has places for messages, used in turn. A message lies at the end of its place, so that the last word of
//! memory has its last byte. That byte of a message that is written is the turn, which is never the same
//! twice in a row: who looks at the memory knows by it that the message has arrived.
//!
//! Invariant: a place is not written again before its message has been looked at, because there are twice as
//! many of them as messages under way.

use nanoverbs::endpoint::{Driver, Prepared, Shared};
use nanoverbs::memory::Rights;
use nanoverbs::nanoverbs_core::{InOrder, PolledFlag};

use super::*;

/// Which end it is the memory of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::pingpong) enum Role {
    /// The one that begins.
    Client,
    /// The other one.
    Server,
}

/// Memory of an end, and where the other's is.
pub(in crate::pingpong) struct Mailbox {
    plan: Plan,
    own: Option<Shared>,
    peer: Option<RemoteRegion>,
    /// A copy of what arrived: the memory itself is looked at by copy only.
    copy: Vec<u8>,
}

impl Mailbox {
    /// As much memory as the plan wants of this end.
    pub(in crate::pingpong) fn new<D: Driver>(
        prepared: &mut Prepared<D, Message>,
        plan: Plan,
        role: Role,
    ) -> Result<Self, Failure> {
        let rights = match (plan.game, role) {
            (Game::Write | Game::WriteInOrder, _) => Some(Rights::WRITE_TARGET),
            (Game::Read, Role::Server) => Some(Rights::READ_SOURCE),
            _ => None,
        };
        let len = plan.places() * plan.stride();
        let own = rights.map(|rights| prepared.share(len, rights)).transpose()?;
        let copy = vec![0; if plan.game.writes() { plan.size } else { 0 }];
        let mailbox = Self { plan, own, peer: None, copy };
        if let (Game::Read, Some(own)) = (plan.game, &mailbox.own) {
            let mut message = vec![0; plan.size];
            pattern::fill(&mut message, 0);
            own.write_at(mailbox.at(0), &message)?;
        }
        Ok(mailbox)
    }

    /// What the other end has to know, if it has to.
    pub(in crate::pingpong) fn advertise(&self) -> Result<Option<RemoteRegion>, Failure> {
        let len = (self.plan.places() * self.plan.stride()) as u64;
        Ok(self.own.as_ref().map(|own| own.advertise().at(0, len)).transpose()?)
    }

    /// Where the other's memory is.
    pub(in crate::pingpong) fn reaches(&mut self, peer: Option<RemoteRegion>) {
        self.peer = peer;
    }

    /// Makes the message of a round.
    pub(super) fn fill(&self, message: &mut [u8], round: u64) {
        match self.plan.game {
            // Nothing of an earlier READ may be taken for this one's.
            Game::Read => message.fill(0),
            Game::Write | Game::WriteInOrder => {
                pattern::fill(message, round);
                if let Some(last) = message.last_mut() {
                    *last = self.turn(round);
                }
            }
            Game::Send | Game::Rate => pattern::fill(message, round),
        }
    }

    /// The place of a round's message in the other's memory.
    #[inline]
    pub(super) fn remote(&self, round: u64) -> Result<RemoteRegion, Failure> {
        match self.peer {
            Some(peer) => Ok(peer.at(self.at(round) as u64, self.plan.size as u64)?),
            None => Err(Failure::new("the peer has not said where its memory is")),
        }
    }

    /// Looks for the message of a round, so many times at most, and says whether it is here: its last byte is,
    /// and with it the others.
    #[inline]
    pub(super) fn polled(&self, round: u64, polls: u32, idle: Idle) -> Result<bool, Failure> {
        const WORD: usize = size_of::<usize>();
        let (last_word, turn) = (self.at(round) + self.plan.size - WORD, self.turn(round));
        // The program was told `--in-order`.
        let order = InOrder::said_by_the_device();
        let flag = PolledFlag::new(self.own()?, last_word, order)
            .map_err(|error| Failure::new(error.to_string()))?;
        for _ in 0..polls {
            if flag.load().to_ne_bytes()[WORD - 1] == turn {
                return Ok(true);
            }
            if idle != Idle::Spin {
                std::thread::yield_now();
            }
        }
        Ok(false)
    }

    /// The message of a round, and its first byte that is not as it was sent.
    pub(super) fn look_at(&mut self, round: u64) -> Result<(&[u8], Option<usize>), Failure> {
        let (at, turn) = (self.at(round), self.turn(round));
        let Some(own) = &self.own else { return Err(no_memory()) };
        own.read_at(at, &mut self.copy)?;
        let Some((last, rest)) = self.copy.split_last() else { return Ok((&self.copy, None)) };
        let wrong = pattern::first_wrong(rest, round);
        Ok((&self.copy, wrong.or((*last != turn).then_some(rest.len()))))
    }

    /// Where the message of a round begins, in bytes from the memory's first.
    fn at(&self, round: u64) -> usize {
        let (places, stride) = (self.plan.places().max(1) as u64, self.plan.stride());
        (round % places) as usize * stride + (stride - self.plan.size)
    }

    /// How often its place has been written, the round's message included.
    fn turn(&self, round: u64) -> u8 {
        (round / self.plan.places().max(1) as u64 + 1) as u8
    }

    #[cfg(test)]
    pub(super) const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Forgets what is to be read.
    #[cfg(test)]
    pub(super) fn spoil(&self) {
        self.own().unwrap().write_at(self.at(0), &vec![0; self.plan.size]).unwrap();
    }

    fn own(&self) -> Result<&Shared, Failure> {
        self.own.as_ref().ok_or_else(no_memory)
    }
}

fn no_memory() -> Failure {
    Failure::new("this end has no memory that a message could be in")
}
