//! The memory of an endpoint: its pool of blocks, and what it shares with the peer.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use nanoverbs_core::{
    Block, BlockHeader, OutOfRegion, Pool, PoolRoot, Region, SharedRegion, SharedSlice,
};

use super::EndpointError;
use super::driver::sealed::{Backend, Release};
use crate::memory::{Keeper, Pages, SharedBuffer};

/// Blocks of registered memory, all of one size. Dropped, it gives its memory back, or leaks it when blocks
/// are still out.
pub struct BlockPool {
    pool: Option<Pool>,
    release: Option<Release<Region>>,
}

impl BlockPool {
    pub(super) fn new(
        driver: &mut impl Backend,
        count: usize,
        len: usize,
    ) -> Result<Self, EndpointError> {
        // Blocks start on cache lines of their own.
        let stride = len.next_multiple_of(64);
        let pages = Pages::new(count.saturating_mul(stride))?;
        let (region, release) = driver.register(pages)?;
        let headers: Box<[_]> = (0..count).map(|_| BlockHeader::new()).collect();
        let (root, headers) = (Box::leak(Box::new(PoolRoot::new())), Box::leak(headers));
        match Pool::new(root, headers, region, stride) {
            Ok(pool) => Ok(Self { pool: Some(pool), release: Some(release) }),
            Err(error) => {
                release(error.region);
                Err(error.cause.into())
            }
        }
    }

    /// A free block, or `None` when all are out.
    #[inline(always)]
    pub fn allocate(&mut self) -> Option<Block> {
        self.pool.as_mut()?.allocate()
    }

    /// How many blocks there are, out or not.
    pub fn capacity(&self) -> usize {
        self.pool.as_ref().map_or(0, Pool::capacity)
    }
}

impl Drop for BlockPool {
    fn drop(&mut self) {
        let (Some(pool), Some(release)) = (self.pool.take(), self.release.take()) else { return };
        // With blocks out the memory is leaked: their holders, or a device, may use it at any time.
        if let Ok((root, headers, region)) = pool.close() {
            release(region);
            // SAFETY: both were leaked boxes, made in `new`, and the pool that used them is gone.
            unsafe {
                drop(Box::from_raw(root));
                drop(Box::from_raw(headers));
            }
        }
    }
}

impl fmt::Debug for BlockPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockPool").field("pool", &self.pool).finish_non_exhaustive()
    }
}

/// Registered memory that the peer may reach, as far as its rights go. Dropped, it is deregistered: the peer's
/// requests fail from then on.
pub struct Shared {
    region: Option<SharedRegion>,
    release: Option<Release<SharedRegion>>,
}

// SAFETY: shared, it gives out the region only, which is `Sync`; what releases it is touched by the drop.
unsafe impl Sync for Shared {}

impl Shared {
    pub(super) fn new(region: SharedRegion, release: Release<SharedRegion>) -> Self {
        Self { region: Some(region), release: Some(release) }
    }

    /// A piece of it as the buffer of a request, which keeps it registered: the source of a SEND or
    /// WRITE, the sink of a READ or an atomic.
    ///
    /// # Errors
    ///
    /// [`OutOfRegion`] when it does not lie inside, or is longer than 4 GiB − 1.
    pub fn buffer(
        self: &Arc<Self>,
        offset: usize,
        len: usize,
    ) -> Result<SharedBuffer, OutOfRegion> {
        let slice = self.slice(offset, len)?;
        let owner: Keeper = Arc::<Self>::clone(self);
        // SAFETY: the slice is of the region, whose memory this owner keeps.
        Ok(unsafe { SharedSlice::from_raw(slice, owner) })
    }
}

impl Deref for Shared {
    type Target = SharedRegion;

    fn deref(&self) -> &SharedRegion {
        let Some(region) = &self.region else {
            unreachable!("the region is there until the drop");
        };
        region
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let (Some(region), Some(release)) = (self.region.take(), self.release.take()) {
            release(region);
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("region", &self.region).finish_non_exhaustive()
    }
}
