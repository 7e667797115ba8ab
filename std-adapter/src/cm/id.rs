//! An identifier of the connection manager, owned.
//!
//! The step below the typed states: each call returns at once, and its result comes as an event. A
//! queue pair holds the identifier that it was made on; the identifier holds its channel.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::channel::Event;
use super::{EventChannel, Token, VendorOptions};
use crate::Deadline;
use crate::sys::cm::{IdOption, RawParams, Space};
use crate::sys::{self, CallError, CmIdPtr, ContextPtr};

/// An owned `rdma_cm_id`. Destroying it ends whatever it was in the middle of.
#[derive(Debug)]
pub(crate) struct CmId {
    raw: CmIdPtr,
    token: u64,
    channel: EventChannel,
}

impl CmId {
    /// For connections.
    pub(crate) fn new(channel: &EventChannel) -> Result<Self, CallError> {
        Self::with_space(channel, Space::Connected)
    }

    pub(super) fn with_space(channel: &EventChannel, space: Space) -> Result<Self, CallError> {
        let token = next_token();
        // SAFETY: the channel lives, and the identifier will hold it.
        let raw = unsafe { sys::cm::create_id(channel.raw(), token, space) }?;
        channel.mail().open(token);
        Ok(Self { raw, token, channel: channel.clone() })
    }

    /// Takes the identifier that came with a request on `channel`, and has a box there.
    pub(super) const fn adopt(raw: CmIdPtr, token: u64, channel: EventChannel) -> Self {
        Self { raw, token, channel }
    }

    pub(crate) const fn raw(&self) -> CmIdPtr {
        self.raw
    }

    /// The number that its events carry.
    pub(super) const fn token(&self) -> Token {
        Token(self.token)
    }

    pub(crate) const fn channel(&self) -> &EventChannel {
        &self.channel
    }

    /// Its next event; `None` when there is none. Never blocks.
    pub(crate) fn next_event(&self) -> Result<Option<Event>, CallError> {
        self.channel.next_event(self.token)
    }

    /// Waits until it may have an event; `false` when the deadline has passed.
    pub(super) fn wait(&self, deadline: Deadline) -> Result<bool, CallError> {
        self.channel.wait(deadline)
    }

    /// Moves it to another channel, with its events.
    pub(super) fn migrate(&mut self, channel: EventChannel) -> Result<(), CallError> {
        channel.mail().open(self.token);
        let mut mail = self.channel.mail();
        // SAFETY: both live; every event of the identifier was acknowledged when it was fetched,
        // and the lock keeps fetchers out.
        let moved = unsafe { sys::cm::migrate_id(self.raw, channel.raw()) };
        if let Err(error) = moved {
            drop(mail);
            channel.mail().close(self.token);
            return Err(error);
        }
        let older = mail.close(self.token);
        drop(mail);
        channel.mail().prepend(self.token, older);
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

    pub(super) fn set(&self, option: IdOption) -> Result<(), CallError> {
        // SAFETY: the identifier lives as long as `self`.
        unsafe { sys::cm::set_option(self.raw, option) }
    }

    /// # Safety
    ///
    /// A route was resolved, and there is a queue pair: on this identifier, or in the parameters.
    pub(super) unsafe fn connect(&self, params: RawParams<'_>) -> Result<(), CallError> {
        // SAFETY: the identifier lives as long as `self`; the rest is the caller's promise.
        unsafe { sys::cm::connect(self.raw, params) }
    }

    /// # Safety
    ///
    /// The identifier came with a request, and there is a queue pair: on it, or in the parameters.
    pub(super) unsafe fn accept(&self, params: RawParams<'_>) -> Result<(), CallError> {
        // SAFETY: the identifier lives as long as `self`; the rest is the caller's promise.
        unsafe { sys::cm::accept(self.raw, params) }
    }

    /// # Safety
    ///
    /// The peer has answered, and there is no queue pair on this identifier.
    pub(super) unsafe fn establish(&self) -> Result<(), CallError> {
        // SAFETY: the identifier lives as long as `self`; the rest is the caller's promise.
        unsafe { sys::cm::establish(self.raw) }
    }

    pub(super) fn reject(&self, private_data: &[u8]) -> Result<(), CallError> {
        // SAFETY: the identifier lives as long as `self`.
        unsafe { sys::cm::reject(self.raw, private_data) }
    }

    pub(super) fn reject_ece(&self, private_data: &[u8]) -> Result<(), CallError> {
        // SAFETY: the identifier lives as long as `self`.
        unsafe { sys::cm::reject_ece(self.raw, private_data) }
    }

    pub(super) fn remote_ece(&self) -> Option<VendorOptions> {
        // SAFETY: the identifier lives as long as `self`.
        let (vendor, bits) = unsafe { sys::cm::remote_ece(self.raw) }.ok()?;
        (vendor != 0).then_some(VendorOptions { vendor, bits })
    }

    pub(super) fn disconnect(&self) -> Result<(), CallError> {
        // SAFETY: the identifier lives as long as `self`.
        unsafe { sys::cm::disconnect(self.raw) }
    }

    /// The device's port that it is bound to; 0 before it is.
    pub(super) fn port(&self) -> u8 {
        // SAFETY: the identifier lives as long as `self`.
        unsafe { sys::cm::port(self.raw) }
    }

    /// Asks to join a multicast group. For an identifier of datagrams that has a device.
    pub(super) fn join(&self, group: SocketAddr, send_only: bool) -> Result<(), CallError> {
        // SAFETY: the identifier lives as long as `self`.
        unsafe { sys::datagram::join_multicast(self.raw, group, send_only) }
    }

    /// Leaves a multicast group, joined or not.
    pub(super) fn leave(&self, group: SocketAddr) {
        self.quietly(|id| {
            // The kernel forgets the membership with the identifier at the latest.
            // SAFETY: every event was acknowledged when it was fetched, so nothing is waited for.
            let _ = unsafe { sys::datagram::leave_multicast(id, group) };
        });
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
        let mail = self.channel.mail();
        destroyer(self.raw);
        drop(mail);
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        let mut mail = self.channel.mail();
        // SAFETY: a queue pair holds its identifier, so there is none left; every event was
        // acknowledged when it was fetched, so nothing is waited for; the lock keeps fetchers out.
        let _ = unsafe { sys::cm::destroy_id(self.raw) };
        let untaken = mail.close(self.token);
        drop(mail);
        // Requests that came to a listener and were not taken are refused.
        for filed in untaken {
            drop(Event::new(filed, &self.channel));
        }
    }
}

/// Moves an identifier that has no queue pair yet.
pub(super) fn move_to(id: &mut Arc<CmId>, channel: &EventChannel) -> Result<(), CallError> {
    if id.channel.is(channel) {
        return Ok(());
    }
    // A device that could not have an identifier of its own holds this one.
    let id = Arc::get_mut(id).ok_or(CallError::new("rdma_migrate_id", libc::EBUSY))?;
    id.migrate(channel.clone())
}

/// Numbers for identifiers, from 1 on.
pub(super) fn next_token() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // Relaxed: only uniqueness matters.
    NEXT.fetch_add(1, Ordering::Relaxed)
}
