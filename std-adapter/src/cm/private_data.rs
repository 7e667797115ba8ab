//! The few bytes that travel with a connection request, its answer, or its refusal.

use std::fmt;

/// What the other side sent along.
///
/// The wire carries no length: what arrives is what was sent, followed by zeros up to the size of
/// the message (56 bytes with a request, 196 with its answer, 148 with a refusal). "Nothing"
/// arrives as zeros or as an empty slice. A protocol that needs the length puts it in its first
/// byte.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct PrivateData {
    len: u8,
    bytes: [u8; Self::MAX_RECEIVED],
}

impl PrivateData {
    /// With a request for a connection: [`Outgoing::connect`](super::Outgoing::connect).
    pub const MAX_CONNECT: usize = 56;
    /// With the answer: [`Incoming::accept`](super::Incoming::accept).
    pub const MAX_ACCEPT: usize = 196;
    /// With a refusal: [`Request::reject`](super::Request::reject).
    pub const MAX_REJECT: usize = 148;

    /// With a question for datagrams: [`Datagrams::find`](super::Datagrams::find).
    pub const MAX_ASK: usize = 180;
    /// With the answer to it: [`DatagramRequest::accept`](super::DatagramRequest::accept).
    pub const MAX_TELL: usize = 136;

    /// What the length field of an event can say.
    const MAX_RECEIVED: usize = 255;

    pub(super) const fn empty() -> Self {
        Self { len: 0, bytes: [0; Self::MAX_RECEIVED] }
    }

    pub(super) const fn received(bytes: &[u8; Self::MAX_RECEIVED], len: u8) -> Self {
        Self { len, bytes: *bytes }
    }

    /// The bytes: at least those that were sent, then zeros.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The first `N` bytes; `None` when fewer arrived.
    pub fn first<const N: usize>(&self) -> Option<[u8; N]> {
        self.as_bytes().first_chunk().copied()
    }
}

impl AsRef<[u8]> for PrivateData {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl fmt::Debug for PrivateData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PrivateData").field(&self.as_bytes()).finish()
    }
}

/// What shall be sent along, kept by value.
#[derive(Clone, Copy)]
pub(super) struct ToSend {
    given: usize,
    bytes: [u8; PrivateData::MAX_ACCEPT],
}

impl ToSend {
    pub(super) const EMPTY: Self = Self { given: 0, bytes: [0; PrivateData::MAX_ACCEPT] };

    pub(super) fn new(data: &[u8]) -> Self {
        let mut kept = Self { given: data.len(), ..Self::EMPTY };
        let len = data.len().min(kept.bytes.len());
        kept.bytes[..len].copy_from_slice(&data[..len]);
        kept
    }

    /// The bytes, when they are not more than `max`, which is at most
    /// [`PrivateData::MAX_ACCEPT`].
    pub(super) fn within(&self, max: usize) -> Result<&[u8], PrivateDataTooLong> {
        match self.bytes.get(..self.given) {
            Some(bytes) if self.given <= max => Ok(bytes),
            _ => Err(PrivateDataTooLong { given: self.given, max }),
        }
    }
}

impl fmt::Debug for ToSend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.given)
    }
}

/// More private data than the message has room for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PrivateDataTooLong {
    /// How many bytes were given.
    pub given: usize,
    /// How many this call can send.
    pub max: usize,
}

impl fmt::Display for PrivateDataTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} bytes of private data are too long; this call has room for {}",
            self.given, self.max
        )
    }
}

impl std::error::Error for PrivateDataTooLong {}
