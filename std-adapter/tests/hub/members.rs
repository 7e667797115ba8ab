//! Members that come and go, and what is refused.

use super::*;

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
