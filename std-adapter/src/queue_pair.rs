//! Queue pairs: made on an identifier of the connection manager, or beside one, on completion queues of our own.
//!
//! A [`QueuePair`] comes from [`Route::create_queue_pair`](crate::cm::Route::create_queue_pair) or
//! [`Request::create_queue_pair`](crate::cm::Request::create_queue_pair) and is shared by [`Arc`]:
//! whoever posts keeps a handle beside its queues, the connection keeps another. It is destroyed
//! with the last one.
//!
//! Any thread may call anything here; the ports belong to one thread each.
//!
//! Invariant: depths that are told are usable: the smaller of asked and granted. The completion
//! queues have a place for every request that fits.

use std::fmt;
use std::sync::Arc;

use nanoverbs_core::port::Datagrams;
use nanoverbs_core::{QpNum, RecvConfig, SendConfig};

use crate::cm::{CmId, ReadDepths, RnrTimer};
use crate::event::Fate;
use crate::port::{RecvPort, SendPort};
use crate::sys::cm::{Agreed, QpPlan, QpSizes, RawPeer, Space};
use crate::sys::{self, CallError, QpPtr};
use crate::trace::say;
use crate::{CompletionQueue, ProtectionDomain, Receives, SharedReceiveQueue};

mod error;
pub use error::QueuePairError;

mod view;
pub use view::{QpState, QpView};
mod options;
pub use options::QueuePairOptions;

/// A queue pair: connected, or for datagrams.
#[doc(alias = "ibv_qp")]
pub struct QueuePair {
    qp: QpPtr,
    asked: QpSizes,
    granted: QpSizes,
    send_queue: Arc<CompletionQueue>,
    recv_queue: Arc<CompletionQueue>,
    /// Outlives the queue pair.
    shared: Option<Arc<SharedReceiveQueue>>,
    domain: Arc<ProtectionDomain>,
    id: Arc<CmId>,
    space: Space,
    /// Made beside the identifier, which does not know it.
    is_apart: bool,
    fate: Arc<Fate>,
}

impl QueuePair {
    pub(crate) fn new(
        id: &Arc<CmId>,
        domain: &Arc<ProtectionDomain>,
        send_queue: &Arc<CompletionQueue>,
        receives: Receives<'_>,
        options: QueuePairOptions,
        space: Space,
    ) -> Result<Arc<Self>, QueuePairError> {
        let device = domain.device();
        device.check_process().map_err(QueuePairError::WrongProcess)?;
        let recv_queue = receives.completions();
        if id.context() != Some(device.context())
            || !Arc::ptr_eq(send_queue.device(), device)
            || !Arc::ptr_eq(recv_queue.device(), device)
        {
            return Err(QueuePairError::WrongDevice);
        }
        let QueuePairOptions { mut asked, is_apart } = options;
        if is_apart && space == Space::Datagram {
            return Err(QueuePairError::Call(CallError::new("ibv_create_qp", libc::EPROTOTYPE)));
        }
        if receives.shared().is_some() {
            // The shared queue has the places and the pieces.
            (asked.recv_depth, asked.recv_sges) = (0, 0);
        }
        let wanted = asked;
        let limits = device.limits();
        let depth = asked.send_depth.max(asked.recv_depth);
        if depth > limits.queue_depth {
            return Err(QueuePairError::TooDeep { given: depth, max: limits.queue_depth });
        }
        let sges = asked.send_sges.max(asked.recv_sges);
        if sges > limits.sges {
            return Err(QueuePairError::TooManySges { given: sges, max: limits.sges });
        }
        send_queue.reserve_sends(asked.send_depth).map_err(|have| {
            QueuePairError::CompletionQueueTooSmall { need: asked.send_depth, have }
        })?;
        if let Err(error) = reserve(recv_queue, asked.recv_depth) {
            send_queue.release_sends(asked.send_depth);
            return Err(error);
        }
        let (qp, granted) = loop {
            let plan = QpPlan {
                pd: domain.pd(),
                send_cq: send_queue.cq(),
                recv_cq: recv_queue.cq(),
                srq: receives.shared().map(|shared| shared.srq()),
                asked,
                space,
            };
            // SAFETY: all are alive and of one device, which was checked, and the queue pair will
            // hold them.
            let made = unsafe {
                match is_apart {
                    true => sys::cm::create_apart(id.raw(), plan),
                    false => sys::cm::create_qp(id.raw(), plan),
                }
            };
            match made {
                Ok(made) => break made,
                // A device has no way to say which size it minds. Inline is the one that cannot be
                // asked for beforehand.
                Err(error) if error.errno() == libc::EINVAL && asked.inline > 0 => {
                    say!(debug, "the device refuses so much inline", bytes = asked.inline);
                    asked.inline /= 2;
                }
                Err(error) => {
                    send_queue.release_sends(asked.send_depth);
                    recv_queue.release(asked.recv_depth);
                    return Err(QueuePairError::Call(error));
                }
            }
        };
        // SAFETY: the queue pair was just made.
        let number = unsafe { sys::verbs::qp_number(qp) };
        let queues = [send_queue.cq(), recv_queue.cq()];
        let fate = device.tenants().add_queue_pair(qp, id.raw(), number, queues);
        Ok(Arc::new(Self {
            qp,
            asked: wanted,
            granted,
            send_queue: Arc::clone(send_queue),
            recv_queue: Arc::clone(recv_queue),
            shared: receives.shared().cloned(),
            domain: Arc::clone(domain),
            id: Arc::clone(id),
            space,
            is_apart,
            fate,
        }))
    }

    /// Its number.
    pub fn number(&self) -> QpNum {
        // SAFETY: the queue pair lives as long as `self`.
        unsafe { sys::verbs::qp_number(self.qp) }
    }

    /// Sends in flight that may be relied on.
    pub fn send_depth(&self) -> u32 {
        self.asked.send_depth.min(self.granted.send_depth)
    }

    /// Receives in flight that may be relied on.
    pub fn recv_depth(&self) -> u32 {
        self.asked.recv_depth.min(self.granted.recv_depth)
    }

    /// Pieces in one send.
    pub fn send_sges(&self) -> u32 {
        self.asked.send_sges.min(self.granted.send_sges)
    }

    /// Pieces in one READ, for which some devices allow fewer.
    pub fn read_sges(&self) -> u32 {
        self.send_sges().min(self.domain.device().limits().read_sges)
    }

    /// Pieces in one receive.
    pub fn recv_sges(&self) -> u32 {
        self.asked.recv_sges.min(self.granted.recv_sges)
    }

    /// Bytes inline that may be relied on: the smaller of asked and granted.
    pub fn inline(&self) -> u32 {
        self.asked.inline.min(self.granted.inline)
    }

    /// Bytes inline that were asked for.
    pub const fn inline_asked(&self) -> u32 {
        self.asked.inline
    }

    /// Bytes inline that the device granted; may be more than was asked for, and less.
    pub const fn inline_granted(&self) -> u32 {
        self.granted.inline
    }

    /// Its domain: regions of this one can be used with it.
    pub const fn domain(&self) -> &Arc<ProtectionDomain> {
        &self.domain
    }

    /// The queue where its sends complete.
    pub const fn send_completions(&self) -> &Arc<CompletionQueue> {
        &self.send_queue
    }

    /// The shared queue that it takes its receives from, if it does.
    pub const fn shared_receives(&self) -> Option<&Arc<SharedReceiveQueue>> {
        self.shared.as_ref()
    }

    /// The queue where its receives complete.
    pub const fn recv_completions(&self) -> &Arc<CompletionQueue> {
        &self.recv_queue
    }

    /// What the device says of it now: a system call.
    ///
    /// # Errors
    ///
    /// What the device says instead.
    #[doc(alias = "ibv_query_qp")]
    pub fn view(&self) -> Result<QpView, CallError> {
        // SAFETY: the queue pair lives as long as `self`.
        let raw = unsafe { sys::verbs::query_qp(self.qp) }?;
        Ok(QpView {
            state: QpState::from_raw(raw.state),
            retry: raw.retry,
            rnr_retry: raw.rnr_retry,
            rnr_timer: RnrTimer::from_code(raw.min_rnr_timer),
            ack_timeout: raw.ack_timeout,
            reads: ReadDepths { reads_out: raw.reads_out, reads_in: raw.reads_in },
        })
    }

    /// Whether an event of its device has ended it, as far as events were read; see
    /// [`Device::poll_event`](crate::Device::poll_event). It is in the error state then.
    pub fn has_failed(&self) -> bool {
        self.fate.has_failed()
    }

    /// Moves it to the error state: all that is in it is flushed, and comes out of the completion
    /// queues. May be repeated.
    ///
    /// # Errors
    ///
    /// What the device says.
    #[doc(alias = "ibv_modify_qp")]
    pub fn to_error(&self) -> Result<(), CallError> {
        // SAFETY: the queue pair lives as long as `self`.
        unsafe { sys::verbs::qp_to_error(self.qp) }
    }

    /// Sets how long the peer shall wait before it tries again when no receive is posted here.
    ///
    /// # Errors
    ///
    /// What the device says; some only allow it when connected.
    pub fn set_rnr_timer(&self, timer: RnrTimer) -> Result<(), CallError> {
        // SAFETY: the queue pair lives as long as `self`.
        unsafe { sys::verbs::set_min_rnr_timer(self.qp, timer.code()) }
    }

    /// What a peer is told of it when it was made apart: its number, and whether it takes its receives from a
    /// shared queue. Of one on its identifier librdmacm knows.
    pub(crate) fn apart(&self) -> Option<(u32, bool)> {
        self.is_apart.then(|| (self.number().to_raw(), self.shared.is_some()))
    }

    /// Whether nobody but this library moves it. On iWARP the kernel moves all of them when they connect and end.
    pub(crate) fn is_moved_here(&self) -> bool {
        self.is_apart && !self.domain.device().limits().iwarp
    }

    /// Moves one that was made apart to ready. With others, librdmacm does. `reads` is what was agreed on; `None`
    /// where the connection manager has it from the peer's answer.
    pub(crate) fn make_ready(
        &self,
        rnr_timer: RnrTimer,
        reads: Option<ReadDepths>,
    ) -> Result<(), CallError> {
        if !self.is_apart {
            return Ok(());
        }
        let reads = reads.map(|reads| (reads.reads_in, reads.reads_out));
        let agreed = Agreed { min_rnr_timer: rnr_timer.code(), reads };
        // SAFETY: both live as long as `self`, which was made beside this identifier.
        unsafe { sys::cm::make_ready(self.id.raw(), self.qp, agreed) }
    }

    /// Takes part in a multicast group. Who attaches it detaches it.
    pub(crate) fn attach(&self, group: &RawPeer) -> Result<(), CallError> {
        // SAFETY: the queue pair lives as long as `self`.
        unsafe { sys::datagram::attach_mcast(self.qp, group) }
    }

    pub(crate) fn detach(&self, group: &RawPeer) {
        // A device that is gone has forgotten it.
        // SAFETY: the queue pair lives as long as `self`.
        let _ = unsafe { sys::datagram::detach_mcast(self.qp, group) };
    }

    /// The numbers for a send queue of the core's: what was granted, in this domain. READs are counted
    /// from [`Connection::reads`](crate::cm::Connection::reads) on.
    pub fn send_config(&self) -> SendConfig {
        let limits = self.domain.device().limits();
        let message = if self.is_datagram() { limits.packet } else { limits.message };
        SendConfig::new(self.domain.id())
            .depth(self.send_depth())
            .max_sges(fit(self.send_sges()), fit(self.read_sges()))
            .max_inline(u16::try_from(self.inline()).unwrap_or(u16::MAX))
            .max_message(message)
    }

    /// The numbers for a receive queue of the core's.
    pub fn recv_config(&self) -> RecvConfig {
        RecvConfig::new(self.domain.id()).depth(self.recv_depth()).max_sges(fit(self.recv_sges()))
    }

    /// Whether it is for datagrams (UD), and not for one connection.
    pub const fn is_datagram(&self) -> bool {
        matches!(self.space, Space::Datagram)
    }

    /// The way to its send queue.
    ///
    /// # Errors
    ///
    /// [`CallError`] when the device has no such way; `EPROTOTYPE` for a queue pair for datagrams, see
    /// [`datagram_send_port`](Self::datagram_send_port).
    ///
    /// # Safety
    ///
    /// Nothing is posted through the port after the last handle of this queue pair is gone, nor
    /// before it is connected: devices accept such sends and send them at some later time
    /// (`ibv_post_send(3)`). One port at a time posts. Queues over it are configured by
    /// [`send_config`](Self::send_config), whose domain is the queue pair's: devices follow the windows and
    /// addresses of a request, and those of another domain may be another device's.
    pub unsafe fn send_port(&self) -> Result<SendPort, CallError> {
        self.check(Space::Connected, "ibv_post_send")?;
        // SAFETY: the queue pair lives as long as `self`; that the port is not used longer is the
        // caller's promise.
        unsafe { sys::ops::SendOp::new(self.qp) }.map(SendPort::new)
    }

    /// The way to its receive queue; may be used at once.
    ///
    /// # Errors
    ///
    /// [`CallError`] when the device has no such way; `EPROTOTYPE` for a queue pair for datagrams,
    /// `EINVAL` for one that takes its receives from a shared queue.
    ///
    /// # Safety
    ///
    /// Nothing is posted through the port after the last handle of this queue pair is gone. One
    /// port at a time posts.
    pub unsafe fn recv_port(&self) -> Result<RecvPort, CallError> {
        self.check(Space::Connected, "ibv_post_recv")?;
        self.check_own_receives()?;
        // SAFETY: as in `send_port`.
        unsafe { sys::ops::RecvOp::new(self.qp) }.map(RecvPort::new)
    }

    /// The way to the send queue of a queue pair for datagrams; may be used at once.
    ///
    /// # Errors
    ///
    /// [`CallError`] when the device has no such way; `EPROTOTYPE` for a connected queue pair.
    ///
    /// # Safety
    ///
    /// As for [`send_port`](Self::send_port), but that it is ready at once.
    pub unsafe fn datagram_send_port(&self) -> Result<Datagrams<SendPort>, CallError> {
        self.check(Space::Datagram, "ibv_post_send")?;
        // SAFETY: as in `send_port`.
        unsafe { sys::ops::SendOp::new(self.qp) }.map(SendPort::new).map(Datagrams::new)
    }

    /// The way to the receive queue of a queue pair for datagrams; may be used at once.
    ///
    /// # Errors
    ///
    /// As for [`datagram_send_port`](Self::datagram_send_port).
    ///
    /// # Safety
    ///
    /// As for [`recv_port`](Self::recv_port).
    pub unsafe fn datagram_recv_port(&self) -> Result<Datagrams<RecvPort>, CallError> {
        self.check(Space::Datagram, "ibv_post_recv")?;
        self.check_own_receives()?;
        // SAFETY: as in `send_port`.
        unsafe { sys::ops::RecvOp::new(self.qp) }.map(RecvPort::new).map(Datagrams::new)
    }

    /// Devices differ in what they say of a receive for a queue pair that has a shared queue.
    const fn check_own_receives(&self) -> Result<(), CallError> {
        match self.shared {
            None => Ok(()),
            Some(_) => Err(CallError::new("ibv_post_recv", libc::EINVAL)),
        }
    }

    fn check(&self, space: Space, call: &'static str) -> Result<(), CallError> {
        if self.space == space { Ok(()) } else { Err(CallError::new(call, libc::EPROTOTYPE)) }
    }

    /// Destroys it, when this is the last handle; gives the handle back when another is left. From
    /// then on no device touches the memory of what was in flight.
    ///
    /// Requests that are still in it end without a completion.
    ///
    /// # Errors
    ///
    /// The handle, when it is not the last.
    #[doc(alias = "rdma_destroy_qp")]
    pub fn destroy(self: Arc<Self>) -> Result<(), Arc<Self>> {
        // There are no weak handles, so the last one cannot be copied any more.
        match Arc::try_unwrap(self) {
            Ok(last) => {
                drop(last);
                Ok(())
            }
            Err(shared) => Err(shared),
        }
    }
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair")
            .field("number", &self.number())
            .field("asked", &self.asked)
            .field("granted", &self.granted)
            .finish_non_exhaustive()
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        if self.domain.device().is_parents() {
            return;
        }
        self.domain.device().tenants().remove_queue_pair(self.qp);
        if self.is_apart {
            // SAFETY: this was the last handle, and ports are not used after that (`send_port`,
            // `recv_port`).
            unsafe { sys::cm::destroy_apart(self.qp) };
        } else {
            // SAFETY: as above; the identifier sees to it that no event of it is being fetched.
            self.id.quietly(|id| unsafe { sys::cm::destroy_qp(id) });
        }
        self.send_queue.release_sends(self.asked.send_depth);
        self.recv_queue.release(self.asked.recv_depth);
    }
}

fn reserve(queue: &CompletionQueue, slots: u32) -> Result<(), QueuePairError> {
    queue
        .reserve(slots)
        .map_err(|have| QueuePairError::CompletionQueueTooSmall { need: slots, have })
}

/// As many as a byte can say.
fn fit(number: u32) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}
