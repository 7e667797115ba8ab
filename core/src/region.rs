//! Registered memory, of two kinds, because a device may write one of them at any time.
//!
//! A [`Region`] is reached by this side's own requests only. Blocks of a [`crate::Pool`] are carved
//! out of it, and who holds a block may look at it as `&[u8]`. A [`SharedRegion`] may be read or
//! written by a peer whenever it likes, so its bytes move by copy through atomic words, and no
//! reference to them ever exists. Only a shared region can be advertised, as a [`RemoteRegion`].
//!
//! Any thread may call anything here; making a region is the adapter's or the soft device's job.
//!
//! Invariant: a [`Slice`] lies inside its region. That was checked, in 64 bits, when it was made; it
//! is the proof, and pushing it does not check it again.

use core::fmt;
use core::mem::offset_of;
use core::ptr::NonNull;

use crate::abi::{Access, Addr, LKey, RKey, Sge, halves, pair};
use crate::shared_bytes;

/// A protection domain's identity: a queue pair uses regions of its own domain only. 24 bits.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[doc(alias = "ibv_pd")]
pub struct Domain(u32);

impl Domain {
    /// The domain with the number `id`, of which 24 bits count. The adapter and the soft device
    /// number their domains; two domains with the same number are the same to every check.
    pub const fn from_raw(id: u32) -> Self {
        Self(id & 0x00ff_ffff)
    }

    /// The number.
    pub const fn to_raw(self) -> u32 {
        self.0
    }
}

/// What is known of registered memory.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "ibv_mr")]
pub struct Registration {
    /// First byte.
    pub addr: NonNull<u8>,
    /// Length in bytes.
    pub len: usize,
    /// The key for this side.
    pub lkey: LKey,
    /// The key for peers.
    pub rkey: RKey,
    /// The rights that it was registered with.
    pub access: Access,
    /// The protection domain that it was registered in.
    pub domain: Domain,
}

/// Domain and rights in one word, so that a request checks both with one compare.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tag(u32);

impl Tag {
    const fn new(domain: Domain, access: Access) -> Self {
        Self((domain.0 << 8) | (access.bits() & 0xff))
    }

    /// What a queue pair of `domain` holds the tags of its pieces against: the right to write is the one
    /// that a request can lack.
    pub(crate) const fn of(domain: Domain) -> Self {
        Self::new(domain, Access::LOCAL_WRITE)
    }

    pub(crate) const fn domain(self) -> Domain {
        Domain(self.0 >> 8)
    }

    pub(crate) const fn access(self) -> Access {
        Access::from_bits(self.0 & 0xff)
    }

    /// The bits in which both differ.
    #[inline(always)]
    pub(crate) const fn difference(self, other: Self) -> u32 {
        self.0 ^ other.0
    }
}

/// The bits in which the tag of a piece must not differ from that of the queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted(u32);

impl Wanted {
    /// A device reads the piece: its domain counts.
    pub(crate) const SOURCE: Self = Self(0xffff_ff00);
    /// A device writes it: the right to write counts as well.
    pub(crate) const SINK: Self = Self(0xffff_ff00 | Access::LOCAL_WRITE.bits());

    /// Zero when nothing is wrong.
    #[inline(always)]
    pub(crate) const fn fault(self, difference: u32) -> u32 {
        difference & self.0
    }

    /// The right that it asks for.
    pub(crate) const fn right(self) -> Access {
        Access::from_bits(self.0 & 0xff)
    }
}

/// A checked piece of registered memory, at most 4 GiB − 1 long.
///
/// It says where, not for how long: that the memory lives is what the implementors of
/// [`crate::SendBuffers`] and [`crate::RecvBuffers`] promise.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    pub(crate) addr: NonNull<u8>,
    pub(crate) extent: Extent,
    pub(crate) tag: Tag,
}

/// A length and a key, as they stand in an [`Sge`]: one load and one store for both. Who sets a length writes the
/// whole, because a wide load right behind a smaller store waits for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent(u64);

impl Extent {
    #[inline(always)]
    pub(crate) const fn new(length: u32, lkey: LKey) -> Self {
        Self(pair(length, lkey.to_raw()))
    }

    #[inline(always)]
    pub(crate) const fn length(self) -> u32 {
        halves(self.0).0
    }

    #[inline(always)]
    pub(crate) const fn lkey(self) -> LKey {
        LKey::from_raw(halves(self.0).1)
    }

    /// The same key with this length.
    #[inline(always)]
    pub(crate) const fn with_length(self, length: u32) -> Self {
        Self::new(length, self.lkey())
    }
}

const _: () = assert!(offset_of!(Sge, length) == 8 && offset_of!(Sge, lkey) == 12);

// SAFETY: a slice is a description; the traits that let a device follow it are unsafe.
unsafe impl Send for Slice {}
// SAFETY: as above; it has no interior mutability.
unsafe impl Sync for Slice {}

impl Slice {
    /// First byte.
    pub const fn addr(&self) -> NonNull<u8> {
        self.addr
    }

    /// Length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "an empty slice is nothing special")]
    pub const fn len(&self) -> u32 {
        self.extent.length()
    }

    /// The key of its region, for requests that are made by hand.
    pub const fn lkey(&self) -> LKey {
        self.extent.lkey()
    }

    /// Its first bytes, as many as that.
    #[inline(always)]
    pub(crate) const fn first(self, length: u32) -> Self {
        Self { extent: self.extent.with_length(length), ..self }
    }

    /// Writes it as a piece of a request.
    ///
    /// # Safety
    ///
    /// `entry` is valid for writes.
    #[inline(always)]
    pub(crate) unsafe fn write_to(self, entry: *mut Sge) {
        // SAFETY: the caller's promise; the length and the key are the second eight bytes, as asserted above.
        unsafe {
            (&raw mut (*entry).addr).write(Addr::new(self.addr.as_ptr()));
            entry.cast::<u64>().add(1).write(self.extent.0);
        }
    }
}

/// A piece does not lie inside its region.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OutOfRegion {
    /// Where the piece should have started, in bytes from the region's first.
    pub offset: u64,
    /// How long it should have been.
    pub len: u64,
    /// How long the region is; a piece is at most 4 GiB − 1 long as well.
    pub region_len: u64,
}

impl fmt::Display for OutOfRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset, len, region_len } = self;
        write!(f, "{len} bytes at offset {offset} are not inside a region of {region_len} bytes")
    }
}

impl core::error::Error for OutOfRegion {}

fn check(offset: u64, len: u64, region_len: u64) -> Result<u32, OutOfRegion> {
    let fault = OutOfRegion { offset, len, region_len };
    let end = offset.checked_add(len).ok_or(fault)?;
    if end > region_len {
        return Err(fault);
    }
    u32::try_from(len).map_err(|_| fault)
}

/// A registered memory that only this side's own requests reach.
#[derive(Debug)]
pub struct Region(Registration);

// SAFETY: a region is an address and its keys; `from_raw` takes the promise that the memory is
// not tied to a thread.
unsafe impl Send for Region {}
// SAFETY: as above; sharing the description shares no access to the bytes.
unsafe impl Sync for Region {}

impl Region {
    /// A region made of what registering it gave.
    ///
    /// # Safety
    ///
    /// The memory is registered with the keys, rights and domain that `registration` names, has no
    /// remote rights, and stays allocated and registered as long as this value and everything
    /// carved out of it lives (`ibv_reg_mr(3)`). Nothing else uses the bytes meanwhile.
    pub const unsafe fn from_raw(registration: Registration) -> Self {
        Self(registration)
    }

    /// What is known of it.
    pub const fn registration(&self) -> &Registration {
        &self.0
    }

    /// Takes the region apart again.
    pub fn into_raw(self) -> Registration {
        self.0
    }

    /// The piece of `len` bytes at `offset`.
    ///
    /// # Errors
    ///
    /// [`OutOfRegion`] when it does not lie inside the region, or is longer than 4 GiB − 1.
    pub fn slice(&self, offset: usize, len: usize) -> Result<Slice, OutOfRegion> {
        slice_of(&self.0, offset, len)
    }
}

fn slice_of(of: &Registration, offset: usize, len: usize) -> Result<Slice, OutOfRegion> {
    let length = check(offset as u64, len as u64, of.len as u64)?;
    Ok(Slice {
        // SAFETY: `offset` is at most the region's length, which was just checked.
        addr: unsafe { of.addr.add(offset) },
        extent: Extent::new(length, of.lkey),
        tag: Tag::new(of.domain, of.access),
    })
}

/// A registered memory that a peer may read or write at any moment.
///
/// Bytes go in and out by copy, word by word with relaxed atomics: what a peer writes meanwhile
/// shows up in part or not at all, and is never undefined. Only a completion proves that a peer's
/// write has landed.
#[derive(Debug)]
pub struct SharedRegion(Registration);

// SAFETY: bytes move through atomics only, so any thread may do it.
unsafe impl Send for SharedRegion {}
// SAFETY: as above.
unsafe impl Sync for SharedRegion {}

impl SharedRegion {
    /// A region made of what registering it gave.
    ///
    /// # Safety
    ///
    /// As for [`Region::from_raw`], but remote rights are welcome. `addr` is aligned to 8 bytes and
    /// the memory is as long as `len` rounded up to 8. No reference to the bytes exists while this
    /// value lives, and other access is atomic.
    pub const unsafe fn from_raw(registration: Registration) -> Self {
        Self(registration)
    }

    /// What is known of it.
    pub const fn registration(&self) -> &Registration {
        &self.0
    }

    /// Takes the region apart again.
    pub fn into_raw(self) -> Registration {
        self.0
    }

    /// Length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "an empty region is nothing special")]
    pub const fn len(&self) -> usize {
        self.0.len
    }

    /// The piece of `len` bytes at `offset`.
    ///
    /// # Errors
    ///
    /// [`OutOfRegion`] when it does not lie inside the region, or is longer than 4 GiB − 1.
    pub fn slice(&self, offset: usize, len: usize) -> Result<Slice, OutOfRegion> {
        slice_of(&self.0, offset, len)
    }

    /// Copies bytes out, starting at `offset`.
    ///
    /// # Errors
    ///
    /// [`OutOfRegion`] when `into` is longer than what the region has from there; nothing is
    /// copied then.
    pub fn read_at(&self, offset: usize, into: &mut [u8]) -> Result<(), OutOfRegion> {
        check(offset as u64, into.len() as u64, self.0.len as u64)?;
        // SAFETY: the range was just checked, and `from_raw` promises atomic access by everybody.
        unsafe { shared_bytes::load(self.0.addr.add(offset), into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// Copies bytes in, starting at `offset`.
    ///
    /// # Errors
    ///
    /// [`OutOfRegion`] when `from` is longer than what the region has from there; nothing is
    /// copied then.
    pub fn write_at(&self, offset: usize, from: &[u8]) -> Result<(), OutOfRegion> {
        check(offset as u64, from.len() as u64, self.0.len as u64)?;
        // SAFETY: the range was just checked, and `from_raw` promises atomic access by everybody.
        unsafe { shared_bytes::store(from.as_ptr(), self.0.addr.add(offset), from.len()) };
        Ok(())
    }

    /// What a peer needs to reach the whole region, to be sent to it.
    ///
    /// Who has it can do, for as long as the region is registered, whatever its rights allow.
    pub fn advertise(&self) -> RemoteRegion {
        RemoteRegion {
            addr: self.0.addr.addr().get() as u64,
            len: self.0.len as u64,
            rkey: self.0.rkey,
            access: self.0.access,
        }
    }
}

/// A memory of the peer, as the peer advertised it.
///
/// It is a claim of the other side: a wrong one makes requests fail there, and harms nothing here.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RemoteRegion {
    addr: u64,
    len: u64,
    rkey: RKey,
    access: Access,
}

impl RemoteRegion {
    /// Length of the wire form in bytes.
    pub const WIRE_LEN: usize = 24;

    /// A region from an address, a length in bytes, a key and rights that came some other way.
    ///
    /// # Errors
    ///
    /// [`OutOfRegion`] when the end of it is past the end of the address space.
    pub const fn new(addr: u64, len: u64, rkey: RKey, access: Access) -> Result<Self, OutOfRegion> {
        if addr.checked_add(len).is_none() {
            return Err(OutOfRegion { offset: addr, len, region_len: u64::MAX });
        }
        Ok(Self { addr, len, rkey, access })
    }

    /// The form that travels: address (8 bytes), length (8), key (4), rights (4), all big-endian.
    pub fn to_wire(&self) -> [u8; Self::WIRE_LEN] {
        let mut wire = [0; Self::WIRE_LEN];
        wire[..8].copy_from_slice(&self.addr.to_be_bytes());
        wire[8..16].copy_from_slice(&self.len.to_be_bytes());
        wire[16..20].copy_from_slice(&self.rkey.to_raw().to_be_bytes());
        wire[20..].copy_from_slice(&self.access.bits().to_be_bytes());
        wire
    }

    /// Reads the form that [`RemoteRegion::to_wire`] writes.
    ///
    /// # Errors
    ///
    /// [`OutOfRegion`] when the end of it is past the end of the address space.
    pub fn from_wire(wire: &[u8; Self::WIRE_LEN]) -> Result<Self, OutOfRegion> {
        let long = |at: usize| wire[at..at + 8].iter().fold(0_u64, |n, &b| n << 8 | u64::from(b));
        let short = |at: usize| wire[at..at + 4].iter().fold(0_u32, |n, &b| n << 8 | u32::from(b));
        Self::new(long(0), long(8), RKey::from_raw(short(16)), Access::from_bits(short(20)))
    }

    /// Address of the first byte, in the peer's address space.
    pub const fn addr(&self) -> u64 {
        self.addr
    }

    /// Length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "an empty region is nothing special")]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// The peer's key.
    pub const fn rkey(&self) -> RKey {
        self.rkey
    }

    /// The rights that the peer says it gave.
    pub const fn access(&self) -> Access {
        self.access
    }

    /// The piece from `offset` on that is `len` bytes long.
    ///
    /// # Errors
    ///
    /// [`OutOfRegion`] when it does not lie inside the region.
    pub const fn at(&self, offset: u64, len: u64) -> Result<Self, OutOfRegion> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(Self { addr: self.addr + offset, len, ..*self }),
            _ => Err(OutOfRegion { offset, len, region_len: self.len }),
        }
    }
}

#[cfg(test)]
mod tests;
