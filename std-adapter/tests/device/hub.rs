//! Hubs over the real librdmacm: many clients on one completion queue and one pinned thread.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use nanoverbs::cm::{ConnectError, ConnectParams, Connector, ListenOptions, RnrRetry};
use nanoverbs::endpoint::{Endpoint, EndpointError, Idle, Options, Side, Verbs, WaitError};
use nanoverbs::hub::{AdmitError, Event, Hub, HubError, Key};
use nanoverbs::memory::Rights;
use nanoverbs::poller::{End, Host, IdlePolicy, Poller, Serve, allowed_cores};
use nanoverbs::{Deadline, Device};
use nanoverbs_core::{Block, Ended, JoinError, Outcome, RemoteRegion, leaked_contexts};

use crate::ends::{PATIENCE, address};

const CLIENTS: usize = 32;
pub(crate) const RECEIVES: usize = 4;
pub(crate) const BLOCKS: usize = CLIENTS * 16;

/// Sleeps at once, and only an event ends it.
const SLEEP: IdlePolicy =
    IdlePolicy::SpinThenSleep { spins: 0, longest: Duration::from_secs(3600) };

pub(crate) type Clients = Hub<Verbs, Block, CLIENTS>;
pub(crate) type Client = Endpoint<Verbs, Block>;

pub(crate) fn hub() -> (Clients, SocketAddr) {
    let device = Device::at(address().ip()).unwrap();
    let options = Options::new().depth(8, 8).inline(64).blocks(BLOCKS, 64);
    let mut hub: Clients = options.hub(&device).unwrap();
    let at = hub.listen(ListenOptions::new(), address()).unwrap();
    (hub, at)
}

fn client_options() -> Options {
    Options::new().depth(4, 4).blocks(8, 64).idle(Idle::SpinThenWait { spins: 10 })
}

/// Connects while somebody else serves the hub.
pub(crate) fn connect(at: SocketAddr) -> Client {
    let prepared = client_options().connect(at, PATIENCE).unwrap();
    prepared.receives(2).unwrap().establish(PATIENCE).unwrap()
}

fn say(client: &mut Client, word: u32) {
    let mut block = client.block().unwrap();
    block.set_len(4).unwrap();
    block.copy_from_slice(&word.to_le_bytes());
    client.post_send(block).unwrap();
}

fn hear(client: &mut Client, word: u32) {
    assert!(client.send_completion(PATIENCE).unwrap().outcome.is_done());
    let ended = client.recv_completion(PATIENCE).unwrap();
    assert_eq!(ended.outcome.success().unwrap().byte_len(), Some(4));
    assert_eq!(&ended.context[..4], word.to_le_bytes());
    client.post_recv(ended.context).unwrap();
}

/// What other threads may know of a host.
#[derive(Default)]
struct Count {
    came: AtomicUsize,
    left: AtomicUsize,
    refused: AtomicUsize,
}

/// Sends back whatever comes, to whoever sent it; takes in who asks, closes who has gone.
struct Echo(Arc<Count>);

impl<const N: usize> Host<Verbs, Block, N> for Echo {
    fn ended(
        &mut self,
        hub: &mut Hub<Verbs, Block, N>,
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

    fn event(&mut self, hub: &mut Hub<Verbs, Block, N>, event: Event<Verbs>) -> ControlFlow<()> {
        let count = &self.0;
        match event {
            Event::Request(request) => match hub.accept(request) {
                Ok(joining) => drop(joining.receives(RECEIVES).unwrap().start().unwrap()),
                Err(error) => {
                    assert!(matches!(error, AdmitError::Join(JoinError::Full { .. })), "{error:?}");
                    count.refused.fetch_add(1, Ordering::Relaxed);
                }
            },
            Event::Established(_) => drop(count.came.fetch_add(1, Ordering::Relaxed)),
            Event::Ended { key, .. } => {
                hub.close(key, Duration::ZERO, |_, ended| drop(ended)).unwrap();
                count.left.fetch_add(1, Ordering::Relaxed);
            }
            other => panic!("{other:?}"),
        }
        ControlFlow::Continue(())
    }
}

fn wait_for(count: &AtomicUsize, number: usize) {
    let deadline = Deadline::after(PATIENCE);
    while count.load(Ordering::Relaxed) != number {
        assert!(!deadline.has_passed(), "{} and not {number}", count.load(Ordering::Relaxed));
        thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn all_blocks<const N: usize>(hub: &mut Hub<Verbs, Block, N>, count: usize) {
    let blocks: Vec<_> = std::iter::from_fn(|| hub.block()).collect();
    assert_eq!(blocks.len(), count, "every block is back");
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f42_thirty_two_clients_are_served_by_a_pinned_thread_that_sleeps() {
    let (hub, at) = hub();
    let count = Arc::new(Count::default());
    let core = allowed_cores().unwrap().iter().last().unwrap();
    let poller = Poller::builder().name("hub").core(core).idle(SLEEP).drain(PATIENCE);
    let poller = poller.spawn(Serve::new(hub, Echo(Arc::clone(&count)))).unwrap();
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| connect(at)).collect();
    wait_for(&count.came, CLIENTS);

    let round = |clients: &mut [Client], round: u32| {
        for (at, client) in clients.iter_mut().enumerate() {
            say(client, at as u32 * 100 + round);
        }
        for (at, client) in clients.iter_mut().enumerate() {
            hear(client, at as u32 * 100 + round);
        }
    };
    (0..5).for_each(|number| round(&mut clients, number));
    // One goes in the middle of it, and its place is for another one.
    let mut gone = clients.remove(7);
    say(&mut gone, 1);
    drop(gone);
    (5..10).for_each(|number| round(&mut clients, number));
    wait_for(&count.left, 1);
    clients.push(connect(at));
    (10..12).for_each(|number| round(&mut clients, number));
    drop(clients);
    wait_for(&count.left, CLIENTS + 1);

    poller.stop();
    let report = poller.join_until(PATIENCE).expect("it ends");
    println!("{:?}", report.stats);
    assert!(matches!(report.end, End::Stopped { drained: true }), "{:?}", report.end);
    assert!(report.stats.sleeps > 0, "{:?}", report.stats);
    let (mut hub, _) = report.work.into_parts();
    println!("stale: {}", hub.stale());
    assert_eq!((hub.len(), hub.strays()), (0, 0));
    all_blocks(&mut hub, BLOCKS);
    drop(hub);
    assert_eq!(leaked_contexts(), 0);
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f42_a_hub_is_served_under_every_policy_and_a_full_one_refuses() {
    let policies = [
        IdlePolicy::Spin,
        IdlePolicy::SpinThenYield { spins: 10 },
        IdlePolicy::SpinThenSleep { spins: 100, longest: Duration::from_secs(3600) },
    ];
    for idle in policies {
        let device = Device::at(address().ip()).unwrap();
        let options = Options::new().depth(8, 8).blocks(64, 64);
        let mut hub: Hub<Verbs, Block, 4> = options.hub(&device).unwrap();
        let at = hub.listen(ListenOptions::new(), address()).unwrap();
        let count = Arc::new(Count::default());
        let poller = Poller::builder().idle(idle).drain(PATIENCE);
        let poller = poller.spawn(Serve::new(hub, Echo(Arc::clone(&count)))).unwrap();
        let mut clients: Vec<_> = (0..4).map(|_| connect(at)).collect();
        let fifth = client_options().connect::<Block>(at, PATIENCE).unwrap();
        let error = fifth.no_receives().establish(PATIENCE).map(drop).unwrap_err();
        assert!(
            matches!(error, EndpointError::Connect(ConnectError::Rejected { .. })),
            "{error:?}"
        );
        for number in 0..20 {
            clients.iter_mut().for_each(|client| say(client, number));
            clients.iter_mut().for_each(|client| hear(client, number));
        }
        assert_eq!(count.refused.load(Ordering::Relaxed), 1);
        drop(clients);
        wait_for(&count.left, 4);
        poller.stop();
        let (mut hub, _) = poller.join_until(PATIENCE).expect("it ends").work.into_parts();
        all_blocks(&mut hub, 64);
    }
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn two_hubs_in_one_thread_connect_accept_read_and_close_and_no_call_blocks() {
    const MEMBERS: usize = 8;
    let device = Device::at(address().ip()).unwrap();
    let options = Options::new().depth(4, 4).blocks(64, 64);
    let mut server: Hub<Verbs, Block, MEMBERS> = options.hub(&device).unwrap();
    let hello = ConnectParams::new().private_data(b"hello");
    let mut client: Hub<Verbs, Block, MEMBERS> = options.params(hello).hub(&device).unwrap();
    let at = server.listen(ListenOptions::new(), address()).unwrap();
    let store = server.share(64, Rights::READ_SOURCE).unwrap();
    store.write_at(0, &[7; 64]).unwrap();
    let wire = store.advertise().at(0, 64).unwrap().to_wire();

    let routes: Vec<_> =
        (0..MEMBERS).map(|_| Connector::new().resolve(at, PATIENCE).unwrap()).collect();
    for route in routes {
        client.connect(route).unwrap().receives(1).unwrap().start().unwrap();
    }
    let (mut up, mut done) = (HashSet::new(), HashSet::new());
    let deadline = Deadline::after(PATIENCE);
    while done.len() < MEMBERS {
        assert!(!deadline.has_passed(), "{up:?} {done:?}");
        while let Some(event) = server.poll_event().unwrap() {
            match event {
                Event::Request(request) => {
                    let mut joining = server.accept(request).unwrap();
                    assert_eq!(&joining.private_data()[..5], b"hello");
                    joining.send_along(&wire);
                    joining.receives(1).unwrap().start().unwrap();
                }
                Event::Established(key) => assert!(server.peer(key).unwrap().is_connected()),
                other => panic!("{other:?}"),
            }
        }
        while let Some(event) = client.poll_event().unwrap() {
            let Event::Established(key) = event else { panic!("{event:?}") };
            assert!(up.insert(key), "told once");
            // The answer says where to read.
            let mut peer = client.peer(key).unwrap();
            let wire = *peer.private_data().first_chunk().unwrap();
            let block = peer.block().unwrap();
            peer.post_read(RemoteRegion::from_wire(&wire).unwrap(), block).unwrap();
        }
        client.poll().unwrap();
        while let Some((key, side, ended)) = client.next_ended() {
            assert!(side == Side::Send && ended.outcome.is_done(), "{:?}", ended.outcome);
            assert_eq!(&ended.context[..], [7; 64]);
            assert!(done.insert(key));
        }
        thread::yield_now();
    }
    assert_eq!((client.len(), server.len(), up), (MEMBERS, MEMBERS, done.clone()));
    // Half of them are closed with their receives in flight, the others by the drop.
    for key in done.iter().take(MEMBERS / 2) {
        let mut flushed = 0;
        client
            .close(*key, PATIENCE, |side, ended| {
                assert!(side == Side::Recv && matches!(ended.outcome, Outcome::Flushed));
                flushed += 1;
            })
            .unwrap();
        assert_eq!(flushed, 1);
    }
    drop(client);
    let (mut ended, deadline) = (0, Deadline::after(PATIENCE));
    while ended < MEMBERS {
        assert!(!deadline.has_passed(), "{ended}");
        // A member's end is told once what it had in flight is out, and taken.
        server.poll().unwrap();
        while server.next_ended().is_some() {}
        // The last word on a connection may come after its end has begun.
        match server.poll_event().unwrap() {
            Some(Event::Ended { key, .. } | Event::Failed { key, .. }) => {
                server.close(key, Duration::ZERO, |_, _| {}).unwrap();
                ended += 1;
            }
            Some(Event::Established(_)) | None => thread::yield_now(),
            other => panic!("{other:?}"),
        }
    }
    all_blocks(&mut server, 64);
    drop(server);
    assert_eq!(leaked_contexts(), 0);
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn what_a_hub_cannot_have_is_said_with_both_numbers() {
    let device = Device::at(address().ip()).unwrap();
    let max = device.limits().completions;
    let need = 65_536 * 256;
    assert!(u64::from(max) < need, "Soft-RoCE's are smaller");
    match Options::new().depth(128, 128).hub::<Block, 65_536>(&device) {
        Err(HubError::TooManyCompletions { need: asked, max: had }) => {
            assert_eq!((asked, had), (need, max));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f63_a_dropped_hub_disconnects_everybody_with_work_in_flight() {
    let (mut hub, at) = hub();
    let connecting: Vec<_> = (0..4).map(|_| thread::spawn(move || connect(at))).collect();
    let mut keys = Vec::new();
    let deadline = Deadline::after(PATIENCE);
    while keys.len() < 4 {
        assert!(!deadline.has_passed());
        match hub.poll_event().unwrap() {
            Some(Event::Request(request)) => {
                let ready = hub.accept(request).unwrap().receives(RECEIVES).unwrap();
                keys.push(ready.establish(PATIENCE).unwrap());
            }
            None => thread::yield_now(),
            other => panic!("{other:?}"),
        }
    }
    let clients: Vec<_> = connecting.into_iter().map(|client| client.join().unwrap()).collect();
    for key in keys {
        let block = hub.block().unwrap();
        hub.peer(key).unwrap().post_send(block).unwrap();
    }
    drop(hub);
    for mut client in clients {
        while client.recv_completion(PATIENCE).is_ok_and(|ended| ended.outcome.is_done()) {}
        assert!(client.has_ended());
    }
    assert_eq!(leaked_contexts(), 0);
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn who_cannot_be_connected_to_is_news_of_that_member_alone_and_its_receives_come_back() {
    let (mut server, at) = hub();
    let (mut client, _) = hub();
    // The server listens no more when the third one asks, and refuses the second one.
    let mut keys = Vec::new();
    for _ in 0..3 {
        let route = Connector::new().resolve(at, PATIENCE).unwrap();
        let joining = client.connect(route).unwrap();
        keys.push(joining.key());
        let ready = joining.receives(RECEIVES).unwrap();
        if keys.len() == 3 {
            server.stop_listening();
        }
        ready.start().unwrap();
        let deadline = Deadline::after(PATIENCE);
        let (mut is_told, mut asked) = (false, keys.len() == 3);
        while !is_told || !asked {
            assert!(!deadline.has_passed());
            match server.poll_event().unwrap() {
                Some(Event::Request(request)) if keys.len() == 1 => {
                    server.accept(request).unwrap().receives(RECEIVES).unwrap().start().unwrap();
                    asked = true;
                }
                // Dropped, it is refused.
                Some(Event::Request(_)) => asked = true,
                Some(Event::Established(_)) | None => {}
                other => panic!("{other:?}"),
            }
            match client.poll_event().unwrap() {
                None => thread::yield_now(),
                Some(Event::Established(key)) => {
                    assert_eq!((keys.len(), key), (1, keys[0]));
                    is_told = true;
                }
                Some(Event::Failed { key, error: EndpointError::Connect(error) }) => {
                    assert_eq!(Some(&key), keys.last());
                    match keys.len() {
                        2 => assert!(matches!(error, ConnectError::Rejected { .. }), "{error:?}"),
                        _ => assert!(matches!(error, ConnectError::NobodyListens { .. })),
                    }
                    is_told = true;
                }
                other => panic!("{other:?}"),
            }
        }
    }
    for key in keys {
        let mut back = 0;
        client
            .close(key, PATIENCE, |side, ended| {
                assert!(side == Side::Recv && !ended.outcome.is_done());
                back += 1;
            })
            .unwrap();
        assert_eq!(back, RECEIVES);
    }
    all_blocks(&mut client, BLOCKS);
    drop((client, server));
    assert_eq!(leaked_contexts(), 0);
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f01_a_failed_send_is_the_end_of_its_member_though_the_peer_says_nothing() {
    let device = Device::at(address().ip()).unwrap();
    let hasty = ConnectParams::new().rnr_retry(RnrRetry::NEVER);
    let options = Options::new().depth(8, 8).blocks(64, 64).params(hasty);
    let mut hub: Hub<Verbs, Block, 4> = options.hub(&device).unwrap();
    let at = hub.listen(ListenOptions::new(), address()).unwrap();
    let silent = thread::spawn(move || {
        let prepared = client_options().params(hasty).connect::<Block>(at, PATIENCE).unwrap();
        prepared.no_receives().establish(PATIENCE).unwrap()
    });
    let deadline = Deadline::after(PATIENCE);
    let request = loop {
        assert!(!deadline.has_passed());
        match hub.poll_event().unwrap() {
            Some(Event::Request(request)) => break request,
            _ => thread::yield_now(),
        }
    };
    let ready = hub.accept(request).unwrap().receives(RECEIVES).unwrap();
    let key = ready.establish(PATIENCE).unwrap();
    let silent = silent.join().unwrap();
    for _ in 0..2 {
        let block = hub.block().unwrap();
        hub.peer(key).unwrap().post_send(block).unwrap();
    }
    let mut ends = Vec::new();
    while ends.len() < RECEIVES + 2 {
        assert!(!deadline.has_passed(), "{ends:?}");
        hub.poll().unwrap();
        while let Some((from, _, ended)) = hub.next_ended() {
            assert_eq!(from, key);
            ends.push(ended.outcome);
        }
    }
    let failed = ends.iter().filter(|end| matches!(end, Outcome::Failed(_))).count();
    assert!(failed == 1 && !ends.iter().any(Outcome::is_done), "{ends:?}");
    match hub.poll_event().unwrap() {
        Some(Event::Ended { key: over, end }) => {
            assert_eq!((over, end), (key, WaitError::Broken));
        }
        other => panic!("{other:?}"),
    }
    hub.close(key, Duration::ZERO, |_, _| panic!("all of it came")).unwrap();
    all_blocks(&mut hub, 64);
    drop(silent);
}
