//! Endpoints on the soft device: both ends in one process, no hardware and no C library.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nanoverbs_core::op::BindWindow;
use nanoverbs_core::{Domain, RKey, RecvConfig, Region, SendConfig, SharedRegion, soft};

use super::driver::sealed::{Backend, Release};
use super::{DEPTH, EndpointError, Inner, Options, Prepared, SGES, Shared, Side, WaitError};
use crate::memory::{Pages, Rights, WindowError};
use crate::poller::Sources;
use crate::{CallError, Deadline};

/// Bytes that the soft device takes inline at most.
const INLINE: usize = 256;

/// How long a thread may sleep without looking.
const NAP: Duration = Duration::from_micros(100);

/// READs that may be outstanding, either way.
const READS: u8 = 16;

/// A soft device for endpoints: one pair of them at a time. Place it in a `static`.
pub type SoftDevice = soft::Device<2, DEPTH, SGES, INLINE>;

type QueuePair = soft::QueuePair<'static, 2, DEPTH, SGES, INLINE>;
type Control = soft::Control<'static, 2, DEPTH, SGES, INLINE>;
type CompletionQueue = soft::CompletionQueue<'static, 2, DEPTH, SGES, INLINE>;

/// The soft device behind an endpoint.
#[derive(Debug)]
pub struct Soft {
    device: &'static SoftDevice,
    control: Option<Control>,
    caps: soft::Caps,
    domain: Domain,
    /// One of a pair has disconnected: what the connection manager tells the peer of a real one.
    ended: Arc<AtomicBool>,
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
        let domain = device.domain();
        let (a, b) = (made(&self, device, domain)?, made(&self, device, domain)?);
        a.0.control.connect(&b.0.control)?;
        let ended = Arc::new(AtomicBool::new(false));
        let a = prepared(&self, device, domain, a, Arc::clone(&ended))?;
        Ok([a, prepared(&self, device, domain, b, ended)?])
    }
}

type Made = (QueuePair, CompletionQueue, CompletionQueue);

fn made(
    options: &Options,
    device: &'static SoftDevice,
    domain: Domain,
) -> Result<Made, EndpointError> {
    let sent = device.completion_queue(options.send_depth as usize)?;
    let received = device.completion_queue(options.recv_depth as usize)?;
    let config = soft::QpConfig::new(domain)
        .send_depth(options.send_depth)
        .recv_depth(options.recv_depth)
        .sges(options.sges.into())
        .inline(options.inline.min(INLINE as u32))
        .rnr_retry(options.soft_rnr_retry)
        .read_depth(READS.into())
        .responder_depth(READS.into())
        .access(
            Rights::READ_SOURCE.and(Rights::WRITE_TARGET).and(Rights::ATOMIC_TARGET).access(false),
        );
    Ok((device.queue_pair(config, &sent, &received)?, sent, received))
}

fn prepared<C: 'static>(
    options: &Options,
    device: &'static SoftDevice,
    domain: Domain,
    (queue_pair, sent, received): Made,
    ended: Arc<AtomicBool>,
) -> Result<Prepared<Soft, C>, EndpointError> {
    let soft::QueuePair { send, recv, control } = queue_pair;
    let caps = control.caps();
    let driver = Soft { device, control: Some(control), caps, domain, ended };
    Inner::new(driver, send, recv, sent, received, options, caps.inline).map(Prepared)
}

// SAFETY: a soft queue pair that was destroyed is never looked at again, and `destroy` drops the
// control, which destroys it under the engine's lock.
unsafe impl Backend for Soft {
    type SendPort = soft::SendEnd<'static, DEPTH, SGES, INLINE>;
    type RecvPort = soft::RecvEnd<'static, DEPTH, SGES, INLINE>;
    type PollPort = CompletionQueue;
    type Window = soft::Window<'static, 2, DEPTH, SGES, INLINE>;

    fn device_name(&self) -> String {
        "soft".to_owned()
    }

    fn domain(&self) -> Domain {
        self.domain
    }

    fn configs(&self) -> (SendConfig, RecvConfig) {
        let sges = self.caps.sges.min(u8::MAX.into()) as u8;
        let sends = SendConfig::new(self.domain)
            .depth(self.caps.send_depth)
            .max_sges(sges, sges)
            .max_inline(self.caps.inline.min(u16::MAX.into()) as u16);
        let recvs = RecvConfig::new(self.domain).depth(self.caps.recv_depth).max_sges(sges);
        (sends, recvs)
    }

    fn register(&mut self, pages: Pages) -> Result<(Region, Release<Region>), EndpointError> {
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

    fn share(&mut self, pages: Pages, rights: Rights) -> Result<Shared, EndpointError> {
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

    fn window(&mut self) -> Result<Self::Window, EndpointError> {
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
