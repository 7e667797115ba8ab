//! Pieces of shared memory as the buffers of a request.

use core::fmt;

use crate::context::{RecvBuffers, SendBuffers, SliceList};
use crate::region::{OutOfRegion, SharedRegion, Slice};

/// A piece of a [`SharedRegion`] that a request may read or write: the source of a SEND or WRITE, the sink of
/// a READ or an atomic. It keeps the memory from going, by `O`, its owner.
///
/// A peer, and other requests, may change the bytes meanwhile: what is sent then is some mixture. Two slices
/// may overlap. The bytes are looked at through the region, by copy.
///
/// ```
/// use nanoverbs_core::{Access, SharedSlice, soft::Device};
///
/// static DEVICE: Device<1, 2> = Device::new();
/// # let memory = Box::leak(Box::new([0; 64]));
/// let access = Access::LOCAL_WRITE.with(Access::REMOTE_READ);
/// let region = DEVICE.register_shared(DEVICE.domain(), memory, access)?;
/// let region = Box::leak(Box::new(region)); // without an allocator: in a `Place`
/// let sink = SharedSlice::new(region, 64, 128)?;
/// assert_eq!(sink.len(), 128);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SharedSlice<O = &'static SharedRegion> {
    slice: Slice,
    owner: O,
}

impl SharedSlice {
    /// The piece of `len` bytes at `offset` of a region that is there for ever.
    ///
    /// # Errors
    ///
    /// [`OutOfRegion`] when it does not lie inside the region, or is longer than 4 GiB − 1.
    pub fn new(
        region: &'static SharedRegion,
        offset: usize,
        len: usize,
    ) -> Result<Self, OutOfRegion> {
        Ok(Self { slice: region.slice(offset, len)?, owner: region })
    }
}

impl<O: 'static> SharedSlice<O> {
    /// A slice that `owner` keeps from going.
    ///
    /// # Safety
    ///
    /// The slice is of a [`SharedRegion`], whose memory stays allocated and registered until `owner`
    /// is dropped, and for ever if it is not.
    pub const unsafe fn from_raw(slice: Slice, owner: O) -> Self {
        Self { slice, owner }
    }

    /// Length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "an empty slice is nothing special")]
    pub const fn len(&self) -> usize {
        self.slice.len() as usize
    }

    /// What keeps the memory.
    pub const fn owner(&self) -> &O {
        &self.owner
    }
}

impl<O> fmt::Debug for SharedSlice<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedSlice").field("slice", &self.slice).finish_non_exhaustive()
    }
}

// SAFETY: the owner keeps the memory as long as this value lives. Everybody but the device reaches it
// by atomic words only, so that a write meanwhile changes what is sent and nothing else.
unsafe impl<O: 'static> SendBuffers for SharedSlice<O> {
    #[inline(always)]
    fn gather(&self, list: &mut SliceList<'_>) {
        list.push(self.slice);
    }
}

// SAFETY: as above.
unsafe impl<O: 'static> RecvBuffers for SharedSlice<O> {
    #[inline(always)]
    fn scatter(&mut self, list: &mut SliceList<'_>) {
        list.push(self.slice);
    }
}
