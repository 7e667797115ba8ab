//! What a queue pair is asked to be, and what it became.

use core::fmt;

use super::queue_pair::SharedReceiveId;
use crate::abi::Access;
use crate::region::Domain;

/// What to ask of a queue pair. Everything has a default.
///
/// There is no clock in the device: its retry counts are counts of [`super::Device::progress`]
/// calls. A peer without receives is waited for as long as it takes, unless
/// [`Self::rnr_retry`] says otherwise.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "ibv_qp_init_attr")]
#[must_use = "a configuration does nothing by itself"]
pub struct QpConfig {
    pub(super) domain: Domain,
    pub(super) send_depth: Option<u32>,
    pub(super) recv_depth: Option<u32>,
    pub(super) sges: Option<u32>,
    pub(super) inline: Option<u32>,
    pub(super) access: Access,
    pub(super) signals_all: bool,
    pub(super) datagram: Option<u32>,
    pub(super) mtu: u32,
    pub(super) retry: u32,
    pub(super) rnr_retry: u32,
    pub(super) read_depth: u32,
    pub(super) responder_depth: u32,
    pub(super) in_reset: bool,
    pub(super) shared_receive: Option<SharedReceiveId>,
}

impl QpConfig {
    /// A connected queue pair of `domain`, as deep as the device makes them.
    pub const fn new(domain: Domain) -> Self {
        let all = Access::REMOTE_READ.with(Access::REMOTE_WRITE).with(Access::REMOTE_ATOMIC);
        Self {
            domain,
            send_depth: None,
            recv_depth: None,
            sges: None,
            inline: None,
            access: all,
            signals_all: false,
            datagram: None,
            mtu: 4096,
            retry: 7,
            rnr_retry: 7,
            read_depth: 16,
            responder_depth: 16,
            in_reset: false,
            shared_receive: None,
        }
    }

    /// How many sends may be in flight (`max_send_wr`).
    pub const fn send_depth(self, requests: u32) -> Self {
        Self { send_depth: Some(requests), ..self }
    }

    /// How many receives may be in flight (`max_recv_wr`).
    pub const fn recv_depth(self, requests: u32) -> Self {
        Self { recv_depth: Some(requests), ..self }
    }

    /// How many pieces a request may have, in both directions (`max_send_sge`, `max_recv_sge`).
    pub const fn sges(self, pieces: u32) -> Self {
        Self { sges: Some(pieces), ..self }
    }

    /// How many bytes of inline data a send may have (`max_inline_data`).
    pub const fn inline(self, bytes: u32) -> Self {
        Self { inline: Some(bytes), ..self }
    }

    /// What peers may do here, as far as the region allows it too (`qp_access_flags`). By default
    /// everything.
    pub const fn access(self, access: Access) -> Self {
        Self { access, ..self }
    }

    /// Every send is signaled, whatever its flags say (`sq_sig_all`).
    pub const fn signals_all(self) -> Self {
        Self { signals_all: true, ..self }
    }

    /// A datagram queue pair with the queue key `qkey`. It is ready as soon as it exists; an
    /// address is a queue pair's number.
    pub const fn datagram(self, qkey: u32) -> Self {
        Self { datagram: Some(qkey), ..self }
    }

    /// The longest datagram in bytes, 4096 by default; a longer one is lost in silence.
    pub const fn mtu(self, bytes: u32) -> Self {
        Self { mtu: bytes, ..self }
    }

    /// How many more calls of `progress` a silent peer is given before the request fails with 12;
    /// 7 by default, see [`super::Profile::seven_is_for_ever`].
    pub const fn retry(self, count: u32) -> Self {
        Self { retry: count, ..self }
    }

    /// How many more calls of `progress` a peer without receives is given before the request fails
    /// with 13. 7, the default, is for ever.
    pub const fn rnr_retry(self, count: u32) -> Self {
        Self { rnr_retry: count, ..self }
    }

    /// How many READs and atomics may be under way from here (`max_rd_atomic`), 16 by default.
    pub const fn read_depth(self, requests: u32) -> Self {
        Self { read_depth: requests, ..self }
    }

    /// How many READs and atomics of the peer may be under way (`max_dest_rd_atomic`), 16 by
    /// default; more are refused with 9.
    pub const fn responder_depth(self, requests: u32) -> Self {
        Self { responder_depth: requests, ..self }
    }

    /// The queue pair starts in [`State::Reset`], where it takes no receives yet.
    pub const fn in_reset(self) -> Self {
        Self { in_reset: true, ..self }
    }

    /// Receives come from a shared queue; the queue pair's own receive end refuses.
    pub const fn shared_receive(self, queue: SharedReceiveId) -> Self {
        Self { shared_receive: Some(queue), ..self }
    }
}

/// What was granted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[doc(alias = "ibv_qp_cap")]
pub struct Caps {
    /// How many sends may be in flight.
    pub send_depth: u32,
    /// How many receives may be in flight.
    pub recv_depth: u32,
    /// How many pieces a request may have.
    pub sges: u32,
    /// How many pieces a READ may have.
    pub read_sges: u32,
    /// How many bytes may be inline.
    pub inline: u32,
}

/// The states of a queue pair, as far as this device has them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[doc(alias = "ibv_qp_state")]
pub enum State {
    /// Takes nothing.
    Reset = 0,
    /// Takes receives.
    Init = 1,
    /// Takes receives, and messages of its peer.
    ReadyToReceive = 2,
    /// Takes everything.
    ReadyToSend = 3,
    /// Takes everything and does nothing: requests end as flushed.
    Error = 4,
}

/// What became of asking for a queue pair.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum QueuePairError {
    /// All queue pairs are in use; or they were destroyed, but their ends were not dropped, or
    /// their last completions not polled yet.
    NoRoom,
    /// Too deep.
    Depth {
        /// How many requests were asked for.
        asked: u32,
        /// How many there may be.
        max: u32,
    },
    /// Too many pieces.
    Sges {
        /// How many were asked for.
        asked: u32,
        /// How many there may be.
        max: u32,
    },
    /// Too much inline data.
    Inline {
        /// How many bytes were asked for.
        asked: u32,
        /// How many there may be.
        max: u32,
    },
    /// A completion queue is another device's, or is gone.
    CompletionQueue,
    /// A shared receive queue is another device's, or is gone.
    SharedReceiveQueue,
}

impl fmt::Display for QueuePairError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRoom => f.write_str("all queue pairs are in use"),
            Self::Depth { asked, max } => write!(f, "depth {asked} is more than {max}"),
            Self::Sges { asked, max } => write!(f, "{asked} pieces a request are more than {max}"),
            Self::Inline { asked, max } => {
                write!(f, "{asked} bytes of inline data are more than {max}")
            }
            Self::CompletionQueue => f.write_str("no such completion queue on this device"),
            Self::SharedReceiveQueue => f.write_str("no such shared receive queue on this device"),
        }
    }
}

impl core::error::Error for QueuePairError {}

/// A queue pair was not moved to another state.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum ControlError {
    /// It, or its peer, is in a state that does not allow it.
    WrongState(State),
    /// Datagram queue pairs are not connected.
    Datagram,
    /// The peer is on another device.
    OtherDevice,
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongState(state) => write!(f, "a queue pair in state {state:?} cannot do that"),
            Self::Datagram => f.write_str("a datagram queue pair has no peer"),
            Self::OtherDevice => f.write_str("the peer is on another device"),
        }
    }
}

impl core::error::Error for ControlError {}
