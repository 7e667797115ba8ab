//! Each end with another one that does not play by the rules.

use nanoverbs::endpoint::{Soft, SoftDevice};

use super::*;

type End = (Endpoint<Soft, Message>, Mailbox);

const PLAN: Plan = Plan { game: Game::Send, size: 64, iters: 100, warmup: 0, depth: 1 };
const PATIENCE: Duration = Duration::from_secs(20);
const IDLE: Idle = Idle::SpinThenWait { spins: 10 };

const fn setup(plan: Plan) -> Setup {
    Setup { plan, inline: 0, patience: PATIENCE, idle: IDLE }
}

fn pair(plan: Plan) -> [End; 2] {
    let device = Box::leak(Box::new(SoftDevice::new()));
    let [mut client, mut server] = plan.options(0, IDLE).soft_pair::<Message>(device).unwrap();
    let mut clients = Mailbox::new(&mut client, plan, Role::Client).unwrap();
    let mut servers = Mailbox::new(&mut server, plan, Role::Server).unwrap();
    clients.reaches(servers.advertise().unwrap());
    servers.reaches(clients.advertise().unwrap());
    [(client, clients), (server, servers)].map(|(end, mailbox)| {
        let end = end.receives(plan.receives()).unwrap().establish(PATIENCE).unwrap();
        (end, mailbox)
    })
}

/// What the client says when `meddle` works on every message that comes back.
fn client_says(meddle: impl Fn(&mut Message, u64) + Sync) -> Failure {
    let [(client, mailbox), (mut server, _)] = pair(PLAN);
    let progress = AtomicU64::new(0);
    let client = Client::new(client, mailbox, setup(PLAN), &progress).unwrap();
    std::thread::scope(|scope| {
        let client = scope.spawn(|| client.play().map(drop));
        for round in 0.. {
            let Ok(ping) = server.recv_completion(PATIENCE) else { break };
            if !ping.outcome.is_done() {
                break;
            }
            let mut pong = ping.context;
            meddle(&mut pong, round);
            let spare = server.block().unwrap().into();
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
            pong[63] ^= 1;
        }
    });
    assert!(said.to_string().starts_with("round trip 7: byte 63 of 64 is wrong"), "{said}");
}

#[test]
fn a_shorter_message_is_noticed() {
    let said = client_says(|pong, _| assert!(pong.set_len(63)));
    let words = "round trip 0: a message of 63 bytes arrived, and 64 were sent";
    assert_eq!(said.to_string(), words);
}

#[test]
fn an_old_message_is_noticed() {
    let said = client_says(|pong, _| pattern::fill(pong, 0));
    assert!(said.to_string().starts_with("round trip 1: byte 0 of 64 is wrong"), "{said}");
}

#[test]
fn the_server_notices_a_wrong_byte_too() {
    let [(mut client, _), (server, mailbox)] = pair(PLAN);
    let mut server = Server::new(server, mailbox, setup(PLAN), None).unwrap();
    let mut ping = Message::from(client.block().unwrap());
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
    let [(client, mailbox), (mut server, _)] = pair(PLAN);
    let progress = AtomicU64::new(0);
    let mut client = Client::new(client, mailbox, setup(PLAN), &progress).unwrap();
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
    for game in [Game::Send, Game::Write, Game::WriteInOrder] {
        let plan = Plan { game, ..PLAN };
        let [(client, mailbox), _server] = pair(plan);
        let progress = AtomicU64::new(0);
        let setup = Setup { patience: Duration::from_secs(1), ..setup(plan) };
        let mut client = Client::new(client, mailbox, setup, &progress).unwrap();
        client.send().unwrap();
        let said = client.receive().unwrap_err().to_string();
        assert!(said.starts_with("the peer has not answered for 1 seconds"), "{game}: {said}");
    }
}

/// Plays on one thread, and calls `meddle` between a ping and its answer.
fn written(plan: Plan, mut meddle: impl FnMut(u64, &mut End)) -> Result<(), Failure> {
    let [(client, mailbox), mut other] = pair(plan);
    let progress = AtomicU64::new(0);
    let mut client = Client::new(client, mailbox, setup(plan), &progress).unwrap();
    let mut pongs = 0;
    while !client.is_done() {
        for _ in 0..client.send()? {
            meddle(pongs, &mut other);
            pongs += 1;
        }
        client.receive()?;
    }
    Ok(())
}

/// What a server does, with a message that may be another than it should.
fn write_back(round: u64, turn: u64, (server, mailbox): &mut End, wrong: Option<usize>) {
    let mut pong = Message::from(server.block().unwrap());
    pong.set_len(mailbox.plan().size);
    mailbox.fill(&mut pong, turn);
    if let Some(at) = wrong {
        pong[at] ^= 1;
    }
    let write = op::Write::new(mailbox.remote(round).unwrap()).signaled();
    let write = match mailbox.plan().game {
        Game::Write => {
            let ping = server.recv_completion(PATIENCE).unwrap();
            server.post_recv(ping.context).unwrap();
            write.immediate(round as u32)
        }
        _ => write,
    };
    server.post(write, pong).unwrap();
    server.send_completion(PATIENCE).map(drop).unwrap();
}

#[test]
fn a_wrong_byte_in_memory_is_named() {
    for game in [Game::Write, Game::WriteInOrder] {
        let plan = Plan { game, ..PLAN };
        let said = written(plan, |round, server| {
            write_back(round, round, server, (round == 7).then_some(3));
        });
        let said = said.unwrap_err().to_string();
        assert!(said.starts_with("round trip 7: byte 3 of 64 is wrong"), "{game}: {said}");
    }
}

#[test]
fn a_message_of_the_turn_before_is_none() {
    let plan = Plan { game: Game::WriteInOrder, size: 1, ..PLAN };
    let [_, mut other] = pair(plan);
    let mut last = [0_u8; 2];
    // Each of the two places, more often than a byte can count.
    for round in 0..1000 {
        let mut message = Message::from(other.0.block().unwrap());
        assert!(message.set_len(1));
        other.1.fill(&mut message, round);
        let place = (round % 2) as usize;
        assert_ne!(message[0], last[place], "{round}");
        last[place] = message[0];
    }
}

#[test]
fn a_read_that_brings_nothing_is_noticed() {
    for size in [1, 2, 3, 8, 64] {
        let plan = Plan { game: Game::Read, size, ..PLAN };
        let [(client, mailbox), (_server, servers)] = pair(plan);
        servers.spoil();
        let progress = AtomicU64::new(0);
        let mut client = Client::new(client, mailbox, setup(plan), &progress).unwrap();
        client.send().unwrap();
        let said = client.receive().unwrap_err().to_string();
        assert!(said.contains("byte 0 of"), "{said}");
    }
}

#[test]
fn more_reads_than_the_connection_allows_are_refused() {
    let plan = Plan { game: Game::Read, depth: 17, ..PLAN };
    let [(client, mailbox), _server] = pair(plan);
    let progress = AtomicU64::new(0);
    let Err(said) = Client::new(client, mailbox, setup(plan), &progress).map(drop) else {
        panic!("17 READs at a time were allowed");
    };
    let words = "the connection allows 16 READs at a time, and --depth asks for 17";
    assert_eq!(said.to_string(), words);
}

#[test]
fn a_receiver_notices_what_is_wrong_and_what_is_missing() {
    let plan = Plan { game: Game::Rate, depth: 4, ..PLAN };
    let [(mut sender, _), (receiver, mailbox)] = pair(plan);
    let mut receiver = Receiver::new(receiver, mailbox, setup(plan), None).unwrap();
    for round in [0, 1, 3] {
        let mut message = Message::from(sender.block().unwrap());
        assert!(message.set_len(64));
        pattern::fill(&mut message, round);
        sender.post_send(message).unwrap();
    }
    let said = (0..4).try_for_each(|_| receiver.take(None)).unwrap_err().to_string();
    assert!(said.starts_with("message 2: byte 0 of 64 is wrong"), "{said}");

    let [(sender, _), (receiver, mailbox)] = pair(plan);
    let receiver = Receiver::new(receiver, mailbox, setup(plan), None).unwrap();
    drop(sender);
    let said = receiver.play().unwrap_err().to_string();
    assert!(said.ends_with("after 0 of 100 messages"), "{said}");
}

#[test]
fn a_sender_keeps_to_its_depth_and_times_what_comes_after_the_warm_up() {
    let plan = Plan { game: Game::Rate, depth: 8, warmup: 5, iters: 30, ..PLAN };
    let [(sender, mailbox), (receiver, other)] = pair(plan);
    let progress = AtomicU64::new(0);
    let mut sender = Sender::new(sender, mailbox, setup(plan), &progress).unwrap();
    let mut receiver = Receiver::new(receiver, other, setup(plan), None).unwrap();
    // Chains of 3; the warm-up ends with one of 2, which has to have arrived before the rest begins.
    assert_eq!([(); 4].map(|()| sender.send().unwrap()), [3, 2, 0, 0]);
    while !sender.is_done() {
        receiver.take(None).unwrap();
        sender.collect().unwrap();
        sender.send().unwrap();
    }
    while !receiver.is_done() {
        receiver.take(None).unwrap();
    }
    assert!(sender.finish().unwrap().elapsed > Duration::ZERO);
    receiver.finish().unwrap();
}
