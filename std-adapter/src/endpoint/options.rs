//! The sizes and habits of an endpoint or a hub, before it exists.

use super::EndpointError;
#[cfg(feature = "librdmacm")]
use crate::cm::ConnectParams;

/// How an endpoint waits for completions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Idle {
    /// It polls without pause: the lowest latency, and a core of its own.
    Spin,
    /// It polls so many times, then lets others have the core between two polls: for a core that it
    /// shares with the peer, or with the device's software.
    SpinThenYield {
        /// Empty polls before it yields.
        spins: u32,
    },
    /// It polls so many times, then sleeps until the device wakes it.
    SpinThenWait {
        /// Empty polls before it sleeps.
        spins: u32,
    },
}

/// The sizes and habits of an endpoint, or of the members of a hub.
///
/// ```
/// use nanoverbs::endpoint::Options;
///
/// let options = Options::new().depth(16, 16).inline(64).blocks(64, 4096);
/// # let _ = options;
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "options do nothing until an endpoint is made with them"]
pub struct Options {
    pub(super) send_depth: u32,
    pub(super) recv_depth: u32,
    pub(super) sges: u8,
    pub(super) inline: u32,
    pub(super) blocks: usize,
    pub(super) block_len: usize,
    pub(super) idle: Idle,
    pub(super) soft_rnr_retry: u32,
    pub(super) budget: u32,
    #[cfg(feature = "librdmacm")]
    pub(super) params: ConnectParams,
    #[cfg(feature = "librdmacm")]
    pub(super) is_apart: bool,
}

impl Options {
    /// Requests in flight at a time, of either kind, at most.
    pub const MAX_DEPTH: u32 = super::DEPTH as u32;
    /// Pieces of a request at most.
    pub const MAX_SGES: u8 = super::SGES as u8;

    /// 32 sends and 32 receives in flight, of one piece each, nothing inline, 128 blocks of 4 KiB, and
    /// waits that spin 1,000 times before they sleep.
    pub fn new() -> Self {
        Self {
            send_depth: 32,
            recv_depth: 32,
            sges: 1,
            inline: 0,
            blocks: 128,
            block_len: 4096,
            idle: Idle::SpinThenWait { spins: 1000 },
            soft_rnr_retry: 1 << 24,
            budget: 8,
            #[cfg(feature = "librdmacm")]
            params: ConnectParams::new(),
            #[cfg(feature = "librdmacm")]
            is_apart: false,
        }
    }

    /// How many sends and receives may be in flight, 1 to [`Options::MAX_DEPTH`] each.
    ///
    /// The longest chain of sends follows from it, because a queue whose last request is silent must not fill up:
    /// 1 request with a depth of 2, 2 with 4, 3 with 8, 5 with 16, 9 with 32, and 16 from 64 on.
    pub const fn depth(mut self, sends: u32, recvs: u32) -> Self {
        self.send_depth = sends;
        self.recv_depth = recvs;
        self
    }

    /// Pieces of a request, 1 to [`Options::MAX_SGES`].
    pub const fn sges(mut self, pieces: u8) -> Self {
        self.sges = pieces;
        self
    }

    /// Bytes that may travel inline. A device may grant fewer; see
    /// [`Endpoint::inline`](super::Endpoint::inline).
    pub const fn inline(mut self, bytes: u32) -> Self {
        self.inline = bytes;
        self
    }

    /// The endpoint's own registered memory, or that of all members of a hub together: `count` blocks of `len`
    /// bytes, rounded up to whole cache lines of 64.
    pub const fn blocks(mut self, count: usize, len: usize) -> Self {
        self.blocks = count;
        self.block_len = len;
        self
    }

    /// How it waits. A hub does not: its poller, or its event loop does.
    pub const fn idle(mut self, idle: Idle) -> Self {
        self.idle = idle;
        self
    }

    /// On the soft device, which has no clock: how many more polls a peer without a posted receive is
    /// given before a send fails. 2^24 by default.
    pub const fn soft_rnr_retry(mut self, polls: u32) -> Self {
        self.soft_rnr_retry = polls;
        self
    }

    /// In a hub: how many outcomes of one member are handed out before the next member has its turn. 8 by default,
    /// and 1 at least.
    pub const fn budget(mut self, outcomes: u32) -> Self {
        self.budget = outcomes;
        self
    }

    /// How it connects.
    #[cfg(feature = "librdmacm")]
    pub const fn params(mut self, params: ConnectParams) -> Self {
        self.params = params;
        self
    }

    /// Makes the queue pair of a real device beside the connection's identifier, as
    /// [`QueuePairOptions::apart`](crate::QueuePairOptions::apart) says.
    #[cfg(feature = "librdmacm")]
    pub const fn apart(mut self) -> Self {
        self.is_apart = true;
        self
    }

    pub(super) fn check(&self) -> Result<(), EndpointError> {
        let in_range = |what, given: u64, max: u64| {
            if given == 0 || given > max {
                return Err(EndpointError::OutOfRange { what, given, min: 1, max });
            }
            Ok(())
        };
        in_range("the number of sends in flight", self.send_depth.into(), Self::MAX_DEPTH.into())?;
        in_range(
            "the number of receives in flight",
            self.recv_depth.into(),
            Self::MAX_DEPTH.into(),
        )?;
        in_range("the number of pieces of a request", self.sges.into(), Self::MAX_SGES.into())?;
        in_range("the number of blocks", self.blocks as u64, 1 << 20)?;
        in_range("the length of a block", self.block_len as u64, 1 << 31)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}
