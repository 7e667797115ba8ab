//! An identifier of the connection manager, owned.
//!
//! The step below the typed states: each call returns at once, and its result comes as an event. A
//! queue pair holds the identifier that it was made on; the identifier holds its channel.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use super::EventChannel;
use crate::sys::cm::RawParams;
use crate::sys::{self, CallError, CmIdPtr, ContextPtr};

/// An owned `rdma_cm_id`. Destroying it ends whatever it was in the middle of.
#[derive(Debug)]
pub(crate) struct CmId {
    raw: CmIdPtr,
    token: u64,
    channel: EventChannel,
}

impl CmId {
    pub(crate) fn new(channel: &EventChannel) -> Result<Self, CallError> {
        let token = next_token();
        // SAFETY: the channel lives, and the identifier will hold it.
        let raw = unsafe { sys::cm::create_id(channel.raw(), token) }?;
        Ok(Self { raw, token, channel: channel.clone() })
    }

    /// Takes the identifier that came with a request on `channel`.
    pub(super) fn adopt(raw: CmIdPtr, channel: EventChannel) -> Self {
        let token = next_token();
        let fetching = channel.fetching();
        // SAFETY: the event handed the identifier over alive; the lock keeps fetchers out.
        unsafe { sys::cm::set_token(raw, token) };
        drop(fetching);
        Self { raw, token, channel }
    }

    pub(crate) const fn raw(&self) -> CmIdPtr {
        self.raw
    }

    /// The number that its events carry.
    pub(super) const fn token(&self) -> u64 {
        self.token
    }

    pub(crate) const fn channel(&self) -> &EventChannel {
        &self.channel
    }

    /// Moves it to a channel of its own.
    pub(super) fn migrate(&mut self, channel: EventChannel) -> Result<(), CallError> {
        let fetching = self.channel.fetching();
        // SAFETY: both live; every event of the identifier was acknowledged when it was fetched,
        // and the lock keeps fetchers out.
        let moved = unsafe { sys::cm::migrate_id(self.raw, channel.raw()) };
        drop(fetching);
        moved?;
        self.channel = channel;
        Ok(())
    }

    pub(crate) fn bind(&self, addr: SocketAddr) -> Result<(), CallError> {
        // SAFETY: the identifier lives as long as `self`.
        unsafe { sys::cm::bind_addr(self.raw, addr) }
    }

    pub(super) fn listen(&self, backlog: i32) -> Result<(), CallError> {
        // SAFETY: the identifier lives as long as `self`.
        unsafe { sys::cm::listen(self.raw, backlog) }
    }

    pub(super) fn resolve_addr(
        &self,
        source: Option<SocketAddr>,
        peer: SocketAddr,
        timeout_ms: i32,
    ) -> Result<(), CallError> {
        // SAFETY: the identifier lives as long as `self`.
        unsafe { sys::cm::resolve_addr(self.raw, source, peer, timeout_ms) }
    }

    pub(super) fn resolve_route(&self, timeout_ms: i32) -> Result<(), CallError> {
        // SAFETY: the identifier lives as long as `self`.
        unsafe { sys::cm::resolve_route(self.raw, timeout_ms) }
    }

    pub(super) fn set_ack_timeout(&self, code: u8) -> Result<(), CallError> {
        // SAFETY: the identifier lives as long as `self`.
        unsafe { sys::cm::set_ack_timeout(self.raw, code) }
    }

    /// # Safety
    ///
    /// A route was resolved, and there is a queue pair on this identifier.
    pub(super) unsafe fn connect(&self, params: RawParams<'_>) -> Result<(), CallError> {
        // SAFETY: the identifier lives as long as `self`; the rest is the caller's promise.
        unsafe { sys::cm::connect(self.raw, params) }
    }

    /// # Safety
    ///
    /// The identifier came with a request, and there is a queue pair on it.
    pub(super) unsafe fn accept(&self, params: RawParams<'_>) -> Result<(), CallError> {
        // SAFETY: the identifier lives as long as `self`; the rest is the caller's promise.
        unsafe { sys::cm::accept(self.raw, params) }
    }

    pub(super) fn reject(&self, private_data: &[u8]) -> Result<(), CallError> {
        // SAFETY: the identifier lives as long as `self`.
        unsafe { sys::cm::reject(self.raw, private_data) }
    }

    pub(super) fn disconnect(&self) -> Result<(), CallError> {
        // SAFETY: the identifier lives as long as `self`.
        unsafe { sys::cm::disconnect(self.raw) }
    }

    /// The device that it is bound to.
    pub(crate) fn context(&self) -> Option<ContextPtr> {
        // SAFETY: the identifier lives as long as `self`.
        unsafe { sys::cm::context(self.raw) }
    }

    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        // SAFETY: the identifier lives as long as `self`.
        unsafe { sys::cm::local_addr(self.raw) }
    }

    pub(super) fn peer_addr(&self) -> Option<SocketAddr> {
        // SAFETY: the identifier lives as long as `self`.
        unsafe { sys::cm::peer_addr(self.raw) }
    }

    /// Calls `destroyer` while no event of the channel is being fetched.
    pub(crate) fn quietly(&self, destroyer: impl FnOnce(CmIdPtr)) {
        let fetching = self.channel.fetching();
        destroyer(self.raw);
        drop(fetching);
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        self.quietly(|id| {
            // SAFETY: a queue pair holds its identifier, so there is none left; every event was
            // acknowledged when it was fetched, so nothing is waited for.
            let _ = unsafe { sys::cm::destroy_id(id) };
        });
    }
}

/// Numbers for identifiers, from 1 on.
fn next_token() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // Relaxed: only uniqueness matters.
    NEXT.fetch_add(1, Ordering::Relaxed)
}
