//! A context with a number, and the book in which each number is crossed out once.
//!
//! The book is the thread's own and not the contexts', so that a context which is dropped twice, or
//! made of rubbish, is noticed and not followed.

use std::cell::RefCell;

use nanoverbs_core::{RecvBuffers, SendBuffers, SliceList};

use crate::transport::Transport;

/// Where a context is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fate {
    Lives,
    Forgotten,
    Gone,
}

thread_local! {
    static BOOK: RefCell<Vec<Fate>> = const { RefCell::new(Vec::new()) };
}

/// Starts a new book.
pub(crate) fn begin() {
    BOOK.with_borrow_mut(Vec::clear);
}

/// How many contexts there ever were.
pub(crate) fn made() -> usize {
    BOOK.with_borrow(Vec::len)
}

/// Every context came back and was dropped, but for those that were forgotten on purpose.
pub(crate) fn assert_nobody_lives() {
    BOOK.with_borrow(|book| {
        let lost: Vec<_> = (0..book.len()).filter(|&id| book[id] == Fate::Lives).collect();
        assert!(lost.is_empty(), "contexts {lost:?} are lost");
    });
}

/// The context with this number is to be leaked.
pub(crate) fn forget(id: u32) {
    BOOK.with_borrow_mut(|book| book[id as usize] = Fate::Forgotten);
}

/// What the queues carry: a number, buffers, and bytes that may travel inline.
pub(crate) struct Context<T: Transport> {
    pub(crate) id: u32,
    pub(crate) buffers: T::Buffers,
    bytes: [u8; 48],
    len: u8,
}

impl<T: Transport> Context<T> {
    /// One whose message starts with its number, if it has room for it.
    pub(crate) fn new(mut buffers: T::Buffers) -> Self {
        let id = BOOK.with_borrow_mut(|book| {
            book.push(Fate::Lives);
            book.len() as u32 - 1
        });
        if let Some(start) = T::message(&mut buffers).and_then(<[u8]>::first_chunk_mut) {
            *start = id.to_le_bytes();
        }
        Self { id, buffers, bytes: [0; 48], len: 0 }
    }

    /// One that travels inline: its number, and zeros.
    pub(crate) fn inline(len: u8) -> Self {
        let mut this = Self::new(T::Buffers::default());
        this.len = len.clamp(4, 48);
        this.bytes[..4].copy_from_slice(&this.id.to_le_bytes());
        this
    }
}

impl<T: Transport> AsRef<[u8]> for Context<T> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len.into()]
    }
}

// SAFETY: the memory is the buffers'.
unsafe impl<T: Transport> SendBuffers for Context<T> {
    fn gather(&self, list: &mut SliceList<'_>) {
        self.buffers.gather(list);
    }
}

// SAFETY: the memory is the buffers'.
unsafe impl<T: Transport> RecvBuffers for Context<T> {
    const DATAGRAM: bool = T::DATAGRAM;

    fn scatter(&mut self, list: &mut SliceList<'_>) {
        self.buffers.scatter(list);
    }
}

impl<T: Transport> Drop for Context<T> {
    fn drop(&mut self) {
        BOOK.with_borrow_mut(|book| {
            let fate = &mut book[self.id as usize];
            assert_eq!(*fate, Fate::Lives, "context {} was dropped before", self.id);
            *fate = Fate::Gone;
        });
    }
}
