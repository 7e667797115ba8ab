//! What a queue remembers of a request beside its context.

use crate::completion::Operation;

/// Eight bytes, written whole by a push, so that nothing of an earlier request is left.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(crate) struct Meta {
    /// The length in bytes; the device's status once the request has failed.
    pub(crate) len: u32,
    pub(crate) operation: Operation,
    pub(crate) end: End,
    /// 1 for a READ or an atomic.
    pub(crate) credit: u8,
}

impl Meta {
    pub(crate) const EMPTY: Self =
        Self { len: 0, operation: Operation::Send, end: End::Done, credit: 0 };
}

/// How a request ended, or will if nothing bad happens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum End {
    Done,
    Failed,
    Flushed,
    Abandoned,
}

static_assertions::const_assert_eq!(size_of::<Meta>(), 8);
