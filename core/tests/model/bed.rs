//! Two queue pairs on a soft device, connected or for datagrams, their queues, and a reference for each.

use std::cell::RefCell;
use std::rc::Rc;

use nanoverbs_core::abi::Wc;
use nanoverbs_core::soft::{self, CompletionQueue, Control, Device, QpConfig, SharedReceiveId};
use nanoverbs_core::{
    Access, BlockHeader, Completion, Completions, Domain, Outcome, Pool, PoolRoot, RecvConfig,
    RecvLink, RecvQueue, RecvSlots, SendConfig, SendLink, SendQueue, SendSlots, SharedRecvQueue,
    SharedRecvSlots, SharedRegion, op,
};

use crate::ledger::Context;
use crate::reference::{Arrival, End, Entry, Queue, Shared, Shut};
use crate::step::Setup;
use crate::tap::{Log, Tap};
use crate::transport::Transport;

pub(crate) const CHAIN: usize = 4;
/// Slots of each queue.
pub(crate) const SLOTS: usize = 16;
pub(crate) const BLOCKS: usize = 64;
pub(crate) const BLOCK_LEN: usize = 64;
/// The first half of what a peer may reach is for READs, the second for WRITEs.
pub(crate) const HALF: u64 = 128;
/// What is in the first half.
pub(crate) const PATTERN: u8 = 0x5a;
/// Behind both is a word for atomics.
pub(crate) const WORD_AT: u64 = 2 * HALF;
/// The queue key of datagrams.
pub(crate) const QKEY: u32 = 0x1234;

pub(crate) type Dev = Device<4, SLOTS, 2, 32>;
pub(crate) type SendPort<'d, T> = Tap<soft::SendEnd<'d, SLOTS, 2, 32>, T>;
pub(crate) type RecvPort<'d, T> = Tap<soft::RecvEnd<'d, SLOTS, 2, 32>, T>;
pub(crate) type Poller<'d> = Completions<Tap<CompletionQueue<'d, 4, SLOTS, 2, 32>>, 4>;

/// Memory that cases borrow for ever and give back: that it can be given back is part of the test.
pub(crate) struct Kit {
    pub(crate) root: &'static mut PoolRoot,
    pub(crate) headers: &'static mut [BlockHeader],
    pub(crate) bytes: &'static mut [u8],
    pub(crate) words: [&'static mut [u64]; 2],
}

thread_local! {
    static KIT: RefCell<Option<Kit>> = const { RefCell::new(None) };
}

impl Kit {
    pub(crate) fn take() -> Self {
        KIT.take().unwrap_or_else(|| {
            let words = || vec![0_u64; WORD_AT as usize / 8 + 1].leak();
            Self {
                root: Box::leak(Box::default()),
                headers: (0..BLOCKS).map(|_| BlockHeader::new()).collect::<Vec<_>>().leak(),
                bytes: vec![0; BLOCKS * BLOCK_LEN].leak(),
                words: [words(), words()],
            }
        })
    }

    pub(crate) fn put_back(self) {
        KIT.set(Some(self));
    }
}

/// Storage of the queues, for both of their lives.
pub(crate) struct Storage<T: Transport> {
    sends: [SendSlots<Context<T>, SLOTS>; 2],
    recvs: [RecvSlots<Context<T>, SLOTS>; 2],
    shared: SharedRecvSlots<Context<T>, SLOTS>,
}

impl<T: Transport> Storage<T> {
    pub(crate) fn new() -> Self {
        Self { sends: Default::default(), recvs: Default::default(), shared: Default::default() }
    }
}

/// A completion queue, and what was polled from it.
pub(crate) struct Polled<'d> {
    pub(crate) completions: Poller<'d>,
    pub(crate) log: Rc<Log>,
}

/// A completion, what the device said of it, and what has come to its receive.
pub(crate) struct Kept {
    pub(crate) completion: Completion,
    pub(crate) raw: Wc,
    pub(crate) arrived: Option<Arrival>,
}

pub(crate) struct Side<'d, 's, T: Transport> {
    pub(crate) sends: SendQueue<'s, SendPort<'d, T>, Context<T>, SLOTS>,
    pub(crate) recvs: RecvQueue<'s, RecvPort<'d, T>, Context<T>, SLOTS>,
    pub(crate) send_log: Rc<Log>,
    pub(crate) recv_log: Rc<Log>,
    pub(crate) send_model: Queue,
    pub(crate) recv_model: Queue,
    /// Gone when the queue pair is destroyed.
    pub(crate) control: Option<Control<'d, 4, SLOTS, 2, 32>>,
    pub(crate) number: u32,
    /// What was sent here and has not been seen yet.
    pub(crate) under_way: Vec<Arrival>,
    /// The peer's word, as the atomics that were taken have left it.
    word: u64,
    /// Longest inline message, pieces of any request, pieces of a READ: as granted.
    pub(crate) caps: [u32; 3],
    /// A fault was ordered.
    pub(crate) send_is_faulty: bool,
    pub(crate) recv_is_faulty: bool,
    /// A post ended without a word: something may never complete.
    pub(crate) is_unknown: bool,
    /// A completion was retired before an older one, or was lost: what a later one ends counts as done,
    /// whatever the device has done.
    pub(crate) is_hasty: bool,
}

/// The receive queue of both sides.
pub(crate) struct Common<'d, 's, T: Transport> {
    pub(crate) recvs: SharedRecvQueue<'s, RecvPort<'d, T>, Context<T>, SLOTS>,
    pub(crate) recv_log: Rc<Log>,
    pub(crate) recv_model: Shared,
    pub(crate) recv_is_faulty: bool,
    pub(crate) id: SharedReceiveId,
}

pub(crate) struct World<'w, 'd, 's, T: Transport> {
    pub(crate) device: &'d Dev,
    pub(crate) setup: Setup,
    pub(crate) sides: [Side<'d, 's, T>; 2],
    pub(crate) common: Option<Common<'d, 's, T>>,
    pub(crate) peers: [op::Peer; 2],
    pub(crate) queues: &'w mut [Polled<'d>],
    pub(crate) send_link: SendLink<'w, CHAIN, 2>,
    pub(crate) recv_link: RecvLink<'w, CHAIN, 2>,
    pub(crate) pool: &'w mut Pool,
    pub(crate) memory: &'w [SharedRegion; 2],
    /// Completions that were put aside.
    pub(crate) kept: Vec<Kept>,
    /// The device was taken away: it refuses everything, and nothing ends any more.
    pub(crate) is_gone: bool,
}

/// Which completion queue a half uses.
const fn queue_of(setup: &Setup, half: usize) -> usize {
    half % setup.queues
}

/// Completion queues with room for exactly what can come, or for too little.
pub(crate) fn completion_queues<'d>(device: &'d Dev, setup: &Setup) -> Vec<Polled<'d>> {
    let depths = [setup.send_depth, setup.recv_depth, setup.send_depth, setup.recv_depth];
    (0..setup.queues)
        .map(|queue| {
            let halves = (0..4).filter(|half| queue_of(setup, *half) == queue);
            let room: u32 = halves.clone().map(|half| depths[half]).sum();
            let room = if setup.is_tight { room.div_ceil(3) } else { room };
            let (tap, log) = Tap::new(device.completion_queue(room as usize).unwrap());
            let mut completions = Completions::new(tap, room);
            let mut left = room;
            for half in halves {
                let fits = depths[half] <= left;
                assert_eq!(completions.attach(depths[half]).is_ok(), fits);
                left -= if fits { depths[half] } else { 0 };
            }
            Polled { completions, log }
        })
        .collect()
}

/// The receive queue of both sides, and the sides, which are connected to each other.
pub(crate) fn sides<'d, 's, T: Transport>(
    device: &'d Dev,
    domain: Domain,
    setup: &Setup,
    queues: &[Polled<'d>],
    storage: &'s mut Storage<T>,
) -> (Option<Common<'d, 's, T>>, [Side<'d, 's, T>; 2]) {
    let Storage { sends: [one, other], recvs: [first, second], shared } = storage;
    let common = setup.shares.then(|| common(device, domain, setup, shared));
    let config = config::<T>(domain, setup, common.as_ref().map(|common| common.id));
    let ids: Vec<_> = queues.iter().map(|queue| queue.completions.port().port().id()).collect();
    let made = |half: usize| {
        let id = |half| ids[queue_of(setup, half)];
        device.queue_pair(config, id(half), id(half + 1)).unwrap()
    };
    let sides =
        [side(made(0), domain, setup, one, first), side(made(2), domain, setup, other, second)];
    if let ([Some(a), Some(b)], false) = ([&sides[0].control, &sides[1].control], T::DATAGRAM) {
        a.connect(b).unwrap();
    }
    (common, sides)
}

fn config<T: Transport>(
    domain: Domain,
    setup: &Setup,
    common: Option<SharedReceiveId>,
) -> QpConfig {
    let config = QpConfig::new(domain)
        .send_depth(setup.send_depth)
        .recv_depth(setup.recv_depth)
        .sges(setup.sges)
        .inline(setup.inline)
        .retry(setup.retry)
        .rnr_retry(setup.rnr_retry)
        .read_depth(setup.reads.into())
        .responder_depth(setup.reads.into());
    let config = if setup.signals_all { config.signals_all() } else { config };
    let config = if T::DATAGRAM { config.datagram(QKEY) } else { config };
    match common {
        Some(id) => config.shared_receive(id),
        None => config,
    }
}

fn recv_config(domain: Domain, depth: u32, sges: u32) -> RecvConfig {
    RecvConfig::new(domain).depth(depth).max_sges(sges as u8)
}

fn common<'d, 's, T: Transport>(
    device: &'d Dev,
    domain: Domain,
    setup: &Setup,
    slots: &'s mut SharedRecvSlots<Context<T>, SLOTS>,
) -> Common<'d, 's, T> {
    let made = device.shared_receive_queue(setup.recv_depth).unwrap();
    let (port, recv_log) = Tap::new(made.recv);
    let config = recv_config(domain, setup.recv_depth, setup.sges);
    Common {
        recvs: SharedRecvQueue::new(port, slots, config).unwrap(),
        recv_log,
        recv_model: Shared::new(setup.recv_depth),
        recv_is_faulty: false,
        id: made.id,
    }
}

fn side<'d, 's, T: Transport>(
    made: soft::QueuePair<'d, 4, SLOTS, 2, 32>,
    domain: Domain,
    setup: &Setup,
    sends: &'s mut SendSlots<Context<T>, SLOTS>,
    recvs: &'s mut RecvSlots<Context<T>, SLOTS>,
) -> Side<'d, 's, T> {
    let caps = made.control.caps();
    assert!(caps.send_depth >= setup.send_depth && caps.recv_depth >= setup.recv_depth);
    let ((send, send_log), (recv, recv_log)) = (Tap::new(made.send), Tap::new(made.recv));
    let send_config = SendConfig::new(domain)
        .depth(caps.send_depth.min(setup.send_depth))
        .chain(setup.chain)
        .period(setup.period)
        .max_sges(caps.sges as u8, caps.read_sges as u8)
        .max_inline(caps.inline as u16)
        .reads(setup.reads);
    let recv_config = recv_config(domain, caps.recv_depth.min(setup.recv_depth), caps.sges);
    let mut side = Side {
        sends: SendQueue::new(send, sends, send_config).unwrap(),
        recvs: RecvQueue::new(recv, recvs, recv_config).unwrap(),
        send_log,
        recv_log,
        send_model: Queue::send(
            setup.send_depth,
            setup.chain.into(),
            setup.period.into(),
            setup.reads.into(),
        ),
        recv_model: Queue::recv(setup.recv_depth),
        number: made.control.number().to_raw(),
        control: Some(made.control),
        under_way: vec![],
        word: 0,
        caps: [caps.inline, caps.sges, caps.read_sges.min(caps.sges)],
        send_is_faulty: false,
        recv_is_faulty: false,
        is_unknown: false,
        is_hasty: setup.is_tight,
    };
    if !setup.opens_late {
        side.open();
    }
    side
}

/// A queue and its reference say the same.
macro_rules! agree {
    ($queue:expr, $model:expr) => {{
        let is = ($queue.in_flight(), $queue.ended(), $queue.free(), $queue.depth());
        let model = &$model;
        let must = (model.in_flight(), model.ended(), model.free(), model.depth);
        assert_eq!(is, must, "in flight, ended, free, depth");
        // "Not connected" is no cause: the queue is not closed.
        let shut = model.shut.filter(|shut| *shut != Shut::NotConnected);
        assert_eq!($queue.closed().map(Into::into), shut, "why it is closed");
    }};
}

/// What was taken is what had to be, its context and its end.
macro_rules! taken {
    ($queue:expr, $model:expr) => {{
        let (taken, entry) = ($queue.take(), $model.take());
        let is = taken.as_ref().map(|ended| (ended.context.id, End::from(&ended.outcome)));
        let must = entry.and_then(|entry| Some((entry.id, entry.end?)));
        assert_eq!(is, must, "what was taken");
        taken.zip(entry)
    }};
}

impl<T: Transport> Side<'_, '_, T> {
    pub(crate) fn open(&mut self) {
        self.sends.open();
        self.send_model.open();
    }

    pub(crate) fn agree(&self) {
        agree!(self.sends, self.send_model);
        agree!(self.recvs, self.recv_model);
        let model = &self.send_model;
        assert_eq!(self.sends.silent(), model.silent.min(model.in_flight()), "silent sends");
        assert_eq!(self.sends.reads(), (model.max_reads, model.reads()), "READs");
    }

    /// Takes the oldest send that has ended, and looks at it.
    pub(crate) fn take_send(&mut self) -> bool {
        let Some((ended, entry)) = taken!(self.sends, self.send_model) else { return false };
        let Outcome::Done(success) = ended.outcome else { return true };
        let word = self.word;
        self.word = entry.atomic.map_or(word, |atomic| atomic.apply(word));
        if let (Some(len), false) = (success.byte_len(), self.is_hasty) {
            T::check_answer(&ended.context, len, entry.atomic.map(|_| word));
        }
        true
    }

    /// Takes the oldest receive that has ended, and holds it against what was sent.
    pub(crate) fn take_recv(&mut self) -> bool {
        let Some((ended, entry)) = taken!(self.recvs, self.recv_model) else { return false };
        self.check_arrival(&ended.outcome, &ended.context, &entry);
        true
    }

    fn check_arrival(&mut self, outcome: &Outcome, context: &Context<T>, entry: &Entry) {
        if let Some(success) = outcome.success() {
            T::check_arrival(context, success, entry.arrived, &mut self.under_way);
        }
    }
}

impl<T: Transport> Common<'_, '_, T> {
    pub(crate) fn agree(&self) {
        agree!(self.recvs, self.recv_model);
    }

    /// Takes the receive that has ended first, and holds it against what was sent to who took it.
    pub(crate) fn take_recv(&mut self, sides: &mut [Side<'_, '_, T>; 2]) -> bool {
        let Some((ended, entry)) = taken!(self.recvs, self.recv_model) else { return false };
        let is_its = |side: &&mut Side<'_, '_, T>| {
            ended.queue_pair.is_some_and(|number| number.to_raw() == side.number)
        };
        let side = sides.iter_mut().find(is_its);
        let is_abandoned = matches!(ended.outcome, Outcome::Abandoned);
        assert_eq!(side.is_none(), is_abandoned, "who took it: {:?}", ended.queue_pair);
        if let Some(side) = side {
            side.check_arrival(&ended.outcome, &ended.context, &entry);
        }
        true
    }
}

/// Memory that a peer may reach, in its first state.
pub(crate) fn memory(device: &Dev, domain: Domain, words: &'static mut [u64]) -> SharedRegion {
    let all = Access::LOCAL_WRITE
        .with(Access::REMOTE_READ)
        .with(Access::REMOTE_WRITE)
        .with(Access::REMOTE_ATOMIC);
    let region = device.register_shared(domain, words, all).unwrap();
    region.write_at(0, &[PATTERN; HALF as usize]).unwrap();
    region
}
