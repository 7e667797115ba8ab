//! What the tests share: a pair of queue pairs on a small device, and requests.

use super::std::sync::Mutex;
use super::std::vec::Vec;

use crate::abi::{LKey, RKey, RdmaTarget, RecvWr, SendWr, Sge, Target, Wc, opcode, send_flags};
use crate::port::{PollPort, RecvPort, SendPort};
use crate::region::{Domain, Region, SharedRegion};
use crate::soft::{CompletionQueue, Device, Profile, QpConfig, QueuePair, RecvEnd, SendEnd};
use crate::{Access, Slice};

pub(super) type Dev = Device<4, 8>;
pub(super) type Queue<'d> = CompletionQueue<'d, 4, 8>;
pub(super) type Qp<'d> = QueuePair<'d, 4, 8>;

pub(super) const SIGNALED: u32 = send_flags::SIGNALED;
pub(super) const ALL: Access = Access::LOCAL_WRITE
    .with(Access::REMOTE_READ)
    .with(Access::REMOTE_WRITE)
    .with(Access::REMOTE_ATOMIC);

struct Kept(#[expect(dead_code, reason = "keeps the memory reachable")] *mut u64);
// SAFETY: nobody follows the pointer.
unsafe impl Send for Kept {}

/// Memory for ever, which a leak checker still sees.
pub(super) fn words(count: usize) -> &'static mut [u64] {
    static KEPT: Mutex<Vec<Kept>> = Mutex::new(Vec::new());
    let raw = super::std::boxed::Box::into_raw(super::std::vec![0_u64; count].into_boxed_slice());
    KEPT.lock().unwrap().push(Kept(raw.cast()));
    // SAFETY: it is never freed, and this is the only reference.
    unsafe { &mut *raw }
}

/// Bytes for ever, filled with `fill`.
pub(super) fn bytes(count: usize, fill: u8) -> &'static mut [u8] {
    let words = words(count.div_ceil(8));
    // SAFETY: the words are as long, and the reference to them ends here.
    let bytes = unsafe { core::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), count) };
    bytes.fill(fill);
    bytes
}

pub(super) fn read(slice: Slice) -> Vec<u8> {
    // SAFETY: the tests read private memory when no request is in flight.
    unsafe { core::slice::from_raw_parts(slice.addr().as_ptr(), slice.len() as usize) }.to_vec()
}

/// Two connected queue pairs, a completion queue for each, and a region of 4096 private bytes: the
/// first half is filled with 1, the second with 2.
pub(super) struct Bed<'d> {
    pub(super) device: &'d Dev,
    pub(super) domain: Domain,
    pub(super) a: Qp<'d>,
    pub(super) b: Qp<'d>,
    pub(super) at_a: Queue<'d>,
    pub(super) at_b: Queue<'d>,
    pub(super) region: Region,
}

impl<'d> Bed<'d> {
    pub(super) fn new(device: &'d Dev) -> Self {
        Self::with(device, |config| config)
    }

    pub(super) fn with(device: &'d Dev, change: impl Fn(QpConfig) -> QpConfig) -> Self {
        let bed = Self::unconnected(device, change);
        bed.a.control.connect(&bed.b.control).unwrap();
        bed
    }

    pub(super) fn unconnected(device: &'d Dev, change: impl Fn(QpConfig) -> QpConfig) -> Self {
        let domain = device.domain();
        let at_a = device.completion_queue(16).unwrap();
        let at_b = device.completion_queue(16).unwrap();
        let config = change(QpConfig::new(domain));
        let a = device.queue_pair(config, &at_a, &at_a).unwrap();
        let b = device.queue_pair(config, &at_b, &at_b).unwrap();
        let memory = bytes(4096, 1);
        memory[2048..].fill(2);
        let region = device.register(domain, memory).unwrap();
        Self { device, domain, a, b, at_a, at_b, region }
    }

    pub(super) fn slice(&self, offset: usize, len: usize) -> Slice {
        self.region.slice(offset, len).unwrap()
    }

    pub(super) fn sge(&self, offset: usize, len: usize) -> Sge {
        piece(self.slice(offset, len))
    }

    pub(super) fn shared(&self, count: usize) -> SharedRegion {
        self.device.register_shared(self.domain, words(count), ALL).unwrap()
    }

    /// Posts a send of `len` bytes of the first half.
    pub(super) fn send(&mut self, id: u64, len: usize, flags: u32) -> i32 {
        let list = [self.sge(0, len)];
        post(&mut self.a.send, &mut [send_wr(id, opcode::SEND, &list, flags)]).0
    }

    /// Posts a receive of `len` bytes into the second half.
    pub(super) fn receive(&mut self, id: u64, len: usize) -> i32 {
        let list = [self.sge(2048, len)];
        post_recv(&mut self.b.recv, &mut [recv_wr(id, &list)]).0
    }

    pub(super) fn steps(&self, count: usize) {
        for _ in 0..count {
            self.device.progress();
        }
    }

    pub(super) fn ids_and_statuses_at_a(&mut self) -> Vec<(u64, u32)> {
        ids_and_statuses(&mut self.at_a)
    }

    pub(super) fn ids_and_statuses_at_b(&mut self) -> Vec<(u64, u32)> {
        ids_and_statuses(&mut self.at_b)
    }
}

pub(super) fn device(profile: Profile) -> Dev {
    Device::with_profile(profile)
}

pub(super) fn piece(slice: Slice) -> Sge {
    Sge::new(slice.addr().as_ptr(), slice.len(), slice.lkey())
}

pub(super) fn send_wr(id: u64, op: u32, list: &[Sge], flags: u32) -> SendWr {
    SendWr {
        wr_id: id,
        opcode: op,
        sg_list: list.as_ptr().cast_mut(),
        num_sge: list.len() as i32,
        send_flags: flags,
        ..SendWr::EMPTY
    }
}

pub(super) fn rdma_wr(id: u64, op: u32, list: &[Sge], to: (u64, RKey)) -> SendWr {
    let target = Target { rdma: RdmaTarget::new(to.0, to.1) };
    SendWr { target, ..send_wr(id, op, list, SIGNALED) }
}

pub(super) fn recv_wr(id: u64, list: &[Sge]) -> RecvWr {
    RecvWr {
        wr_id: id,
        sg_list: list.as_ptr().cast_mut(),
        num_sge: list.len() as i32,
        ..RecvWr::EMPTY
    }
}

/// Where a peer finds the byte at `offset` of a region.
pub(super) fn remote(region: &SharedRegion, offset: u64) -> (u64, RKey) {
    let it = region.advertise();
    (it.addr() + offset, it.rkey())
}

/// Links the requests and posts them; the code, and which one was bad.
pub(super) fn post(end: &mut SendEnd<'_, 8>, requests: &mut [SendWr]) -> (i32, Option<usize>) {
    let base = requests.as_mut_ptr();
    for at in 1..requests.len() {
        // SAFETY: both are in the slice.
        unsafe { (*base.add(at - 1)).next = base.add(at) };
    }
    let mut bad = core::ptr::null_mut();
    // SAFETY: the chain is linked and ends with null; its memory is for ever.
    let code = unsafe { end.post_send(base, &mut bad) };
    (code, (0..requests.len()).find(|&at| base.wrapping_add(at) == bad))
}

pub(super) fn post_recv(end: &mut RecvEnd<'_, 8>, requests: &mut [RecvWr]) -> (i32, Option<usize>) {
    let base = requests.as_mut_ptr();
    for at in 1..requests.len() {
        // SAFETY: both are in the slice.
        unsafe { (*base.add(at - 1)).next = base.add(at) };
    }
    let mut bad = core::ptr::null_mut();
    // SAFETY: the chain is linked and ends with null; its memory is for ever.
    let code = unsafe { end.post_recv(base, &mut bad) };
    (code, (0..requests.len()).find(|&at| base.wrapping_add(at) == bad))
}

/// Polls until nothing comes.
pub(super) fn poll(queue: &mut Queue<'_>) -> Vec<Wc> {
    let mut all = Vec::new();
    let mut some = [Wc::EMPTY; 3];
    // A poll that finds nothing drives the device once; a request may take a few turns.
    let mut idle = 0;
    while idle < 4 {
        match queue.poll(&mut some) {
            count if count > 0 => all.extend_from_slice(&some[..count as usize]),
            _ => idle += 1,
        }
    }
    all
}

pub(super) fn ids_and_statuses(queue: &mut Queue<'_>) -> Vec<(u64, u32)> {
    poll(queue).iter().map(|wc| (wc.wr_id, wc.status)).collect()
}

pub(super) const NO_KEY: LKey = LKey::from_raw(0);
