//! What profiles change beyond single requests: depths and completion queues that overrun.

use super::bed::*;
use super::std::vec::Vec;
use crate::abi::Wc;
use crate::port::PollPort;
use crate::soft::{Overrun, PostFault, Profile, QpConfig, State};

#[test]
fn depths_are_granted_as_asked_or_rounded_up() {
    for (profile, granted) in [(Profile::STRICT, [5, 3]), (Profile::mlx5_like(), [8, 4])] {
        let device = device(profile);
        let bed = Bed::new(&device);
        let config = QpConfig::new(bed.domain).send_depth(5).recv_depth(3);
        let qp = device.queue_pair(config, &bed.at_a, &bed.at_a).unwrap();
        let caps = qp.control.caps();
        assert_eq!([caps.send_depth, caps.recv_depth], granted);
    }
}

#[test]
fn an_overrun_breaks_the_completion_queue_and_every_queue_pair_on_it() {
    let device = device(Profile::STRICT);
    let bed = Bed::new(&device);
    let mut small = device.completion_queue(1).unwrap();
    let config = QpConfig::new(bed.domain);
    let mut c = device.queue_pair(config, &small, &bed.at_b).unwrap();
    let other = device.queue_pair(config, &bed.at_a, &small).unwrap();
    c.control.connect(&bed.b.control).unwrap_err();
    c.control.connect(&c.control).unwrap();
    let list = [bed.sge(0, 8)];
    let mut receives: Vec<_> = (0..2).map(|id| recv_wr(id, &list)).collect();
    post_recv(&mut c.recv, &mut receives);
    let wr = send_wr(5, crate::abi::opcode::SEND, &[], SIGNALED);
    post(&mut c.send, &mut [wr, wr]);
    bed.steps(2);
    assert_eq!((c.control.state(), other.control.state()), (State::Error, State::Error));
    assert_eq!(bed.a.control.state(), State::ReadyToSend);
    let mut wc = [Wc::EMPTY; 4];
    assert_eq!(small.poll(&mut wc), 1);
    assert_eq!(small.poll(&mut wc), -5);
    assert_eq!(small.poll(&mut wc), -5);
}

#[test]
fn an_overrun_only_loses_completions_on_some_devices() {
    let device = device(Profile::STRICT.overrun(Overrun::Loses).early_slots(true));
    let bed = Bed::new(&device);
    let mut small = device.completion_queue(1).unwrap();
    let mut large = device.completion_queue(8).unwrap();
    let config = QpConfig::new(bed.domain);
    let mut c = device.queue_pair(config, &small, &large).unwrap();
    c.control.connect(&c.control).unwrap();
    let mut receives: Vec<_> = (0..4).map(|id| recv_wr(id, &[])).collect();
    post_recv(&mut c.recv, &mut receives);
    let wr = send_wr(5, crate::abi::opcode::SEND, &[], SIGNALED);
    post(&mut c.send, &mut [wr, wr, wr]);
    assert_eq!(poll(&mut large).len(), 3);
    assert_eq!(poll(&mut small).len(), 1, "two were lost");
    assert_eq!(c.control.state(), State::ReadyToSend);
    post(&mut c.send, &mut [wr]);
    assert_eq!(poll(&mut small).len(), 1, "it goes on");
    // The receiving side: losing a completion is the end of the queue pair.
    let mut tiny = device.completion_queue(1).unwrap();
    let mut d = {
        drop(c);
        device.queue_pair(config, &large, &tiny).unwrap()
    };
    d.control.connect(&d.control).unwrap();
    let mut receives: Vec<_> = (0..4).map(|id| recv_wr(id, &[])).collect();
    post_recv(&mut d.recv, &mut receives);
    post(&mut d.send, &mut [wr, wr]);
    bed.steps(3);
    assert_eq!(d.control.state(), State::Error);
    assert_eq!(poll(&mut tiny).len(), 1, "also the flushes were lost");
}

#[test]
fn the_strict_profile_is_all_zero() {
    assert_eq!(Profile::default(), Profile::STRICT);
    assert_eq!(PostFault::from_bits(0), None);
    for fault in [PostFault::named(-12, 3), PostFault::unnamed(i16::MAX, 8191)] {
        assert_eq!(PostFault::from_bits(fault.to_bits()), Some(fault));
    }
    assert_eq!(PostFault::named(0, 3).to_bits(), 0);
}
