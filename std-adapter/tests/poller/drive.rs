//! Pollers that serve endpoints, on the soft device.

use std::ops::ControlFlow;
use std::time::Duration;

use nanoverbs::endpoint::{Endpoint, Options, Side, Soft, SoftDevice, WaitError};
use nanoverbs::memory::Rights;
use nanoverbs::poller::{Drive, End, Handler, IdlePolicy, Poller, Turn, Work};
use nanoverbs_core::{Block, Ended, Outcome, Ring, leaked_contexts};

use super::{PATIENCE, POLICIES, joined, wait_until};

type E = Endpoint<Soft, Block>;

fn pair(receives: usize) -> (E, E) {
    let device: &'static SoftDevice = Box::leak(Box::new(SoftDevice::new()));
    let [a, b] = Options::new().blocks(16, 64).soft_pair(device).unwrap();
    let a = a.receives(receives).unwrap().establish(PATIENCE).unwrap();
    (a, b.receives(receives).unwrap().establish(PATIENCE).unwrap())
}

/// Sends back what comes, and receives into what was sent.
fn echo(endpoint: &mut E, side: Side, ended: Ended<Block>) -> ControlFlow<()> {
    if !ended.outcome.is_done() {
        return ControlFlow::Continue(());
    }
    let posted = match side {
        Side::Recv => endpoint.post_send(ended.context),
        Side::Send => endpoint.post_recv(ended.context),
    };
    posted.unwrap();
    ControlFlow::Continue(())
}

#[test]
fn a_server_echoes_under_every_policy() {
    for idle in POLICIES {
        let (mut client, server) = pair(4);
        let poller = Poller::builder().idle(idle).drain(PATIENCE);
        let poller = poller.spawn(Drive::with(server, echo)).unwrap();
        let rounds = 500;
        for round in 0..rounds {
            let mut block = client.block().unwrap();
            block.fill(round as u8);
            client.post_send(block).unwrap();
            drop(client.send_completion(PATIENCE).unwrap());
            let back = client.recv_completion(PATIENCE).unwrap().context;
            assert!(back.iter().all(|byte| *byte == round as u8));
            client.post_recv(back).unwrap();
        }
        poller.stop();
        let report = joined(poller);
        assert!(matches!(report.end, End::Stopped { drained: true }), "{:?}", report.end);
        assert_eq!(report.stats.completions, 2 * rounds);
        let (server, _) = report.work.into_parts();
        let closed = server.close(PATIENCE);
        assert_eq!((closed.sends.len(), closed.receives.len()), (0, 4));
    }
}

#[test]
fn f42_a_turn_takes_no_more_than_its_batch() {
    let (mut client, server) = pair(8);
    for _ in 0..8 {
        let block = client.block().unwrap();
        client.post_send(block).unwrap();
    }
    let mut work = Drive::with(server, |_: &mut E, _, _| ControlFlow::Continue(()));
    assert_eq!(work.turn(3), Turn::Busy(3));
    assert_eq!(work.turn(3), Turn::Busy(3));
    assert_eq!(work.turn(3), Turn::Busy(2));
    assert_eq!(work.turn(3), Turn::Idle);
}

#[test]
fn sends_and_receives_take_turns() {
    let (mut client, mut server) = pair(4);
    for _ in 0..4 {
        let block = server.block().unwrap();
        server.post_send(block).unwrap();
        let block = client.block().unwrap();
        client.post_send(block).unwrap();
    }
    let mut sides = Vec::new();
    let mut work = Drive::with(server, |_: &mut E, side, _| {
        sides.push(side);
        ControlFlow::Continue(())
    });
    while work.turn(4) != Turn::Idle {}
    drop(work);
    assert_eq!(sides.len(), 8);
    assert_eq!(sides[..2], [Side::Send, Side::Recv]);
}

#[test]
fn a_handler_that_panics_loses_no_block() {
    let leaked = leaked_contexts();
    let (mut client, server) = pair(4);
    let work = Drive::with(server, |_: &mut E, _, _| panic!("the handler gives up"));
    let poller = Poller::builder().spawn(work).unwrap();
    let block = client.block().unwrap();
    client.post_send(block).unwrap();
    drop(client.send_completion(PATIENCE).unwrap());
    let report = joined(poller);
    assert_eq!(report.end.panic_message(), Some("the handler gives up"));
    let (mut server, _) = report.work.into_parts();
    // The receive that the handler had is back in the pool, the others are posted, and it goes on.
    assert_eq!(server.receives_posted(), 3);
    let blocks: Vec<_> = std::iter::from_fn(|| server.block()).collect();
    assert_eq!(blocks.len(), 13);
    let closed = server.close(PATIENCE);
    assert_eq!(closed.receives.len(), 3);
    assert!(closed.receives.iter().all(|ended| matches!(ended.outcome, Outcome::Flushed)));
    assert_eq!(leaked_contexts(), leaked);
}

#[test]
fn a_dropped_poller_closes_its_endpoint() {
    let (mut client, server) = pair(4);
    drop(Poller::builder().spawn(Drive::with(server, echo)).unwrap());
    let block = client.block().unwrap();
    client.post_send(block).unwrap();
    assert!(!client.send_completion(PATIENCE).unwrap().outcome.is_done());
}

#[test]
fn a_peer_that_leaves_ends_the_poller_after_every_outcome() {
    for idle in POLICIES {
        let (client, mut server) = pair(4);
        // A soft peer that leaves tells nobody; what is sent to it fails.
        let _ = client.close(PATIENCE);
        let block = server.block().unwrap();
        server.post_send(block).unwrap();
        let mut flushed = 0;
        let work = Drive::with(server, move |_: &mut E, _, ended: Ended<Block>| {
            assert!(!ended.outcome.is_done());
            flushed += i32::from(matches!(ended.outcome, Outcome::Flushed));
            assert!(flushed <= 4);
            ControlFlow::Continue(())
        });
        let poller = Poller::builder().idle(idle).spawn(work).unwrap();
        let report = joined(poller);
        assert!(matches!(report.end, End::Disconnected), "{:?} under {idle:?}", report.end);
        assert_eq!(report.stats.completions, 5);
    }
}

#[test]
fn a_goodbye_while_the_poller_sleeps_or_spins_is_told_from_a_failure() {
    for idle in POLICIES {
        let (client, server) = pair(4);
        let poller = Poller::builder().idle(idle).spawn(Drive::with(server, echo)).unwrap();
        wait_until("it idles", || poller.stats().turns > 0);
        let _ = client.close(PATIENCE);
        let report = joined(poller);
        assert!(matches!(report.end, End::Disconnected), "{:?} under {idle:?}", report.end);
    }
}

#[test]
fn an_end_without_a_goodbye_is_a_failure() {
    for idle in POLICIES {
        let (mut client, mut server) = pair(4);
        // A READ of what is not shared any more breaks the queue pair, and nobody leaves.
        let gone = server.share(64, Rights::READ_SOURCE).unwrap().advertise();
        let block = client.block().unwrap();
        client.post_read(gone.at(0, 64).unwrap(), block).unwrap();
        let poller = Poller::builder().idle(idle).spawn(Drive::with(client, echo)).unwrap();
        let report = joined(poller);
        assert!(
            matches!(report.end, End::Failed(WaitError::Broken)),
            "{:?} under {idle:?}",
            report.end
        );
        // A goodbye that comes later changes nothing.
        let _ = server.close(PATIENCE);
        let (mut client, _) = report.work.into_parts();
        assert_eq!(client.recv_completion(PATIENCE).unwrap_err(), WaitError::Broken);
    }
}

#[test]
fn a_handler_ends_the_poller() {
    let (mut client, server) = pair(4);
    let work = Drive::with(server, |_: &mut E, _, _| ControlFlow::Break(()));
    let poller = Poller::builder().spawn(work).unwrap();
    let block = client.block().unwrap();
    client.post_send(block).unwrap();
    assert!(matches!(joined(poller).end, End::Finished));
}

/// Posts what comes through a ring, one message an order.
struct Post<'r> {
    orders: nanoverbs_core::Consumer<'r, u64, 32>,
    sent: u64,
}

impl Handler<Soft, Block> for Post<'_> {
    fn begin(&mut self, endpoint: &mut E, batch: usize) -> usize {
        let mut posted = 0;
        while posted < batch && !self.orders.is_empty() {
            // An order is taken only when there is a place for it.
            let Some(mut block) = endpoint.block() else { break };
            let Some(order) = self.orders.pop() else { break };
            block.set_len(8).unwrap();
            block.copy_from_slice(&order.to_be_bytes());
            endpoint.post_send(block).unwrap();
            posted += 1;
        }
        posted
    }

    fn ended(&mut self, _: &mut E, side: Side, ended: Ended<Block>) -> ControlFlow<()> {
        assert_eq!(side, Side::Send);
        assert!(ended.outcome.is_done());
        self.sent += 1;
        ControlFlow::Continue(())
    }
}

#[test]
fn a_strategy_hands_orders_to_the_poller_and_all_are_sent_once() {
    const ORDERS: u64 = 2000;
    for idle in POLICIES {
        let (client, mut server) = pair(8);
        let mut ring = Ring::<u64, 32>::new();
        let (mut producer, orders) = ring.split();
        std::thread::scope(|scope| {
            let exchange = scope.spawn(move || {
                for order in 0..ORDERS {
                    let came = server.recv_completion(PATIENCE).unwrap().context;
                    assert_eq!(came[..8], order.to_be_bytes());
                    server.post_recv(came).unwrap();
                }
                server
            });
            let work = Drive::new(client, Post { orders, sent: 0 });
            let poller = Poller::builder().idle(idle).drain(PATIENCE).spawn_scoped(scope, work);
            let poller = poller.map_err(|error| error.cause).unwrap();
            let waker = poller.waker();
            let mut next = 0;
            while next < ORDERS {
                let batch = (ORDERS - next).min(4);
                match producer.reserve(batch as usize) {
                    Some(mut grant) => {
                        for order in next..next + batch {
                            grant.write(order).unwrap();
                        }
                        grant.commit();
                        waker.wake();
                        next += batch;
                    }
                    None => std::thread::yield_now(),
                }
            }
            poller.stop();
            let report = joined(poller);
            assert!(matches!(report.end, End::Stopped { drained: true }), "{:?}", report.end);
            let (client, post) = report.work.into_parts();
            assert_eq!(post.sent, ORDERS);
            assert_eq!(client.sends_in_flight(), 0);
            drop(exchange.join().unwrap());
        });
    }
}

#[test]
fn a_sleep_on_the_soft_device_is_short() {
    let idle = IdlePolicy::SpinThenSleep { spins: 1, longest: Duration::from_secs(3600) };
    let (_client, server) = pair(4);
    let poller = Poller::builder().idle(idle).spawn(Drive::with(server, echo)).unwrap();
    wait_until("it looks for itself", || poller.stats().sleeps > 5);
    poller.stop();
    let _ = joined(poller);
}
