//! librdmacm: identifiers, events, connections.
//!
//! Everything here returns at once on a nonblocking channel, except the destroyers, which wait for
//! events to be acknowledged; [`next_event`] acknowledges before it returns, so they do not wait.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr;

use super::address::{self, RawAddress};
use super::{CallError, ChannelPtr, CmIdPtr, ContextPtr, CqPtr, PdPtr, QpPtr};
use super::{errno, ffi, minus_one, non_null};

/// The kinds of event, `rdma_cm_event_type`.
pub(crate) mod kind {
    use super::ffi::rdma_cm_event_type as t;

    pub(crate) const ADDR_RESOLVED: u32 = t::RDMA_CM_EVENT_ADDR_RESOLVED;
    pub(crate) const ADDR_ERROR: u32 = t::RDMA_CM_EVENT_ADDR_ERROR;
    pub(crate) const ROUTE_RESOLVED: u32 = t::RDMA_CM_EVENT_ROUTE_RESOLVED;
    pub(crate) const ROUTE_ERROR: u32 = t::RDMA_CM_EVENT_ROUTE_ERROR;
    pub(crate) const CONNECT_REQUEST: u32 = t::RDMA_CM_EVENT_CONNECT_REQUEST;
    pub(crate) const CONNECT_RESPONSE: u32 = t::RDMA_CM_EVENT_CONNECT_RESPONSE;
    pub(crate) const CONNECT_ERROR: u32 = t::RDMA_CM_EVENT_CONNECT_ERROR;
    pub(crate) const UNREACHABLE: u32 = t::RDMA_CM_EVENT_UNREACHABLE;
    pub(crate) const REJECTED: u32 = t::RDMA_CM_EVENT_REJECTED;
    pub(crate) const ESTABLISHED: u32 = t::RDMA_CM_EVENT_ESTABLISHED;
    pub(crate) const DISCONNECTED: u32 = t::RDMA_CM_EVENT_DISCONNECTED;
    pub(crate) const DEVICE_REMOVAL: u32 = t::RDMA_CM_EVENT_DEVICE_REMOVAL;
    pub(crate) const MULTICAST_JOIN: u32 = t::RDMA_CM_EVENT_MULTICAST_JOIN;
    pub(crate) const MULTICAST_ERROR: u32 = t::RDMA_CM_EVENT_MULTICAST_ERROR;
    pub(crate) const ADDR_CHANGE: u32 = t::RDMA_CM_EVENT_ADDR_CHANGE;
    pub(crate) const TIMEWAIT_EXIT: u32 = t::RDMA_CM_EVENT_TIMEWAIT_EXIT;
}

/// `RDMA_OPTION_ID`, a macro that rdma-sys lacks.
const OPTION_LEVEL_ID: c_int = 0;
/// `RDMA_OPTION_ID_ACK_TIMEOUT`.
const OPTION_ACK_TIMEOUT: c_int = 3;

/// An event, copied out and acknowledged.
pub(crate) struct RawEvent {
    pub(crate) kind: u32,
    pub(crate) status: i32,
    /// The identifier that it is about; a new one, to be owned, for a connection request.
    pub(crate) id: CmIdPtr,
    /// The token of that identifier; for a request, of the listener.
    pub(crate) token: u64,
    /// Reads that the peer will have under way towards this side.
    pub(crate) responder_resources: u8,
    /// Reads that the peer can serve.
    pub(crate) initiator_depth: u8,
    /// How many bytes of private data came; 0 with `has_private_data` unset when none could.
    pub(crate) private_data_len: u8,
    pub(crate) has_private_data: bool,
    pub(crate) private_data: [u8; 255],
}

/// Opens a channel and makes it nonblocking.
pub(crate) fn create_event_channel() -> Result<ChannelPtr, CallError> {
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

/// The next event, copied out and acknowledged; `None` when there is none.
///
/// # Safety
///
/// The channel is alive, and no identifier or queue pair of it is destroyed meanwhile.
pub(crate) unsafe fn next_event(channel: ChannelPtr) -> Result<Option<RawEvent>, CallError> {
    let mut event: *mut ffi::rdma_cm_event = ptr::null_mut();
    loop {
        // SAFETY: the channel is alive, `event` is a place for a pointer.
        let ret = unsafe { ffi::rdma_get_cm_event(channel.as_ptr(), &raw mut event) };
        match minus_one("rdma_get_cm_event", ret) {
            Ok(()) => break,
            Err(error) if error.errno() == libc::EINTR => {}
            Err(error) if error.errno() == libc::EAGAIN => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    // SAFETY: the call succeeded, so `event` is an event that was not acknowledged yet.
    let copy = unsafe { copy_event(event) };
    // SAFETY: as above, and nothing of it is used from here on.
    unsafe { ffi::rdma_ack_cm_event(event) };
    copy.map(Some).ok_or(CallError::new("rdma_get_cm_event", libc::EPROTO))
}

/// # Safety
///
/// `event` was not acknowledged yet.
unsafe fn copy_event(event: *mut ffi::rdma_cm_event) -> Option<RawEvent> {
    // SAFETY: the caller's promise.
    let event = unsafe { &*event };
    let id = ptr::NonNull::new(event.id)?;
    // The token is in the identifier's context; a new identifier inherits its listener's.
    // SAFETY: an unacknowledged event keeps its identifier alive.
    let token = unsafe { (*id.as_ptr()).context }.addr() as u64;
    let mut copy = RawEvent {
        kind: event.event,
        status: event.status,
        id: CmIdPtr::new(id),
        token,
        responder_resources: 0,
        initiator_depth: 0,
        private_data_len: 0,
        has_private_data: false,
        private_data: [0; 255],
    };
    // Other kinds leave the union unwritten or hold something else in it.
    if matches!(
        event.event,
        kind::CONNECT_REQUEST | kind::CONNECT_RESPONSE | kind::ESTABLISHED | kind::REJECTED
    ) {
        // SAFETY: the identifiers here are connected ones (`RDMA_PS_TCP`), whose events of these
        // kinds carry connection parameters.
        let conn = unsafe { event.param.conn };
        copy.responder_resources = conn.responder_resources;
        copy.initiator_depth = conn.initiator_depth;
        if !conn.private_data.is_null() {
            copy.has_private_data = true;
            copy.private_data_len = conn.private_data_len;
            // SAFETY: the event says that so many bytes are there, until it is acknowledged; the
            // array holds every length that fits in the field.
            unsafe {
                ptr::copy_nonoverlapping(
                    conn.private_data.cast::<u8>(),
                    copy.private_data.as_mut_ptr(),
                    usize::from(conn.private_data_len),
                );
            }
        }
    }
    Some(copy)
}

/// # Safety
///
/// The channel is alive, and outlives the identifier.
pub(crate) unsafe fn create_id(channel: ChannelPtr, token: u64) -> Result<CmIdPtr, CallError> {
    let mut id: *mut ffi::rdma_cm_id = ptr::null_mut();
    let context = ptr::without_provenance_mut::<c_void>(token as usize);
    // SAFETY: the channel is alive; the context is a number that nobody follows.
    let ret = unsafe {
        ffi::rdma_create_id(
            channel.as_ptr(),
            &raw mut id,
            context,
            ffi::rdma_port_space::RDMA_PS_TCP,
        )
    };
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

/// Sets the acknowledge timeout, as a code of five bits.
///
/// # Safety
///
/// The identifier is alive.
pub(crate) unsafe fn set_ack_timeout(id: CmIdPtr, code: u8) -> Result<(), CallError> {
    let mut code = code;
    // SAFETY: the caller's promise; the option is one byte and is copied during the call.
    let ret = unsafe {
        ffi::rdma_set_option(
            id.as_ptr(),
            OPTION_LEVEL_ID,
            OPTION_ACK_TIMEOUT,
            (&raw mut code).cast(),
            1,
        )
    };
    minus_one("rdma_set_option", ret)
}

/// What connect and accept send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawParams<'a> {
    pub(crate) private_data: &'a [u8],
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
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
            srq: 0,
            qp_num: 0,
        }
    }
}

/// # Safety
///
/// The identifier is alive, has a route and a queue pair.
pub(crate) unsafe fn connect(id: CmIdPtr, params: RawParams<'_>) -> Result<(), CallError> {
    let mut params = params.to_c();
    // SAFETY: the caller's promise; the parameters are copied during the call.
    minus_one("rdma_connect", unsafe { ffi::rdma_connect(id.as_ptr(), &raw mut params) })
}

/// # Safety
///
/// The identifier is alive, came with a request and has a queue pair.
pub(crate) unsafe fn accept(id: CmIdPtr, params: RawParams<'_>) -> Result<(), CallError> {
    let mut params = params.to_c();
    // SAFETY: the caller's promise; the parameters are copied during the call.
    minus_one("rdma_accept", unsafe { ffi::rdma_accept(id.as_ptr(), &raw mut params) })
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

/// The sizes of a queue pair, asked or granted, `ibv_qp_cap`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct QpSizes {
    pub(crate) send_depth: u32,
    pub(crate) recv_depth: u32,
    pub(crate) send_sges: u32,
    pub(crate) recv_sges: u32,
    pub(crate) inline: u32,
}

/// Makes a connected queue pair on `id`, in state INIT. Gives it with the granted sizes.
///
/// # Safety
///
/// All handles are alive and of one device, and outlive the queue pair.
pub(crate) unsafe fn create_qp(
    id: CmIdPtr,
    pd: PdPtr,
    send_cq: CqPtr,
    recv_cq: CqPtr,
    asked: QpSizes,
) -> Result<(QpPtr, QpSizes), CallError> {
    // SAFETY: a structure of integers and pointers: all zeros is a value.
    let mut attr = unsafe { MaybeUninit::<ffi::ibv_qp_init_attr>::zeroed().assume_init() };
    attr.send_cq = send_cq.as_ptr();
    attr.recv_cq = recv_cq.as_ptr();
    attr.cap = ffi::ibv_qp_cap {
        max_send_wr: asked.send_depth,
        max_recv_wr: asked.recv_depth,
        max_send_sge: asked.send_sges,
        max_recv_sge: asked.recv_sges,
        max_inline_data: asked.inline,
    };
    attr.qp_type = ffi::ibv_qp_type::IBV_QPT_RC;
    attr.sq_sig_all = 0;
    // SAFETY: the caller's promise; the attributes are copied during the call.
    let ret = unsafe { ffi::rdma_create_qp(id.as_ptr(), pd.as_ptr(), &raw mut attr) };
    minus_one("rdma_create_qp", ret)?;
    // SAFETY: the identifier is alive.
    let qp = QpPtr::new(non_null("rdma_create_qp", unsafe { (*id.as_ptr()).qp })?);
    let granted = QpSizes {
        send_depth: attr.cap.max_send_wr,
        recv_depth: attr.cap.max_recv_wr,
        send_sges: attr.cap.max_send_sge,
        recv_sges: attr.cap.max_recv_sge,
        inline: attr.cap.max_inline_data,
    };
    Ok((qp, granted))
}

/// Destroys the queue pair of `id`.
///
/// # Safety
///
/// The identifier is alive and has one; nobody uses it any more, and no event of the identifier is
/// being fetched.
pub(crate) unsafe fn destroy_qp(id: CmIdPtr) {
    // SAFETY: the caller's promise.
    unsafe { ffi::rdma_destroy_qp(id.as_ptr()) };
}
