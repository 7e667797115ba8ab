//! A member of a hub, and its name.

use std::time::Duration;

use nanoverbs_core::{Ended, Member as Seat};

use super::{Driver, Event, Pair, Side, WaitError};
use crate::Deadline;

/// How long a member that has ended waits for its flushes: a device that was pulled may flush nothing.
const GRACE: Duration = Duration::from_secs(1);

/// The name of a member, which no other one ever has: of no hub of this process, and not when a later one takes
/// its place.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Key {
    at: u16,
    serial: u32,
}

impl Key {
    /// The group has indices below 65,536.
    pub(super) const fn new(at: usize, serial: u32) -> Self {
        Self { at: at as u16, serial }
    }

    pub(super) const fn at(self) -> usize {
        self.at as usize
    }

    /// Its place, below the size of the hub, for arrays of a program's own. A later member may have the same
    /// one.
    pub const fn index(self) -> usize {
        self.at()
    }
}

/// A queue pair in a hub.
pub(super) struct Member<D: Driver, C: 'static> {
    pub(super) pair: Pair<D, C>,
    pub(super) seat: Seat,
    pub(super) key: Key,
    pub(super) phase: Phase,
    /// Whose outcome is the next one, if it has any.
    turn: Side,
    /// A request of it has failed.
    has_failed: bool,
    /// How it has ended, and until when its last outcomes are waited for.
    end: Option<(WaitError, Deadline)>,
    /// It is in the list of those that are looked at.
    is_watched: bool,
}

/// How far its connection is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Phase {
    /// The peer was neither asked nor answered.
    Waiting,
    /// It was.
    Establishing,
    /// It stands.
    Up,
    /// It has ended, or never stood.
    Over,
}

impl<D: Driver, C: 'static> Member<D, C> {
    pub(super) const fn new(pair: Pair<D, C>, seat: Seat, key: Key) -> Self {
        let (phase, turn) = (Phase::Waiting, Side::Recv);
        Self { pair, seat, key, phase, turn, has_failed: false, end: None, is_watched: false }
    }

    /// Whether its outcomes are handed out.
    #[inline(always)]
    pub(super) const fn is_heard(&self) -> bool {
        matches!(self.phase, Phase::Up | Phase::Over)
    }

    /// The next outcome, of its two queues in turn.
    #[inline(always)]
    pub(super) fn take(&mut self) -> Option<(Key, Side, Ended<C>)> {
        for _ in 0..2 {
            let side = self.turn;
            let ended = match side {
                Side::Send => self.pair.sends.take(),
                Side::Recv => self.pair.recvs.take(),
            };
            self.turn = match side {
                Side::Send => Side::Recv,
                Side::Recv => Side::Send,
            };
            if let Some(ended) = ended {
                return Some((self.key, side, ended));
            }
        }
        None
    }

    /// A request of it has failed, and its queue pair is in the error state: the member is over, whatever the
    /// connection manager knows of it.
    #[cold]
    #[inline(never)]
    pub(super) fn fails(&mut self, watched: &mut Vec<Key>) {
        self.has_failed = true;
        self.watch(watched);
    }

    /// Puts it in the list of those that are looked at, once; there is room for each member.
    pub(super) fn watch(&mut self, watched: &mut Vec<Key>) {
        if !self.is_watched && watched.len() < watched.capacity() {
            self.is_watched = true;
            watched.push(self.key);
        }
    }

    /// Whether it has ended and its end is not told yet.
    pub(super) const fn is_ending(&self) -> bool {
        (self.end.is_some() || self.has_failed) && !matches!(self.phase, Phase::Over)
    }

    /// Whether there are outcomes that nobody has taken.
    pub(super) fn has_outcomes(&self) -> bool {
        self.pair.sends.ended() != 0 || self.pair.recvs.ended() != 0
    }

    /// Whether every request has had its outcome, and it was taken. Silent sends that were done before the end
    /// have none of their own.
    fn is_drained(&self, grace: Deadline) -> bool {
        let (sends, recvs) = (&self.pair.sends, &self.pair.recvs);
        let is_silent = recvs.in_flight() == 0 && sends.in_flight() <= sends.silent();
        !self.has_outcomes() && (is_silent || grace.has_passed())
    }

    /// The connection stands.
    pub(super) fn stands(&mut self, reads: u8) {
        self.pair.open(reads);
        self.phase = Phase::Up;
    }

    /// What has become of it since the last look.
    pub(super) fn look(&mut self) -> Option<Event<D>> {
        let key = self.key;
        match self.phase {
            Phase::Waiting | Phase::Over => None,
            Phase::Establishing => match self.pair.driver.poll_established() {
                Ok(None) => None,
                Ok(Some(reads)) => {
                    self.stands(reads);
                    Some(Event::Established(key))
                }
                Err(error) => {
                    // Its receives come back flushed.
                    self.pair.driver.disconnect();
                    self.phase = Phase::Over;
                    Some(Event::Failed { key, error })
                }
            },
            Phase::Up => {
                let (end, grace) = match self.end {
                    Some(end) => end,
                    None => self.begins_to_end()?,
                };
                // What has arrived is handed out before its end is told.
                if !self.is_drained(grace) {
                    return None;
                }
                self.phase = Phase::Over;
                Some(Event::Ended { key, end })
            }
        }
    }

    /// How its connection has ended, if it has: from here on its requests are flushed.
    fn begins_to_end(&mut self) -> Option<(WaitError, Deadline)> {
        let end = match self.pair.driver.ended() {
            Some(end) => end,
            None if self.has_failed => WaitError::Broken,
            None => return None,
        };
        if end == WaitError::Broken {
            // Nobody has told the peer.
            self.pair.driver.disconnect();
        }
        self.end = Some((end, Deadline::after(GRACE)));
        self.end
    }
}
