//! The sizes of a queue pair, before it exists.

use crate::sys::cm::QpSizes;

/// The sizes of a queue pair to be made.
///
/// ```
/// use nanoverbs::QueuePairOptions;
///
/// let options = QueuePairOptions::new(128, 128).sges(2, 1).inline(64);
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[doc(alias = "ibv_qp_init_attr")]
#[must_use = "options do nothing until a queue pair is made with them"]
pub struct QueuePairOptions {
    pub(super) asked: QpSizes,
    pub(super) is_apart: bool,
}

impl QueuePairOptions {
    /// So many sends and receives in flight, of one piece each, nothing inline.
    pub const fn new(send_depth: u32, recv_depth: u32) -> Self {
        Self {
            asked: QpSizes { send_depth, recv_depth, send_sges: 1, recv_sges: 1, inline: 0 },
            is_apart: false,
        }
    }

    /// So many pieces in one send and in one receive.
    pub const fn sges(mut self, send: u32, recv: u32) -> Self {
        self.asked.send_sges = send;
        self.asked.recv_sges = recv;
        self
    }

    /// Up to so many bytes inline. What a device grants is only known when the queue pair is made;
    /// when it refuses, half is asked for, and so on, and [`QueuePair::inline`](crate::QueuePair::inline) says what came of
    /// it.
    pub const fn inline(mut self, bytes: u32) -> Self {
        self.asked.inline = bytes;
        self
    }

    /// Makes it beside the connection's identifier and not on it: this library moves it through its states then,
    /// and tells the connection manager when it is ready, where librdmacm would.
    ///
    /// The steps of a connection stay what they are, and the peer cannot tell. It is worth it where the first
    /// message may come before its receive: the timer of
    /// [`ConnectParams::rnr_timer`](crate::cm::ConnectParams::rnr_timer) is in force from the first moment, and
    /// not only once the connection stands, before which a peer waits 655 ms. Connections only; the
    /// device's vendor options ([`VendorOptions`](crate::cm::VendorOptions)) are not offered to the peer.
    #[doc(alias = "rdma_establish")]
    #[doc(alias = "rdma_init_qp_attr")]
    #[doc(alias = "ibv_create_qp")]
    pub const fn apart(mut self) -> Self {
        self.is_apart = true;
        self
    }
}
