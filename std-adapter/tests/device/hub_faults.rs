//! What goes wrong around a hub. Not run over the other family: the device goes.

use std::collections::HashSet;
use std::process::Command;
use std::thread;
use std::time::Duration;

use nanoverbs::Deadline;
use nanoverbs::hub::Event;

use crate::ends::PATIENCE;
use crate::faults::shell;
use crate::hub::{BLOCKS, RECEIVES, all_blocks, connect, hub};

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f62_a_hub_whose_device_is_deleted_under_load_gives_every_block_back_and_lets_go_of_it() {
    // librdmacm lets go of a removed device only when another one is left.
    shell("ip link add d1 type dummy\nip link set d1 up\nrdma link add rxe1 type rxe netdev d1");
    let (mut hub, at) = hub();
    let mut clients = Vec::new();
    for _ in 0..4 {
        let connecting = thread::spawn(move || connect(at));
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
        clients.push((key, connecting.join().unwrap()));
    }
    // More than the clients have receives for.
    for (key, _) in &clients {
        for _ in 0..4 {
            let block = hub.block().unwrap();
            hub.peer(*key).unwrap().post_send(block).unwrap();
        }
    }
    let mut removal = Command::new("rdma").args(["link", "delete", "rxe0"]).spawn().unwrap();
    let mut back = 0;
    let mut gone = HashSet::new();
    let deadline = Deadline::after(PATIENCE);
    while gone.len() < clients.len() {
        assert!(!deadline.has_passed(), "{gone:?}");
        // The device may be past being polled, and past being asked.
        while hub.poll().is_ok_and(|count| count > 0) {}
        while let Some((_, _, ended)) = hub.next_ended() {
            drop(ended);
            back += 1;
        }
        match hub.poll_event() {
            Ok(Some(Event::Ended { key, .. })) => assert!(gone.insert(key), "told once"),
            Ok(None) => thread::yield_now(),
            Ok(other) => panic!("{other:?}"),
            Err(_) => break,
        }
    }
    for (key, _) in &clients {
        hub.close(*key, Duration::ZERO, |_, _| back += 1).unwrap();
    }
    assert_eq!(back, 4 * (RECEIVES + 4), "each context once");
    all_blocks(&mut hub, BLOCKS);
    drop((hub, clients));
    let deadline = Deadline::after(PATIENCE);
    while removal.try_wait().unwrap().is_none() {
        assert!(!deadline.has_passed(), "something still holds the device");
        thread::sleep(Duration::from_millis(20));
    }
    // Ends once this process has.
    let _ = Command::new("ip").args(["link", "del", "d1"]).spawn();
    assert_eq!(nanoverbs_core::leaked_contexts(), 0);
}
