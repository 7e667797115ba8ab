//! The hot path allocates nothing: a counting allocator looks on.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;

use common::{domain, pool};
use nanoverbs_core::abi::{RecvWr, SendWr, Wc};
use nanoverbs_core::port::{PollPort, RecvPort, SendPort};
use nanoverbs_core::{
    Completions, RecvConfig, RecvQueue, RecvSlots, RecvStaging, Ring, SendConfig, SendQueue,
    SendSlots, SendStaging, op,
};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Completes whatever was posted, the last request first, as a device with no work to do.
#[derive(Clone, Copy)]
struct Echo<'a>(&'a Cell<(u64, u32)>);

// SAFETY: every request counts as ended once it has been polled.
unsafe impl SendPort for Echo<'_> {
    unsafe fn post_send(&mut self, mut first: *mut SendWr, _: &mut *mut SendWr) -> i32 {
        while !first.is_null() {
            // SAFETY: the queue's promise.
            let request = unsafe { &*first };
            self.0.set((request.wr_id, self.0.get().1 + 1));
            first = request.next;
        }
        0
    }
}

// SAFETY: as above.
unsafe impl RecvPort for Echo<'_> {
    unsafe fn post_recv(&mut self, first: *mut RecvWr, _: &mut *mut RecvWr) -> i32 {
        // SAFETY: the queue's promise.
        self.0.set((unsafe { (*first).wr_id }, 1));
        0
    }
}

// SAFETY: it completes the last request that was posted, once.
unsafe impl PollPort for Echo<'_> {
    fn poll(&mut self, into: &mut [Wc]) -> i32 {
        let (wr_id, count) = self.0.get();
        self.0.set((0, 0));
        if count > 0 {
            into[0] = Wc { wr_id, ..Wc::EMPTY };
        }
        i32::from(count > 0)
    }
}

#[test]
fn ten_thousand_rounds_of_everything_allocate_nothing() {
    let (sent, received) = (Cell::new((0, 0)), Cell::new((0, 0)));
    let (mut send_slots, mut recv_slots) = (SendSlots::<_, 64>::new(), RecvSlots::<_, 16>::new());
    let config = SendConfig::new(domain()).chain(16).max_inline(64);
    let mut sends = SendQueue::new(Echo(&sent), &mut send_slots, config).unwrap();
    let mut recvs =
        RecvQueue::new(Echo(&received), &mut recv_slots, RecvConfig::new(domain())).unwrap();
    sends.open();
    let mut completions = Completions::<_, 16>::new(Echo(&sent), 64);
    let mut arrivals = Completions::<_, 16>::new(Echo(&received), 64);
    let (mut staging, mut receiving) = (SendStaging::<16, 2>::new(), RecvStaging::<1, 2>::new());
    let (mut staging, mut receiving) = (staging.link(), receiving.link());
    let mut pool = pool(64, 64);
    let mut ring = Ring::<_, 64>::new();
    let (mut producer, mut consumer) = ring.split();

    let before = ALLOCATIONS.with(Cell::get);
    for round in 0..10_000 {
        let n = 1 + round % 16;
        let mut chain = sends.reserve(&mut staging, n).unwrap();
        for _ in 0..n {
            chain.push(op::Send::new(), pool.allocate().unwrap()).unwrap();
        }
        // A refusal is no reason to allocate either.
        assert!(chain.push(op::Send::new(), pool.allocate().unwrap()).is_err());
        chain.submit().unwrap();
        let mut chain = sends.reserve(&mut staging, 1).unwrap();
        chain.push_inline(op::Send::new().signaled(), pool.allocate().unwrap()).unwrap();
        chain.submit().unwrap();
        assert!(sends.reserve(&mut staging, 65).is_err());
        let mut chain = recvs.reserve(&mut receiving, 1).unwrap();
        chain.push(pool.allocate().unwrap()).unwrap();
        chain.submit().unwrap();
        for completion in completions.poll().unwrap() {
            sends.retire(completion).unwrap();
        }
        for completion in arrivals.poll().unwrap() {
            recvs.retire(completion).unwrap();
        }
        while let Some(ended) = sends.take() {
            producer.push(ended.context).unwrap();
        }
        while let Some(ended) = recvs.take() {
            black_box(ended.context.len());
        }
        consumer.drain(64).for_each(drop);
    }
    assert_eq!(ALLOCATIONS.with(Cell::get) - before, 0);
    drop(black_box(Box::new(1)));
    assert_eq!(ALLOCATIONS.with(Cell::get) - before, 1, "the allocator does count");
}
