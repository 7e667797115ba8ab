//! A queue pair with the queues of its two halves: what an endpoint has one of, and a hub many.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::*;
use driver::sealed::Ends;

/// A queue pair with its queues, whose storage is boxed.
///
/// The driver is last, because the ports in the queues post to its queue pair.
pub(super) struct Pair<D: Driver, C: 'static> {
    pub(super) sends: ManuallyDrop<SendQueue<'static, D::SendPort, C, DEPTH>>,
    pub(super) recvs: ManuallyDrop<RecvQueue<'static, D::RecvPort, C, DEPTH>>,
    pub(super) inline: u32,
    pub(super) driver: D,
}

impl<D: Driver, C: 'static> Pair<D, C> {
    /// Queues with a completion queue of their own each, or with these seats of a member on a shared one.
    pub(super) fn new(
        ends: Ends<D>,
        seats: Option<(SendSeat, RecvSeat)>,
    ) -> Result<Self, ConfigError> {
        let Ends { driver, send, recv, inline } = ends;
        let (send_config, recv_config) = driver.configs();
        let (send_lent, send_slots) = Lent::new(SendSlots::new());
        let (recv_lent, recv_slots) = Lent::new(RecvSlots::new());
        let error = {
            let made = match seats {
                None => (
                    SendQueue::new(send, send_slots, send_config),
                    RecvQueue::new(recv, recv_slots, recv_config),
                ),
                Some((send_seat, recv_seat)) => (
                    SendQueue::with_seat(send, send_slots, send_config, send_seat),
                    RecvQueue::with_seat(recv, recv_slots, recv_config, recv_seat),
                ),
            };
            match made {
                (Ok(sends), Ok(recvs)) => {
                    // From here on the queues give their slots back themselves, by `into_storage`.
                    let _ = (ManuallyDrop::new(send_lent), ManuallyDrop::new(recv_lent));
                    let (sends, recvs) = (ManuallyDrop::new(sends), ManuallyDrop::new(recvs));
                    return Ok(Self { sends, recvs, inline, driver });
                }
                (Err(error), _) | (_, Err(error)) => error,
            }
        };
        // SAFETY: the queues that borrowed the slots are gone with the block above.
        unsafe {
            send_lent.free();
            recv_lent.free();
        }
        Err(error)
    }

    pub(super) fn in_flight(&self, side: Side) -> u32 {
        match side {
            Side::Send => self.sends.in_flight(),
            Side::Recv => self.recvs.in_flight(),
        }
    }

    /// The connection stands, and so many READs may be outstanding.
    pub(super) fn open(&mut self, reads: u8) {
        self.sends.set_reads(reads);
        self.sends.open();
    }

    /// Ends everything, and hands each context to `each`. Meanwhile `fetch` polls and retires.
    pub(super) fn finish(
        &mut self,
        deadline: Deadline,
        mut fetch: impl FnMut(&mut Self),
        mut each: impl FnMut(Side, Ended<C>),
    ) {
        self.sends.close();
        self.recvs.close();
        if !self.driver.base().belongs_here() {
            return;
        }
        self.driver.disconnect();
        let mut quiet = None;
        loop {
            let before = (self.sends.in_flight(), self.recvs.in_flight());
            fetch(self);
            self.take_all(&mut each);
            let (sends, recvs) = (self.sends.in_flight(), self.recvs.in_flight());
            if before != (sends, recvs) {
                quiet = None;
            }
            // Silent sends that were done before the end have no completion, and a flush is prompt.
            let patience = || Deadline::after(SILENCE);
            let is_silent = recvs == 0
                && sends <= self.sends.silent()
                && (sends == 0 || quiet.get_or_insert_with(patience).has_passed());
            if is_silent || deadline.has_passed() {
                break;
            }
            std::thread::yield_now();
        }
        if self.driver.destroy() {
            // SAFETY: the queue pair is gone, and no device touches the buffers of its requests.
            // Completions that are left in a completion queue of its own are polled by nobody any more,
            // and those in a hub's are stale (`Group::leave`).
            unsafe {
                self.sends.abandon();
                self.recvs.abandon();
            }
        }
        self.take_all(&mut each);
    }

    /// Destroys the queue pair without waiting, and drops what is left of its contexts; nothing is of one that
    /// was finished. One that panics in its drop keeps no other one from being dropped; the first panic goes on
    /// afterwards.
    pub(super) fn end(&mut self) {
        let mut panic = None;
        self.finish(
            Deadline::after(Duration::ZERO),
            |_| {},
            |_, ended| {
                let dropped = catch_unwind(AssertUnwindSafe(|| drop(ended)));
                panic = panic.take().or(dropped.err());
            },
        );
        if let Some(panic) = panic
            && !std::thread::panicking()
        {
            resume_unwind(panic);
        }
    }

    fn take_all(&mut self, each: &mut impl FnMut(Side, Ended<C>)) {
        while let Some(ended) = self.sends.take() {
            each(Side::Send, ended);
        }
        while let Some(ended) = self.recvs.take() {
            each(Side::Recv, ended);
        }
    }
}

impl<D: Driver, C: 'static> Drop for Pair<D, C> {
    fn drop(&mut self) {
        let storage = Storage(self);
        storage.0.end();
    }
}

/// The slots of a pair that has ended, freed also when a context's drop panicked.
struct Storage<'p, D: Driver, C: 'static>(&'p mut Pair<D, C>);

impl<D: Driver, C: 'static> Drop for Storage<'_, D, C> {
    fn drop(&mut self) {
        let pair = &mut *self.0;
        // SAFETY: each is taken once, here, and the pair's queues are not used afterwards.
        let (sends, recvs) =
            unsafe { (ManuallyDrop::take(&mut pair.sends), ManuallyDrop::take(&mut pair.recvs)) };
        // A queue that still has something in flight keeps its slots for ever, and counts them.
        if let Ok((_, slots)) = sends.into_storage() {
            // SAFETY: the slots came out of a box (`Pair::new`), and their queue is gone.
            drop(unsafe { Box::from_raw(slots) });
        }
        if let Ok((_, slots)) = recvs.into_storage() {
            // SAFETY: as above.
            drop(unsafe { Box::from_raw(slots) });
        }
    }
}
