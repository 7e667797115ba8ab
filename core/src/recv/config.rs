//! The numbers of a receive queue.

use crate::region::Domain;

/// The numbers of a receive queue: what was granted by the device.
#[derive(Clone, Copy, Debug)]
pub struct RecvConfig {
    pub(crate) domain: Domain,
    pub(crate) depth: u32,
    pub(crate) max_sges: u8,
}

impl RecvConfig {
    /// A queue of a queue pair in `domain`, as deep as its storage.
    pub const fn new(domain: Domain) -> Self {
        Self { domain, depth: u32::MAX, max_sges: u8::MAX }
    }

    /// How many receives may be posted: the least of what was asked for and what was granted.
    /// The storage is a bound as well.
    #[must_use]
    pub const fn depth(mut self, requests: u32) -> Self {
        self.depth = requests;
        self
    }

    /// Pieces of a receive (`max_recv_sge` as granted).
    #[must_use]
    pub const fn max_sges(mut self, most: u8) -> Self {
        self.max_sges = most;
        self
    }
}
