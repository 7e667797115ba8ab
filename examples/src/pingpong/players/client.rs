//! Who begins, and takes the time.

use super::*;

/// Sends pings, and takes the time until each pong; or reads the server's memory.
pub(in crate::pingpong) struct Client<'a, D: Driver> {
    player: Player<D>,
    sent: u64,
    /// When the ping of each round that is under way was posted.
    posted: [Instant; Plan::MAX_DEPTH as usize],
    began: Instant,
    ended: Instant,
    trips: Histogram<u64>,
    progress: &'a AtomicU64,
}

impl<'a, D: Driver> Client<'a, D> {
    pub(in crate::pingpong) fn new(
        endpoint: Endpoint<D, Message>,
        mailbox: Mailbox,
        setup: Setup,
        progress: &'a AtomicU64,
    ) -> Result<Self, Failure> {
        let (trips, now) = (new_trips()?, Instant::now());
        let player = Player::new(endpoint, mailbox, setup)?;
        let (reads, depth) = (player.endpoint.reads().0, player.plan.depth);
        if player.plan.game == Game::Read && reads < depth {
            return Err(Failure::new(format!(
                "the connection allows {reads} READs at a time, and --depth asks for {depth}"
            )));
        }
        let posted = [now; Plan::MAX_DEPTH as usize];
        Ok(Self { player, sent: 0, posted, began: now, ended: now, trips, progress })
    }

    /// Plays all rounds with a server that is somewhere else.
    pub(in crate::pingpong) fn play(mut self) -> Result<Tally, Failure> {
        while !self.is_done() {
            self.send()?;
            self.receive()?;
        }
        self.say_goodbye()?;
        Ok(self.finish())
    }

    pub(in crate::pingpong) fn is_done(&self) -> bool {
        self.player.done == self.player.plan.rounds()
    }

    /// Posts as many pings as may be under way, and says how many those are.
    pub(in crate::pingpong) fn send(&mut self) -> Result<u64, Failure> {
        let player = &mut self.player;
        let before = self.sent;
        let last = player.plan.rounds().min(player.done + u64::from(player.plan.depth));
        while self.sent < last {
            let ping = player.ready(self.sent)?;
            let now = Instant::now();
            if self.sent == player.plan.warmup {
                self.began = now;
            }
            self.posted[Self::place(self.sent)] = now;
            player.post(self.sent, ping)?;
            self.sent += 1;
        }
        Ok(self.sent - before)
    }

    /// Waits for the next pong, checks it, and makes its block ready for another.
    pub(in crate::pingpong) fn receive(&mut self) -> Result<(), Failure> {
        let player = &mut self.player;
        let round = player.done;
        let posted = self.posted[Self::place(round)];
        let pong = player.arrival(round, Deadline::at(posted + player.patience))?;
        self.ended = Instant::now();
        // From here on nobody's time is taken.
        player.check(round, pong.as_ref())?;
        if round >= player.plan.warmup {
            self.trips.saturating_record((self.ended - posted).as_nanos() as u64);
        }
        player.put_back(pong)?;
        player.done += 1;
        // Relaxed: a number for people.
        self.progress.store(player.done, Ordering::Relaxed);
        Ok(())
    }

    /// Tells a server that has noticed nothing that it has been read for the last time.
    pub(in crate::pingpong) fn say_goodbye(&mut self) -> Result<(), Failure> {
        let player = &mut self.player;
        if player.plan.game != Game::Read {
            return Ok(());
        }
        let goodbye = player.free_message()?;
        player.endpoint.post_send(goodbye).map_err(|error| player.refused(&error))?;
        player.sent(Deadline::after(player.patience)).map(drop)
    }

    pub(in crate::pingpong) fn finish(self) -> Tally {
        Tally { trips: self.trips, elapsed: self.ended - self.began }
    }

    const fn place(round: u64) -> usize {
        (round % Plan::MAX_DEPTH as u64) as usize
    }
}
