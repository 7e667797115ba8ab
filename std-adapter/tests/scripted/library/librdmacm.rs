//! `rdma_*`: channels, identifiers and their events.

use std::collections::VecDeque;
use std::ffi::{c_int, c_uint, c_void};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ptr;

use rdma_sys::{
    ibv_context, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_init_attr, rdma_cm_event, rdma_cm_id,
    rdma_conn_param, rdma_event_channel,
};

use super::{close, zeroed};
use crate::script::{Channel, Event, Id, World, counter, ring, take_one, world};

const ADDR_RESOLVED: u32 = 0;
const ROUTE_RESOLVED: u32 = 2;
const CONNECT_REQUEST: u32 = 4;
const INIT: u32 = 1;
const READY_TO_RECEIVE: u32 = 2;
const READY_TO_SEND: u32 = 3;
const ERROR_STATE: u32 = 6;

pub(crate) fn event(of: *mut rdma_cm_id, kind: u32, status: i32, data: &[u8]) -> Event {
    // SAFETY: all zeros is a value, as in `zeroed`.
    let mut raw = unsafe { MaybeUninit::<rdma_cm_event>::zeroed().assume_init() };
    (raw.id, raw.event, raw.status) = (of, kind, status);
    // SAFETY: a structure of integers and a pointer.
    let mut conn = unsafe { raw.param.conn };
    conn.private_data_len = data.len() as u8;
    (conn.initiator_depth, conn.responder_resources) = (16, 16);
    raw.param.conn = conn;
    let mut kept = [0; 255];
    kept[..data.len()].copy_from_slice(data);
    Event { raw, data: kept, of }
}

/// A new identifier that comes with a request to `listener`, whose context it has.
pub(crate) fn request(listener: *mut rdma_cm_id, data: &[u8]) -> *mut rdma_cm_id {
    world(|world| {
        // SAFETY: identifiers are never freed here.
        let (channel, context, verbs, src) = unsafe {
            let it = &*listener;
            (it.channel, it.context, it.verbs, it.route.addr.src_addr_union.src_sin)
        };
        let id = make_id(world, channel, context);
        // SAFETY: it was just made.
        unsafe {
            ((*id).verbs, (*id).port_num) = (verbs, 1);
            (*id).route.addr.src_addr_union.src_sin = src;
            let peer = SocketAddrV4::new(Ipv4Addr::new(10, 9, 0, 2), 999);
            (*id).route.addr.dst_addr_union.dst_sin = sockaddr(peer);
        }
        let mut event = event(id, CONNECT_REQUEST, 0, data);
        event.raw.listen_id = listener;
        event.of = listener;
        world.push(event);
        id
    })
}

fn make_id(
    world: &mut World,
    channel: *mut rdma_event_channel,
    context: *mut c_void,
) -> *mut rdma_cm_id {
    let raw = zeroed::<rdma_cm_id>();
    // SAFETY: just made.
    unsafe { ((*raw).channel, (*raw).context) = (channel, context) };
    world.ids.push(Id { raw, unacked: 0, is_alive: true, calls: Vec::new() });
    raw
}

fn sockaddr(addr: SocketAddrV4) -> libc::sockaddr_in {
    // SAFETY: integers only.
    let mut raw = unsafe { MaybeUninit::<libc::sockaddr_in>::zeroed().assume_init() };
    raw.sin_family = libc::AF_INET as libc::sa_family_t;
    raw.sin_port = addr.port().to_be();
    raw.sin_addr.s_addr = u32::from_ne_bytes(addr.ip().octets());
    raw
}

/// The address at a place of one.
unsafe fn addr_at(raw: *const libc::sockaddr) -> SocketAddrV4 {
    // SAFETY: the tests give addresses of this family.
    let raw = unsafe { *raw.cast::<libc::sockaddr_in>() };
    SocketAddrV4::new(Ipv4Addr::from(raw.sin_addr.s_addr.to_ne_bytes()), u16::from_be(raw.sin_port))
}

/// Binds an identifier to the device of an address, if there is one.
unsafe fn bind(world: &mut World, id: *mut rdma_cm_id, addr: SocketAddrV4) {
    let port = match addr.port() {
        0 => {
            world.next_port += 1;
            world.next_port
        }
        port => port,
    };
    let context = world.host_at(*addr.ip()).map_or(ptr::null_mut(), |host| host.context);
    // SAFETY: the caller has an identifier.
    unsafe {
        ((*id).verbs, (*id).port_num) = (context, u8::from(!context.is_null()));
        (*id).route.addr.src_addr_union.src_sin = sockaddr(SocketAddrV4::new(*addr.ip(), port));
    }
}

#[unsafe(no_mangle)]
extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    let raw = zeroed::<rdma_event_channel>();
    // SAFETY: just made.
    unsafe { (*raw).fd = counter() };
    world(|world| {
        world.channels.push(Channel { raw, events: VecDeque::new(), is_alive: true });
    });
    raw
}

#[unsafe(no_mangle)]
extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    world(|world| {
        // SAFETY: identifiers are never freed here.
        let is_used = |id: &Id| id.is_alive && unsafe { (*id.raw).channel } == channel;
        if world.ids.iter().any(is_used) {
            world.complain("a channel destroyed below its identifiers");
        }
        world.channel(channel).is_alive = false;
        // SAFETY: channels are never freed here.
        close(unsafe { (*channel).fd });
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    context: *mut c_void,
    _space: c_uint,
) -> c_int {
    let made = world(|world| make_id(world, channel, context));
    // SAFETY: the caller gives a place.
    unsafe { *id = made };
    0
}

#[unsafe(no_mangle)]
extern "C" fn rdma_destroy_id(raw: *mut rdma_cm_id) -> c_int {
    world(|world| {
        let id = world.id(raw, "rdma_destroy_id");
        let unacked = std::mem::replace(&mut id.unacked, 0);
        id.is_alive = false;
        if unacked > 0 {
            world.complain(format!("rdma_destroy_id waits for {unacked} events for ever"));
        }
        // SAFETY: identifiers are never freed here.
        let (channel, qp) = unsafe { ((*raw).channel, (*raw).qp) };
        if !qp.is_null() {
            world.complain("rdma_destroy_id with a queue pair");
        }
        // What was not fetched is forgotten; who would have come with a request as well.
        let channel = world.channel(channel);
        let before = channel.events.len();
        let mut strangers = Vec::new();
        channel.events.retain(|event| {
            let goes = event.of == raw;
            if goes && event.raw.event == CONNECT_REQUEST {
                strangers.push(event.raw.id);
            }
            !goes
        });
        let gone = before - channel.events.len();
        // SAFETY: as above.
        let fd = unsafe { (*channel.raw).fd };
        for _ in 0..gone {
            let mut one = 0_u64;
            // SAFETY: place for eight bytes; there is one for each event.
            unsafe { libc::read(fd, (&raw mut one).cast(), 8) };
        }
        for stranger in strangers {
            world.id(stranger, "rdma_destroy_id").is_alive = false;
        }
    });
    0
}

#[unsafe(no_mangle)]
extern "C" fn rdma_migrate_id(raw: *mut rdma_cm_id, to: *mut rdma_event_channel) -> c_int {
    world(|world| {
        let unacked = world.id(raw, "rdma_migrate_id").unacked;
        if unacked > 0 {
            world.complain(format!("rdma_migrate_id waits for {unacked} events for ever"));
        }
        // SAFETY: identifiers and channels are never freed here.
        let from = unsafe { std::mem::replace(&mut (*raw).channel, to) };
        let events = std::mem::take(&mut world.channel(from).events);
        let (moved, kept): (VecDeque<_>, VecDeque<_>) =
            events.into_iter().partition(|event| event.of == raw);
        world.channel(from).events = kept;
        for event in moved {
            let mut one = 0_u64;
            // SAFETY: place for eight bytes; there is one for each event.
            unsafe { libc::read((*from).fd, (&raw mut one).cast(), 8) };
            world.channel(to).events.push_back(event);
            // SAFETY: as above.
            ring(unsafe { (*to).fd });
        }
    });
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    // SAFETY: channels are never freed here.
    if !take_one(unsafe { (*channel).fd }) {
        return -1;
    }
    let taken = world(|world| {
        let taken = world.channel(channel).events.pop_front().expect("the counter said so");
        let of = taken.of;
        world.id(of, "rdma_get_cm_event").unacked += 1;
        Box::into_raw(taken)
    });
    // SAFETY: the caller gives a place; the event begins with what C knows of it.
    unsafe { *event = &raw mut (*taken).raw };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    let event = event.cast::<u8>().wrapping_sub(std::mem::offset_of!(Event, raw)).cast::<Event>();
    world(|world| {
        // SAFETY: it came from `rdma_get_cm_event`.
        let of = unsafe { (*event).of };
        match world.id(of, "rdma_ack_cm_event") {
            id if id.unacked > 0 => id.unacked -= 1,
            _ => world.complain("an event acknowledged twice"),
        }
        // Whoever looks at the private data from here on sees that.
        // SAFETY: as above. It is not freed, so that a look at it does no worse.
        unsafe { (*event).data = [0xee; 255] };
    });
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut libc::sockaddr) -> c_int {
    // SAFETY: the caller gives an address and an identifier.
    world(|world| unsafe {
        world.id(id, "rdma_bind_addr");
        bind(world, id, addr_at(addr));
    });
    0
}

#[unsafe(no_mangle)]
extern "C" fn rdma_listen(id: *mut rdma_cm_id, _backlog: c_int) -> c_int {
    world(|world| world.note(id, "rdma_listen"));
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    _from: *mut libc::sockaddr,
    to: *mut libc::sockaddr,
    _patience: c_int,
) -> c_int {
    // SAFETY: the caller gives an address and an identifier.
    world(|world| unsafe {
        world.id(id, "rdma_resolve_addr");
        let to = addr_at(to);
        bind(world, id, SocketAddrV4::new(*to.ip(), 0));
        (*id).route.addr.dst_addr_union.dst_sin = sockaddr(to);
        world.push(event(id, ADDR_RESOLVED, 0, &[]));
    });
    0
}

#[unsafe(no_mangle)]
extern "C" fn rdma_resolve_route(id: *mut rdma_cm_id, _patience: c_int) -> c_int {
    world(|world| {
        world.id(id, "rdma_resolve_route");
        world.push(event(id, ROUTE_RESOLVED, 0, &[]));
    });
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    world(|world| {
        world.id(id, "rdma_create_qp");
        // SAFETY: the caller gives an identifier, a domain and attributes.
        unsafe {
            if (*id).verbs != (*pd).context {
                world.complain("a queue pair in a domain of another device");
            }
            (*id).qp = super::libibverbs::make_qp(world, pd, attr);
        }
    });
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    world(|world| {
        world.id(id, "rdma_destroy_qp");
        // SAFETY: identifiers are never freed here.
        let qp = unsafe { std::mem::replace(&mut (*id).qp, ptr::null_mut()) };
        super::libibverbs::end_qp(world, qp, "rdma_destroy_qp");
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_connect(id: *mut rdma_cm_id, params: *mut rdma_conn_param) -> c_int {
    // SAFETY: the caller gives parameters.
    world(|world| unsafe { names_queue_pair(world, id, params, "rdma_connect") });
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_accept(id: *mut rdma_cm_id, params: *mut rdma_conn_param) -> c_int {
    world(|world| {
        // SAFETY: the caller gives parameters.
        let apart = unsafe { names_queue_pair(world, id, params, "rdma_accept") };
        // SAFETY: queue pairs are never freed here.
        let state = apart.map(|qp| unsafe { (*qp).state });
        if state.is_some_and(|state| state != READY_TO_SEND) {
            world.complain("a request accepted with a queue pair that is not ready");
        }
    });
    0
}

/// A queue pair is on the identifier, or the parameters name one; gives the latter.
unsafe fn names_queue_pair(
    world: &mut World,
    id: *mut rdma_cm_id,
    params: *mut rdma_conn_param,
    call: &'static str,
) -> Option<*mut ibv_qp> {
    world.note(id, call);
    // SAFETY: the caller has parameters and an identifier.
    let (number, on_it) = unsafe { ((*params).qp_num, (*id).qp) };
    match world.qps.get((number as usize).wrapping_sub(1)).copied() {
        Some(_) if !on_it.is_null() => world.complain("two queue pairs for one connection"),
        None if on_it.is_null() => world.complain(format!("{call} without a queue pair")),
        named => return named,
    }
    None
}

#[unsafe(no_mangle)]
extern "C" fn rdma_establish(id: *mut rdma_cm_id) -> c_int {
    world(|world| world.note(id, "rdma_establish"));
    // SAFETY: identifiers are never freed here.
    if unsafe { (*id).qp }.is_null() { 0 } else { super::fails(libc::EINVAL) }
}

/// What the connection manager has for a state: the mask says which fields, and of those the test looks at
/// these.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_init_qp_attr(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_attr,
    mask: *mut c_int,
) -> c_int {
    use rdma_sys::ibv_qp_attr_mask as bit;
    world(|world| world.note(id, "rdma_init_qp_attr"));
    // SAFETY: the caller gives both.
    unsafe {
        let fields = match (*attr).qp_state {
            INIT => bit::IBV_QP_ACCESS_FLAGS.0,
            READY_TO_RECEIVE => {
                ((*attr).max_dest_rd_atomic, (*attr).min_rnr_timer) = (16, 0);
                bit::IBV_QP_MAX_DEST_RD_ATOMIC.0 | bit::IBV_QP_MIN_RNR_TIMER.0
            }
            READY_TO_SEND => {
                ((*attr).max_rd_atomic, (*attr).retry_cnt) = (16, 3);
                bit::IBV_QP_MAX_QP_RD_ATOMIC.0 | bit::IBV_QP_RETRY_CNT.0
            }
            _ => return super::fails(libc::EINVAL),
        };
        *mask = (fields | bit::IBV_QP_STATE.0) as c_int;
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn rdma_reject(id: *mut rdma_cm_id, _data: *const c_void, _len: u8) -> c_int {
    world(|world| world.note(id, "rdma_reject"));
    0
}

#[unsafe(no_mangle)]
extern "C" fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    world(|world| {
        world.id(id, "rdma_disconnect");
        // SAFETY: identifiers and queue pairs are never freed here.
        if let Some(qp) = unsafe { (*id).qp.as_mut() } {
            qp.state = ERROR_STATE;
        }
    });
    0
}

#[unsafe(no_mangle)]
extern "C" fn rdma_notify(id: *mut rdma_cm_id, _event: c_uint) -> c_int {
    world(|world| world.note(id, "rdma_notify"));
    0
}

#[unsafe(no_mangle)]
extern "C" fn rdma_set_option(
    id: *mut rdma_cm_id,
    _level: c_int,
    _name: c_int,
    _value: *mut c_void,
    _len: usize,
) -> c_int {
    world(|world| world.note(id, "rdma_set_option"));
    0
}

#[unsafe(no_mangle)]
extern "C" fn rdma_get_devices(_count: *mut c_int) -> *mut *mut ibv_context {
    ptr::null_mut()
}
