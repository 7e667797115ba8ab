//! The completion queue: a ring from the engine to the one thread that polls.
//!
//! The engine writes completions under its lock; the holder of the [`CompletionQueue`] reads them.
//! A poll that finds nothing drives the device once and looks again.
//!
//! Invariant: `tail - head <= limit`; the places between the two are written, and only the poller
//! looks at them.

use core::fmt;
use core::mem::MaybeUninit;

use super::device::Device;
use super::engine::Armed;
use super::profile::{FailedFields, Profile};
use super::ring::INVALID;
use crate::abi::{Wc, wc_flags, wc_opcode};
use crate::port::{ArmPort, PollPort};
use crate::sync::{self, AtomicBool, AtomicUsize, Cell, Ordering, Padded, const_unless_loom};

/// What the engine leaves for the poller.
#[derive(Clone, Copy)]
pub(super) struct Cqe {
    pub(super) wr_id: u64,
    pub(super) status: u32,
    pub(super) opcode: u32,
    pub(super) byte_len: u32,
    pub(super) imm: u32,
    pub(super) qp_num: u32,
    pub(super) src_qp: u32,
    pub(super) flags: u32,
    /// The ring whose slots this completion frees when it is polled.
    pub(super) frees: Frees,
    /// Up to where.
    pub(super) up_to: usize,
}

/// A ring, named in one word: `slot << 1 | is_receive`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Frees(pub(super) u32);

impl Frees {
    pub(super) const NOTHING: Self = Self(u32::MAX);

    pub(super) const fn send(slot: u32) -> Self {
        Self(slot << 1)
    }

    pub(super) const fn recv(slot: u32) -> Self {
        Self((slot << 1) | 1)
    }

    pub(super) const fn slot(self) -> u32 {
        self.0 >> 1
    }

    pub(super) const fn is_recv(self) -> bool {
        self.0 & 1 != 0
    }
}

/// The indices of one completion queue.
pub(super) struct Ends {
    pub(super) tail: Padded<AtomicUsize>,
    pub(super) head: Padded<AtomicUsize>,
    pub(super) is_broken: AtomicBool,
}

impl Ends {
    const_unless_loom! {
        pub(super) fn new() -> Self {
            Self {
                tail: sync::padded(0),
                head: sync::padded(0),
                is_broken: AtomicBool::new(false),
            }
        }
    }
}

/// A place for a completion. Completion queues are runs of them.
pub(super) type Place = Cell<MaybeUninit<Cqe>>;

/// The handle of a completion queue, for one thread: the port that a poller polls.
///
/// When it is dropped, the completions that arrive later are lost.
#[doc(alias = "ibv_cq")]
pub struct CompletionQueue<
    'd,
    const QPS: usize,
    const DEPTH: usize,
    const SGES: usize = 4,
    const INLINE: usize = 64,
> {
    device: &'d Device<QPS, DEPTH, SGES, INLINE>,
    id: CqId,
    base: usize,
    mask: usize,
    capacity: usize,
}

/// Names a completion queue where its handle is out of reach, because a poller has it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CqId {
    pub(super) index: u32,
    pub(super) version: u32,
    /// The address of the device, so that another's is not taken for one of its own.
    pub(super) device: usize,
}

/// What became of asking for a completion queue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum CompletionQueueError {
    /// The device has as many completion queues as it can have: two a queue pair.
    NoQueue,
    /// There is no run of free places that is long enough.
    NoRoom {
        /// How many places were asked for; they are counted in powers of two.
        asked: usize,
        /// How many places the device has in all, taken ones too.
        all: usize,
    },
}

impl<'d, const QPS: usize, const DEPTH: usize, const SGES: usize, const INLINE: usize>
    CompletionQueue<'d, QPS, DEPTH, SGES, INLINE>
{
    pub(super) fn new(
        device: &'d Device<QPS, DEPTH, SGES, INLINE>,
        id: CqId,
        base: usize,
        mask: usize,
        capacity: usize,
    ) -> Self {
        Self { device, id, base, mask, capacity }
    }

    /// The name, for [`Device::queue_pair`] when this handle has gone to its poller.
    pub const fn id(&self) -> CqId {
        self.id
    }

    /// How many completions it holds: as many as were asked for.
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether there is nothing to poll yet, without driving the device.
    #[cfg(all(test, not(loom)))]
    pub(super) fn is_idle(&self) -> bool {
        let ends = self.device.ends(self.id.index).expect("the queue exists");
        ends.tail.0.load(Ordering::Acquire) == ends.head.0.load(Ordering::Relaxed)
    }

    /// Gives the completions that are there.
    #[inline(always)]
    fn drain(&mut self, into: &mut [Wc]) -> i32 {
        let Some(ends) = self.device.ends(self.id.index) else { return 0 };
        // Pairs with the release store in the engine's `push`: the places' bytes are visible.
        let tail = ends.tail.0.load(Ordering::Acquire);
        // Relaxed: only this thread writes it.
        let start = ends.head.0.load(Ordering::Relaxed);
        let mut head = start;
        if head == tail {
            return 0;
        }
        let profile = self.device.rules();
        for wc in into.iter_mut().take(i32::MAX as usize) {
            if head == tail {
                break;
            }
            let Some(place) = self.device.place(self.base.wrapping_add(head & self.mask)) else {
                break;
            };
            // SAFETY: the place lies between head and tail: written, and the engine leaves it alone
            // until `head` has passed it.
            let cqe = place.with(|cqe| unsafe { (*cqe).assume_init_read() });
            cqe.write(wc, profile);
            self.device.free(cqe.frees, cqe.up_to);
            head = head.wrapping_add(1);
        }
        // Pairs with the acquire load in the engine's `push`: the reads of the places, and the
        // freeing of slots, come before this.
        ends.head.0.store(head, Ordering::Release);
        head.wrapping_sub(start) as i32
    }

    /// What the queue held when it broke, then the error.
    #[cold]
    fn poll_broken(&mut self, into: &mut [Wc]) -> i32 {
        match self.drain(into) {
            0 => BROKEN,
            count => count,
        }
    }
}

// SAFETY: the engine pushes one completion for a request that has ended, in the order of its queue,
// and `drain` passes each on once.
unsafe impl<const QPS: usize, const DEPTH: usize, const SGES: usize, const INLINE: usize> PollPort
    for CompletionQueue<'_, QPS, DEPTH, SGES, INLINE>
{
    /// Gives completions; when there are none, drives the device and looks again. −5 when the queue
    /// is empty and has overrun.
    #[inline]
    fn poll(&mut self, into: &mut [Wc]) -> i32 {
        let count = self.drain(into);
        if count != 0 || into.is_empty() {
            return count;
        }
        self.device.progress();
        let count = self.drain(into);
        if count == 0 && self.device.is_broken(self.id.index) {
            self.poll_broken(into)
        } else {
            count
        }
    }
}

/// There are no descriptors here: the event is taken by [`Device::take_event`].
impl<const QPS: usize, const DEPTH: usize, const SGES: usize, const INLINE: usize> ArmPort
    for CompletionQueue<'_, QPS, DEPTH, SGES, INLINE>
{
    fn arm(&mut self, solicited_only: bool) -> i32 {
        let armed = if solicited_only { Armed::Solicited } else { Armed::Any };
        // The lock orders this and each push: a completion is either there for the look that follows
        // arming, or raises the event.
        if self.device.locked(|driver| driver.arm(self.id, armed)) { 0 } else { INVALID }
    }
}

impl<const QPS: usize, const DEPTH: usize, const SGES: usize, const INLINE: usize> Drop
    for CompletionQueue<'_, QPS, DEPTH, SGES, INLINE>
{
    fn drop(&mut self) {
        self.device.locked(|engine| engine.drop_queue(self.id.index));
    }
}

impl<const QPS: usize, const DEPTH: usize, const SGES: usize, const INLINE: usize> fmt::Debug
    for CompletionQueue<'_, QPS, DEPTH, SGES, INLINE>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue")
            .field("id", &self.id)
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

impl<const QPS: usize, const DEPTH: usize, const SGES: usize, const INLINE: usize>
    From<&CompletionQueue<'_, QPS, DEPTH, SGES, INLINE>> for CqId
{
    fn from(queue: &CompletionQueue<'_, QPS, DEPTH, SGES, INLINE>) -> Self {
        queue.id
    }
}

impl fmt::Display for CompletionQueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoQueue => f.write_str("the device has no completion queue left"),
            Self::NoRoom { asked, all } => {
                write!(f, "no {asked} places in a row are free, of {all}")
            }
        }
    }
}

impl core::error::Error for CompletionQueueError {}

impl Cqe {
    /// Writes the completion as the profile has it: the fields that say nothing are left as they
    /// were, or hold something on purpose.
    #[inline(always)]
    fn write(&self, wc: &mut Wc, profile: &Profile) {
        wc.wr_id = self.wr_id;
        wc.status = self.status;
        wc.qp_num = self.qp_num;
        if self.status != 0 {
            return self.write_failed(wc, profile);
        }
        if profile.zeroes_good {
            *wc = Wc { wr_id: self.wr_id, qp_num: self.qp_num, ..Wc::EMPTY };
        }
        wc.opcode = self.opcode;
        if self.opcode & wc_opcode::RECV != 0 {
            wc.byte_len = self.byte_len;
            wc.wc_flags = self.flags;
            if self.flags & (wc_flags::WITH_IMM | wc_flags::WITH_INV) != 0 {
                wc.imm_data = self.imm;
            }
            if self.src_qp != 0 {
                wc.src_qp = self.src_qp;
            }
        } else if matches!(
            self.opcode,
            wc_opcode::RDMA_READ | wc_opcode::COMP_SWAP | wc_opcode::FETCH_ADD
        ) {
            wc.byte_len = self.byte_len;
        }
        if self.flags != 0 {
            wc.wc_flags = self.flags;
        }
    }

    #[cold]
    fn write_failed(&self, wc: &mut Wc, profile: &Profile) {
        let known = Wc {
            wr_id: self.wr_id,
            status: self.status,
            qp_num: self.qp_num,
            vendor_err: VENDOR | self.status,
            ..Wc::EMPTY
        };
        match profile.failed {
            FailedFields::Zero => *wc = Wc { vendor_err: 0, ..known },
            FailedFields::Unwritten => wc.vendor_err = known.vendor_err,
            FailedFields::Rubbish => {
                *wc = Wc {
                    opcode: 0xa5a5_a5a5,
                    byte_len: 0xa5a5_a5a5,
                    imm_data: 0xa5a5_a5a5,
                    src_qp: 0xa5a5_a5a5,
                    wc_flags: 0xa5a5_a5a5,
                    pkey_index: 0xa5a5,
                    slid: 0xa5a5,
                    sl: 0xa5,
                    dlid_path_bits: 0xa5,
                    ..known
                }
            }
        }
    }
}

/// What a poll of a broken completion queue returns, as `-EIO`.
const BROKEN: i32 = -5;

/// The vendor code of a failure, beside the status.
const VENDOR: u32 = 0x8000;
