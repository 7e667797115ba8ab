//! The first bytes of a block, where no request may use all of it.
//!
//! A receive takes a whole block. Of a [`Part`] it takes the first bytes and leaves the rest alone; and a part
//! keeps its length over any number of requests, where a block's is as long as it can be after a receive.

use core::fmt;
use core::ops::{Deref, DerefMut};

use crate::arrived::Arrived;
use crate::context::{RecvBuffers, SendBuffers, SliceList};
use crate::pool::Block;
use crate::region::Slice;

/// The first bytes of a block: what a device reads, and what it may write. The rest of the block stays
/// untouched.
///
/// ```
/// # use nanoverbs_core::{BlockHeader, Part, Pool, PoolRoot, soft};
/// # static DEVICE: soft::Device<1, 2> = soft::Device::new();
/// # let memory = Box::leak(Box::new([0; 64]));
/// # let region = DEVICE.register(DEVICE.domain(), memory)?;
/// # let headers = Box::leak(Box::new([const { BlockHeader::new() }; 1]));
/// # let mut pool = Pool::new(Box::leak(Box::default()), headers, region, 64)?;
/// let block = pool.allocate().unwrap();
/// let word = Part::new(block, 8).unwrap(); // for an atomic
/// assert_eq!(word.word(), Some(0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Part {
    block: Block,
    len: u32,
}

impl Part {
    /// The first `len` bytes of `block`.
    ///
    /// # Errors
    ///
    /// The block, when it is shorter.
    #[inline(always)]
    pub fn new(block: Block, len: usize) -> Result<Self, Block> {
        if len > block.capacity() {
            return Err(block);
        }
        Ok(Self { block, len: len as u32 })
    }

    /// Makes it as long as that; false when the block is shorter, and nothing has changed then.
    #[inline(always)]
    pub fn set_len(&mut self, len: usize) -> bool {
        let fits = len <= self.block.capacity();
        if fits {
            self.len = len as u32;
        }
        fits
    }

    /// The first eight bytes as a number of this machine: what an atomic has brought back. `None` when
    /// there are fewer.
    #[inline(always)]
    pub fn word(&self) -> Option<u64> {
        self.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
    }

    /// The block, with the length of message that it had.
    #[inline(always)]
    pub fn into_block(self) -> Block {
        self.block
    }

    #[inline(always)]
    fn slice(&self) -> Slice {
        self.block.slice().first(self.len)
    }
}

/// All of the block.
impl From<Block> for Part {
    #[inline(always)]
    fn from(block: Block) -> Self {
        let len = block.slice().len();
        Self { block, len }
    }
}

impl Deref for Part {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        // SAFETY: the block owns its memory, which is initialised and at least `len` bytes long, and
        // the region is never seen by a peer.
        unsafe {
            core::slice::from_raw_parts(self.block.slice().addr().as_ptr(), self.len as usize)
        }
    }
}

impl DerefMut for Part {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [u8] {
        let (start, len) = (self.block.slice().addr().as_ptr(), self.len as usize);
        // SAFETY: as for `deref`, and the block is borrowed exclusively.
        unsafe { core::slice::from_raw_parts_mut(start, len) }
    }
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Arrived for Part {
    #[inline(always)]
    fn arrived(&self, len: usize) -> &[u8] {
        self.get(..len).unwrap_or(self)
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part")
            .field("len", &self.len)
            .field("capacity", &self.block.capacity())
            .finish()
    }
}

// SAFETY: the memory belongs to the block until it is dropped, and lives for ever if it is not.
unsafe impl SendBuffers for Part {
    #[inline(always)]
    fn gather(&self, list: &mut SliceList<'_>) {
        list.push(self.slice());
    }
}

// SAFETY: as above.
unsafe impl RecvBuffers for Part {
    #[inline(always)]
    fn scatter(&mut self, list: &mut SliceList<'_>) {
        list.push(self.slice());
    }
}
