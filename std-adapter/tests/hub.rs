//! Hubs on the soft device: many peers on one completion queue, without hardware.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nanoverbs::Deadline;
use nanoverbs::endpoint::{
    Endpoint, EndpointError, Options, PostError, ReceiveError, Refusal, Side, Soft, SoftDevice,
    WaitError,
};
use nanoverbs::hub::{AdmitError, Door, Event, Hub, HubError, Key, NotAMember};
use nanoverbs::memory::Rights;
use nanoverbs::poller::{End, Host, IdlePolicy, Poller, Serve};
use nanoverbs_core::{
    Block, Ended, JoinError, Outcome, PollError, RemoteRegion, ReserveError, leaked_contexts, op,
};

const PATIENCE: Duration = Duration::from_secs(60);

fn soon() -> Deadline {
    Deadline::after(PATIENCE)
}

/// A device with room for so many queue pairs, which a stack has not.
macro_rules! device {
    ($qps:literal) => {{
        static DEVICE: SoftDevice<$qps> = SoftDevice::new();
        &DEVICE
    }};
}

type Client<const QPS: usize> = Endpoint<Soft<QPS>, Block>;

/// A connected client with receives posted; the hub has yet to accept it.
fn client<const QPS: usize>(door: &Door<QPS>, receives: usize) -> Client<QPS> {
    let options = Options::new().depth(16, 16).blocks(32, 64);
    door.connect(options).unwrap().receives(receives).unwrap().establish(soon()).unwrap()
}

/// Accepts whoever asks, with `receives` posted for each; the keys in the order in which they asked.
fn accept<C, const QPS: usize, const N: usize>(
    hub: &mut Hub<Soft<QPS>, C, N>,
    receives: usize,
) -> Vec<Key>
where
    C: nanoverbs_core::RecvBuffers + From<Block>,
{
    let mut keys = Vec::new();
    while let Some(event) = hub.poll_event().unwrap() {
        match event {
            Event::Request(request) => {
                let ready = hub.accept(request).unwrap().receives(receives).unwrap();
                keys.push(ready.start().unwrap());
            }
            Event::Established(key) => assert!(keys.contains(&key)),
            other => panic!("{other:?}"),
        }
    }
    keys
}

/// All outcomes that there are.
fn outcomes<C: 'static, const QPS: usize, const N: usize>(
    hub: &mut Hub<Soft<QPS>, C, N>,
) -> Vec<(Key, Side, Ended<C>)> {
    let mut all = Vec::new();
    while hub.poll().unwrap() > 0 {}
    while let Some(outcome) = hub.next_ended() {
        all.push(outcome);
    }
    all
}

fn say<const QPS: usize>(client: &mut Client<QPS>, word: u32) {
    let mut block = client.block().unwrap();
    block.set_len(4).unwrap();
    block.copy_from_slice(&word.to_le_bytes());
    client.post_send(block).unwrap();
}

fn word(block: &[u8]) -> u32 {
    u32::from_le_bytes(*block.first_chunk().unwrap())
}

/// Every block of a hub, which has none out.
fn all_blocks<const QPS: usize, const N: usize>(hub: &mut Hub<Soft<QPS>, Block, N>, count: usize) {
    let blocks: Vec<_> = std::iter::from_fn(|| hub.block()).collect();
    assert_eq!(blocks.len(), count, "every block is back");
}

#[test]
fn sixty_four_members_talk_both_ways_and_every_block_comes_back() {
    const MEMBERS: usize = 64;
    let device = device!(128);
    let options = Options::new().depth(8, 8).blocks(MEMBERS * 16, 64);
    let mut hub: Hub<Soft<128>, Block, MEMBERS> = options.soft_hub(device).unwrap();
    let door = hub.door();
    let mut clients: Vec<_> = (0..MEMBERS).map(|_| client(&door, 4)).collect();
    let keys = accept(&mut hub, 4);
    assert_eq!((keys.len(), hub.len()), (MEMBERS, MEMBERS));
    assert_eq!(keys.iter().map(|key| key.index()).collect::<HashSet<_>>().len(), MEMBERS);

    let rounds = if cfg!(miri) { 1 } else { 20 };
    for round in 0..rounds {
        for (at, client) in clients.iter_mut().enumerate() {
            for message in 0..3 {
                say(client, at as u32 * 1000 + round * 10 + message);
            }
        }
        // Every message is sent back to who sent it, and the server has a word of its own for everybody.
        let mut echoes = 0;
        for &key in &keys {
            let mut peer = hub.peer(key).unwrap();
            let mut block = peer.block().unwrap();
            block.set_len(4).unwrap();
            block.copy_from_slice(&u32::MAX.to_le_bytes());
            peer.post_send(block).unwrap();
        }
        while echoes < 3 * MEMBERS {
            for (key, side, mut ended) in outcomes(&mut hub) {
                assert!(ended.outcome.is_done(), "{:?}", ended.outcome);
                let mut peer = hub.peer(key).unwrap();
                match side {
                    Side::Recv => {
                        echoes += 1;
                        ended.context.set_len(4).unwrap();
                        peer.post_send(ended.context).unwrap();
                        let block = peer.block().unwrap();
                        peer.post_recv(block).unwrap();
                    }
                    Side::Send => drop(ended.context),
                }
            }
        }
        for (at, client) in clients.iter_mut().enumerate() {
            let mut heard = Vec::new();
            for _ in 0..4 {
                let ended = client.recv_completion(soon()).unwrap();
                heard.push(word(&ended.context));
                client.post_recv(ended.context).unwrap();
            }
            let first = at as u32 * 1000 + round * 10;
            assert_eq!(heard, [u32::MAX, first, first + 1, first + 2]);
            while client.sends_in_flight() > 0 {
                drop(client.send_completion(soon()).unwrap());
            }
        }
    }
    let mut left = 0;
    for key in keys {
        hub.close(key, soon(), |side, ended| {
            left += usize::from(side == Side::Recv);
            assert!(side == Side::Send || matches!(ended.outcome, Outcome::Flushed));
        })
        .unwrap();
    }
    assert_eq!((left, hub.len(), hub.strays()), (4 * MEMBERS, 0, 0));
    for mut client in clients {
        // Its peer has disconnected: four receives come back, and then nothing.
        for _ in 0..4 {
            assert!(!client.recv_completion(soon()).unwrap().outcome.is_done());
        }
        assert_eq!(client.recv_completion(soon()).unwrap_err(), WaitError::Disconnected);
    }
    all_blocks(&mut hub, MEMBERS * 16);
}

#[test]
fn one_sided_work_of_a_hub_reaches_its_peers_and_theirs_reaches_the_hub() {
    let device = device!(8);
    let mut hub: Hub<Soft<8>, Block, 4> = Options::new().blocks(16, 64).soft_hub(device).unwrap();
    let door = hub.door();
    let mut clients: Vec<_> = (0..3).map(|_| client(&door, 1)).collect();
    let keys = accept(&mut hub, 1);
    // One piece of memory for all of them.
    let store = hub.share(4096, Rights::READ_SOURCE.and(Rights::WRITE_TARGET)).unwrap();
    let remote = RemoteRegion::from_wire(&store.advertise().to_wire()).unwrap();
    for (at, client) in clients.iter_mut().enumerate() {
        let mut block = client.block().unwrap();
        block.fill(at as u8 + 1);
        client.post_write(remote.at(at as u64 * 64, 64).unwrap(), block).unwrap();
        assert!(client.send_completion(soon()).unwrap().outcome.is_done());
    }
    for at in 0..3 {
        let mut bytes = [0; 64];
        store.read_at(at * 64, &mut bytes).unwrap();
        assert_eq!(bytes, [at as u8 + 1; 64]);
    }
    // And the hub reads from each of them.
    for (at, (client, &key)) in clients.iter_mut().zip(&keys).enumerate() {
        let shared = client.share(64, Rights::READ_SOURCE).unwrap();
        shared.write_at(0, &[at as u8 + 7; 64]).unwrap();
        let block = hub.block().unwrap();
        let mut peer = hub.peer(key).unwrap();
        assert_eq!(peer.reads(), (16, 0));
        peer.post_read(shared.advertise().at(0, 64).unwrap(), block).unwrap();
        assert_eq!(peer.reads(), (16, 1));
        let deadline = soon();
        let (whose, side, ended) = loop {
            hub.poll().unwrap();
            if let Some(outcome) = hub.next_ended() {
                break outcome;
            }
            assert!(!deadline.has_passed());
        };
        assert_eq!((whose, side), (key, Side::Send));
        assert_eq!(&ended.context[..], [at as u8 + 7; 64]);
    }
}

#[test]
fn nobody_waits_longer_than_a_turn_of_each_other_member() {
    let device = device!(8);
    let options = Options::new().depth(64, 64).blocks(256, 64).budget(2);
    let mut hub: Hub<Soft<8>, Block, 4> = options.soft_hub(device).unwrap();
    let door = hub.door();
    let mut clients: Vec<_> = (0..3).map(|_| client(&door, 0)).collect();
    let keys = accept(&mut hub, 16);
    for _ in 0..12 {
        say(&mut clients[0], 0);
    }
    for at in [1, 1, 1, 2] {
        say(&mut clients[at], 0);
    }
    let mut order: Vec<_> = outcomes(&mut hub)
        .iter()
        .map(|(key, ..)| keys.iter().position(|known| known == key).unwrap())
        .collect();
    // Round by round; who comes first in one depends on whose message the device moved first.
    for round in [0..5, 5..8] {
        order[round].sort_unstable();
    }
    assert_eq!(order, [0, 0, 1, 1, 2, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    // A member that gets something new whenever it was served keeps nobody from its turn.
    (0..4).for_each(|_| say(&mut clients[1], 0));
    (0..2).for_each(|_| say(&mut clients[2], 0));
    while hub.poll().unwrap() > 0 {}
    let mut served = [0; 3];
    while served[1] == 0 || served[2] == 0 {
        let (key, _, ended) = hub.next_ended().unwrap();
        served[keys.iter().position(|known| *known == key).unwrap()] += 1;
        hub.peer(key).unwrap().post_recv(ended.context).unwrap();
        if key == keys[1] {
            say(&mut clients[1], 0);
            while hub.poll().unwrap() > 0 {}
        }
    }
    assert!(served[1] <= 2 && served[2] <= 2, "{served:?}");
}

#[test]
fn sends_and_receives_of_a_member_take_turns() {
    let device = device!(4);
    let mut hub: Hub<Soft<4>, Block, 2> = Options::new().blocks(32, 64).soft_hub(device).unwrap();
    let mut client = client(&hub.door(), 4);
    let keys = accept(&mut hub, 4);
    for _ in 0..4 {
        say(&mut client, 0);
        let block = hub.block().unwrap();
        hub.peer(keys[0]).unwrap().post_send(block).unwrap();
    }
    let sides: Vec<_> = outcomes(&mut hub).into_iter().map(|(_, side, _)| side).collect();
    assert_eq!(sides, [Side::Recv, Side::Send].repeat(4));
}

#[test]
fn a_chain_of_a_member_goes_out_behind_one_doorbell() {
    let device = device!(4);
    let mut hub: Hub<Soft<4>, Block, 2> = Options::new().blocks(32, 64).soft_hub(device).unwrap();
    let mut client = client(&hub.door(), 8);
    let key = accept(&mut hub, 0)[0];
    let blocks: Vec<_> = (0..8).map(|_| hub.block().unwrap()).collect();
    let mut peer = hub.peer(key).unwrap();
    let mut chain = peer.reserve_sends(8).unwrap();
    for (at, block) in blocks.into_iter().enumerate() {
        let silent = op::Send::new();
        chain.push(if at == 7 { silent.signaled() } else { silent }, block).unwrap();
    }
    assert_eq!(chain.submit().unwrap(), 8);
    for _ in 0..8 {
        assert!(client.recv_completion(soon()).unwrap().outcome.is_done());
    }
    assert_eq!(hub.sends_in_flight(), 8);
    assert_eq!(outcomes(&mut hub).len(), 8);
    assert_eq!(hub.sends_in_flight(), 0);
}

#[test]
fn f23_a_member_on_its_way_takes_receives_refuses_sends_and_keeps_early_messages() {
    let device = device!(4);
    let mut hub: Hub<Soft<4>, Block, 2> = Options::new().blocks(32, 64).soft_hub(device).unwrap();
    let mut client = client(&hub.door(), 1);
    let Some(Event::Request(request)) = hub.poll_event().unwrap() else { panic!("nobody asks") };
    let mut ready = hub.accept(request).unwrap().receives(1).unwrap();
    let block = ready.block().unwrap();
    ready.post_recv(block).unwrap();
    let key = ready.start().unwrap();

    let block = hub.block().unwrap();
    let mut peer = hub.peer(key).unwrap();
    assert!(!peer.is_connected());
    let refused = peer.post_send(block).unwrap_err();
    assert_eq!(refused.refusal(), Some(Refusal::Reserve(ReserveError::NotConnected)));
    let PostError::Refused { context, .. } = refused else { panic!("{refused:?}") };
    peer.post_recv(context).unwrap();
    assert_eq!(peer.receives_posted(), 3);

    // The peer is faster than the news that the connection stands.
    say(&mut client, 7);
    assert!(client.send_completion(soon()).unwrap().outcome.is_done());
    while hub.poll().unwrap() > 0 {}
    assert!(hub.next_ended().is_none(), "it could not be answered yet");
    let Some(Event::Established(stands)) = hub.poll_event().unwrap() else { panic!("no news") };
    assert_eq!(stands, key);
    let (from, side, ended) = hub.next_ended().unwrap();
    assert_eq!((from, side, word(&ended.context)), (key, Side::Recv, 7));
    hub.peer(key).unwrap().post_send(ended.context).unwrap();
    assert_eq!(word(&client.recv_completion(soon()).unwrap().context), 7);
}

#[test]
fn a_blocking_accept_gives_a_member_that_sends() {
    let device = device!(4);
    let mut hub: Hub<Soft<4>, Block, 2> = Options::new().blocks(32, 64).soft_hub(device).unwrap();
    let mut client = client(&hub.door(), 1);
    let Some(Event::Request(request)) = hub.poll_event().unwrap() else { panic!("nobody asks") };
    let key = hub.accept(request).unwrap().no_receives().establish(soon()).unwrap();
    let block = hub.block().unwrap();
    hub.peer(key).unwrap().post_send(block).unwrap();
    assert!(client.recv_completion(soon()).unwrap().outcome.is_done());
    assert!(hub.poll_event().unwrap().is_none(), "it is known to stand");
}

#[test]
fn f64_closing_a_member_with_work_in_flight_gives_each_context_back_once_and_no_others() {
    let device = device!(8);
    let options = Options::new().depth(8, 8).blocks(32, 64);
    let mut hub: Hub<Soft<8>, Block, 4> = options.soft_hub(device).unwrap();
    let door = hub.door();
    let (mut stays, mut leaves) = (client(&door, 4), client(&door, 0));
    let keys = accept(&mut hub, 4);
    // Three messages that nobody has a receive for, one received and not taken, three receives.
    for _ in 0..3 {
        let block = hub.block().unwrap();
        hub.peer(keys[1]).unwrap().post_send(block).unwrap();
    }
    say(&mut leaves, 1);
    say(&mut stays, 2);
    drop(leaves.send_completion(soon()).unwrap());
    drop(stays.send_completion(soon()).unwrap());
    let (mut sends, mut receives) = (Vec::new(), Vec::new());
    hub.close(keys[1], soon(), |side, ended| match side {
        Side::Send => sends.push(ended),
        Side::Recv => receives.push(ended),
    })
    .unwrap();
    assert_eq!((sends.len(), receives.len()), (3, 4));
    assert!(sends.iter().all(|ended| !ended.outcome.is_done()));
    assert_eq!(receives.iter().filter(|ended| ended.outcome.is_done()).count(), 1);
    // What the other member got meanwhile is there.
    let got = outcomes(&mut hub);
    assert_eq!(got.len(), 1);
    assert_eq!((got[0].0, word(&got[0].2.context)), (keys[0], 2));
    drop((sends, receives, got));
    let mut left = 0;
    hub.close(keys[0], soon(), |_, _| left += 1).unwrap();
    assert_eq!(left, 3);
    all_blocks(&mut hub, 32);
}

#[test]
fn a_new_member_in_the_place_of_one_that_left_is_another() {
    let device = device!(4);
    let options = Options::new().depth(4, 4).blocks(16, 64);
    let mut hub: Hub<Soft<4>, Block, 1> = options.soft_hub(device).unwrap();
    let door = hub.door();
    let mut first = client(&door, 0);
    let old = accept(&mut hub, 4)[0];
    for message in 0..4 {
        say(&mut first, message);
        assert!(first.send_completion(soon()).unwrap().outcome.is_done());
    }
    // Four completions wait; it does not.
    let mut abandoned = 0;
    hub.close(old, Duration::ZERO, |side, ended| {
        assert!(side == Side::Recv);
        abandoned += usize::from(matches!(ended.outcome, Outcome::Abandoned | Outcome::Done(_)));
    })
    .unwrap();
    assert_eq!(abandoned, 4);
    drop(first);

    let mut second = client(&door, 1);
    let new = accept(&mut hub, 1)[0];
    assert_eq!((new.index(), hub.len()), (old.index(), 1));
    assert_ne!(new, old);
    assert_eq!(hub.peer(old).unwrap_err(), NotAMember { key: old });
    let closed = hub.close(old, soon(), |_, _| panic!("nothing of it is left"));
    assert_eq!(closed, Err(NotAMember { key: old }));
    say(&mut second, 9);
    drop(second.send_completion(soon()).unwrap());
    let got = outcomes(&mut hub);
    assert_eq!(got.len(), 1);
    assert_eq!((got[0].0, word(&got[0].2.context)), (new, 9));
    assert_eq!(hub.strays(), 0);
}

#[test]
fn what_waited_of_a_member_that_left_gives_nothing_of_the_next_one_away() {
    let device = device!(4);
    let options = Options::new().depth(4, 4).blocks(16, 64);
    let mut hub: Hub<Soft<4>, Block, 1> = options.soft_hub(device).unwrap();
    let door = hub.door();
    let mut first = client(&door, 0);
    let old = accept(&mut hub, 2)[0];
    say(&mut first, 1);
    while hub.poll().unwrap() > 0 {}
    assert_eq!(hub.waiting(), 1, "it stands in line");
    hub.close(old, Duration::ZERO, |_, _| {}).unwrap();
    drop(first);
    let mut second = client(&door, 0);
    let Some(Event::Request(request)) = hub.poll_event().unwrap() else { panic!("nobody asks") };
    let new = hub.accept(request).unwrap().receives(1).unwrap().start().unwrap();
    say(&mut second, 2);
    while hub.poll().unwrap() > 0 {}
    assert!(hub.next_ended().is_none(), "it is not told yet that it stands");
    assert!(matches!(hub.poll_event().unwrap(), Some(Event::Established(key)) if key == new));
    assert_eq!(word(&hub.next_ended().unwrap().2.context), 2);
}

#[test]
fn a_peer_that_leaves_ends_its_member_and_no_other() {
    let device = device!(8);
    let mut hub: Hub<Soft<8>, Block, 4> = Options::new().blocks(32, 64).soft_hub(device).unwrap();
    let door = hub.door();
    let mut clients: Vec<_> = (0..3).map(|_| client(&door, 1)).collect();
    let keys = accept(&mut hub, 2);
    drop(clients.remove(1));
    assert!(hub.poll_event().unwrap().is_none(), "it has receives in flight");
    let flushed = outcomes(&mut hub);
    let Some(Event::Ended { key: gone, end }) = hub.poll_event().unwrap() else {
        panic!("no news")
    };
    assert_eq!((gone, end), (keys[1], WaitError::Disconnected));
    assert!(!hub.peer(gone).unwrap().is_connected());
    assert_eq!(flushed.len(), 2);
    for (key, side, ended) in flushed {
        assert_eq!((key, side), (gone, Side::Recv));
        assert!(matches!(ended.outcome, Outcome::Flushed));
        let mut peer = hub.peer(key).unwrap();
        let refused = peer.post_recv(ended.context).unwrap_err();
        assert!(matches!(refused.refusal(), Some(Refusal::Reserve(ReserveError::Closed(_)))));
    }
    hub.close(gone, Duration::ZERO, |_, _| panic!("all of it came")).unwrap();
    for (client, key) in clients.iter_mut().zip([keys[0], keys[2]]) {
        say(client, 3);
        let deadline = soon();
        let got = loop {
            if let Some(got) = outcomes(&mut hub).pop() {
                break got;
            }
            assert!(!deadline.has_passed());
        };
        assert_eq!(got.0, key);
    }
    assert_eq!(hub.len(), 2);
}

#[test]
fn f01_a_failure_ends_its_member_and_no_other_also_when_the_peer_says_nothing() {
    let device = device!(8);
    let options = Options::new().blocks(32, 64).soft_rnr_retry(0);
    let mut hub: Hub<Soft<8>, Block, 4> = options.soft_hub(device).unwrap();
    let door = hub.door();
    let (mut good, silent) = (client(&door, 1), client(&door, 0));
    let keys = accept(&mut hub, 2);
    for _ in 0..2 {
        let block = hub.block().unwrap();
        hub.peer(keys[1]).unwrap().post_send(block).unwrap();
    }
    let ends: Vec<_> = outcomes(&mut hub).into_iter().collect();
    assert_eq!(ends.len(), 4, "two sends and two receives");
    assert!(ends.iter().all(|(key, ..)| *key == keys[1]));
    let failed = ends.iter().filter(|(.., ended)| matches!(ended.outcome, Outcome::Failed(_)));
    assert_eq!(failed.count(), 1);
    let Some(Event::Ended { key: over, end }) = hub.poll_event().unwrap() else {
        panic!("no news")
    };
    assert_eq!((over, end), (keys[1], WaitError::Broken));
    assert!(hub.poll_event().unwrap().is_none(), "it is told once");
    hub.close(over, Duration::ZERO, |_, _| panic!("all of it came")).unwrap();
    drop((ends, silent));
    let block = hub.block().unwrap();
    hub.peer(keys[0]).unwrap().post_send(block).unwrap();
    assert!(good.recv_completion(soon()).unwrap().outcome.is_done());
}

#[test]
fn a_disconnect_of_the_hubs_own_flushes_and_is_news() {
    let device = device!(4);
    let mut hub: Hub<Soft<4>, Block, 2> = Options::new().blocks(32, 64).soft_hub(device).unwrap();
    let mut client = client(&hub.door(), 1);
    let key = accept(&mut hub, 3)[0];
    hub.peer(key).unwrap().disconnect();
    assert!(hub.poll_event().unwrap().is_none(), "it has receives in flight");
    assert_eq!(outcomes(&mut hub).len(), 3);
    let Some(Event::Ended { key: ended, .. }) = hub.poll_event().unwrap() else {
        panic!("no news")
    };
    assert_eq!(ended, key);
    assert!(!client.recv_completion(soon()).unwrap().outcome.is_done());
    assert!(hub.poll_event().unwrap().is_none(), "it is told once");
}

#[test]
fn a_full_hub_refuses_and_takes_the_next_one_when_a_place_is_free() {
    let device = device!(8);
    let options = Options::new().depth(4, 4).blocks(16, 64);
    let mut hub: Hub<Soft<8>, Block, 2> = options.soft_hub(device).unwrap();
    let door = hub.door();
    let _clients = [client(&door, 1), client(&door, 1)];
    let keys = accept(&mut hub, 1);
    let mut third = client(&door, 1);
    let Some(Event::Request(request)) = hub.poll_event().unwrap() else { panic!("nobody asks") };
    let refused = hub.accept(request).unwrap_err();
    assert!(matches!(refused, AdmitError::Join(JoinError::Full { members: 2 })), "{refused:?}");
    assert_eq!(refused.to_string(), "the group has 2 members already");
    assert!(!third.recv_completion(soon()).unwrap().outcome.is_done(), "it is told");
    drop(third);
    hub.close(keys[0], Duration::ZERO, |_, _| {}).unwrap();
    let _fourth = client(&door, 1);
    assert_eq!(accept(&mut hub, 1).len(), 1);
    assert_eq!(hub.len(), 2);
}

#[test]
fn what_a_hub_cannot_have_is_said_with_both_numbers() {
    let device = device!(2);
    let hub: Result<Hub<Soft<2>, Block, 64>, _> = Options::new().depth(64, 64).soft_hub(device);
    let Err(HubError::TooManyCompletions { need: 8192, max: 1024 }) = hub else {
        panic!("{hub:?}")
    };
    assert_eq!(
        hub.unwrap_err().to_string(),
        "the members could have 8192 requests in flight, and a completion queue of the device holds 1024"
    );
    let hub: Result<Hub<Soft<2>, Block, 4>, _> = Options::new().depth(0, 64).soft_hub(device);
    assert!(matches!(hub, Err(HubError::Endpoint(EndpointError::OutOfRange { .. }))), "{hub:?}");
}

#[test]
fn who_is_not_let_in_after_all_takes_no_place_and_no_block() {
    let device = device!(8);
    let options = Options::new().depth(4, 4).blocks(4, 64);
    let mut hub: Hub<Soft<8>, Block, 2> = options.soft_hub(device).unwrap();
    let door = hub.door();
    for _ in 0..6 {
        let mut refused = client(&door, 1);
        let Some(Event::Request(request)) = hub.poll_event().unwrap() else { panic!("no news") };
        let joining = hub.accept(request).unwrap();
        // More receives than there are blocks.
        let error = joining.receives(5).map(drop).unwrap_err();
        assert!(matches!(
            error,
            EndpointError::Receive(ReceiveError::NoBlock | ReceiveError::Refused(_))
        ));
        assert!(!refused.recv_completion(soon()).unwrap().outcome.is_done());
        assert!(hub.is_empty());
        all_blocks(&mut hub, 4);
    }
    // Dropped on the way, or not even asked.
    let one = client(&door, 0);
    let Some(Event::Request(request)) = hub.poll_event().unwrap() else { panic!("no news") };
    drop(hub.accept(request).unwrap().receives(2).unwrap());
    let two = client(&door, 0);
    drop(hub.poll_event().unwrap());
    drop((one, two));
    assert!(hub.is_empty());
    all_blocks(&mut hub, 4);
}

#[test]
fn a_key_of_another_hub_is_refused() {
    let device = device!(8);
    let mut one: Hub<Soft<8>, Block, 2> = Options::new().soft_hub(device).unwrap();
    let mut other: Hub<Soft<8>, Block, 2> = Options::new().soft_hub(device).unwrap();
    let _clients = [client(&one.door(), 0), client(&other.door(), 0)];
    let (key, others) = (accept(&mut one, 0)[0], accept(&mut other, 0)[0]);
    assert_eq!(key.index(), others.index());
    let error = one.peer(others).unwrap_err();
    assert_eq!(error, NotAMember { key: others });
    assert!(error.to_string().contains("another hub's"), "{error}");
    one.peer(key).unwrap();
}

#[test]
fn f63_a_dropped_hub_ends_its_members_and_leaks_nothing() {
    let device = device!(8);
    for _ in 0..5 {
        let mut hub: Hub<Soft<8>, Block, 4> = Options::new().soft_hub(device).unwrap();
        let door = hub.door();
        let mut clients: Vec<_> = (0..3).map(|_| client(&door, 1)).collect();
        let keys = accept(&mut hub, 2);
        for &key in &keys {
            let block = hub.block().unwrap();
            hub.peer(key).unwrap().post_send(block).unwrap();
        }
        say(&mut clients[0], 1);
        let held = hub.block();
        drop(hub);
        drop(held);
        for client in &mut clients {
            while client.recv_completion(soon()).is_ok() {}
            assert_eq!(client.recv_completion(soon()).unwrap_err(), WaitError::Disconnected);
        }
        let gone = door.connect::<Block>(Options::new()).map(drop);
        assert!(matches!(gone, Err(EndpointError::SoftQueuePair(_))), "{gone:?}");
    }
    assert_eq!(leaked_contexts(), 0);
}

#[test]
fn a_device_that_is_taken_away_is_an_error_and_every_context_comes_back() {
    let device = device!(8);
    let options = Options::new().depth(4, 4).blocks(16, 64);
    let mut hub: Hub<Soft<8>, Block, 4> = options.soft_hub(device).unwrap();
    let door = hub.door();
    let clients: Vec<_> = (0..2).map(|_| client(&door, 0)).collect();
    let keys = accept(&mut hub, 4);
    device.remove();
    let mut back = 0;
    while let Some((.., ended)) = hub.next_ended() {
        drop(ended);
        back += 1;
    }
    assert_eq!(hub.poll(), Err(PollError { code: -5 }));
    for key in keys {
        hub.close(key, Duration::ZERO, |_, _| back += 1).unwrap();
    }
    assert_eq!(back, 8);
    drop(clients);
    all_blocks(&mut hub, 16);
}

/// Every context has a number of its own.
type Numbered = (Block, u64);

/// What was posted and did not come back yet.
#[derive(Default)]
struct Ledger {
    next: u64,
    out: HashMap<u64, Key>,
}

impl Ledger {
    fn number(&mut self, key: Key) -> u64 {
        self.next += 1;
        assert!(self.out.insert(self.next, key).is_none());
        self.next
    }

    fn back(&mut self, key: Key, ended: Ended<Numbered>) {
        assert_eq!(
            self.out.remove(&ended.context.1),
            Some(key),
            "it comes back once, to its member"
        );
    }
}

#[test]
fn f06_any_order_of_joins_posts_and_leaves_gives_each_context_back_exactly_once() {
    let device = device!(32);
    let options = Options::new().depth(4, 4).blocks(256, 64).budget(3).soft_rnr_retry(64);
    let mut hub: Hub<Soft<32>, Numbered, 8> = options.soft_hub(device).unwrap();
    let door = hub.door();
    let mut seed = 7_u32;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 16) as usize % below
    };
    let mut ledger = Ledger::default();
    let mut clients: HashMap<Key, Client<32>> = HashMap::new();
    let (mut keys, mut old): (Vec<Key>, Vec<Key>) = (Vec::new(), Vec::new());
    let (mut joined, mut left, mut gone) = (0, 0, 0);
    for _ in 0..if cfg!(miri) { 200 } else { 5000 } {
        match random(8) {
            // Somebody comes.
            0 if keys.len() < 8 => {
                let client = client(&door, random(5));
                let mut news = Vec::new();
                while let Some(event) = hub.poll_event().unwrap() {
                    news.push(event);
                }
                let mut request = None;
                for event in news {
                    match event {
                        Event::Request(came) => request = Some(came),
                        Event::Ended { .. } => gone += 1,
                        other => panic!("{other:?}"),
                    }
                }
                let mut joining = hub.accept(request.unwrap()).unwrap();
                let key = joining.key();
                let contexts: Vec<_> = (0..random(5))
                    .map(|_| (joining.block().unwrap(), ledger.number(key)))
                    .collect();
                joining.receives_into(contexts).unwrap().establish(soon()).unwrap();
                clients.insert(key, client);
                keys.push(key);
                joined += 1;
            }
            // A peer goes, and nobody is told yet.
            1 if !keys.is_empty() => {
                clients.remove(&keys[random(keys.len())]);
            }
            // A member is closed, patiently or not.
            2 if !keys.is_empty() => {
                let key = keys.swap_remove(random(keys.len()));
                let patience = [Duration::ZERO, PATIENCE][random(2)];
                hub.close(key, patience, |_, ended| ledger.back(key, ended)).unwrap();
                assert!(ledger.out.values().all(|owner| *owner != key), "nothing is left of it");
                clients.remove(&key);
                old.push(key);
                left += 1;
            }
            3 | 4 if !keys.is_empty() => {
                let key = keys[random(keys.len())];
                let number = ledger.number(key);
                let context = (hub.block().unwrap(), number);
                let mut peer = hub.peer(key).unwrap();
                let posted = match random(3) {
                    0 => peer.post_recv(context),
                    1 => peer.post(op::Send::new(), context),
                    _ => peer.post_send(context),
                };
                match posted {
                    Ok(()) => {}
                    Err(PostError::Refused { context, .. }) => {
                        assert_eq!(ledger.out.remove(&context.1), Some(key));
                    }
                    Err(PostError::Unknown { code }) => panic!("{code}"),
                }
            }
            5 if !clients.is_empty() => {
                let at = random(clients.len());
                let client = clients.values_mut().nth(at).unwrap();
                while let Ok(Some(_)) = client.try_send_completion() {}
                while let Ok(Some(_)) = client.try_recv_completion() {}
                if let Some(block) = client.block() {
                    drop(client.post_send(block));
                }
                if let Some(block) = client.block() {
                    drop(client.post_recv(block));
                }
            }
            6 => drop(hub.poll().unwrap()),
            _ => {
                for _ in 0..random(6) {
                    let Some((key, _, ended)) = hub.next_ended() else { break };
                    assert!(keys.contains(&key), "who left has no more outcomes");
                    ledger.back(key, ended);
                }
            }
        }
        assert_eq!(hub.len(), keys.len());
        if let Some(key) = old.last() {
            assert!(hub.peer(*key).is_err());
        }
    }
    for key in keys {
        hub.close(key, PATIENCE, |_, ended| ledger.back(key, ended)).unwrap();
    }
    assert!(ledger.out.is_empty());
    assert_eq!(hub.strays(), 0);
    assert!(cfg!(miri) || (joined > 100 && left > 100 && gone > 10), "{joined} {left} {gone}");
    let blocks: Vec<_> = std::iter::from_fn(|| hub.block()).collect();
    assert_eq!(blocks.len(), 256);
}

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
