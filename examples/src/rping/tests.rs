//! Each end with another one that does not play by the rules.

use nanoverbs::endpoint::{Shared, Soft};
use nanoverbs::memory::Rights;
use nanoverbs::nanoverbs_core::{Access, RKey, RemoteRegion};

use super::*;

fn args(line: &str) -> Args {
    Args::parse_from(format!("rping {line}").split_whitespace())
}

/// A client and a server that are connected, on a device of their own.
fn pair(args: &Args) -> (Client<Soft>, Server<Soft>) {
    let device = Box::leak(Box::new(SoftDevice::new()));
    let [client, server] = args.options(args.room()).soft_pair(device).unwrap();
    (Client::new(client, args).unwrap(), Server::new(server, args).unwrap())
}

#[test]
fn the_command_line_is_sound() {
    use clap::CommandFactory;
    Args::command().debug_assert();
}

#[test]
fn pings_of_every_size_come_back_and_are_counted_at_both_ends() {
    for size in [26, 64, 1001, 4096, 65_536] {
        let args = args(&format!("-V -C 20 -S {size}"));
        let (client, server) = pair(&args);
        let served = std::thread::scope(|scope| {
            let server = scope.spawn(|| server.serve(&args));
            assert_eq!(client.play(&args).unwrap().pings, 20);
            server.join().unwrap()
        });
        assert_eq!(served.unwrap(), 20, "{size}");
    }
}

/// What the server says to a client that does this.
fn server_says(client: impl FnOnce(&mut End<Soft>)) -> String {
    let args = args("-V -S 64");
    let device = Box::leak(Box::new(SoftDevice::new()));
    let [end, server] = args.options(64).soft_pair(device).unwrap();
    let mut end = End::new(end, &args).unwrap();
    let server = Server::new(server, &args).unwrap();
    std::thread::scope(|scope| {
        let server = scope.spawn(|| server.serve(&args));
        client(&mut end);
        drop(end);
        server.join().unwrap().unwrap_err().to_string()
    })
}

/// A ping of the first round in memory that the server may read.
fn shared(end: &mut End<Soft>, len: usize) -> (Shared, RemoteRegion) {
    let memory = end.endpoint.share(len, Rights::READ_SOURCE).unwrap();
    let mut ping = vec![0; len];
    text::fill(&mut ping, 0);
    memory.write_at(0, &ping).unwrap();
    let remote = memory.advertise().at(0, len as u64).unwrap();
    (memory, remote)
}

#[test]
fn a_ping_that_is_too_long_is_refused_before_it_is_read() {
    let said = server_says(|end| {
        let (_memory, remote) = shared(end, 65);
        assert!(end.say(wire::advertise(remote)).is_ok());
        assert!(end.hear().is_err());
    });
    assert_eq!(said, "the client's ping has 65 bytes, and this server takes 64; -S says how many");
}

#[test]
fn a_wrong_byte_in_a_ping_is_named() {
    let said = server_says(|end| {
        let (memory, remote) = shared(end, 64);
        memory.write_at(40, b"?").unwrap();
        assert!(end.say(wire::advertise(remote)).is_ok());
        assert!(end.hear().is_err());
    });
    assert_eq!(said, "ping 0: byte 40 of 64 is wrong (0x3f)");
}

#[test]
fn a_client_that_leaves_in_the_middle_is_noticed() {
    let said = server_says(|end| {
        let (_memory, remote) = shared(end, 64);
        assert!(end.say(wire::advertise(remote)).is_ok());
        assert!(end.hear().is_ok());
    });
    assert_eq!(said, "the client has left, or is gone, in ping 0");
}

#[test]
fn memory_that_is_not_shared_is_not_read() {
    let said = server_says(|end| {
        let key = RKey::from_raw(7);
        let remote = RemoteRegion::new(4096, 64, key, Access::REMOTE_READ).unwrap();
        assert!(end.say(wire::advertise(remote)).is_ok());
        assert!(end.hear().is_err());
    });
    assert!(said.starts_with("RDMA READ failed: the peer's region does not allow it"), "{said}");
}

#[test]
fn a_message_of_another_length_is_refused() {
    let said = server_says(|end| {
        let short = end.buffer(15).unwrap();
        end.endpoint.post_send(short).unwrap();
        assert!(end.hear().is_err());
    });
    assert_eq!(said, "a message of 15 bytes came, and rping's have 16");
}

#[test]
fn a_server_that_writes_something_else_is_noticed_by_the_client() {
    let args = args("-V -C 5");
    let device = Box::leak(Box::new(SoftDevice::new()));
    let [client, end] = args.options(64).soft_pair(device).unwrap();
    let client = Client::new(client, &args).unwrap();
    let mut end = End::new(end, &args).unwrap();
    let failure = std::thread::scope(|scope| {
        let client = scope.spawn(|| client.play(&args).map(drop));
        for go_ahead in [[0; wire::LEN]; 2] {
            assert!(end.hear().is_ok());
            assert!(end.say(go_ahead).is_ok());
        }
        client.join().unwrap().unwrap_err()
    });
    assert_eq!(failure.to_string(), "ping 0: byte 0 of 64 is wrong (0x00)");
}
