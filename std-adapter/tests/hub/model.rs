//! Any order of joins, posts and leaves beside a ledger of contexts.

use super::*;

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
