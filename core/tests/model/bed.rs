//! Two connected queue pairs on a soft device, their queues, and a reference for each.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use nanoverbs_core::abi::Wc;
use nanoverbs_core::soft::{CompletionQueue, Control, Device, QpConfig, RecvEnd, SendEnd};
use nanoverbs_core::{
    Access, BlockHeader, Completion, Completions, Domain, Pool, PoolRoot, RecvConfig, RecvLink,
    RecvQueue, RecvSlots, SendConfig, SendLink, SendQueue, SendSlots, SharedRegion,
};

use crate::ledger::Context;
use crate::reference::{End, Queue};
use crate::step::Setup;
use crate::tap::{Log, Tap};

pub(crate) const CHAIN: usize = 4;
pub(crate) const BLOCKS: usize = 64;
pub(crate) const BLOCK_LEN: usize = 64;
/// The first half of what a peer may reach is for READs, the second for WRITEs.
pub(crate) const HALF: usize = 128;
/// What is in the first half.
pub(crate) const PATTERN: u8 = 0x5a;

pub(crate) type Dev = Device<4, 16, 2, 32>;
pub(crate) type Poller<'d> = Completions<Tap<CompletionQueue<'d, 4, 16, 2, 32>>, 4>;
pub(crate) type Sends<'d, 's> = SendQueue<'s, Tap<SendEnd<'d, 16, 2, 32>>, Context, 16>;
pub(crate) type Recvs<'d, 's> = RecvQueue<'s, Tap<RecvEnd<'d, 16, 2, 32>>, Context, 16>;

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
            let words = || vec![0_u64; 2 * HALF / 8].leak();
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

/// Storage of one side's queues, for both of its lives.
#[derive(Default)]
pub(crate) struct Storage {
    pub(crate) sends: SendSlots<Context, 16>,
    pub(crate) recvs: RecvSlots<Context, 16>,
}

/// A completion queue, and what was polled from it.
pub(crate) struct Polled<'d> {
    pub(crate) completions: Poller<'d>,
    pub(crate) log: Rc<Log>,
}

/// What the receives of a side will show, in order.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arrival {
    Message { id: u32, len: u32, immediate: bool },
    Write { id: u32, len: u32 },
}

pub(crate) struct Side<'d, 's> {
    pub(crate) sends: Sends<'d, 's>,
    pub(crate) recvs: Recvs<'d, 's>,
    pub(crate) send_log: Rc<Log>,
    pub(crate) recv_log: Rc<Log>,
    pub(crate) send_model: Queue,
    pub(crate) recv_model: Queue,
    /// Gone when the queue pair is destroyed.
    pub(crate) control: Option<Control<'d, 4, 16, 2, 32>>,
    pub(crate) arrivals: VecDeque<Arrival>,
    /// Longest inline message, pieces of any request, pieces of a READ: as granted.
    pub(crate) caps: [u32; 3],
    /// A fault was ordered, for sends and for receives.
    pub(crate) is_faulty: [bool; 2],
    /// A post ended without a word: something may never complete.
    pub(crate) is_unknown: bool,
    /// A completion was retired before an older one: what it ends counts as done, as it says.
    pub(crate) is_hasty: bool,
}

pub(crate) struct World<'w, 'd, 's> {
    pub(crate) device: &'d Dev,
    pub(crate) setup: Setup,
    pub(crate) sides: [Side<'d, 's>; 2],
    pub(crate) queues: &'w mut [Polled<'d>],
    pub(crate) send_link: SendLink<'w, CHAIN, 2>,
    pub(crate) recv_link: RecvLink<'w, CHAIN, 2>,
    pub(crate) pool: &'w mut Pool,
    pub(crate) shared: &'w [SharedRegion; 2],
    /// Completions that were put aside.
    pub(crate) kept: Vec<(Completion, Wc)>,
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

/// Two sides that are connected to each other.
pub(crate) fn sides<'d, 's>(
    device: &'d Dev,
    domain: Domain,
    setup: &Setup,
    queues: &[Polled<'d>],
    storage: &'s mut [Storage; 2],
) -> [Side<'d, 's>; 2] {
    let [a, b] = storage;
    let ids: Vec<_> = queues.iter().map(|queue| queue.completions.port().port().id()).collect();
    let ids = |first: usize| [ids[queue_of(setup, first)], ids[queue_of(setup, first + 1)]];
    let sides = [side(device, domain, setup, ids(0), a), side(device, domain, setup, ids(2), b)];
    let [Some(a), Some(b)] = [&sides[0].control, &sides[1].control] else { unreachable!() };
    a.connect(b).unwrap();
    sides
}

fn side<'d, 's>(
    device: &'d Dev,
    domain: Domain,
    setup: &Setup,
    queues: [nanoverbs_core::soft::CqId; 2],
    storage: &'s mut Storage,
) -> Side<'d, 's> {
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
    let made = device.queue_pair(config, queues[0], queues[1]).unwrap();
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
    let recv_config = RecvConfig::new(domain)
        .depth(caps.recv_depth.min(setup.recv_depth))
        .max_sges(caps.sges as u8);
    let mut side = Side {
        sends: SendQueue::new(send, &mut storage.sends, send_config).unwrap(),
        recvs: RecvQueue::new(recv, &mut storage.recvs, recv_config).unwrap(),
        send_log,
        recv_log,
        send_model: Queue::send(
            setup.send_depth,
            setup.chain.into(),
            setup.period.into(),
            setup.reads.into(),
        ),
        recv_model: Queue::recv(setup.recv_depth),
        control: Some(made.control),
        arrivals: VecDeque::new(),
        caps: [caps.inline, caps.sges, caps.read_sges.min(caps.sges)],
        is_faulty: [false; 2],
        is_unknown: false,
        is_hasty: false,
    };
    if !setup.opens_late {
        side.open();
    }
    side
}

impl Side<'_, '_> {
    pub(crate) fn open(&mut self) {
        self.sends.open();
        self.send_model.open();
    }

    /// Queues and references say the same.
    pub(crate) fn agree(&self) {
        macro_rules! agree {
            ($queue:expr, $model:expr) => {{
                let is = ($queue.in_flight(), $queue.ended(), $queue.free(), $queue.depth());
                let model = &$model;
                let must = (model.in_flight(), model.ended(), model.free(), model.depth);
                assert_eq!(is, must, "in flight, ended, free, depth");
                // "Not connected" is no cause: the queue is not closed.
                let closed = $queue.closed().map(Into::into);
                let shut = model.shut.filter(|shut| *shut != crate::reference::Shut::NotConnected);
                assert_eq!(closed, shut, "why it is closed");
            }};
        }
        agree!(self.sends, self.send_model);
        agree!(self.recvs, self.recv_model);
        let model = &self.send_model;
        assert_eq!(self.sends.silent(), model.silent.min(model.in_flight()), "silent sends");
        assert_eq!(self.sends.reads(), (model.max_reads, model.reads()), "READs");
    }

    /// Takes the oldest send that has ended, and looks at it.
    pub(crate) fn take_send(&mut self) -> bool {
        let (taken, model) = (self.sends.take(), self.send_model.take());
        let is = taken.as_ref().map(|ended| (ended.context.id, End::from(&ended.outcome)));
        assert_eq!(is, model, "what was taken from the send queue");
        let Some(ended) = taken else { return false };
        if let Some(len) = ended.outcome.success().and_then(|success| success.byte_len()) {
            let read = || ended.context.blocks.iter().flatten().map(|block| &block[..]);
            assert_eq!(len as usize, read().map(<[u8]>::len).sum::<usize>(), "a READ's length");
            let is_there = read().flatten().all(|byte| *byte == PATTERN);
            assert!(is_there || self.is_hasty, "what was read");
        }
        true
    }

    /// Takes the oldest receive that has ended, and holds it against what the peer has sent.
    pub(crate) fn take_recv(&mut self, peer_reads_bytes: bool) -> bool {
        let (taken, model) = (self.recvs.take(), self.recv_model.take());
        let is = taken.as_ref().map(|ended| (ended.context.id, End::from(&ended.outcome)));
        assert_eq!(is, model, "what was taken from the receive queue");
        let Some(ended) = taken else { return false };
        let Some(success) = ended.outcome.success() else { return true };
        let arrival = self.arrivals.pop_front().expect("the peer has sent it");
        match arrival {
            Arrival::Message { id, len, immediate } => {
                assert!(!success.is_write());
                assert_eq!(success.byte_len(), Some(len));
                assert_eq!(success.immediate(), immediate.then_some(id));
                let block = ended.context.blocks[0].as_ref();
                if let (true, 4.., Some(block)) = (peer_reads_bytes, len, block) {
                    assert_eq!(block[..4], id.to_le_bytes(), "in order, once, and whole");
                }
            }
            Arrival::Write { id, len } => {
                assert!(success.is_write());
                assert_eq!((success.byte_len(), success.immediate()), (Some(len), Some(id)));
            }
        }
        true
    }
}

/// Memory that a peer may reach, in its first state.
pub(crate) fn shared(device: &Dev, domain: Domain, words: &'static mut [u64]) -> SharedRegion {
    let all = Access::LOCAL_WRITE.with(Access::REMOTE_READ).with(Access::REMOTE_WRITE);
    let region = device.register_shared(domain, words, all).unwrap();
    region.write_at(0, &[PATTERN; HALF]).unwrap();
    region
}
