extern crate std;
use std::collections::{HashSet, VecDeque};
use std::vec::Vec;

use super::*;
use crate::abi::{RecvWr, SendWr, Wc};
use crate::port::{RecvPort, SendPort};
use crate::{Domain, RecvConfig, RecvQueue, RecvSlots, SendConfig, SendQueue, SendSlots};

/// Gives what a test puts in.
#[derive(Default)]
struct Port(VecDeque<Wc>);

// SAFETY: no queue retires what comes out of it, so nothing is freed on its word.
unsafe impl PollPort for Port {
    fn poll(&mut self, into: &mut [Wc]) -> i32 {
        let count = into.len().min(self.0.len());
        for entry in &mut into[..count] {
            *entry = self.0.pop_front().unwrap();
        }
        count as i32
    }
}

// SAFETY: it takes nothing.
unsafe impl SendPort for Port {
    unsafe fn post_send(&mut self, first: *mut SendWr, bad: &mut *mut SendWr) -> i32 {
        *bad = first;
        12
    }
}

// SAFETY: it takes nothing.
unsafe impl RecvPort for Port {
    unsafe fn post_recv(&mut self, first: *mut RecvWr, bad: &mut *mut RecvWr) -> i32 {
        *bad = first;
        12
    }
}

type Queue = Completions<Port, 4>;

fn queue(capacity: u32) -> Queue {
    Completions::new(Port::default(), capacity)
}

fn complete(queue: &mut Queue, serial: u32) {
    let wc = Wc { wr_id: u64::from(serial) << 32, ..Wc::EMPTY };
    queue.port_mut().0.push_back(wc);
}

fn routes<const N: usize>(queue: &mut Queue, group: &mut Group<N>) -> Vec<Route> {
    queue.poll().unwrap().map(|completion| group.route(&completion)).collect()
}

fn join<const N: usize>(queue: &mut Queue, group: &mut Group<N>) -> (Member, u32, u32) {
    let Joined { member, send, recv } = group.join(queue, 1, 1).unwrap();
    (member, send.serial(), recv.serial())
}

#[test]
fn completions_find_their_member_and_its_half() {
    let (mut queue, mut group) = (queue(64), Group::<4>::new());
    let members: Vec<_> = (0..4).map(|_| join(&mut queue, &mut group)).collect();
    assert_eq!((group.len(), group.join(&mut queue, 1, 1).unwrap_err()), {
        (4, JoinError::Full { members: 4 })
    });
    for (member, send, recv) in &members {
        complete(&mut queue, *recv);
        complete(&mut queue, *send);
        let index = member.index();
        assert_eq!(routes(&mut queue, &mut group), [Route::Recv(index), Route::Send(index)]);
    }
    assert_eq!(group.stale(), 0);
}

#[test]
fn a_completion_of_who_left_is_stale_also_when_its_index_is_used_again() {
    let (mut queue, mut group) = (queue(64), Group::<1>::new());
    let (member, send, recv) = join(&mut queue, &mut group);
    group.leave(member).unwrap();
    complete(&mut queue, send);
    assert_eq!(routes(&mut queue, &mut group), [Route::Stale]);
    let (again, new, _) = join(&mut queue, &mut group);
    assert_eq!(again.index(), 0);
    for serial in [send, recv, new] {
        complete(&mut queue, serial);
    }
    assert_eq!(routes(&mut queue, &mut group), [Route::Stale, Route::Stale, Route::Send(0)]);
    assert_eq!(group.stale(), 3);
}

#[test]
fn a_queue_that_never_joined_is_nobodys() {
    let (mut queue, mut group) = (queue(64), Group::<8>::new());
    let _member = join(&mut queue, &mut group);
    for _ in 0..20 {
        complete(&mut queue, Serial::send().unwrap().number());
        complete(&mut queue, Serial::recv().unwrap().number());
        assert_eq!(routes(&mut queue, &mut group), [Route::Stale; 2]);
    }
}

#[test]
fn an_index_is_used_again_only_after_the_completion_queue_was_seen_empty() {
    let (mut queue, mut group) = (queue(64), Group::<1>::new());
    let (member, send, _) = join(&mut queue, &mut group);
    complete(&mut queue, send);
    complete(&mut queue, send);
    group.leave(member).unwrap();
    for _ in 0..2 {
        let refused = group.join(&mut queue, 1, 1).unwrap_err();
        assert_eq!(refused, JoinError::Leaving { leaving: 1 });
    }
    assert_eq!(routes(&mut queue, &mut group).len(), 2, "what the group saw is still there");
    assert_eq!(group.settle(&mut queue), Ok(1));
    assert_eq!(group.leaving(), 0);
    let _member = join(&mut queue, &mut group);
}

#[test]
fn an_empty_poll_before_the_leave_does_not_count() {
    let (mut queue, mut group) = (queue(64), Group::<1>::new());
    let (member, send, _) = join(&mut queue, &mut group);
    assert_eq!(queue.poll().unwrap().len(), 0);
    complete(&mut queue, send);
    group.leave(member).unwrap();
    assert_eq!(group.settle(&mut queue), Ok(0));
}

#[test]
fn a_completion_queue_that_is_never_empty_holds_nobody_up() {
    let (mut queue, mut group) = (queue(64), Group::<2>::new());
    let (_stays, busy, _) = join(&mut queue, &mut group);
    let (leaves, _, _) = join(&mut queue, &mut group);
    group.leave(leaves).unwrap();
    // As many completions as fit, and one more, so that it is never empty.
    let mut routed = 0;
    complete(&mut queue, busy);
    let joined = loop {
        complete(&mut queue, busy);
        match group.join(&mut queue, 1, 1) {
            Ok(joined) => break joined,
            Err(error) => assert_eq!(error, JoinError::Leaving { leaving: 1 }),
        }
        for completion in queue.poll().unwrap().take(1) {
            assert_eq!(group.route(&completion), Route::Send(0));
            routed += 1;
        }
        assert!(routed < 200, "it is starved");
    };
    assert!(routed >= 64, "not before the completion queue has gone round: {routed}");
    assert_eq!(joined.member.index(), 1);
}

#[test]
fn room_is_reserved_at_joining_and_comes_back_when_the_last_completions_are_out() {
    let (mut queue, mut group) = (queue(10), Group::<4>::new());
    let first = group.join(&mut queue, 4, 4).unwrap();
    let too_small = JoinError::CqTooSmall(CqTooSmall { need: 11, have: 10 });
    assert_eq!(group.join(&mut queue, 3, 0).unwrap_err(), too_small);
    assert_eq!((group.len(), group.leaving()), (1, 0), "a refused join changes nothing");
    complete(&mut queue, first.send.serial());
    group.leave(first.member).unwrap();
    assert_eq!(group.join(&mut queue, 3, 0).unwrap_err(), too_small);
    assert_eq!(routes(&mut queue, &mut group), [Route::Stale]);
    let _second = group.join(&mut queue, 10, 0).unwrap();
    assert_eq!(group.len(), 1);
}

#[test]
fn a_member_of_another_group_comes_back() {
    let mut queue = queue(64);
    let (mut one, mut other) = (Group::<4>::new(), Group::<4>::new());
    let (member, send, _) = join(&mut queue, &mut one);
    let _member = join(&mut queue, &mut other);
    let member = other.leave(member).unwrap_err();
    one.leave(member).unwrap();
    assert_eq!((one.len(), other.len()), (0, 1));
    complete(&mut queue, send);
    assert_eq!(routes(&mut queue, &mut other), [Route::Stale]);
}

#[test]
fn queues_have_the_identity_of_their_seat_and_are_no_deeper() {
    let (mut queue, mut group) = (queue(64), Group::<4>::new());
    let Joined { member: _, send, recv } = group.join(&mut queue, 4, 2).unwrap();
    let (send_serial, recv_serial) = (send.serial(), recv.serial());
    assert_eq!((send.depth(), recv.depth()), (4, 2));
    let domain = Domain::from_raw(1);
    let (mut sends, mut receives) = (SendSlots::<u8, 8>::new(), RecvSlots::<u8, 8>::new());
    let sends =
        SendQueue::with_seat(Port::default(), &mut sends, SendConfig::new(domain), send).unwrap();
    let receives =
        RecvQueue::with_seat(Port::default(), &mut receives, RecvConfig::new(domain), recv)
            .unwrap();
    assert_eq!((sends.serial(), sends.depth()), (send_serial, 4));
    assert_eq!((receives.serial(), receives.depth()), (recv_serial, 2));
}

/// Joins and leaves in a random order, with completions of members and of those who left, beside a
/// plain model; also where the positions wrap.
#[test]
fn any_order_of_joins_and_leaves_agrees_with_a_model() {
    let (mut queue, mut group) = (queue(64), Group::<8>::new());
    (group.head, group.ripe, group.tail) = (u32::MAX - 3, 4, 4);
    let mut seed = 1_u32;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 16) as usize % below
    };
    let (mut members, mut gone) = (Vec::new(), Vec::new());
    let mut seen = HashSet::new();
    let mut pending = 0;
    for _ in 0..if cfg!(miri) { 300 } else { 20_000 } {
        match random(4) {
            0 if members.len() < 8 => match group.join(&mut queue, 1, 1) {
                Ok(Joined { member, send, .. }) => {
                    assert!(seen.insert(send.serial()), "a serial came twice");
                    assert_eq!((send.serial() >> 1) as usize % 8, member.index());
                    members.push((member, send.serial()));
                }
                Err(error) => {
                    assert!(matches!(error, JoinError::Leaving { .. }) && pending > 0);
                }
            },
            1 if !members.is_empty() => {
                let (member, serial) = members.swap_remove(random(members.len()));
                group.leave(member).unwrap();
                gone.push(serial);
            }
            2 if pending < 16 => {
                let all = members.iter().map(|(_, serial)| serial).chain(&gone);
                if let Some(&serial) = all.clone().nth(random(all.count().max(1))) {
                    complete(&mut queue, serial | random(2) as u32);
                    pending += 1;
                }
            }
            _ => {
                let completions: Vec<_> = queue.poll().unwrap().collect();
                pending -= completions.len();
                for completion in completions {
                    let (serial, recv) = (completion.serial() & !1, completion.is_recv());
                    let member = members.iter().find(|(_, of)| *of == serial);
                    let expected = match member.map(|(member, _)| member.index()) {
                        Some(index) if recv => Route::Recv(index),
                        Some(index) => Route::Send(index),
                        None => Route::Stale,
                    };
                    assert_eq!(group.route(&completion), expected);
                }
            }
        }
        assert_eq!(group.len(), members.len());
    }
    let (low, high) = (seen.iter().min().unwrap(), seen.iter().max().unwrap());
    assert!(((high - low) >> 1) as usize <= 8 * seen.len(), "numbers are used sparingly");
}
