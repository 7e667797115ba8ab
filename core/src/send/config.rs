//! The numbers of a send queue.

use crate::region::Domain;

/// The numbers of a send queue: what was granted by the device, and how the queue shall behave.
#[derive(Clone, Copy, Debug)]
pub struct SendConfig {
    pub(super) domain: Domain,
    pub(super) depth: u32,
    pub(super) chain: u16,
    pub(super) period: u16,
    pub(super) max_sges: u8,
    pub(super) max_read_sges: u8,
    pub(super) max_inline: u16,
    pub(super) max_message: u32,
    pub(super) reads: u8,
}

impl SendConfig {
    /// A queue of a queue pair in `domain`, as deep as its storage, without READs and inline data.
    pub const fn new(domain: Domain) -> Self {
        Self {
            domain,
            depth: u32::MAX,
            chain: 0,
            period: 0,
            max_sges: u8::MAX,
            max_read_sges: u8::MAX,
            max_inline: 0,
            max_message: 1 << 31,
            reads: 0,
        }
    }

    /// How many requests may be in flight: the least of what was asked for and what was granted.
    /// The storage is a bound as well.
    #[must_use]
    pub const fn depth(mut self, requests: u32) -> Self {
        self.depth = requests;
        self
    }

    /// The longest chain; by default a quarter of the depth, and one.
    #[must_use]
    pub const fn chain(mut self, requests: u16) -> Self {
        self.chain = requests;
        self
    }

    /// A chain's last request is signaled, asked for or not, when this many in a row would be
    /// silent; by default half of the depth.
    #[must_use]
    pub const fn period(mut self, requests: u16) -> Self {
        self.period = requests;
        self
    }

    /// Pieces of a request (`max_send_sge` as granted), and of a READ (`max_sge_rd` of the device).
    #[must_use]
    pub const fn max_sges(mut self, any: u8, read: u8) -> Self {
        self.max_sges = any;
        self.max_read_sges = if read < any { read } else { any };
        self
    }

    /// Bytes that may travel inline (`max_inline_data` as granted).
    #[must_use]
    pub const fn max_inline(mut self, bytes: u16) -> Self {
        self.max_inline = bytes;
        self
    }

    /// The longest message in bytes (`max_msg_sz` of the port).
    #[must_use]
    pub const fn max_message(mut self, bytes: u32) -> Self {
        self.max_message = bytes;
        self
    }

    /// READs and atomics that may be outstanding, as negotiated when connecting.
    #[must_use]
    pub const fn reads(mut self, outstanding: u8) -> Self {
        self.reads = outstanding;
        self
    }
}
