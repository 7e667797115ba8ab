//! Each thing that can be wrong with a request has an error of its own, before the device sees it, and
//! gives the context back.

mod common;

use common::{Device, domain, pool, pool_in, recv_queue, remote, send_config, send_queue};
use nanoverbs_core::abi::{Sge, send_flags};
use nanoverbs_core::{
    Access, Block, Domain, PushError, RKey, RecvStaging, RemoteRegion, ReserveError, SendConfig,
    SendQueue, SendSlots, SendStaging, SliceList, op,
};

/// What pushing `context` into an open queue with this configuration gives.
fn push<O, C>(config: SendConfig, operation: O, context: C) -> PushError
where
    C: std::fmt::Debug + 'static,
    O: op::Operation<C>,
{
    let device = Device::default();
    let mut queue = send_queue::<C, 16>(&device, config);
    let mut staging = SendStaging::<2, 4>::new();
    let mut staging = staging.link();
    let before = (queue.in_flight(), queue.free(), queue.reads());
    let mut chain = queue.reserve(&mut staging, 1).unwrap();
    let rejected = chain.push(operation, context).unwrap_err();
    assert!(chain.is_empty());
    assert_eq!(chain.submit().unwrap(), 0);
    assert_eq!((queue.in_flight(), queue.free(), queue.reads()), before);
    assert_eq!(device.calls(), 0, "nothing reaches the device");
    let text = rejected.to_string();
    assert!(text.len() > 20 && !text.ends_with('.'), "{text}");
    rejected.error
}

fn blocks<const N: usize>(block_len: usize) -> [Block; N] {
    let mut pool = pool(N, block_len);
    std::array::from_fn(|_| pool.allocate().unwrap())
}

#[test]
fn f12_more_pieces_than_granted_are_refused_and_reads_have_a_limit_of_their_own() {
    let config = send_config().max_sges(2, 1);
    assert_eq!(
        push(config, op::Send::new(), blocks::<3>(16)),
        PushError::TooManySges { given: 3, max: 2 }
    );
    assert_eq!(
        push(config, op::Read::new(remote(64)), blocks::<2>(16)),
        PushError::TooManySges { given: 2, max: 1 }
    );
    // The staging row is a limit as well, whatever was granted.
    assert_eq!(
        push(send_config(), op::Send::new(), blocks::<5>(16)),
        PushError::TooManySges { given: 5, max: 4 }
    );
}

#[test]
fn f12_a_receive_in_too_many_pieces_is_refused() {
    let device = Device::default();
    let mut queue = recv_queue::<_, 4>(&device);
    let mut staging = RecvStaging::<1, 2>::new();
    let mut staging = staging.link();
    let mut chain = queue.reserve(&mut staging, 1).unwrap();
    let rejected = chain.push(blocks::<3>(16)).unwrap_err();
    assert_eq!(rejected.error, PushError::TooManySges { given: 3, max: 2 });
}

#[test]
fn f19_memory_of_another_domain_or_without_the_right_is_refused() {
    let stranger = Domain::from_raw(8);
    let mut pool = pool_in(stranger, Access::LOCAL_WRITE, 1, 16);
    assert_eq!(
        push(send_config(), op::Send::new(), pool.allocate().unwrap()),
        PushError::WrongDomain { given: stranger, queue: domain() }
    );
    let mut pool = pool_in(domain(), Access::LOCAL_READ, 2, 16);
    let missing = PushError::MissingAccess { needs: Access::LOCAL_WRITE, has: Access::LOCAL_READ };
    assert_eq!(push(send_config(), op::Read::new(remote(64)), pool.allocate().unwrap()), missing);
    let mut queue = recv_queue::<_, 4>(&Device::default());
    let mut staging = RecvStaging::<1, 2>::new();
    let mut staging = staging.link();
    let mut chain = queue.reserve(&mut staging, 1).unwrap();
    assert_eq!(chain.push(pool.allocate().unwrap()).unwrap_err().error, missing);
}

#[test]
fn f21_empty_pieces_are_left_out_and_an_empty_message_has_none() {
    let device = Device::default();
    let mut queue = send_queue::<_, 16>(&device, send_config());
    let mut staging = SendStaging::<2, 1>::new();
    let mut staging = staging.link();
    let [mut empty, mut full] = blocks::<2>(16);
    empty.set_len(0).unwrap();
    full.set_len(8).unwrap();
    let mut chain = queue.reserve(&mut staging, 2).unwrap();
    chain.push(op::Send::new(), [Some(empty), Some(full)]).unwrap();
    chain.push(op::Send::new(), [None, None]).unwrap();
    chain.submit().unwrap();
    let lengths: Vec<Vec<u32>> = device
        .sends()
        .iter()
        .map(|sent| sent.sges.iter().map(|sge| sge.length).collect())
        .collect();
    assert_eq!(lengths, [vec![8], vec![]]);
}

/// Memory that does not exist: lengths are checked without touching it.
struct Huge(nanoverbs_core::Slice, usize);

impl std::fmt::Debug for Huge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Huge")
    }
}

// SAFETY: it is only ever refused.
unsafe impl nanoverbs_core::SendBuffers for Huge {
    fn gather(&self, list: &mut SliceList<'_>) {
        (0..self.1).for_each(|_| list.push(self.0));
    }
}

#[test]
fn f22_lengths_are_summed_in_64_bits_and_checked_against_the_port() {
    let registration = nanoverbs_core::Registration {
        addr: std::ptr::NonNull::<u64>::dangling().cast(),
        len: u32::MAX as usize + 17,
        lkey: nanoverbs_core::LKey::from_raw(1),
        rkey: RKey::from_raw(1),
        access: Access::LOCAL_WRITE,
        domain: domain(),
    };
    // SAFETY: the slices of it are only ever refused.
    let region = unsafe { nanoverbs_core::Region::from_raw(registration) };
    assert!(region.slice(0, u32::MAX as usize + 17).is_err(), "4 GiB + 16 is not 16");
    let slice = region.slice(0, 1 << 31).unwrap();
    let config = send_config().max_message(1 << 31);
    assert_eq!(
        push(config, op::Send::new(), Huge(slice, 2)),
        PushError::MessageTooLong { total: 1 << 32, max: 1 << 31 }
    );
    assert_eq!(
        push(send_config().max_message(32), op::Send::new(), blocks::<3>(16)),
        PushError::MessageTooLong { total: 48, max: 32 }
    );
}

/// Whether a message of these pieces goes out of a queue for messages of at most `max` bytes, made of blocks and
/// by hand.
fn goes_out<const SGES: usize>(max: u32, pieces: [u32; 2]) -> [bool; 2] {
    let config = send_config().max_message(max);
    let config = if max == 0 { config.max_sges(0, 0) } else { config };
    let mut queue = send_queue::<[Option<Block>; 2], 16>(&Device::default(), config);
    let mut staging = SendStaging::<2, SGES>::new();
    let mut staging = staging.link();
    let mut chain = queue.reserve(&mut staging, 2).unwrap();
    let given = pieces.into_iter().filter(|len| *len != u32::MAX);
    let blocks = pieces.map(|len| {
        let mut block = pool(1, 64).allocate().filter(|_| len != u32::MAX)?;
        block.set_len(len as usize).unwrap();
        Some(block)
    });
    let lkey = nanoverbs_core::LKey::from_raw(1);
    let sges: Vec<_> = given.map(|len| Sge::new(std::ptr::null_mut(), len, lkey)).collect();
    let owned = chain.push(op::Send::new(), blocks).is_ok();
    // SAFETY: the chain is never submitted.
    let by_hand = unsafe { chain.push_raw(op::Send::new(), &sges, [None, None]) }.is_ok();
    [owned, by_hand]
}

#[test]
fn a_message_may_be_as_long_as_the_longest_and_no_longer() {
    const NONE: u32 = u32::MAX;
    assert_eq!(goes_out::<1>(16, [16, NONE]), [true, true]);
    assert_eq!(goes_out::<1>(16, [17, NONE]), [false, false]);
    assert_eq!(goes_out::<2>(16, [7, 9]), [true, true]);
    assert_eq!(goes_out::<2>(16, [8, 9]), [false, false]);
    assert_eq!(goes_out::<2>(16, [0, 17]), [false, false]);
    assert_eq!(goes_out::<2>(16, [0, 16]), [true, true]);
    // Without pieces: nothing goes out but a message of none. A block without bytes is none.
    assert_eq!(goes_out::<1>(0, [NONE, NONE]), [true, true]);
    assert_eq!(goes_out::<1>(0, [1, NONE]), [false, false]);
    assert_eq!(goes_out::<1>(0, [0, NONE]), [true, false]);
}

#[test]
fn what_the_peer_does_not_offer_is_refused() {
    assert_eq!(
        push(send_config(), op::Write::new(remote(47)), blocks::<3>(16)),
        PushError::RemoteTooShort { total: 48, remote: 47 }
    );
    let readable = RemoteRegion::new(0, 64, RKey::from_raw(1), Access::REMOTE_READ).unwrap();
    assert_eq!(
        push(send_config(), op::Write::new(readable), blocks::<1>(16)),
        PushError::RemoteAccess { needs: Access::REMOTE_WRITE, has: Access::REMOTE_READ }
    );
}

#[test]
fn f25_reads_are_counted_against_the_negotiated_depth() {
    let none = send_config().reads(0);
    assert_eq!(
        push(none, op::Read::new(remote(64)), blocks::<1>(16)),
        PushError::ReadsNotNegotiated
    );
    let device = Device::default();
    let mut queue = send_queue::<_, 16>(&device, send_config().reads(2));
    let mut staging = SendStaging::<4, 1>::new();
    let mut staging = staging.link();
    let mut chain = queue.reserve(&mut staging, 4).unwrap();
    let [a, b, c] = blocks::<3>(16);
    chain.push(op::Read::new(remote(16)), a).unwrap();
    chain.push(op::Read::new(remote(16)), b).unwrap();
    let rejected = chain.push(op::Read::new(remote(16)), c).unwrap_err();
    assert_eq!(rejected.error, PushError::ReadsFull { max: 2 });
    chain.submit().unwrap();
    let signaled: Vec<_> = device.sends().iter().map(common::Posted::is_signaled).collect();
    assert_eq!(signaled, [false, true], "the last READ always, so that credits come back");
}

#[test]
fn inline_data_is_copied_out_of_the_context_and_has_a_limit() {
    let device = Device::default();
    let mut queue = send_queue::<[u8; 65], 16>(&device, send_config().max_inline(64));
    let mut staging = SendStaging::<2, 1>::new();
    let mut staging = staging.link();
    let mut chain = queue.reserve(&mut staging, 1).unwrap();
    let rejected = chain.push_inline(op::Send::new(), [3; 65]).unwrap_err();
    assert_eq!(rejected.error, PushError::InlineTooLong { given: 65, max: 64 });
    assert_eq!(rejected.context, [3; 65]);
    drop(chain);
    let mut queue = send_queue::<[u8; 64], 16>(&device, send_config().max_inline(64));
    let mut chain = queue.reserve(&mut staging, 1).unwrap();
    chain.push_inline(op::Send::new(), [9; 64]).unwrap();
    chain.submit().unwrap();
    assert_eq!(device.sends()[0].bytes, [9; 64]);
    assert_ne!(device.sends()[0].flags & send_flags::INLINE, 0);
}

#[test]
fn f23_a_send_before_the_connection_is_refused_and_a_receive_is_not() {
    let device = Device::default();
    let mut slots = SendSlots::<u64, 16>::new();
    let mut queue = SendQueue::new(device.clone(), &mut slots, send_config()).unwrap();
    let mut staging = SendStaging::<2, 1>::new();
    let mut staging = staging.link();
    assert_eq!(queue.reserve(&mut staging, 1).unwrap_err(), ReserveError::NotConnected);
    assert_eq!(device.calls(), 0);
    let mut receives = recv_queue::<_, 4>(&device);
    let mut receiving = RecvStaging::<1, 1>::new();
    let mut receiving = receiving.link();
    let mut chain = receives.reserve(&mut receiving, 1).unwrap();
    chain.push(()).unwrap();
    assert_eq!(chain.submit().unwrap(), 1);
    queue.open();
    assert!(queue.reserve(&mut staging, 1).is_ok());
}

#[test]
fn a_chain_longer_than_the_queue_was_made_for_is_refused() {
    let device = Device::default();
    let mut queue = send_queue::<u64, 16>(&device, send_config().chain(2));
    let mut staging = SendStaging::<8, 1>::new();
    let mut staging = staging.link();
    assert_eq!(
        queue.reserve(&mut staging, 3).unwrap_err(),
        ReserveError::ChainTooLong { asked: 3, max: 2 }
    );
    assert!(queue.reserve(&mut staging, 0).is_ok());
}
