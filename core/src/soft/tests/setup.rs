//! Room: queue pairs, completion queues, regions.

use core::ptr::NonNull;

use super::bed::*;
use super::std::vec::Vec;
use crate::Access;
use crate::soft::{CompletionQueueError, Device, Profile, QpConfig, QueuePairError, RegisterError};

#[test]
fn a_device_in_a_static_serves_whoever_asks() {
    static DEVICE: Device<1, 4> = Device::new();
    let queue = DEVICE.completion_queue(4).unwrap();
    let qp = DEVICE.queue_pair(QpConfig::new(DEVICE.domain()), &queue, &queue).unwrap();
    let again = DEVICE.queue_pair(QpConfig::new(DEVICE.domain()), &queue, &queue);
    assert_eq!(again.unwrap_err(), QueuePairError::NoRoom);
    drop(qp);
    DEVICE.queue_pair(QpConfig::new(DEVICE.domain()), &queue, &queue).unwrap();
}

#[test]
fn an_end_is_one_pointer() {
    assert_eq!(size_of::<crate::soft::SendEnd<'_, 8>>(), size_of::<usize>());
    assert_eq!(size_of::<crate::soft::RecvEnd<'_, 8>>(), size_of::<usize>());
}

#[test]
fn what_cannot_be_had_is_said_with_the_numbers() {
    let device = device(Profile::STRICT);
    let queue = device.completion_queue(4).unwrap();
    let config = QpConfig::new(device.domain());
    let ask = |config| device.queue_pair(config, &queue, &queue).map(drop).unwrap_err();
    assert_eq!(ask(config.send_depth(9)), QueuePairError::Depth { asked: 9, max: 8 });
    assert_eq!(ask(config.recv_depth(9)), QueuePairError::Depth { asked: 9, max: 8 });
    assert_eq!(ask(config.sges(5)), QueuePairError::Sges { asked: 5, max: 4 });
    assert_eq!(ask(config.inline(65)), QueuePairError::Inline { asked: 65, max: 64 });
    let id = device.completion_queue(1).unwrap().id();
    let gone = device.queue_pair(config, &queue, id).map(drop).unwrap_err();
    assert_eq!(gone, QueuePairError::CompletionQueue);
    let strange = Dev::new();
    let strange = strange.completion_queue(1).unwrap();
    let foreign = device.queue_pair(config, &strange, &queue).map(drop).unwrap_err();
    assert_eq!(foreign, QueuePairError::CompletionQueue);
    let shared = device.shared_receive_queue(8).unwrap().id;
    assert_eq!(ask(config.shared_receive(shared)), QueuePairError::SharedReceiveQueue);
}

#[test]
fn completion_queues_share_the_places_of_their_device() {
    let device = Dev::new();
    let all = Dev::COMPLETIONS;
    let first = device.completion_queue(all / 2).unwrap();
    let second = device.completion_queue(all / 4).unwrap();
    assert_eq!(
        device.completion_queue(all / 2).unwrap_err(),
        CompletionQueueError::NoRoom { asked: all / 2, all }
    );
    let third = device.completion_queue(all / 4).unwrap();
    drop(second);
    let second = device.completion_queue(all / 4).unwrap();
    drop((first, second, third));
    let many: Vec<_> = (0..8).map(|_| device.completion_queue(5).unwrap()).collect();
    assert_eq!(many[7].capacity(), 5);
    assert_eq!(device.completion_queue(1).unwrap_err(), CompletionQueueError::NoQueue);
    assert!(device.completion_queue(usize::MAX).is_err());
}

#[test]
fn a_completion_queue_in_use_keeps_its_places_when_its_poller_is_gone() {
    let device = Dev::new();
    let queue = device.completion_queue(Dev::COMPLETIONS).unwrap();
    let qp = device.queue_pair(QpConfig::new(device.domain()), &queue, &queue).unwrap();
    drop(queue);
    assert!(device.completion_queue(1).is_err());
    drop(qp);
    assert!(device.completion_queue(1).is_ok());
}

#[test]
fn f72_pages_on_demand_are_refused_where_there_are_none() {
    let device = Dev::new();
    let access = Access::LOCAL_WRITE.with(Access::ON_DEMAND);
    let refused = device.register_shared(device.domain(), words(1), access).unwrap_err();
    assert_eq!(refused, RegisterError::OnDemand);
}

#[test]
fn rights_that_contradict_each_other_are_refused() {
    let device = Dev::new();
    let domain = device.domain();
    let refused = device.register_shared(domain, words(1), Access::REMOTE_WRITE).unwrap_err();
    assert_eq!(refused, RegisterError::NoLocalWrite);
    let mut memory = [0_u64; 2];
    let memory = NonNull::from(&mut memory[..]);
    let bytes = NonNull::slice_from_raw_parts(memory.cast::<u8>(), 16);
    // SAFETY: the memory outlives the registrations, and no request uses it.
    let private = unsafe { device.register_raw(domain, bytes, Access::REMOTE_READ) };
    assert_eq!(private.unwrap_err(), RegisterError::Private);
    // SAFETY: the address is inside of the array.
    let odd = unsafe { NonNull::slice_from_raw_parts(memory.cast::<u8>().add(4), 8) };
    // SAFETY: as above.
    let unaligned = unsafe { device.register_shared_raw(domain, odd, Access::REMOTE_READ) };
    assert_eq!(unaligned.unwrap_err(), RegisterError::Unaligned);
    // SAFETY: as above.
    let good = unsafe { device.register_shared_raw(domain, bytes, Access::REMOTE_READ) }.unwrap();
    assert_ne!(good.lkey.to_raw(), good.rkey.to_raw());
    assert!(device.deregister(&good));
    assert!(!device.deregister(&good), "it is gone");
}

#[test]
fn a_full_table_refuses_and_has_room_again() {
    let device: Device<1, 2> = Device::new();
    let domain = device.domain();
    let regions: Vec<_> = (0..8).map(|_| device.register(domain, bytes(8, 0)).unwrap()).collect();
    assert_eq!(device.register(domain, bytes(8, 0)).unwrap_err(), RegisterError::NoRoom);
    for region in regions {
        device.take_back(region).unwrap();
    }
    let region = device.register(domain, bytes(8, 0)).unwrap();
    let other: Device<1, 2> = Device::new();
    assert!(other.take_back(region).is_err(), "another device does not know it");
}
