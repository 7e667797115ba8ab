//! Sleeping in a way of one's own: what a poller needs of an endpoint.

use nanoverbs_core::Armed;

use super::{Driver, Endpoint, Inner, Side, WaitError};
use crate::poller::Sources;

impl<D: Driver, C: 'static> Endpoint<D, C> {
    /// Asks for an event with the next completion of either kind, and looks once more. Only after
    /// [`Armed::Quiet`] may the thread sleep, and until one of the [`sources`](Endpoint::sources) wakes it.
    ///
    /// For a thread that has its own way of sleeping; [`Endpoint::recv_completion`] and
    /// [`Endpoint::send_completion`] do all of it. Makes system calls.
    ///
    /// # Errors
    ///
    /// [`WaitError`] when the device cannot be polled or armed any more.
    pub fn arm(&mut self) -> Result<Armed, WaitError> {
        let inner = &mut self.0;
        inner.pair.driver.arm(Side::Send)?;
        inner.pair.driver.arm(Side::Recv)?;
        // What came before the arming brings no event.
        Ok(if inner.collect()? { Armed::Ready } else { Armed::Quiet })
    }

    /// Adds what ends a sleep: completions of an armed endpoint, and news of its connection. On the soft
    /// device, which raises no events, the sleep is made short instead.
    pub fn sources<'s>(&'s self, sources: &mut Sources<'s>) {
        self.0.pair.driver.sources(sources);
    }

    /// How the connection has ended, if it has: [`WaitError::Disconnected`] when the peer said goodbye,
    /// [`WaitError::Broken`] when nobody did. What is in flight then is flushed: its outcomes come.
    /// Makes system calls.
    pub fn end(&mut self) -> Option<WaitError> {
        self.0.end()
    }

    /// Whether the connection has ended, in either way. Makes system calls.
    pub fn has_ended(&mut self) -> bool {
        self.end().is_some()
    }
}

impl<D: Driver, C: 'static> Inner<D, C> {
    /// Polls both completion queues; says whether there is an outcome to take.
    fn collect(&mut self) -> Result<bool, WaitError> {
        for completion in self.sent.poll()? {
            self.strays += u64::from(self.pair.sends.retire(completion).is_err());
        }
        for completion in self.received.poll()? {
            self.strays += u64::from(self.pair.recvs.retire(completion).is_err());
        }
        Ok(self.pair.sends.ended() > 0 || self.pair.recvs.ended() > 0)
    }
}
