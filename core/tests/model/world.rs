//! One case: makes the bed, takes the steps, and sees to it that everything comes back.

use nanoverbs_core::abi::QpNum;
use nanoverbs_core::soft::State;
use nanoverbs_core::{Foreign, Pool, RecvStaging, SendStaging};

use crate::bed::{self, BLOCK_LEN, Dev, Kept, Kit, SLOTS, Side, Storage, WORD_AT, World};
use crate::ledger;
use crate::reference::Shut;
use crate::step::{Setup, Step};
use crate::transport::Transport;

/// Runs a case and panics where queues and references differ. Returns how many contexts there were.
pub(crate) fn run<T: Transport>(setup: [u8; 16], steps: &[[u8; 8]]) -> usize {
    ledger::begin();
    let setup = Setup::decode(setup);
    let kit = Kit::take();
    let device = Dev::with_profile(setup.profile);
    let domain = device.domain();
    let region = device.register(domain, kit.bytes).unwrap();
    let mut pool = Pool::new(kit.root, kit.headers, region, BLOCK_LEN).unwrap();
    let memory = kit.words.map(|words| bed::memory(&device, domain, words));
    let mut queues = bed::completion_queues(&device, &setup);
    let (mut sends, mut recvs) = (SendStaging::new(), RecvStaging::new());
    let mut storage = Storage::<T>::new();
    let first = steps.len() * usize::from(setup.first_life) / 256;
    let mut is_gone = false;
    for steps in [&steps[..first], &steps[first..]] {
        memory.iter().for_each(|region| region.write_at(WORD_AT as usize, &[0; 8]).unwrap());
        let (common, sides) = bed::sides(&device, domain, &setup, &queues, &mut storage);
        let peer =
            |side: &Side<'_, '_, T>| device.peer(domain, QpNum::from_raw(side.number), bed::QKEY);
        let mut world = World {
            device: &device,
            setup,
            peers: [peer(&sides[0]), peer(&sides[1])],
            sides,
            common,
            queues: &mut queues,
            send_link: sends.link(),
            recv_link: recvs.link(),
            pool: &mut pool,
            memory: &memory,
            kept: Vec::new(),
            is_gone,
        };
        world.agree();
        for step in steps {
            world.take_step(Step::decode(*step));
            world.agree();
        }
        is_gone = world.is_gone;
        world.end();
    }
    drop(queues);
    ledger::assert_nobody_lives();
    let (root, headers, region) = pool.close().expect("every block has come back");
    let bytes = device.take_back(region).unwrap();
    let words = memory.map(|region| device.take_back_shared(region).unwrap());
    Kit { root, headers, bytes, words }.put_back();
    ledger::made()
}

impl<T: Transport> World<'_, '_, '_, T> {
    fn agree(&self) {
        self.sides.iter().for_each(Side::agree);
        self.common.iter().for_each(bed::Common::agree);
    }

    fn take_step(&mut self, step: Step) {
        let control = |side: usize| self.sides[side].control.as_ref();
        match step {
            Step::Send(chain) => self.send(&chain),
            Step::Recv(chain) => self.recv(&chain),
            Step::Progress(times) => {
                for _ in 0..times {
                    self.device.progress();
                }
            }
            Step::Poll { queue, take, astray, keep } => {
                self.poll(queue % self.queues.len(), take, astray, keep);
            }
            Step::RetireKept => self.retire_kept(),
            Step::Take { side, recv, count } => {
                for _ in 0..count {
                    self.take(side, recv);
                }
            }
            Step::HoldAcks(side, yes) => drop(control(side).map(|it| it.hold_acks(yes))),
            Step::HoldFlushes(side, yes) => drop(control(side).map(|it| it.hold_flushes(yes))),
            Step::DropPeer(side, yes) => drop(control(side).map(|it| it.drop_peer(yes))),
            Step::FailNext(side, status) => {
                let _ = control(side).map(|it| it.fail_next_request(status));
            }
            Step::Disconnect(side) => drop(control(side).map(|it| it.disconnect())),
            Step::Close(side, recv) => {
                let (side, why) = (&mut self.sides[side], Shut::ByOwner);
                match (&mut self.common, recv) {
                    (_, false) => (side.sends.close(), side.send_model.close(why)),
                    (Some(common), _) => (common.recvs.close(), common.recv_model.close(why)),
                    (None, _) => (side.recvs.close(), side.recv_model.close(why)),
                };
            }
            Step::Open => self.sides.iter_mut().for_each(Side::open),
            Step::Destroy(side) => self.destroy(side),
            Step::RemoveDevice => {
                self.device.remove();
                self.is_gone = true;
            }
        }
    }

    fn take(&mut self, side: usize, recv: bool) -> bool {
        match &mut self.common {
            _ if !recv => self.sides[side].take_send(),
            Some(common) => common.take_recv(&mut self.sides),
            None => self.sides[side].take_recv(),
        }
    }

    fn poll(&mut self, queue: usize, take: usize, astray: bool, keep: bool) {
        let polled = &mut self.queues[queue];
        let Ok(batch) = polled.completions.poll() else {
            let may_break = self.setup.is_tight || self.is_gone;
            assert!(may_break, "a completion queue with room enough broke");
            return;
        };
        let mut log = polled.log.polled.borrow_mut();
        let some: Vec<_> =
            batch.take(take).map(|one| (one, log.pop_front().expect("it was polled"))).collect();
        drop(log);
        for (completion, raw) in some {
            // A device tells the receives of a queue pair in the order of what came to it.
            let is_its = |side: &&mut Side<'_, '_, T>| {
                let serials = self.common.as_ref().map(|common| common.recvs.serial());
                let serials = [serials, Some(side.recvs.serial())];
                raw.qp_num == side.number && serials.contains(&Some(completion.serial()))
            };
            let arrived = match self.sides.iter_mut().find(is_its) {
                Some(side) if raw.status == 0 => T::arrives(&mut side.under_way),
                _ => None,
            };
            let one = Kept { completion, raw, arrived };
            if keep { self.kept.push(one) } else { self.retire(one, astray) }
        }
    }

    /// Completions that were put aside are retired, in their order, as often as one of them fits.
    fn retire_kept(&mut self) {
        loop {
            let kept = std::mem::take(&mut self.kept);
            let before = kept.len();
            for one in kept {
                self.retire(one, false);
            }
            if self.kept.len() == before {
                return;
            }
        }
    }

    /// Gives a completion to its queue; puts it aside when an older one has to come first.
    fn retire(&mut self, one: Kept, astray: bool) {
        let Kept { mut completion, raw, arrived } = one;
        let (serial, sequence, status) = (completion.serial(), raw.wr_id as u32, raw.status);
        assert_eq!(u64::from(serial), raw.wr_id >> 32);
        assert_eq!(completion.is_send(), serial % 2 == 0);
        macro_rules! astray {
            ($queue:expr) => {
                if serial != $queue.serial() {
                    completion = $queue.retire(completion).expect_err("not its own").0;
                }
            };
        }
        if astray {
            for side in &mut self.sides {
                astray!(side.sends);
                astray!(side.recvs);
            }
            if let Some(common) = &mut self.common {
                astray!(common.recvs);
            }
        }
        let is_hasty = self.kept.iter().any(|kept| kept.completion.serial() == serial);
        macro_rules! retire {
            ($queue:expr, $model:expr, $waits:expr) => {
                if serial == $queue.serial() {
                    match ($model.retire(sequence, status, arrived), $queue.retire(completion)) {
                        (Some(must), Ok(is)) => assert_eq!(is, must, "requests that have ended"),
                        (None, Err(Foreign(completion))) => {
                            if $waits {
                                self.kept.push(Kept { completion, raw, arrived });
                            }
                        }
                        (must, is) => panic!("{raw:?} ends {must:?}, not {is:?}"),
                    }
                    return;
                }
            };
        }
        for side in &mut self.sides {
            side.is_hasty |= is_hasty && serial == side.sends.serial();
            retire!(side.sends, side.send_model, side.send_model.waits_for(sequence));
            retire!(side.recvs, side.recv_model, side.recv_model.waits_for(sequence));
        }
        if let Some(common) = &mut self.common {
            retire!(common.recvs, common.recv_model, false);
        }
        // Of a queue of the first life.
    }

    fn destroy(&mut self, side: usize) {
        let side = &mut self.sides[side];
        assert!(side.control.is_none() || self.is_gone || !side.sends.try_abandon());
        if side.control.take().is_none() {
            return;
        }
        // Dropping the control has destroyed the queue pair; completions that are still to come belong to
        // requests that have ended here.
        assert!(side.sends.try_abandon() && side.recvs.try_abandon());
        side.send_model.abandon();
        side.recv_model.abandon();
    }

    /// Polls until nothing comes; says whether anything did.
    fn drain(&mut self) -> bool {
        let mut moved = false;
        for queue in 0..self.queues.len() {
            while self.queues[queue].completions.poll().is_ok_and(|batch| batch.len() != 0) {
                self.poll(queue, 3, false, false);
                moved = true;
            }
        }
        moved
    }

    /// Carries out, polls, retires and takes until nothing moves; says whether anything did.
    pub(crate) fn pump(&mut self) -> bool {
        let (mut quiet, mut any) = (0, false);
        while quiet < 12 {
            let mut moved = self.device.progress() != 0;
            moved |= self.drain();
            self.retire_kept();
            for (side, recv) in [(0, false), (0, true), (1, false), (1, true)] {
                while self.take(side, recv) {
                    moved = true;
                }
            }
            any |= moved;
            quiet = if moved { 0 } else { quiet + 1 };
        }
        self.agree();
        any
    }

    /// Ends a life: every context comes back, one way or another.
    fn end(mut self) {
        if !self.setup.ends_badly && !self.is_gone {
            self.end_well();
        }
        (0..2).for_each(|side| self.destroy(side));
        // The room of a queue pair is free when its completions have been polled, and not before.
        self.drain();
        if let Some(common) = &mut self.common {
            if common.recvs.try_abandon() {
                assert!(self.is_gone, "its port does not know of its queue pairs");
            } else {
                assert!(!self.is_gone, "the device was taken away");
                // SAFETY: both queue pairs that took its receives are destroyed; completions that are still to
                // come belong to receives that have ended here.
                unsafe { common.recvs.abandon() };
            }
            common.recv_model.abandon(SLOTS as u32);
        }
        if !self.setup.drops {
            self.pump();
        }
        let Self { sides, common, setup, .. } = self;
        for side in sides {
            let left = (side.sends.in_flight(), side.recvs.in_flight());
            assert_eq!(left, (0, 0));
            if !setup.drops {
                assert!(side.sends.into_storage().is_ok() && side.recvs.into_storage().is_ok());
            }
        }
        if let Some(common) = common {
            assert_eq!(common.recvs.in_flight(), 0);
            assert!(setup.drops || common.recvs.into_storage().is_ok());
        }
    }

    /// Lets everything go that was held, and sees that credits come back, and then flushes.
    fn end_well(&mut self) {
        for control in self.sides.iter().flat_map(|side| &side.control) {
            control.hold_acks(false);
            control.hold_flushes(false);
            control.drop_peer(false);
        }
        self.pump();
        // Whoever waits for a receive gets one, until nobody does.
        while self.feed(0) | self.feed(1) | self.pump() {}
        let is_healthy = |side: &Side<'_, '_, T>| {
            let state = side.control.as_ref().map(|control| control.state());
            let is_open = side.sends.closed().or(side.recvs.closed()).is_none();
            is_open && state == Some(State::ReadyToSend)
        };
        let has_receives = self.common.iter().all(|common| common.recvs.closed().is_none());
        if self.sides.iter().all(is_healthy) && has_receives && !self.setup.is_tight {
            for side in self.sides.iter().filter(|side| side.send_model.shut.is_none()) {
                let (max, out) = side.sends.reads();
                assert!(side.sends.free() >= self.setup.chain.into(), "the longest chain must fit");
                assert!(out < max || max == 0, "a READ must fit");
            }
        }
        for control in self.sides.iter().flat_map(|side| &side.control) {
            control.disconnect();
        }
        self.pump();
        let forgets = self.setup.profile != self.setup.profile.forgets_receives(false);
        for side in self.sides.iter().filter(|side| !side.is_unknown && !self.setup.is_tight) {
            // Silent requests at the end that were done have no completion, on any device.
            let tail = side.send_model.silent;
            assert!(side.sends.in_flight() <= tail, "all signaled sends have an outcome");
            assert!(forgets || side.recvs.in_flight() == 0, "all receives have an outcome");
        }
    }
}
