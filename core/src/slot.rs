//! What a queue remembers of a request beside its context.

use crate::completion::Operation;

/// Eight bytes, written whole by a push, so that nothing of an earlier request is left.
///
/// They are laid out so that a push writes them with one store of a constant, and a take sees with one
/// compare that nothing is special.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(crate) struct Meta {
    pub(crate) operation: Operation,
    spare: u8,
    /// How the request ended, and [`Meta::CREDIT`]; 0 when it was done and holds no credit.
    state: u16,
    /// The length in bytes of a READ or an atomic; the device's status once the request has failed.
    pub(crate) len: u32,
}

impl Meta {
    pub(crate) const EMPTY: Self = Self::new(Operation::Send, false, 0);

    /// In `state`: the request is a READ or an atomic.
    const CREDIT: u16 = 1 << 8;

    /// A request that will be done if nothing bad happens.
    #[inline(always)]
    pub(crate) const fn new(operation: Operation, credit: bool, len: u32) -> Self {
        Self { operation, spare: 0, state: if credit { Self::CREDIT } else { 0 }, len }
    }

    /// Whether it was done and holds no credit.
    #[inline(always)]
    pub(crate) const fn is_plain(&self) -> bool {
        self.state == 0
    }

    /// 1 for a READ or an atomic.
    #[inline(always)]
    pub(crate) const fn credit(self) -> u8 {
        (self.state >> 8) as u8
    }

    #[inline(always)]
    pub(crate) const fn end(self) -> End {
        match self.state as u8 {
            0 => End::Done,
            1 => End::Failed,
            2 => End::Flushed,
            _ => End::Abandoned,
        }
    }

    pub(crate) const fn set_end(&mut self, end: End) {
        self.state = (self.state & Self::CREDIT) | end as u16;
    }
}

/// How a request ended, or will if nothing bad happens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum End {
    Done = 0,
    Failed = 1,
    Flushed = 2,
    Abandoned = 3,
}

static_assertions::const_assert_eq!(size_of::<Meta>(), 8);
