//! `ibv_*`: devices, domains, regions, completion queues, and asynchronous events.

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;

use rdma_sys::{
    _compat_ibv_port_attr, ibv_ah, ibv_ah_attr, ibv_async_event, ibv_comp_channel, ibv_context,
    ibv_cq, ibv_device, ibv_device_attr, ibv_grh, ibv_mr, ibv_parent_domain_init_attr, ibv_pd,
    ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_recv_wr, ibv_send_wr, ibv_td, ibv_td_init_attr,
    ibv_wc, verbs_context,
};

use super::{close, fails, zeroed};
use crate::script::{CompChannel, Cq, Move, Parent, World, counter, take_one, world};

const IN_ERROR: c_int = libc::EIO;

/// A device with its context, called `script0`, `script1`, …
pub(crate) fn make_context(number: u8) -> *mut ibv_context {
    let (table, device) = (zeroed::<verbs_context>(), zeroed::<ibv_device>());
    // SAFETY: the table was just made; the context is its end.
    let context = unsafe { &raw mut (*table).context };
    // SAFETY: all were just made.
    unsafe {
        (*table).sz = size_of::<verbs_context>();
        (*table).alloc_td = Some(alloc_td);
        (*table).dealloc_td = Some(dealloc_td);
        (*table).alloc_parent_domain = Some(alloc_parent_domain);
        (*context).abi_compat = ptr::without_provenance_mut(usize::MAX);
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
    world(|world| {
        if world.parents.iter().any(|parent| parent.pd == pd.addr()) {
            world.complain("a domain given back below one of a thread");
        }
        world.parents.retain(|parent| parent.raw != pd.addr());
    });
    // SAFETY: domains are never freed here.
    unsafe { goes((*pd).context) }
}

unsafe extern "C" fn alloc_td(
    context: *mut ibv_context,
    _attr: *mut ibv_td_init_attr,
) -> *mut ibv_td {
    let raw = zeroed::<ibv_td>();
    // SAFETY: just made.
    unsafe { (*raw).context = context };
    world(|world| world.alive += 1);
    raw
}

unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    world(|world| {
        if world.parents.iter().any(|parent| parent.td == td.addr()) {
            world.complain("a thread domain given back below its parent domain");
        }
    });
    // SAFETY: thread domains are never freed here.
    unsafe { goes((*td).context) }
}

unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    // SAFETY: the caller gives attributes.
    let (pd, td) = unsafe { ((*attr).pd.addr(), (*attr).td.addr()) };
    let allowed = world(|world| {
        let is_parent = world.parents.iter().any(|parent| parent.raw == pd);
        !std::mem::take(&mut world.refuses_parent) && !is_parent
    });
    if !allowed {
        fails(libc::EOPNOTSUPP);
        return ptr::null_mut();
    }
    // SAFETY: a context, as for any domain.
    let raw = unsafe { ibv_alloc_pd(context) };
    world(|world| world.parents.push(Parent { raw: raw.addr(), pd, td }));
    raw
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_init_ah_from_wc(
    _context: *mut ibv_context,
    port: u8,
    _wc: *mut ibv_wc,
    _header: *mut ibv_grh,
    attr: *mut ibv_ah_attr,
) -> c_int {
    // SAFETY: the caller gives a place.
    unsafe { ((*attr).port_num, (*attr).is_global) = (port, 1) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_ah(pd: *mut ibv_pd, _attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    let raw = zeroed::<ibv_ah>();
    // SAFETY: just made; the caller gives a domain.
    unsafe { ((*raw).context, (*raw).pd) = ((*pd).context, pd) };
    world(|world| {
        world.handles += 1;
        world.alive += 1;
    });
    raw
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    world(|world| world.handles -= 1);
    // SAFETY: handles are never freed here.
    unsafe { goes((*ah).context) }
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

/// # Safety
///
/// A domain and attributes.
pub(super) unsafe fn make_qp(
    world: &mut World,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    let qp = zeroed::<ibv_qp>();
    world.qps.push(qp);
    world.alive += 1;
    // SAFETY: the caller's promise; the rest was just made.
    unsafe {
        ((*qp).context, (*qp).pd, (*qp).qp_num) = ((*pd).context, pd, world.qps.len() as u32);
        ((*qp).send_cq, (*qp).recv_cq) = ((*attr).send_cq, (*attr).recv_cq);
    }
    qp
}

pub(super) fn end_qp(world: &mut World, qp: *mut ibv_qp, call: &str) {
    world.alive -= 1;
    if world.unacked_async.contains(&qp.addr()) {
        world.complain(format!("{call} waits for an asynchronous event for ever"));
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    // SAFETY: the caller gives both.
    world(|world| unsafe { make_qp(world, pd, attr) })
}

#[unsafe(no_mangle)]
extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    world(|world| end_qp(world, qp, "ibv_destroy_qp"));
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
    world(|world| {
        // SAFETY: queue pairs are never freed here, and the caller gives attributes.
        unsafe {
            if world.host_of((*qp).context).is_gone {
                return IN_ERROR;
            }
            let bits = rdma_sys::ibv_qp_attr_mask::IBV_QP_STATE.0 as c_int;
            if mask & bits != 0 {
                if world.refused_state == Some((*attr).qp_state) {
                    return libc::EINVAL;
                }
                (*qp).state = (*attr).qp_state;
            }
            world.moves.push(Move::new(qp.addr(), &*attr, mask as u32));
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
