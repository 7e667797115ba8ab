//! The two ends of a game that goes one way: as many messages as go.
//!
//! The sender keeps the queue full with chains behind one doorbell each, and lets the queue decide which
//! requests ask for a completion. The receiver posts as many receives as it has taken, in chains as well.

use nanoverbs::nanoverbs_core::SubmitError;

use super::*;

type Messages = heapless::Vec<Message, { Plan::MAX_CHAIN }>;

/// Sends, and takes the time until all has arrived.
pub(in crate::pingpong) struct Sender<'a, D: Driver> {
    player: Player<D>,
    sent: u64,
    began: Instant,
    ended: Instant,
    progress: &'a AtomicU64,
}

impl<'a, D: Driver> Sender<'a, D> {
    pub(in crate::pingpong) fn new(
        endpoint: Endpoint<D, Message>,
        mailbox: Mailbox,
        setup: Setup,
        progress: &'a AtomicU64,
    ) -> Result<Self, Failure> {
        let player = Player::new(endpoint, mailbox, setup)?;
        let now = Instant::now();
        Ok(Self { player, sent: 0, began: now, ended: now, progress })
    }

    /// Sends everything to a receiver that is somewhere else.
    pub(in crate::pingpong) fn play(mut self) -> Result<Tally, Failure> {
        while !self.is_done() {
            if self.send()? == 0 {
                let message = self.player.sent(Deadline::after(self.player.patience))?;
                self.arrived(message);
            }
            self.collect()?;
        }
        self.finish()
    }

    pub(in crate::pingpong) fn is_done(&self) -> bool {
        self.player.done == self.player.plan.rounds()
    }

    /// Sends the next chain, when there is room for all of it, and says how many messages it has.
    pub(in crate::pingpong) fn send(&mut self) -> Result<u64, Failure> {
        let Player { plan, is_inline, done, .. } = self.player;
        // The timed messages begin when the others have arrived, and so with a chain of their own.
        let last = if self.sent < plan.warmup { plan.warmup } else { plan.rounds() };
        let wanted = (last - self.sent).min(plan.chain() as u64);
        let room = u64::from(plan.depth - self.player.endpoint.sends_in_flight());
        if wanted == 0 || room < wanted || (self.sent == plan.warmup && done < self.sent) {
            return Ok(0);
        }
        if self.sent == plan.warmup {
            self.began = Instant::now();
        }
        let mut halves = self.player.endpoint.split();
        let mut chain = match halves.send.reserve(wanted as usize) {
            Ok(chain) => chain,
            Err(error) => return Err(Failure::new(error.to_string())),
        };
        for round in self.sent..self.sent + wanted {
            let block = halves.pool.as_mut().and_then(|pool| pool.allocate());
            let mut message =
                Message::from(block.ok_or_else(|| Failure::new("the endpoint has no block left"))?);
            message.set_len(plan.size);
            pattern::fill(&mut message, round);
            // The last one's completion ends the time; the queue asks for others as it needs them.
            let mut send = op::Send::new();
            if round + 1 == last {
                send = send.signaled();
            }
            let pushed = if is_inline {
                chain.push_inline(send, message)
            } else {
                chain.push(send, message)
            };
            pushed.map_err(|rejected| Failure::new(rejected.error.to_string()))?;
        }
        let code = match chain.submit() {
            Ok(_) => None,
            Err(SubmitError::Partial { code, .. } | SubmitError::Unknown { code }) => Some(code),
        };
        if let Some(code) = code {
            return Err(match self.player.endpoint.closed() {
                Some(_) => self.player.why(Outcome::Flushed),
                None => Failure::new(format!(
                    "the device refused a chain of {wanted} with error {code}, {}",
                    self.player.so_far()
                )),
            });
        }
        self.sent += wanted;
        Ok(wanted)
    }

    /// Takes what has arrived.
    pub(in crate::pingpong) fn collect(&mut self) -> Result<(), Failure> {
        while let Some(ended) = self.player.endpoint.try_send_completion().map_err(of_wait)? {
            let message = self.player.done_or_why(ended)?;
            self.arrived(message);
        }
        Ok(())
    }

    fn arrived(&mut self, message: Message) {
        drop(message);
        self.player.done += 1;
        if self.is_done() {
            self.ended = Instant::now();
        }
        // Relaxed: a number for people.
        self.progress.store(self.player.done, Ordering::Relaxed);
    }

    /// Leaves, which tells the receiver that everything has arrived.
    pub(in crate::pingpong) fn finish(self) -> Result<Tally, Failure> {
        Ok(Tally { trips: new_trips()?, elapsed: self.ended - self.began })
    }
}

/// Takes what comes, and checks it.
pub(in crate::pingpong) struct Receiver<'a, D: Driver> {
    player: Player<D>,
    progress: Option<&'a AtomicU64>,
}

impl<'a, D: Driver> Receiver<'a, D> {
    pub(in crate::pingpong) fn new(
        endpoint: Endpoint<D, Message>,
        mailbox: Mailbox,
        setup: Setup,
        progress: Option<&'a AtomicU64>,
    ) -> Result<Self, Failure> {
        Ok(Self { player: Player::new(endpoint, mailbox, setup)?, progress })
    }

    /// Takes everything from a sender that is somewhere else.
    pub(in crate::pingpong) fn play(mut self) -> Result<(), Failure> {
        while !self.is_done() {
            let (message, _) = self.player.receive(Deadline::after(self.player.patience))?;
            self.take(Some(message))?;
        }
        self.finish()
    }

    pub(in crate::pingpong) fn is_done(&self) -> bool {
        self.player.done == self.player.plan.rounds()
    }

    /// Takes what has come, a first message included, and posts as many receives again.
    pub(in crate::pingpong) fn take(&mut self, first: Option<Message>) -> Result<(), Failure> {
        let mut taken = Messages::new();
        let mut next = match first {
            Some(message) => Some(message),
            None => self.next()?,
        };
        while let Some(message) = next {
            self.player.check(self.player.done, Some(&message))?;
            self.player.done += 1;
            // It has room for the whole chain, and this loop ends with it.
            let _ = taken.push(message.into_block().into());
            next = if taken.len() < self.player.plan.chain() { self.next()? } else { None };
        }
        if let Some(progress) = self.progress {
            // Relaxed: a number for people.
            progress.store(self.player.done, Ordering::Relaxed);
        }
        self.post_again(taken)
    }

    /// The next message, if one has come.
    fn next(&mut self) -> Result<Option<Message>, Failure> {
        let Some(ended) = self.player.endpoint.try_recv_completion().map_err(of_wait)? else {
            return Ok(None);
        };
        let Outcome::Done(success) = ended.outcome else {
            return Err(self.player.why(ended.outcome));
        };
        let mut message = ended.context;
        message.set_len(success.byte_len().unwrap_or(0) as usize);
        Ok(Some(message))
    }

    fn post_again(&mut self, taken: Messages) -> Result<(), Failure> {
        if taken.is_empty() {
            return Ok(());
        }
        let wrong = |error: &dyn std::fmt::Display| Failure::new(error.to_string());
        let reserved = self.player.endpoint.reserve_receives(taken.len());
        let mut chain = reserved.map_err(|error| wrong(&error))?;
        for message in taken {
            chain.push(message).map_err(|rejected| wrong(&rejected.error))?;
        }
        match chain.submit() {
            Ok(_) => Ok(()),
            Err(SubmitError::Partial { code, .. } | SubmitError::Unknown { code }) => {
                Err(Failure::new(format!("the device refused receives with error {code}")))
            }
        }
    }

    /// Waits until the sender leaves: it alone knows that everything has arrived.
    pub(in crate::pingpong) fn finish(mut self) -> Result<(), Failure> {
        let deadline = Deadline::after(self.player.patience);
        loop {
            match self.player.endpoint.recv_completion(deadline) {
                Ok(ended) if ended.outcome.is_done() => {
                    return Err(Failure::new("more messages arrived than were to come"));
                }
                // Receives that were not needed.
                Ok(_) => {}
                Err(_) => return Ok(()),
            }
        }
    }
}
