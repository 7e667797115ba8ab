extern crate std;
use std::vec::Vec;

use super::*;
use crate::abi::Wc;
use crate::region::Domain;

/// Notes the ids that are posted, and whether each is signaled; takes `accepts` of the next chain.
#[derive(Default)]
struct Notes {
    posted: Vec<(u64, bool)>,
    accepts: Option<usize>,
}

// SAFETY: nothing is kept but numbers.
unsafe impl SendPort for Notes {
    unsafe fn post_send(&mut self, mut first: *mut SendWr, bad: &mut *mut SendWr) -> i32 {
        let mut room = self.accepts.take().unwrap_or(usize::MAX);
        while !first.is_null() {
            if room == 0 {
                *bad = first;
                return 12;
            }
            room -= 1;
            // SAFETY: the queue's promise.
            let request = unsafe { &*first };
            self.posted.push((request.wr_id, request.send_flags & send_flags::SIGNALED != 0));
            first = request.next;
        }
        0
    }
}

struct Done(u64);

// SAFETY: it completes the id that it is made of, once.
unsafe impl crate::port::PollPort for Done {
    fn poll(&mut self, into: &mut [Wc]) -> i32 {
        into[0] = Wc { wr_id: self.0, ..Wc::EMPTY };
        1
    }
}

fn completion(id: u64) -> Completion {
    let mut completions = crate::Completions::<_, 1>::new(Done(id), 1);
    completions.poll().unwrap().next().unwrap()
}

/// A queue whose next request has this sequence.
fn queue_at(slots: &mut SendSlots<(), 16>, sequence: u32) -> SendQueue<'_, Notes, (), 16> {
    let config = SendConfig::new(Domain::from_raw(1)).chain(4).period(8);
    let mut queue = SendQueue::new(Notes::default(), slots, config).unwrap();
    queue.open();
    let hot = &mut queue.hot;
    hot.next = hot.next.with_sequence(sequence);
    (hot.taken, hot.oldest) = (sequence as u16, hot.next);
    queue
}

#[test]
fn ids_keep_their_serial_when_the_sequence_wraps() {
    for start in (0..6).map(|n| u32::MAX - n) {
        for chain in 1..=4 {
            let (mut slots, mut staging) = (SendSlots::new(), crate::SendStaging::<4, 1>::new());
            let mut queue = queue_at(&mut slots, start);
            let mut staging = staging.link();
            let mut sequence = start;
            for _ in 0..8 {
                let mut building = queue.reserve(&mut staging, chain).unwrap();
                for at in 0..chain {
                    let send = op::Send::new();
                    building
                        .push(if at + 1 == chain { send.signaled() } else { send }, ())
                        .unwrap();
                }
                assert_eq!(building.submit().unwrap(), chain as u32);
                let high = u64::from(queue.serial()) << 32;
                for (id, _) in mem::take(&mut queue.hot.port.posted) {
                    assert_eq!(id, high | u64::from(sequence));
                    sequence = sequence.wrapping_add(1);
                }
                let last = high | u64::from(sequence.wrapping_sub(1));
                assert_eq!(queue.retire(completion(last)).unwrap(), chain as u32);
                assert_eq!(core::iter::from_fn(|| queue.take()).count(), chain);
                assert_eq!((queue.in_flight(), queue.free()), (0, 16));
            }
        }
    }
}

#[test]
fn a_chain_that_is_half_taken_while_the_sequence_wraps_goes_on() {
    for accepts in 0..4 {
        let (mut slots, mut staging) = (SendSlots::new(), crate::SendStaging::<4, 1>::new());
        let mut queue = queue_at(&mut slots, u32::MAX - 1);
        let mut staging = staging.link();
        let high = u64::from(queue.serial()) << 32;
        queue.hot.port.accepts = Some(accepts);
        let mut chain = queue.reserve(&mut staging, 4).unwrap();
        for _ in 0..4 {
            chain.push(op::Send::new().signaled(), ()).unwrap();
        }
        let Err(SubmitError::Partial { accepted, rest, .. }) = chain.submit() else {
            panic!("the port refuses");
        };
        assert_eq!((accepted as usize, rest.len()), (accepts, 4 - accepts));
        assert_eq!(rest.submit().unwrap() as usize, 4 - accepts);
        let ids: Vec<_> = queue.hot.port.posted.iter().map(|(id, _)| *id).collect();
        let expected = [u32::MAX - 1, u32::MAX, 0, 1].map(|n| high | u64::from(n));
        assert_eq!(ids, expected);
        assert_eq!(queue.in_flight(), 4);
        for id in ids {
            assert_eq!(queue.retire(completion(id)).unwrap(), 1);
        }
        assert_eq!(core::iter::from_fn(|| queue.take()).count(), 4);
    }
}

#[test]
fn a_silent_run_that_a_half_taken_chain_left_too_long_is_ended_by_the_next_request() {
    let (mut slots, mut staging) = (SendSlots::new(), crate::SendStaging::<4, 1>::new());
    let mut queue = queue_at(&mut slots, u32::MAX - 3);
    let mut staging = staging.link();
    for accepts in [None, Some(4), Some(3)] {
        queue.hot.port.accepts = accepts;
        // 1 + 4 + 3 are silent; the signaled last one of the third chain is refused.
        let n = if accepts.is_none() { 1 } else { 4 };
        let mut chain = queue.reserve(&mut staging, n).unwrap();
        for _ in 0..n {
            chain.push(op::Send::new(), ()).unwrap();
        }
        if let Err(error) = chain.submit() {
            assert!(matches!(error, SubmitError::Partial { accepted: 3, .. }));
        }
    }
    assert_eq!(queue.silent(), 8);
    let mut chain = queue.reserve(&mut staging, 2).unwrap();
    for _ in 0..2 {
        chain.push(op::Send::new(), ()).unwrap();
    }
    chain.submit().unwrap();
    let signaled: Vec<_> = queue.hot.port.posted.iter().map(|(_, signaled)| *signaled).collect();
    assert_eq!(signaled, [[false; 8].as_slice(), &[true; 2]].concat());
    assert_eq!(queue.silent(), 0);
}

#[test]
fn a_silent_run_begins_behind_the_last_signaled_request_wherever_in_its_chain_that_is() {
    for signaled in 0..4 {
        let (mut slots, mut staging) = (SendSlots::new(), crate::SendStaging::<4, 1>::new());
        let mut queue = queue_at(&mut slots, u32::MAX - 2);
        let mut staging = staging.link();
        let mut chain = queue.reserve(&mut staging, 4).unwrap();
        for at in 0..4 {
            let send = op::Send::new();
            chain.push(if at == signaled { send.signaled() } else { send }, ()).unwrap();
        }
        chain.submit().unwrap();
        assert_eq!(queue.silent(), 3 - signaled);
        // The eighth silent request is the one that is signaled.
        for _ in 0..5 + signaled {
            let mut chain = queue.reserve(&mut staging, 1).unwrap();
            chain.push(op::Send::new(), ()).unwrap();
            chain.submit().unwrap();
        }
        let (_, last) = queue.hot.port.posted.pop().unwrap();
        let earlier = queue.hot.port.posted.iter().filter(|(_, signaled)| *signaled).count();
        assert_eq!((last, earlier, queue.silent()), (true, 1, 0));
    }
}
