//! Fixed blocks, carved out of one region.
//!
//! The thread that owns the pool allocates. A [`Block`] goes back when it is dropped, on any thread,
//! without a lock: dropped blocks are pushed on one list, and the owner takes that list whole when
//! its own is empty. So a block that is freed on another thread is allocated again on the owner's.
//!
//! Invariant: every header is on the owner's list, on the returned list, or is one live block;
//! `len ≤ capacity`, and the memory of a live block is used by its holder and the device only.

use core::fmt;
use core::ops::{Deref, DerefMut};
use core::ptr::{self, NonNull};

use crate::abi::LKey;
use crate::arrived::Arrived;
use crate::context::{RecvBuffers, SendBuffers, SliceList};
use crate::region::{Extent, OutOfRegion, Region, Slice};
use crate::sync::{AtomicPtr, Cell, Ordering, const_unless_loom};

/// What a block is behind its pointer. Pools are made over an array of these.
pub struct BlockHeader {
    next: Cell<*mut Self>,
    body: Body,
}

/// Written when the pool is made; the length of the message by who holds the block.
struct Body {
    /// The message, from the start of the block on; `None` until a pool uses the header.
    message: Option<Slice>,
    /// How long the block is.
    whole: Extent,
    root: *const PoolRoot,
}

// SAFETY: a header is reached by the pool that owns it or by the one block that it is.
unsafe impl Send for BlockHeader {}

impl BlockHeader {
    const_unless_loom! {
        /// A header that no pool uses yet.
        pub fn new() -> Self {
            Self {
                next: Cell::new(ptr::null_mut()),
                body: Body {
                    message: None,
                    whole: Extent::new(0, LKey::from_raw(0)),
                    root: ptr::null(),
                },
            }
        }
    }
}

impl Default for BlockHeader {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for BlockHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockHeader").finish_non_exhaustive()
    }
}

/// Where dropped blocks go. One a pool, at a place that lives for ever.
pub struct PoolRoot {
    returned: AtomicPtr<BlockHeader>,
}

impl PoolRoot {
    const_unless_loom! {
        /// A root without blocks.
        pub fn new() -> Self {
            Self { returned: AtomicPtr::new(ptr::null_mut()) }
        }
    }

    #[inline]
    fn give_back(&self, header: NonNull<BlockHeader>) {
        // Relaxed: the head is only compared and linked to, never followed here.
        let mut head = self.returned.load(Ordering::Relaxed);
        loop {
            // SAFETY: the block is being dropped, so this thread alone reaches its header.
            unsafe { header.as_ref() }.next.with_mut(|next| unsafe { *next = head });
            // Release, pairs with the acquire swap in `Pool::allocate`: the link and the block's
            // bytes are visible to who takes the list.
            match self.returned.compare_exchange_weak(
                head,
                header.as_ptr(),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

impl Default for PoolRoot {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for PoolRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolRoot").finish_non_exhaustive()
    }
}

/// Blocks of one size. Moves between threads; one thread at a time allocates.
///
/// A dropped pool leaks its blocks' memory, because blocks may be out; [`Pool::close`] gives it back.
#[derive(Debug)]
pub struct Pool {
    free: *mut BlockHeader,
    root: NonNull<PoolRoot>,
    headers: NonNull<[BlockHeader]>,
    region: Region,
}

// SAFETY: the free list is reached by the owner of the pool only, and the rest is shared by atomics.
unsafe impl Send for Pool {}

impl Pool {
    /// A pool of as many blocks as there are headers, each of `block_len` bytes, carved out of
    /// `region`. The bytes of the region must have been initialised, by zeros for example.
    ///
    /// # Errors
    ///
    /// [`PoolError`] when the region is too short; it comes back in the error.
    pub fn new(
        root: &'static mut PoolRoot,
        headers: &'static mut [BlockHeader],
        region: Region,
        block_len: usize,
    ) -> Result<Self, PoolError> {
        let root = NonNull::from(root);
        let mut free = ptr::null_mut();
        let all = NonNull::from(headers);
        let first = all.cast::<BlockHeader>();
        for index in (0..all.len()).rev() {
            let slice = match index.checked_mul(block_len) {
                Some(offset) => region.slice(offset, block_len),
                None => region.slice(usize::MAX, block_len),
            };
            let slice = match slice {
                Ok(slice) => slice,
                Err(cause) => return Err(PoolError { region, cause }),
            };
            // SAFETY: `index` is inside the slice of headers, which nobody else has.
            let header = unsafe { first.add(index) };
            let body = Body { message: Some(slice), whole: slice.extent, root: root.as_ptr() };
            // SAFETY: as above.
            unsafe { (*header.as_ptr()).body = body };
            // SAFETY: as above.
            unsafe { header.as_ref() }.next.with_mut(|next| unsafe { *next = free });
            free = header.as_ptr();
        }
        Ok(Self { free, root, headers: all, region })
    }

    /// A free block, as long as it can be, or `None` when all are out. Its bytes are what the last holder
    /// left.
    #[inline(always)]
    pub fn allocate(&mut self) -> Option<Block> {
        if self.free.is_null() {
            // SAFETY: the root was borrowed for ever by `new`.
            let root = unsafe { self.root.as_ref() };
            // Acquire, pairs with the release in `PoolRoot::give_back`.
            self.free = root.returned.swap(ptr::null_mut(), Ordering::Acquire);
        }
        let header = NonNull::new(self.free)?;
        // SAFETY: a header on the free list is reached by the pool alone.
        self.free = unsafe { header.as_ref() }.next.with(|next| unsafe { *next });
        let mut block = Block(header);
        block.set_extent(block.body().whole);
        Some(block)
    }

    /// Takes a block back, on the thread that owns the pool: without the atomic step that dropping it
    /// takes, which is most of what a block costs. A block of another pool goes back to its own.
    #[inline(always)]
    pub fn free(&mut self, block: Block) {
        if !ptr::eq(block.body().root, self.root.as_ptr()) {
            return drop(block);
        }
        let header = block.into_header();
        // SAFETY: the block is gone, so the pool alone reaches its header.
        unsafe { header.as_ref() }.next.with_mut(|next| unsafe { *next = self.free });
        self.free = header.as_ptr();
    }

    /// The region behind the blocks.
    pub const fn region(&self) -> &Region {
        &self.region
    }

    /// How many blocks there are, out or not.
    pub const fn capacity(&self) -> usize {
        self.headers.len()
    }

    /// Gives the storage back.
    ///
    /// # Errors
    ///
    /// [`StillOut`] with the pool, when blocks are out.
    pub fn close(
        mut self,
    ) -> Result<(&'static mut PoolRoot, &'static mut [BlockHeader], Region), StillOut> {
        let mut blocks = 0;
        let mut list = ptr::null_mut();
        while let Some(block) = self.allocate() {
            let header = block.into_header();
            // SAFETY: the block was just allocated, so nobody else reaches its header.
            unsafe { header.as_ref() }.next.with_mut(|next| unsafe { *next = list });
            list = header.as_ptr();
            blocks += 1;
        }
        self.free = list;
        let out = self.headers.len() - blocks;
        if out > 0 {
            return Err(StillOut { pool: self, out });
        }
        // SAFETY: they were borrowed for ever by `new`, and every header is on the free list, so
        // no block refers to them.
        let headers = unsafe { self.headers.as_mut() };
        // SAFETY: as above; dropped blocks were the only ones to use the root.
        let root = unsafe { self.root.as_mut() };
        Ok((root, headers, self.region))
    }
}

/// The region of a pool is too short for its blocks.
#[derive(Debug)]
pub struct PoolError {
    /// The region that went in.
    pub region: Region,
    /// The block that does not fit.
    pub cause: OutOfRegion,
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the pool's blocks do not fit: {}", self.cause)
    }
}

impl core::error::Error for PoolError {}

/// A pool cannot be closed while blocks are out.
#[derive(Debug)]
pub struct StillOut {
    /// The pool, as it was.
    pub pool: Pool,
    /// How many blocks are out.
    pub out: usize,
}

impl fmt::Display for StillOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} blocks of the pool are still out", self.out)
    }
}

impl core::error::Error for StillOut {}

/// A block of registered memory, and the right to use it. One pointer wide.
///
/// It derefs to its message, the first [`Block::len`] bytes. One that was just allocated is as long as it can
/// be, and [`Block::set_len`] makes it shorter or longer.
///
/// **What it is posted for decides what its length means.** A SEND, a WRITE, a READ and an atomic move as many
/// bytes as it is long: set the length before. A receive takes the whole block, because nobody knows how much
/// will come, and the block is as long as it can be from then on: what came is
/// [`Ended::message`](crate::Ended::message), and what lies behind that is older.
pub struct Block(NonNull<BlockHeader>);

// SAFETY: a block is the exclusive owner of its memory and of its header's body; the way back to the
// pool is atomic.
unsafe impl Send for Block {}
// SAFETY: a shared block gives out `&[u8]` only.
unsafe impl Sync for Block {}

impl Block {
    #[inline(always)]
    fn body(&self) -> &Body {
        // SAFETY: the header lives for ever, and while the block lives its body is the block's.
        unsafe { &(*self.0.as_ptr()).body }
    }

    /// The message.
    #[inline(always)]
    fn message(&self) -> Slice {
        // SAFETY: a header becomes a block through a pool only, which has set its slice.
        unsafe { self.body().message.unwrap_unchecked() }
    }

    /// The whole block.
    #[inline(always)]
    pub(crate) fn slice(&self) -> Slice {
        Slice { extent: self.body().whole, ..self.message() }
    }

    /// Sets the length of the message, which the caller keeps at most the capacity.
    #[inline(always)]
    fn set_extent(&mut self, extent: Extent) {
        // SAFETY: the block is borrowed exclusively, and with it the body, whose slice the pool has set.
        unsafe { (*self.0.as_ptr()).body.message.as_mut().unwrap_unchecked().extent = extent };
    }

    /// Bytes in the message.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.message().len() as usize
    }

    /// Whether the message is empty.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the message may have.
    #[inline(always)]
    pub fn capacity(&self) -> usize {
        self.body().whole.length() as usize
    }

    /// Sets the length of the message: how much a SEND, WRITE or READ moves. The bytes stay as they are. A
    /// receive does not look at it, and ends it.
    ///
    /// # Errors
    ///
    /// [`OutOfRegion`] when `len` is more than the capacity; nothing has changed then.
    #[inline(always)]
    pub fn set_len(&mut self, len: usize) -> Result<(), OutOfRegion> {
        let capacity = self.body().whole.length();
        match u32::try_from(len) {
            Ok(short) if short <= capacity => {
                self.set_extent(self.body().whole.with_length(short));
                Ok(())
            }
            _ => Err(OutOfRegion { offset: 0, len: len as u64, region_len: capacity.into() }),
        }
    }

    #[inline(always)]
    fn into_header(self) -> NonNull<BlockHeader> {
        core::mem::ManuallyDrop::new(self).0
    }
}

impl Deref for Block {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        // SAFETY: the memory is the block's, initialised, and at least `len` bytes long; the
        // region is never seen by a peer.
        unsafe { core::slice::from_raw_parts(self.slice().addr().as_ptr(), self.len()) }
    }
}

impl DerefMut for Block {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and the block is borrowed exclusively.
        unsafe { core::slice::from_raw_parts_mut(self.slice().addr().as_ptr(), self.len()) }
    }
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Block {
    #[inline(always)]
    fn drop(&mut self) {
        let root = self.body().root;
        // SAFETY: the pool's root lives for ever.
        unsafe { &*root }.give_back(self.0);
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block")
            .field("len", &self.len())
            .field("capacity", &self.capacity())
            .finish()
    }
}

// SAFETY: the memory belongs to the block until it is dropped, and lives for ever if it is not.
unsafe impl SendBuffers for Block {
    #[inline(always)]
    fn gather(&self, list: &mut SliceList<'_>) {
        list.push(self.message());
    }
}

// SAFETY: as above; the whole block may be written, whatever the length of the message is.
unsafe impl RecvBuffers for Block {
    #[inline(always)]
    fn scatter(&mut self, list: &mut SliceList<'_>) {
        self.set_extent(self.body().whole);
        list.push(self.slice());
    }

    #[inline(always)]
    fn scatter_exact(&mut self, list: &mut SliceList<'_>) {
        self.gather(list);
    }
}

impl Arrived for Block {
    #[inline(always)]
    fn arrived(&self, len: usize) -> &[u8] {
        self.get(..len).unwrap_or(self)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
