//! The device: storage, lock, and what sets things up.

use core::fmt;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use super::completion::{CompletionQueue, CompletionQueueError, CqId, Ends, Frees, Place};
use super::config::{Caps, QpConfig, QueuePairError};
use super::engine::{Driver, Engine, SlotId};
use super::memory::{Kind, RegisterError, Window};
use super::profile::{PostFault, Profile};
use super::queue_pair::{QueuePair, SharedReceiveId, SharedReceiveQueue, Slot};
use crate::abi::{Access, QpNum};
use crate::op::Peer;
use crate::region::{Domain, Region, Registration, SharedRegion};
use crate::sync::{
    self, AtomicBool, Cell, Ordering, Padded, const_unless_loom, machine, spin_loop,
};

/// A device made of software.
///
/// It has room for `QPS` queue pairs, whose rings have `DEPTH` places each (a power of two); a
/// request has at most `SGES` pieces or `INLINE` bytes of inline data. There are two completion
/// queues a queue pair, which share `4 * DEPTH * QPS` places, and eight regions a queue pair.
///
/// It lives where its owner puts it, in a `static`, leaked, or, if it is small, on the stack; its
/// handles borrow it. A place of each ring takes a few hundred bytes in all; a `static` costs none
/// of them in the program's image. It has no thread: whoever polls a completion queue drives it,
/// and so does [`Self::progress`]. Posting and polling never wait. What sets up and tears down
/// waits for the lock that the driving thread holds, so it is not for interrupt handlers.
#[doc(alias = "ibv_context")]
pub struct Device<
    const QPS: usize,
    const DEPTH: usize,
    const SGES: usize = 4,
    const INLINE: usize = 64,
> {
    profile: Profile,
    is_driven: Padded<AtomicBool>,
    engine: Cell<Engine<QPS>>,
    slots: [Slot<DEPTH, SGES, INLINE>; QPS],
    ends: [[Ends; 2]; QPS],
    places: [[[Place; DEPTH]; 4]; QPS],
}

impl<const QPS: usize, const DEPTH: usize, const SGES: usize, const INLINE: usize>
    Device<QPS, DEPTH, SGES, INLINE>
{
    /// How many completions all completion queues hold together.
    pub const COMPLETIONS: usize = 4 * DEPTH * QPS;

    const_unless_loom! {
        /// A device that keeps to the specification, [`Profile::STRICT`].
        pub fn new() -> Self {
            Self::with_profile(Profile::STRICT)
        }
    }

    const_unless_loom! {
        /// A device that behaves as `profile` says.
        pub fn with_profile(profile: Profile) -> Self {
            Self {
                profile,
                is_driven: Padded(AtomicBool::new(false)),
                engine: Cell::new(Engine::new()),
                slots: sync::array!(Slot::new(); QPS),
                ends: sync::array!(sync::array!(Ends::new(); 2); QPS),
                places: sync::array!(
                    sync::array!(sync::array!(Cell::new(MaybeUninit::uninit()); DEPTH); 4); QPS
                ),
            }
        }
    }

    /// How it behaves.
    #[inline(always)]
    pub const fn profile(&self) -> Profile {
        self.profile
    }

    #[inline(always)]
    pub(super) const fn rules(&self) -> &Profile {
        &self.profile
    }

    /// A new protection domain, which no other soft device of this process has either. Any thread
    /// may call; never fails, there are 2^23.
    #[doc(alias = "ibv_alloc_pd")]
    pub fn domain(&self) -> Domain {
        static NEXT: machine::AtomicU32 = machine::AtomicU32::new(1);
        // Relaxed: only uniqueness matters. The upper half is the real devices'.
        Domain::from_raw(NEXT.fetch_add(1, Ordering::Relaxed) & 0x007f_ffff)
    }

    /// Carries out what was posted, as far as one call goes: at most 64 queue pairs, 32 requests
    /// each. Returns how many requests moved; 0 also when another thread is at it.
    ///
    /// Any thread may call; never waits.
    #[inline]
    pub fn progress(&self) -> usize {
        if !self.try_lock() {
            return 0;
        }
        let moved = self.engine.with_mut(|engine| {
            // SAFETY: the flag was down and is up now, so this thread alone has the engine.
            let engine = unsafe { &mut *engine };
            Driver { device: self, engine }.run()
        });
        self.unlock();
        moved
    }

    /// Registers memory for this side's own requests. Any thread may call.
    ///
    /// # Errors
    ///
    /// [`RegisterError`]: the table is full.
    #[doc(alias = "ibv_reg_mr")]
    pub fn register(
        &self,
        domain: Domain,
        memory: &'static mut [u8],
    ) -> Result<Region, RegisterError> {
        let access = Access::LOCAL_WRITE;
        let registration = self.add(NonNull::from(memory), domain, access, Kind::Private, true)?;
        // SAFETY: the memory was borrowed for ever and is reached through this region alone; it is
        // registered as it says, without remote rights.
        Ok(unsafe { Region::from_raw(registration) })
    }

    /// Registers memory that peers may reach as far as `access` goes. Any thread may call.
    ///
    /// # Errors
    ///
    /// [`RegisterError`]: the table is full, the rights contradict each other, or the memory is
    /// not aligned to 8 bytes (on a target where `u64` is not).
    #[doc(alias = "ibv_reg_mr")]
    pub fn register_shared(
        &self,
        domain: Domain,
        memory: &'static mut [u64],
        access: Access,
    ) -> Result<SharedRegion, RegisterError> {
        let bytes = NonNull::slice_from_raw_parts(
            NonNull::from(&mut *memory).cast::<u8>(),
            size_of_val(memory),
        );
        let registration = self.add(bytes, domain, access, Kind::Shared, true)?;
        // SAFETY: as in `register`; it is aligned, and whole words long, and the engine reaches it
        // by atomic words.
        Ok(unsafe { SharedRegion::from_raw(registration) })
    }

    /// Registers any memory, for this side's requests only. Any thread may call.
    ///
    /// # Safety
    ///
    /// Until [`Self::deregister`] has returned: the memory stays allocated, and while a request
    /// that names a piece of it is in flight, nobody else writes that piece, nor reads it if the
    /// request does (`ibv_reg_mr(3)`).
    ///
    /// # Errors
    ///
    /// [`RegisterError`]: the table is full, or there are remote rights in `access`.
    #[doc(alias = "ibv_reg_mr")]
    pub unsafe fn register_raw(
        &self,
        domain: Domain,
        memory: NonNull<[u8]>,
        access: Access,
    ) -> Result<Registration, RegisterError> {
        self.add(memory, domain, access, Kind::Private, false)
    }

    /// Registers any memory, for peers as far as `access` goes. Any thread may call.
    ///
    /// # Safety
    ///
    /// Until [`Self::deregister`] has returned: the memory stays allocated, also as far as the end
    /// of its last eight bytes, no reference to it exists, and everybody reaches it by atomic
    /// words, as [`SharedRegion`] does.
    ///
    /// # Errors
    ///
    /// [`RegisterError`]: the table is full, the rights contradict each other, or the memory is
    /// not aligned to 8 bytes.
    #[doc(alias = "ibv_reg_mr")]
    pub unsafe fn register_shared_raw(
        &self,
        domain: Domain,
        memory: NonNull<[u8]>,
        access: Access,
    ) -> Result<Registration, RegisterError> {
        self.add(memory, domain, access, Kind::Shared, false)
    }

    fn add(
        &self,
        memory: NonNull<[u8]>,
        domain: Domain,
        access: Access,
        kind: Kind,
        is_static: bool,
    ) -> Result<Registration, RegisterError> {
        let equal = self.profile.equal_keys;
        self.locked(|driver| {
            driver.engine.table.add(memory, domain, access, kind, is_static, equal)
        })
    }

    /// Takes a registration back: when this returns, the device touches the memory no more, and
    /// requests that name it fail. Returns false when there is none. Any thread may call.
    #[doc(alias = "ibv_dereg_mr")]
    pub fn deregister(&self, registration: &Registration) -> bool {
        self.locked(|driver| driver.engine.table.remove(registration))
    }

    /// Deregisters private memory and gives it back. Any thread may call.
    ///
    /// # Errors
    ///
    /// The region, when it is not one that [`Self::register`] of this device made.
    #[doc(alias = "ibv_dereg_mr")]
    pub fn take_back(&self, region: Region) -> Result<&'static mut [u8], Region> {
        let registration = *region.registration();
        if self.locked(|driver| driver.engine.table.remove_static(&registration, Kind::Private)) {
            // SAFETY: the memory came as `&'static mut [u8]`, and the region, which was the only
            // way to it, ends here; its keys are gone.
            return Ok(unsafe {
                core::slice::from_raw_parts_mut(registration.addr.as_ptr(), registration.len)
            });
        }
        Err(region)
    }

    /// Deregisters shared memory and gives it back. Any thread may call.
    ///
    /// # Errors
    ///
    /// The region, when it is not one that [`Self::register_shared`] of this device made.
    #[doc(alias = "ibv_dereg_mr")]
    pub fn take_back_shared(
        &self,
        region: SharedRegion,
    ) -> Result<&'static mut [u64], SharedRegion> {
        let registration = *region.registration();
        if self.locked(|driver| driver.engine.table.remove_static(&registration, Kind::Shared)) {
            // SAFETY: the memory came as `&'static mut [u64]`, and the region, which was the only
            // way to it, ends here; its keys are gone.
            return Ok(unsafe {
                core::slice::from_raw_parts_mut(
                    registration.addr.cast::<u64>().as_ptr(),
                    registration.len / 8,
                )
            });
        }
        Err(region)
    }

    /// A memory window of type 2, closed; it takes a row of the region table. Any thread may call.
    ///
    /// # Errors
    ///
    /// [`RegisterError`]: the table is full.
    #[doc(alias = "ibv_alloc_mw")]
    pub fn window(
        &self,
        domain: Domain,
    ) -> Result<Window<'_, QPS, DEPTH, SGES, INLINE>, RegisterError> {
        let key = self.locked(|driver| driver.engine.table.add_window(domain))?;
        Ok(Window::new(self, key, domain))
    }

    /// A completion queue for `capacity` completions. Any thread may call.
    ///
    /// As with any device it is up to the program that every completion finds room.
    ///
    /// # Errors
    ///
    /// [`CompletionQueueError`]: there is none left, or not enough room.
    #[doc(alias = "ibv_create_cq")]
    pub fn completion_queue(
        &self,
        capacity: usize,
    ) -> Result<CompletionQueue<'_, QPS, DEPTH, SGES, INLINE>, CompletionQueueError> {
        let (id, base, mask) = self.locked(|driver| driver.create_queue(capacity))?;
        Ok(CompletionQueue::new(self, id, base, mask, capacity))
    }

    /// A queue pair whose sends complete on one queue and whose receives on another, or the
    /// same. Any thread may call.
    ///
    /// It starts in [`super::State::Init`], where it takes receives; a datagram queue pair starts
    /// ready.
    ///
    /// # Errors
    ///
    /// [`QueuePairError`] says what could not be had; nothing is created then.
    #[doc(alias = "ibv_create_qp", alias = "rdma_create_qp")]
    pub fn queue_pair(
        &self,
        config: QpConfig,
        send_queue: impl Into<CqId>,
        recv_queue: impl Into<CqId>,
    ) -> Result<QueuePair<'_, QPS, DEPTH, SGES, INLINE>, QueuePairError> {
        let (send, recv) = (send_queue.into(), recv_queue.into());
        let made = self.locked(|driver| driver.create_qp(config, send, recv))?;
        Ok(QueuePair::new(self, made))
    }

    /// Where datagrams for queue pair `number` of this device go, with its queue key. `domain` is the
    /// sender's. An address needs nothing here but the number, so it stands for whoever has that number
    /// when a datagram arrives.
    #[doc(alias = "ibv_create_ah")]
    pub const fn peer(&self, domain: Domain, number: QpNum, qkey: u32) -> Peer {
        // SAFETY: this device does not follow handles.
        unsafe { Peer::from_raw(core::ptr::null_mut(), number, qkey, domain) }
    }

    /// A receive queue of `depth` requests that queue pairs share, see
    /// [`QpConfig::shared_receive`]. It takes the place of a queue pair. Any thread may call.
    ///
    /// # Errors
    ///
    /// [`QueuePairError`] says what could not be had.
    #[doc(alias = "ibv_create_srq")]
    pub fn shared_receive_queue(
        &self,
        depth: u32,
    ) -> Result<SharedReceiveQueue<'_, DEPTH, SGES, INLINE>, QueuePairError> {
        let made = self.locked(|driver| driver.create_shared_receive(depth))?;
        Ok(SharedReceiveQueue::new(self, made))
    }

    /// Whether a shared receive queue has run low since it was armed
    /// ([`SharedRecvQueue::arm_limit`](crate::SharedRecvQueue::arm_limit)); an event is told once. Any
    /// thread may ask.
    #[doc(alias = "IBV_EVENT_SRQ_LIMIT_REACHED")]
    pub fn ran_low(&self, queue: SharedReceiveId) -> bool {
        self.locked(|driver| match driver.engine.shared_receive(queue.slot, queue.version) {
            // Relaxed: the event says nothing about other memory.
            Some(id) if queue.device == self.address() => {
                self.slot(id).ran_low.swap(false, Ordering::Relaxed)
            }
            _ => false,
        })
    }

    /// Takes an event of a completion queue, when there is one: something came since it was armed
    /// ([`Completions::arm`](crate::Completions::arm)). One event an arming, whoever asks first has it, and
    /// nobody waits for it to be acknowledged. Any thread may ask.
    #[doc(alias = "ibv_get_cq_event", alias = "ibv_ack_cq_events")]
    pub fn take_event(&self, queue: impl Into<CqId>) -> bool {
        let queue = queue.into();
        self.locked(|driver| driver.take_event(queue))
    }

    /// Takes the device away, as when a card is pulled: what is in flight has no outcome, no byte moves any
    /// more, posts are refused with 5 (`EIO`), and so are polls once they have given what was there. For
    /// ever. Any thread may call.
    #[doc(alias = "IBV_EVENT_DEVICE_FATAL", alias = "RDMA_CM_EVENT_DEVICE_REMOVAL")]
    pub fn remove(&self) {
        self.locked(|driver| driver.remove());
    }

    /// Orders a fault for the next post of receives to a shared queue; nothing happens when it is another
    /// device's, or gone. Any thread may call. For a queue pair's own receives there is
    /// [`Control::fail_next_recv`](super::Control::fail_next_recv).
    pub fn fail_next_recv(&self, queue: SharedReceiveId, fault: PostFault) {
        self.locked(|driver| {
            if let Some(id) = driver.engine.shared_receive(queue.slot, queue.version)
                && queue.device == self.address()
            {
                self.slot(id).recv.set_fault(fault.to_bits());
            }
        });
    }

    /// Runs a step under the engine's lock, for which it waits.
    pub(super) fn locked<R>(
        &self,
        step: impl FnOnce(&mut Driver<'_, QPS, DEPTH, SGES, INLINE>) -> R,
    ) -> R {
        while !self.try_lock() {
            spin_loop();
        }
        let result = self.engine.with_mut(|engine| {
            // SAFETY: the flag was down and is up now, so this thread alone has the engine.
            let engine = unsafe { &mut *engine };
            step(&mut Driver { device: self, engine })
        });
        self.unlock();
        result
    }

    /// An exchange and not a swap: loom does not keep the store of a swap that found the flag up
    /// before the store that takes it down, and would leave it up for ever.
    #[inline(always)]
    fn try_lock(&self) -> bool {
        let flag = &self.is_driven.0;
        // Relaxed: a hint, which spares the line a write while another thread is at it.
        //
        // Acquire pairs with the release store in `unlock`. Relaxed when it fails: nothing is
        // looked at then.
        !flag.load(Ordering::Relaxed)
            && flag.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline(always)]
    fn unlock(&self) {
        // Pairs with the acquire in `try_lock`: what was done to the engine is visible to the next.
        self.is_driven.0.store(false, Ordering::Release);
    }

    #[inline(always)]
    pub(super) fn slot(&self, id: SlotId) -> &Slot<DEPTH, SGES, INLINE> {
        // SAFETY: a slot's number is less than the number of queue pairs of its device, and the
        // engine of this device made it.
        unsafe { self.slots.get_unchecked(id.get() as usize) }
    }

    #[inline(always)]
    pub(super) fn ends(&self, index: u32) -> Option<&Ends> {
        self.ends.as_flattened().get(index as usize)
    }

    #[inline(always)]
    pub(super) fn place(&self, index: usize) -> Option<&Place> {
        self.places.as_flattened().as_flattened().get(index)
    }

    #[inline(always)]
    pub(super) fn is_broken(&self, index: u32) -> bool {
        // Pairs with the release store in `push`: what was pushed before is visible.
        self.ends(index).is_some_and(|ends| ends.is_broken.load(Ordering::Acquire))
    }

    /// Frees ring slots, as a completion that was polled says.
    #[inline(always)]
    pub(super) fn free(&self, frees: Frees, up_to: usize) {
        if frees == Frees::NOTHING {
            return;
        }
        if let Some(slot) = self.slots.get(frees.slot() as usize) {
            if frees.is_recv() { slot.recv.free(up_to) } else { slot.send.free(up_to) }
        }
    }

    /// The address, which tells devices apart.
    pub(super) fn address(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }
}

// SAFETY: the engine is reached under the lock only; a ring's cells by its two sides, as its
// indices say; a place of a completion queue likewise.
unsafe impl<const QPS: usize, const DEPTH: usize, const SGES: usize, const INLINE: usize> Sync
    for Device<QPS, DEPTH, SGES, INLINE>
{
}

// SAFETY: as above; nothing in it is tied to a thread.
unsafe impl<const QPS: usize, const DEPTH: usize, const SGES: usize, const INLINE: usize> Send
    for Device<QPS, DEPTH, SGES, INLINE>
{
}

impl<const QPS: usize, const DEPTH: usize, const SGES: usize, const INLINE: usize> Default
    for Device<QPS, DEPTH, SGES, INLINE>
{
    fn default() -> Self {
        Self::new()
    }
}

impl<const QPS: usize, const DEPTH: usize, const SGES: usize, const INLINE: usize> fmt::Debug
    for Device<QPS, DEPTH, SGES, INLINE>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("queue_pairs", &QPS)
            .field("depth", &DEPTH)
            .field("profile", &self.profile)
            .finish_non_exhaustive()
    }
}

/// What creating a queue pair gave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    pub(super) id: SlotId,
    pub(super) version: u32,
    pub(super) number: u32,
    pub(super) caps: Caps,
}
