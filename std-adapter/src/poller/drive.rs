//! Work that serves an endpoint.

use std::fmt;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use nanoverbs_core::{Armed, Ended};

use super::{Sources, Turn, Work};
use crate::endpoint::{Driver, Endpoint, Side, WaitError};

/// What is done with the outcomes of an endpoint, on the poller's thread.
///
/// A closure `FnMut(&mut Endpoint<D, C>, Side, Ended<C>) -> ControlFlow<()>` is one too.
pub trait Handler<D: Driver, C: 'static> {
    /// Called for each request that has ended. It may post. `Break` ends the poller.
    fn ended(
        &mut self,
        endpoint: &mut Endpoint<D, C>,
        side: Side,
        ended: Ended<C>,
    ) -> ControlFlow<()>;

    /// Called once a turn, before the completions are polled: the place to post what other threads have handed
    /// over, at most `batch` of it. Says how much that was.
    #[inline(always)]
    fn begin(&mut self, endpoint: &mut Endpoint<D, C>, batch: usize) -> usize {
        let _ = (endpoint, batch);
        0
    }
}

impl<D: Driver, C: 'static, F> Handler<D, C> for F
where
    F: FnMut(&mut Endpoint<D, C>, Side, Ended<C>) -> ControlFlow<()>,
{
    #[inline(always)]
    fn ended(
        &mut self,
        endpoint: &mut Endpoint<D, C>,
        side: Side,
        ended: Ended<C>,
    ) -> ControlFlow<()> {
        self(endpoint, side, ended)
    }
}

/// Polls an endpoint and calls a handler with what has ended.
///
/// Each turn takes at most a batch, sends and receives in turn. The poller ends when the connection has
/// ended and everything in flight has its outcome: with [`End::Disconnected`](super::End::Disconnected) when
/// the peer said goodbye, with [`End::Failed`](super::End::Failed) of [`WaitError::Broken`] when nobody did. It
/// can sleep: completions wake it, news of the connection do, and threads that hand work over to
/// [`Handler::begin`] do with [`Waker::wake`](super::Waker::wake).
///
/// Closing is left to who joins: what is in flight then comes back from [`Endpoint::close`].
///
/// ```
/// use std::ops::ControlFlow;
/// use nanoverbs::endpoint::{Options, Side, SoftDevice};
/// use nanoverbs::nanoverbs_core::{Block, Ended};
/// use nanoverbs::poller::{Drive, Poller};
/// use std::time::Duration;
///
/// static DEVICE: SoftDevice = SoftDevice::new();
///
/// let [client, server] = Options::new().soft_pair::<Block>(&DEVICE)?;
/// let (mut client, server) = (
///     client.receives(4)?.establish(Duration::from_secs(1))?,
///     server.receives(4)?.establish(Duration::from_secs(1))?,
/// );
/// // A server that sends back whatever comes, and receives into what it has sent.
/// let echo = Drive::with(server, |server, side, mut ended| {
///     let posted = match side {
///         Side::Recv => {
///             // As much as came, and not what an earlier message has left behind it.
///             let len = ended.message().map_or(0, <[u8]>::len);
///             ended.context.set_len(len).expect("no more came than there is room");
///             server.post_send(ended.context)
///         }
///         Side::Send => server.post_recv(ended.context),
///     };
///     if posted.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
/// });
/// let poller = Poller::builder().spawn(echo)?;
///
/// let mut block = client.block().expect("a block");
/// block.set_len(5)?;
/// block.copy_from_slice(b"hello");
/// client.post_send(block).expect("there is room");
/// let echoed = client.recv_completion(Duration::from_secs(5))?;
/// assert_eq!(echoed.message(), Some(&b"hello"[..]));
///
/// poller.stop();
/// let (server, _handler) = poller.join().work.into_parts();
/// let _ = server.close(Duration::from_secs(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Drive<D: Driver, C: 'static, H> {
    endpoint: Endpoint<D, C>,
    handler: H,
    idle: u32,
    /// When the connection was seen to have ended, or the last completion after that.
    ended_at: Option<Instant>,
}

impl<D: Driver, C: 'static, H> Drive<D, C, H>
where
    H: FnMut(&mut Endpoint<D, C>, Side, Ended<C>) -> ControlFlow<()>,
{
    /// An endpoint, and a closure for what has ended.
    pub const fn with(endpoint: Endpoint<D, C>, handler: H) -> Self {
        Self { endpoint, handler, idle: 0, ended_at: None }
    }
}

impl<D: Driver, C: 'static, H: Handler<D, C>> Drive<D, C, H> {
    /// An endpoint and its handler.
    pub const fn new(endpoint: Endpoint<D, C>, handler: H) -> Self {
        Self { endpoint, handler, idle: 0, ended_at: None }
    }
}

impl<D: Driver, C: 'static, H> Drive<D, C, H> {
    /// The endpoint and its handler, to go on or to close.
    pub fn into_parts(self) -> (Endpoint<D, C>, H) {
        (self.endpoint, self.handler)
    }

    /// A turn that brought nothing.
    #[inline(always)]
    fn nothing(&mut self) -> Turn {
        self.idle = self.idle.wrapping_add(1);
        if self.idle.is_multiple_of(LOOK_EVERY)
            && let Some(end) = self.over()
        {
            return Turn::Failed(end);
        }
        if self.endpoint.sends_in_flight() > 0 { Turn::Pending } else { Turn::Idle }
    }

    /// How the connection has ended, once nothing comes any more.
    #[cold]
    fn over(&mut self) -> Option<WaitError> {
        let end = self.endpoint.end()?;
        let in_flight = self.endpoint.sends_in_flight() + self.endpoint.receives_posted();
        let since = *self.ended_at.get_or_insert_with(Instant::now);
        (in_flight == 0 || since.elapsed() > FLUSH).then_some(end)
    }
}

impl<D: Driver, C: 'static, H: Handler<D, C>> Work for Drive<D, C, H> {
    #[inline]
    fn turn(&mut self, batch: usize) -> Turn {
        let Self { endpoint, handler, .. } = self;
        let begun = handler.begin(endpoint, batch);
        let mut taken = 0;
        while taken < batch {
            let before = taken;
            for side in [Side::Send, Side::Recv] {
                let next = match side {
                    Side::Send => endpoint.try_send_completion(),
                    Side::Recv => endpoint.try_recv_completion(),
                };
                match next {
                    Ok(Some(ended)) => {
                        taken += 1;
                        if handler.ended(endpoint, side, ended).is_break() {
                            return Turn::Finished;
                        }
                    }
                    Ok(None) => {}
                    Err(error) => return Turn::Failed(error.into()),
                }
                if taken == batch {
                    break;
                }
            }
            if taken == before {
                break;
            }
        }
        match begun + taken {
            0 => self.nothing(),
            count => {
                if taken > 0 && self.ended_at.is_some() {
                    self.ended_at = Some(Instant::now());
                }
                Turn::Busy(count)
            }
        }
    }

    fn can_sleep(&self) -> bool {
        true
    }

    fn arm(&mut self) -> Result<Armed, WaitError> {
        if self.endpoint.arm()? == Armed::Ready {
            return Ok(Armed::Ready);
        }
        self.over().map_or(Ok(Armed::Quiet), Err)
    }

    fn sources<'s>(&'s self, sources: &mut Sources<'s>) {
        self.endpoint.sources(sources);
        if self.ended_at.is_some() {
            sources.at_most(FLUSH);
        }
    }
}

impl<D: Driver, C: 'static, H> fmt::Debug for Drive<D, C, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drive")
            .field("device", &self.endpoint.device_name())
            .finish_non_exhaustive()
    }
}

/// Empty turns between two looks at the connection, which cost a system call.
const LOOK_EVERY: u32 = 4096;

/// How long the outcomes of an ended connection may be apart. Some devices lose one.
const FLUSH: Duration = Duration::from_millis(100);
