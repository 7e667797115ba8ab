//! The front door: a connected queue pair with everything that a simple program would otherwise place
//! by hand, and the verbs of the man pages.
//!
//! An [`Endpoint`] owns its queues, their storage, the staging arrays, a pool of registered blocks and its
//! completion queues. Each of its calls is the steps of the core and nothing else: reserve, push, submit
//! on the way in; poll, retire, take on the way out.
//!
//! It is made in three steps, so that nothing can be sent too early and no receive be posted too late: a
//! [`Prepared`] endpoint has its queue pair; a [`Ready`] one has receives posted, or was told that none
//! are wanted; an [`Endpoint`] is connected. [`Ready::establish`] waits for that, [`Ready::start`] does not.
//!
//! One thread uses an endpoint. Blocking calls take a [`Deadline`]; one that passes loses nothing.
//!
//! Invariant: a context that went in comes out once: by a refused post, by a completion, or by
//! [`Endpoint::close`].

/// Reserves for one request, pushes it and submits; the context comes back when it is not posted.
macro_rules! post_one {
    ($reserved:expr, $context:ident, |$chain:ident, $pushed:ident| $push:expr) => {{
        let mut $chain = match $reserved {
            Ok(chain) => chain,
            Err(error) => {
                let cause = Refusal::Reserve(error);
                return Err(PostError::Refused { context: $context, cause });
            }
        };
        let $pushed = $context;
        if let Err(rejected) = $push {
            let (context, cause) = (rejected.context, Refusal::Push(rejected.error));
            return Err(PostError::Refused { context, cause });
        }
        match $chain.submit() {
            Ok(_) => Ok(()),
            Err(SubmitError::Unknown { code }) => Err(PostError::Unknown { code }),
            Err(SubmitError::Partial { code, rest, .. }) => {
                let mut context = None;
                rest.into_contexts(|back| context = Some(back));
                match context {
                    Some(context) => {
                        Err(PostError::Refused { context, cause: Refusal::Device { code } })
                    }
                    None => Err(PostError::Unknown { code }),
                }
            }
        }
    }};
}

#[macro_use]
mod operations;

mod driver;
mod error;
pub mod hub;
mod inner;
mod memory;
mod options;
mod pair;
mod prepared;
mod sleep;
mod soft;
mod split;
mod storage;
#[cfg(feature = "librdmacm")]
mod verbs;

use std::fmt;
use std::mem::ManuallyDrop;
use std::time::Duration;

pub use crate::step::Step;
pub use driver::{Driver, Side};
pub use error::{EndpointError, PostError, ReceiveError, Refusal, WaitError};
use inner::Inner;
pub use memory::{BlockPool, Shared};
pub use operations::{OpenWindowError, Window};
pub use options::{Idle, Options};
pub use prepared::{Establishing, Prepared, Ready};
pub use soft::{Soft, SoftDevice};
pub use split::{Halves, RecvHalf, SendHalf};
#[cfg(feature = "librdmacm")]
pub use verbs::Verbs;

use nanoverbs_core::{
    Block, Cause, Completions, ConfigError, Ended, PollError, RKey, RecvBuffers, RecvChain,
    RecvLink, RecvQueue, RecvSeat, RecvSlots, RemoteRegion, ReserveError, SendBuffers, SendChain,
    SendLink, SendQueue, SendSeat, SendSlots, SubmitError, op,
};

use crate::Deadline;
use crate::memory::{Pages, Rights};
use driver::sealed::{Backend, Base};
use pair::Pair;
use storage::{Lent, Links};

/// Requests in flight at a time, of either kind.
pub(crate) const DEPTH: usize = 128;
/// Requests of a chain.
const CHAIN: usize = 16;
/// Pieces of a request.
pub(crate) const SGES: usize = 8;
/// How long a closing endpoint waits for flushes of silent sends, which need not come.
const SILENCE: Duration = Duration::from_millis(100);

/// Polls in vain between two looks at the clock, and between two looks at the connection, which take system
/// calls: who polls without pause does not poll meanwhile, and what it waits for may come just then.
const CLOCK: u32 = 1 << 10;
const CONNECTION: u32 = 1 << 16;

/// A chain of sends of an endpoint.
pub type Sends<'e, D, C> = SendChain<'e, 'static, <D as Backend>::SendPort, C, DEPTH, CHAIN, SGES>;
/// A chain of receives of an endpoint.
pub type Receives<'e, D, C> =
    RecvChain<'e, 'static, <D as Backend>::RecvPort, C, DEPTH, CHAIN, SGES>;

/// A connected queue pair. `D` is the device behind it, [`Soft`] or `Verbs`; `C` is the context of
/// its requests: a [`Block`], a `(Block, T)`, an array or `heapless::Vec` of blocks.
///
/// Dropped, it closes without waiting: contexts whose outcome has not come are dropped once the queue
/// pair is destroyed.
#[derive(Debug)]
pub struct Endpoint<D: Driver, C: 'static>(Inner<D, C>);

/// A queue, and the link for its requests.
type SendSide<'e, D, C> = (
    &'e mut SendQueue<'static, <D as Backend>::SendPort, C, DEPTH>,
    &'e mut SendLink<'static, CHAIN, SGES>,
);
/// The same for receives.
type RecvSide<'e, D, C> = (
    &'e mut RecvQueue<'static, <D as Backend>::RecvPort, C, DEPTH>,
    &'e mut RecvLink<'static, CHAIN, SGES>,
);

impl<D: Driver, C: 'static> Endpoint<D, C> {
    #[inline(always)]
    fn send_side(&mut self) -> SendSide<'_, D, C> {
        (&mut self.0.pair.sends, &mut self.0.links.send)
    }

    #[inline(always)]
    fn recv_side(&mut self) -> RecvSide<'_, D, C> {
        (&mut self.0.pair.recvs, &mut self.0.links.recv)
    }

    /// A free block of the endpoint's own memory, or `None` when all are out.
    #[inline(always)]
    pub fn block(&mut self) -> Option<Block> {
        self.0.block()
    }

    verbs!();

    /// The next send that has ended: the oldest one. Waits for it.
    ///
    /// # Errors
    ///
    /// [`WaitError`]; what is in flight stays so.
    #[doc(alias = "rdma_get_send_comp")]
    #[inline]
    pub fn send_completion(
        &mut self,
        deadline: impl Into<Deadline>,
    ) -> Result<Ended<C>, WaitError> {
        self.0.wait(Side::Send, deadline.into())
    }

    /// The next receive that has ended: the oldest one. Waits for it. [`Ended::message`] is what it brought.
    ///
    /// # Errors
    ///
    /// [`WaitError`]; what is posted stays so.
    #[doc(alias = "rdma_get_recv_comp")]
    #[inline]
    pub fn recv_completion(
        &mut self,
        deadline: impl Into<Deadline>,
    ) -> Result<Ended<C>, WaitError> {
        self.0.wait(Side::Recv, deadline.into())
    }

    /// The next send that has ended, if one has. Returns at once.
    ///
    /// # Errors
    ///
    /// [`PollError`] when the completion queue cannot be polled any more.
    #[inline(always)]
    pub fn try_send_completion(&mut self) -> Result<Option<Ended<C>>, PollError> {
        self.0.try_sent()
    }

    /// The next receive that has ended, if one has. Returns at once.
    ///
    /// # Errors
    ///
    /// [`PollError`] when the completion queue cannot be polled any more.
    #[inline(always)]
    pub fn try_recv_completion(&mut self) -> Result<Option<Ended<C>>, PollError> {
        self.0.try_received()
    }

    /// Registers `len` bytes, rounded up to whole pages, that the peer may reach as far as `rights` go.
    ///
    /// # Errors
    ///
    /// [`EndpointError`] when there is no memory, or it cannot be registered.
    #[doc(alias = "rdma_reg_read")]
    #[doc(alias = "rdma_reg_write")]
    pub fn share(&mut self, len: usize, rights: Rights) -> Result<Shared, EndpointError> {
        self.0.share(len, rights)
    }

    /// The device behind it.
    pub fn device_name(&self) -> String {
        self.0.pair.driver.base().device_name()
    }

    /// Bytes that may travel inline, as granted.
    pub const fn inline(&self) -> u32 {
        self.0.pair.inline
    }

    /// Sends in flight.
    pub fn sends_in_flight(&self) -> u32 {
        self.0.pair.sends.in_flight()
    }

    /// Receives that are posted.
    pub fn receives_posted(&self) -> u32 {
        self.0.pair.recvs.in_flight()
    }

    /// READs and atomics that may be outstanding, and how many are.
    pub fn reads(&self) -> (u32, u32) {
        self.0.pair.sends.reads()
    }

    /// Why sends are refused, if they are.
    pub fn closed(&self) -> Option<Cause> {
        self.0.pair.sends.closed().or(self.0.pair.recvs.closed())
    }

    /// Bytes that the peer sent along when it connected or accepted, and zeros behind them.
    pub fn private_data(&self) -> &[u8] {
        self.0.pair.driver.private_data()
    }

    /// Completions that belonged to nothing here. Not 0 points to a device that repeats itself.
    pub const fn strays(&self) -> u64 {
        self.0.strays
    }

    /// Ends the connection, collects the outcome of everything in flight until the deadline, destroys the queue
    /// pair, and gives every context back; those without an outcome as abandoned.
    ///
    /// A silent request that was done behind the last signaled one has no outcome: the device says nothing of
    /// it. It is waited for no longer than 100 ms, and comes back as abandoned though it may have been done.
    /// Who wants to know signals the last one, and takes its outcome before closing.
    #[doc(alias = "rdma_disconnect")]
    #[doc(alias = "rdma_destroy_ep")]
    pub fn close(mut self, deadline: impl Into<Deadline>) -> Closed<C> {
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        self.0.finish(deadline.into(), |side, ended| match side {
            Side::Send => sends.push(ended),
            Side::Recv => receives.push(ended),
        });
        Closed { sends, receives, pool: self.0.pool.take() }
    }
}

/// What a closed endpoint gives back.
#[derive(Debug)]
#[must_use = "the contexts are in here"]
pub struct Closed<C> {
    /// Sends that had not been taken, the oldest first.
    pub sends: Vec<Ended<C>>,
    /// Receives that had not been taken, the oldest first.
    pub receives: Vec<Ended<C>>,
    /// The blocks. Last, so that contexts that are dropped with this find their way back.
    pub pool: Option<BlockPool>,
}
