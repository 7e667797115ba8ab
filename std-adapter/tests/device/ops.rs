//! Every operation through the real librdmacm, and refusals beside those of the device.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use nanoverbs::Deadline;
use nanoverbs::cm::{ConnectParams, Listener};
use nanoverbs::endpoint::{Endpoint, Idle, Options, Prepared, Refusal, Verbs};
use nanoverbs::memory::{Rights, SharedBuffer};
use nanoverbs_core::abi::{AtomicTarget, SendWr, Sge, Target, opcode, send_flags};
use nanoverbs_core::port::SendPort as _;
use nanoverbs_core::{Access, Operation, Outcome, Part, PushError, RemoteRegion, WcStatus, op};

use crate::ends::{self, Setup};

type End<C> = Endpoint<Verbs, C>;
type Context = Option<Part>;

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

fn pair<C: Send + 'static>(port: u16, options: Options) -> (End<C>, End<C>) {
    let host = std::env::var("NANOVERBS_RXE_ADDR").unwrap();
    let addr = SocketAddr::new(host.parse().unwrap(), port);
    let options = options.idle(Idle::SpinThenWait { spins: 1000 });
    let listener = Listener::bind(addr).unwrap();
    let ready = |prepared: Prepared<Verbs, C>| prepared.no_receives();
    std::thread::scope(|scope| {
        let server = scope.spawn(move || {
            let prepared = options.accept(&listener, soon()).unwrap();
            ready(prepared).establish(soon()).unwrap()
        });
        let client = ready(options.connect(addr, soon()).unwrap()).establish(soon()).unwrap();
        (client, server.join().unwrap())
    })
}

fn part(end: &mut End<Context>, len: usize, byte: u8) -> Context {
    let mut part = Part::new(end.block().unwrap(), len).unwrap();
    part.fill(byte);
    Some(part)
}

fn small() -> Options {
    Options::new().blocks(32, 64)
}

/// Takes the next send, which must have done what it should.
fn done<C>(end: &mut End<C>) -> C {
    let ended = end.send_completion(soon()).unwrap();
    assert!(ended.outcome.is_done(), "{:?}", ended.outcome);
    ended.context
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f26_ops_atomics_bring_the_old_value_back_in_host_order() {
    let (mut client, mut server) = pair::<Context>(7600, small());
    let counter = server.share(4096, Rights::ATOMIC_TARGET).unwrap();
    counter.write_at(8, &0x0102_0304_0506_0708_u64.to_ne_bytes()).unwrap();
    let remote = counter.advertise().at(8, 8).unwrap();
    let mut word = part(&mut client, 8, 0);
    for before in 0x0102_0304_0506_0708_u64..0x0102_0304_0506_0718 {
        client.post_fetch_add(remote, 1, word).unwrap();
        let ended = client.send_completion(soon()).unwrap();
        assert_eq!(ended.outcome.success().unwrap().byte_len(), Some(8));
        word = ended.context;
        assert_eq!(word.as_ref().unwrap().word(), Some(before));
    }
    // Not what is there, then what is.
    for (expected, stored) in [(1, 0x0102_0304_0506_0718), (0x0102_0304_0506_0718, 9)] {
        client.post_compare_swap(remote, expected, 9, word).unwrap();
        word = done(&mut client);
        assert_eq!(word.as_ref().unwrap().word(), Some(0x0102_0304_0506_0718));
        let mut bytes = [0; 8];
        counter.read_at(8, &mut bytes).unwrap();
        assert_eq!(u64::from_ne_bytes(bytes), stored);
    }
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f26_ops_what_is_refused_here_the_device_refuses_too() {
    let (mut client, mut server) = pair::<Context>(7601, small());
    let shared = server.share(4096, Rights::ATOMIC_TARGET).unwrap();
    let remote = shared.advertise();
    let cases = [
        (remote.at(4, 8).unwrap(), 8, PushError::Unaligned { remote_addr: remote.addr() + 4 }),
        (remote, 4, PushError::BadAtomicLength { total: 4, pieces: 1 }),
        (remote, 16, PushError::BadAtomicLength { total: 16, pieces: 1 }),
    ];
    for (remote, len, expected) in cases {
        let context = part(&mut client, len, 0);
        let error = client.post_fetch_add(remote, 1, context).unwrap_err();
        assert_eq!(error.refusal(), Some(Refusal::Push(expected)));
    }
    // By hand, past the checks: EINVAL, and nothing says why. What is too long it takes.
    let (mut near, _far) = ends::connected(&Setup::default());
    let region = *near.parts.memory.region().registration();
    for (offset, len) in [(4, 8), (0, 4)] {
        let mut sge = Sge::new(region.addr.as_ptr(), len, region.lkey);
        let atomic = AtomicTarget {
            remote_addr: remote.addr() + offset,
            compare_add: 1,
            swap: 0,
            rkey: remote.rkey(),
        };
        let mut wr = SendWr {
            opcode: opcode::ATOMIC_FETCH_AND_ADD,
            send_flags: send_flags::SIGNALED,
            sg_list: &raw mut sge,
            num_sge: 1,
            target: Target { atomic },
            ..SendWr::EMPTY
        };
        let mut bad = std::ptr::null_mut();
        // SAFETY: one request, on memory that stays registered until the end of the test.
        assert_eq!(unsafe { near.parts.send.post_send(&raw mut wr, &mut bad) }, libc::EINVAL);
    }
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f26_ops_a_region_without_the_right_is_refused_by_the_peer() {
    let (mut client, mut server) = pair::<Context>(7602, small());
    let shared = server.share(4096, Rights::READ_SOURCE).unwrap();
    let claim = shared.advertise();
    let word = part(&mut client, 8, 0);
    let error = client.post_fetch_add(claim, 1, word).unwrap_err();
    let (needs, has) = (Access::REMOTE_ATOMIC, claim.access());
    assert_eq!(error.refusal(), Some(Refusal::Push(PushError::RemoteAccess { needs, has })));
    // A false claim goes out, and comes back by name.
    let wrong = RemoteRegion::new(claim.addr(), 8, claim.rkey(), needs).unwrap();
    let word = part(&mut client, 8, 0);
    client.post_fetch_add(wrong, 1, word).unwrap();
    let ended = client.send_completion(soon()).unwrap();
    let Outcome::Failed(failure) = ended.outcome else { panic!("{:?}", ended.outcome) };
    assert_eq!(failure.operation(), Operation::Atomic);
    assert_eq!(failure.status(), WcStatus::RemoteAccess);
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f02_f30_f44_ops_immediates_of_writes_and_sends_arrive_as_they_left() {
    let (mut client, mut server) = pair::<Context>(7603, small());
    let shared = server.share(4096, Rights::WRITE_TARGET).unwrap();
    for value in [0x89ab_cdef, 0, u32::MAX] {
        server.post_recv(None).unwrap();
        let message = part(&mut client, 64, 5);
        client.post_write_immediate(shared.advertise(), value, message).unwrap();
        let arrived = server.recv_completion(soon()).unwrap();
        let success = arrived.outcome.success().unwrap();
        assert_eq!((success.immediate(), success.byte_len()), (Some(value), Some(64)));
        assert!(success.is_write());
        // Soft-RoCE sets a flag in the sender's completion as well; it is not looked at.
        let sent = client.send_completion(soon()).unwrap();
        assert_eq!(sent.outcome.success().unwrap().immediate(), None);

        let buffer = part(&mut server, 64, 0);
        server.post_recv(buffer).unwrap();
        client.post(op::Send::new().immediate(value).signaled(), sent.context).unwrap();
        let arrived = server.recv_completion(soon()).unwrap();
        let success = arrived.outcome.success().unwrap();
        assert_eq!((success.immediate(), success.is_write()), (Some(value), false));
        done(&mut client);
    }
    // A plain message in the place of one with an immediate.
    let buffer = part(&mut server, 64, 0);
    server.post_recv(buffer).unwrap();
    let message = part(&mut client, 3, 1);
    client.post_send(message).unwrap();
    let arrived = server.recv_completion(soon()).unwrap();
    let success = arrived.outcome.success().unwrap();
    assert_eq!((success.immediate(), success.byte_len()), (None, Some(3)));
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn ops_a_window_opens_a_piece_until_either_side_closes_it() {
    let (mut client, mut server) = pair::<Context>(7604, small());
    let shared = server.share(4096, Rights::WINDOWS).unwrap();
    let mut window = server.window().unwrap();
    let rights = Rights::WRITE_TARGET.and(Rights::READ_SOURCE);
    let mut keys = Vec::new();
    for by_message in [false, true, false] {
        server.post_bind(&mut window, &shared, 128, 64, rights, None).unwrap();
        let ended = server.send_completion(soon()).unwrap();
        assert_eq!(ended.outcome.success().unwrap().operation(), Operation::Local);
        let remote = window.advertise(&shared, 128, 64, rights).unwrap().unwrap();
        assert!(!keys.contains(&remote.rkey()), "each bind has a key of its own");
        keys.push(remote.rkey());
        let message = part(&mut client, 64, keys.len() as u8);
        client.post_write(remote, message).unwrap();
        done(&mut client);
        let mut bytes = [0; 66];
        shared.read_at(127, &mut bytes).unwrap();
        assert_eq!((bytes[0], bytes[1], bytes[64], bytes[65]), (0, bytes[64], keys.len() as u8, 0));
        if by_message {
            server.post_recv(None).unwrap();
            client.post(op::Send::new().invalidate(remote.rkey()).signaled(), None).unwrap();
            let arrived = server.recv_completion(soon()).unwrap();
            // Soft-RoCE hands the kernel's number of the flag through, which means something else here; that
            // the window is closed shows below, where it can be opened again.
            assert!(arrived.outcome.is_done());
            assert_eq!(arrived.outcome.success().unwrap().invalidated(), None);
            done(&mut client);
        } else {
            server.post_invalidate(remote.rkey(), None).unwrap();
            done(&mut server);
        }
    }
    let closed = window.advertise(&shared, 128, 64, rights).unwrap().unwrap();
    let message = part(&mut client, 64, 9);
    client.post_write(closed, message).unwrap();
    let ended = client.send_completion(soon()).unwrap();
    let Outcome::Failed(failure) = ended.outcome else { panic!("{:?}", ended.outcome) };
    assert_eq!(failure.status(), WcStatus::RemoteAccess);
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn ops_a_key_that_cannot_go_out_of_use_ends_the_connection() {
    let (mut client, mut server) = pair::<Context>(7605, small());
    // Soft-RoCE takes keys of windows only; a region's key is none to it.
    let shared = server.share(4096, Rights::READ_SOURCE).unwrap();
    server.post_recv(None).unwrap();
    let key = shared.advertise().rkey();
    client.post(op::Send::new().invalidate(key).signaled(), None).unwrap();
    let arrived = server.recv_completion(soon()).unwrap();
    let Outcome::Failed(failure) = arrived.outcome else { panic!("{:?}", arrived.outcome) };
    assert_eq!(failure.status(), WcStatus::RemoteInvalidRequest);
    assert!(server.closed().is_some());
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f20_ops_shared_memory_is_the_sink_of_a_read_and_the_source_of_a_write() {
    let (mut client, mut server) = pair::<SharedBuffer>(7606, small());
    let rights = Rights::READ_SOURCE.and(Rights::WRITE_TARGET);
    let far = server.share(8192, rights).unwrap();
    let pattern: Vec<u8> = (0..4096_u32).map(|at| (at * 7 + at / 256) as u8).collect();
    far.write_at(0, &pattern).unwrap();
    let near = Arc::new(client.share(8192, Rights::READ_SINK).unwrap());
    client.post_read(far.advertise(), near.buffer(100, 4096).unwrap()).unwrap();
    let buffer = done(&mut client);
    let mut bytes = vec![0; 4096];
    near.read_at(100, &mut bytes).unwrap();
    assert_eq!(bytes, pattern);
    client.post_write(far.advertise().at(4096, 4096).unwrap(), buffer).unwrap();
    drop(done(&mut client));
    far.read_at(4096, &mut bytes).unwrap();
    assert_eq!(bytes, pattern);
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f21_ops_empty_messages_are_messages() {
    let (mut client, mut server) = pair::<Context>(7607, small());
    let shared = server.share(4096, Rights::READ_SOURCE.and(Rights::WRITE_TARGET)).unwrap();
    server.post_recv(None).unwrap();
    client.post_send(None).unwrap();
    let arrived = server.recv_completion(soon()).unwrap();
    assert_eq!(arrived.outcome.success().unwrap().byte_len(), Some(0));
    done(&mut client);
    let empty = part(&mut client, 0, 0);
    client.post_write(shared.advertise(), empty).unwrap();
    let empty = done(&mut client);
    client.post_read(shared.advertise(), empty).unwrap();
    let read = client.send_completion(soon()).unwrap();
    assert_eq!(read.outcome.success().unwrap().byte_len(), Some(0));
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f25_f27_ops_reads_are_counted_and_what_waits_for_them_comes_after() {
    let params = ConnectParams::new().reads(4, 4);
    let (mut client, mut server) = pair::<Context>(7608, small().params(params));
    let shared = server.share(4096, Rights::READ_SOURCE.and(Rights::WRITE_TARGET)).unwrap();
    shared.write_at(0, &[1; 64]).unwrap();
    assert_eq!(client.reads(), (4, 0));
    let depth = 4;
    let mut posted = 0;
    let refused = loop {
        let buffer = part(&mut client, 64, 0);
        match client.post_read(shared.advertise(), buffer) {
            Ok(()) => posted += 1,
            Err(error) => break error.refusal(),
        }
    };
    assert_eq!(
        (posted, refused),
        (depth, Some(Refusal::Push(PushError::ReadsFull { max: depth })))
    );
    let message = part(&mut client, 64, 2);
    let fenced = op::Write::new(shared.advertise()).after_reads().signaled();
    client.post(fenced, message).unwrap();
    for _ in 0..posted {
        assert_eq!(done(&mut client).unwrap()[..], [1; 64], "the WRITE did not overtake");
    }
    done(&mut client);
    assert_eq!(client.reads(), (depth, 0));
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f18_ops_equal_keys_hide_a_local_key_that_was_told() {
    let (mut client, mut server) = pair::<Context>(7609, small());
    let shared = server.share(4096, Rights::READ_SOURCE).unwrap();
    let registration = shared.registration();
    // Which is why the two are types of their own.
    assert_eq!(registration.lkey.to_raw(), registration.rkey.to_raw());
    let buffer = part(&mut client, 64, 0);
    client.post_read(shared.advertise(), buffer).unwrap();
    done(&mut client);
}

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn f15_f17_ops_inline_data_is_free_at_once_and_leaves_nothing_to_the_next_request() {
    let (mut client, mut server) = pair::<Part>(7610, small().inline(64));
    let block = |end: &mut End<Part>, len| Part::new(end.block().unwrap(), len).unwrap();
    for _ in 0..3 {
        let buffer = block(&mut server, 64);
        server.post_recv(buffer).unwrap();
    }
    let mut message = block(&mut client, 64);
    message.fill(7);
    client.post_send_inline(message).unwrap();
    let mut message = client.send_completion(soon()).unwrap().context;
    // The same place in the chain, by all other means.
    message.fill(8);
    let tagged = op::Send::new().immediate(5).solicited().after_reads().signaled();
    client.post(tagged, message).unwrap();
    let mut message = client.send_completion(soon()).unwrap().context;
    message.set_len(3);
    client.post(op::Send::new().signaled(), message).unwrap();
    let mut arrived = || {
        let ended = server.recv_completion(soon()).unwrap();
        let success = *ended.outcome.success().unwrap();
        (success.immediate(), success.byte_len(), ended.context[0])
    };
    assert_eq!(arrived(), (None, Some(64), 7));
    assert_eq!(arrived(), (Some(5), Some(64), 8));
    assert_eq!(arrived(), (None, Some(3), 8));
    assert_eq!(client.inline(), 64);
}
