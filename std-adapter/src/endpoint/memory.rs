//! The memory of an endpoint: its pool of blocks, and what it shares with the peer.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nanoverbs_core::{
    Block, BlockHeader, OutOfRegion, Pool, PoolRoot, Region, SharedRegion, SharedSlice, StillOut,
};

use super::EndpointError;
use super::driver::sealed::{Base, Release};
use crate::memory::{Keeper, Pages, SharedBuffer};

/// Blocks of registered memory, all of one size. Dropped, it gives its memory back; when blocks are still
/// out, as soon as they are back and another pool is made or dropped.
pub struct BlockPool {
    pool: Option<Pool>,
    release: Option<Release<Region>>,
}

impl BlockPool {
    pub(super) fn new(base: &impl Base, count: usize, len: usize) -> Result<Self, EndpointError> {
        drop(let_go_of_what_is_back());
        // Blocks start on cache lines of their own.
        let stride = len.next_multiple_of(64);
        let pages = Pages::new(count.saturating_mul(stride))?;
        let (region, release) = base.register(pages)?;
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
        if let (Some(pool), Some(release)) = (self.pool.take(), self.release.take()) {
            // With blocks out their holders, or a device, may use the memory at any time.
            let left = give_back(Left { pool, release });
            let mut all = let_go_of_what_is_back();
            all.extend(left);
        }
    }
}

/// A pool that was dropped, and what gives its memory back.
struct Left {
    pool: Pool,
    release: Release<Region>,
}

/// Pools that had blocks out when they were dropped.
static LEFT: Mutex<Vec<Left>> = Mutex::new(Vec::new());

/// Gives the memory back of pools whose blocks have come back since they were dropped. The list of the
/// others is locked until the result is dropped.
fn let_go_of_what_is_back() -> MutexGuard<'static, Vec<Left>> {
    let locked = || LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    let all = std::mem::take(&mut *locked());
    // Deregistering may take its time, and nobody else has these now.
    let still_out: Vec<_> = all.into_iter().filter_map(give_back).collect();
    let mut all = locked();
    all.extend(still_out);
    all
}

/// Gives a pool's memory back, or the pool when blocks are out.
fn give_back(Left { pool, release }: Left) -> Option<Left> {
    match pool.close() {
        Ok((root, headers, region)) => {
            release(region);
            // SAFETY: both were leaked boxes, made in `BlockPool::new`, and the pool that used them is gone.
            unsafe {
                drop(Box::from_raw(root));
                drop(Box::from_raw(headers));
            }
            None
        }
        Err(StillOut { pool, .. }) => Some(Left { pool, release }),
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
