//! Blocks for datagrams: the forty bytes that precede each message in the receiver's memory stay hidden.

use core::fmt;
use core::ops::{Deref, DerefMut};

use crate::arrived::Arrived;
use crate::completion::Success;
use crate::context::{RecvBuffers, SendBuffers, SliceList};
use crate::pool::Block;
use crate::region::Slice;

/// A block for datagrams, to receive or to send. It derefs to its message; in front of that is room for the
/// header that devices put before a received one.
///
/// A receive takes messages of up to [`Datagram::capacity`] bytes: make the blocks of the pool
/// [`Datagram::PREFIX`] bytes longer than the longest message.
///
/// A plain block would show the header for the message, so datagram queues do not take it:
///
/// ```compile_fail,E0080
/// # use nanoverbs_core::{Block, RecvChain, port::Datagrams, soft::RecvEnd};
/// type Chain<'c> = RecvChain<'c, 'c, Datagrams<RecvEnd<'c, 8>>, Block, 8, 8, 1>;
/// let unprotected = |chain: &mut Chain<'_>, block: Block| chain.push(block).unwrap();
/// # std::hint::black_box::<fn(&mut Chain<'_>, Block)>(unprotected);
/// ```
pub struct Datagram {
    /// Its length is the prefix and the message.
    block: Block,
}

impl Datagram {
    /// Bytes in front of a received message.
    pub const PREFIX: usize = 40;

    /// A datagram in `block`, as long as it can be.
    ///
    /// # Errors
    ///
    /// The block, when it is not even as long as the prefix.
    pub fn new(mut block: Block) -> Result<Self, Block> {
        let capacity = block.capacity();
        if capacity < Self::PREFIX || block.set_len(capacity).is_err() {
            return Err(block);
        }
        Ok(Self { block })
    }

    /// Bytes that the message may have.
    #[inline(always)]
    pub fn capacity(&self) -> usize {
        self.block.capacity().saturating_sub(Self::PREFIX)
    }

    /// Sets the length of the message, for sending; false when it may not have as many bytes, and nothing
    /// has changed then.
    #[inline(always)]
    pub fn set_len(&mut self, len: usize) -> bool {
        self.block.set_len(len.saturating_add(Self::PREFIX)).is_ok()
    }

    /// The message that a receive brought, as long as its completion says.
    #[inline(always)]
    pub fn payload(&self, arrived: &Success) -> &[u8] {
        self.arrived(arrived.byte_len().unwrap_or(0) as usize)
    }

    /// What the device put in front of a received message: who sent it, in the form of the network. With
    /// IPv4 the first twenty bytes mean nothing.
    pub fn header(&self) -> &[u8; Self::PREFIX] {
        // SAFETY: a block of a datagram is at least as long as the prefix, and initialised.
        unsafe { self.block.slice().addr.cast().as_ref() }
    }

    /// The block, with the header and the message in it.
    pub fn into_block(self) -> Block {
        self.block
    }

    /// The first `len` bytes behind the prefix.
    #[inline(always)]
    fn message(&self, len: u32) -> Slice {
        let whole = self.block.slice();
        // SAFETY: a block of a datagram is at least as long as the prefix.
        Slice { addr: unsafe { whole.addr.add(Self::PREFIX) }, ..whole.first(len) }
    }

    #[inline(always)]
    fn to_send(&self) -> Slice {
        self.message(self.block.len().saturating_sub(Self::PREFIX) as u32)
    }
}

impl Deref for Datagram {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        self.block.get(Self::PREFIX..).unwrap_or_default()
    }
}

impl DerefMut for Datagram {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.block.get_mut(Self::PREFIX..).unwrap_or_default()
    }
}

impl AsRef<[u8]> for Datagram {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// The message without its header, which is counted.
impl Arrived for Datagram {
    #[inline(always)]
    fn arrived(&self, len: usize) -> &[u8] {
        let len = len.min(self.block.capacity()).saturating_sub(Self::PREFIX);
        let message = self.message(len as u32);
        // SAFETY: the block owns its memory, which is initialised; the piece lies inside it.
        unsafe { core::slice::from_raw_parts(message.addr.as_ptr(), message.len() as usize) }
    }
}

impl fmt::Debug for Datagram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Datagram")
            .field("len", &self.len())
            .field("capacity", &self.capacity())
            .finish()
    }
}

// SAFETY: the memory belongs to the block until it is dropped, and lives for ever if it is not.
unsafe impl SendBuffers for Datagram {
    #[inline(always)]
    fn gather(&self, list: &mut SliceList<'_>) {
        list.push(self.to_send());
    }
}

// SAFETY: as above; the whole block may be written.
unsafe impl RecvBuffers for Datagram {
    const DATAGRAM: bool = true;

    #[inline(always)]
    fn scatter(&mut self, list: &mut SliceList<'_>) {
        list.push(self.block.slice());
    }
}
