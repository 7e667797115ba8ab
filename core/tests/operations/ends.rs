//! When slots come back, what a completion ends, and in which order the parts of a queue pair may go.

use nanoverbs_core::{Block, Outcome, RKey, RemoteRegion, ReserveError, WcStatus, op};

use crate::bed::*;

#[test]
fn f06_an_answer_of_the_peers_program_frees_no_slot_and_a_local_completion_does() {
    for profile in profiles() {
        let device = device(profile);
        let (mut a, mut b, domain) = pair::<Block>(device);
        let mut pool = pool(device, domain, 80, 8);
        a.control.hold_acks(true);
        for _ in 0..32 {
            a.post(op::Send::new().signaled(), pool.allocate().unwrap()).unwrap();
        }
        for _ in 0..32 {
            b.post_recv(pool.allocate().unwrap());
        }
        // The peer has every message, and says so by one of its own.
        a.post_recv(pool.allocate().unwrap());
        (0..32).for_each(|_| drop(b.received()));
        b.post(op::Send::new().signaled(), pool.allocate().unwrap()).unwrap();
        assert!(a.received().outcome.is_done());
        assert!(a.try_sent().is_none());
        let full = ReserveError::Full { asked: 1, free: 0 };
        assert_eq!(a.sends.reserve(&mut a.send_link, 1).unwrap_err(), full, "{profile:?}");
        a.control.hold_acks(false);
        assert!(a.sent().outcome.is_done());
        assert!(a.sends.reserve(&mut a.send_link, 1).is_ok());
        (1..32).for_each(|_| assert!(a.sent().outcome.is_done()));
        assert_eq!(a.sends.in_flight(), 0);
    }
}

#[test]
fn f38_a_completion_ends_the_silent_run_before_it_and_a_silent_failure_has_one() {
    for profile in profiles() {
        let device = device(profile);
        let (mut a, mut b, domain) = pair::<Option<Block>>(device);
        let region = shared(device, domain, 1, ALL);
        (0..3).for_each(|_| b.post_recv(None));
        a.post(op::Send::new(), None).unwrap();
        a.post(op::Send::new(), None).unwrap();
        assert!(a.try_sent().is_none(), "nothing was said of them yet");
        a.post(op::Send::new().signaled(), None).unwrap();
        (0..3).for_each(|_| assert!(a.sent().outcome.is_done()));
        // A silent one that fails is told all the same, and so is what comes behind it.
        let mut pool = pool(device, domain, 1, 16);
        let nobodys = RKey::from_raw(0x7fff_ff01);
        let wrong = RemoteRegion::new(region.advertise().addr(), 8, nobodys, ALL).unwrap();
        a.post(op::Write::new(wrong), Some(filled(&mut pool, 8, 1))).unwrap();
        a.post(op::Send::new(), None).unwrap();
        a.post(op::Send::new().signaled(), None).unwrap();
        let Outcome::Failed(failure) = a.sent().outcome else { panic!("{profile:?}") };
        assert_eq!(failure.status(), WcStatus::RemoteAccess);
        (0..2).for_each(|_| assert!(matches!(a.sent().outcome, Outcome::Flushed)));
        assert_eq!((a.sends.in_flight(), a.sends.ended()), (0, 0));
    }
}

/// All orders of four things.
fn orders() -> impl Iterator<Item = [usize; 4]> {
    (0..256)
        .map(|code| [code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6])
        .filter(|order| (0..4).all(|thing| order.contains(&thing)))
}

#[test]
fn f63_the_parts_of_a_queue_pair_go_in_any_order_and_make_room_for_the_next() {
    assert_eq!(orders().count(), 24);
    for profile in profiles() {
        // It has room for six queue pairs and twelve completion queues.
        let device = device(profile);
        let domain = device.domain();
        let region = device.register(domain, Vec::leak(vec![0; 64])).unwrap();
        for order in orders() {
            let mut side = side::<()>(device, domain);
            side.control.connect(&side.control).unwrap();
            (0..3).for_each(|_| side.post_recv(()));
            (0..2).for_each(|_| side.post(op::Send::new().signaled(), ()).unwrap());
            device.progress();
            let Side { sends, recvs, control, completions, .. } = side;
            let mut parts = (Some(sends), Some(recvs), Some(control), Some(completions));
            for part in order {
                match part {
                    0 => drop(parts.0.take()),
                    1 => drop(parts.1.take()),
                    2 => drop(parts.2.take()),
                    _ => drop(parts.3.take()),
                }
            }
        }
        // Memory goes before its device's last queue pair, or after it.
        let side = side::<()>(device, domain);
        assert_eq!(device.take_back(region).unwrap().len(), 64);
        drop(side);
    }
}
