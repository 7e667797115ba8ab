//! Work that serves a hub.

use std::fmt;
use std::ops::ControlFlow;
use std::time::Duration;

use nanoverbs_core::{Armed, Ended};

use super::{Sources, Turn, Work};
use crate::endpoint::{Driver, Side, WaitError};
use crate::hub::{Event, Hub, Key};

/// What is done with the peers of a hub, on the poller's thread.
///
/// A closure `FnMut(&mut Hub<D, C, N>, Key, Side, Ended<C>) -> ControlFlow<()>` is one too, for members that are
/// there already: it refuses who asks, and closes who has gone.
pub trait Host<D: Driver, C: 'static, const N: usize> {
    /// Called for each request that has ended, so many a member before the next member has its turn. It may post
    /// for any member. `Break` ends the poller.
    fn ended(
        &mut self,
        hub: &mut Hub<D, C, N>,
        key: Key,
        side: Side,
        ended: Ended<C>,
    ) -> ControlFlow<()>;

    /// Called when something has become of a connection. By default who asks is refused, and who has gone is
    /// closed at once: what it still had in flight is dropped. `Break` ends the poller.
    fn event(&mut self, hub: &mut Hub<D, C, N>, event: Event<D>) -> ControlFlow<()> {
        if let Event::Ended { key, .. } | Event::Failed { key, .. } = event {
            let _ = hub.close(key, Duration::ZERO, |_, ended| drop(ended));
        }
        ControlFlow::Continue(())
    }

    /// Called once a turn, before the completions are polled: the place to post what other threads have handed
    /// over, at most `batch` of it. Says how much that was.
    #[inline(always)]
    fn begin(&mut self, hub: &mut Hub<D, C, N>, batch: usize) -> usize {
        let _ = (hub, batch);
        0
    }
}

impl<D: Driver, C: 'static, const N: usize, F> Host<D, C, N> for F
where
    F: FnMut(&mut Hub<D, C, N>, Key, Side, Ended<C>) -> ControlFlow<()>,
{
    #[inline(always)]
    fn ended(
        &mut self,
        hub: &mut Hub<D, C, N>,
        key: Key,
        side: Side,
        ended: Ended<C>,
    ) -> ControlFlow<()> {
        self(hub, key, side, ended)
    }
}

/// Polls a hub and calls a host with what has ended, and with what becomes of the connections.
///
/// Each turn takes at most a batch. Connections are looked at every 1,024 turns, while a member is on its way out,
/// and before it sleeps. It can sleep: completions wake it, connections and their requests do, and threads that
/// hand work over to [`Host::begin`] do with [`Waker::wake`](super::Waker::wake). Peers come and go without ending
/// it.
///
/// ```
/// use std::ops::ControlFlow;
/// use std::time::Duration;
/// use nanoverbs::endpoint::{Options, Side, Soft, SoftDevice};
/// use nanoverbs::hub::{Event, Hub, Key};
/// use nanoverbs::nanoverbs_core::{Block, Ended};
/// use nanoverbs::poller::{Host, Poller, Serve};
///
/// /// Sends back whatever comes, to whoever sent it.
/// struct Echo;
///
/// type Clients = Hub<Soft<8>, Block, 4>;
///
/// impl Host<Soft<8>, Block, 4> for Echo {
///     fn ended(&mut self, hub: &mut Clients, key: Key, side: Side, mut ended: Ended<Block>) -> ControlFlow<()> {
///         // A flushed one drops its block, and its member is about to leave.
///         if let (true, Ok(mut peer)) = (ended.outcome.is_done(), hub.peer(key)) {
///             let posted = match side {
///                 Side::Recv => {
///                     let len = ended.message().map_or(0, <[u8]>::len);
///                     ended.context.set_len(len).expect("no more came than there is room");
///                     peer.post_send(ended.context)
///                 }
///                 Side::Send => peer.post_recv(ended.context),
///             };
///             drop(posted); // A member that has just failed takes nothing more.
///         }
///         ControlFlow::Continue(())
///     }
///
///     fn event(&mut self, hub: &mut Clients, event: Event<Soft<8>>) -> ControlFlow<()> {
///         match event {
///             Event::Request(request) => {
///                 // One more than there is room for is refused.
///                 let joined = hub.accept(request).ok().and_then(|joining| joining.receives(2).ok());
///                 drop(joined.map(|ready| ready.start()));
///             }
///             Event::Ended { key, .. } => drop(hub.close(key, Duration::ZERO, |_, ended| drop(ended))),
///             _ => {}
///         }
///         ControlFlow::Continue(())
///     }
/// }
///
/// static DEVICE: SoftDevice<8> = SoftDevice::new();
///
/// let hub: Clients = Options::new().soft_hub(&DEVICE)?;
/// let door = hub.door();
/// let poller = Poller::builder().spawn(Serve::new(hub, Echo))?;
///
/// let patience = Duration::from_secs(5);
/// for _ in 0..3 {
///     let options = Options::new().blocks(4, 4096);
///     let mut client = door.connect::<Block>(options)?.receives(1)?.establish(patience)?;
///     let mut block = client.block().expect("a block");
///     block.set_len(5)?;
///     block.copy_from_slice(b"hello");
///     client.post_send(block)?;
///     assert_eq!(client.recv_completion(patience)?.message(), Some(&b"hello"[..]));
/// }
/// poller.stop();
/// let (hub, _echo) = poller.join().work.into_parts();
/// assert_eq!(hub.strays(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Serve<D: Driver, C: 'static, H, const N: usize> {
    hub: Hub<D, C, N>,
    host: H,
    turns: u32,
    /// It was about to sleep, so the next turn looks at the connections.
    slept: bool,
    is_over: bool,
}

impl<D: Driver, C: 'static, H, const N: usize> Serve<D, C, H, N>
where
    H: FnMut(&mut Hub<D, C, N>, Key, Side, Ended<C>) -> ControlFlow<()>,
{
    /// A hub, and a closure for what has ended.
    pub const fn with(hub: Hub<D, C, N>, host: H) -> Self {
        Self { hub, host, turns: 0, slept: true, is_over: false }
    }
}

impl<D: Driver, C: 'static, H: Host<D, C, N>, const N: usize> Serve<D, C, H, N> {
    /// A hub and its host.
    pub const fn new(hub: Hub<D, C, N>, host: H) -> Self {
        Self { hub, host, turns: 0, slept: true, is_over: false }
    }

    /// Tells the host what has become of the connections. Says how much that was.
    #[cold]
    #[inline(never)]
    fn look(&mut self) -> Result<usize, WaitError> {
        let mut told = 0;
        while let Some(event) = self.hub.poll_event()? {
            told += 1;
            if self.host.event(&mut self.hub, event).is_break() {
                self.is_over = true;
                break;
            }
        }
        Ok(told)
    }
}

impl<D: Driver, C: 'static, H, const N: usize> Serve<D, C, H, N> {
    /// The hub and its host, to go on or to close.
    pub fn into_parts(self) -> (Hub<D, C, N>, H) {
        (self.hub, self.host)
    }
}

impl<D: Driver, C: 'static, H: Host<D, C, N>, const N: usize> Work for Serve<D, C, H, N> {
    #[inline]
    fn turn(&mut self, batch: usize) -> Turn {
        let mut done = self.host.begin(&mut self.hub, batch);
        self.turns = self.turns.wrapping_add(1);
        if self.slept || self.hub.has_ending() || self.turns.is_multiple_of(LOOK_EVERY) {
            self.slept = false;
            match self.look() {
                Ok(told) => done += told,
                Err(error) => return Turn::Failed(error),
            }
        }
        if self.is_over {
            return Turn::Finished;
        }
        // A busy member's completions do not keep those behind them from being seen.
        for _ in 0..POLLS {
            match self.hub.poll() {
                Ok(count) if count >= Hub::<D, C, N>::BATCH => {}
                Ok(_) => break,
                Err(error) => return Turn::Failed(error.into()),
            }
        }
        let mut taken = 0;
        while taken < batch {
            let Some((key, side, ended)) = self.hub.next_ended() else { break };
            taken += 1;
            if self.host.ended(&mut self.hub, key, side, ended).is_break() {
                self.is_over = true;
                return Turn::Finished;
            }
        }
        match done + taken {
            0 => Turn::Idle,
            count => Turn::Busy(count),
        }
    }

    /// A poller that is to stop waits for the sends.
    fn is_pending(&self) -> bool {
        self.hub.sends_in_flight() > 0
    }

    fn can_sleep(&self) -> bool {
        true
    }

    fn arm(&mut self) -> Result<Armed, WaitError> {
        if self.hub.arm()? == Armed::Ready || self.look()? > 0 {
            return Ok(Armed::Ready);
        }
        self.slept = true;
        Ok(Armed::Quiet)
    }

    fn sources<'s>(&'s self, sources: &mut Sources<'s>) {
        self.hub.sources(sources);
    }
}

impl<D: Driver, C: 'static, H, const N: usize> fmt::Debug for Serve<D, C, H, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serve").field("hub", &self.hub).finish_non_exhaustive()
    }
}

/// Polls in a turn, at most.
const POLLS: usize = 8;

/// Turns between two looks at the connections, which cost a system call.
const LOOK_EVERY: u32 = 1024;
