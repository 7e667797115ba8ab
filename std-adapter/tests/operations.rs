//! The operations of an endpoint beside SEND, READ and WRITE, on the soft device.

use std::sync::Arc;
use std::time::Duration;

use nanoverbs::Deadline;
use nanoverbs::endpoint::{Endpoint, OpenWindowError, Options, Refusal, Soft, SoftDevice};
use nanoverbs::memory::{Rights, SharedBuffer, WindowError};
use nanoverbs_core::{Outcome, Part, PushError, WcStatus, op};

type Context = Option<Part>;

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

fn pair<C: 'static>(options: Options) -> (Endpoint<Soft, C>, Endpoint<Soft, C>) {
    let device = Box::leak(Box::new(SoftDevice::new()));
    let ends = options.soft_pair(device).unwrap();
    ends.map(|end| end.no_receives().establish(soon()).unwrap()).into()
}

fn part(end: &mut Endpoint<Soft, Context>, len: usize) -> Context {
    Some(Part::new(end.block().unwrap(), len).unwrap())
}

#[test]
fn f26_an_atomic_brings_back_what_was_there() {
    let (mut client, mut server) = pair::<Context>(Options::new().blocks(8, 64));
    let counter = server.share(64, Rights::ATOMIC_TARGET).unwrap();
    counter.write_at(8, &0x0102_0304_0506_0708_u64.to_ne_bytes()).unwrap();
    let remote = counter.advertise().at(8, 8).unwrap();
    let word = part(&mut client, 8);
    client.post_fetch_add(remote, 1, word).unwrap();
    let ended = client.send_completion(soon()).unwrap();
    assert_eq!(ended.context.as_ref().unwrap().word(), Some(0x0102_0304_0506_0708));
    client.post_compare_swap(remote, 0x0102_0304_0506_0709, 5, ended.context).unwrap();
    let ended = client.send_completion(soon()).unwrap();
    assert_eq!(ended.context.unwrap().word(), Some(0x0102_0304_0506_0709));
    let mut bytes = [0; 8];
    counter.read_at(8, &mut bytes).unwrap();
    assert_eq!(u64::from_ne_bytes(bytes), 5);
    let long = part(&mut client, 16);
    let error = client.post_fetch_add(remote, 1, long).unwrap_err();
    let wrong = PushError::BadAtomicLength { total: 16, pieces: 1 };
    assert_eq!(error.refusal(), Some(Refusal::Push(wrong)));
}

#[test]
fn f02_a_write_with_immediate_ends_a_receive_without_memory() {
    let (mut client, mut server) = pair::<Context>(Options::new());
    let shared = server.share(4096, Rights::WRITE_TARGET).unwrap();
    server.post_recv(None).unwrap();
    let message = part(&mut client, 100);
    client.post_write_immediate(shared.advertise(), 0x89ab_cdef, message).unwrap();
    let arrived = server.recv_completion(soon()).unwrap();
    let success = arrived.outcome.success().unwrap();
    assert_eq!((success.immediate(), success.byte_len()), (Some(0x89ab_cdef), Some(100)));
    assert!(success.is_write());
    assert!(client.send_completion(soon()).unwrap().outcome.is_done());
}

#[test]
fn f20_a_read_lands_in_shared_memory_which_stays_as_long_as_the_request() {
    let (mut client, mut server) = pair::<SharedBuffer>(Options::new());
    let source = server.share(4096, Rights::READ_SOURCE).unwrap();
    source.write_at(0, b"from afar").unwrap();
    let sink = Arc::new(client.share(4096, Rights::READ_SINK).unwrap());
    let buffer = sink.buffer(100, 9).unwrap();
    assert!(sink.buffer(4090, 7).is_err());
    client.post_read(source.advertise(), buffer).unwrap();
    let region = Arc::downgrade(&sink);
    drop(sink);
    assert!(region.upgrade().is_some(), "the request keeps it");
    let ended = client.send_completion(soon()).unwrap();
    assert!(ended.outcome.is_done());
    let mut bytes = [0; 9];
    region.upgrade().unwrap().read_at(100, &mut bytes).unwrap();
    assert_eq!(&bytes, b"from afar");
    drop(ended);
    assert!(region.upgrade().is_none());
}

#[test]
fn a_window_opens_a_piece_and_closes_again() {
    let (mut client, mut server) = pair::<Context>(Options::new().blocks(8, 64));
    let closed = server.share(4096, Rights::WRITE_TARGET).unwrap();
    let shared = server.share(4096, Rights::WINDOWS).unwrap();
    let mut window = server.window().unwrap();
    let rights = Rights::WRITE_TARGET;
    assert_eq!(window.advertise(&shared, 0, 8, rights), Ok(None));
    let error = server.post_bind(&mut window, &closed, 0, 64, rights, None).unwrap_err();
    let OpenWindowError::Window { cause, .. } = error else { panic!("{error}") };
    assert!(matches!(cause, WindowError::NoWindows { .. }), "{cause}");
    for by_message in [false, true] {
        server.post_bind(&mut window, &shared, 64, 64, rights, None).unwrap();
        assert!(server.send_completion(soon()).unwrap().outcome.is_done());
        let remote = window.advertise(&shared, 64, 64, rights).unwrap().unwrap();
        let mut message = part(&mut client, 64);
        message.as_mut().unwrap().fill(7);
        client.post_write(remote, message).unwrap();
        assert!(client.send_completion(soon()).unwrap().outcome.is_done());
        let mut bytes = [0; 64];
        shared.read_at(64, &mut bytes).unwrap();
        assert_eq!(bytes, [7; 64]);
        if by_message {
            server.post_recv(None).unwrap();
            client.post(op::Send::new().invalidate(remote.rkey()).signaled(), None).unwrap();
            let arrived = server.recv_completion(soon()).unwrap();
            assert_eq!(arrived.outcome.success().unwrap().invalidated(), window.key());
            assert!(client.send_completion(soon()).unwrap().outcome.is_done());
        } else {
            server.post_invalidate(remote.rkey(), None).unwrap();
            assert!(server.send_completion(soon()).unwrap().outcome.is_done());
        }
    }
    let remote = window.advertise(&shared, 64, 64, rights).unwrap().unwrap();
    let message = part(&mut client, 64);
    client.post_write(remote, message).unwrap();
    let failed = client.send_completion(soon()).unwrap();
    let Outcome::Failed(failure) = failed.outcome else { panic!("it is closed") };
    assert_eq!(failure.status(), WcStatus::RemoteAccess);
}
