//! Each end with another one that does not play by the rules.

use nanoverbs::endpoint::{Idle, Soft, SoftDevice};

use super::*;

type End = Endpoint<Soft, Block>;

const PLAN: Plan = Plan { size: 64, iters: 100, warmup: 0, depth: 1 };
const PATIENCE: Duration = Duration::from_secs(20);

fn pair(plan: Plan) -> [End; 2] {
    let device = Box::leak(Box::new(SoftDevice::new()));
    let idle = Idle::SpinThenWait { spins: 10 };
    let pair = plan.options(0, idle).soft_pair::<Block>(device).unwrap();
    pair.map(|end| end.receives(plan.depth as usize).unwrap().establish(PATIENCE).unwrap())
}

/// What the client says when `meddle` works on every message that comes back.
fn client_says(meddle: impl Fn(&mut Block, u64) + Sync) -> Failure {
    let [client, mut server] = pair(PLAN);
    let progress = AtomicU64::new(0);
    let client = Client::new(client, PLAN, 0, PATIENCE, &progress).unwrap();
    std::thread::scope(|scope| {
        let client = scope.spawn(|| client.play().map(drop));
        for round in 0.. {
            let Ok(ping) = server.recv_completion(PATIENCE) else { break };
            if !ping.outcome.is_done() {
                break;
            }
            let mut pong = ping.context;
            meddle(&mut pong, round);
            let spare = server.block().unwrap();
            if server.post_recv(spare).is_err() || server.post_send(pong).is_err() {
                break;
            }
            while let Ok(Some(_)) = server.try_send_completion() {}
        }
        client.join().unwrap().unwrap_err()
    })
}

#[test]
fn a_wrong_byte_ends_the_game_and_is_named() {
    let said = client_says(|pong, round| {
        if round == 7 {
            pong.set_len(64).unwrap();
            pong[63] ^= 1;
        }
    });
    assert!(said.to_string().starts_with("round trip 7: byte 63 of 64 is wrong"), "{said}");
}

#[test]
fn a_shorter_message_is_noticed() {
    let said = client_says(|pong, _| pong.set_len(63).unwrap());
    let words = "round trip 0: a message of 63 bytes arrived, and 64 were sent";
    assert_eq!(said.to_string(), words);
}

#[test]
fn an_old_message_is_noticed() {
    let said = client_says(|pong, _| {
        pong.set_len(64).unwrap();
        pattern::fill(pong, 0);
    });
    assert!(said.to_string().starts_with("round trip 1: byte 0 of 64 is wrong"), "{said}");
}

#[test]
fn the_server_notices_a_wrong_byte_too() {
    let [mut client, server] = pair(PLAN);
    let mut server = Server::new(server, PLAN, 0, PATIENCE, None).unwrap();
    let mut ping = client.block().unwrap();
    pattern::fill(&mut ping, 0);
    ping[1] ^= 1;
    client.post_send(ping).unwrap();
    server.answer().unwrap();
    client.recv_completion(PATIENCE).map(drop).unwrap();
    let said = server.tidy().unwrap_err().to_string();
    assert!(said.starts_with("round trip 0: byte 1 of 64 is wrong"), "{said}");
}

#[test]
fn a_peer_that_leaves_in_the_middle_is_said_with_how_far_it_came() {
    let [client, mut server] = pair(PLAN);
    let progress = AtomicU64::new(0);
    let mut client = Client::new(client, PLAN, 0, PATIENCE, &progress).unwrap();
    client.send().unwrap();
    let ping = server.recv_completion(PATIENCE).unwrap().context;
    server.post_send(ping).unwrap();
    client.receive().unwrap();
    drop(server);
    let said = client.send().and_then(|_| client.receive()).unwrap_err().to_string();
    assert!(said.ends_with("after 1 of 100 round trips"), "{said}");
}

#[test]
fn a_peer_that_says_nothing_is_given_up_in_time() {
    let [client, _server] = pair(PLAN);
    let progress = AtomicU64::new(0);
    let mut client = Client::new(client, PLAN, 0, Duration::from_secs(1), &progress).unwrap();
    client.send().unwrap();
    let said = client.receive().unwrap_err().to_string();
    assert!(said.starts_with("the peer has not answered for 1 seconds"), "{said}");
}
