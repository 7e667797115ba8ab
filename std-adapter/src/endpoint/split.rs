//! An endpoint taken apart for two threads: one sends, the other receives.
//!
//! The halves borrow the endpoint, so it is whole again when both threads are done with them. They spin:
//! sleeping and looking after the connection is the endpoint's own business.

use nanoverbs_core::{
    Completions, Ended, PollError, RecvBuffers, RecvLink, RecvQueue, ReserveError, SendBuffers,
    SendLink, SendQueue, SubmitError, op,
};

use super::driver::sealed::Backend;
use super::{
    BlockPool, CHAIN, CLOCK, DEPTH, Driver, Endpoint, PostError, Receives, Refusal, SGES, Sends,
    WaitError,
};
use crate::Deadline;

/// The two halves of an endpoint, and its blocks. Blocks go back to the pool from any thread.
#[derive(Debug)]
pub struct Halves<'e, D: Driver, C: 'static> {
    /// Posts sends, READs and WRITEs, and takes their outcomes.
    pub send: SendHalf<'e, D, C>,
    /// Posts receives, and takes their outcomes.
    pub recv: RecvHalf<'e, D, C>,
    /// The blocks, for the thread that allocates.
    pub pool: Option<&'e mut BlockPool>,
}

/// The sending half of an endpoint.
#[derive(Debug)]
pub struct SendHalf<'e, D: Driver, C: 'static> {
    queue: &'e mut SendQueue<'static, <D as Backend>::SendPort, C, DEPTH>,
    link: &'e mut SendLink<'static, CHAIN, SGES>,
    completions: &'e mut Completions<<D as Backend>::PollPort, 16>,
}

/// The receiving half of an endpoint.
#[derive(Debug)]
pub struct RecvHalf<'e, D: Driver, C: 'static> {
    queue: &'e mut RecvQueue<'static, <D as Backend>::RecvPort, C, DEPTH>,
    link: &'e mut RecvLink<'static, CHAIN, SGES>,
    completions: &'e mut Completions<<D as Backend>::PollPort, 16>,
}

impl<D: Driver, C: 'static> Endpoint<D, C> {
    /// Takes the endpoint apart for two threads, for as long as the halves live.
    pub fn split(&mut self) -> Halves<'_, D, C> {
        let inner = &mut self.0;
        Halves {
            send: SendHalf {
                queue: &mut inner.pair.sends,
                link: &mut inner.links.send,
                completions: &mut inner.sent,
            },
            recv: RecvHalf {
                queue: &mut inner.pair.recvs,
                link: &mut inner.links.recv,
                completions: &mut inner.received,
            },
            pool: inner.pool.as_mut(),
        }
    }
}

macro_rules! completions {
    () => {
        /// The next request that has ended, if one has. Returns at once.
        ///
        /// # Errors
        ///
        /// [`PollError`] when the completion queue cannot be polled any more.
        #[inline(always)]
        pub fn try_completion(&mut self) -> Result<Option<Ended<C>>, PollError> {
            if let Some(ended) = self.queue.take() {
                return Ok(Some(ended));
            }
            for completion in self.completions.poll()? {
                // One that belongs to nothing here ends nothing.
                let _ = self.queue.retire(completion);
            }
            Ok(self.queue.take())
        }

        /// The next request that has ended: the oldest one. Polls without pause until it has.
        ///
        /// # Errors
        ///
        /// [`WaitError`]; what is in flight stays so.
        #[inline]
        pub fn completion(&mut self, deadline: impl Into<Deadline>) -> Result<Ended<C>, WaitError> {
            let deadline = deadline.into();
            let mut polls: u32 = 0;
            loop {
                if let Some(ended) = self.try_completion()? {
                    return Ok(ended);
                }
                if polls.is_multiple_of(CLOCK) {
                    let in_flight = self.queue.in_flight();
                    if in_flight == 0 {
                        return Err(WaitError::NothingPosted);
                    }
                    if deadline.has_passed() {
                        return Err(WaitError::TimedOut { in_flight });
                    }
                }
                polls = polls.wrapping_add(1);
            }
        }

        /// Requests in flight.
        pub fn in_flight(&self) -> u32 {
            self.queue.in_flight()
        }
    };
}

impl<'e, D: Driver, C: 'static> SendHalf<'e, D, C> {
    /// Posts any operation, with the flags that it has.
    ///
    /// # Errors
    ///
    /// [`PostError`] with the context.
    #[inline(always)]
    pub fn post<O: op::Operation<C>>(
        &mut self,
        operation: O,
        context: C,
    ) -> Result<(), PostError<C>> {
        post_one!(self.queue.reserve(self.link, 1), context, |chain, context| {
            chain.push(operation, context)
        })
    }

    /// Posts a SEND of the message in `context`.
    ///
    /// # Errors
    ///
    /// [`PostError`] with the context.
    #[inline(always)]
    pub fn post_send(&mut self, context: C) -> Result<(), PostError<C>>
    where
        C: SendBuffers,
    {
        self.post(op::Send::new().signaled(), context)
    }

    /// Starts a chain of up to `n` sends that go out behind one doorbell.
    ///
    /// # Errors
    ///
    /// [`ReserveError`] when they do not all fit now.
    #[inline(always)]
    pub fn reserve(&mut self, n: usize) -> Result<Sends<'_, D, C>, ReserveError> {
        self.queue.reserve(self.link, n)
    }

    completions!();
}

impl<'e, D: Driver, C: 'static> RecvHalf<'e, D, C> {
    /// Posts a receive into the buffers of `context`.
    ///
    /// # Errors
    ///
    /// [`PostError`] with the context.
    #[inline(always)]
    pub fn post_recv(&mut self, context: C) -> Result<(), PostError<C>>
    where
        C: RecvBuffers,
    {
        post_one!(self.queue.reserve(self.link, 1), context, |chain, context| {
            chain.push(context)
        })
    }

    /// Starts a chain of up to `n` receives that are posted with one call.
    ///
    /// # Errors
    ///
    /// [`ReserveError`] when they do not all fit now.
    #[inline(always)]
    pub fn reserve(&mut self, n: usize) -> Result<Receives<'_, D, C>, ReserveError> {
        self.queue.reserve(self.link, n)
    }

    completions!();
}
