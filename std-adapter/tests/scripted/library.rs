//! The false functions: `rdma_*` and `ibv_*`, as far as the adapter calls them on this way.

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ptr;

use rdma_sys::{
    _compat_ibv_port_attr, ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq, ibv_device,
    ibv_device_attr, ibv_mr, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_recv_wr,
    ibv_send_wr, ibv_wc, rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_channel,
};

use crate::script::{Channel, CompChannel, Cq, Event, Id, World, counter, ring, take_one, world};

const ADDR_RESOLVED: u32 = 0;
const ROUTE_RESOLVED: u32 = 2;
const CONNECT_REQUEST: u32 = 4;
const ERROR_STATE: u32 = 6;
const IN_ERROR: c_int = libc::EIO;

/// A structure of C on the heap for ever, all zeros.
fn zeroed<T>() -> *mut T {
    // SAFETY: structures of integers, pointers and optional functions: all zeros is a value.
    let value = unsafe { MaybeUninit::<T>::zeroed().assume_init() };
    let raw = Box::into_raw(Box::new(value));
    raw.expose_provenance();
    raw
}

fn fails(errno: c_int) -> c_int {
    // SAFETY: the place belongs to this thread.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// Closes a descriptor of an object that is gone.
fn close(fd: c_int) {
    // SAFETY: the object's own, which nobody uses any more.
    unsafe { libc::close(fd) };
}

/// A device with its context, called `script0`, `script1`, …
pub(crate) fn make_context(number: u8) -> *mut ibv_context {
    let (context, device) = (zeroed::<ibv_context>(), zeroed::<ibv_device>());
    // SAFETY: both were just made.
    unsafe {
        for (place, byte) in (*device).name.iter_mut().zip(*b"script") {
            *place = byte as c_char;
        }
        (*device).name[6] = (b'0' + number) as c_char;
        (*context).device = device;
        (*context).async_fd = counter();
        (*context).num_comp_vectors = 1;
        (*context).ops.post_send = Some(post_send);
        (*context).ops.post_recv = Some(post_recv);
        (*context).ops.poll_cq = Some(poll_cq);
        (*context).ops.req_notify_cq = Some(req_notify_cq);
    }
    context
}

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
    let qp = zeroed::<ibv_qp>();
    world(|world| {
        world.id(id, "rdma_create_qp");
        world.qps.push(qp);
        world.alive += 1;
        // SAFETY: the caller gives an identifier, a domain and attributes; the rest was just made.
        unsafe {
            if (*id).verbs != (*pd).context {
                world.complain("a queue pair in a domain of another device");
            }
            ((*qp).context, (*qp).pd, (*qp).qp_num) = ((*id).verbs, pd, world.qps.len() as u32);
            ((*qp).send_cq, (*qp).recv_cq) = ((*attr).send_cq, (*attr).recv_cq);
            (*id).qp = qp;
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
        world.alive -= 1;
        if world.unacked_async.contains(&qp.addr()) {
            world.complain("rdma_destroy_qp waits for an asynchronous event for ever");
        }
    });
}

#[unsafe(no_mangle)]
extern "C" fn rdma_connect(id: *mut rdma_cm_id, _params: *mut rdma_conn_param) -> c_int {
    world(|world| world.note(id, "rdma_connect"));
    0
}

#[unsafe(no_mangle)]
extern "C" fn rdma_accept(id: *mut rdma_cm_id, _params: *mut rdma_conn_param) -> c_int {
    world(|world| world.note(id, "rdma_accept"));
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
        unsafe { (*(*id).qp).state = ERROR_STATE };
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

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: devices are never freed here.
    unsafe { (*device).name.as_ptr() }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_device(
    _context: *mut ibv_context,
    attr: *mut ibv_device_attr,
) -> c_int {
    // SAFETY: the caller gives a place.
    let attr = unsafe { &mut *attr };
    (attr.max_qp_wr, attr.max_sge, attr.max_sge_rd, attr.max_cqe) = (1024, 16, 16, 4096);
    (attr.max_qp_rd_atom, attr.max_qp_init_rd_atom, attr.max_mr_size) = (16, 16, 1 << 30);
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_port(
    _context: *mut ibv_context,
    _port: u8,
    attr: *mut _compat_ibv_port_attr,
) -> c_int {
    // SAFETY: the caller gives a place for the longer form, which begins alike.
    let attr = unsafe { &mut *attr.cast::<rdma_sys::ibv_port_attr>() };
    (attr.max_msg_sz, attr.active_mtu) = (1 << 20, 3);
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    let raw = zeroed::<ibv_pd>();
    // SAFETY: just made.
    unsafe { (*raw).context = context };
    world(|world| world.alive += 1);
    raw
}

/// What destroying something says on a device: nothing, or that it is gone.
unsafe fn goes(context: *mut ibv_context) -> c_int {
    world(|world| {
        world.alive -= 1;
        if world.host_of(context).is_gone { IN_ERROR } else { 0 }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: domains are never freed here.
    unsafe { goes((*pd).context) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    _access: c_int,
) -> *mut ibv_mr {
    let raw = zeroed::<ibv_mr>();
    // SAFETY: just made; the caller gives a domain.
    unsafe {
        ((*raw).context, (*raw).pd, (*raw).addr, (*raw).length) = ((*pd).context, pd, addr, length);
        ((*raw).lkey, (*raw).rkey) = (7, 8);
    }
    world(|world| world.alive += 1);
    raw
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: regions are never freed here.
    unsafe { goes((*mr).context) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    let raw = zeroed::<ibv_comp_channel>();
    // SAFETY: just made.
    unsafe { ((*raw).context, (*raw).fd) = (context, counter()) };
    world(|world| {
        world.comp_channels.push(CompChannel { raw, events: VecDeque::new() });
        world.alive += 1;
    });
    raw
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: channels are never freed here.
    unsafe {
        close((*channel).fd);
        goes((*channel).context)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    _cookie: *mut c_void,
    channel: *mut ibv_comp_channel,
    _vector: c_int,
) -> *mut ibv_cq {
    let raw = zeroed::<ibv_cq>();
    // SAFETY: just made.
    unsafe { ((*raw).context, (*raw).channel, (*raw).cqe) = (context, channel, cqe) };
    world(|world| {
        world.cqs.push(Cq { raw, armed: None, unacked: 0, is_alive: true });
        world.alive += 1;
    });
    raw
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_cq(raw: *mut ibv_cq) -> c_int {
    world(|world| {
        let cq = world.cq(raw);
        let unacked = std::mem::replace(&mut cq.unacked, 0);
        let was_alive = std::mem::replace(&mut cq.is_alive, false);
        if unacked > 0 || world.unacked_async.contains(&raw.addr()) {
            world.complain(format!("ibv_destroy_cq waits for {unacked} events for ever"));
        }
        if !was_alive {
            world.complain("a completion queue destroyed twice");
        }
        // SAFETY: queues and channels are never freed here.
        let channel = unsafe { (*raw).channel };
        if let Some(channel) = world.comp_channels.iter_mut().find(|it| it.raw == channel) {
            channel.events.retain(|cq| *cq != raw);
        }
    });
    // SAFETY: as above.
    unsafe { goes((*raw).context) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cookie: *mut *mut c_void,
) -> c_int {
    // SAFETY: channels are never freed here.
    if !take_one(unsafe { (*channel).fd }) {
        return -1;
    }
    let taken = world(|world| {
        let found = world.comp_channels.iter_mut().find(|it| it.raw == channel);
        let taken = found.expect("a channel").events.pop_front()?;
        world.cq(taken).unacked += 1;
        Some(taken)
    });
    // The event of a queue that was destroyed meanwhile is gone with it.
    let Some(taken) = taken else { return fails(libc::EAGAIN) };
    // SAFETY: the caller gives two places.
    unsafe { (*cq, *cookie) = (taken, ptr::null_mut()) };
    0
}

#[unsafe(no_mangle)]
extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, count: c_uint) {
    world(|world| match world.cq(cq).unacked.checked_sub(count) {
        Some(left) => world.cq(cq).unacked = left,
        None => world.complain("more events of a queue acknowledged than came"),
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
    world(|world| {
        // SAFETY: queue pairs are never freed here, and the caller gives attributes.
        unsafe {
            if world.host_of((*qp).context).is_gone {
                return IN_ERROR;
            }
            if mask & 1 != 0 {
                (*qp).state = (*attr).qp_state;
            }
        }
        0
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    let is_gone = world(|world| {
        let host = world.host_of(context);
        host.asked += 1;
        host.is_gone
    });
    if is_gone {
        return fails(IN_ERROR);
    }
    // SAFETY: contexts are never freed here.
    if !take_one(unsafe { (*context).async_fd }) {
        return -1;
    }
    let (kind, subject) =
        world(|world| world.host_of(context).events.pop_front().expect("the counter said so"));
    // SAFETY: the caller gives a place; C writes the kind as an integer.
    unsafe {
        (*event).element.cq = ptr::without_provenance_mut(subject);
        (&raw mut (*event).event_type).cast::<u32>().write(kind);
    }
    world(|world| world.unacked_async.push(subject));
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    // SAFETY: every member of the union is an address or a shorter number.
    let subject = unsafe { (*event).element.cq }.addr();
    world(|world| match world.unacked_async.iter().position(|it| *it == subject) {
        Some(at) => drop(world.unacked_async.swap_remove(at)),
        None => world.complain("an asynchronous event acknowledged twice"),
    });
}

extern "C" fn post_send(
    _qp: *mut ibv_qp,
    _first: *mut ibv_send_wr,
    _bad: *mut *mut ibv_send_wr,
) -> c_int {
    0
}

extern "C" fn post_recv(
    _qp: *mut ibv_qp,
    _first: *mut ibv_recv_wr,
    _bad: *mut *mut ibv_recv_wr,
) -> c_int {
    0
}

extern "C" fn poll_cq(_cq: *mut ibv_cq, _room: c_int, _into: *mut ibv_wc) -> c_int {
    0
}

extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    world(|world| world.cq(cq).armed = Some(solicited_only != 0));
    0
}
