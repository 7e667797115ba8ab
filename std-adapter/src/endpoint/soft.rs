//! Endpoints on the soft device: both ends in one process, no hardware and no C library.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nanoverbs_core::op::BindWindow;
use nanoverbs_core::{Domain, RKey, RecvConfig, Region, SendConfig, SharedRegion, soft};

use super::driver::sealed::{Backend, Base, Ends, Release};
use super::hub::{SoftGround, SoftRequest};
use super::{DEPTH, EndpointError, Inner, Options, Prepared, SGES, Shared, Side, WaitError};
use crate::memory::{Pages, Rights, WindowError};
use crate::poller::Sources;
use crate::{CallError, Deadline};

/// Bytes that the soft device takes inline at most.
const INLINE: usize = 256;

/// How long a thread may sleep without looking.
pub(super) const NAP: Duration = Duration::from_micros(100);

/// READs that may be outstanding, either way.
const READS: u8 = 16;

/// A soft device for endpoints: one pair of them at a time, or as many queue pairs as it says, for a hub and
/// its peers. Place it in a `static`.
pub type SoftDevice<const QPS: usize = 2> = soft::Device<QPS, DEPTH, SGES, INLINE>;

pub(super) type QueuePair<const QPS: usize> = soft::QueuePair<'static, QPS, DEPTH, SGES, INLINE>;
type Control<const QPS: usize> = soft::Control<'static, QPS, DEPTH, SGES, INLINE>;
pub(super) type CompletionQueue<const QPS: usize> =
    soft::CompletionQueue<'static, QPS, DEPTH, SGES, INLINE>;

/// The soft device behind an endpoint, with room for so many queue pairs.
#[derive(Debug)]
pub struct Soft<const QPS: usize = 2> {
    base: SoftBase<QPS>,
    control: Option<Control<QPS>>,
    caps: soft::Caps,
    /// One of a pair has disconnected: what the connection manager tells the peer of a real one.
    ended: Arc<AtomicBool>,
}

/// A soft device and a protection domain.
#[derive(Clone, Copy, Debug)]
#[expect(unnameable_types, reason = "the sealed traits speak of it")]
pub struct SoftBase<const QPS: usize> {
    pub(super) device: &'static SoftDevice<QPS>,
    pub(super) domain: Domain,
}

impl Options {
    /// Two endpoints on `device`, connected to each other. Use them on one thread or on two.
    ///
    /// # Errors
    ///
    /// [`EndpointError`] when a size is out of range, or the device has a pair of endpoints already and so no
    /// completion queue left.
    pub fn soft_pair<C: 'static>(
        self,
        device: &'static SoftDevice,
    ) -> Result<[Prepared<Soft, C>; 2], EndpointError> {
        self.check()?;
        let base = SoftBase { device, domain: device.domain() };
        let (a, b) = (base.queues(&self)?, base.queues(&self)?);
        let ended = Arc::new(AtomicBool::new(false));
        let a_pair = base.queue_pair(&self, (&a.0).into(), (&a.1).into())?;
        let b_pair = base.queue_pair(&self, (&b.0).into(), (&b.1).into())?;
        a_pair.control.connect(&b_pair.control)?;
        let a = prepared(&self, base.ends(a_pair, Arc::clone(&ended)), a)?;
        Ok([a, prepared(&self, base.ends(b_pair, ended), b)?])
    }
}

/// For sends and for receives.
pub(super) type Queues<const QPS: usize> = (CompletionQueue<QPS>, CompletionQueue<QPS>);

impl<const QPS: usize> SoftBase<QPS> {
    /// Completion queues for one endpoint.
    pub(super) fn queues(&self, options: &Options) -> Result<Queues<QPS>, EndpointError> {
        let sent = self.device.completion_queue(options.send_depth as usize)?;
        Ok((sent, self.device.completion_queue(options.recv_depth as usize)?))
    }

    /// A queue pair on these completion queues.
    pub(super) fn queue_pair(
        &self,
        options: &Options,
        sent: soft::CqId,
        received: soft::CqId,
    ) -> Result<QueuePair<QPS>, EndpointError> {
        let rights = Rights::READ_SOURCE.and(Rights::WRITE_TARGET).and(Rights::ATOMIC_TARGET);
        let config = soft::QpConfig::new(self.domain)
            .send_depth(options.send_depth)
            .recv_depth(options.recv_depth)
            .sges(options.sges.into())
            .inline(options.inline.min(INLINE as u32))
            .rnr_retry(options.soft_rnr_retry)
            .read_depth(READS.into())
            .responder_depth(READS.into())
            .access(rights.access(false));
        Ok(self.device.queue_pair(config, sent, received)?)
    }

    /// The queue pair as an endpoint has it.
    pub(super) fn ends(
        self,
        queue_pair: QueuePair<QPS>,
        ended: Arc<AtomicBool>,
    ) -> Ends<Soft<QPS>> {
        let soft::QueuePair { send, recv, control } = queue_pair;
        let caps = control.caps();
        let driver = Soft { base: self, control: Some(control), caps, ended };
        Ends { driver, send, recv, inline: caps.inline }
    }
}

/// An endpoint of all that.
pub(super) fn prepared<C: 'static, const QPS: usize>(
    options: &Options,
    ends: Ends<Soft<QPS>>,
    (sent, received): Queues<QPS>,
) -> Result<Prepared<Soft<QPS>, C>, EndpointError> {
    Inner::new(ends, sent, received, options).map(Prepared)
}

// SAFETY: a soft queue pair that was destroyed is never looked at again, and `destroy` drops the
// control, which destroys it under the engine's lock.
unsafe impl<const QPS: usize> Backend for Soft<QPS> {
    type SendPort = soft::SendEnd<'static, DEPTH, SGES, INLINE>;
    type RecvPort = soft::RecvEnd<'static, DEPTH, SGES, INLINE>;
    type PollPort = CompletionQueue<QPS>;
    type Base = SoftBase<QPS>;
    type Ground = SoftGround<QPS>;
    type Request = SoftRequest<QPS>;

    fn base(&self) -> &SoftBase<QPS> {
        &self.base
    }

    fn configs(&self) -> (SendConfig, RecvConfig) {
        let sges = self.caps.sges.min(u8::MAX.into()) as u8;
        let sends = SendConfig::new(self.base.domain)
            .depth(self.caps.send_depth)
            .max_sges(sges, sges)
            .max_inline(self.caps.inline.min(u16::MAX.into()) as u16);
        let recvs = RecvConfig::new(self.base.domain).depth(self.caps.recv_depth).max_sges(sges);
        (sends, recvs)
    }

    fn start(&mut self) -> Result<(), EndpointError> {
        Ok(())
    }

    fn poll_established(&mut self) -> Result<Option<u8>, EndpointError> {
        Ok(Some(READS))
    }

    fn wait_established(&mut self, _: Deadline) -> Result<u8, EndpointError> {
        Ok(READS)
    }

    fn private_data(&self) -> &[u8] {
        &[]
    }

    fn disconnect(&mut self) {
        // Relaxed: it says nothing about other memory.
        self.ended.store(true, Ordering::Relaxed);
        if let Some(control) = &self.control {
            control.disconnect();
        }
    }

    fn ended(&mut self) -> Option<WaitError> {
        let Some(control) = &self.control else { return Some(WaitError::Broken) };
        // Relaxed: as in `disconnect`.
        if self.ended.load(Ordering::Relaxed) {
            // As on a real device: the peer's end leaves this queue pair as it was, and its receives
            // in it.
            control.disconnect();
            return Some(WaitError::Disconnected);
        }
        (control.state() == soft::State::Error).then_some(WaitError::Broken)
    }

    fn arm(&mut self, _: Side) -> Result<(), CallError> {
        Ok(())
    }

    fn sleep(&mut self, _: Deadline) -> Result<(), CallError> {
        std::thread::yield_now();
        Ok(())
    }

    fn sources<'s>(&'s self, sources: &mut Sources<'s>) {
        // The soft device raises no events; and it may be this thread that has to drive it.
        sources.at_most(NAP);
    }

    fn destroy(&mut self) -> bool {
        self.control = None;
        true
    }
}

impl<const QPS: usize> Base for SoftBase<QPS> {
    type Window = soft::Window<'static, QPS, DEPTH, SGES, INLINE>;

    fn device_name(&self) -> String {
        "soft".to_owned()
    }

    fn domain(&self) -> Domain {
        self.domain
    }

    fn register(&self, pages: Pages) -> Result<(Region, Release<Region>), EndpointError> {
        let device = self.device;
        let (addr, len) = pages.into_raw();
        // SAFETY: the pages were given up for good, so nobody else has them; they are mapped and
        // zero.
        let memory = unsafe { std::slice::from_raw_parts_mut(addr.as_ptr(), len) };
        let region = match device.register(self.domain, memory) {
            Ok(region) => region,
            Err(error) => {
                // SAFETY: the device did not take them.
                drop(unsafe { Pages::from_raw(addr, len) });
                return Err(error.into());
            }
        };
        let release: Release<Region> = Box::new(move |region| {
            if let Ok(memory) = device.take_back(region) {
                // SAFETY: these are the pages given up above, and the device has forgotten them.
                drop(unsafe { Pages::from_raw(std::ptr::NonNull::from(memory).cast(), len) });
            }
        });
        Ok((region, release))
    }

    fn share(&self, pages: Pages, rights: Rights) -> Result<Shared, EndpointError> {
        let device = self.device;
        let (addr, len) = pages.into_raw();
        // SAFETY: as in `register`; whole pages are aligned and a multiple of eight bytes.
        let memory = unsafe { std::slice::from_raw_parts_mut(addr.cast().as_ptr(), len / 8) };
        let region = match device.register_shared(self.domain, memory, rights.access(false)) {
            Ok(region) => region,
            Err(error) => {
                // SAFETY: the device did not take them.
                drop(unsafe { Pages::from_raw(addr, len) });
                return Err(error.into());
            }
        };
        let release: Release<SharedRegion> = Box::new(move |region| {
            if let Ok(memory) = device.take_back_shared(region) {
                // SAFETY: these are the pages given up above, and the device has forgotten them.
                drop(unsafe { Pages::from_raw(std::ptr::NonNull::from(memory).cast(), len) });
            }
        });
        Ok(Shared::new(region, release))
    }

    fn window(&self) -> Result<Self::Window, EndpointError> {
        Ok(self.device.window(self.domain)?)
    }

    unsafe fn bind(
        window: &mut Self::Window,
        shared: &Shared,
        offset: usize,
        len: usize,
        rights: Rights,
    ) -> Result<BindWindow, WindowError> {
        WindowError::check(shared.registration().access)?;
        let access = rights.of_window();
        window.bind(shared, offset, len, access).map_err(|error| match error {
            soft::WindowError::OutOfRegion(error) => WindowError::OutOfRegion(error),
            _ => WindowError::NoWindows { has: shared.registration().access },
        })
    }

    fn opened(_: &mut Self::Window, _: RKey) {}
}
