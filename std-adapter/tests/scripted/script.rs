//! What the libraries know: every object that they have given out, and what became of it.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rdma_sys::{
    ibv_comp_channel, ibv_context, ibv_cq, ibv_qp, ibv_qp_attr, rdma_cm_event, rdma_cm_id,
    rdma_event_channel,
};

/// An event of the connection manager, with the memory that it points at.
pub(crate) struct Event {
    pub(crate) raw: rdma_cm_event,
    pub(crate) data: [u8; 255],
    /// The identifier whose destruction waits for it: for a request, its listener.
    pub(crate) of: *mut rdma_cm_id,
}

pub(crate) struct Channel {
    pub(crate) raw: *mut rdma_event_channel,
    pub(crate) events: VecDeque<Box<Event>>,
    pub(crate) is_alive: bool,
}

pub(crate) struct Id {
    pub(crate) raw: *mut rdma_cm_id,
    pub(crate) unacked: u32,
    pub(crate) is_alive: bool,
    /// What was called on it, in order.
    pub(crate) calls: Vec<&'static str>,
}

/// A machine with a device of its own, found by its address.
pub(crate) struct Host {
    pub(crate) addr: Ipv4Addr,
    pub(crate) context: *mut ibv_context,
    pub(crate) events: VecDeque<(u32, usize)>,
    /// Asynchronous events were asked for so many times.
    pub(crate) asked: usize,
    pub(crate) is_gone: bool,
}

pub(crate) struct Cq {
    pub(crate) raw: *mut ibv_cq,
    pub(crate) armed: Option<bool>,
    pub(crate) unacked: u32,
    pub(crate) is_alive: bool,
}

pub(crate) struct CompChannel {
    pub(crate) raw: *mut ibv_comp_channel,
    pub(crate) events: VecDeque<*mut ibv_cq>,
}

/// A domain of a thread, by the addresses of what it is made of.
pub(crate) struct Parent {
    pub(crate) raw: usize,
    pub(crate) pd: usize,
    pub(crate) td: usize,
}

/// What a queue pair was moved to: the state, and of the fields that the mask names these three.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Move {
    of: usize,
    pub(crate) state: Option<u32>,
    pub(crate) min_rnr_timer: Option<u8>,
    pub(crate) reads_in: Option<u8>,
    pub(crate) reads_out: Option<u8>,
}

impl Move {
    pub(crate) fn new(of: usize, attr: &ibv_qp_attr, mask: u32) -> Self {
        use rdma_sys::ibv_qp_attr_mask as bit;
        Self {
            of,
            state: (mask & bit::IBV_QP_STATE.0 != 0).then_some(attr.qp_state),
            min_rnr_timer: (mask & bit::IBV_QP_MIN_RNR_TIMER.0 != 0).then_some(attr.min_rnr_timer),
            reads_in: (mask & bit::IBV_QP_MAX_DEST_RD_ATOMIC.0 != 0)
                .then_some(attr.max_dest_rd_atomic),
            reads_out: (mask & bit::IBV_QP_MAX_QP_RD_ATOMIC.0 != 0).then_some(attr.max_rd_atomic),
        }
    }
}

#[derive(Default)]
pub(crate) struct World {
    pub(crate) hosts: Vec<Host>,
    pub(crate) channels: Vec<Channel>,
    pub(crate) ids: Vec<Id>,
    pub(crate) cqs: Vec<Cq>,
    pub(crate) comp_channels: Vec<CompChannel>,
    pub(crate) qps: Vec<*mut ibv_qp>,
    pub(crate) moves: Vec<Move>,
    pub(crate) parents: Vec<Parent>,
    /// The next domain of a thread cannot be had.
    pub(crate) refuses_parent: bool,
    /// Address handles that were not destroyed.
    pub(crate) handles: usize,
    /// The device does not move queue pairs to this state.
    pub(crate) refused_state: Option<u32>,
    /// Objects with asynchronous events that were read and not acknowledged.
    pub(crate) unacked_async: Vec<usize>,
    pub(crate) alive: isize,
    pub(crate) next_port: u16,
    pub(crate) complaints: Vec<String>,
}

// SAFETY: the pointers name memory that is never freed, and everything in it is touched under the lock of
// the world or by the one thread that has the object.
unsafe impl Send for World {}

static WORLD: Mutex<Option<World>> = Mutex::new(None);
static TURN: Mutex<()> = Mutex::new(());

/// Calls `with` with the world; every false function does.
pub(crate) fn world<R>(with: impl FnOnce(&mut World) -> R) -> R {
    let mut guard = WORLD.lock().unwrap_or_else(PoisonError::into_inner);
    with(guard.get_or_insert_default())
}

impl World {
    pub(crate) fn complain(&mut self, what: impl Into<String>) {
        self.complaints.push(what.into());
    }

    pub(crate) fn id(&mut self, raw: *mut rdma_cm_id, call: &'static str) -> &mut Id {
        let at = self.ids.iter().position(|id| id.raw == raw).expect("an identifier");
        if !self.ids[at].is_alive {
            self.complain(format!("{call} on an identifier that was destroyed"));
        }
        self.ids[at].calls.push(call);
        &mut self.ids[at]
    }

    /// Notes a call that changes nothing here.
    pub(crate) fn note(&mut self, raw: *mut rdma_cm_id, call: &'static str) {
        self.id(raw, call);
    }

    pub(crate) fn channel(&mut self, raw: *mut rdma_event_channel) -> &mut Channel {
        self.channels.iter_mut().find(|channel| channel.raw == raw).expect("a channel")
    }

    pub(crate) fn cq(&mut self, raw: *mut ibv_cq) -> &mut Cq {
        self.cqs.iter_mut().find(|cq| cq.raw == raw).expect("a completion queue")
    }

    pub(crate) fn host_at(&mut self, addr: Ipv4Addr) -> Option<&mut Host> {
        self.hosts.iter_mut().find(|host| host.addr == addr)
    }

    pub(crate) fn host_of(&mut self, context: *mut ibv_context) -> &mut Host {
        self.hosts.iter_mut().find(|host| host.context == context).expect("a device")
    }

    /// Files an event in the channel of its identifier, and makes the descriptor readable.
    pub(crate) fn push(&mut self, event: Event) {
        // SAFETY: identifiers are never freed here, and the library's callers hold them meanwhile.
        let raw = unsafe { (*event.of).channel };
        let channel = self.channel(raw);
        // Where it lies from here on, its pointer must point.
        let mut event = Box::new(event);
        event.point();
        channel.events.push_back(event);
        // SAFETY: as above.
        ring(unsafe { (*raw).fd });
    }
}

impl Event {
    fn point(&mut self) {
        // SAFETY: both forms begin with the pointer and the length.
        let conn = unsafe { &mut self.raw.param.conn };
        if conn.private_data_len > 0 {
            conn.private_data = self.data.as_ptr().cast();
        }
    }
}

/// Makes a descriptor readable once more.
pub(crate) fn ring(fd: c_int) {
    let one = 1_u64;
    // SAFETY: eight bytes, to a descriptor that is open.
    let written = unsafe { libc::write(fd, (&raw const one).cast(), 8) };
    assert_eq!(written, 8);
}

/// A descriptor that counts; it blocks until somebody makes it nonblocking.
pub(crate) fn counter() -> c_int {
    // SAFETY: numbers only.
    let fd = unsafe { libc::eventfd(0, libc::EFD_SEMAPHORE | libc::EFD_CLOEXEC) };
    assert!(fd >= 0);
    fd
}

/// One off a counter, as a device's read would: errno is `EAGAIN` when there is none.
pub(crate) fn take_one(fd: c_int) -> bool {
    // SAFETY: a descriptor that is open.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    if flags & libc::O_NONBLOCK == 0 {
        world(|world| world.complain("a read that may block for ever"));
    }
    let mut one = 0_u64;
    // SAFETY: place for eight bytes.
    unsafe { libc::read(fd, (&raw mut one).cast(), 8) == 8 }
}

/// What a test says and sees. One test has the world at a time.
pub(crate) struct Script {
    _turn: MutexGuard<'static, ()>,
}

impl Script {
    /// A world with two machines, 10.9.0.1 and 10.9.0.2.
    pub(crate) fn new() -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut new = World { next_port: 40_000, ..World::default() };
        for last in [1, 2] {
            let context = crate::library::make_context(last);
            let addr = Ipv4Addr::new(10, 9, 0, last);
            let (events, asked, is_gone) = (VecDeque::new(), 0, false);
            new.hosts.push(Host { addr, context, events, asked, is_gone });
        }
        *WORLD.lock().unwrap_or_else(PoisonError::into_inner) = Some(new);
        Self { _turn: turn }
    }

    pub(crate) fn addr(host: u8, port: u16) -> SocketAddr {
        SocketAddrV4::new(Ipv4Addr::new(10, 9, 0, host), port).into()
    }

    /// Fails when something is left, or was done in a way that hangs or crashes a C program.
    pub(crate) fn finish(self) {
        world(|world| {
            assert_eq!(world.complaints, Vec::<String>::new());
            let ids = world.ids.iter().filter(|id| id.is_alive).count();
            let channels = world.channels.iter().filter(|channel| channel.is_alive).count();
            assert_eq!((ids, channels, world.alive), (0, 0, 0), "identifiers, channels, objects");
        });
    }

    /// The last identifier on which `call` was called.
    pub(crate) fn last(call: &str) -> Handle {
        world(|world| {
            let made = world.ids.iter().rev().find(|id| id.calls.contains(&call));
            Handle(made.unwrap_or_else(|| panic!("nobody has called {call}")).raw.addr())
        })
    }

    /// An event of the connection manager.
    pub(crate) fn event(of: Handle, kind: u32, status: i32, data: &[u8]) {
        world(|world| world.push(crate::library::event(of.id(), kind, status, data)));
    }

    /// A peer asks for a connection; gives its identifier.
    pub(crate) fn request(listener: Handle, data: &[u8]) -> Handle {
        Handle(crate::library::request(listener.id(), data).addr())
    }

    /// An asynchronous event of a machine's device, about an object at an address.
    pub(crate) fn async_event(host: u8, kind: u32, subject: usize) {
        world(|world| {
            let host = world.host_at(Ipv4Addr::new(10, 9, 0, host)).expect("a machine");
            host.events.push_back((kind, subject));
            // SAFETY: contexts are never freed.
            ring(unsafe { (*host.context).async_fd });
        });
    }

    /// The device answers everything with `EIO` from here on.
    pub(crate) fn pull(host: u8) {
        world(|world| world.host_at(Ipv4Addr::new(10, 9, 0, host)).expect("one").is_gone = true);
    }

    pub(crate) fn asked(host: u8) -> usize {
        world(|world| world.host_at(Ipv4Addr::new(10, 9, 0, host)).expect("one").asked)
    }

    /// Something completes on a queue: the event that it is armed for comes.
    pub(crate) fn completes(cq: usize, is_solicited: bool) {
        world(|world| {
            let cq = world.cqs.iter_mut().find(|it| it.raw.addr() == cq).expect("a queue");
            if cq.armed.is_some_and(|solicited_only| is_solicited || !solicited_only) {
                cq.armed = None;
                let raw = cq.raw;
                // SAFETY: queues are never freed here.
                let channel = unsafe { (*raw).channel };
                let found = world.comp_channels.iter_mut().find(|it| it.raw == channel);
                found.expect("a channel").events.push_back(raw);
                // SAFETY: as above.
                ring(unsafe { (*channel).fd });
            }
        });
    }

    /// The state of the last queue pair that was made.
    pub(crate) fn queue_pair_state(at: usize) -> u32 {
        // SAFETY: queue pairs are never freed here, and nobody writes it just now.
        world(|world| unsafe { (*world.qps[at]).state })
    }

    /// How the queue pair that was made as number `at` was moved, in order.
    pub(crate) fn moves(at: usize) -> Vec<Move> {
        world(|world| {
            let of = world.qps[at].addr();
            world.moves.iter().filter(|it| it.of == of).copied().collect()
        })
    }

    /// The device refuses to move queue pairs to `state` from here on.
    pub(crate) fn refuse_state(state: u32) {
        world(|world| world.refused_state = Some(state));
    }

    /// The device of a machine speaks iWARP. Before it is opened.
    pub(crate) fn make_iwarp(host: u8) {
        world(|world| {
            let host = world.host_at(Ipv4Addr::new(10, 9, 0, host)).expect("a machine");
            // SAFETY: contexts and devices are never freed here.
            let device = unsafe { &mut *(*host.context).device };
            device.transport_type = rdma_sys::ibv_transport_type::IBV_TRANSPORT_IWARP;
        });
    }

    pub(crate) fn handles() -> usize {
        world(|world| world.handles)
    }

    /// The next domain of a thread cannot be had.
    pub(crate) fn refuse_parent() {
        world(|world| world.refuses_parent = true);
    }

    /// Whether the queue pair that was made as number `at` is in a domain of a thread.
    pub(crate) fn is_in_a_threads_domain(at: usize) -> bool {
        world(|world| {
            // SAFETY: queue pairs are never freed here.
            let pd = unsafe { (*world.qps[at]).pd }.addr();
            world.parents.iter().any(|parent| parent.raw == pd)
        })
    }

    /// Whether `call` was called on an identifier.
    pub(crate) fn was_called(on: Handle, call: &str) -> bool {
        world(|world| {
            let id = world.ids.iter().find(|id| id.raw.addr() == on.0).expect("an identifier");
            id.calls.contains(&call)
        })
    }

    pub(crate) fn queue_pair_address(at: usize) -> usize {
        world(|world| world.qps[at].addr())
    }

    pub(crate) fn queue_address(at: usize) -> usize {
        world(|world| world.cqs[at].raw.addr())
    }
}

/// An identifier, by its address.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Handle(usize);

impl Handle {
    fn id(self) -> *mut rdma_cm_id {
        std::ptr::with_exposed_provenance_mut(self.0)
    }
}
