//! Polling memory that a peer's device writes, without a completion.
//!
//! Only a completion proves that a peer's WRITE has landed: devices may show the bytes of one message in any
//! order, and the messages of one queue pair as well. Where a device promises to keep the order, a
//! program may instead look at a word that the peer writes last. Any thread may look.
//!
//! Invariant: the load is an acquire load of one aligned word. With a weaker one the processor may have
//! read the data before the word, and show what was there earlier.

use core::fmt;

#[cfg(not(loom))]
use crate::region::{OutOfRegion, SharedRegion};
use crate::sync::{AtomicUsize, Ordering};

/// The program's word that a device shows the bytes of a message, and the messages of a queue pair, in the
/// order in which they were sent.
///
/// Most devices do not, or only for some lengths, and no device does for memory that was registered with
/// relaxed ordering.
#[derive(Clone, Copy, Debug)]
#[must_use = "it is of use to a `PolledFlag`"]
pub struct InOrder(());

impl InOrder {
    /// The device says so of the queue pair (`ibv_query_qp_data_in_order(3)`), or its maker does.
    ///
    /// Nothing breaks in memory when it is not true, but a flag then shows before its data.
    #[doc(alias = "ibv_query_qp_data_in_order")]
    pub const fn said_by_the_device() -> Self {
        Self(())
    }
}

/// A word of a [`SharedRegion`](crate::SharedRegion) that a peer writes behind its data, as the last bytes of the
/// same WRITE or in a WRITE of its own.
///
/// Who has seen the word that the peer wrote sees the data too. That holds on a device that keeps the order
/// ([`InOrder`]); on any other only a completion proves arrival: that of a WRITE
/// [with immediate](crate::op::Write::immediate), or of a SEND behind the WRITE.
///
/// A word is as wide as a pointer, and its bytes are in this machine's order: a peer of the other order
/// swaps them. Nothing tells how long it takes, so who waits for a flag has a deadline; and a peer that is
/// gone never writes it.
///
/// ```
/// # use nanoverbs_core::{Access, InOrder, PolledFlag, soft::Device};
/// # static DEVICE: Device<1, 2> = Device::new();
/// # let memory = Box::leak(Box::new([0; 65]));
/// let access = Access::LOCAL_WRITE.with(Access::REMOTE_WRITE);
/// let region = DEVICE.register_shared(DEVICE.domain(), memory, access)?;
/// let order = InOrder::said_by_the_device(); // as the program has made sure
/// let flag = PolledFlag::new(&region, 512, order)?;
/// # region.write_at(512, &1_usize.to_ne_bytes())?;
/// if flag.load() == 1 {
///     let mut data = [0; 512];
///     region.read_at(0, &mut data)?;
///     region.write_at(512, &0_usize.to_ne_bytes())?; // for the next time
/// }
/// # assert_eq!(flag.load(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct PolledFlag<'r>(&'r AtomicUsize);

impl<'r> PolledFlag<'r> {
    /// The word at `offset` of a region.
    ///
    /// # Errors
    ///
    /// [`FlagError`] when it does not lie inside the region, or not at a multiple of its size.
    #[cfg(not(loom))]
    pub fn new(region: &'r SharedRegion, offset: usize, _: InOrder) -> Result<Self, FlagError> {
        let word = region.slice(offset, size_of::<usize>()).map_err(FlagError::OutOfRegion)?;
        let addr = word.addr().cast::<usize>();
        if !addr.is_aligned() {
            return Err(FlagError::Unaligned { offset });
        }
        // SAFETY: the word is aligned and inside the region, which lives as long as the borrow, and which
        // everybody reaches by atomic words.
        Ok(Self(unsafe { AtomicUsize::from_ptr(addr.as_ptr()) }))
    }

    /// Over an atomic of loom's, which does not see raw memory: the device of a model stores to it.
    #[cfg(loom)]
    pub fn over(word: &'r AtomicUsize, _: InOrder) -> Self {
        Self(word)
    }

    /// The word as it is now. What the peer sent before the word is visible then. Never waits.
    #[inline(always)]
    pub fn load(&self) -> usize {
        // Acquire, pairs with the order of the device: its write of the word comes behind that of the data.
        self.0.load(Ordering::Acquire)
    }
}

impl fmt::Debug for PolledFlag<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PolledFlag").field(&self.load()).finish()
    }
}

/// A word of a region cannot be a flag.
#[cfg(not(loom))]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FlagError {
    /// It does not lie inside the region.
    OutOfRegion(OutOfRegion),
    /// It is not at a multiple of its size.
    Unaligned {
        /// In bytes from the region's first.
        offset: usize,
    },
}

#[cfg(not(loom))]
impl fmt::Display for FlagError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRegion(error) => error.fmt(f),
            Self::Unaligned { offset } => {
                let size = size_of::<usize>();
                write!(f, "a flag at offset {offset} is not at a multiple of {size} bytes")
            }
        }
    }
}

#[cfg(not(loom))]
impl core::error::Error for FlagError {}

#[cfg(all(test, not(loom)))]
mod tests;
