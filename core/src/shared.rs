//! The receive queue that many queue pairs share: reserve, push, submit, retire, take.
//!
//! One thread owns a queue and its port. The storage of the slots is borrowed, so the caller places it. The
//! twin is [`crate::RecvQueue`], whose receives end in the order of their posts. Here a message may come
//! from any of the queue pairs, and each of them takes the receive that is next then, so completions come in
//! any order: an id has the slot in place of the sequence, and a completion says which queue pair took it.
//!
//! A queue pair that fails or goes does not give the receives of a shared queue back: they stay posted for the
//! others. Only [`SharedRecvQueue::abandon`] does, once the device's queue is gone.
//!
//! Invariants:
//!
//! * Every slot is on the free list, is posted, or is on the list of those that have ended; `used` counts the
//!   latter two. The links of a slot lead on in the list that it is on.
//! * The slots of an open chain are the first ones of the free list, in this order, and stay there until
//!   they are submitted.
//! * The low half of an id is its slot's ticket: the slot's number in the low bits, above it how often the
//!   slot was used. So a completion that comes twice is not taken for that of a later receive.

mod chain;
mod slots;

use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ptr::{self, NonNull};

pub use chain::SharedRecvChain;
pub use slots::{SharedEnded, SharedRecvSlots};

use slots::{SharedSlot, State};

use crate::abi::QpNum;
use crate::completion::{Completion, Foreign};
use crate::group::RecvSeat;
use crate::id::Serial;
use crate::leak;
use crate::port::{LimitPort, RecvPort};
use crate::recv::RecvConfig;
use crate::refusal::{Cause, ConfigError, LimitError, ReserveError};
use crate::region::Tag;
use crate::slot::{Arrival, End};
use crate::staging::RecvLink;

/// What the hot path touches: one cache line with a port of 16 bytes.
#[repr(C, align(64))]
struct Hot<P, C> {
    port: P,
    slots: NonNull<SharedSlot<C>>,
    serial: u32,
    /// The first slot of the free list.
    free: u32,
    /// Slots that are posted or wait to be taken.
    used: u32,
    /// The usable depth; 0 once closed.
    limit: u32,
    /// Slots that wait to be taken, the oldest and the youngest of them.
    ended: u32,
    first_ended: u16,
    last_ended: u16,
    domain: Tag,
    max_sges: u8,
}

#[cfg(target_pointer_width = "64")]
static_assertions::const_assert_eq!(size_of::<Hot<[usize; 2], u64>>(), 64);

/// What only set-up and failures touch.
#[derive(Debug)]
struct Cold {
    depth: u32,
    closed: Option<Cause>,
}

/// A receive queue that many queue pairs share: its port, and the contexts of the posted receives.
///
/// A failed receive does not close it: the queue pair that took it has failed, and the others go on.
///
/// A dropped queue drops the contexts of receives that have ended; those still posted are leaked and
/// counted ([`crate::leaked_contexts`]), because a device may still use their memory.
///
/// ```
/// use nanoverbs_core::soft::{Device, QpConfig};
/// use nanoverbs_core::{Completions, RecvConfig, RecvStaging, SharedRecvQueue, SharedRecvSlots};
///
/// static DEVICE: Device<4, 16> = Device::new();
/// let domain = DEVICE.domain();
/// let queue = DEVICE.completion_queue(64)?;
/// let shared = DEVICE.shared_receive_queue(16)?;
/// let config = QpConfig::new(domain).shared_receive(shared.id);
/// let (a, b) = (
///     DEVICE.queue_pair(config, &queue, &queue)?,
///     DEVICE.queue_pair(config, &queue, &queue)?,
/// );
/// let mut completions: Completions<_> = Completions::new(queue, 64);
/// # let _ = (a, b);
///
/// let mut slots = SharedRecvSlots::<(), 16>::new();
/// let mut receives = SharedRecvQueue::new(shared.recv, &mut slots, RecvConfig::new(domain))?;
/// let mut staging = RecvStaging::<8, 1>::new();
/// let mut link = staging.link();
/// let mut chain = receives.reserve(&mut link, 2)?;
/// chain.push(())?; // whoever gets the first message takes it
/// chain.push(())?;
/// chain.submit().unwrap();
///
/// for completion in completions.poll()? {
///     if completion.is_recv() {
///         receives.retire(completion)?;
///     }
/// }
/// while let Some(ended) = receives.take() {
///     println!("queue pair {:?} got a message", ended.queue_pair);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "ibv_srq")]
pub struct SharedRecvQueue<'s, P, C, const N: usize> {
    hot: Hot<P, C>,
    cold: Cold,
    storage: PhantomData<&'s mut SharedRecvSlots<C, N>>,
}

// SAFETY: the queue is the exclusive borrower of its slots; contexts and port move with it.
unsafe impl<P: Send, C: Send, const N: usize> Send for SharedRecvQueue<'_, P, C, N> {}

impl<'s, P: RecvPort, C, const N: usize> SharedRecvQueue<'s, P, C, N> {
    const MASK: u32 = (N as u32).wrapping_sub(1);

    /// A queue over `slots` that posts through `port`.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] when the device granted no depth.
    pub fn new(
        port: P,
        slots: &'s mut SharedRecvSlots<C, N>,
        config: RecvConfig,
    ) -> Result<Self, ConfigError> {
        let serial = Serial::recv().ok_or(ConfigError::NoSerial)?;
        Self::with_serial(port, slots, config, serial)
    }

    /// The same for a member of a [`crate::Group`], one that sends nothing: with the seat's identity, and no
    /// deeper than the seat.
    ///
    /// # Errors
    ///
    /// As [`SharedRecvQueue::new`]; the member is one until it leaves.
    pub fn with_seat(
        port: P,
        slots: &'s mut SharedRecvSlots<C, N>,
        config: RecvConfig,
        seat: RecvSeat,
    ) -> Result<Self, ConfigError> {
        let (serial, depth) = seat.take();
        let depth = config.depth.min(depth);
        Self::with_serial(port, slots, config.depth(depth), serial)
    }

    fn with_serial(
        port: P,
        slots: &'s mut SharedRecvSlots<C, N>,
        config: RecvConfig,
        serial: Serial,
    ) -> Result<Self, ConfigError> {
        let depth = config.depth.min(N as u32);
        if depth == 0 {
            return Err(ConfigError::NoDepth);
        }
        for (at, slot) in (0_u32..).zip(&mut slots.0) {
            (slot.ticket, slot.next, slot.state) = (at, (at + 1) & Self::MASK, State::Free);
        }
        let hot = Hot {
            port,
            slots: NonNull::from(slots).cast(),
            serial: serial.number(),
            free: 0,
            used: 0,
            limit: depth,
            ended: 0,
            first_ended: 0,
            last_ended: 0,
            domain: Tag::of(config.domain),
            max_sges: config.max_sges,
        };
        Ok(Self { hot, cold: Cold { depth, closed: None }, storage: PhantomData })
    }

    /// Starts a chain of up to `n` receives: checks the room for all of them at once.
    ///
    /// # Errors
    ///
    /// [`ReserveError`]; nothing has changed then.
    #[inline(always)]
    pub fn reserve<'q, const CHAIN: usize, const SGES: usize>(
        &'q mut self,
        staging: &'q mut RecvLink<'_, CHAIN, SGES>,
        n: usize,
    ) -> Result<SharedRecvChain<'q, 's, P, C, N, CHAIN, SGES>, ReserveError> {
        // `n` is at most 1,024 where the sum is looked at, and the limit is 0 once closed.
        if n > CHAIN || self.hot.used.wrapping_add(n as u32) > self.hot.limit {
            return Err(self.no_room(n, CHAIN));
        }
        Ok(SharedRecvChain::new(self, staging.reborrow(), n))
    }

    #[cold]
    #[inline(never)]
    fn no_room(&self, n: usize, staging: usize) -> ReserveError {
        let asked = u32::try_from(n).unwrap_or(u32::MAX);
        let max = staging as u32;
        if let Some(cause) = self.cold.closed {
            ReserveError::Closed(cause)
        } else if asked > max {
            ReserveError::ChainTooLong { asked, max }
        } else {
            ReserveError::Full { asked, free: self.free() }
        }
    }

    /// Marks the receive that `completion` ends. Says how many: one.
    ///
    /// # Errors
    ///
    /// [`Foreign`] with the completion when it is not of a receive that is posted here; nothing has changed
    /// then.
    #[inline(always)]
    pub fn retire(&mut self, completion: Completion) -> Result<u32, Foreign> {
        let (serial, ticket) = completion.id();
        let index = ticket & Self::MASK;
        let slot = self.slot(index);
        // SAFETY: the fields that are read here are always initialised.
        let (posted, state) = unsafe { ((*slot).ticket, (*slot).state) };
        if serial != self.hot.serial || ticket != posted || state != State::Posted {
            return Err(Foreign(completion));
        }
        let wc = completion.raw();
        let arrival = match completion.is_success() {
            true => Arrival::new(wc),
            false => Arrival::failed(wc.status, wc.vendor_err),
        };
        // SAFETY: the queue owns its slots, and the context is left alone.
        unsafe {
            (*slot).arrival = arrival;
            (*slot).qp_num = wc.qp_num;
        }
        self.end(index);
        Ok(1)
    }

    /// Puts a posted slot behind those that have ended.
    #[inline(always)]
    fn end(&mut self, index: u32) {
        // SAFETY: the queue owns its slots.
        unsafe { (*self.slot(index)).state = State::Ended };
        // Fits: there are at most 32,768 slots.
        let short = index as u16;
        if self.hot.ended == 0 {
            self.hot.first_ended = short;
        } else {
            // SAFETY: as above.
            unsafe { (*self.slot(self.hot.last_ended.into())).next = index };
        }
        self.hot.last_ended = short;
        self.hot.ended = self.hot.ended.wrapping_add(1);
    }

    /// Takes the receive that has ended first.
    #[inline(always)]
    pub fn take(&mut self) -> Option<SharedEnded<C>> {
        if self.hot.ended == 0 {
            return None;
        }
        let index = u32::from(self.hot.first_ended);
        let slot = self.slot(index);
        // SAFETY: a slot on the list of those that have ended holds an initialised context, which moves
        // out here and nowhere else, because the slot leaves the list.
        let (arrival, context) = unsafe { ((*slot).arrival, (*slot).context.assume_init_read()) };
        // SAFETY: the queue owns its slots.
        let (qp_num, next) = unsafe { ((*slot).qp_num, (*slot).next) };
        self.hot.first_ended = next as u16;
        self.hot.ended = self.hot.ended.wrapping_sub(1);
        self.hot.used = self.hot.used.wrapping_sub(1);
        // SAFETY: as above.
        unsafe {
            (*slot).state = State::Free;
            (*slot).next = self.hot.free;
        }
        self.hot.free = index;
        let queue_pair = match arrival.end() {
            End::Abandoned => None,
            _ => Some(QpNum::from_raw(qp_num)),
        };
        Some(SharedEnded { queue_pair, outcome: arrival.outcome(), context })
    }

    /// Asks the device for one event when fewer than `limit` receives are left in it; 0 asks for none. How
    /// the event is told is the device's business. It counts what the device has, which is less than
    /// [`SharedRecvQueue::in_flight`] by what was not polled yet.
    ///
    /// # Errors
    ///
    /// [`LimitError`] when the device cannot.
    #[doc(alias = "ibv_modify_srq")]
    pub fn arm_limit(&mut self, limit: u32) -> Result<(), LimitError>
    where
        P: LimitPort,
    {
        match self.hot.port.arm_limit(limit) {
            0 => Ok(()),
            code => Err(LimitError { code }),
        }
    }

    /// Refuses all posts from now on. What is posted stays so until its completions come.
    pub fn close(&mut self) {
        self.shut(Cause::ByOwner);
    }

    fn shut(&mut self, cause: Cause) {
        self.hot.limit = 0;
        let keep = matches!(self.cold.closed, Some(Cause::Failed(_) | Cause::Unknown { .. }));
        if !keep {
            self.cold.closed = Some(cause);
        }
    }

    /// Ends everything that is posted as [`Outcome::Abandoned`](crate::Outcome::Abandoned), to be taken. The only way to have receives
    /// back that no message came for.
    ///
    /// # Safety
    ///
    /// The device's queue is destroyed, and all queue pairs that shared it are, so no device uses the
    /// buffers any more (`ibv_destroy_srq(3)`), and no completion of it will be retired here.
    pub unsafe fn abandon(&mut self) {
        // A chain that was forgotten has left marks on slots that are free.
        let mut at = self.hot.free;
        for _ in self.hot.used..N as u32 {
            // SAFETY: the queue owns its slots.
            unsafe {
                (*self.slot(at)).state = State::Free;
                at = (*self.slot(at)).next;
            }
        }
        for index in 0..N as u32 {
            // SAFETY: as above.
            if unsafe { (*self.slot(index)).state } == State::Posted {
                // SAFETY: as above.
                unsafe { (*self.slot(index)).arrival.set_end(End::Abandoned) };
                self.end(index);
            }
        }
        self.shut(Cause::Gone);
    }

    /// The same where the port knows by itself that the queue and all queue pairs that shared it are gone, as the soft
    /// device's does once [`Device::remove`](crate::soft::Device::remove) was called: says whether it does. Poll
    /// before, so that what has an outcome gets it.
    pub fn try_abandon(&mut self) -> bool {
        let is_gone = self.hot.port.is_gone();
        if is_gone {
            // SAFETY: the port promises that no device uses the buffers. A completion of this queue that is
            // polled later finds nothing in flight, and comes back as foreign.
            unsafe { self.abandon() };
        }
        is_gone
    }

    /// Gives port and storage back, when every context has been taken.
    ///
    /// # Errors
    ///
    /// The queue, when a receive is posted or waits to be taken.
    pub fn into_storage(self) -> Result<(P, &'s mut SharedRecvSlots<C, N>), Self> {
        if self.hot.used != 0 {
            return Err(self);
        }
        let queue = ManuallyDrop::new(self);
        // SAFETY: the queue is not used or dropped again, so the port moves out once.
        let port = unsafe { ptr::read(&queue.hot.port) };
        // SAFETY: the storage was borrowed for `'s` by `new`, and no slot holds a context.
        let slots = unsafe { queue.hot.slots.cast().as_mut() };
        Ok((port, slots))
    }

    #[inline(always)]
    fn slot(&self, index: u32) -> *mut SharedSlot<C> {
        // SAFETY: the mask keeps the index below N.
        unsafe { self.hot.slots.as_ptr().add((index & Self::MASK) as usize) }
    }
}

impl<P, C, const N: usize> SharedRecvQueue<'_, P, C, N> {
    /// Receives that the device still has, or whose completions were not retired yet.
    pub const fn in_flight(&self) -> u32 {
        self.hot.used.wrapping_sub(self.hot.ended)
    }

    /// Receives that have ended and wait to be taken.
    pub const fn ended(&self) -> u32 {
        self.hot.ended
    }

    /// Receives that may be posted now; 0 once the queue is closed.
    pub const fn free(&self) -> u32 {
        self.hot.limit.saturating_sub(self.hot.used)
    }

    /// Receives that may be posted at a time.
    pub const fn depth(&self) -> u32 {
        self.cold.depth
    }

    /// Why posts are refused, if they are.
    pub const fn closed(&self) -> Option<Cause> {
        self.cold.closed
    }

    /// What identifies this queue in its completions, unique in the process.
    pub const fn serial(&self) -> u32 {
        self.hot.serial
    }

    /// The port.
    pub const fn port(&self) -> &P {
        &self.hot.port
    }
}

impl<P, C, const N: usize> Drop for SharedRecvQueue<'_, P, C, N> {
    fn drop(&mut self) {
        leak::count(self.in_flight());
        let mask = (N as u32).wrapping_sub(1);
        let mut index = u32::from(self.hot.first_ended);
        let next = || {
            if self.hot.ended == 0 {
                return None;
            }
            self.hot.ended = self.hot.ended.wrapping_sub(1);
            // SAFETY: the mask keeps the index below N.
            let slot = unsafe { self.hot.slots.as_ptr().add((index & mask) as usize) };
            // SAFETY: a slot on this list holds a context, and the walk passes each of them once.
            unsafe {
                index = (*slot).next;
                Some((*slot).context.assume_init_read())
            }
        };
        leak::hand_on(next, drop);
    }
}

impl<P, C, const N: usize> fmt::Debug for SharedRecvQueue<'_, P, C, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedRecvQueue")
            .field("in_flight", &self.in_flight())
            .field("ended", &self.ended())
            .field("free", &self.free())
            .field("cold", &self.cold)
            .finish_non_exhaustive()
    }
}
