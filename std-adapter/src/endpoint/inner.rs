//! What an endpoint is made of, in any of its states.

use super::*;

/// An endpoint in any of its states.
pub(crate) struct Inner<D: Driver, C: 'static> {
    pub(super) sends: ManuallyDrop<SendQueue<'static, D::SendPort, C, DEPTH>>,
    pub(super) recvs: ManuallyDrop<RecvQueue<'static, D::RecvPort, C, DEPTH>>,
    pub(super) send_link: SendLink<'static, CHAIN, SGES>,
    pub(super) recv_link: RecvLink<'static, CHAIN, SGES>,
    pub(super) send_staging: ManuallyDrop<Lent<SendStaging<CHAIN, SGES>>>,
    pub(super) recv_staging: ManuallyDrop<Lent<RecvStaging<CHAIN, SGES>>>,
    pub(super) sent: Completions<D::PollPort, 16>,
    pub(super) received: Completions<D::PollPort, 16>,
    pub(super) strays: u64,
    pub(super) idle: Idle,
    pub(super) inline: u32,
    /// How the connection ended, once that was seen.
    pub(super) end: Option<WaitError>,
    pub(super) pool: Option<BlockPool>,
    /// Last, because the ports above post to its queue pair.
    pub(super) driver: D,
}

impl<D: Driver, C: 'static> Inner<D, C> {
    pub(crate) fn new(
        mut driver: D,
        send_port: D::SendPort,
        recv_port: D::RecvPort,
        sent: D::PollPort,
        received: D::PollPort,
        options: &Options,
        inline: u32,
    ) -> Result<Self, EndpointError> {
        let pool = BlockPool::new(&mut driver, options.blocks, options.block_len)?;
        let (send_config, recv_config) = driver.configs();
        let (send_lent, send_slots) = Lent::new(SendSlots::new());
        let (recv_lent, recv_slots) = Lent::new(RecvSlots::new());
        let sends = SendQueue::new(send_port, send_slots, send_config);
        let recvs = RecvQueue::new(recv_port, recv_slots, recv_config);
        let (sends, recvs) = match (sends, recvs) {
            (Ok(sends), Ok(recvs)) => (sends, recvs),
            (sends, recvs) => {
                let error = sends.err().or(recvs.err());
                // SAFETY: the queues that borrowed the slots are gone with the match.
                unsafe {
                    send_lent.free();
                    recv_lent.free();
                }
                return Err(error.map_or(
                    EndpointError::OutOfRange { what: "a depth", given: 0, min: 1, max: 1 },
                    EndpointError::Config,
                ));
            }
        };
        // From here on the queues give their slots back themselves, by `into_storage`.
        let _ = (ManuallyDrop::new(send_lent), ManuallyDrop::new(recv_lent));
        let (send_staging, send_arrays) = Lent::new(SendStaging::new());
        let (recv_staging, recv_arrays) = Lent::new(RecvStaging::new());
        Ok(Self {
            sends: ManuallyDrop::new(sends),
            recvs: ManuallyDrop::new(recvs),
            send_link: send_arrays.link(),
            recv_link: recv_arrays.link(),
            send_staging: ManuallyDrop::new(send_staging),
            recv_staging: ManuallyDrop::new(recv_staging),
            sent: Completions::new(sent, options.send_depth),
            received: Completions::new(received, options.recv_depth),
            strays: 0,
            idle: options.idle,
            inline,
            end: None,
            pool: Some(pool),
            driver,
        })
    }

    #[inline(always)]
    pub(super) fn block(&mut self) -> Option<Block> {
        self.pool.as_mut()?.allocate()
    }

    pub(super) fn share(&mut self, len: usize, rights: Rights) -> Result<Shared, EndpointError> {
        self.driver.share(Pages::new(len)?, rights)
    }

    #[inline(always)]
    pub(super) fn post_recv(&mut self, context: C) -> Result<(), PostError<C>>
    where
        C: RecvBuffers,
    {
        post_one!(self.recvs.reserve(&mut self.recv_link, 1), context, |chain, context| {
            chain.push(context)
        })
    }

    #[inline(always)]
    pub(super) fn try_sent(&mut self) -> Result<Option<Ended<C>>, PollError> {
        if let Some(ended) = self.sends.take() {
            return Ok(Some(ended));
        }
        for completion in self.sent.poll()? {
            self.strays += u64::from(self.sends.retire(completion).is_err());
        }
        Ok(self.sends.take())
    }

    #[inline(always)]
    pub(super) fn try_received(&mut self) -> Result<Option<Ended<C>>, PollError> {
        if let Some(ended) = self.recvs.take() {
            return Ok(Some(ended));
        }
        for completion in self.received.poll()? {
            self.strays += u64::from(self.recvs.retire(completion).is_err());
        }
        Ok(self.recvs.take())
    }

    #[inline(always)]
    pub(super) fn attempt(&mut self, side: Side) -> Result<Option<Ended<C>>, PollError> {
        match side {
            Side::Send => self.try_sent(),
            Side::Recv => self.try_received(),
        }
    }

    pub(super) fn in_flight(&self, side: Side) -> u32 {
        match side {
            Side::Send => self.sends.in_flight(),
            Side::Recv => self.recvs.in_flight(),
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
                Idle::Spin => spins.is_multiple_of(1024),
                Idle::SpinThenYield { spins: most } | Idle::SpinThenWait { spins: most } => {
                    spins >= most
                }
            };
            spins = spins.wrapping_add(1);
            if tired {
                if let Some(ended) = self.rest(side, deadline)? {
                    return Ok(ended);
                }
            } else {
                std::hint::spin_loop();
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
        let in_flight = self.in_flight(side);
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
            self.end = self.driver.ended();
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
        self.driver.arm(side)?;
        if let Some(ended) = self.attempt(side)? {
            return Ok(Some(ended));
        }
        self.driver.sleep(deadline)?;
        Ok(None)
    }

    /// Ends everything, and hands each context to `each`.
    pub(super) fn finish(&mut self, deadline: Deadline, mut each: impl FnMut(Side, Ended<C>)) {
        self.sends.close();
        self.recvs.close();
        if !self.driver.belongs_here() {
            return;
        }
        self.driver.disconnect();
        let mut quiet = None;
        loop {
            let before = (self.sends.in_flight(), self.recvs.in_flight());
            while let Ok(Some(ended)) = self.try_sent() {
                each(Side::Send, ended);
            }
            while let Ok(Some(ended)) = self.try_received() {
                each(Side::Recv, ended);
            }
            let (sends, recvs) = (self.sends.in_flight(), self.recvs.in_flight());
            if before != (sends, recvs) {
                quiet = None;
            }
            // Silent sends that were done before the end have no completion, and a flush is prompt.
            let patience = || Deadline::after(SILENCE);
            let is_silent = recvs == 0
                && sends <= self.sends.silent()
                && (sends == 0 || quiet.get_or_insert_with(patience).has_passed());
            if is_silent || deadline.has_passed() {
                break;
            }
            std::thread::yield_now();
        }
        if self.driver.destroy() {
            // SAFETY: the queue pair is gone, and no device touches the buffers of its requests.
            // Completions that are left in the completion queues are polled by nobody any more.
            unsafe {
                self.sends.abandon();
                self.recvs.abandon();
            }
        }
        while let Some(ended) = self.sends.take() {
            each(Side::Send, ended);
        }
        while let Some(ended) = self.recvs.take() {
            each(Side::Recv, ended);
        }
    }
}

impl<D: Driver, C: 'static> Drop for Inner<D, C> {
    fn drop(&mut self) {
        self.finish(Deadline::after(Duration::ZERO), |_, ended| drop(ended));
        // SAFETY: each is taken once, here, and `self` is not used afterwards.
        let (sends, recvs) =
            unsafe { (ManuallyDrop::take(&mut self.sends), ManuallyDrop::take(&mut self.recvs)) };
        // A queue that still has something in flight keeps its slots for ever, and counts them.
        if let Ok((_, slots)) = sends.into_storage() {
            // SAFETY: the slots came out of a box (`Inner::new`), and their queue is gone.
            drop(unsafe { Box::from_raw(slots) });
        }
        if let Ok((_, slots)) = recvs.into_storage() {
            // SAFETY: as above.
            drop(unsafe { Box::from_raw(slots) });
        }
        // SAFETY: the links are not used any more, and have no drop of their own.
        unsafe {
            ManuallyDrop::take(&mut self.send_staging).free();
            ManuallyDrop::take(&mut self.recv_staging).free();
        }
    }
}

impl<D: Driver, C: 'static> fmt::Debug for Inner<D, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("device", &self.driver.device_name())
            .field("sends", &*self.sends)
            .field("recvs", &*self.recvs)
            .finish_non_exhaustive()
    }
}
