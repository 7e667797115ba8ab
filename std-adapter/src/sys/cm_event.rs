//! Events of the connection manager: fetched, copied, acknowledged.

use std::ffi::c_void;
use std::ptr;

use super::datagram::RawPeer;
use super::{CallError, ChannelPtr, CmIdPtr, ffi, minus_one};

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
    /// The other end of datagrams, or a multicast group.
    pub(crate) peer: Option<RawPeer>,
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
        peer: None,
    };
    // SAFETY: as above.
    let is_datagram = unsafe { (*id.as_ptr()).qp_type } == ffi::ibv_qp_type::IBV_QPT_UD;
    // Other kinds leave the union unwritten or hold something else in it.
    match event.event {
        kind::MULTICAST_JOIN | kind::MULTICAST_ERROR => {
            // SAFETY: these two carry datagram parameters, whose private data is no data but the
            // context of the call that joined.
            let ud = unsafe { event.param.ud };
            copy.peer = Some(RawPeer::new(&ud));
        }
        kind::CONNECT_REQUEST | kind::ESTABLISHED if is_datagram => {
            // SAFETY: events of an identifier of this type carry datagram parameters.
            let ud = unsafe { event.param.ud };
            copy.peer = Some(RawPeer::new(&ud));
            // SAFETY: the event is not acknowledged yet.
            unsafe { copy.keep(ud.private_data, ud.private_data_len) };
        }
        kind::CONNECT_REQUEST | kind::CONNECT_RESPONSE | kind::ESTABLISHED | kind::REJECTED
            if !is_datagram =>
        {
            // SAFETY: events of these kinds of a connected identifier carry connection parameters.
            let conn = unsafe { event.param.conn };
            copy.responder_resources = conn.responder_resources;
            copy.initiator_depth = conn.initiator_depth;
            // SAFETY: the event is not acknowledged yet.
            unsafe { copy.keep(conn.private_data, conn.private_data_len) };
        }
        _ => {}
    }
    Some(copy)
}

impl RawEvent {
    /// # Safety
    ///
    /// Null, or so many bytes are there.
    unsafe fn keep(&mut self, data: *const c_void, len: u8) {
        if data.is_null() {
            return;
        }
        self.has_private_data = true;
        self.private_data_len = len;
        // SAFETY: the caller's promise; the array holds every length that fits in a byte.
        unsafe {
            ptr::copy_nonoverlapping(
                data.cast::<u8>(),
                self.private_data.as_mut_ptr(),
                usize::from(len),
            );
        }
    }
}
