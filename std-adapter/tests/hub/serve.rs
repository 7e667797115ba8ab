//! Hubs on pollers.

use super::*;

/// Sends back whatever comes, to whoever sent it; takes in who asks, closes who has gone.
#[derive(Default)]
struct Echo {
    came: usize,
    left: usize,
}

impl<const QPS: usize, const N: usize> Host<Soft<QPS>, Block, N> for Echo {
    fn ended(
        &mut self,
        hub: &mut Hub<Soft<QPS>, Block, N>,
        key: Key,
        side: Side,
        mut ended: Ended<Block>,
    ) -> ControlFlow<()> {
        let Some(success) = ended.outcome.success() else { return ControlFlow::Continue(()) };
        let mut peer = hub.peer(key).unwrap();
        let posted = match side {
            Side::Recv => {
                ended.context.set_len(success.byte_len().unwrap() as usize).unwrap();
                peer.post_send(ended.context)
            }
            Side::Send => peer.post_recv(ended.context),
        };
        // Who has just gone takes nothing more.
        drop(posted);
        ControlFlow::Continue(())
    }

    fn event(
        &mut self,
        hub: &mut Hub<Soft<QPS>, Block, N>,
        event: Event<Soft<QPS>>,
    ) -> ControlFlow<()> {
        match event {
            Event::Request(request) => {
                hub.accept(request).unwrap().receives(4).unwrap().start().unwrap();
                self.came += 1;
            }
            Event::Ended { key, .. } => {
                hub.close(key, Duration::ZERO, |_, ended| drop(ended)).unwrap();
                self.left += 1;
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

#[test]
fn a_poller_serves_clients_that_come_and_go_under_every_policy() {
    let device = device!(32);
    let policies = [
        IdlePolicy::Spin,
        IdlePolicy::SpinThenYield { spins: 10 },
        IdlePolicy::SpinThenSleep { spins: 10, longest: Duration::from_secs(3600) },
    ];
    for idle in policies {
        let options = Options::new().depth(8, 8).blocks(128, 64);
        let hub: Hub<Soft<32>, Block, 16> = options.soft_hub(device).unwrap();
        let door = hub.door();
        let poller = Poller::builder().idle(idle).drain(PATIENCE);
        let poller = poller.spawn(Serve::new(hub, Echo::default())).unwrap();
        let threads = 4;
        let rounds = if cfg!(miri) { 2 } else { 50 };
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let door = door.clone();
                scope.spawn(move || {
                    for visit in 0..3 {
                        let mut client = client(&door, 2);
                        for round in 0..rounds {
                            let sent = thread * 1_000_000 + visit * 1000 + round;
                            say(&mut client, sent);
                            drop(client.send_completion(soon()).unwrap());
                            let back = client.recv_completion(soon()).unwrap();
                            assert_eq!(word(&back.context), sent);
                            client.post_recv(back.context).unwrap();
                        }
                    }
                });
            }
        });
        // All have gone; the hub finds out by itself.
        let gauge = poller.gauge();
        let began = Instant::now();
        let expected = (2 * rounds * threads * 3) as usize;
        while gauge.read().completions < expected {
            assert!(began.elapsed() < PATIENCE, "{:?}", gauge.read());
            std::thread::yield_now();
        }
        poller.stop();
        let report = poller.join_until(PATIENCE).expect("it ends");
        assert!(matches!(report.end, End::Stopped { drained: true }), "{:?}", report.end);
        let (mut hub, mut echo) = report.work.into_parts();
        let deadline = soon();
        while echo.left < 12 && !deadline.has_passed() {
            drop(outcomes(&mut hub));
            while let Some(event) = hub.poll_event().unwrap() {
                assert!(echo.event(&mut hub, event).is_continue());
            }
        }
        assert_eq!((echo.came, echo.left, hub.len()), (12, 12, 0));
        all_blocks(&mut hub, 128);
    }
    assert_eq!(leaked_contexts(), 0);
}

#[test]
fn a_closure_is_a_host_that_refuses_who_asks_and_closes_who_has_gone() {
    let device = device!(8);
    let mut hub: Hub<Soft<8>, Block, 4> = Options::new().blocks(16, 64).soft_hub(device).unwrap();
    let door = hub.door();
    let mut known = client(&door, 1);
    let key = accept(&mut hub, 4)[0];
    static HEARD: AtomicUsize = AtomicUsize::new(0);
    static LEAVE: AtomicBool = AtomicBool::new(false);
    let host = move |_: &mut Hub<Soft<8>, Block, 4>, from, _, ended: Ended<Block>| {
        assert_eq!(from, key);
        HEARD.fetch_add(usize::from(ended.outcome.is_done()), Ordering::Relaxed);
        if LEAVE.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let poller = Poller::builder().spawn(Serve::with(hub, host)).unwrap();
    let mut stranger = client(&door, 1);
    assert!(!stranger.recv_completion(soon()).unwrap().outcome.is_done(), "it is refused");
    say(&mut known, 1);
    let deadline = soon();
    while HEARD.load(Ordering::Relaxed) == 0 {
        assert!(!deadline.has_passed());
        std::thread::yield_now();
    }
    LEAVE.store(true, Ordering::Relaxed);
    say(&mut known, 2);
    let report = poller.join_until(PATIENCE).expect("it ends");
    assert!(matches!(report.end, End::Finished), "{:?}", report.end);
    assert_eq!(HEARD.load(Ordering::Relaxed), 2);
    let (mut hub, _) = report.work.into_parts();
    assert_eq!(hub.peer(key).unwrap().receives_posted(), 2);
}
