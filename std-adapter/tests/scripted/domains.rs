//! Domains of one thread, over a plain one.

use std::sync::Arc;

use nanoverbs::cm::{DatagramAddress, EventChannel, Outgoing};
use nanoverbs::memory::{LocalMemory, Pages};
use nanoverbs::{
    CompletionQueue, Device, DomainError, ProtectionDomain, QueuePairError, QueuePairOptions,
};
use nanoverbs_core::QpNum;

use crate::connections::route;
use crate::script::Script;

fn device() -> Arc<Device> {
    Device::at(Script::addr(1, 0).ip()).expect("a device")
}

fn of_a_thread(plain: &Arc<ProtectionDomain>) -> Result<Arc<ProtectionDomain>, DomainError> {
    // SAFETY: one thread does everything here.
    unsafe { plain.for_one_thread() }
}

fn outgoing(domain: &Arc<ProtectionDomain>, channel: &EventChannel) -> Outgoing {
    let queue = CompletionQueue::new(domain.device(), 16, None).expect("a queue");
    let options = QueuePairOptions::new(4, 4);
    let at = route(1, channel);
    at.create_queue_pair(domain, &queue, &queue, options).expect("a queue pair")
}

#[test]
fn domains_of_threads_share_the_memory_of_the_plain_one_and_go_before_it() {
    let script = Script::new();
    let channel = EventChannel::new().expect("a channel");
    let at = route(1, &channel);
    let plain = ProtectionDomain::new(at.device()).expect("a domain");
    let one = of_a_thread(&plain).expect("a domain of a thread");
    // Over one of a thread there is no other: it stands on the plain one as well.
    let other = of_a_thread(&one).expect("a domain of a thread");
    assert_eq!((one.id(), other.id()), (plain.id(), plain.id()), "their memory is one");
    assert!(one.is_single_threaded() && other.is_single_threaded());
    assert!(!plain.is_single_threaded());
    let pairs = [outgoing(&one, &channel), outgoing(&plain, &channel), outgoing(&other, &channel)];
    let of_threads = [0, 1, 2].map(Script::is_in_a_threads_domain);
    assert_eq!(of_threads, [true, false, true]);
    let pages = Pages::new(4096).expect("pages");
    let memory = LocalMemory::register(pages, &one).expect("memory");
    assert_eq!(memory.region().registration().domain, plain.id());
    // The plain one is held by what stands on it; the library complains about another order.
    drop((plain, one, memory, other));
    drop((pairs, at, channel));
    script.finish();
}

#[test]
fn a_device_without_domains_of_threads_leaves_nothing() {
    let script = Script::new();
    let device = device();
    Script::refuse_parent();
    // SAFETY: nothing is made in it.
    let refused = unsafe { ProtectionDomain::single_threaded(&device) }.map(drop);
    assert_eq!(refused, Err(DomainError::Unsupported));
    // SAFETY: as above.
    let granted = unsafe { ProtectionDomain::single_threaded(&device) }.expect("a domain");
    assert!(granted.is_single_threaded());
    drop((granted, device));
    script.finish();
}

#[test]
fn an_address_handle_outlives_the_domain_of_a_thread_that_made_it() {
    let script = Script::new();
    let at = DatagramAddress::bind(Script::addr(1, 0)).expect("an address");
    let plain = ProtectionDomain::new(at.device()).expect("a domain");
    let one = of_a_thread(&plain).expect("a domain of a thread");
    let queue = CompletionQueue::new(at.device(), 16, None).expect("a queue");
    let options = QueuePairOptions::new(4, 4);
    let datagrams = at.create_queue_pair(&one, &queue, &queue, options).expect("a queue pair");
    let way = datagrams.answer(QpNum::from_raw(9), &[0x45; 40]).expect("a way back");
    // A peer outlives its handle; queue pairs of the plain domain send to it as well.
    let peer = way.peer();
    drop((way, datagrams, one, queue));
    assert_eq!(Script::handles(), 1);
    let _ = peer;
    drop(plain);
    assert_eq!(Script::handles(), 0);
    script.finish();
}

#[test]
fn queue_pairs_for_datagrams_are_not_made_apart() {
    let script = Script::new();
    let at = DatagramAddress::bind(Script::addr(1, 0)).expect("an address");
    let domain = at.device().domain().expect("a domain");
    let queue = CompletionQueue::new(at.device(), 16, None).expect("a queue");
    let options = QueuePairOptions::new(4, 4).apart();
    let refused = at.create_queue_pair(&domain, &queue, &queue, options).map(drop);
    let Err(QueuePairError::Call(error)) = refused else { panic!("{refused:?}") };
    assert_eq!((error.call(), error.errno()), ("ibv_create_qp", libc::EPROTOTYPE));
    assert_eq!(queue.free(), 16, "its places are free again");
    drop((queue, domain));
    script.finish();
}
