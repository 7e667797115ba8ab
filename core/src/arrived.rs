//! What came, of a request that has ended: the bytes of its context that the device has written.
//!
//! Called by the thread that took the outcome.

use crate::completion::{Ended, Outcome};
use crate::context::Tagged;
use crate::shared::SharedEnded;

/// A context with one buffer that a receive, a READ or an atomic fills from its start.
/// [`Ended::message`] shows what came; a context of the program's own passes it on to its buffer's.
///
/// One of several buffers has no such slice: [`Success::byte_len`](crate::Success::byte_len) counts over all of
/// them.
pub trait Arrived {
    /// The message, when so many bytes came: as many as there are of it, at most the whole buffer.
    fn arrived(&self, len: usize) -> &[u8];
}

impl<B: Arrived, T> Arrived for (B, T) {
    #[inline(always)]
    fn arrived(&self, len: usize) -> &[u8] {
        self.0.arrived(len)
    }
}

impl<B: Arrived, T> Arrived for Tagged<B, T> {
    #[inline(always)]
    fn arrived(&self, len: usize) -> &[u8] {
        self.buffers.arrived(len)
    }
}

impl<B: Arrived> Arrived for Option<B> {
    #[inline(always)]
    fn arrived(&self, len: usize) -> &[u8] {
        self.as_ref().map_or(&[], |buffers| buffers.arrived(len))
    }
}

#[inline(always)]
fn message<'e, C: Arrived>(outcome: &Outcome, context: &'e C) -> Option<&'e [u8]> {
    let success = outcome.success()?;
    let len = success.byte_len()?;
    Some(context.arrived(if success.is_write() { 0 } else { len as usize }))
}

impl<C: Arrived> Ended<C> {
    /// The bytes that came, by a receive, a READ or an atomic, and not what an earlier message has left behind
    /// them. Empty where a WRITE with immediate ended the receive, which leaves its buffer alone.
    ///
    /// `None` when nothing came: it failed or was flushed, or it is a SEND or a WRITE.
    ///
    /// A [`Block`](crate::Block) that goes on, as an answer for example, is made as long by
    /// [`Block::set_len`](crate::Block::set_len).
    #[inline(always)]
    pub fn message(&self) -> Option<&[u8]> {
        message(&self.outcome, &self.context)
    }
}

impl<C: Arrived> SharedEnded<C> {
    /// The bytes that came, as [`Ended::message`] says.
    #[inline(always)]
    pub fn message(&self) -> Option<&[u8]> {
        message(&self.outcome, &self.context)
    }
}
