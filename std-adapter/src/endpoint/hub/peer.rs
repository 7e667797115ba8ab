//! A member of a hub, lent out to post.

use std::fmt;

use nanoverbs_core::{
    Block, Cause, RKey, RecvBuffers, RemoteRegion, ReserveError, SendBuffers, SubmitError, op,
};

use super::{BlockPool, Driver, Key, Links, Member, Phase, Shared, Side, Window};
use crate::endpoint::{OpenWindowError, PostError, Receives, RecvSide, Refusal, SendSide, Sends};
use crate::memory::Rights;

/// A member of a hub, with the verbs of an [`Endpoint`](crate::Endpoint). It borrows the hub, so it ends before the
/// next poll.
///
/// One that is not connected yet refuses sends ([`ReserveError::NotConnected`]) and takes receives.
pub struct Peer<'h, D: Driver, C: 'static> {
    pub(super) member: &'h mut Member<D, C>,
    pub(super) links: &'h mut Links,
    pub(super) pool: &'h mut BlockPool,
}

impl<D: Driver, C: 'static> Peer<'_, D, C> {
    #[inline(always)]
    fn send_side(&mut self) -> SendSide<'_, D, C> {
        (&mut self.member.pair.sends, &mut self.links.send)
    }

    #[inline(always)]
    fn recv_side(&mut self) -> RecvSide<'_, D, C> {
        (&mut self.member.pair.recvs, &mut self.links.recv)
    }

    /// Its name.
    pub const fn key(&self) -> Key {
        self.member.key
    }

    /// A free block of the hub's own memory, or `None` when all are out.
    #[inline(always)]
    pub fn block(&mut self) -> Option<Block> {
        self.pool.allocate()
    }

    verbs!();

    /// Begins to end the connection, and returns at once: what is in flight comes back flushed, and
    /// [`Event::Ended`](super::Event::Ended) follows. Makes system calls.
    #[doc(alias = "rdma_disconnect")]
    pub fn disconnect(&mut self) {
        self.member.pair.driver.disconnect();
    }

    /// Whether its connection stands, as far as events were taken.
    pub fn is_connected(&self) -> bool {
        self.member.phase == Phase::Up
    }

    /// Bytes that may travel inline, as granted.
    pub const fn inline(&self) -> u32 {
        self.member.pair.inline
    }

    /// Sends in flight.
    pub fn sends_in_flight(&self) -> u32 {
        self.member.pair.in_flight(Side::Send)
    }

    /// Receives that are posted.
    pub fn receives_posted(&self) -> u32 {
        self.member.pair.in_flight(Side::Recv)
    }

    /// READs and atomics that may be outstanding, and how many are.
    pub fn reads(&self) -> (u32, u32) {
        self.member.pair.sends.reads()
    }

    /// Why sends are refused, if they are.
    pub fn closed(&self) -> Option<Cause> {
        self.member.pair.sends.closed().or(self.member.pair.recvs.closed())
    }

    /// Bytes that the peer sent along when it connected or accepted, and zeros behind them.
    pub fn private_data(&self) -> &[u8] {
        self.member.pair.driver.private_data()
    }
}

impl<D: Driver, C: 'static> fmt::Debug for Peer<'_, D, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer")
            .field("key", &self.member.key)
            .field("phase", &self.member.phase)
            .field("sends", &*self.member.pair.sends)
            .field("recvs", &*self.member.pair.recvs)
            .finish_non_exhaustive()
    }
}
