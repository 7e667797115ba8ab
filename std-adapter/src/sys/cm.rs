//! librdmacm: identifiers, events, connections.
//!
//! Everything here returns at once on a nonblocking channel, except the destroyers, which wait for
//! events to be acknowledged; [`next_event`](super::cm::next_event) acknowledges before it returns, so
//! they do not wait.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr;

use super::address::{self, RawAddress};
use super::{CallError, ChannelPtr, CmIdPtr, ContextPtr};
use super::{errno, ffi, minus_one, non_null};

pub(crate) use super::cm_event::{RawEvent, kind, next_event};
pub(crate) use super::cm_qp::{
    Agreed, QpPlan, QpSizes, create_apart, create_qp, destroy_apart, destroy_qp, make_ready,
};
pub(crate) use super::datagram::RawPeer;

/// `RDMA_OPTION_ID`, a macro that rdma-sys lacks.
const OPTION_LEVEL_ID: c_int = 0;

/// What `rdma_set_option` can set; the numbers are macros, `RDMA_OPTION_ID_*`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum IdOption {
    /// The type of service, one byte.
    Tos(u8),
    /// Like `SO_REUSEADDR`.
    ReuseAddr(bool),
    /// Like `IPV6_V6ONLY`.
    OneFamily(bool),
    /// The acknowledge timeout, a code of five bits.
    AckTimeout(u8),
}

/// What an identifier is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Space {
    /// Connections, `RDMA_PS_TCP`.
    Connected,
    /// Datagrams, `RDMA_PS_UDP`.
    Datagram,
}

/// Opens a channel and makes it nonblocking.
pub(crate) fn create_event_channel() -> Result<ChannelPtr, CallError> {
    #[cfg(feature = "static")]
    super::providers::name();
    // SAFETY: no argument.
    let channel = unsafe { ffi::rdma_create_event_channel() };
    let channel = ChannelPtr::new(non_null("rdma_create_event_channel", channel)?);
    // SAFETY: the channel was just made.
    let fd = unsafe { channel_fd(channel) };
    if let Err(error) = set_nonblocking(fd) {
        // SAFETY: the channel was just made and nothing uses it.
        unsafe { destroy_event_channel(channel) };
        return Err(error);
    }
    Ok(channel)
}

pub(super) fn set_nonblocking(fd: RawFd) -> Result<(), CallError> {
    // SAFETY: these commands take and give integers; a bad descriptor is an error.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    if flags < 0 {
        return Err(CallError::new("fcntl", errno()));
    }
    // SAFETY: as above.
    minus_one("fcntl", unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) })
}

/// # Safety
///
/// The channel is alive, and stays so for as long as the descriptor is used.
unsafe fn channel_fd(channel: ChannelPtr) -> RawFd {
    // SAFETY: the caller's promise.
    unsafe { (*channel.as_ptr()).fd }
}

/// # Safety
///
/// The channel outlives the result.
pub(crate) unsafe fn channel_as_fd<'a>(channel: ChannelPtr) -> BorrowedFd<'a> {
    // SAFETY: the caller's promise; a live channel's descriptor is open.
    unsafe { BorrowedFd::borrow_raw(channel_fd(channel)) }
}

/// # Safety
///
/// The channel is alive, and no identifier uses it any more.
pub(crate) unsafe fn destroy_event_channel(channel: ChannelPtr) {
    // SAFETY: the caller's promise.
    unsafe { ffi::rdma_destroy_event_channel(channel.as_ptr()) };
}

/// # Safety
///
/// The channel is alive, and outlives the identifier.
pub(crate) unsafe fn create_id(
    channel: ChannelPtr,
    token: u64,
    space: Space,
) -> Result<CmIdPtr, CallError> {
    let mut id: *mut ffi::rdma_cm_id = ptr::null_mut();
    let context = ptr::without_provenance_mut::<c_void>(token as usize);
    // SAFETY: the channel is alive; the context is a number that nobody follows.
    let ret = unsafe { ffi::rdma_create_id(channel.as_ptr(), &raw mut id, context, space.to_c()) };
    minus_one("rdma_create_id", ret)?;
    Ok(CmIdPtr::new(non_null("rdma_create_id", id)?))
}

/// Gives an identifier another token.
///
/// # Safety
///
/// The identifier is alive, and no event of it is being copied meanwhile.
pub(crate) unsafe fn set_token(id: CmIdPtr, token: u64) {
    // SAFETY: the caller's promise.
    unsafe { (*id.as_ptr()).context = ptr::without_provenance_mut(token as usize) };
}

/// # Safety
///
/// The identifier is alive and has no queue pair, and all of its events are acknowledged.
pub(crate) unsafe fn destroy_id(id: CmIdPtr) -> Result<(), CallError> {
    // SAFETY: the caller's promise.
    minus_one("rdma_destroy_id", unsafe { ffi::rdma_destroy_id(id.as_ptr()) })
}

/// # Safety
///
/// Identifier and channel are alive; the identifier's events are acknowledged.
pub(crate) unsafe fn migrate_id(id: CmIdPtr, channel: ChannelPtr) -> Result<(), CallError> {
    // SAFETY: the caller's promise.
    minus_one("rdma_migrate_id", unsafe { ffi::rdma_migrate_id(id.as_ptr(), channel.as_ptr()) })
}

/// # Safety
///
/// The identifier is alive.
pub(crate) unsafe fn bind_addr(id: CmIdPtr, addr: SocketAddr) -> Result<(), CallError> {
    let mut raw = RawAddress::new(addr);
    // SAFETY: the caller's promise; the address is whole and copied during the call.
    minus_one("rdma_bind_addr", unsafe { ffi::rdma_bind_addr(id.as_ptr(), raw.as_mut_ptr()) })
}

/// # Safety
///
/// The identifier is alive.
pub(crate) unsafe fn listen(id: CmIdPtr, backlog: i32) -> Result<(), CallError> {
    // SAFETY: the caller's promise.
    minus_one("rdma_listen", unsafe { ffi::rdma_listen(id.as_ptr(), backlog) })
}

/// # Safety
///
/// The identifier is alive.
pub(crate) unsafe fn resolve_addr(
    id: CmIdPtr,
    source: Option<SocketAddr>,
    peer: SocketAddr,
    timeout_ms: i32,
) -> Result<(), CallError> {
    let mut source = source.map(RawAddress::new);
    let mut peer = RawAddress::new(peer);
    let source = source.as_mut().map_or(ptr::null_mut(), RawAddress::as_mut_ptr);
    // SAFETY: the caller's promise; the addresses are whole and copied during the call.
    let ret = unsafe { ffi::rdma_resolve_addr(id.as_ptr(), source, peer.as_mut_ptr(), timeout_ms) };
    minus_one("rdma_resolve_addr", ret)
}

/// # Safety
///
/// The identifier is alive.
pub(crate) unsafe fn resolve_route(id: CmIdPtr, timeout_ms: i32) -> Result<(), CallError> {
    // SAFETY: the caller's promise.
    minus_one("rdma_resolve_route", unsafe { ffi::rdma_resolve_route(id.as_ptr(), timeout_ms) })
}

/// # Safety
///
/// The identifier is alive.
pub(crate) unsafe fn set_option(id: CmIdPtr, option: IdOption) -> Result<(), CallError> {
    let (number, mut byte, mut word) = match option {
        IdOption::Tos(tos) => (0, Some(tos), 0),
        IdOption::ReuseAddr(on) => (1, None, c_int::from(on)),
        IdOption::OneFamily(on) => (2, None, c_int::from(on)),
        IdOption::AckTimeout(code) => (3, Some(code), 0),
    };
    let (value, len): (*mut c_void, usize) = match &mut byte {
        Some(byte) => ((byte as *mut u8).cast(), 1),
        None => ((&raw mut word).cast(), size_of::<c_int>()),
    };
    // SAFETY: the caller's promise; the value has this length and is copied during the call.
    let ret = unsafe { ffi::rdma_set_option(id.as_ptr(), OPTION_LEVEL_ID, number, value, len) };
    minus_one("rdma_set_option", ret)
}

impl Space {
    const fn to_c(self) -> ffi::rdma_port_space::Type {
        match self {
            Self::Connected => ffi::rdma_port_space::RDMA_PS_TCP,
            Self::Datagram => ffi::rdma_port_space::RDMA_PS_UDP,
        }
    }

    pub(in crate::sys) const fn queue_pair_type(self) -> ffi::ibv_qp_type::Type {
        match self {
            Self::Connected => ffi::ibv_qp_type::IBV_QPT_RC,
            Self::Datagram => ffi::ibv_qp_type::IBV_QPT_UD,
        }
    }
}

/// What connect and accept send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawParams<'a> {
    pub(crate) private_data: &'a [u8],
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    /// Of a queue pair that is not the identifier's own; else 0.
    pub(crate) qp_num: u32,
    /// That one takes its receives from a shared queue.
    pub(crate) has_srq: bool,
}

impl RawParams<'_> {
    fn to_c(self) -> ffi::rdma_conn_param {
        // Who calls has checked the length against the call's own limit; a longer one would be
        // cut here, never read past its end.
        let len = u8::try_from(self.private_data.len()).unwrap_or(u8::MAX);
        ffi::rdma_conn_param {
            private_data: if len == 0 { ptr::null() } else { self.private_data.as_ptr().cast() },
            private_data_len: len,
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
            flow_control: 1,
            retry_count: self.retry_count,
            rnr_retry_count: self.rnr_retry_count,
            srq: self.has_srq.into(),
            qp_num: self.qp_num,
        }
    }
}

/// # Safety
///
/// The identifier is alive and has a route; it has a queue pair, or the parameters name one, or it is for
/// datagrams.
pub(crate) unsafe fn connect(id: CmIdPtr, params: RawParams<'_>) -> Result<(), CallError> {
    let mut params = params.to_c();
    // SAFETY: the caller's promise; the parameters are copied during the call.
    minus_one("rdma_connect", unsafe { ffi::rdma_connect(id.as_ptr(), &raw mut params) })
}

/// # Safety
///
/// The identifier is alive and came with a request; it has a queue pair, or the parameters name one.
pub(crate) unsafe fn accept(id: CmIdPtr, params: RawParams<'_>) -> Result<(), CallError> {
    let mut params = params.to_c();
    // SAFETY: the caller's promise; the parameters are copied during the call.
    minus_one("rdma_accept", unsafe { ffi::rdma_accept(id.as_ptr(), &raw mut params) })
}

/// Says that a queue pair beside the identifier is ready, so that the peer is told that the connection stands.
///
/// # Safety
///
/// The identifier is alive and has no queue pair; the peer has answered.
pub(crate) unsafe fn establish(id: CmIdPtr) -> Result<(), CallError> {
    // SAFETY: the caller's promise.
    minus_one("rdma_establish", unsafe { ffi::rdma_establish(id.as_ptr()) })
}

/// # Safety
///
/// The identifier is alive and came with a request.
pub(crate) unsafe fn reject(id: CmIdPtr, private_data: &[u8]) -> Result<(), CallError> {
    let len = u8::try_from(private_data.len()).unwrap_or(u8::MAX);
    // SAFETY: the caller's promise; the data is copied during the call.
    let ret = unsafe { ffi::rdma_reject(id.as_ptr(), private_data.as_ptr().cast(), len) };
    minus_one("rdma_reject", ret)
}

/// Refuses because of the vendor's options.
///
/// # Safety
///
/// The identifier is alive and came with a request.
pub(crate) unsafe fn reject_ece(id: CmIdPtr, private_data: &[u8]) -> Result<(), CallError> {
    let len = u8::try_from(private_data.len()).unwrap_or(u8::MAX);
    // SAFETY: the caller's promise; the data is copied during the call.
    let ret = unsafe { ffi::rdma_reject_ece(id.as_ptr(), private_data.as_ptr().cast(), len) };
    minus_one("rdma_reject_ece", ret)
}

/// The vendor's options that the peer offered.
///
/// # Safety
///
/// The identifier is alive. (With a queue pair on it librdmacm says `EINVAL`.)
pub(crate) unsafe fn remote_ece(id: CmIdPtr) -> Result<(u32, u32), CallError> {
    let mut ece = ffi::ibv_ece { vendor_id: 0, options: 0, comp_mask: 0 };
    // SAFETY: the caller's promise; `ece` is a place for the options.
    let ret = unsafe { ffi::rdma_get_remote_ece(id.as_ptr(), &raw mut ece) };
    minus_one("rdma_get_remote_ece", ret).map(|()| (ece.vendor_id, ece.options))
}

/// Tells the connection manager that the peer's first message has come before its last word.
///
/// # Safety
///
/// The identifier is alive.
pub(crate) unsafe fn notify_established(id: CmIdPtr) -> Result<(), CallError> {
    // SAFETY: the caller's promise; the code is one of the header's.
    let ret = unsafe { ffi::rdma_notify(id.as_ptr(), ffi::ibv_event_type::IBV_EVENT_COMM_EST) };
    minus_one("rdma_notify", ret)
}

/// # Safety
///
/// The identifier is alive.
pub(crate) unsafe fn disconnect(id: CmIdPtr) -> Result<(), CallError> {
    // SAFETY: the caller's promise.
    minus_one("rdma_disconnect", unsafe { ffi::rdma_disconnect(id.as_ptr()) })
}

/// The device that an identifier is bound to; `None` before it is.
///
/// # Safety
///
/// The identifier is alive.
pub(crate) unsafe fn context(id: CmIdPtr) -> Option<ContextPtr> {
    // SAFETY: the caller's promise.
    let context = unsafe { (*id.as_ptr()).verbs };
    ptr::NonNull::new(context).map(ContextPtr::new)
}

/// The port of the device, from 1 on; 0 before it is bound.
///
/// # Safety
///
/// The identifier is alive.
pub(crate) unsafe fn port(id: CmIdPtr) -> u8 {
    // SAFETY: the caller's promise.
    unsafe { (*id.as_ptr()).port_num }
}

/// # Safety
///
/// The identifier is alive.
pub(crate) unsafe fn local_addr(id: CmIdPtr) -> Option<SocketAddr> {
    // SAFETY: the caller's promise; a place is named, nothing read yet.
    let place = unsafe { &raw const (*id.as_ptr()).route.addr.src_addr_union };
    // SAFETY: the union is as long as its longest member, and librdmacm zeroes it when it makes
    // the identifier.
    unsafe { address::read(place.cast()) }
}

/// # Safety
///
/// The identifier is alive.
pub(crate) unsafe fn peer_addr(id: CmIdPtr) -> Option<SocketAddr> {
    // SAFETY: the caller's promise; a place is named, nothing read yet.
    let place = unsafe { &raw const (*id.as_ptr()).route.addr.dst_addr_union };
    // SAFETY: as in `local_addr`.
    unsafe { address::read(place.cast()) }
}

/// Makes librdmacm look which devices there are, and close the removed ones that nobody uses.
///
/// By itself it looks only when a device appears that it does not know. Two limits are its own: when
/// no device is left it does not look at all, so that the last one stays open until the process
/// ends; and looking opens the devices that are left.
pub(crate) fn let_go_of_removed_devices() {
    // SAFETY: a null count is allowed.
    let list = unsafe { ffi::rdma_get_devices(ptr::null_mut()) };
    if !list.is_null() {
        // SAFETY: it came from `rdma_get_devices`.
        unsafe { ffi::rdma_free_devices(list) };
    }
}
