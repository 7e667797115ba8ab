//! What a request carries: a typed value that moves in at the post and comes out with the outcome.
//!
//! The man pages call it the user-defined context. Here it also owns the buffers: while the value
//! sits in its slot, the device may use the memory that it names, and nobody can drop it, so nobody
//! can free or reuse the memory too early.
//!
//! [`SendBuffers`] and [`RecvBuffers`] say which memory a value names. [`crate::Block`] implements both, and
//! `(B, T)`, [`Tagged`], `[B; N]`, `heapless::Vec<B, N>` and `Option<B>` pass them on: a program pairs blocks with its own data and
//! writes no unsafe code. `()` names no memory at all.
//!
//! Called by `push`, on the posting thread.

use core::marker::PhantomData;

use crate::abi::Sge;
use crate::refusal::PushError;
use crate::region::{Slice, Tag, Wanted};

/// A value that owns memory which a device may read: the payload of a SEND or WRITE.
///
/// # Safety
///
/// The memory that [`gather`](Self::gather) names stays valid, registered and unwritten until this value is
/// dropped, wherever the value is moved to, and for ever if it is never dropped
/// (`ibv_post_send(3)`: the buffers can be reused only after the request is done). An implementor
/// therefore holds raw pointers, never `Box`, `Vec` or `&mut`, whose move ends the right of older
/// pointers. `gather` names the same memory each time.
#[diagnostic::on_unimplemented(
    message = "`{Self}` owns no memory that a device could read",
    note = "a pool's `Block` does, and `(Block, T)` pairs it with data of your own"
)]
pub unsafe trait SendBuffers: 'static {
    /// Names each piece of memory, in the order in which the message has them.
    fn gather(&self, list: &mut SliceList<'_>);
}

/// A value that owns memory which a device may write: the target of a receive or READ.
///
/// # Safety
///
/// The memory that [`scatter`](Self::scatter) and [`scatter_exact`](Self::scatter_exact) name stays valid and registered, and is neither read nor written,
/// until this value is dropped, wherever the value is moved to, and for ever if it is never dropped
/// (`ibv_post_recv(3)`). An implementor therefore holds raw pointers, never `Box`, `Vec` or
/// `&mut`. Each names the same memory each time.
#[diagnostic::on_unimplemented(
    message = "`{Self}` owns no memory that a device could write",
    note = "a pool's `Block` does, and `(Block, T)` pairs it with data of your own"
)]
pub unsafe trait RecvBuffers: 'static {
    /// Whether it leaves room for the forty bytes that precede a datagram, and hides them. Such contexts
    /// go into datagram queues, and no others do.
    const DATAGRAM: bool = false;

    /// Names each piece of memory, in the order in which the message of a receive fills them. A [`crate::Block`] is
    /// as long as it can be from then on.
    fn scatter(&mut self, list: &mut SliceList<'_>);

    /// The same for a READ or an atomic, which fill all that they are given: as much as they shall bring. A
    /// [`crate::Block`] is as long as it was set. Who passes `scatter` on passes this on as well.
    #[inline(always)]
    fn scatter_exact(&mut self, list: &mut SliceList<'_>) {
        self.scatter(list);
    }
}

/// The row of pieces that a request is made of, being filled. A step of `push`.
#[derive(Debug)]
pub struct SliceList<'a> {
    row: *mut Sge,
    max: u32,
    /// How long a piece may be.
    most: u32,
    len: u32,
    total: u64,
    /// The queue pair's.
    tag: Tag,
    wanted: Wanted,
    /// All bits in which a piece differed from it.
    difference: u32,
    /// The last faulty piece's. Who succeeds never reads it, so it costs nothing there.
    wrong: Tag,
    lifetime: PhantomData<&'a mut Sge>,
}

impl SliceList<'_> {
    /// An empty list over a row, for a queue pair with this tag whose messages have at most `most` bytes.
    ///
    /// # Safety
    ///
    /// `row` is valid for writes of `max` entries while the list lives.
    #[inline(always)]
    pub(crate) unsafe fn new(row: *mut Sge, max: u32, most: u32, tag: Tag, wanted: Wanted) -> Self {
        Self {
            row,
            max,
            most,
            len: 0,
            total: 0,
            tag,
            wanted,
            difference: 0,
            wrong: tag,
            lifetime: PhantomData,
        }
    }

    /// A list without a row, to look at the pieces of a request that was refused.
    pub(crate) fn inspector(tag: Tag, wanted: Wanted) -> Self {
        // SAFETY: no entry is ever written.
        unsafe { Self::new(core::ptr::null_mut(), 0, u32::MAX, tag, wanted) }
    }

    /// Adds a piece. One of no length is left out: some devices read length 0 as 2 GiB.
    #[inline(always)]
    pub fn push(&mut self, slice: Slice) {
        // One compare for both: none of its length, and more than may be.
        if slice.len().wrapping_sub(1) >= self.most {
            if slice.len() != 0 {
                self.difference = u32::MAX;
            }
            return;
        }
        if self.len < self.max {
            // SAFETY: `len < max`, and the row is valid for `max` entries.
            let entry = unsafe { self.row.add(self.len as usize) };
            // SAFETY: as above.
            unsafe { slice.write_to(entry) };
        }
        let difference = slice.tag.difference(self.tag);
        if self.wanted.fault(difference) != 0 {
            self.wrong = slice.tag;
        }
        self.difference |= difference;
        self.len = self.len.wrapping_add(1);
        self.total = self.total.wrapping_add(u64::from(slice.len()));
    }

    /// How many pieces were added; may be more than fit.
    #[inline(always)]
    pub(crate) fn count(&self) -> u32 {
        self.len
    }

    /// The sum of their lengths.
    #[inline(always)]
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Whether a piece belongs to another domain, lacks a right, or is longer than a message.
    #[inline(always)]
    pub(crate) fn is_faulty(&self) -> bool {
        self.wanted.fault(self.difference) != 0
    }

    /// Whether its pieces are longer than a message only together.
    #[inline(always)]
    pub(crate) fn is_too_long(&self) -> bool {
        self.len > 1 && self.total > u64::from(self.most)
    }

    /// Why the request is refused, of which at least one of these limits or a piece is the reason.
    #[cold]
    pub(crate) fn refusal(&self, max: u32, most: u64) -> PushError {
        let (given, total, queue) = (self.len, self.total, self.tag.domain());
        if given > max {
            PushError::TooManySges { given, max }
        } else if total > most {
            PushError::MessageTooLong { total, max: most }
        } else if self.wrong.domain() != queue {
            PushError::WrongDomain { given: self.wrong.domain(), queue }
        } else {
            PushError::MissingAccess { needs: self.wanted.right(), has: self.wrong.access() }
        }
    }
}

// SAFETY: it names no memory.
unsafe impl SendBuffers for () {
    #[inline(always)]
    fn gather(&self, _: &mut SliceList<'_>) {}
}

// SAFETY: it names no memory.
unsafe impl RecvBuffers for () {
    #[inline(always)]
    fn scatter(&mut self, _: &mut SliceList<'_>) {}
}

/// Buffers with data of the program's own, where a pair will not do: it is also the bytes that its buffers
/// are, so it goes out inline as well ([`SendChain::push_inline`](crate::SendChain::push_inline)).
///
/// The buffers need not be registered memory for that: an array of bytes is enough.
///
/// ```
/// use nanoverbs_core::Tagged;
///
/// let order = Tagged { buffers: *b"BUY 100", tag: 4711_u64 };
/// let bytes: &[u8] = order.as_ref();
/// assert_eq!((bytes, order.tag), (&b"BUY 100"[..], 4711));
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Tagged<B, T> {
    /// What the message is made of, or goes into.
    pub buffers: B,
    /// What the program wants to know of the request when it has ended.
    pub tag: T,
}

impl<B: AsRef<[u8]>, T> AsRef<[u8]> for Tagged<B, T> {
    #[inline(always)]
    fn as_ref(&self) -> &[u8] {
        self.buffers.as_ref()
    }
}

macro_rules! pass_on {
    ($buffers:ident, $names:ident, ($($reference:tt)+) $this:ident $(, $DATAGRAM:ident, $exact:ident)?) => {
        // SAFETY: the memory is the first field's, which lives as long as the pair.
        unsafe impl<B: $buffers, T: 'static> $buffers for (B, T) {
            $(const $DATAGRAM: bool = B::$DATAGRAM;)?

            #[inline(always)]
            fn $names($($reference)+ $this, list: &mut SliceList<'_>) {
                $this.0.$names(list);
            }
            $(
                #[inline(always)]
                fn $exact(&mut $this, list: &mut SliceList<'_>) {
                    $this.0.$exact(list);
                }
            )?
        }

        // SAFETY: the memory is that of the buffers, which live as long as the value.
        unsafe impl<B: $buffers, T: 'static> $buffers for Tagged<B, T> {
            $(const $DATAGRAM: bool = B::$DATAGRAM;)?

            #[inline(always)]
            fn $names($($reference)+ $this, list: &mut SliceList<'_>) {
                $this.buffers.$names(list);
            }
            $(
                #[inline(always)]
                fn $exact(&mut $this, list: &mut SliceList<'_>) {
                    $this.buffers.$exact(list);
                }
            )?
        }

        // SAFETY: the memory is that of the elements, which live as long as the array.
        unsafe impl<B: $buffers, const N: usize> $buffers for [B; N] {
            #[inline(always)]
            fn $names($($reference)+ $this, list: &mut SliceList<'_>) {
                for buffers in $this {
                    buffers.$names(list);
                }
            }
            $(
                #[inline(always)]
                fn $exact(&mut $this, list: &mut SliceList<'_>) {
                    for buffers in $this {
                        buffers.$exact(list);
                    }
                }
            )?
        }

        // SAFETY: the memory is that of the elements, which live as long as the vector, wherever it is.
        unsafe impl<B: $buffers, const N: usize> $buffers for heapless::Vec<B, N> {
            #[inline(always)]
            fn $names($($reference)+ $this, list: &mut SliceList<'_>) {
                for buffers in $this {
                    buffers.$names(list);
                }
            }
            $(
                #[inline(always)]
                fn $exact(&mut $this, list: &mut SliceList<'_>) {
                    for buffers in $this {
                        buffers.$exact(list);
                    }
                }
            )?
        }

        // SAFETY: the memory is that of the value inside, which lives as long as the option.
        unsafe impl<B: $buffers> $buffers for Option<B> {
            $(const $DATAGRAM: bool = B::$DATAGRAM;)?

            #[inline(always)]
            fn $names($($reference)+ $this, list: &mut SliceList<'_>) {
                if let Some(buffers) = $this {
                    buffers.$names(list);
                }
            }
            $(
                #[inline(always)]
                fn $exact(&mut $this, list: &mut SliceList<'_>) {
                    if let Some(buffers) = $this {
                        buffers.$exact(list);
                    }
                }
            )?
        }
    };
}

pass_on!(SendBuffers, gather, (&) self);
pass_on!(RecvBuffers, scatter, (&mut) self, DATAGRAM, scatter_exact);
