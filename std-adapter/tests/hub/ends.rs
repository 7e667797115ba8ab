//! How members of a hub end, on the soft device: what they have received is handed out first, and nothing of them
//! is left behind, whatever the program does meanwhile.

use std::panic::{AssertUnwindSafe, catch_unwind};

use nanoverbs_core::{RecvBuffers, Tagged};

use super::*;

type Clients = Hub<Soft<8>, Block, 4>;

/// Sends so many messages, and sees all of them arrive.
fn sends(client: &mut Client<8>, count: usize) {
    for _ in 0..count {
        let block = client.block().unwrap();
        client.post_send(block).unwrap();
    }
    for _ in 0..count {
        assert!(client.send_completion(soon()).unwrap().outcome.is_done());
    }
}

/// Accepts whoever asks, with receives made of blocks.
fn admit<C: RecvBuffers>(
    hub: &mut Hub<Soft<8>, C, 4>,
    receives: usize,
    make: impl Fn(Block) -> C,
) -> Vec<Key> {
    let mut keys = Vec::new();
    while let Some(event) = hub.poll_event().unwrap() {
        if let Event::Request(request) = event {
            let mut joining = hub.accept(request).unwrap();
            let contexts: Vec<C> = (0..receives).map(|_| make(joining.block().unwrap())).collect();
            keys.push(joining.receives_into(contexts).unwrap().start().unwrap());
        }
    }
    keys
}

/// Counts the messages that came, and closes whoever has ended.
#[derive(Default)]
struct Count {
    came: usize,
    thrown_away: usize,
    left: usize,
}

impl Host<Soft<8>, Block, 4> for Count {
    fn ended(
        &mut self,
        _: &mut Clients,
        _: Key,
        side: Side,
        ended: Ended<Block>,
    ) -> ControlFlow<()> {
        self.came += usize::from(side == Side::Recv && ended.outcome.is_done());
        ControlFlow::Continue(())
    }

    fn event(&mut self, hub: &mut Clients, event: Event<Soft<8>>) -> ControlFlow<()> {
        match event {
            Event::Request(request) => {
                hub.accept(request).unwrap().receives(16).unwrap().start().unwrap();
            }
            Event::Ended { key, .. } => {
                let thrown_away = &mut self.thrown_away;
                hub.close(key, Duration::ZERO, |_, _| *thrown_away += 1).unwrap();
                self.left += 1;
                return ControlFlow::Break(());
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

#[test]
fn what_a_client_has_sent_before_it_left_is_handed_out_before_its_end() {
    let device = device!(8);
    let policies = [
        IdlePolicy::Spin,
        IdlePolicy::SpinThenYield { spins: 10 },
        IdlePolicy::SpinThenSleep { spins: 10, longest: Duration::from_secs(3600) },
    ];
    for idle in policies {
        for _ in 0..20 {
            let hub: Clients = Options::new().depth(16, 16).soft_hub(device).unwrap();
            let door = hub.door();
            let poller = Poller::builder().idle(idle).spawn(Serve::new(hub, Count::default()));
            let poller = poller.unwrap();
            let mut client = client(&door, 1);
            sends(&mut client, 12);
            drop(client);
            let (_, count) = poller.join_until(PATIENCE).expect("it ends").work.into_parts();
            assert_eq!((count.came, count.thrown_away, count.left), (12, 0, 1), "{idle:?}");
        }
    }
}

#[test]
fn news_are_asked_for_anew_each_time() {
    let device = device!(8);
    let mut hub: Clients = Options::new().depth(16, 16).soft_hub(device).unwrap();
    let door = hub.door();
    let clients = [client(&door, 1), client(&door, 1), client(&door, 1)];
    let keys = admit(&mut hub, 0, |block| block);
    assert_eq!(hub.waiting(), 0, "they stand, and nothing came");
    drop(clients);
    for key in keys {
        let Some(Event::Ended { key: gone, end }) = hub.poll_event().unwrap() else {
            panic!("no news")
        };
        assert_eq!((gone, end), (key, WaitError::Disconnected));
    }
    assert!(hub.poll_event().unwrap().is_none());
}

#[test]
fn a_panic_while_a_member_is_closed_costs_neither_its_place_nor_its_blocks() {
    let device = device!(8);
    let mut hub: Clients = Options::new().depth(16, 16).blocks(16, 64).soft_hub(device).unwrap();
    let door = hub.door();
    for _ in 0..20 {
        let _client = client(&door, 1);
        let key = admit(&mut hub, 4, |block| block)[0];
        let closed = catch_unwind(AssertUnwindSafe(|| {
            let _ = hub.close(key, soon(), |_, _| panic!("of the program"));
        }));
        assert!(closed.is_err());
        assert_eq!((hub.len(), hub.keys().count()), (0, 0));
        let blocks: Vec<_> = std::iter::from_fn(|| hub.block()).collect();
        assert_eq!(blocks.len(), 16);
    }
}

static DROPPED: AtomicUsize = AtomicUsize::new(0);

/// One of them panics when it is dropped.
struct Touchy(bool);

impl Drop for Touchy {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::Relaxed);
        assert!(!self.0, "of the program");
    }
}

#[test]
fn a_context_that_panics_in_its_drop_keeps_no_other_one() {
    type Touching = Hub<Soft<8>, Tagged<Block, Touchy>, 4>;
    let device = device!(8);
    let before = leaked_contexts();
    // More often than there are queue pairs.
    for round in 1..=20 {
        let mut hub: Touching =
            Options::new().depth(16, 16).blocks(16, 64).soft_hub(device).unwrap();
        let door = hub.door();
        let _clients = [client(&door, 1), client(&door, 1)];
        admit(&mut hub, 4, |block| {
            let is_first = DROPPED.load(Ordering::Relaxed).is_multiple_of(8);
            Tagged { buffers: block, tag: Touchy(is_first) }
        });
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(hub)));
        assert!(dropped.is_err(), "it is told");
        assert_eq!(DROPPED.load(Ordering::Relaxed), 8 * round);
    }
    assert_eq!(leaked_contexts(), before);
}

#[test]
fn a_request_is_for_the_hub_whose_door_it_came_through() {
    let device = device!(8);
    let hub = || -> Clients { Options::new().depth(16, 16).soft_hub(device).unwrap() };
    let (mut first, mut second) = (hub(), hub());
    let mut client = client(&first.door(), 1);
    let Some(Event::Request(request)) = first.poll_event().unwrap() else { panic!("nobody asks") };
    let refused = second.accept(request).map(drop);
    assert!(matches!(refused, Err(AdmitError::Endpoint(_))), "{refused:?}");
    assert_eq!((first.len(), second.len()), (0, 0));
    assert!(!client.recv_completion(soon()).unwrap().outcome.is_done(), "it is refused");
}

#[test]
fn who_asked_a_hub_that_is_gone_is_refused_and_nobody_comes_after() {
    let device = device!(8);
    let hub: Clients = Options::new().depth(16, 16).soft_hub(device).unwrap();
    let door = hub.door();
    let mut client = client(&door, 1);
    drop(hub);
    assert!(!client.recv_completion(soon()).unwrap().outcome.is_done(), "it is refused");
    let late = door.connect::<Block>(Options::new()).map(drop);
    assert!(late.is_err(), "nobody is there any more");
}

#[test]
fn all_members_are_closed_within_one_deadline() {
    let device = device!(8);
    let mut hub: Clients = Options::new().depth(16, 16).blocks(16, 64).soft_hub(device).unwrap();
    let door = hub.door();
    let mut clients = [client(&door, 1), client(&door, 1), client(&door, 1)];
    let keys = admit(&mut hub, 4, |block| block);
    sends(&mut clients[1], 2);
    let mut back = Vec::new();
    hub.close_all(soon(), |key, side, ended| {
        assert_eq!(side, Side::Recv);
        back.push((key, ended.outcome.is_done()));
    });
    assert!(hub.is_empty());
    assert_eq!(back.len(), 12);
    let done: Vec<_> = back.iter().filter(|(_, is_done)| *is_done).collect();
    assert_eq!(done, [&(keys[1], true), &(keys[1], true)], "what had arrived is among it");
}
