//! Options of a vendor's own, which both ends of a connection may agree on.

/// Options of one vendor's devices ("enhanced connection establishment"). What the bits mean is the
/// vendor's business; devices of others ignore them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[doc(alias = "ibv_ece")]
pub struct VendorOptions {
    /// The vendor, as its devices are numbered.
    pub vendor: u32,
    /// The options.
    pub bits: u32,
}
