//! Failures of the field that have no better place.

use std::net::{SocketAddr, SocketAddrV6};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nanoverbs::cm::{
    AckTimeout, ConnectParams, ConnectionEvent, Connector, Listener, Lookup, LookupError, Retry,
};
use nanoverbs::endpoint::{Endpoint, Options, Verbs};
use nanoverbs::event::DeviceEventKind;
use nanoverbs::{Deadline, QpState, devices};
use nanoverbs_core::{Block, Outcome};

use crate::ends::{PATIENCE, PROMPT, Setup, address, connected, connected_at, ip};
use crate::readable;

fn shell(line: &str) {
    let status = Command::new("/usr/bin/busybox").args(["sh", "-eu", "-c", line]).status();
    assert!(status.expect("it runs").success(), "{line}");
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f47_a_neighbour_that_changes_is_told_and_ends_nothing() {
    // Two interfaces with a wire between them: only there are neighbours looked up.
    shell(". /bed/lib.sh; veth_pair");
    let at: SocketAddr = "10.1.0.2:0".parse().expect("an address");
    let (mut client, mut server) = connected_at(at, &Setup { receives: 1, ..Setup::default() });
    assert_eq!(client.connection.local_addr().ip().to_string(), "10.1.0.1");
    shell(
        "/usr/sbin/ip neigh replace 10.1.0.2 lladdr 02:00:00:00:00:99 dev v0 nud permanent; \
         /usr/sbin/ip neigh replace 10.1.0.2 lladdr 02:00:00:00:00:02 dev v0 nud permanent",
    );
    readable(&client.connection);
    let event = client.connection.poll_event().expect("no error");
    assert_eq!(event, Some(ConnectionEvent::Unreachable));
    assert!(!client.connection.has_ended(), "requests under way decide");
    assert_eq!(client.parts.post_send(8, 4, 0), 0);
    assert_eq!(server.parts.received(1)[0].status, 0);
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f50_a_machine_without_a_device_is_told_so() {
    shell("rdma link delete rxe0");
    assert_eq!(devices(), Ok(Vec::new()));
    assert_eq!(Lookup::listen("7471").run(), Err(LookupError::NoRdmaDevice));
    let text = LookupError::NoRdmaDevice.to_string();
    assert!(text.contains("no RDMA device") && !text.contains("ai_flags"), "{text}");
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f56_the_connection_manager_chooses_the_gid_also_for_a_link_local_address() {
    let scope = std::fs::read_to_string("/sys/class/net/d0/ifindex").expect("the bed's interface");
    let scope = scope.trim().parse().expect("a number");
    // The address follows from that of the interface, 02:00:00:00:00:10.
    let local = "fe80::ff:fe00:10".parse().expect("an address");
    let link_local = SocketAddr::V6(SocketAddrV6::new(local, 0, 0, scope));
    let v6 = SocketAddr::new(ip("NANOVERBS_RXE_ADDR6"), 0);
    for at in [address(), v6, link_local] {
        let (mut client, mut server) = connected_at(at, &Setup { receives: 1, ..Setup::default() });
        assert_eq!(client.connection.peer_addr().ip(), at.ip());
        assert_eq!(client.parts.post_send(8, 4, 0), 0);
        assert_eq!(server.parts.received(1)[0].status, 0, "{at}");
    }
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f58_a_disconnect_moves_the_queue_pair_to_the_error_state_and_flushes() {
    let (mut client, mut server) = connected(&Setup { receives: 3, ..Setup::default() });
    client.connection.disconnect().expect("it can");
    let view = client.parts.queue_pair.view().expect("a view");
    assert_eq!(view.state, QpState::Error);
    assert!(client.parts.received(3).iter().all(|wc| wc.status == 5));
    assert_eq!(server.connection.wait_ended(PATIENCE), Ok(true));
    assert!(server.parts.received(3).iter().all(|wc| wc.status == 5));
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f61_a_dead_peer_is_noticed_no_later_than_was_computed() {
    let timeout = AckTimeout::code(14).expect("in range");
    let retry = Retry::times(1).expect("in range");
    let params = ConnectParams::new().ack_timeout(timeout).retry(retry);
    let (mut client, server) = connected(&Setup { client: params, ..Setup::default() });
    // The peer's queue pair is gone for the wire, and nobody is told.
    server.parts.queue_pair.to_error().expect("it can");
    let began = Instant::now();
    assert_eq!(client.parts.post_send(8, 4, 0), 0);
    let sent = client.parts.sent(1);
    assert_eq!(sent[0].status, 12, "retries exceeded");
    let worst = timeout.worst_case(retry).expect("it is finite");
    // The clock of an emulated machine is coarse.
    assert!(began.elapsed() < worst + PROMPT, "{:?} {worst:?}", began.elapsed());
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f62_a_removal_reaches_who_listens_to_the_device_alone() {
    let (client, server) = connected(&Setup { receives: 2, ..Setup::default() });
    let device = Arc::clone(client.parts.queue_pair.domain().device());
    let mut removal =
        Command::new("rdma").args(["link", "delete", "rxe0"]).spawn().expect("it runs");
    let began = Instant::now();
    let event = loop {
        if let Some(event) = device.poll_event().expect("it can be asked") {
            break event;
        }
        assert!(began.elapsed() < PATIENCE, "nothing happened");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(
        matches!(event.kind, DeviceEventKind::Removed | DeviceEventKind::DeviceFatal),
        "{event:?}"
    );
    for end in [&client, &server] {
        assert!(end.parts.queue_pair.has_failed());
        assert_eq!(end.parts.queue_pair.view().expect("a view").state, QpState::Error);
    }
    drop((client, server, device));
    // The last device stays open until the process ends; its removal waits for that.
    let _ = removal.try_wait();
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f65_a_drain_counts_its_own_requests_and_needs_no_marker() {
    let listener = Listener::bind(address()).expect("a listener");
    let (addr, soon) = (listener.local_addr(), Deadline::after(PATIENCE));
    let options = Options::new().depth(8, 8);
    let (client, server): (Endpoint<Verbs, Block>, Endpoint<Verbs, Block>) =
        std::thread::scope(|scope| {
            let server = scope.spawn(|| {
                let prepared = options.accept(&listener, soon).expect("a request");
                prepared.receives(8).expect("receives").establish(soon).expect("a connection")
            });
            let prepared = options.connect(addr, soon).expect("a route");
            let client = prepared.receives(8).expect("receives").establish(soon);
            (client.expect("a connection"), server.join().expect("it ends well"))
        });
    for endpoint in [client, server] {
        let began = Instant::now();
        let closed = endpoint.close(PATIENCE);
        assert_eq!(closed.receives.len(), 8);
        assert!(closed.receives.iter().all(|ended| matches!(ended.outcome, Outcome::Flushed)));
        assert!(began.elapsed() < PROMPT, "{:?}", began.elapsed());
    }
    let _ = Connector::new();
}
