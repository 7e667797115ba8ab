//! Who answers.

use super::*;

/// Sends every ping back: the same block where a SEND brought it, a message of its own where it was
/// written into memory. It does nothing while its memory is read.
pub(in crate::pingpong) struct Server<'a, D: Driver> {
    player: Player<D>,
    /// Rounds whose ping was found to be right, after its pong had been sent.
    checked: u64,
    /// The next pong, as long as it is not an echo.
    pong: Option<Ready>,
    progress: Option<&'a AtomicU64>,
}

impl<'a, D: Driver> Server<'a, D> {
    pub(in crate::pingpong) fn new(
        endpoint: Endpoint<D, Message>,
        mailbox: Mailbox,
        setup: Setup,
        progress: Option<&'a AtomicU64>,
    ) -> Result<Self, Failure> {
        let player = Player::new(endpoint, mailbox, setup)?;
        let mut server = Self { player, checked: 0, pong: None, progress };
        server.prepare()?;
        Ok(server)
    }

    /// Plays all rounds with a client that is somewhere else.
    pub(in crate::pingpong) fn play(mut self) -> Result<(), Failure> {
        if self.player.plan.game != Game::Read {
            while self.player.done < self.player.plan.rounds() {
                self.answer()?;
                self.tidy()?;
            }
        }
        self.finish()
    }

    /// Waits for a ping, and sends a pong.
    pub(in crate::pingpong) fn answer(&mut self) -> Result<(), Failure> {
        let round = self.player.done;
        match self.player.plan.game {
            Game::Read => return Ok(()),
            game if game.writes() => self.write_back(round)?,
            _ => self.echo(round)?,
        }
        self.player.done += 1;
        if let Some(progress) = self.progress {
            // Relaxed: a number for people.
            progress.store(self.player.done, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Checks what came, while nobody waits for it.
    pub(in crate::pingpong) fn tidy(&mut self) -> Result<(), Failure> {
        if self.player.plan.game.writes() {
            while self.checked < self.player.done {
                self.player.check(self.checked, None)?;
                self.checked += 1;
            }
            return self.prepare();
        }
        while let Some(ended) = self.player.endpoint.try_send_completion().map_err(of_wait)? {
            let pong = self.player.done_or_why(ended)?;
            self.player.check(self.checked, Some(&pong))?;
            self.checked += 1;
        }
        Ok(())
    }

    /// Waits until the last pongs have arrived, or the client needs this memory no more.
    pub(in crate::pingpong) fn finish(mut self) -> Result<(), Failure> {
        let deadline = Deadline::after(self.player.patience);
        if self.player.plan.game == Game::Read {
            // It may take as long as it likes.
            return self.player.receive(Deadline::NEVER).map(drop);
        }
        while self.player.endpoint.sends_in_flight() > 0 || self.checked < self.player.done {
            match self.player.endpoint.send_completion(deadline) {
                Ok(_) if self.player.plan.game.writes() => {}
                Ok(ended) => {
                    self.player.check(self.checked, Some(&ended.context))?;
                    self.checked += 1;
                }
                // The client leaves as soon as it has its last pong, maybe before this side has
                // heard that it was delivered.
                Err(WaitError::Disconnected) => break,
                Err(error) => return Err(self.player.waited(error)),
            }
        }
        Ok(())
    }

    fn echo(&mut self, round: u64) -> Result<(), Failure> {
        let player = &mut self.player;
        let (message, _) = player.receive(Deadline::after(player.patience))?;
        player.post(round, Ready { message, remote: None })?;
        let spare = match player.endpoint.block() {
            Some(spare) => spare.into(),
            None => Self::sent_back(player, &mut self.checked)?,
        };
        player.post_recv(spare)
    }

    fn write_back(&mut self, round: u64) -> Result<(), Failure> {
        let player = &mut self.player;
        let ping = player.arrival(round, Deadline::after(player.patience))?;
        let pong = match self.pong.take() {
            Some(pong) => pong,
            None => player.ready(round)?,
        };
        player.post(round, pong)?;
        player.put_back(ping)
    }

    /// Has the next pong ready before its ping comes.
    fn prepare(&mut self) -> Result<(), Failure> {
        let player = &mut self.player;
        if self.pong.is_none() && player.plan.game.writes() && player.done < player.plan.rounds() {
            self.pong = Some(player.ready(player.done)?);
        }
        Ok(())
    }

    fn sent_back(player: &mut Player<D>, checked: &mut u64) -> Result<Message, Failure> {
        let pong = player.sent(Deadline::after(player.patience))?;
        player.check(*checked, Some(&pong))?;
        *checked += 1;
        Ok(pong)
    }
}
