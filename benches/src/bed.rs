//! A contender in place: queue pairs of the provider, memory, requests.

use core::ffi::c_void;

use nanoverbs_benches::ffi::{BATCH, DEPTH, Request, Setup};
use rdma_sys::{ibv_context, ibv_mr, ibv_qp, rdma_cm_id};

use crate::object::{Entry, Kind, Mode, Provider};

const DOMAIN: u32 = 7;
const LOCAL_WRITE: u32 = 1;
const SIGNALED: u32 = 2;
pub(crate) const LEN: usize = 64;

#[repr(align(4096))]
#[expect(dead_code, reason = "only its address counts")]
struct Payload([u8; LEN * DEPTH]);

/// Where every contender sends from, so that all post the same addresses. Nobody reads or writes it.
static PAYLOAD: Payload = Payload([0; LEN * DEPTH]);

/// What is posted, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) mode: Mode,
    pub(crate) qps: u32,
    /// Requests a round.
    pub(crate) round: u32,
    /// Requests a chain.
    pub(crate) chain: u32,
    /// Every so many requests are signaled.
    pub(crate) signal: u32,
}

impl Shape {
    pub(crate) const fn new(mode: Mode) -> Self {
        Self { mode, qps: 1, round: 16, chain: 16, signal: 16 }
    }
}

/// A contender, opened.
pub(crate) struct Bed<'p> {
    provider: &'p Provider,
    context: *mut ibv_context,
    entry: Entry,
    state: *mut c_void,
    // What the setup points to.
    _setup: Box<Setup>,
    _qps: Vec<*mut ibv_qp>,
    _ids: Vec<*mut rdma_cm_id>,
    _mr: Box<ibv_mr>,
    _requests: Vec<Request>,
}

impl<'p> Bed<'p> {
    pub(crate) fn open(provider: &'p Provider, entry: &Entry, shape: Shape) -> Self {
        let context = (provider.open)(shape.mode);
        let cq = (provider.create_cq)(context, 1024);
        let mut qps: Vec<_> =
            (0..shape.qps).map(|_| (provider.create_qp)(context, cq, DEPTH as u32)).collect();
        // A post names its first request; the completion of a round is that of its last.
        (provider.null_offset)(cq, if entry.is_chain() { shape.chain - 1 } else { 0 });
        let mut ids: Vec<*mut rdma_cm_id> = qps
            .iter()
            .map(|qp| {
                // SAFETY: a structure of numbers and pointers, for which zero is a value.
                let mut id: Box<rdma_cm_id> = Box::new(unsafe { core::mem::zeroed() });
                id.qp = *qp;
                Box::into_raw(id)
            })
            .collect();
        // SAFETY: as above.
        let mut mr: Box<ibv_mr> = Box::new(unsafe { core::mem::zeroed() });
        mr.context = context;
        mr.addr = (&raw const PAYLOAD).cast_mut().cast();
        mr.length = size_of::<Payload>() as _;
        mr.lkey = 0x1234;
        mr.rkey = 0x4321;
        let requests: Vec<_> = (0..shape.round)
            .map(|i| Request {
                addr: mr.addr as u64 + u64::from(i) * LEN as u64,
                length: LEN as u32,
                lkey: mr.lkey,
                tag: (DOMAIN << 8) | LOCAL_WRITE,
                flags: if (i + 1) % shape.signal == 0 { SIGNALED } else { 0 },
                context: u64::from(i) + 1,
            })
            .collect();
        let setup = Box::new(Setup {
            qps: qps.as_mut_ptr().cast(),
            ids: ids.as_mut_ptr().cast(),
            cq: cq.cast(),
            mr: (&raw mut *mr).cast(),
            requests: requests.as_ptr(),
            nqps: shape.qps,
            per_round: shape.round,
            chain: shape.chain,
            batch: BATCH as u32,
            domain: DOMAIN,
            at: 0,
            section: provider.section,
        });
        let state = (entry.contender.open)(&raw const *setup);
        Self {
            provider,
            context,
            entry: entry.clone(),
            state,
            _setup: setup,
            _qps: qps,
            _ids: ids,
            _mr: mr,
            _requests: requests,
        }
    }

    pub(crate) fn entry(&self) -> &Entry {
        &self.entry
    }

    /// The sum of the contexts that came out.
    pub(crate) fn run(&self, rounds: u64) -> u64 {
        (self.entry.contender.run)(self.state, rounds)
    }

    /// Digests of what was posted: the addresses, and all the rest.
    pub(crate) fn digest(&self) -> (u64, u64) {
        let mut shape = 0;
        let addresses = (self.provider.digest)(self.context, &raw mut shape);
        (addresses, shape)
    }
}

impl Drop for Bed<'_> {
    fn drop(&mut self) {
        (self.entry.contender.close)(self.state);
        (self.provider.close)(self.context);
        for id in &self._ids {
            // SAFETY: boxed by `open`.
            drop(unsafe { Box::from_raw(*id) });
        }
    }
}

/// Every contender posts the same requests and brings the same contexts back, or the run fails.
pub(crate) fn check(provider: &Provider, entries: &[Entry]) {
    let post = Shape { qps: 3, ..Shape::new(Mode::Check) };
    check_as(provider, entries, post, |e| e.kind() == Kind::Post && !e.signals_all());
    let signaled = Shape { signal: 1, ..post };
    check_as(provider, entries, signaled, |e| e.kind() == Kind::Post);
    let alone = Shape { qps: 1, ..signaled };
    check_as(provider, entries, alone, |e| matches!(e.kind(), Kind::Post | Kind::Group));
    let recv = Shape { mode: Mode::RecvCheck, ..signaled };
    check_as(provider, entries, recv, |e| e.kind() == Kind::Recv);
}

fn check_as(
    provider: &Provider,
    entries: &[Entry],
    shape: Shape,
    has_part: impl Fn(&Entry) -> bool,
) {
    let mut first: Option<(String, (u64, u64))> = None;
    for entry in entries.iter().filter(|e| has_part(e)) {
        let bed = Bed::open(provider, entry, shape);
        let rounds = 100;
        let sum = bed.run(rounds);
        // 1 + … + 16 a round for who keeps a context a request, 16 for who keeps one a completion.
        let kept = shape.signal == 1 || !entry.keeps_last();
        assert_eq!(sum, rounds * if kept { 136 } else { 16 }, "contexts of {}", entry.label());
        let digest = bed.digest();
        match &first {
            None => first = Some((entry.label(), digest)),
            Some((other, expected)) => {
                assert_eq!(digest.1, expected.1, "{} and {other} differ", entry.label());
                if !entry.owns_memory() {
                    assert_eq!(digest.0, expected.0, "{} and {other} differ", entry.label());
                }
            }
        }
    }
}
