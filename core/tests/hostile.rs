//! Safe code that means harm: what is forgotten, what panics in the middle, what comes back late.

mod common;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use common::{Device, recv_queue, send_config, send_queue};
use nanoverbs_core::abi::{SendWr, send_flags};
use nanoverbs_core::port::{Datagrams, SendPort};
use nanoverbs_core::soft::{self, QpConfig};
use nanoverbs_core::{
    Access, Completions, RecvConfig, RecvQueue, RecvStaging, Ring, SendConfig, SendQueue,
    SendSlots, SendStaging, SharedRecvQueue, SharedRecvSlots, op,
};

/// Counts its drops, and panics where it is told to.
struct Bomb {
    drops: Rc<Cell<u32>>,
    in_drop: bool,
    in_as_ref: bool,
}

impl Bomb {
    fn new(drops: &Rc<Cell<u32>>) -> Self {
        Self { drops: drops.clone(), in_drop: false, in_as_ref: false }
    }

    fn in_drop(mut self, yes: bool) -> Self {
        self.in_drop = yes;
        self
    }
}

impl AsRef<[u8]> for Bomb {
    fn as_ref(&self) -> &[u8] {
        assert!(!self.in_as_ref, "as it was told");
        b"bomb"
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        self.drops.set(self.drops.get() + 1);
        assert!(!self.in_drop, "as it was told");
    }
}

fn panics<R>(work: impl FnOnce() -> R) {
    assert!(catch_unwind(AssertUnwindSafe(|| drop(work()))).is_err());
}

type Sends = SendQueue<'static, Device, Bomb, 16>;

fn bed() -> (Device, Sends, SendStaging<4, 1>, Rc<Cell<u32>>) {
    let device = Device::default();
    let queue = send_queue(&device, send_config());
    (device, queue, SendStaging::new(), Rc::default())
}

#[test]
fn a_value_of_a_forgotten_drain_is_not_taken_again() {
    let value = Rc::new(());
    let mut ring = Ring::<_, 4>::new();
    let (mut producer, mut consumer) = ring.split();
    for _ in 0..3 {
        producer.push(value.clone()).unwrap();
    }
    let mut drain = consumer.drain(2);
    let first = drain.next().unwrap();
    std::mem::forget(drain);
    assert_eq!(consumer.len(), 2);
    let second = consumer.pop().unwrap();
    drop((first, second));
    assert_eq!(Rc::strong_count(&value), 2);
    assert_eq!(producer.room(), 3, "the slot of the forgotten drain is given up as well");
    std::mem::forget(consumer.drain(1).map(drop).collect::<Vec<_>>());
    let mut drain = consumer.drain(1);
    assert!(drain.next().is_none());
    std::mem::forget(drain);
    drop(ring);
    assert_eq!(Rc::strong_count(&value), 1);
}

#[test]
fn a_value_that_left_a_forgotten_drain_is_not_dropped_with_the_ring() {
    let value = Rc::new(());
    let mut ring = Ring::<_, 4>::new();
    let (mut producer, mut consumer) = ring.split();
    producer.push(value.clone()).unwrap();
    producer.push(value.clone()).unwrap();
    let mut drain = consumer.drain(2);
    let kept = drain.next().unwrap();
    std::mem::forget(drain);
    assert_eq!(ring.split().1.len(), 1);
    drop(ring);
    assert_eq!(Rc::strong_count(&value), 2);
    drop(kept);
}

#[test]
fn a_forgotten_grant_hands_nothing_over() {
    let mut ring = Ring::<_, 4>::new();
    let (mut producer, mut consumer) = ring.split();
    let mut grant = producer.reserve(3).unwrap();
    grant.write(1).unwrap();
    std::mem::forget(grant);
    assert!(consumer.pop().is_none());
    producer.push(2).unwrap();
    assert_eq!((consumer.pop(), consumer.pop()), (Some(2), None));
}

#[test]
fn a_context_whose_bytes_cannot_be_had_is_dropped_once_and_the_chain_goes_on() {
    let (device, mut queue, mut staging, drops) = bed();
    let mut link = staging.link();
    let mut chain = queue.reserve(&mut link, 2).unwrap();
    let mut bomb = Bomb::new(&drops);
    bomb.in_as_ref = true;
    panics(|| chain.push_inline(op::Send::new(), bomb));
    assert_eq!((drops.get(), chain.len()), (1, 0));
    chain.push_inline(op::Send::new(), Bomb::new(&drops)).unwrap();
    chain.submit().unwrap();
    assert_eq!((drops.get(), &device.sends()[0].bytes[..]), (1, &b"bomb"[..]));
    device.complete(device.sends()[0].wr_id, 0);
    let mut completions = Completions::<_, 4>::new(device, 8);
    completions.poll().unwrap().for_each(|completion| drop(queue.retire(completion)));
    drop(queue);
    assert_eq!(drops.get(), 2);
}

/// Panics once, and then notes which requests are signaled.
struct Panicking(Option<Vec<bool>>);

// SAFETY: it keeps nothing but flags.
unsafe impl SendPort for Panicking {
    unsafe fn post_send(&mut self, mut first: *mut SendWr, _: &mut *mut SendWr) -> i32 {
        let notes = self.0.get_or_insert_default();
        while !first.is_null() {
            // SAFETY: the queue's promise.
            let request = unsafe { &*first };
            notes.push(request.send_flags & send_flags::SIGNALED != 0);
            first = request.next;
        }
        assert!(notes.len() > 1, "as it was told");
        0
    }
}

#[test]
fn behind_a_port_that_panicked_nothing_is_free_and_the_next_request_is_signaled() {
    let mut slots = SendSlots::<(), 16>::new();
    let mut queue = SendQueue::new(Panicking(None), &mut slots, send_config()).unwrap();
    queue.open();
    let mut staging = SendStaging::<4, 1>::new();
    let mut link = staging.link();
    for panicked in [false, true] {
        let mut chain = queue.reserve(&mut link, 1).unwrap();
        chain.push(op::Send::new(), ()).unwrap();
        match panicked {
            false => panics(|| chain.submit().map_err(drop)),
            true => assert_eq!(chain.submit().unwrap(), 1),
        }
        assert_eq!(queue.in_flight(), 1 + u32::from(panicked));
    }
    assert_eq!(queue.port().0.as_deref(), Some(&[false, true][..]));
}

#[test]
fn a_panic_on_the_way_out_of_a_chain_loses_no_context() {
    let (_, mut queue, mut staging, drops) = bed();
    let mut link = staging.link();
    let mut chain = queue.reserve(&mut link, 3).unwrap();
    for at in 0..3 {
        let bomb = Bomb::new(&drops).in_drop(at == 1);
        chain.push_inline(op::Send::new(), bomb).unwrap();
    }
    panics(|| drop(chain));
    assert_eq!(drops.get(), 3);
    let mut chain = queue.reserve(&mut link, 3).unwrap();
    for _ in 0..3 {
        chain.push_inline(op::Send::new(), Bomb::new(&drops)).unwrap();
    }
    panics(|| chain.into_contexts(|_| panic!("as it was told")));
    assert_eq!((drops.get(), queue.in_flight()), (6, 0));
}

#[test]
fn a_panic_in_the_drop_of_a_queue_loses_no_context_that_has_ended() {
    let (device, mut queue, mut staging, drops) = bed();
    let mut link = staging.link();
    let mut chain = queue.reserve(&mut link, 3).unwrap();
    for at in 0..3 {
        let bomb = Bomb::new(&drops).in_drop(at == 0);
        chain.push_inline(op::Send::new().signaled(), bomb).unwrap();
    }
    chain.submit().unwrap();
    device.sends().iter().for_each(|sent| device.complete(sent.wr_id, 0));
    let mut completions = Completions::<_, 4>::new(device, 8);
    completions.poll().unwrap().for_each(|completion| drop(queue.retire(completion)));
    panics(|| drop(queue));
    assert_eq!(drops.get(), 3);
}

#[test]
fn a_panic_on_the_way_out_of_a_shared_queue_or_its_chain_loses_no_context() {
    let (device, _, _, drops) = bed();
    let slots = Box::leak(Box::new(SharedRecvSlots::<((), Bomb), 4>::new()));
    let config = RecvConfig::new(common::domain());
    let mut queue = SharedRecvQueue::new(device.clone(), slots, config).unwrap();
    let mut staging = RecvStaging::<3, 1>::new();
    let mut link = staging.link();
    macro_rules! chain {
        ($first_panics:literal) => {{
            let mut chain = queue.reserve(&mut link, 3).unwrap();
            for at in 0..3 {
                chain.push(((), Bomb::new(&drops).in_drop(at == 0 && $first_panics))).unwrap();
            }
            chain
        }};
    }
    panics(|| drop(chain!(true)));
    assert_eq!((drops.get(), queue.free()), (3, 4));
    let chain = chain!(false);
    panics(|| chain.into_contexts(|_| panic!("as it was told")));
    assert_eq!((drops.get(), queue.free()), (6, 4));
    chain!(true).submit().unwrap();
    device.recvs().iter().for_each(|posted| device.arrive(posted.wr_id, 0));
    let mut completions = Completions::<_, 4>::new(device, 8);
    completions.poll().unwrap().for_each(|completion| drop(queue.retire(completion)));
    panics(|| drop(queue));
    assert_eq!(drops.get(), 9);
}

#[test]
fn a_forgotten_chain_leaks_its_contexts_and_leaves_no_trace() {
    let (device, mut queue, mut staging, drops) = bed();
    let mut link = staging.link();
    for _ in 0..20 {
        let mut chain = queue.reserve(&mut link, 3).unwrap();
        chain.push_inline(op::Send::new(), Bomb::new(&drops)).unwrap();
        std::mem::forget(chain);
    }
    assert_eq!((queue.in_flight(), queue.free(), device.calls()), (0, 16, 0));
    let mut chain = queue.reserve(&mut link, 4).unwrap();
    for _ in 0..4 {
        chain.push_inline(op::Send::new(), Bomb::new(&drops)).unwrap();
    }
    assert_eq!((chain.submit().unwrap(), device.sends().len(), drops.get()), (4, 4, 0));
}

#[test]
fn queues_and_links_may_be_swapped() {
    let device = Device::default();
    let mut one = send_queue::<u64, 4>(&device, send_config());
    let mut other = send_queue::<u64, 4>(&device, send_config());
    let (mut first, mut second) = (SendStaging::<2, 1>::new(), SendStaging::<2, 1>::new());
    let (mut first, mut second) = (first.link(), second.link());
    for turn in 0..4_u64 {
        let mut chain = one.reserve(&mut first, 1).unwrap();
        // SAFETY: no memory is named.
        unsafe { chain.push_raw(op::Send::new().signaled(), &[], turn) }.unwrap();
        chain.submit().unwrap();
        std::mem::swap(&mut one, &mut other);
        std::mem::swap(&mut first, &mut second);
    }
    device.sends().iter().for_each(|sent| device.complete(sent.wr_id, 0));
    let mut completions = Completions::<_, 4>::new(device, 8);
    for completion in completions.poll().unwrap() {
        let queue = if completion.serial() == one.serial() { &mut one } else { &mut other };
        assert_eq!(queue.retire(completion).unwrap(), 1);
    }
    let taken = |queue: &mut SendQueue<'_, _, u64, 4>| [queue.take(), queue.take()];
    assert_eq!(taken(&mut one).map(|ended| ended.unwrap().context), [0, 2]);
    assert_eq!(taken(&mut other).map(|ended| ended.unwrap().context), [1, 3]);
}

#[test]
fn storage_that_is_used_again_believes_no_completion_of_its_first_queue() {
    let device = Device::default();
    let mut staging = RecvStaging::<2, 1>::new();
    let mut link = staging.link();
    let mut queue = recv_queue::<u64, 2>(&device);
    let mut post = |queue: &mut RecvQueue<'_, Device, u64, 2>, context| {
        let mut chain = queue.reserve(&mut link, 1).unwrap();
        // SAFETY: no memory is named.
        unsafe { chain.push_raw(&[], context) }.unwrap();
        chain.submit().unwrap();
    };
    post(&mut queue, 1);
    let id = device.recvs()[0].wr_id;
    // A device that repeats itself: the second is kept by the program, and shown to the next queue.
    device.arrive(id, 0);
    device.arrive(id, 0);
    let mut completions = Completions::<_, 4>::new(device.clone(), 8);
    let [first, kept] = completions.poll().unwrap().collect::<Vec<_>>().try_into().unwrap();
    queue.retire(first).unwrap();
    assert_eq!(queue.take().unwrap().context, 1);
    let (port, slots) = queue.into_storage().unwrap();
    let config = RecvConfig::new(common::domain());
    let mut queue = RecvQueue::new(port, slots, config).unwrap();
    post(&mut queue, 2);
    assert!(queue.retire(kept).is_err());
    assert_eq!((queue.in_flight(), queue.ended()), (1, 0));
}

#[test]
fn a_shared_queue_does_not_take_a_completion_that_comes_twice_for_that_of_a_later_receive() {
    let device = Device::default();
    let slots = Box::leak(Box::new(SharedRecvSlots::<((), u64), 2>::new()));
    let config = RecvConfig::new(common::domain());
    let mut queue = SharedRecvQueue::new(device.clone(), slots, config).unwrap();
    let mut staging = RecvStaging::<2, 1>::new();
    let mut link = staging.link();
    let mut completions = Completions::<_, 4>::new(device.clone(), 8);
    for turn in 0..4 {
        let mut chain = queue.reserve(&mut link, 1).unwrap();
        chain.push(((), turn)).unwrap();
        chain.submit().unwrap();
        // The same slot each time, and an id of its own: the earlier ones end nothing.
        let (last, earlier) = device.recvs().split_last().map(|(a, b)| (a.wr_id, b.len())).unwrap();
        device.recvs().iter().for_each(|posted| device.arrive(posted.wr_id, 0));
        device.arrive(last, 0);
        let retired = (0..).map_while(|_| {
            let completion = completions.poll().unwrap().next()?;
            Some(queue.retire(completion).is_ok())
        });
        let expected: Vec<_> = (0..earlier + 2).map(|at| at == earlier).collect();
        assert_eq!(retired.collect::<Vec<_>>(), expected);
        assert_eq!(queue.take().unwrap().context.1, turn);
    }
    assert_eq!((queue.in_flight(), queue.ended()), (0, 0));
}

#[test]
fn a_message_through_the_wrong_kind_of_port_goes_nowhere_and_reads_nothing_that_was_not_written() {
    let device: &'static soft::Device<2, 4> = Box::leak(Box::new(soft::Device::new()));
    let domain = device.domain();
    let queue = device.completion_queue(8).unwrap();
    // A datagram queue pair, and a queue that takes it for a connected one.
    let pair = device.queue_pair(QpConfig::new(domain).datagram(1), &queue, &queue).unwrap();
    let mut slots = SendSlots::<(), 4>::new();
    let mut sends = SendQueue::new(pair.send, &mut slots, SendConfig::new(domain)).unwrap();
    sends.open();
    let mut staging = SendStaging::<1, 1>::new();
    let mut link = staging.link();
    let mut chain = sends.reserve(&mut link, 1).unwrap();
    chain.push(op::Write::new(common::remote(8)), ()).unwrap();
    assert!(chain.submit().is_err(), "no operation of datagrams");
    let mut chain = sends.reserve(&mut link, 1).unwrap();
    chain.push(op::Send::new().signaled(), ()).unwrap();
    chain.submit().unwrap();
    let mut completions = Completions::<_, 4>::new(queue, 8);
    let completion = completions.poll().unwrap().next().unwrap();
    assert_eq!(sends.retire(completion).unwrap(), 1);
    assert!(sends.take().unwrap().outcome.is_done());
}

#[test]
fn one_set_of_arrays_serves_queues_of_every_kind_and_nothing_of_one_request_shows_in_the_next() {
    let device: &'static soft::Device<3, 4> = Box::leak(Box::new(soft::Device::new()));
    let domain = device.domain();
    let all = Access::LOCAL_WRITE.with(Access::REMOTE_WRITE).with(Access::REMOTE_ATOMIC);
    let region = device.register_shared(domain, Box::leak(Box::new([0; 8])), all).unwrap();
    let queue = device.completion_queue(16).unwrap();
    let connected = device.queue_pair(QpConfig::new(domain), &queue, &queue).unwrap();
    connected.control.connect(&connected.control).unwrap();
    let datagrams = QpConfig::new(domain).datagram(1);
    let datagrams = device.queue_pair(datagrams, &queue, &queue).unwrap();
    let peer = device.peer(domain, datagrams.control.number(), 1);
    let config = SendConfig::new(domain).reads(4).max_inline(8);
    let (mut slots, mut other_slots) = (SendSlots::<Bytes, 4>::new(), SendSlots::<Bytes, 4>::new());
    let mut connected = SendQueue::new(connected.send, &mut slots, config).unwrap();
    let mut unconnected =
        SendQueue::new(Datagrams::new(datagrams.send), &mut other_slots, config).unwrap();
    let mut completions = Completions::<_, 4>::new(queue, 16);
    let mut staging = SendStaging::<1, 1>::new();
    let mut link = staging.link();
    connected.open();
    unconnected.open();
    for turn in 1..=4_u64 {
        let bytes = Bytes(turn.to_ne_bytes());
        let write = op::Write::new(region.advertise().at(8 * turn, 8).unwrap()).signaled();
        let mut chain = connected.reserve(&mut link, 1).unwrap();
        chain.push_inline(write, bytes).unwrap();
        chain.submit().unwrap();
        // Nobody has a receive, so it goes nowhere, and ends well.
        let mut chain = unconnected.reserve(&mut link, 1).unwrap();
        chain.push_inline(op::Datagram::new(peer).signaled(), bytes).unwrap();
        chain.submit().unwrap();
        for completion in (0..4).flat_map(|_| completions.poll().unwrap().collect::<Vec<_>>()) {
            match completion.serial() == connected.serial() {
                true => connected.retire(completion).unwrap(),
                false => unconnected.retire(completion).unwrap(),
            };
        }
        assert!(connected.take().unwrap().outcome.is_done());
        assert!(unconnected.take().unwrap().outcome.is_done());
        let mut written = [0; 8];
        region.read_at(8 * turn as usize, &mut written).unwrap();
        assert_eq!(u64::from_ne_bytes(written), turn);
    }
}

/// Bytes that travel inline.
#[derive(Clone, Copy)]
struct Bytes([u8; 8]);

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
