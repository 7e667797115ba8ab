//! SEND and WRITE: immediates, empty messages, order, and what a request leaves behind in its place.

use nanoverbs_core::soft::{Profile, QpConfig};
use nanoverbs_core::{
    Access, Block, Outcome, PushError, RKey, RemoteRegion, SharedRegion, SharedSlice, WcStatus, op,
};

use crate::bed::*;

type Blocks = heapless::Vec<Block, 4>;

#[test]
fn f02_a_write_with_immediate_ends_an_empty_receive_and_leaves_its_buffer_alone() {
    for profile in profiles() {
        let device = device(profile);
        let (mut a, mut b, domain) = pair::<Option<Block>>(device);
        let mut pool = pool(device, domain, 8, 64);
        let region = shared(device, domain, 8, ALL);
        let write = op::Write::new(region.advertise()).immediate(7).signaled();
        // Without a receive it waits, as a message would.
        a.post(write, Some(filled(&mut pool, 64, 1))).unwrap();
        assert!(a.try_sent().is_none());
        b.post_recv(None);
        let arrived = b.received();
        let success = arrived.outcome.success().unwrap();
        assert_eq!((success.immediate(), success.byte_len()), (Some(7), Some(64)));
        assert!(success.is_write(), "the bytes are elsewhere");
        assert!(a.sent().outcome.is_done());
        // A receive with a buffer: untouched.
        b.post_recv(Some(filled(&mut pool, 64, 9)));
        a.post(write, Some(filled(&mut pool, 64, 2))).unwrap();
        assert!(a.sent().outcome.is_done());
        let arrived = b.received();
        assert!(arrived.outcome.success().unwrap().is_write());
        assert_eq!(arrived.context.unwrap()[..], [9; 64]);
        assert_eq!(word_at(&region, 56), u64::from_ne_bytes([2; 8]));
    }
}

#[test]
fn f02_a_write_with_immediate_to_a_peer_without_a_receive_fails_by_name() {
    let device = device(Profile::STRICT);
    let domain = device.domain();
    let mut a = side_with::<Block>(device, domain, QpConfig::new(domain).rnr_retry(0));
    let b = side::<Block>(device, domain);
    a.control.connect(&b.control).unwrap();
    let mut pool = pool(device, domain, 1, 8);
    let region = shared(device, domain, 1, ALL);
    a.post(op::Write::new(region.advertise()).immediate(1), pool.allocate().unwrap()).unwrap();
    let Outcome::Failed(failure) = a.sent().outcome else { panic!("nobody has a receive") };
    assert_eq!(failure.status(), WcStatus::RnrRetryExceeded);
    assert_eq!(failure.operation(), nanoverbs_core::Operation::Write);
}

#[test]
fn f30_f44_an_immediate_arrives_as_it_left_whatever_other_flags_the_device_sets() {
    for profile in profiles() {
        let device = device(profile);
        let (mut a, mut b, domain) = pair::<Block>(device);
        let mut pool = pool(device, domain, 8, 8);
        for value in [0x89ab_cdef, 0, 1, u32::MAX] {
            b.post_recv(pool.allocate().unwrap());
            let send = op::Send::new().immediate(value).signaled();
            a.post(send, filled(&mut pool, 8, 0)).unwrap();
            let arrived = b.received();
            let success = arrived.outcome.success().unwrap();
            assert_eq!((success.immediate(), success.is_write()), (Some(value), false));
            // What the sender's completion says beside its status is not looked at.
            assert_eq!(a.sent().outcome.success().unwrap().immediate(), None);
        }
        b.post_recv(pool.allocate().unwrap());
        a.post(op::Send::new().signaled(), filled(&mut pool, 8, 0)).unwrap();
        assert_eq!(b.received().outcome.success().unwrap().immediate(), None);
    }
}

#[test]
fn f44_the_upper_half_of_an_address_is_kept_on_the_way() {
    let region = RemoteRegion::new(
        0x0000_7f12_3456_789a,
        16,
        RKey::from_raw(0x89ab_cdef),
        Access::REMOTE_READ,
    )
    .unwrap();
    let wire = region.to_wire();
    assert_eq!(wire[..8], [0, 0, 0x7f, 0x12, 0x34, 0x56, 0x78, 0x9a]);
    assert_eq!(wire[16..20], [0x89, 0xab, 0xcd, 0xef]);
    assert_eq!(RemoteRegion::from_wire(&wire).unwrap(), region);
}

#[test]
fn f17_nothing_of_an_earlier_request_is_left_in_its_place() {
    let device = device(Profile::STRICT);
    let (mut a, mut b, domain) = pair::<Block>(device);
    let mut pool = pool(device, domain, 8, 8);
    let region = shared(device, domain, 1, ALL);
    // One staging entry serves all four, one after the other.
    b.post_recv(pool.allocate().unwrap());
    let send = op::Send::new().immediate(5).solicited().after_reads().signaled();
    a.post(send, filled(&mut pool, 8, 1)).unwrap();
    assert_eq!(b.received().outcome.success().unwrap().immediate(), Some(5));
    drop(a.sent());
    a.post(op::FetchAdd::new(region.advertise(), 1).signaled(), pool.allocate().unwrap()).unwrap();
    drop(a.sent());
    b.post_recv(pool.allocate().unwrap());
    a.post(op::Send::new(), filled(&mut pool, 3, 2)).unwrap();
    let arrived = b.received();
    let success = arrived.outcome.success().unwrap();
    assert_eq!(
        (success.byte_len(), success.immediate(), success.invalidated()),
        (Some(3), None, None)
    );
    // An empty chain is no call.
    let chain = a.sends.reserve(&mut a.send_link, 0).unwrap();
    assert_eq!(chain.submit().unwrap(), 0);
}

#[test]
fn f21_an_empty_message_is_a_message_on_devices_of_either_kind() {
    let quirks = [Profile::STRICT, Profile::STRICT.empty_sges_refused(true), Profile::rxe()];
    for profile in quirks {
        let device = device(profile);
        let (mut a, mut b, domain) = pair::<Blocks>(device);
        let mut pool = pool(device, domain, 16, 8);
        let region = shared(device, domain, 1, ALL);
        let none = Blocks::new();
        let one: Blocks = [filled(&mut pool, 0, 0)].into_iter().collect();
        let two: Blocks = [filled(&mut pool, 0, 0), filled(&mut pool, 8, 4)].into_iter().collect();
        for (message, len) in [(none, 0), (one, 0), (two, 8)] {
            b.post_recv([pool.allocate().unwrap()].into_iter().collect());
            a.post(op::Send::new().signaled(), message).unwrap();
            assert_eq!(b.received().outcome.success().unwrap().byte_len(), Some(len));
            let sent = a.sent();
            a.post(op::Write::new(region.advertise()).signaled(), sent.context).unwrap();
            assert!(a.sent().outcome.is_done());
        }
        a.post(op::Read::new(region.advertise()).signaled(), Blocks::new()).unwrap();
        assert_eq!(a.sent().outcome.success().unwrap().byte_len(), Some(0));
        // A receive without memory takes an empty message.
        b.post_recv(Blocks::new());
        a.post(op::Send::new().signaled(), Blocks::new()).unwrap();
        assert_eq!(b.received().outcome.success().unwrap().byte_len(), Some(0));
    }
}

#[test]
fn f27_a_write_overtakes_a_read_unless_it_waits_for_it() {
    for fenced in [false, true] {
        let device = device(Profile::STRICT);
        let (mut a, _b, domain) = pair::<Block>(device);
        let mut pool = pool(device, domain, 2, 8);
        let region = shared(device, domain, 1, ALL);
        region.write_at(0, &[1; 8]).unwrap();
        a.control.hold_acks(true);
        a.post(op::Read::new(region.advertise()), pool.allocate().unwrap()).unwrap();
        let write = op::Write::new(region.advertise()).signaled();
        let write = if fenced { write.after_reads() } else { write };
        a.post(write, filled(&mut pool, 8, 2)).unwrap();
        for _ in 0..4 {
            device.progress();
        }
        a.control.hold_acks(false);
        let read = a.sent();
        assert_eq!(read.context[..], if fenced { [1; 8] } else { [2; 8] });
        assert!(a.sent().outcome.is_done());
        assert_eq!(word_at(&region, 0), u64::from_ne_bytes([2; 8]));
    }
}

#[test]
fn f15_inline_data_is_free_when_the_post_returns_and_only_then() {
    let device = device(Profile::STRICT);
    let (mut a, mut b, domain) = pair::<Block>(device);
    let mut pool = pool(device, domain, 4, 128);
    b.post_recv(pool.allocate().unwrap());
    let mut chain = a.sends.reserve(&mut a.send_link, 1).unwrap();
    // The context goes into the chain with its bytes, so there is nothing that could leave scope
    // before the submit; too long is refused, not sent some other way.
    let refused = chain.push_inline(op::Send::new(), filled(&mut pool, 65, 0)).unwrap_err();
    assert_eq!(refused.error, PushError::InlineTooLong { given: 65, max: 64 });
    let mut block = refused.context;
    block.set_len(64).unwrap();
    block.fill(6);
    chain.push_inline(op::Send::new().signaled(), block).unwrap();
    chain.submit().unwrap();
    let arrived = b.received();
    assert_eq!(arrived.context[..64], [6; 64]);
    assert!(a.sent().outcome.is_done());
}

#[test]
fn f20_shared_memory_is_the_source_of_a_send_and_the_sink_of_a_read() {
    let device = device(Profile::STRICT);
    let (mut a, mut b, domain) = pair::<SharedSlice>(device);
    let near = leak(shared(device, domain, 8, ALL));
    let far = leak(shared(device, domain, 8, ALL));
    far.write_at(0, &[3; 16]).unwrap();
    let slice = |region: &'static SharedRegion, at, len| SharedSlice::new(region, at, len).unwrap();
    a.post(op::Read::new(far.advertise()).signaled(), slice(near, 8, 16)).unwrap();
    assert_eq!(a.sent().outcome.success().unwrap().byte_len(), Some(16));
    assert_eq!((word_at(near, 0), word_at(near, 16)), (0, u64::from_ne_bytes([3; 8])));
    a.post(op::Write::new(far.advertise().at(40, 8).unwrap()), slice(near, 16, 8)).unwrap();
    b.post_recv(slice(far, 48, 8));
    a.post(op::Send::new().signaled(), slice(near, 8, 8)).unwrap();
    assert!(a.sent().outcome.is_done() && a.sent().outcome.is_done());
    assert!(b.received().outcome.is_done());
    assert_eq!((word_at(far, 40), word_at(far, 48)), (word_at(near, 8), word_at(near, 8)));
    assert!(SharedSlice::new(near, 60, 8).is_err());
    // The sink of a READ must be writable for the device.
    let source = leak(shared(device, domain, 1, Access::REMOTE_READ));
    let missing = PushError::MissingAccess { needs: Access::LOCAL_WRITE, has: Access::REMOTE_READ };
    let read = op::Read::new(far.advertise());
    assert_eq!(a.post(read, slice(source, 0, 8)).unwrap_err(), missing);
}

#[test]
fn a_read_is_as_long_as_its_blocks_and_a_receive_may_fill_them() {
    for profile in profiles() {
        let device = device(profile);
        let (mut a, mut b, domain) = pair::<[Block; 2]>(device);
        let mut pool = pool(device, domain, 8, 16);
        let region = shared(device, domain, 4, ALL);
        region.write_at(0, &[9; 32]).unwrap();
        let remote = region.advertise();
        // Five bytes and three, as a SEND of them would have; what lies behind stays as it was.
        let mut blocks = [filled(&mut pool, 16, 1), filled(&mut pool, 16, 1)];
        blocks[0].set_len(5).unwrap();
        blocks[1].set_len(3).unwrap();
        let read = op::Read::new(remote.at(0, 8).unwrap()).signaled();
        a.post(read, blocks).unwrap();
        let mut ended = a.sent();
        assert_eq!(ended.outcome.success().unwrap().byte_len(), Some(8));
        assert_eq!([&ended.context[0][..], &ended.context[1][..]], [&[9; 5][..], &[9; 3]]);
        for (block, len) in ended.context.iter_mut().zip([5, 3]) {
            block.set_len(16).unwrap();
            assert_eq!(block[len..], [1; 16][len..]);
        }
        // One that is refused keeps the length that it had.
        ended.context[0].set_len(9).unwrap();
        ended.context[1].set_len(0).unwrap();
        let mut chain = a.sends.reserve(&mut a.send_link, 1).unwrap();
        let refused = chain.push(read, ended.context).unwrap_err();
        assert_eq!(refused.error, PushError::RemoteTooShort { total: 9, remote: 8 });
        assert_eq!((refused.context[0].len(), refused.context[1].len()), (9, 0));
        drop(chain);
        // The same blocks take a message of any length.
        b.post_recv(refused.context);
        let message = [filled(&mut pool, 16, 7), filled(&mut pool, 4, 8)];
        a.post(op::Send::new().signaled(), message).unwrap();
        assert!(a.sent().outcome.is_done());
        let arrived = b.received();
        assert_eq!(arrived.outcome.success().unwrap().byte_len(), Some(20));
        assert_eq!(
            (&arrived.context[0][..], &arrived.context[1][..4]),
            (&[7; 16][..], &[8; 4][..])
        );
    }
}

#[test]
fn a_message_is_what_came_and_nothing_else() {
    let device = device(Profile::STRICT);
    let (mut a, mut b, domain) = pair::<(Block, u32)>(device);
    let mut pool = pool(device, domain, 6, 16);
    let region = shared(device, domain, 1, ALL);
    for (len, tag) in [(5, 1), (0, 2), (16, 3)] {
        b.post_recv((filled(&mut pool, 16, 1), tag));
        a.post(op::Send::new().signaled(), (filled(&mut pool, len, 7), 0)).unwrap();
        // A SEND brings nothing.
        assert_eq!(a.sent().message(), None);
        let arrived = b.received();
        assert_eq!((arrived.message(), arrived.context.1), (Some(&[7; 16][..len]), tag));
    }
    // A WRITE with immediate ends a receive and leaves its buffer alone.
    b.post_recv((filled(&mut pool, 16, 1), 4));
    let write = op::Write::new(region.advertise()).immediate(1).signaled();
    a.post(write, (filled(&mut pool, 8, 3), 0)).unwrap();
    assert_eq!(a.sent().message(), None);
    assert_eq!(b.received().message(), Some(&[][..]));
    a.post(op::Read::new(region.advertise()).signaled(), (filled(&mut pool, 8, 0), 0)).unwrap();
    assert_eq!(a.sent().message(), Some(&[3; 8][..]));
    // What did not come is no message.
    b.post_recv((filled(&mut pool, 16, 1), 5));
    b.control.disconnect();
    assert_eq!(b.received().message(), None);
}
