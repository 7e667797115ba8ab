//! The hot path, one function a step, to look at: `tests/no_panic.rs` searches its object code for
//! panics, and `cargo rustc --release --example hot_path -- --emit=asm` shows what it became.
#![allow(missing_docs, clippy::missing_safety_doc, reason = "to be looked at, not called")]

use nanoverbs_core::abi::{RecvWr, SendWr, Wc};
use nanoverbs_core::port::{Datagrams, PollPort, RecvPort, SendPort};
use nanoverbs_core::{
    Block, Completion, Completions, Consumer, Counters, Datagram, Doorbell, Ended, Group, Part,
    Pool, Producer, RKey, Recorder, RecvLink, RecvQueue, RemoteRegion, Route, SendLink, SendQueue,
    SharedEnded, SharedRecvQueue, Turns, op,
};

/// A port as the adapter has it: an object and a function of a device.
#[derive(Debug)]
pub struct Port {
    object: *mut (),
    post_send: unsafe extern "C" fn(*mut (), *mut SendWr, *mut *mut SendWr) -> i32,
}

// SAFETY: this program is never run.
unsafe impl SendPort for Port {
    #[inline(always)]
    unsafe fn post_send(&mut self, first: *mut SendWr, bad: &mut *mut SendWr) -> i32 {
        // SAFETY: as above.
        unsafe { (self.post_send)(self.object, first, bad) }
    }
}

/// As [`Port`], for receives.
#[derive(Debug)]
pub struct ArrivalPort {
    object: *mut (),
    post_recv: unsafe extern "C" fn(*mut (), *mut RecvWr, *mut *mut RecvWr) -> i32,
}

// SAFETY: this program is never run.
unsafe impl RecvPort for ArrivalPort {
    #[inline(always)]
    unsafe fn post_recv(&mut self, first: *mut RecvWr, bad: &mut *mut RecvWr) -> i32 {
        // SAFETY: as above.
        unsafe { (self.post_recv)(self.object, first, bad) }
    }
}

/// As [`Port`], for polling.
#[derive(Debug)]
pub struct CompletionPort {
    object: *mut (),
    poll: unsafe extern "C" fn(*mut (), i32, *mut Wc) -> i32,
}

// SAFETY: this program is never run.
unsafe impl PollPort for CompletionPort {
    #[inline(always)]
    fn poll(&mut self, into: &mut [Wc]) -> i32 {
        // SAFETY: as above.
        unsafe { (self.poll)(self.object, into.len() as i32, into.as_mut_ptr()) }
    }
}

type Sends = SendQueue<'static, Port, Block, 64>;
type Recvs = RecvQueue<'static, ArrivalPort, Block, 64>;
type SharedRecvs = SharedRecvQueue<'static, ArrivalPort, Block, 64>;
type Parts = SendQueue<'static, Port, Part, 64>;
type DatagramSends = SendQueue<'static, Datagrams<Port>, Datagram, 64>;
type DatagramRecvs = RecvQueue<'static, Datagrams<ArrivalPort>, Datagram, 64>;

#[unsafe(no_mangle)]
pub fn hot_send_one(queue: &mut Sends, staging: &mut SendLink<'_, 16, 4>, block: Block) -> bool {
    let Ok(mut chain) = queue.reserve(staging, 1) else { return false };
    chain.push(op::Send::new(), block).is_ok() && chain.submit().is_ok()
}

#[unsafe(no_mangle)]
pub fn hot_send_chain(
    queue: &mut Sends,
    staging: &mut SendLink<'_, 16, 4>,
    pool: &mut Pool,
) -> bool {
    let Ok(mut chain) = queue.reserve(staging, 16) else { return false };
    for _ in 0..16 {
        let Some(block) = pool.allocate() else { break };
        if chain.push(op::Send::new(), block).is_err() {
            break;
        }
    }
    chain.submit().is_ok()
}

#[unsafe(no_mangle)]
pub fn hot_send_inline(queue: &mut Sends, staging: &mut SendLink<'_, 16, 4>, block: Block) -> bool {
    let Ok(mut chain) = queue.reserve(staging, 1) else { return false };
    chain.push_inline(op::Send::new(), block).is_ok() && chain.submit().is_ok()
}

#[unsafe(no_mangle)]
pub fn hot_read(
    queue: &mut Sends,
    staging: &mut SendLink<'_, 16, 4>,
    remote: &RemoteRegion,
    block: Block,
) -> bool {
    let Ok(mut chain) = queue.reserve(staging, 1) else { return false };
    chain.push(op::Read::new(*remote), block).is_ok() && chain.submit().is_ok()
}

#[unsafe(no_mangle)]
pub fn hot_write(
    queue: &mut Sends,
    staging: &mut SendLink<'_, 16, 4>,
    remote: &RemoteRegion,
    block: Block,
) -> bool {
    let Ok(mut chain) = queue.reserve(staging, 1) else { return false };
    chain.push(op::Write::new(*remote), block).is_ok() && chain.submit().is_ok()
}

#[unsafe(no_mangle)]
pub fn hot_fetch_add(
    queue: &mut Sends,
    staging: &mut SendLink<'_, 16, 4>,
    remote: &RemoteRegion,
    block: Block,
) -> bool {
    let Ok(mut chain) = queue.reserve(staging, 1) else { return false };
    chain.push(op::FetchAdd::new(*remote, 1), block).is_ok() && chain.submit().is_ok()
}

#[unsafe(no_mangle)]
pub fn hot_compare_swap(
    queue: &mut Parts,
    staging: &mut SendLink<'_, 16, 4>,
    remote: &RemoteRegion,
    part: Part,
) -> bool {
    let Ok(mut chain) = queue.reserve(staging, 1) else { return false };
    chain.push(op::CompareSwap::new(*remote, 0, 1), part).is_ok() && chain.submit().is_ok()
}

#[unsafe(no_mangle)]
pub fn hot_take_word(queue: &mut Parts) -> Option<u64> {
    queue.take()?.context.word()
}

#[unsafe(no_mangle)]
pub fn hot_invalidate(
    queue: &mut Sends,
    staging: &mut SendLink<'_, 16, 4>,
    key: RKey,
    blocks: [Block; 2],
) -> bool {
    let [first, second] = blocks;
    let Ok(mut chain) = queue.reserve(staging, 2) else { return false };
    chain.push(op::Invalidate::new(key), first).is_ok()
        && chain.push(op::Send::new().invalidate(key), second).is_ok()
        && chain.submit().is_ok()
}

#[unsafe(no_mangle)]
pub fn hot_datagram(
    queue: &mut DatagramSends,
    staging: &mut SendLink<'_, 16, 4>,
    peer: &op::Peer,
    datagram: Datagram,
) -> bool {
    let Ok(mut chain) = queue.reserve(staging, 1) else { return false };
    chain.push(op::Datagram::new(*peer), datagram).is_ok() && chain.submit().is_ok()
}

#[unsafe(no_mangle)]
pub fn hot_receive_datagram(
    queue: &mut DatagramRecvs,
    staging: &mut RecvLink<'_, 16, 4>,
    datagram: Datagram,
) -> bool {
    let Ok(mut chain) = queue.reserve(staging, 1) else { return false };
    chain.push(datagram).is_ok() && chain.submit().is_ok()
}

#[unsafe(no_mangle)]
pub fn hot_take_datagram(queue: &mut DatagramRecvs, into: &mut [u8; 64]) -> usize {
    let Some(ended) = queue.take() else { return 0 };
    let Some(success) = ended.outcome.success() else { return 0 };
    let payload = ended.context.payload(success);
    into.iter_mut().zip(payload).for_each(|(to, from)| *to = *from);
    payload.len()
}

#[unsafe(no_mangle)]
pub fn hot_receive_shared(
    queue: &mut SharedRecvs,
    staging: &mut RecvLink<'_, 16, 4>,
    pool: &mut Pool,
) -> bool {
    let Ok(mut chain) = queue.reserve(staging, 16) else { return false };
    for _ in 0..16 {
        let Some(block) = pool.allocate() else { break };
        if chain.push(block).is_err() {
            break;
        }
    }
    chain.submit().is_ok()
}

#[unsafe(no_mangle)]
pub fn hot_poll_shared(
    completions: &mut Completions<CompletionPort>,
    shared: &mut SharedRecvs,
) -> usize {
    let mut strays = 0;
    let Ok(batch) = completions.poll() else { return usize::MAX };
    for completion in batch {
        strays = usize::wrapping_add(strays, usize::from(shared.retire(completion).is_err()));
    }
    strays
}

#[unsafe(no_mangle)]
pub fn hot_take_shared(queue: &mut SharedRecvs) -> Option<SharedEnded<Block>> {
    queue.take()
}

#[unsafe(no_mangle)]
pub fn hot_receive(queue: &mut Recvs, staging: &mut RecvLink<'_, 16, 4>, block: Block) -> bool {
    let Ok(mut chain) = queue.reserve(staging, 1) else { return false };
    chain.push(block).is_ok() && chain.submit().is_ok()
}

#[unsafe(no_mangle)]
pub fn hot_poll(
    completions: &mut Completions<CompletionPort>,
    sends: &mut Sends,
    recvs: &mut Recvs,
) -> usize {
    let mut strays = 0;
    let Ok(batch) = completions.poll() else { return usize::MAX };
    for completion in batch {
        let stray = if completion.is_recv() {
            recvs.retire(completion).is_err()
        } else {
            sends.retire(completion).is_err()
        };
        strays = usize::wrapping_add(strays, usize::from(stray));
    }
    strays
}

#[unsafe(no_mangle)]
pub fn hot_take_sent(queue: &mut Sends) -> Option<Ended<Block>> {
    queue.take()
}

#[unsafe(no_mangle)]
pub fn hot_take_received(queue: &mut Recvs) -> Option<Ended<Block>> {
    queue.take()
}

#[unsafe(no_mangle)]
pub fn hot_hand_over(producer: &mut Producer<'_, Completion, 64>, completion: Completion) -> bool {
    producer.push(completion).is_ok()
}

#[unsafe(no_mangle)]
pub fn hot_take_over(consumer: &mut Consumer<'_, u64, 64>) -> u64 {
    consumer.drain(16).fold(0, u64::wrapping_add)
}

#[unsafe(no_mangle)]
pub fn hot_route(group: &mut Group<4096>, completion: &Completion) -> usize {
    match group.route(completion) {
        Route::Send(index) => index,
        Route::Recv(index) => usize::wrapping_add(index, 4096),
        Route::Stale => usize::MAX,
    }
}

#[unsafe(no_mangle)]
pub fn hot_turn(turns: &mut Turns<4096>, index: usize, queue: &mut Recvs) -> usize {
    turns.ready(index);
    turns.round(|_| queue.take().is_some())
}

#[unsafe(no_mangle)]
pub fn hot_signals(bell: &Doorbell, counters: &Counters, recorder: &mut Recorder, n: u64) -> bool {
    counters.polled(n as usize);
    counters.turned(n as usize);
    recorder.record(n);
    bell.ring()
}

/// What the search must find, when it is asked for.
#[cfg(with_a_panic)]
#[unsafe(no_mangle)]
pub fn hot_panic(values: &[u8], at: usize) -> u8 {
    values[at]
}
