//! Queue pairs: the two ends that post, and the control that connects and destroys.
//!
//! The ends go to the threads that post; the control stays with whoever set the queue pair up.
//!
//! Invariant: the place of a queue pair is used again only after its control and both its ends are
//! gone, so a ring has one posting thread.

use core::fmt;

use super::config::{Caps, ControlError, State};
use super::device::{Device, Made};
use super::engine::SlotId;
use super::profile::PostFault;
use super::request::{RecvRequest, SendRequest};
use super::ring::Ring;
use crate::abi::{QpNum, RecvWr, SendWr, WcStatus};
use crate::port::{LimitPort, RecvPort, SendPort};
use crate::sync::{AtomicBool, AtomicU32, Ordering, const_unless_loom};

/// The rings of one queue pair.
pub(super) struct Slot<const DEPTH: usize, const SGES: usize, const INLINE: usize> {
    pub(super) send: Ring<SendRequest<SGES, INLINE>, DEPTH>,
    pub(super) recv: Ring<RecvRequest<SGES>, DEPTH>,
    /// How many ends are in the program's hands.
    pub(super) ends: AtomicU32,
    /// Fewer receives than this are an event, 0 for none; and whether there was one.
    pub(super) limit: AtomicU32,
    pub(super) ran_low: AtomicBool,
    /// The engine will not look at it again.
    pub(super) is_gone: AtomicBool,
}

impl<const DEPTH: usize, const SGES: usize, const INLINE: usize> Slot<DEPTH, SGES, INLINE> {
    const_unless_loom! {
        pub(super) fn new() -> Self {
            Self {
                send: Ring::new(),
                recv: Ring::new(),
                ends: AtomicU32::new(0),
                limit: AtomicU32::new(0),
                ran_low: AtomicBool::new(false),
                is_gone: AtomicBool::new(false),
            }
        }
    }

    /// A shared receive queue has `left` receives: notes it when that is fewer than it is armed for.
    pub(super) fn has_left(&self, left: usize) {
        // Relaxed: a number to compare with; who arms it orders nothing by it.
        let limit = self.limit.load(Ordering::Relaxed);
        if left < limit as usize {
            self.limit.store(0, Ordering::Relaxed);
            // Relaxed: the event says nothing about other memory.
            self.ran_low.store(true, Ordering::Relaxed);
        }
    }

    fn drop_end(&self) {
        // Release pairs with the acquire load in `Driver::is_free`: what this end did to its
        // ring comes before what the next one does.
        self.ends.fetch_sub(1, Ordering::Release);
    }
}

/// A queue pair. Take it apart by moving its three fields to where they are needed.
///
/// ```
/// use nanoverbs_core::soft::{Device, QpConfig};
///
/// static DEVICE: Device<2, 16> = Device::new();
/// let domain = DEVICE.domain();
/// let queue = DEVICE.completion_queue(64)?;
/// let a = DEVICE.queue_pair(QpConfig::new(domain), &queue, &queue)?;
/// let b = DEVICE.queue_pair(QpConfig::new(domain), &queue, &queue)?;
/// a.control.connect(&b.control)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[doc(alias = "ibv_qp")]
pub struct QueuePair<
    'd,
    const QPS: usize,
    const DEPTH: usize,
    const SGES: usize = 4,
    const INLINE: usize = 64,
> {
    /// Posts sends.
    pub send: SendEnd<'d, DEPTH, SGES, INLINE>,
    /// Posts receives.
    pub recv: RecvEnd<'d, DEPTH, SGES, INLINE>,
    /// Connects, disconnects and destroys; the queue pair is destroyed when it is dropped.
    pub control: Control<'d, QPS, DEPTH, SGES, INLINE>,
}

impl<'d, const QPS: usize, const DEPTH: usize, const SGES: usize, const INLINE: usize>
    QueuePair<'d, QPS, DEPTH, SGES, INLINE>
{
    pub(super) fn new(device: &'d Device<QPS, DEPTH, SGES, INLINE>, made: Made) -> Self {
        let Made { id, number, caps, .. } = made;
        let slot = device.slot(id);
        Self {
            send: SendEnd { slot },
            recv: RecvEnd { slot },
            control: Control { device, slot, id, number, caps },
        }
    }
}

/// The way into a send queue. One pointer.
///
/// A post copies the requests with their pieces and their inline bytes; one store publishes the
/// whole chain. It returns 12 (ENOMEM) when the queue is full, and 22 (EINVAL) for a request that
/// it cannot take and in a state in which it takes none.
pub struct SendEnd<'d, const DEPTH: usize, const SGES: usize = 4, const INLINE: usize = 64> {
    slot: &'d Slot<DEPTH, SGES, INLINE>,
}

/// The way into a receive queue, also into a shared one. One pointer.
///
/// Posts and returns as [`SendEnd`].
pub struct RecvEnd<'d, const DEPTH: usize, const SGES: usize = 4, const INLINE: usize = 64> {
    slot: &'d Slot<DEPTH, SGES, INLINE>,
}

// SAFETY: a request is in the ring if and only if the post says so, a fault that was ordered aside,
// which keeps the same promises; the engine looks at it until its completion was pushed. It leads to a datagram
// queue pair as well, without saying so: a message then goes to whoever the request's target names, all of whose
// bytes are numbers, and the engine follows none of them.
unsafe impl<const DEPTH: usize, const SGES: usize, const INLINE: usize> SendPort
    for SendEnd<'_, DEPTH, SGES, INLINE>
{
    #[inline]
    unsafe fn post_send(&mut self, first: *mut SendWr, bad: &mut *mut SendWr) -> i32 {
        // SAFETY: the exclusive borrow of the only end makes it one thread at a time; the caller
        // promises valid requests, and the limits are within the ring's constants.
        unsafe {
            self.slot.send.post(
                first,
                bad,
                |wr| (*wr).next,
                |wr, limits, into| SendRequest::copy(wr, limits, into),
            )
        }
    }

    fn is_gone(&self) -> bool {
        // Acquire, pairs with the release in `Driver::destroy`: the engine's last look comes before.
        self.slot.is_gone.load(Ordering::Acquire)
    }
}

// SAFETY: as for the send end.
unsafe impl<const DEPTH: usize, const SGES: usize, const INLINE: usize> RecvPort
    for RecvEnd<'_, DEPTH, SGES, INLINE>
{
    #[inline]
    unsafe fn post_recv(&mut self, first: *mut RecvWr, bad: &mut *mut RecvWr) -> i32 {
        // SAFETY: as for the send end.
        unsafe {
            self.slot.recv.post(
                first,
                bad,
                |wr| (*wr).next,
                |wr, limits, into| RecvRequest::copy(wr, limits, into),
            )
        }
    }

    fn is_gone(&self) -> bool {
        // Acquire, pairs with the release in `Driver::destroy`: the engine's last look comes before.
        self.slot.is_gone.load(Ordering::Acquire)
    }
}

impl<const DEPTH: usize, const SGES: usize, const INLINE: usize> LimitPort
    for RecvEnd<'_, DEPTH, SGES, INLINE>
{
    /// The event is told by [`Device::ran_low`]. The end of a queue pair's own queue never has one.
    fn arm_limit(&mut self, limit: u32) -> i32 {
        // Relaxed: see `Slot::has_left`.
        self.slot.limit.store(limit, Ordering::Relaxed);
        0
    }
}

impl<const DEPTH: usize, const SGES: usize, const INLINE: usize> Drop
    for SendEnd<'_, DEPTH, SGES, INLINE>
{
    fn drop(&mut self) {
        self.slot.drop_end();
    }
}

impl<const DEPTH: usize, const SGES: usize, const INLINE: usize> Drop
    for RecvEnd<'_, DEPTH, SGES, INLINE>
{
    fn drop(&mut self) {
        self.slot.drop_end();
    }
}

impl<const DEPTH: usize, const SGES: usize, const INLINE: usize> fmt::Debug
    for SendEnd<'_, DEPTH, SGES, INLINE>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendEnd").finish_non_exhaustive()
    }
}

impl<const DEPTH: usize, const SGES: usize, const INLINE: usize> fmt::Debug
    for RecvEnd<'_, DEPTH, SGES, INLINE>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvEnd").finish_non_exhaustive()
    }
}

/// The control of a queue pair: its state, its connection, and the faults to order.
///
/// Any thread may call everything here. Calls wait for the thread that drives the device, a few
/// thousand requests at most. Dropping the control destroys the queue pair.
pub struct Control<
    'd,
    const QPS: usize,
    const DEPTH: usize,
    const SGES: usize = 4,
    const INLINE: usize = 64,
> {
    device: &'d Device<QPS, DEPTH, SGES, INLINE>,
    slot: &'d Slot<DEPTH, SGES, INLINE>,
    id: SlotId,
    number: u32,
    caps: Caps,
}

impl<const QPS: usize, const DEPTH: usize, const SGES: usize, const INLINE: usize>
    Control<'_, QPS, DEPTH, SGES, INLINE>
{
    /// The queue pair's number.
    pub const fn number(&self) -> QpNum {
        QpNum::from_raw(self.number)
    }

    /// What was granted.
    pub const fn caps(&self) -> Caps {
        self.caps
    }

    /// The state that it is in now.
    #[doc(alias = "ibv_query_qp")]
    pub fn state(&self) -> State {
        self.device.locked(|driver| driver.engine.qp(self.id).state)
    }

    /// From [`State::Reset`] to [`State::Init`].
    ///
    /// # Errors
    ///
    /// [`ControlError`] when it is in another state.
    #[doc(alias = "ibv_modify_qp")]
    pub fn init(&self) -> Result<(), ControlError> {
        self.device.locked(|driver| driver.init(self.id))
    }

    /// From [`State::Init`] to [`State::ReadyToReceive`]: takes what `peer` sends, once that one is
    /// ready to send.
    ///
    /// # Errors
    ///
    /// [`ControlError`] when it is in another state, or is for datagrams, or the peer is on another
    /// device.
    #[doc(alias = "ibv_modify_qp")]
    pub fn ready_to_receive(&self, peer: &Self) -> Result<(), ControlError> {
        self.same_device(peer)?;
        self.device.locked(|driver| driver.ready_to_receive(self.id, peer.id))
    }

    /// From [`State::ReadyToReceive`] to [`State::ReadyToSend`].
    ///
    /// # Errors
    ///
    /// [`ControlError`] when it is in another state.
    #[doc(alias = "ibv_modify_qp")]
    pub fn ready_to_send(&self) -> Result<(), ControlError> {
        self.device.locked(|driver| driver.ready_to_send(self.id))
    }

    /// Connects two queue pairs, which are then ready to send. A queue pair may be its own peer.
    ///
    /// # Errors
    ///
    /// [`ControlError`] when one of them is ready, has failed, or is for datagrams, or they are on
    /// different devices; both are then as they were.
    #[doc(alias = "rdma_connect", alias = "rdma_accept")]
    pub fn connect(&self, peer: &Self) -> Result<(), ControlError> {
        self.same_device(peer)?;
        self.device.locked(|driver| driver.connect(self.id, peer.id))
    }

    /// Moves the queue pair to [`State::Error`]: everything that is outstanding on it ends as
    /// flushed. The peer learns nothing: what it sends from now on is not answered.
    #[doc(alias = "rdma_disconnect")]
    pub fn disconnect(&self) {
        self.device.locked(|driver| driver.fail(self.id));
    }

    /// Destroys the queue pair: when this returns, the device touches no memory for it any more.
    /// What is outstanding gets no completion; completions that are already in their queue stay
    /// there. Posts through its ends are refused from now on.
    ///
    /// The same as dropping it.
    #[doc(alias = "ibv_destroy_qp", alias = "rdma_destroy_qp")]
    pub fn destroy(self) {}

    /// Orders a fault for the next post of sends.
    pub fn fail_next_send(&self, fault: PostFault) {
        self.slot.send.set_fault(fault.to_bits());
    }

    /// Orders a fault for the next post of receives.
    pub fn fail_next_recv(&self, fault: PostFault) {
        self.slot.recv.set_fault(fault.to_bits());
    }

    /// Holds the peer's answers back: what is posted here still arrives there, but nothing
    /// completes, and READs and atomics are carried out only when the answers are let go. Until
    /// then a WRITE overtakes a READ that was posted before it, unless it is fenced.
    pub fn hold_acks(&self, yes: bool) {
        self.device.locked(|driver| driver.engine.qp(self.id).holds_acks = yes);
    }

    /// Holds flushes back: a failed queue pair's requests do not end until they are let go.
    pub fn hold_flushes(&self, yes: bool) {
        self.device.locked(|driver| driver.engine.qp(self.id).holds_flushes = yes);
    }

    /// Cuts the line to the peer, in both directions, or mends it. While it is cut, requests wait
    /// for their retry count and then fail with 12; neither side is told.
    pub fn drop_peer(&self, yes: bool) {
        self.device.locked(|driver| driver.engine.qp(self.id).is_cut = yes);
    }

    /// Makes the next request that would be carried out fail with `status`, which is not 0.
    #[doc(alias = "ibv_wc_status")]
    pub fn fail_next_request(&self, status: WcStatus) {
        self.device.locked(|driver| driver.engine.qp(self.id).ordered = status.to_raw());
    }

    /// Lets both rings start at an index, for tests of wrapping.
    #[cfg(all(test, not(loom)))]
    pub(super) fn start_at(&self, index: usize) {
        self.slot.send.start_at(index);
        self.slot.recv.start_at(index);
        self.device.locked(|driver| {
            let qp = driver.engine.qp(self.id);
            (qp.next, qp.oldest, qp.next_recv, qp.recv_seen) = (index, index, index, index);
        });
    }

    fn same_device(&self, peer: &Self) -> Result<(), ControlError> {
        if core::ptr::eq(self.device, peer.device) {
            Ok(())
        } else {
            Err(ControlError::OtherDevice)
        }
    }
}

impl<const QPS: usize, const DEPTH: usize, const SGES: usize, const INLINE: usize> Drop
    for Control<'_, QPS, DEPTH, SGES, INLINE>
{
    fn drop(&mut self) {
        self.device.locked(|driver| driver.destroy(self.id));
    }
}

impl<const QPS: usize, const DEPTH: usize, const SGES: usize, const INLINE: usize> fmt::Debug
    for Control<'_, QPS, DEPTH, SGES, INLINE>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control")
            .field("number", &self.number)
            .field("caps", &self.caps)
            .finish_non_exhaustive()
    }
}

/// A receive queue that queue pairs share.
///
/// It lives until its end is dropped; its place is free again when the queue pairs on it are
/// destroyed, too.
#[derive(Debug)]
#[doc(alias = "ibv_srq")]
pub struct SharedReceiveQueue<
    'd,
    const DEPTH: usize,
    const SGES: usize = 4,
    const INLINE: usize = 64,
> {
    /// Posts receives.
    pub recv: RecvEnd<'d, DEPTH, SGES, INLINE>,
    /// The name, for [`super::QpConfig::shared_receive`].
    pub id: SharedReceiveId,
}

/// Names a shared receive queue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SharedReceiveId {
    pub(super) slot: u32,
    pub(super) version: u32,
    pub(super) device: usize,
}

impl<'d, const DEPTH: usize, const SGES: usize, const INLINE: usize>
    SharedReceiveQueue<'d, DEPTH, SGES, INLINE>
{
    pub(super) fn new<const QPS: usize>(
        device: &'d Device<QPS, DEPTH, SGES, INLINE>,
        made: Made,
    ) -> Self {
        let id = SharedReceiveId {
            slot: made.id.get(),
            version: made.version,
            device: device.address(),
        };
        Self { recv: RecvEnd { slot: device.slot(made.id) }, id }
    }
}
