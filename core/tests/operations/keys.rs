//! Keys: of which side they are, and how they go out of use.

use nanoverbs_core::soft::{Profile, WindowError};
use nanoverbs_core::{
    Access, Block, Operation, Outcome, PushError, RKey, RemoteRegion, WcStatus, op,
};

use crate::bed::*;

#[test]
fn f18_a_local_key_that_a_peer_is_told_is_refused_by_a_device_that_tells_them_apart() {
    for (profile, works) in [(Profile::STRICT, false), (Profile::rxe(), true)] {
        let device = device(profile);
        let (mut a, _b, domain) = pair::<Block>(device);
        let mut pool = pool(device, domain, 2, 8);
        let region = shared(device, domain, 1, ALL);
        // Only by way of the raw number: the two keys are types of their own, and a program
        // advertises what `advertise` gives.
        let raw = RKey::from_raw(region.registration().lkey.to_raw());
        let wrong = RemoteRegion::new(region.advertise().addr(), 8, raw, ALL).unwrap();
        a.post(op::Read::new(wrong).signaled(), pool.allocate().unwrap()).unwrap();
        assert_eq!(a.sent().outcome.is_done(), works, "equal keys hide the mistake");
    }
}

#[test]
fn a_message_takes_a_key_of_its_receiver_out_of_use() {
    let device = device(Profile::STRICT);
    let (mut a, mut b, domain) = pair::<Block>(device);
    let mut pool = pool(device, domain, 8, 8);
    let region = shared(device, domain, 1, ALL);
    let remote = region.advertise();
    b.post_recv(pool.allocate().unwrap());
    let message = filled(&mut pool, 4, 3);
    // The later one of the two counts.
    let send = op::Send::new().immediate(7).invalidate(remote.rkey()).signaled();
    a.post(send, message).unwrap();
    assert!(a.sent().outcome.is_done());
    let arrived = b.received();
    let success = arrived.outcome.success().unwrap();
    assert_eq!(success.invalidated(), Some(remote.rkey()));
    assert_eq!(success.immediate(), None);
    assert_eq!(success.byte_len(), Some(4));
    // From now on the key opens nothing.
    a.post(op::Read::new(remote).signaled(), pool.allocate().unwrap()).unwrap();
    let Outcome::Failed(failure) = a.sent().outcome else { panic!("the key is gone") };
    assert_eq!(failure.status(), WcStatus::RemoteAccess);
}

#[test]
fn a_key_of_this_side_goes_out_of_use_in_the_order_of_the_queue() {
    let device = device(Profile::STRICT);
    let (mut a, mut b, domain) = pair::<Block>(device);
    let mut pool = pool(device, domain, 8, 8);
    let region = shared(device, domain, 1, ALL);
    let remote = region.advertise();
    a.post(op::Write::new(remote).signaled(), filled(&mut pool, 8, 5)).unwrap();
    assert!(a.sent().outcome.is_done());
    b.post(op::Invalidate::new(remote.rkey()).signaled(), filled(&mut pool, 8, 0)).unwrap();
    let ended = b.sent();
    let success = ended.outcome.success().unwrap();
    assert_eq!((success.operation(), success.byte_len()), (Operation::Local, None));
    a.post(op::Write::new(remote).signaled(), filled(&mut pool, 8, 6)).unwrap();
    assert!(!a.sent().outcome.is_done());
    assert_eq!(word_at(&region, 0), u64::from_ne_bytes([5; 8]));
}

#[test]
fn a_key_that_is_none_cannot_go_out_of_use() {
    let device = device(Profile::STRICT);
    let (mut a, _b, domain) = pair::<Block>(device);
    let mut pool = pool(device, domain, 1, 8);
    a.post(op::Invalidate::new(RKey::from_raw(0x77)), pool.allocate().unwrap()).unwrap();
    let Outcome::Failed(failure) = a.sent().outcome else { panic!("there is no such key") };
    assert_eq!(failure.operation(), Operation::Local);
}

#[test]
fn a_window_gives_a_peer_a_piece_with_a_key_of_its_own_until_it_is_closed() {
    for profile in profiles() {
        let device = device(profile);
        let (mut a, mut b, domain) = pair::<Option<Block>>(device);
        let mut pool = pool(device, domain, 8, 16);
        // The region itself is open to nobody.
        let access = Access::LOCAL_WRITE.with(Access::MW_BIND);
        let region = shared(device, domain, 8, access);
        let mut window = device.window(domain).unwrap();
        let rights = Access::REMOTE_WRITE;
        let mut last = window.key();
        for (round, by_message) in [false, true, false].into_iter().enumerate() {
            let bind = window.bind(&region, 16, 16, rights).unwrap();
            assert_eq!(bind.key(), window.key());
            assert_ne!(window.key(), last, "each bind has a key of its own");
            last = window.key();
            b.post(bind.signaled(), None).unwrap();
            let ended = b.sent();
            assert_eq!(ended.outcome.success().unwrap().operation(), Operation::Local);
            let remote = window.advertise(&region, 16, 16, rights).unwrap();
            let fill = filled(&mut pool, 16, round as u8 + 1);
            a.post(op::Write::new(remote).signaled(), Some(fill)).unwrap();
            assert!(a.sent().outcome.is_done());
            let expected = u64::from_ne_bytes([round as u8 + 1; 8]);
            assert_eq!([8, 16, 24, 32].map(|at| word_at(&region, at)), [0, expected, expected, 0]);
            if by_message {
                b.post_recv(None);
                a.post(op::Send::new().invalidate(remote.rkey()).signaled(), None).unwrap();
                assert!(a.sent().outcome.is_done());
                let arrived = b.received();
                let key = arrived.outcome.success().unwrap().invalidated();
                assert_eq!(key, Some(remote.rkey()));
            } else {
                b.post(op::Invalidate::new(window.key()).signaled(), None).unwrap();
                assert!(b.sent().outcome.is_done());
            }
        }
        let closed = window.advertise(&region, 16, 16, rights).unwrap();
        a.post(op::Write::new(closed).signaled(), Some(filled(&mut pool, 16, 9))).unwrap();
        let Outcome::Failed(failure) = a.sent().outcome else { panic!("it is closed") };
        assert_eq!(failure.status(), WcStatus::RemoteAccess);
    }
}

#[test]
fn a_window_is_refused_where_it_may_not_be_opened() {
    let device = device(Profile::STRICT);
    let (mut a, _b, domain) = pair::<()>(device);
    let mut window = device.window(domain).unwrap();
    let key = window.key();
    let closed = shared(device, domain, 2, ALL);
    let error = window.bind(&closed, 0, 8, Access::REMOTE_READ).unwrap_err();
    let missing = WindowError::MissingAccess { needs: Access::MW_BIND, has: ALL };
    assert_eq!(error, missing);
    let readable = shared(device, domain, 2, Access::MW_BIND);
    let error = window.bind(&readable, 0, 8, Access::REMOTE_WRITE).unwrap_err();
    assert!(matches!(error, WindowError::MissingAccess { .. }), "a peer may not write more");
    let error = window.bind(&readable, 9, 8, Access::REMOTE_READ).unwrap_err();
    assert!(matches!(error, WindowError::OutOfRegion(_)), "{error}");
    assert_eq!(window.key(), key);
    let stranger = device.domain();
    let mut other = device.window(stranger).unwrap();
    let bind = other.bind(&readable, 0, 8, Access::REMOTE_READ).unwrap();
    let error = a.post(bind, ()).unwrap_err();
    assert_eq!(error, PushError::WrongDomain { given: stranger, queue: domain });
    // An open window cannot be opened: the device says so.
    let bind = window.bind(&readable, 0, 8, Access::REMOTE_READ).unwrap();
    a.post(bind.signaled(), ()).unwrap();
    assert!(a.sent().outcome.is_done());
    let again = window.bind(&readable, 0, 8, Access::REMOTE_READ).unwrap();
    a.post(again.signaled(), ()).unwrap();
    let Outcome::Failed(failure) = a.sent().outcome else { panic!("it is open") };
    assert_eq!(failure.status(), WcStatus::WindowBind);
}

#[test]
fn a_window_is_closed_with_the_memory_behind_it_and_its_keys_do_not_come_again() {
    let device = device(Profile::STRICT);
    let (mut a, mut b, domain) = pair::<Option<Block>>(device);
    let mut pool = pool(device, domain, 1, 8);
    let region = shared(device, domain, 1, Access::LOCAL_WRITE.with(Access::MW_BIND));
    let mut window = device.window(domain).unwrap();
    b.post(window.bind(&region, 0, 8, Access::REMOTE_READ).unwrap().signaled(), None).unwrap();
    assert!(b.sent().outcome.is_done());
    let remote = window.advertise(&region, 0, 8, Access::REMOTE_READ).unwrap();
    device.take_back_shared(region).unwrap();
    a.post(op::Read::new(remote).signaled(), pool.allocate()).unwrap();
    assert!(matches!(a.sent().outcome, Outcome::Failed(_)));
    let key = window.key();
    drop(window);
    assert_ne!(device.window(domain).unwrap().key(), key);
}
