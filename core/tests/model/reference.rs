//! The reference: what a queue must say, by lists and counts that nobody tuned.

use std::collections::{HashSet, VecDeque};

use nanoverbs_core::{Cause, Outcome, PushError, ReserveError};

use crate::tap::Post;

/// How a request ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum End {
    Done,
    Failed(u32),
    Flushed,
    Abandoned,
}

impl End {
    const fn of(status: u32) -> Self {
        match status {
            0 => Self::Done,
            5 => Self::Flushed,
            other => Self::Failed(other),
        }
    }
}

impl From<&Outcome> for End {
    fn from(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Done(_) => Self::Done,
            Outcome::Failed(failure) => Self::Failed(failure.status().to_raw()),
            Outcome::Flushed => Self::Flushed,
            Outcome::Abandoned => Self::Abandoned,
        }
    }
}

/// Why a queue takes nothing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Shut {
    NotConnected,
    Failed,
    Flushed,
    Unknown,
    ByOwner,
    Gone,
}

impl From<Cause> for Shut {
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::Failed(_) => Self::Failed,
            Cause::Flushed => Self::Flushed,
            Cause::Unknown { .. } => Self::Unknown,
            Cause::ByOwner => Self::ByOwner,
            _ => Self::Gone,
        }
    }
}

/// What comes to a receive.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arrival {
    Message { id: u32, len: u32, immediate: bool },
    Write { id: u32, len: u32 },
}

impl Arrival {
    pub(crate) const fn id(&self) -> u32 {
        match self {
            Self::Message { id, .. } | Self::Write { id, .. } => *id,
        }
    }
}

/// What is done to a word of the peer's.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Atomic {
    Add(u64),
    Swap(u64, u64),
}

impl Atomic {
    pub(crate) const fn apply(self, word: u64) -> u64 {
        match self {
            Self::Add(add) => word.wrapping_add(add),
            Self::Swap(expected, new) => {
                if word == expected {
                    new
                } else {
                    word
                }
            }
        }
    }
}

/// A request, of a chain or posted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) id: u32,
    /// A READ or an atomic.
    pub(crate) read: bool,
    pub(crate) atomic: Option<Atomic>,
    pub(crate) signaled: bool,
    pub(crate) end: Option<End>,
    /// What a receive was told in its turn.
    pub(crate) arrived: Option<Arrival>,
}

impl Entry {
    pub(crate) const fn recv(id: u32) -> Self {
        Self { id, read: false, atomic: None, signaled: true, end: None, arrived: None }
    }
}

/// Either kind of queue.
#[derive(Debug)]
pub(crate) struct Queue {
    /// Requests that were not taken yet, the oldest first; and the sequence of that one.
    pub(crate) entries: VecDeque<Entry>,
    oldest: u32,
    pub(crate) depth: u32,
    pub(crate) chain: u32,
    pub(crate) period: u32,
    pub(crate) max_reads: u32,
    pub(crate) shut: Option<Shut>,
    /// A failure was retired.
    has_failed: bool,
    /// Requests behind the last signaled one.
    pub(crate) silent: u32,
    /// Each request has a completion of its own.
    is_recv: bool,
}

impl Queue {
    pub(crate) fn send(depth: u32, chain: u32, period: u32, max_reads: u32) -> Self {
        let shut = Some(Shut::NotConnected);
        let (entries, oldest, has_failed, silent) = (VecDeque::new(), 0, false, 0);
        let is_recv = false;
        Self { entries, oldest, depth, chain, period, max_reads, shut, has_failed, silent, is_recv }
    }

    pub(crate) fn recv(depth: u32) -> Self {
        Self { shut: None, is_recv: true, ..Self::send(depth, u32::MAX, 0, 0) }
    }

    pub(crate) fn ended(&self) -> u32 {
        self.entries.iter().filter(|entry| entry.end.is_some()).count() as u32
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.entries.len() as u32 - self.ended()
    }

    pub(crate) fn free(&self) -> u32 {
        if self.shut.is_some() { 0 } else { self.depth - self.entries.len() as u32 }
    }

    pub(crate) fn reads(&self) -> u32 {
        self.entries.iter().filter(|entry| entry.read).count() as u32
    }

    pub(crate) fn open(&mut self) {
        if self.shut == Some(Shut::NotConnected) {
            self.shut = None;
        }
    }

    /// A failure or an unknown post says more than what comes behind it.
    pub(crate) fn close(&mut self, why: Shut) {
        if !matches!(self.shut, Some(Shut::Failed | Shut::Unknown)) {
            self.shut = Some(why);
        }
    }

    /// What `reserve` must say.
    pub(crate) fn reserve(&self, n: u32, staging: u32) -> Reserved {
        let max = staging.min(self.chain);
        match self.shut {
            Some(Shut::NotConnected) => Reserved::NotConnected,
            Some(why) => Reserved::Closed(why),
            None if n > max => Reserved::TooLong { asked: n, max },
            None if n > self.free() => Reserved::Full { asked: n, free: self.free() },
            None => Reserved::Yes,
        }
    }

    /// Whether a READ that `staged` others precede in its chain may be pushed.
    pub(crate) fn check_read(&self, staged: &[Entry]) -> Option<PushError> {
        let staged = staged.iter().filter(|one| one.read).count() as u32;
        let max = self.max_reads;
        match () {
            () if self.reads() + staged < max => None,
            () if max == 0 => Some(PushError::ReadsNotNegotiated),
            () => Some(PushError::ReadsFull { max }),
        }
    }

    /// Holds the signals of a chain, as the device saw them, against the four rules. `before` is what an
    /// earlier attempt has set.
    fn check_signals(&self, staged: &[Entry], flags: &[bool], before: &[bool]) {
        let last = staged.len() - 1;
        let last_read = staged.iter().rposition(|one| one.read);
        let overdue = self.silent >= self.period;
        let mut run = self.silent;
        for (at, one) in staged.iter().enumerate() {
            let mut must = one.signaled || last_read == Some(at) || (overdue && at == 0);
            run = if must || before[at] { 0 } else { run + 1 };
            must |= at == last && run >= self.period;
            let may = must || before[at] || (overdue && at == last);
            let is = flags[at];
            assert!(is || !must, "request {at} of {staged:?} must be signaled: {flags:?}");
            assert!(!is || may, "request {at} of {staged:?} is signaled for nothing: {flags:?}");
        }
    }

    /// The device took the first `count` of a chain, or may have taken them.
    pub(crate) fn posted(&mut self, staged: &[Entry], count: usize, post: &Post, before: &[bool]) {
        self.check_signals(staged, &post.signaled, before);
        let next = self.oldest.wrapping_add(self.entries.len() as u32);
        let is_next = |(sequence, id): (u32, &u64)| *id as u32 == next.wrapping_add(sequence);
        assert!((0..).zip(&post.ids).all(is_next), "ids are counted up: {post:?}");
        for (one, signaled) in staged[..count].iter().zip(&post.signaled) {
            self.entries.push_back(*one);
            self.silent = if *signaled { 0 } else { self.silent + 1 };
        }
        assert!(self.entries.len() <= self.depth as usize, "more requests than slots");
    }

    /// A completion is retired; how many requests it ends, `None` when it ends nothing.
    pub(crate) fn retire(
        &mut self,
        sequence: u32,
        status: u32,
        arrived: Option<Arrival>,
    ) -> Option<u32> {
        let (at, first) = (sequence.wrapping_sub(self.oldest) as usize, self.ended() as usize);
        if at < first || at >= self.entries.len() || (self.is_recv && at != first) {
            return None;
        }
        let earlier = if self.has_failed && status != 0 { End::Flushed } else { End::Done };
        for entry in self.entries.range_mut(first..at) {
            entry.end = Some(earlier);
        }
        self.entries[at].end = Some(End::of(status));
        self.entries[at].arrived = arrived;
        match status {
            0 => {}
            5 => self.close(Shut::Flushed),
            _ => {
                self.close(Shut::Failed);
                self.has_failed = true;
            }
        }
        Some((at - first) as u32 + 1)
    }

    /// Whether the request is in flight, so that its completion has to be kept.
    pub(crate) fn waits_for(&self, sequence: u32) -> bool {
        let at = sequence.wrapping_sub(self.oldest) as usize;
        at < self.entries.len() && at >= self.ended() as usize
    }

    pub(crate) fn abandon(&mut self) {
        for entry in self.entries.iter_mut().filter(|entry| entry.end.is_none()) {
            entry.end = Some(End::Abandoned);
        }
        self.close(Shut::Gone);
    }

    pub(crate) fn take(&mut self) -> Option<Entry> {
        self.entries.front()?.end?;
        let entry = self.entries.pop_front()?;
        self.oldest = self.oldest.wrapping_add(1);
        Some(entry)
    }
}

/// A receive queue that both sides share: what is posted, by ticket, and what has ended, in this order.
#[derive(Debug)]
pub(crate) struct Shared {
    posted: Vec<(u32, Entry)>,
    ended: VecDeque<Entry>,
    used: HashSet<u32>,
    pub(crate) depth: u32,
    pub(crate) shut: Option<Shut>,
}

impl Shared {
    pub(crate) fn new(depth: u32) -> Self {
        Self { posted: vec![], ended: VecDeque::new(), used: HashSet::new(), depth, shut: None }
    }

    pub(crate) fn ended(&self) -> u32 {
        self.ended.len() as u32
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.posted.len() as u32
    }

    pub(crate) fn free(&self) -> u32 {
        if self.shut.is_some() { 0 } else { self.depth - self.in_flight() - self.ended() }
    }

    /// An unknown post says more than what comes behind it.
    pub(crate) fn close(&mut self, why: Shut) {
        if self.shut != Some(Shut::Unknown) {
            self.shut = Some(why);
        }
    }

    /// What `reserve` must say.
    pub(crate) fn reserve(&self, n: u32, max: u32) -> Reserved {
        match self.shut {
            Some(why) => Reserved::Closed(why),
            None if n > max => Reserved::TooLong { asked: n, max },
            None if n > self.free() => Reserved::Full { asked: n, free: self.free() },
            None => Reserved::Yes,
        }
    }

    /// The device took the first `count` of a chain, or may have taken them.
    pub(crate) fn posted(&mut self, staged: &[Entry], count: usize, post: &Post, _: &[bool]) {
        for (one, id) in staged[..count].iter().zip(&post.ids) {
            assert!(self.used.insert(*id as u32), "an id twice: {post:?}");
            self.posted.push((*id as u32, *one));
        }
        assert!(self.in_flight() + self.ended() <= self.depth, "more receives than slots");
    }

    /// A completion is retired; how many receives it ends, `None` when it ends none.
    pub(crate) fn retire(
        &mut self,
        ticket: u32,
        status: u32,
        arrived: Option<Arrival>,
    ) -> Option<u32> {
        let at = self.posted.iter().position(|(posted, _)| *posted == ticket)?;
        let (_, entry) = self.posted.remove(at);
        self.ended.push_back(Entry { end: Some(End::of(status)), arrived, ..entry });
        Some(1)
    }

    pub(crate) fn abandon(&mut self, slots: u32) {
        self.posted.sort_by_key(|(ticket, _)| ticket % slots);
        let end = Some(End::Abandoned);
        self.ended.extend(self.posted.drain(..).map(|(_, entry)| Entry { end, ..entry }));
        self.close(Shut::Gone);
    }

    pub(crate) fn take(&mut self) -> Option<Entry> {
        self.ended.pop_front()
    }
}

/// What `reserve` says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Reserved {
    Yes,
    Full { asked: u32, free: u32 },
    TooLong { asked: u32, max: u32 },
    NotConnected,
    Closed(Shut),
}

impl From<ReserveError> for Reserved {
    fn from(error: ReserveError) -> Self {
        match error {
            ReserveError::Full { asked, free } => Self::Full { asked, free },
            ReserveError::ChainTooLong { asked, max } => Self::TooLong { asked, max },
            ReserveError::NotConnected => Self::NotConnected,
            ReserveError::Closed(cause) => Self::Closed(cause.into()),
            other => panic!("{other:?}"),
        }
    }
}
