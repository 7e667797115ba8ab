//! What a memory is for, and the access flags that follow from it.

use nanoverbs_core::Access;

/// What a peer may do with a memory.
///
/// ```
/// use nanoverbs::memory::Rights;
///
/// let rights = Rights::READ_SOURCE.and(Rights::WRITE_TARGET);
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[doc(alias = "rdma_reg_msgs")]
#[doc(alias = "rdma_reg_read")]
#[doc(alias = "rdma_reg_write")]
pub struct Rights(u8);

impl Rights {
    /// Nothing: for messages, and as the target of this side's own READs.
    pub const MESSAGES: Self = Self(0);
    /// READ from it.
    pub const READ_SOURCE: Self = Self(1);
    /// WRITE to it.
    pub const WRITE_TARGET: Self = Self(1 << 1);
    /// Work on it with atomics.
    pub const ATOMIC_TARGET: Self = Self(1 << 2);
    /// Nothing, but it is the target of this side's own READs on any device. On iWARP a peer needs
    /// the right to write there.
    pub const READ_SINK: Self = Self(1 << 3);

    /// Nothing by itself; memory windows may open pieces of it, see
    /// [`Endpoint::window`](crate::Endpoint::window).
    pub const WINDOWS: Self = Self(1 << 4);

    /// Nothing, but the pages are brought in when the device wants them, instead of being locked. An error
    /// on a device that cannot, never locked pages in their place. The first message into such a page
    /// makes its sender wait as for a missing receive: with
    /// `RnrRetry::NEVER` it ends the connection.
    #[doc(alias = "IBV_ACCESS_ON_DEMAND")]
    pub const ON_DEMAND: Self = Self(1 << 5);

    /// Both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether everything of `other` is here.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The flags, on a device that speaks iWARP or does not. This side may always write: remote
    /// rights to write are refused without it.
    pub const fn access(self, iwarp: bool) -> Access {
        let mut access = Access::LOCAL_WRITE;
        if self.has(Self::READ_SOURCE) {
            access = access.with(Access::REMOTE_READ);
        }
        if self.has(Self::WRITE_TARGET) || (iwarp && self.has(Self::READ_SINK)) {
            access = access.with(Access::REMOTE_WRITE);
        }
        if self.has(Self::ATOMIC_TARGET) {
            access = access.with(Access::REMOTE_ATOMIC);
        }
        if self.has(Self::WINDOWS) {
            access = access.with(Access::MW_BIND);
        }
        if self.has(Self::ON_DEMAND) {
            access = access.with(Access::ON_DEMAND);
        }
        access
    }

    /// What a window with these rights is opened with: what a peer may do, and nothing else.
    pub(crate) const fn of_window(self) -> Access {
        let all = Access::REMOTE_READ.with(Access::REMOTE_WRITE).with(Access::REMOTE_ATOMIC);
        Access::from_bits(self.access(false).bits() & all.bits())
    }
}
