//! The two ends of a game. They know endpoints and nothing of the device behind them.
//!
//! A [`Client`] and a [`Server`] play there and back, a [`Sender`] and a [`Receiver`] one way; what they
//! have in common is a [`Player`]. Each is used by one thread, which may be the same for both.

mod client;
mod mailbox;
mod rate;
mod server;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use nanoverbs::Deadline;
use nanoverbs::endpoint::{Driver, Endpoint, Idle, PostError, WaitError};
use nanoverbs::nanoverbs_core::{Cause, Ended, Outcome, Part, RemoteRegion, op};

pub(super) use client::Client;
pub(super) use mailbox::{Mailbox, Role};
pub(super) use rate::{Receiver, Sender};
pub(super) use server::Server;

use super::plan::{Game, Plan};
use crate::{Failure, pattern};

/// What requests carry: a block, as long as the message.
pub(super) type Message = Part;

/// What the client brings home.
pub(super) struct Tally {
    /// Nanoseconds of each timed round trip; none of a game that goes one way.
    pub(super) trips: Histogram<u64>,
    /// From the first timed message to the end of the last one.
    pub(super) elapsed: Duration,
}

/// What an end knows before it plays.
#[derive(Clone, Copy)]
pub(super) struct Setup {
    pub(super) plan: Plan,
    /// Messages of up to this many bytes travel inline.
    pub(super) inline: u32,
    pub(super) patience: Duration,
    pub(super) idle: Idle,
}

/// Plays the client's part with a server that is somewhere else.
pub(super) fn lead<D: Driver>(
    endpoint: Endpoint<D, Message>,
    mailbox: Mailbox,
    setup: Setup,
    progress: &AtomicU64,
) -> Result<Tally, Failure> {
    match setup.plan.game {
        Game::Rate => Sender::new(endpoint, mailbox, setup, progress)?.play(),
        _ => Client::new(endpoint, mailbox, setup, progress)?.play(),
    }
}

/// Plays the server's part with a client that is somewhere else.
pub(super) fn serve<D: Driver>(
    endpoint: Endpoint<D, Message>,
    mailbox: Mailbox,
    setup: Setup,
    progress: Option<&AtomicU64>,
) -> Result<(), Failure> {
    match setup.plan.game {
        Game::Rate => Receiver::new(endpoint, mailbox, setup, progress)?.play(),
        _ => Server::new(endpoint, mailbox, setup, progress)?.play(),
    }
}

/// What both ends have.
struct Player<D: Driver> {
    endpoint: Endpoint<D, Message>,
    mailbox: Mailbox,
    plan: Plan,
    is_inline: bool,
    patience: Duration,
    idle: Idle,
    /// Rounds that are over, here.
    done: u64,
}

/// A request that is ready to be posted.
struct Ready {
    message: Message,
    /// Where it goes, or comes from, when that is memory of the other end.
    remote: Option<RemoteRegion>,
}

/// Polls of memory between two looks at the connection and the clock, which take system calls.
const POLLS: u32 = 1 << 16;

impl<D: Driver> Player<D> {
    fn new(
        endpoint: Endpoint<D, Message>,
        mailbox: Mailbox,
        setup: Setup,
    ) -> Result<Self, Failure> {
        let Setup { plan, inline, patience, idle } = setup;
        let granted = endpoint.inline();
        if granted < inline {
            return Err(Failure::new(format!(
                "the device {} takes at most {granted} bytes inline, and --inline asks for {inline}",
                endpoint.device_name()
            )));
        }
        let is_inline = plan.size <= inline as usize;
        Ok(Self { endpoint, mailbox, plan, is_inline, patience, idle, done: 0 })
    }

    /// Makes the request of a round, so that nothing is left to do but to post it.
    fn ready(&mut self, round: u64) -> Result<Ready, Failure> {
        let mut message = self.free_message()?;
        self.mailbox.fill(&mut message, round);
        let remote = match self.plan.game {
            Game::Send | Game::Rate => None,
            Game::Write | Game::WriteInOrder | Game::Read => Some(self.mailbox.remote(round)?),
        };
        Ok(Ready { message, remote })
    }

    /// Puts the message of a round on its way.
    #[inline]
    fn post(&mut self, round: u64, Ready { message, remote }: Ready) -> Result<(), Failure> {
        let endpoint = &mut self.endpoint;
        let posted = match (self.plan.game, remote) {
            (Game::Read, Some(remote)) => endpoint.post_read(remote, message),
            (game, Some(remote)) => {
                let mut write = op::Write::new(remote).signaled();
                if game == Game::Write {
                    write = write.immediate(round as u32);
                }
                if self.is_inline {
                    endpoint.post_inline(write, message)
                } else {
                    endpoint.post(write, message)
                }
            }
            (_, None) if self.is_inline => endpoint.post_send_inline(message),
            (_, None) => endpoint.post_send(message),
        };
        posted.map_err(|error| self.refused(&error))
    }

    /// Waits for the other's message of a round. What it brings is given to [`Player::check`], and then
    /// to [`Player::put_back`].
    #[inline]
    fn arrival(&mut self, round: u64, deadline: Deadline) -> Result<Option<Message>, Failure> {
        match self.plan.game {
            Game::Send | Game::Rate => self.receive(deadline).map(|(message, _)| Some(message)),
            Game::Write => {
                let (message, immediate) = self.receive(deadline)?;
                if immediate == Some(round as u32) {
                    Ok(Some(message))
                } else {
                    Err(Failure::new(format!(
                        "round trip {round}: a message with the immediate {immediate:?} arrived"
                    )))
                }
            }
            Game::WriteInOrder => self.flag(round, deadline).map(|()| None),
            Game::Read => self.sent(deadline).map(Some),
        }
    }

    /// The next message, as long as it arrived, and its immediate.
    #[inline]
    fn receive(&mut self, deadline: Deadline) -> Result<(Message, Option<u32>), Failure> {
        let ended = match self.endpoint.recv_completion(deadline) {
            Ok(ended) => ended,
            Err(error) => return Err(self.waited(error)),
        };
        let Outcome::Done(success) = ended.outcome else {
            return Err(self.why(ended.outcome));
        };
        let mut message = ended.context;
        // It was as long as the whole block, which is where it arrived.
        message.set_len(success.byte_len().unwrap_or(0) as usize);
        Ok((message, success.immediate()))
    }

    /// Waits until the message of a round shows in memory.
    #[inline]
    fn flag(&mut self, round: u64, deadline: Deadline) -> Result<(), Failure> {
        while !self.mailbox.polled(round, POLLS, self.idle)? {
            // What the other end wrote before it left is here by now.
            if let Err(failure) = self.look(deadline)
                && !self.mailbox.polled(round, 1, self.idle)?
            {
                return Err(failure);
            }
        }
        Ok(())
    }

    /// Whether it is of any use to wait on.
    #[cold]
    fn look(&mut self, deadline: Deadline) -> Result<(), Failure> {
        while let Some(ended) = self.endpoint.try_send_completion().map_err(of_wait)? {
            drop(self.done_or_why(ended)?);
        }
        if let Some(end) = self.endpoint.end() {
            return Err(self.waited(end));
        }
        if deadline.has_passed() {
            let in_flight = self.endpoint.sends_in_flight();
            return Err(self.waited(WaitError::TimedOut { in_flight }));
        }
        Ok(())
    }

    /// Compares what arrived with what was sent.
    fn check(&mut self, round: u64, message: Option<&Message>) -> Result<(), Failure> {
        let (name, size) = (self.plan.game.round(), self.plan.size);
        if let Some(message) = message
            && message.len() != size
        {
            let len = message.len();
            return Err(Failure::new(format!(
                "{name} {round}: a message of {len} bytes arrived, and {size} were sent"
            )));
        }
        let (found, at): (&[u8], _) = match (self.plan.game, message) {
            (Game::Send | Game::Rate, Some(message)) => {
                (message, pattern::first_wrong(message, round))
            }
            (Game::Read, Some(message)) => (message, pattern::first_wrong(message, 0)),
            _ => self.mailbox.look_at(round)?,
        };
        match at {
            None => Ok(()),
            Some(at) => Err(Failure::new(format!(
                "{name} {round}: byte {at} of {size} is wrong ({:#04x})",
                found[at]
            ))),
        }
    }

    /// Makes the block of what arrived, and was looked at, ready for the next message.
    fn put_back(&mut self, message: Option<Message>) -> Result<(), Failure> {
        match message {
            Some(message) if self.plan.game != Game::Read => self.post_recv(message),
            _ => Ok(()),
        }
    }

    fn post_recv(&mut self, message: Message) -> Result<(), Failure> {
        let whole = message.into_block().into();
        self.endpoint.post_recv(whole).map_err(|error| self.refused(&error))
    }

    /// A message of the plan's size that nobody uses: a fresh one, or one that has arrived.
    fn free_message(&mut self) -> Result<Message, Failure> {
        // What has come back from a READ is an answer, and waited for.
        while self.plan.game != Game::Read
            && let Some(ended) = self.endpoint.try_send_completion().map_err(of_wait)?
        {
            drop(self.done_or_why(ended)?);
        }
        let mut message = match self.endpoint.block() {
            Some(block) => block.into(),
            None => self.sent(Deadline::after(self.patience))?,
        };
        message.set_len(self.plan.size);
        Ok(message)
    }

    #[inline]
    fn sent(&mut self, deadline: Deadline) -> Result<Message, Failure> {
        match self.endpoint.send_completion(deadline) {
            Ok(ended) => self.done_or_why(ended),
            Err(error) => Err(self.waited(error)),
        }
    }

    fn done_or_why(&mut self, ended: Ended<Message>) -> Result<Message, Failure> {
        if ended.outcome.is_done() { Ok(ended.context) } else { Err(self.why(ended.outcome)) }
    }

    /// Why a request did not do what it should: what failed first says more than what was flushed.
    #[cold]
    fn why(&mut self, outcome: Outcome) -> Failure {
        let mut failed = Self::failed(outcome);
        while let (None, Ok(Some(ended))) = (failed, self.endpoint.try_send_completion()) {
            failed = Self::failed(ended.outcome);
        }
        if let (None, Some(Cause::Failed(failure))) = (failed, self.endpoint.closed()) {
            failed = Some(failure);
        }
        let so_far = self.so_far();
        match failed {
            Some(failure) => Failure::new(format!("{failure}, {so_far}")),
            None => self.gone(),
        }
    }

    fn failed(outcome: Outcome) -> Option<nanoverbs::nanoverbs_core::Failure> {
        match outcome {
            Outcome::Failed(failure) => Some(failure),
            Outcome::Done(_) | Outcome::Flushed | Outcome::Abandoned => None,
        }
    }

    #[cold]
    fn waited(&mut self, error: WaitError) -> Failure {
        match error {
            WaitError::Disconnected | WaitError::Broken => self.why(Outcome::Flushed),
            WaitError::TimedOut { .. } => Failure::new(format!(
                "the peer has not answered for {} seconds, {}; --timeout sets how long to wait",
                self.patience.as_secs(),
                self.so_far()
            )),
            error => of_wait(error),
        }
    }

    #[cold]
    fn refused(&mut self, error: &PostError<Message>) -> Failure {
        match self.endpoint.closed() {
            Some(_) => self.why(Outcome::Flushed),
            None => Failure::new(format!("{error}, {}", self.so_far())),
        }
    }

    fn gone(&self) -> Failure {
        Failure::peer_gone(format!(
            "the peer has ended the connection, or is gone, {}",
            self.so_far()
        ))
    }

    fn so_far(&self) -> String {
        format!("after {} of {} {}s", self.done, self.plan.rounds(), self.plan.game.round())
    }
}

fn new_trips() -> Result<Histogram<u64>, Failure> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3)
        .map_err(|error| Failure::new(format!("no histogram can be made: {error}")))
}

fn of_wait(error: impl Into<WaitError>) -> Failure {
    Failure::new(error.into().to_string())
}

#[cfg(test)]
mod tests;
