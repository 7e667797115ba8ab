//! Fetch-and-add, compare-and-swap.

use nanoverbs_core::{Access, Outcome, Part, PushError, RKey, RemoteRegion, op};

use crate::bed::*;

#[test]
fn f26_fetch_and_add_brings_the_old_value_back_in_host_order() {
    for profile in profiles() {
        let device = device(profile);
        let (mut a, _b, domain) = pair::<Part>(device);
        let mut pool = pool(device, domain, 4, 64);
        let counters = shared(device, domain, 4, ALL);
        counters.write_at(8, &0x0102_0304_0506_0708_u64.to_ne_bytes()).unwrap();
        let remote = counters.advertise().at(8, 8).unwrap();
        let word = Part::new(pool.allocate().unwrap(), 8).unwrap();
        a.post(op::FetchAdd::new(remote, 3).signaled(), word).unwrap();
        let ended = a.sent();
        assert_eq!(ended.outcome.success().unwrap().byte_len(), Some(8));
        assert_eq!(ended.context.word(), Some(0x0102_0304_0506_0708));
        assert_eq!(word_at(&counters, 8), 0x0102_0304_0506_070b);
        // The sum wraps, which is how to subtract.
        a.post(op::FetchAdd::new(remote, u64::MAX).signaled(), ended.context).unwrap();
        assert_eq!(a.sent().context.word(), Some(0x0102_0304_0506_070b));
        assert_eq!(word_at(&counters, 8), 0x0102_0304_0506_070a);
    }
}

#[test]
fn f26_compare_and_swap_stores_only_what_was_expected_to_go() {
    let device = device(nanoverbs_core::soft::Profile::STRICT);
    let (mut a, _b, domain) = pair::<Part>(device);
    let mut pool = pool(device, domain, 2, 8);
    let lock = shared(device, domain, 1, ALL);
    let mut swap = |expected, new| {
        let word = pool.allocate().unwrap().into();
        let operation = op::CompareSwap::new(lock.advertise(), expected, new).signaled();
        a.post(operation, word).unwrap();
        (a.sent().context.word().unwrap(), word_at(&lock, 0))
    };
    assert_eq!(swap(0, 7), (0, 7));
    assert_eq!(swap(0, 9), (7, 7), "not what was expected");
    assert_eq!(swap(7, 0), (7, 0));
}

#[test]
fn a_block_of_eight_bytes_does_for_an_atomic() {
    let device = device(nanoverbs_core::soft::Profile::STRICT);
    let (mut a, _b, domain) = pair::<nanoverbs_core::Block>(device);
    let mut pool = pool(device, domain, 1, 64);
    let counter = shared(device, domain, 1, ALL);
    for before in 0..3_u64 {
        let word = filled(&mut pool, 8, 0xff);
        a.post(op::FetchAdd::new(counter.advertise(), 1).signaled(), word).unwrap();
        assert_eq!(a.sent().message(), Some(&before.to_ne_bytes()[..]));
    }
}

#[test]
fn f26_what_an_atomic_cannot_do_is_refused_before_the_device() {
    let device = device(nanoverbs_core::soft::Profile::STRICT);
    let (mut a, _b, domain) = pair::<[Part; 2]>(device);
    let mut pool = pool(device, domain, 2, 64);
    let whole = RemoteRegion::new(0x1000, 64, RKey::from_raw(9), ALL).unwrap();
    let mut push = |remote: RemoteRegion, lengths: [usize; 2]| {
        let buffers = lengths.map(|len| Part::new(pool.allocate().unwrap(), len).unwrap());
        let error = a.post(op::FetchAdd::new(remote, 1), buffers).unwrap_err();
        assert!(error.to_string().len() > 20);
        error
    };
    assert_eq!(push(whole, [4, 0]), PushError::BadAtomicLength { total: 4, pieces: 1 });
    assert_eq!(push(whole, [16, 0]), PushError::BadAtomicLength { total: 16, pieces: 1 });
    assert_eq!(push(whole, [4, 4]), PushError::BadAtomicLength { total: 8, pieces: 2 });
    assert_eq!(push(whole, [0, 0]), PushError::BadAtomicLength { total: 0, pieces: 0 });
    let crooked = whole.at(4, 8).unwrap();
    assert_eq!(push(crooked, [8, 0]), PushError::Unaligned { remote_addr: 0x1004 });
    let short = whole.at(0, 7).unwrap();
    assert_eq!(push(short, [8, 0]), PushError::RemoteTooShort { total: 8, remote: 7 });
    let has = Access::REMOTE_READ;
    let readable = RemoteRegion::new(0x1000, 64, RKey::from_raw(9), has).unwrap();
    let needs = Access::REMOTE_ATOMIC;
    assert_eq!(push(readable, [8, 0]), PushError::RemoteAccess { needs, has });
    assert_eq!(a.sends.in_flight(), 0);
    assert_eq!(a.sends.reads(), (4, 0));
}

#[test]
fn f26_a_peer_that_did_not_mean_it_refuses_and_the_buffer_comes_back() {
    let device = device(nanoverbs_core::soft::Profile::STRICT);
    let (mut a, _b, domain) = pair::<Part>(device);
    let mut pool = pool(device, domain, 1, 8);
    let readable = shared(device, domain, 1, Access::LOCAL_WRITE.with(Access::REMOTE_READ));
    let claim = readable.advertise();
    let claim = RemoteRegion::new(claim.addr(), 8, claim.rkey(), ALL).unwrap();
    a.post(op::FetchAdd::new(claim, 1).signaled(), pool.allocate().unwrap().into()).unwrap();
    let ended = a.sent();
    let Outcome::Failed(failure) = ended.outcome else { panic!("{:?}", ended.outcome) };
    assert_eq!(failure.status(), nanoverbs_core::WcStatus::RemoteAccess);
    assert_eq!(failure.operation(), nanoverbs_core::Operation::Atomic);
    assert_eq!(ended.context.len(), 8);
}

#[test]
fn f25_atomics_count_against_the_depth_of_reads_and_give_it_back() {
    let device = device(nanoverbs_core::soft::Profile::STRICT);
    let (mut a, _b, domain) = pair::<Part>(device);
    let mut pool = pool(device, domain, 8, 8);
    let counter = shared(device, domain, 1, ALL);
    let mut next = || pool.allocate().unwrap().into();
    for round in 1..=3_u64 {
        for _ in 0..4 {
            a.post(op::FetchAdd::new(counter.advertise(), 1), next()).unwrap();
        }
        assert_eq!(a.sends.reads(), (4, 4));
        let error = a.post(op::FetchAdd::new(counter.advertise(), 1), next()).unwrap_err();
        assert_eq!(error, PushError::ReadsFull { max: 4 });
        for at in 0..4 {
            assert_eq!(a.sent().context.word(), Some((round - 1) * 4 + at));
        }
        assert_eq!(a.sends.reads(), (4, 0));
    }
    a.sends.set_reads(0);
    let error = a.post(op::FetchAdd::new(counter.advertise(), 1), next()).unwrap_err();
    assert_eq!(error, PushError::ReadsNotNegotiated);
}
