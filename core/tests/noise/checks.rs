//! What comes from the other side, made of any bytes. Nothing may panic, and every context comes back once.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use nanoverbs_core::abi::{RecvWr, SendWr, Wc};
use nanoverbs_core::port::{PollPort, RecvPort, SendPort};
use nanoverbs_core::{
    Completions, Domain, Outcome, RecvConfig, RecvQueue, RecvSlots, RecvStaging, RemoteRegion,
    SendConfig, SendQueue, SendSlots, SendStaging, SharedRecvQueue, SharedRecvSlots, op,
};

/// A device that takes everything.
struct Hole;

// SAFETY: what it takes it does nothing with.
unsafe impl SendPort for Hole {
    unsafe fn post_send(&mut self, _: *mut SendWr, _: &mut *mut SendWr) -> i32 {
        0
    }
}

// SAFETY: as above.
unsafe impl RecvPort for Hole {
    unsafe fn post_recv(&mut self, _: *mut RecvWr, _: &mut *mut RecvWr) -> i32 {
        0
    }
}

/// A device that says anything; what it says of ids is often near the truth.
struct Noise<'n> {
    bytes: &'n [u8],
    serials: Rc<RefCell<[u32; 3]>>,
}

impl Noise<'_> {
    fn number(&mut self) -> u32 {
        let (some, rest) = self.bytes.split_at(self.bytes.len().min(4));
        self.bytes = rest;
        let mut number = [0; 4];
        number[..some.len()].copy_from_slice(some);
        u32::from_le_bytes(number)
    }
}

// SAFETY: no request of the queues names memory, so that nothing is freed on its word.
unsafe impl PollPort for Noise<'_> {
    fn poll(&mut self, into: &mut [Wc]) -> i32 {
        let count = (self.number() as usize % 6).min(into.len());
        for wc in &mut into[..count] {
            let choice = self.number();
            let (high, low) = (self.number(), self.number());
            let serials = *self.serials.borrow();
            let (high, low) = match choice % 4 {
                3 => (high, low),
                at => (serials[at as usize], low % 32),
            };
            let status = if choice & 4 != 0 { self.number() } else { 0 };
            *wc = Wc {
                wr_id: u64::from(high) << 32 | u64::from(low),
                status,
                opcode: self.number(),
                vendor_err: self.number(),
                byte_len: self.number(),
                imm_data: self.number(),
                qp_num: self.number(),
                src_qp: self.number(),
                wc_flags: self.number(),
                ..Wc::EMPTY
            };
        }
        count as i32
    }
}

/// Everything that can be asked of an outcome.
fn look_at(outcome: &Outcome) {
    let _ = format!("{outcome:?}");
    match outcome {
        Outcome::Done(success) => {
            let _ = (success.byte_len(), success.immediate(), success.invalidated());
            let _ = (success.is_write(), success.source(), success.operation().to_string());
        }
        Outcome::Failed(failure) => {
            let _ = (failure.to_string(), failure.status(), failure.vendor_code());
        }
        Outcome::Flushed | Outcome::Abandoned => {}
    }
}

/// Completions of any bytes. An id that is in flight ends its request, whatever else is said.
pub(crate) fn completions(bytes: &[u8]) {
    let serials = Rc::<RefCell<[u32; 3]>>::default();
    let mut all = Completions::<_, 4>::new(Noise { bytes, serials: Rc::clone(&serials) }, u32::MAX);
    let (mut send_slots, mut recv_slots) = (SendSlots::<u32, 8>::new(), RecvSlots::<u32, 8>::new());
    let mut shared_slots = SharedRecvSlots::<((), u32), 8>::new();
    let (mut sending, mut receiving) = (SendStaging::<4, 1>::new(), RecvStaging::<4, 1>::new());
    let (mut sending, mut receiving) = (sending.link(), receiving.link());
    let domain = Domain::from_raw(1);
    while !all.port().bytes.is_empty() {
        let config = SendConfig::new(domain).chain(2).period(4);
        let mut sends = SendQueue::new(Hole, &mut send_slots, config).unwrap();
        let config = RecvConfig::new(domain);
        let mut recvs = RecvQueue::new(Hole, &mut recv_slots, config).unwrap();
        let mut shared = SharedRecvQueue::new(Hole, &mut shared_slots, config).unwrap();
        sends.open();
        serials.replace([sends.serial(), recvs.serial(), shared.serial()]);
        // Posted, and taken, on each side.
        let mut counts = [[0_u32; 2]; 2];
        // In the shared queue, whose receives end in any order.
        let (mut posted, mut inside) = (0, BTreeSet::new());
        while !all.port().bytes.is_empty() && sends.closed().or(recvs.closed()).is_none() {
            while let Ok(mut chain) = sends.reserve(&mut sending, 2) {
                for _ in 0..2 {
                    // SAFETY: no memory is named.
                    unsafe { chain.push_raw(op::Send::new(), &[], counts[0][0]) }.unwrap();
                    counts[0][0] += 1;
                }
                chain.submit().unwrap();
            }
            while let Ok(mut chain) = recvs.reserve(&mut receiving, 1) {
                // SAFETY: no memory is named.
                unsafe { chain.push_raw(&[], counts[1][0]) }.unwrap();
                counts[1][0] += 1;
                chain.submit().unwrap();
            }
            while let Ok(mut chain) = shared.reserve(&mut receiving, 1) {
                chain.push(((), posted)).unwrap();
                chain.submit().unwrap();
                inside.insert(posted);
                posted += 1;
            }
            for completion in all.poll().unwrap() {
                let _ = (format!("{completion:?}"), completion.status().to_string());
                let _ = if completion.serial() == shared.serial() {
                    shared.retire(completion)
                } else if completion.is_recv() {
                    recvs.retire(completion)
                } else {
                    sends.retire(completion)
                };
            }
            if let Some(ended) = shared.take() {
                look_at(&ended.outcome);
                assert!(inside.remove(&ended.context.1), "once");
            }
            for (queue, taken) in [(0, sends.take()), (1, recvs.take())] {
                if let Some(ended) = taken {
                    look_at(&ended.outcome);
                    assert_eq!(ended.context, counts[queue][1], "in order, and once");
                    counts[queue][1] += 1;
                }
            }
        }
        // SAFETY: no request names memory; completions that are still to come are of other serials.
        unsafe {
            sends.abandon();
            recvs.abandon();
            shared.abandon();
        }
        for (is_send, [posted, mut taken]) in [(true, counts[0]), (false, counts[1])] {
            while let Some(ended) = if is_send { sends.take() } else { recvs.take() } {
                look_at(&ended.outcome);
                assert_eq!(ended.context, taken, "in order, and once");
                taken += 1;
            }
            assert_eq!(posted, taken, "what went in came out");
        }
        while let Some(ended) = shared.take() {
            look_at(&ended.outcome);
            assert!(inside.remove(&ended.context.1), "once");
        }
        assert!(inside.is_empty(), "what went in came out");
        assert!(sends.into_storage().is_ok() && recvs.into_storage().is_ok());
        assert!(shared.into_storage().is_ok());
    }
}

/// What a peer says of its memory: taken and given again as it was, and never left by a piece of it.
pub(crate) fn wire(bytes: &[u8]) {
    let Some((wire, rest)) = bytes.split_first_chunk::<{ RemoteRegion::WIRE_LEN }>() else {
        return;
    };
    let Ok(region) = RemoteRegion::from_wire(wire) else { return };
    assert_eq!(region.to_wire(), *wire);
    let end = region.addr().checked_add(region.len()).expect("inside of the address space");
    let mut number = rest.chunks(8).map(|some| {
        let mut number = [0; 8];
        number[..some.len()].copy_from_slice(some);
        u64::from_le_bytes(number)
    });
    while let (Some(offset), Some(len)) = (number.next(), number.next()) {
        let fits = offset.checked_add(len).is_some_and(|sum| sum <= region.len());
        let piece = region.at(offset, len);
        assert_eq!(piece.is_ok(), fits);
        if let Ok(piece) = piece {
            assert!(piece.addr() >= region.addr() && piece.addr() + piece.len() <= end);
            assert_eq!((piece.rkey(), piece.access()), (region.rkey(), region.access()));
        }
    }
}
