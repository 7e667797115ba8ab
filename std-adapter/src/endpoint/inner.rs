//! What an endpoint is made of, in any of its states.

use super::*;
use driver::sealed::Ends;

/// An endpoint in any of its states.
pub(crate) struct Inner<D: Driver, C: 'static> {
    pub(super) pair: Pair<D, C>,
    pub(super) links: Links,
    pub(super) sent: Completions<D::PollPort, 16>,
    pub(super) received: Completions<D::PollPort, 16>,
    pub(super) strays: u64,
    pub(super) idle: Idle,
    /// How the connection ended, once that was seen.
    pub(super) end: Option<WaitError>,
    pub(super) pool: Option<BlockPool>,
}

impl<D: Driver, C: 'static> Inner<D, C> {
    pub(crate) fn new(
        ends: Ends<D>,
        sent: D::PollPort,
        received: D::PollPort,
        options: &Options,
    ) -> Result<Self, EndpointError> {
        let pool = BlockPool::new(ends.driver.base(), options.blocks, options.block_len)?;
        Ok(Self {
            pair: Pair::new(ends, None)?,
            links: Links::new(),
            sent: Completions::new(sent, options.send_depth),
            received: Completions::new(received, options.recv_depth),
            strays: 0,
            idle: options.idle,
            end: None,
            pool: Some(pool),
        })
    }

    #[inline(always)]
    pub(super) fn block(&mut self) -> Option<Block> {
        self.pool.as_mut()?.allocate()
    }

    pub(super) fn share(&mut self, len: usize, rights: Rights) -> Result<Shared, EndpointError> {
        self.pair.driver.base().share(Pages::new(len)?, rights)
    }

    #[inline(always)]
    pub(super) fn post_recv(&mut self, context: C) -> Result<(), PostError<C>>
    where
        C: RecvBuffers,
    {
        let (queue, link) = (&mut self.pair.recvs, &mut self.links.recv);
        post_one!(queue.reserve(link, 1), context, |chain, context| chain.push(context))
    }

    #[inline(always)]
    pub(super) fn try_sent(&mut self) -> Result<Option<Ended<C>>, PollError> {
        if let Some(ended) = self.pair.sends.take() {
            return Ok(Some(ended));
        }
        for completion in self.sent.poll()? {
            self.strays += u64::from(self.pair.sends.retire(completion).is_err());
        }
        Ok(self.pair.sends.take())
    }

    #[inline(always)]
    pub(super) fn try_received(&mut self) -> Result<Option<Ended<C>>, PollError> {
        if let Some(ended) = self.pair.recvs.take() {
            return Ok(Some(ended));
        }
        for completion in self.received.poll()? {
            self.strays += u64::from(self.pair.recvs.retire(completion).is_err());
        }
        Ok(self.pair.recvs.take())
    }

    #[inline(always)]
    pub(super) fn attempt(&mut self, side: Side) -> Result<Option<Ended<C>>, PollError> {
        match side {
            Side::Send => self.try_sent(),
            Side::Recv => self.try_received(),
        }
    }

    #[inline]
    pub(super) fn wait(&mut self, side: Side, deadline: Deadline) -> Result<Ended<C>, WaitError> {
        let mut spins: u32 = 0;
        loop {
            if let Some(ended) = self.attempt(side)? {
                return Ok(ended);
            }
            let tired = match self.idle {
                // Nothing between two polls: a pause of the processor takes longer than a poll.
                Idle::Spin => {
                    let polls = spins.wrapping_add(1);
                    polls.is_multiple_of(CLOCK)
                        && (polls.is_multiple_of(CONNECTION) || deadline.has_passed())
                }
                Idle::SpinThenYield { spins: most } | Idle::SpinThenWait { spins: most } => {
                    std::hint::spin_loop();
                    spins >= most
                }
            };
            spins = spins.wrapping_add(1);
            if tired && let Some(ended) = self.rest(side, deadline)? {
                return Ok(ended);
            }
        }
    }

    /// What a wait does besides polling: looks at the connection and the clock, and sleeps.
    #[cold]
    #[inline(never)]
    pub(super) fn rest(
        &mut self,
        side: Side,
        deadline: Deadline,
    ) -> Result<Option<Ended<C>>, WaitError> {
        let in_flight = self.pair.in_flight(side);
        if let Some(end) = self.end() {
            // What was flushed is there at once; what is not there now has no completion.
            return match self.attempt(side)? {
                Some(ended) => Ok(Some(ended)),
                None if in_flight == 0 || deadline.has_passed() => Err(end),
                None => self.sleep(side, deadline),
            };
        }
        if in_flight == 0 {
            return Err(WaitError::NothingPosted);
        }
        if deadline.has_passed() {
            return Err(WaitError::TimedOut { in_flight });
        }
        match self.idle {
            Idle::Spin => Ok(None),
            Idle::SpinThenYield { .. } => {
                std::thread::yield_now();
                Ok(None)
            }
            Idle::SpinThenWait { .. } => self.sleep(side, deadline),
        }
    }

    /// How the connection has ended, if it has. What was seen first stays.
    pub(super) fn end(&mut self) -> Option<WaitError> {
        if self.end.is_none() {
            self.end = self.pair.driver.ended();
        }
        self.end
    }

    /// Polls, arms, polls again, and only then sleeps: a completion that came in between is not
    /// slept through.
    pub(super) fn sleep(
        &mut self,
        side: Side,
        deadline: Deadline,
    ) -> Result<Option<Ended<C>>, WaitError> {
        self.pair.driver.arm(side)?;
        if let Some(ended) = self.attempt(side)? {
            return Ok(Some(ended));
        }
        self.pair.driver.sleep(deadline)?;
        Ok(None)
    }

    /// Ends everything, and hands each context to `each`.
    pub(super) fn finish(&mut self, deadline: Deadline, each: impl FnMut(Side, Ended<C>)) {
        let Self { pair, sent, received, strays, .. } = self;
        let fetch = |pair: &mut Pair<D, C>| {
            for completion in sent.poll().into_iter().flatten() {
                *strays += u64::from(pair.sends.retire(completion).is_err());
            }
            for completion in received.poll().into_iter().flatten() {
                *strays += u64::from(pair.recvs.retire(completion).is_err());
            }
        };
        pair.finish(deadline, fetch, each);
    }
}

impl<D: Driver, C: 'static> Drop for Inner<D, C> {
    fn drop(&mut self) {
        self.finish(Deadline::after(Duration::ZERO), |_, ended| drop(ended));
    }
}

impl<D: Driver, C: 'static> fmt::Debug for Inner<D, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("device", &self.pair.driver.base().device_name())
            .field("sends", &*self.pair.sends)
            .field("recvs", &*self.pair.recvs)
            .finish_non_exhaustive()
    }
}
