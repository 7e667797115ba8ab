//! The two ends of a game. They know endpoints and nothing of the device behind them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use nanoverbs::Deadline;
use nanoverbs::endpoint::{Driver, Endpoint, PostError, WaitError};
use nanoverbs::nanoverbs_core::{Block, Cause, Ended, Outcome};

use super::Plan;
use crate::{Failure, pattern};

/// What the client brings home.
pub(super) struct Tally {
    /// Nanoseconds of each timed round trip.
    pub(super) trips: Histogram<u64>,
    /// From the first timed ping to the last pong.
    pub(super) elapsed: Duration,
}

/// What both ends have.
struct Player<D: Driver> {
    endpoint: Endpoint<D, Block>,
    plan: Plan,
    is_inline: bool,
    patience: Duration,
    /// Rounds that are over, here.
    done: u64,
}

/// Sends pings, and takes the time until each pong.
pub(super) struct Client<'a, D: Driver> {
    player: Player<D>,
    sent: u64,
    /// When the ping of each round that is under way was posted.
    posted: [Instant; 64],
    began: Instant,
    ended: Instant,
    trips: Histogram<u64>,
    progress: &'a AtomicU64,
}

impl<'a, D: Driver> Client<'a, D> {
    pub(super) fn new(
        endpoint: Endpoint<D, Block>,
        plan: Plan,
        inline: u32,
        patience: Duration,
        progress: &'a AtomicU64,
    ) -> Result<Self, Failure> {
        let trips = Histogram::new_with_bounds(1, 3_600_000_000_000, 3)
            .map_err(|error| Failure::new(format!("no histogram can be made: {error}")))?;
        let now = Instant::now();
        let player = Player::new(endpoint, plan, inline, patience)?;
        let (began, ended) = (now, now);
        Ok(Self { player, sent: 0, posted: [now; 64], began, ended, trips, progress })
    }

    /// Plays all rounds with a server that is somewhere else.
    pub(super) fn play(mut self) -> Result<Tally, Failure> {
        while !self.is_done() {
            self.send()?;
            self.receive()?;
        }
        Ok(self.finish())
    }

    pub(super) fn is_done(&self) -> bool {
        self.player.done == self.player.plan.rounds()
    }

    /// Sends as many pings as may be under way, and says how many those are.
    pub(super) fn send(&mut self) -> Result<u64, Failure> {
        let player = &mut self.player;
        let before = self.sent;
        let last = player.plan.rounds().min(player.done + u64::from(player.plan.depth));
        while self.sent < last {
            let mut ping = player.free_block()?;
            ping.set_len(player.plan.size)?;
            pattern::fill(&mut ping, self.sent);
            let now = Instant::now();
            if self.sent == player.plan.warmup {
                self.began = now;
            }
            self.posted[(self.sent % 64) as usize] = now;
            player.send(ping)?;
            self.sent += 1;
        }
        Ok(self.sent - before)
    }

    /// Waits for the next pong, checks it, and makes its block a receive again.
    pub(super) fn receive(&mut self) -> Result<(), Failure> {
        let player = &mut self.player;
        let posted = self.posted[(player.done % 64) as usize];
        let pong = player.receive(Deadline::at(posted + player.patience))?;
        self.ended = Instant::now();
        // From here on nobody's time is taken.
        player.check(&pong, player.done)?;
        if player.done >= player.plan.warmup {
            self.trips.saturating_record((self.ended - posted).as_nanos() as u64);
        }
        player.post_recv(pong)?;
        player.done += 1;
        // Relaxed: a number for people.
        self.progress.store(player.done, Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn finish(self) -> Tally {
        Tally { trips: self.trips, elapsed: self.ended - self.began }
    }
}

/// Sends every ping back as it came.
pub(super) struct Server<'a, D: Driver> {
    player: Player<D>,
    /// Pongs that were found to be right, after they had been sent.
    checked: u64,
    progress: Option<&'a AtomicU64>,
}

impl<'a, D: Driver> Server<'a, D> {
    pub(super) fn new(
        endpoint: Endpoint<D, Block>,
        plan: Plan,
        inline: u32,
        patience: Duration,
        progress: Option<&'a AtomicU64>,
    ) -> Result<Self, Failure> {
        let player = Player::new(endpoint, plan, inline, patience)?;
        Ok(Self { player, checked: 0, progress })
    }

    /// Plays all rounds with a client that is somewhere else.
    pub(super) fn play(mut self) -> Result<(), Failure> {
        while self.player.done < self.player.plan.rounds() {
            self.answer()?;
            self.tidy()?;
        }
        self.finish()
    }

    /// Waits for a ping, and sends it back.
    pub(super) fn answer(&mut self) -> Result<(), Failure> {
        let player = &mut self.player;
        let ping = player.receive(Deadline::after(player.patience))?;
        // First a new receive: the client's next ping may come as soon as the pong is there.
        let spare = match player.endpoint.block() {
            Some(spare) => spare,
            None => Self::sent_back(player, &mut self.checked)?,
        };
        player.post_recv(spare)?;
        player.send(ping)?;
        player.done += 1;
        if let Some(progress) = self.progress {
            // Relaxed: a number for people.
            progress.store(player.done, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Checks what was sent back, while nobody waits for it.
    pub(super) fn tidy(&mut self) -> Result<(), Failure> {
        while let Some(ended) = self.player.endpoint.try_send_completion().map_err(of_wait)? {
            let pong = self.player.done_or_why(ended)?;
            self.player.check(&pong, self.checked)?;
            self.checked += 1;
        }
        Ok(())
    }

    /// Waits until the last pongs have arrived.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        let deadline = Deadline::after(self.player.patience);
        while self.checked < self.player.plan.rounds() {
            match self.player.endpoint.send_completion(deadline) {
                // The client leaves as soon as it has its last pong, maybe before this side has
                // heard that it was delivered.
                Ok(ended) => {
                    self.player.check(&ended.context, self.checked)?;
                    self.checked += 1;
                }
                Err(WaitError::Disconnected) => break,
                Err(error) => return Err(self.player.waited(error)),
            }
        }
        Ok(())
    }

    fn sent_back(player: &mut Player<D>, checked: &mut u64) -> Result<Block, Failure> {
        let pong = player.sent()?;
        player.check(&pong, *checked)?;
        *checked += 1;
        Ok(pong)
    }
}

impl<D: Driver> Player<D> {
    fn new(
        endpoint: Endpoint<D, Block>,
        plan: Plan,
        inline: u32,
        patience: Duration,
    ) -> Result<Self, Failure> {
        let granted = endpoint.inline();
        if granted < inline {
            return Err(Failure::new(format!(
                "the device {} takes at most {granted} bytes inline, and --inline asks for {inline}",
                endpoint.device_name()
            )));
        }
        let is_inline = plan.size <= inline as usize;
        Ok(Self { endpoint, plan, is_inline, patience, done: 0 })
    }

    fn send(&mut self, message: Block) -> Result<(), Failure> {
        let posted = if self.is_inline {
            self.endpoint.post_send_inline(message)
        } else {
            self.endpoint.post_send(message)
        };
        posted.map_err(|error| self.refused(&error))
    }

    fn post_recv(&mut self, block: Block) -> Result<(), Failure> {
        self.endpoint.post_recv(block).map_err(|error| self.refused(&error))
    }

    /// A block that nobody uses: a fresh one, or that of a message which has arrived.
    fn free_block(&mut self) -> Result<Block, Failure> {
        while let Some(ended) = self.endpoint.try_send_completion().map_err(of_wait)? {
            drop(self.done_or_why(ended)?);
        }
        match self.endpoint.block() {
            Some(block) => Ok(block),
            None => self.sent(),
        }
    }

    fn sent(&mut self) -> Result<Block, Failure> {
        let ended = self.endpoint.send_completion(self.patience);
        let ended = ended.map_err(|error| self.waited(error))?;
        self.done_or_why(ended)
    }

    /// The next message, as long as it arrived.
    fn receive(&mut self, deadline: Deadline) -> Result<Block, Failure> {
        let ended = match self.endpoint.recv_completion(deadline) {
            Ok(ended) => ended,
            Err(error) => return Err(self.waited(error)),
        };
        let Outcome::Done(success) = ended.outcome else {
            return Err(self.why(ended.outcome));
        };
        let mut message = ended.context;
        message.set_len(success.byte_len().unwrap_or(0) as usize)?;
        Ok(message)
    }

    fn done_or_why(&mut self, ended: Ended<Block>) -> Result<Block, Failure> {
        if ended.outcome.is_done() { Ok(ended.context) } else { Err(self.why(ended.outcome)) }
    }

    fn check(&self, message: &Block, round: u64) -> Result<(), Failure> {
        let (len, size) = (message.len(), self.plan.size);
        if len != size {
            return Err(Failure::new(format!(
                "round trip {round}: a message of {len} bytes arrived, and {size} were sent"
            )));
        }
        match pattern::first_wrong(message, round) {
            None => Ok(()),
            Some(at) => Err(Failure::new(format!(
                "round trip {round}: byte {at} of {size} is wrong ({:#04x})",
                message[at]
            ))),
        }
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
    fn refused(&mut self, error: &PostError<Block>) -> Failure {
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
        format!("after {} of {} round trips", self.done, self.plan.rounds())
    }
}

fn of_wait(error: impl Into<WaitError>) -> Failure {
    Failure::new(error.into().to_string())
}

#[cfg(test)]
mod tests;
