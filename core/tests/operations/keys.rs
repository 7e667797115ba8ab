//! Keys: of which side they are, and how they go out of use.

use nanoverbs_core::soft::Profile;
use nanoverbs_core::{Block, Operation, Outcome, RKey, RemoteRegion, WcStatus, op};

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
