//! What a device says of a queue pair.

use crate::cm::{ReadDepths, RnrTimer};

/// The state of a queue pair, `ibv_qp_state`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[doc(alias = "ibv_qp_state")]
#[non_exhaustive]
pub enum QpState {
    /// Nothing can be posted.
    Reset,
    /// Receives can be posted.
    Init,
    /// Ready to receive.
    ReadyToReceive,
    /// Connected: ready to send as well.
    ReadyToSend,
    /// Its send queue drains.
    Draining,
    /// Its send queue failed.
    SendError,
    /// Everything in it is flushed.
    Error,
    /// A state that this version does not know.
    Other(u32),
}

/// What a device says of a queue pair. Before it is connected, only the state means anything.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[doc(alias = "ibv_qp_attr")]
#[non_exhaustive]
pub struct QpView {
    /// Its state.
    pub state: QpState,
    /// Retries when no answer comes.
    pub retry: u8,
    /// Retries when the peer has no receive posted, as the peer asked for.
    pub rnr_retry: u8,
    /// How long the peer waits in between.
    pub rnr_timer: RnrTimer,
    /// The code of the acknowledge timeout, see [`AckTimeout`](crate::cm::AckTimeout).
    pub ack_timeout: u8,
    /// READs under way; a device may allow more than was agreed on.
    pub reads: ReadDepths,
}

impl QpState {
    pub(super) const fn from_raw(state: u32) -> Self {
        match state {
            0 => Self::Reset,
            1 => Self::Init,
            2 => Self::ReadyToReceive,
            3 => Self::ReadyToSend,
            4 => Self::Draining,
            5 => Self::SendError,
            6 => Self::Error,
            other => Self::Other(other),
        }
    }
}
