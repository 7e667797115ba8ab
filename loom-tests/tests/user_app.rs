//! A program on top of the library, and the proof that it sends no order twice.
//!
//! This is how a user would do it, with the public API alone. A strategy thread decides; a polling
//! thread, the gateway, owns the queues. Orders and cancels go over in one ring, reports come back
//! in another. An order that is cancelled while it waits in the gateway is never sent; one that has
//! gone out is reported as sent. Whatever the two threads do meanwhile, each order has one report,
//! and the exchange has seen it once if it was sent and never if it was cancelled.
//!
//! The exchange is the other end of a queue pair of the software device, which runs under loom too.
//! Without `--cfg loom` the same code runs on real threads.
//!
//! Mutation notes. What makes the model fail:
//!
//! * the release in `Grant::commit` of the rings, relaxed: a command is read before it is written;
//! * the release in `Stop::request`, relaxed: the gateway ends with orders still on their way to
//!   it;
//! * a strategy that sends an order again because it has not heard of it: the second test is this
//!   one.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use nanoverbs_core::soft::{CompletionQueue, Device, QpConfig, RecvEnd, SendEnd};
use nanoverbs_core::{
    Completions, Consumer, Producer, RecvConfig, RecvQueue, RecvSlots, RecvStaging, Ring,
    SendConfig, SendQueue, SendSlots, SendStaging, Stop, op,
};

/// What a program needs to run on loom's threads as well as on real ones.
mod threads {
    #[cfg(loom)]
    pub(crate) use loom::thread::{spawn, yield_now};
    #[cfg(not(loom))]
    pub(crate) use std::thread::{spawn, yield_now};

    /// Runs `make` where there is room on the stack: loom's first thread has 32 KiB of it.
    pub(crate) fn with_room<T: Send + 'static>(make: impl FnOnce() -> T + Send + 'static) -> T {
        #[cfg(loom)]
        return loom::thread::Builder::new()
            .stack_size(1 << 16)
            .spawn(make)
            .unwrap()
            .join()
            .unwrap();
        #[cfg(not(loom))]
        make()
    }

    /// Runs a test in every interleaving, or a few times for real.
    pub(crate) fn check(test: impl Fn() + Send + Sync + 'static) {
        #[cfg(loom)]
        {
            let mut builder = loom::model::Builder::new();
            builder.preemption_bound.get_or_insert(3);
            // The device takes more steps than loom allows for by itself.
            builder.max_branches = 20_000;
            builder.check(test);
        }
        #[cfg(not(loom))]
        (0..100).for_each(|_| test());
    }
}

#[derive(Clone, Copy, Debug)]
enum Command {
    Send(u32),
    Cancel(u32),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Report {
    Sent(u32),
    Cancelled(u32),
}

type Cq = CompletionQueue<'static, 2, 4>;

/// The polling thread. It has one order in flight at a time, so that the others wait here.
struct Gateway {
    commands: Consumer<'static, Command, 4>,
    reports: Producer<'static, Report, 4>,
    completions: Completions<Cq, 2>,
    queue: SendQueue<'static, SendEnd<'static, 4>, ((), u32), 1>,
    waiting: VecDeque<u32>,
}

impl Gateway {
    fn run(mut self, stop: &Stop) {
        let mut staging = SendStaging::<1, 1>::new();
        let mut staging = staging.link();
        loop {
            // Before the commands: what was handed over before the request to stop is seen below.
            let is_last = stop.is_requested();
            self.take_commands();
            while !self.waiting.is_empty() {
                let Ok(mut chain) = self.queue.reserve(&mut staging, 1) else { break };
                let Some(order) = self.waiting.pop_front() else { break };
                let message = op::Send::new().immediate(order).signaled();
                chain.push(message, ((), order)).expect("it has neither memory nor length");
                chain.submit().expect("the device takes it");
            }
            for completion in self.completions.poll().expect("the device can be polled") {
                self.queue.retire(completion).expect("it is of the only queue");
            }
            while let Some(ended) = self.queue.take() {
                assert!(ended.outcome.is_done());
                let report = Report::Sent(ended.context.1);
                self.reports.push(report).expect("there is room for a report an order");
            }
            if is_last && self.waiting.is_empty() && self.queue.in_flight() == 0 {
                return;
            }
            threads::yield_now();
        }
    }

    fn take_commands(&mut self) {
        for command in self.commands.drain(4) {
            match command {
                Command::Send(order) => self.waiting.push_back(order),
                Command::Cancel(order) => {
                    // One that does not wait has gone out, and its report says so.
                    let Some(at) = self.waiting.iter().position(|&other| other == order) else {
                        continue;
                    };
                    self.waiting.remove(at);
                    let report = Report::Cancelled(order);
                    self.reports.push(report).expect("there is room for a report an order");
                }
            }
        }
    }
}

/// The other side of the connection: what it has received.
struct Exchange {
    completions: Completions<Cq, 4>,
    queue: RecvQueue<'static, RecvEnd<'static, 4>, (), 4>,
}

impl Exchange {
    fn received(&mut self) -> Vec<u32> {
        let mut orders = Vec::new();
        while let Ok(batch) = self.completions.poll() {
            if batch.len() == 0 {
                break;
            }
            for completion in batch {
                self.queue.retire(completion).expect("it is of the only queue");
            }
            while let Some(ended) = self.queue.take() {
                orders.extend(ended.outcome.success().and_then(|success| success.immediate()));
            }
        }
        orders
    }
}

fn leak<T>(value: T) -> &'static mut T {
    Box::leak(Box::new(value))
}

/// Sets everything up, runs `strategy` beside a gateway, and gives the reports and what the
/// exchange saw.
fn trade(
    strategy: impl FnOnce(&mut Producer<'static, Command, 4>, &mut Consumer<'static, Report, 4>),
) -> (Vec<Report>, Vec<u32>) {
    let device: &'static Device<2, 4> = threads::with_room(|| &*leak(Device::new()));
    let domain = device.domain();
    let (ours, theirs) = (device.completion_queue(4).unwrap(), device.completion_queue(4).unwrap());
    let near = device.queue_pair(QpConfig::new(domain), &ours, &ours).unwrap();
    let far = device.queue_pair(QpConfig::new(domain), &theirs, &theirs).unwrap();
    near.control.connect(&far.control).unwrap();

    let receives = RecvQueue::new(far.recv, leak(RecvSlots::new()), RecvConfig::new(domain));
    let mut exchange =
        Exchange { completions: Completions::new(theirs, 4), queue: receives.unwrap() };
    let mut staging = RecvStaging::<4, 1>::new();
    let mut staging = staging.link();
    let mut chain = exchange.queue.reserve(&mut staging, 4).unwrap();
    (0..4).for_each(|_| chain.push(()).unwrap());
    chain.submit().unwrap();

    let sends = SendQueue::new(near.send, leak(SendSlots::new()), SendConfig::new(domain));
    let (mut commands, taken) = leak(Ring::new()).split();
    let (reports, mut reported) = leak(Ring::new()).split();
    let mut gateway = Gateway {
        commands: taken,
        reports,
        completions: Completions::new(ours, 4),
        queue: sends.unwrap(),
        waiting: VecDeque::new(),
    };
    gateway.queue.open();

    let stop: &'static Stop = leak(Stop::new());
    let polling = threads::spawn(move || gateway.run(stop));
    strategy(&mut commands, &mut reported);
    stop.request();
    polling.join().unwrap();
    (reported.drain(4).collect(), exchange.received())
}

/// Each order has one report, and that is true.
fn no_order_was_sent_twice(orders: &[u32], reports: &[Report], received: &[u32]) {
    for &order in orders {
        let times = received.iter().filter(|&&other| other == order).count();
        assert!(times <= 1, "order {order} was sent twice");
        let sent = reports.iter().filter(|&&report| report == Report::Sent(order)).count();
        let cancelled =
            reports.iter().filter(|&&report| report == Report::Cancelled(order)).count();
        assert_eq!(sent + cancelled, 1, "order {order} has one report");
        assert_eq!(times, sent, "order {order} was sent if the report says so");
    }
}

#[test]
fn no_order_is_sent_twice_and_none_is_lost_whenever_the_cancel_comes() {
    static CANCELLED: AtomicBool = AtomicBool::new(false);
    static TOO_LATE: AtomicBool = AtomicBool::new(false);
    threads::check(|| {
        let (reports, received) = trade(|commands, _| {
            commands.push(Command::Send(1)).unwrap();
            commands.push(Command::Send(2)).unwrap();
            commands.push(Command::Cancel(2)).unwrap();
        });
        assert!(reports.contains(&Report::Sent(1)), "nobody cancelled it");
        no_order_was_sent_twice(&[1, 2], &reports, &received);
        let seen = if received.contains(&2) { &TOO_LATE } else { &CANCELLED };
        seen.store(true, Ordering::Relaxed);
    });
    // A model in which the race always ends in the same way is not a model of it.
    let seen = (CANCELLED.load(Ordering::Relaxed), TOO_LATE.load(Ordering::Relaxed));
    assert!(!cfg!(loom) || seen == (true, true), "cancelled, too late: {seen:?}");
}

/// The mistake that the program above is built to avoid: sending again what one has not heard of.
#[test]
#[cfg(loom)]
#[should_panic(expected = "was sent twice")]
fn a_strategy_that_repeats_an_order_it_has_not_heard_of_is_found_out() {
    threads::check(|| {
        let (reports, received) = trade(|commands, reported| {
            commands.push(Command::Send(1)).unwrap();
            if reported.pop() != Some(Report::Sent(1)) {
                commands.push(Command::Send(1)).unwrap();
            }
        });
        no_order_was_sent_twice(&[1], &reports, &received);
    });
}
