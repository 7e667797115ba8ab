//! What members post and receive, and whose turn it is.

use super::*;

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
