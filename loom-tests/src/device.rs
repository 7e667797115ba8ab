//! A device that does every request at once, for models of what lies between it and the threads.
//!
//! A [`Wire`] belongs to a send queue, on its thread; what is done goes through a ring to the
//! [`Cq`], on the thread that polls. It keeps the promises of the ports, and sees to it that the
//! queues keep theirs: a completion that does not fit is an overrun, and panics.

use nanoverbs_core::abi::{SendWr, Wc, send_flags};
use nanoverbs_core::port::{PollPort, SendPort};
use nanoverbs_core::{
    Consumer, Domain, Producer, SendBuffers, SendConfig, SendQueue, SendSeat, SendSlots,
    SendStaging, op,
};

/// Where a send queue posts. `N` is the size of the completion queue behind it.
#[derive(Debug)]
pub struct Wire<const N: usize> {
    done: Producer<'static, Wc, N>,
    /// The status of the next completions.
    pub status: u32,
    /// The ids that were posted, in order.
    pub posted: Vec<u64>,
}

impl<const N: usize> Wire<N> {
    /// A wire into a completion queue.
    pub fn new(done: Producer<'static, Wc, N>) -> Self {
        Self { done, status: 0, posted: Vec::new() }
    }
}

// SAFETY: it takes every chain whole and is done with it before it returns; each signaled request
// has one completion, in the order of the posts.
unsafe impl<const N: usize> SendPort for Wire<N> {
    unsafe fn post_send(&mut self, first: *mut SendWr, _: &mut *mut SendWr) -> i32 {
        let mut at = first;
        while !at.is_null() {
            // SAFETY: the queue promises a valid chain that ends with null.
            let request = unsafe { &*at };
            self.posted.push(request.wr_id);
            if request.send_flags & send_flags::SIGNALED != 0 {
                let wc = Wc { wr_id: request.wr_id, status: self.status, ..Wc::EMPTY };
                self.done.push(wc).expect("the completion queue is overrun");
            }
            at = request.next;
        }
        0
    }
}

/// A completion queue behind so many wires.
#[derive(Debug)]
pub struct Cq<const WIRES: usize, const N: usize>(pub [Consumer<'static, Wc, N>; WIRES]);

// SAFETY: a ring gives what was pushed once, in order.
unsafe impl<const WIRES: usize, const N: usize> PollPort for Cq<WIRES, N> {
    fn poll(&mut self, into: &mut [Wc]) -> i32 {
        let (mut at, free) = (0, into.len());
        for wire in &mut self.0 {
            for wc in wire.drain(free - at) {
                into[at] = wc;
                at += 1;
            }
        }
        at as i32
    }
}

/// A send queue without memory of its own, open, for one request at a time.
#[derive(Debug)]
pub struct Desk<C: 'static, const N: usize> {
    /// The queue.
    pub queue: SendQueue<'static, Wire<N>, ((), C), 2>,
    staging: SendStaging<1, 1>,
}

impl<C: 'static, const N: usize> Desk<C, N> {
    /// A queue that posts into `wire` with the identity of `seat`.
    pub fn new(wire: Wire<N>, seat: SendSeat) -> Self {
        let slots = Box::leak(Box::new(SendSlots::new()));
        let config = SendConfig::new(Domain::from_raw(1));
        let mut queue = SendQueue::with_seat(wire, slots, config, seat).unwrap();
        queue.open();
        Self { queue, staging: SendStaging::new() }
    }

    /// Posts a message without bytes.
    pub fn post(&mut self, context: C)
    where
        ((), C): SendBuffers,
    {
        let mut staging = self.staging.link();
        let mut chain = self.queue.reserve(&mut staging, 1).unwrap();
        chain.push(op::Send::new().signaled(), ((), context)).unwrap();
        assert_eq!(chain.submit().unwrap(), 1);
    }
}
