//! Endpoints on real devices, connected through librdmacm.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use nanoverbs_core::op::BindWindow;
use nanoverbs_core::{Domain, RKey, RecvConfig, Region, SendConfig, SharedRegion};

use super::driver::sealed::{Backend, Base, Ends, Release};
use super::hub::VerbsGround;
use super::{EndpointError, Establishing, Inner, Options, Prepared, Shared, Side, WaitError};
use crate::cm::{
    Accepting, ConnectParams, Connecting, Connection, Connector, Incoming, Listener, Outgoing,
    Request, Route, Step, Token,
};
use crate::memory::{self, LocalMemory, MemoryWindow, Pages, Rights, SharedMemory, WindowError};
use crate::poller::Sources;
use crate::{
    Arm, ArmRefused, CallError, CompletionChannel, CompletionQueue, Deadline, Device,
    ProtectionDomain, QueuePair, QueuePairOptions, port, sys,
};

/// A real device behind an endpoint.
#[derive(Debug)]
pub struct Verbs {
    stage: Stage,
    queue_pair: Option<Arc<QueuePair>>,
    sent: Arc<CompletionQueue>,
    received: Arc<CompletionQueue>,
    channel: Arc<CompletionChannel>,
    base: VerbsBase,
    params: ConnectParams,
}

/// A protection domain of a real device.
#[derive(Clone, Debug)]
#[expect(unnameable_types, reason = "the sealed traits speak of it")]
pub struct VerbsBase {
    pub(super) domain: Arc<ProtectionDomain>,
}

/// How far the connection is.
#[derive(Debug)]
enum Stage {
    Outgoing(Box<Outgoing>),
    Incoming(Box<Incoming>),
    Connecting(Box<Connecting>),
    Accepting(Box<Accepting>),
    Connected(Box<Connection>),
    Over,
}

impl Options {
    /// An endpoint with a way to `peer`: post receives, then establish.
    ///
    /// # Errors
    ///
    /// [`EndpointError`] when the address leads to no RDMA device, or the device cannot have an endpoint of these sizes.
    #[doc(alias = "rdma_create_ep")]
    #[doc(alias = "rdma_resolve_addr")]
    pub fn connect<C: 'static>(
        self,
        peer: SocketAddr,
        deadline: impl Into<Deadline>,
    ) -> Result<Prepared<Verbs, C>, EndpointError> {
        self.check()?;
        self.connect_route(Connector::new().resolve(peer, deadline)?)
    }

    /// An endpoint with a way that was found before, by [`Connector::start`] for example, which does
    /// not block: post receives, then establish.
    ///
    /// # Errors
    ///
    /// [`EndpointError`] when the device cannot have an endpoint of these sizes.
    pub fn connect_route<C: 'static>(
        self,
        route: Route,
    ) -> Result<Prepared<Verbs, C>, EndpointError> {
        self.check()?;
        let parts = Parts::new(&self, route.device())?;
        let ends = parts.on_route(&self, route)?;
        parts.prepared(&self, ends)
    }

    /// An endpoint for the next peer that connects to `listener`: post receives, then establish.
    ///
    /// # Errors
    ///
    /// [`EndpointError`] when nobody comes before the deadline, or the device cannot have an endpoint of these sizes.
    #[doc(alias = "rdma_get_request")]
    pub fn accept<C: 'static>(
        self,
        listener: &Listener,
        deadline: impl Into<Deadline>,
    ) -> Result<Prepared<Verbs, C>, EndpointError> {
        self.check()?;
        self.accept_request(listener.accept(deadline)?)
    }

    /// An endpoint for a peer that asked to be connected: post receives, then establish.
    ///
    /// # Errors
    ///
    /// [`EndpointError`] when the device cannot have an endpoint of these sizes; the peer is refused then.
    pub fn accept_request<C: 'static>(
        self,
        request: Request,
    ) -> Result<Prepared<Verbs, C>, EndpointError> {
        self.check()?;
        let parts = Parts::new(&self, request.device())?;
        let ends = parts.on_request(&self, request)?;
        parts.prepared(&self, ends)
    }
}

impl<C: 'static> Prepared<Verbs, C> {
    /// Bytes that travel with the request or its answer, instead of those of the options: what they
    /// name, memory of this endpoint for example, exists only now. How many can is checked by
    /// [`Ready::establish`](super::Ready::establish).
    pub fn send_along(&mut self, private_data: &[u8]) {
        self.0.pair.driver.send_along(private_data);
    }
}

impl<C: 'static> Establishing<Verbs, C> {
    /// Its name on a shared channel: that of its route or its request.
    pub fn token(&self) -> Option<Token> {
        self.0.pair.driver.token()
    }
}

/// Readable when [`poll`](Establishing::poll) may get further.
impl<C: 'static> AsFd for Establishing<Verbs, C> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0.pair.driver.stage {
            Stage::Connecting(step) => step.as_fd(),
            Stage::Accepting(step) => step.as_fd(),
            Stage::Connected(connection) => connection.as_fd(),
            // It has failed, and there is nothing to wait for but completions.
            Stage::Outgoing(_) | Stage::Incoming(_) | Stage::Over => {
                self.0.pair.driver.channel.as_fd()
            }
        }
    }
}

impl Verbs {
    /// Its name on a shared channel; `None` when it has failed.
    pub(super) fn token(&self) -> Option<Token> {
        match &self.stage {
            Stage::Outgoing(step) => Some(step.token()),
            Stage::Incoming(step) => Some(step.token()),
            Stage::Connecting(step) => Some(step.token()),
            Stage::Accepting(step) => Some(step.token()),
            Stage::Connected(connection) => Some(connection.token()),
            Stage::Over => None,
        }
    }

    pub(super) fn send_along(&mut self, private_data: &[u8]) {
        self.params = self.params.private_data(private_data);
    }

    /// The connection stands; says how many READs may be outstanding.
    fn stands(&mut self, connection: Connection) -> u8 {
        let reads = connection.reads().reads_out;
        self.stage = Stage::Connected(Box::new(connection));
        reads
    }

    /// Nothing was started, or it is done.
    fn not_under_way(&mut self, stage: Stage) -> EndpointError {
        self.stage = stage;
        CallError::new("rdma_connect", libc::EISCONN).into()
    }
}

/// What a queue pair is made of.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) base: VerbsBase,
    pub(super) channel: Arc<CompletionChannel>,
    pub(super) sent: Arc<CompletionQueue>,
    pub(super) received: Arc<CompletionQueue>,
}

impl Parts {
    fn new(options: &Options, device: &Arc<Device>) -> Result<Self, EndpointError> {
        let channel = CompletionChannel::new(device)?;
        Ok(Self {
            base: VerbsBase { domain: device.domain()? },
            sent: CompletionQueue::new(device, options.send_depth, Some(&channel))?,
            received: CompletionQueue::new(device, options.recv_depth, Some(&channel))?,
            channel,
        })
    }

    /// A queue pair for a peer that will be asked.
    pub(super) fn on_route(
        &self,
        options: &Options,
        route: Route,
    ) -> Result<Ends<Verbs>, EndpointError> {
        let (domain, sizes) = (&self.base.domain, sizes(options));
        let pending = route.create_queue_pair(domain, &self.sent, &self.received, sizes)?;
        let queue_pair = Arc::clone(pending.queue_pair());
        self.ends(options, Stage::Outgoing(Box::new(pending)), queue_pair)
    }

    /// A queue pair for a peer that asked.
    pub(super) fn on_request(
        &self,
        options: &Options,
        request: Request,
    ) -> Result<Ends<Verbs>, EndpointError> {
        let (domain, sizes) = (&self.base.domain, sizes(options));
        let pending = request.create_queue_pair(domain, &self.sent, &self.received, sizes)?;
        let queue_pair = Arc::clone(pending.queue_pair());
        self.ends(options, Stage::Incoming(Box::new(pending)), queue_pair)
    }

    fn ends(
        &self,
        options: &Options,
        stage: Stage,
        queue_pair: Arc<QueuePair>,
    ) -> Result<Ends<Verbs>, EndpointError> {
        // SAFETY: the ports go into the queues of an endpoint or of a hub's member, which end before their
        // driver lets go of the queue pair, and which refuse sends until the connection stands.
        let (send, recv) = unsafe { (queue_pair.send_port()?, queue_pair.recv_port()?) };
        let inline = queue_pair.inline();
        let driver = Verbs {
            stage,
            queue_pair: Some(queue_pair),
            sent: Arc::clone(&self.sent),
            received: Arc::clone(&self.received),
            channel: Arc::clone(&self.channel),
            base: self.base.clone(),
            params: options.params,
        };
        Ok(Ends { driver, send, recv, inline })
    }

    fn prepared<C: 'static>(
        self,
        options: &Options,
        ends: Ends<Verbs>,
    ) -> Result<Prepared<Verbs, C>, EndpointError> {
        let (sent, received) = (poll_port(&self.sent)?, poll_port(&self.received)?);
        Inner::new(ends, sent, received, options).map(Prepared)
    }
}

fn sizes(options: &Options) -> QueuePairOptions {
    let sizes = QueuePairOptions::new(options.send_depth, options.recv_depth)
        .sges(options.sges.into(), options.sges.into())
        .inline(options.inline);
    if options.is_apart { sizes.apart() } else { sizes }
}

/// The way to poll a completion queue that nobody else polls.
pub(super) fn poll_port(queue: &Arc<CompletionQueue>) -> Result<port::PollPort, EndpointError> {
    Ok(queue.poll_port().map_err(|_| CallError::new("ibv_poll_cq", libc::EBUSY))?)
}

// SAFETY: `destroy` says true only after `ibv_destroy_qp` was called for the last handle: then no
// device touches the memory of its requests.
unsafe impl Backend for Verbs {
    type SendPort = port::SendPort;
    type RecvPort = port::RecvPort;
    type PollPort = port::PollPort;
    type Base = VerbsBase;
    type Ground = VerbsGround;
    type Request = Request;

    fn base(&self) -> &VerbsBase {
        &self.base
    }

    fn configs(&self) -> (SendConfig, RecvConfig) {
        let (sends, recvs) =
            (SendConfig::new(self.base.domain.id()), RecvConfig::new(self.base.domain.id()));
        let Some(qp) = &self.queue_pair else { return (sends.depth(0), recvs.depth(0)) };
        (qp.send_config(), qp.recv_config())
    }

    fn start(&mut self) -> Result<(), EndpointError> {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Outgoing(pending) => Stage::Connecting(Box::new(pending.start(&self.params)?)),
            Stage::Incoming(pending) => Stage::Accepting(Box::new(pending.start(&self.params)?)),
            stage => stage,
        };
        Ok(())
    }

    fn poll_established(&mut self) -> Result<Option<u8>, EndpointError> {
        let connection = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Connecting(step) => match step.poll()? {
                Step::Done(connection) => connection,
                Step::Pending(step) => {
                    self.stage = Stage::Connecting(Box::new(step));
                    return Ok(None);
                }
            },
            Stage::Accepting(step) => match step.poll()? {
                Step::Done(connection) => connection,
                Step::Pending(step) => {
                    self.stage = Stage::Accepting(Box::new(step));
                    return Ok(None);
                }
            },
            stage => return Err(self.not_under_way(stage)),
        };
        Ok(Some(self.stands(connection)))
    }

    fn wait_established(&mut self, deadline: Deadline) -> Result<u8, EndpointError> {
        let connection = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Connecting(step) => step.wait(deadline)?,
            Stage::Accepting(step) => step.wait(deadline)?,
            stage => return Err(self.not_under_way(stage)),
        };
        Ok(self.stands(connection))
    }

    fn private_data(&self) -> &[u8] {
        match &self.stage {
            Stage::Incoming(pending) => pending.request().private_data().as_bytes(),
            Stage::Connected(connection) => {
                connection.private_data().map_or(&[], |data| data.as_bytes())
            }
            Stage::Accepting(step) => step.private_data().as_bytes(),
            Stage::Outgoing(_) | Stage::Connecting(_) | Stage::Over => &[],
        }
    }

    fn disconnect(&mut self) {
        let told = match &self.stage {
            Stage::Connected(connection) => connection.disconnect().is_ok(),
            _ => false,
        };
        if let (false, Some(queue_pair)) = (told, &self.queue_pair) {
            // A device that refuses this as well is gone; `destroy` says so.
            let _ = queue_pair.to_error();
        }
    }

    fn ended(&mut self) -> Option<WaitError> {
        let Stage::Connected(connection) = &self.stage else { return Some(WaitError::Broken) };
        while let Ok(Some(_)) = connection.poll_event() {}
        // What the device has to say may end it as well; the events stay for who asks for them.
        let _ = self.base.domain.device().look();
        if connection.said_goodbye() {
            return Some(WaitError::Disconnected);
        }
        let is_broken = connection.has_ended()
            || connection.queue_pair().has_failed()
            || self.sent.has_failed()
            || self.received.has_failed();
        is_broken.then_some(WaitError::Broken)
    }

    fn arm(&mut self, side: Side) -> Result<(), CallError> {
        self.channel.drain()?;
        let queue = match side {
            Side::Send => &self.sent,
            Side::Recv => &self.received,
        };
        queue.arm(Arm::Any).map_err(|refused| match refused {
            ArmRefused::Call(error) => error,
            // The queues of an endpoint have a channel.
            _ => CallError::new("ibv_req_notify_cq", libc::EINVAL),
        })
    }

    fn sleep(&mut self, deadline: Deadline) -> Result<(), CallError> {
        match &self.stage {
            Stage::Connected(connection) if !connection.has_ended() => {
                let device = self.base.domain.device().as_fd();
                let fds = [self.channel.as_fd(), connection.as_fd(), device];
                sys::wait_readable(fds, deadline).map(drop)
            }
            _ => sys::wait_readable([self.channel.as_fd()], deadline).map(drop),
        }
    }

    fn sources<'s>(&'s self, sources: &mut Sources<'s>) {
        sources.add(self.channel.as_fd());
        match &self.stage {
            Stage::Connected(connection) if !connection.has_ended() => {
                sources.add(connection.as_fd());
            }
            _ => {}
        }
    }

    fn destroy(&mut self) -> bool {
        self.stage = Stage::Over;
        match self.queue_pair.take().map(QueuePair::destroy) {
            Some(Err(queue_pair)) => {
                self.queue_pair = Some(queue_pair);
                false
            }
            Some(Ok(())) | None => true,
        }
    }
}

impl Base for VerbsBase {
    type Window = MemoryWindow;

    fn belongs_here(&self) -> bool {
        !self.domain.device().is_parents()
    }

    fn device_name(&self) -> String {
        self.domain.device().name().to_owned()
    }

    fn domain(&self) -> Domain {
        self.domain.id()
    }

    fn register(&self, pages: Pages) -> Result<(Region, Release<Region>), EndpointError> {
        let memory = LocalMemory::register(pages, &self.domain).map_err(|error| error.cause)?;
        let release: Release<Region> = Box::new(|region| drop(memory::release(region)));
        Ok((memory.into_region(), release))
    }

    fn share(&self, pages: Pages, rights: Rights) -> Result<Shared, EndpointError> {
        let memory =
            SharedMemory::register(pages, &self.domain, rights).map_err(|error| error.cause)?;
        let release: Release<SharedRegion> =
            Box::new(|region| drop(memory::release_shared(region)));
        Ok(Shared::new(memory.into_region(), release))
    }

    fn window(&self) -> Result<MemoryWindow, EndpointError> {
        Ok(MemoryWindow::new(&self.domain)?)
    }

    unsafe fn bind(
        window: &mut MemoryWindow,
        shared: &Shared,
        offset: usize,
        len: usize,
        rights: Rights,
    ) -> Result<BindWindow, WindowError> {
        // SAFETY: the caller's promise: both are borrowed until the request has been posted.
        unsafe { window.bind_kept(shared, offset, len, rights) }
    }

    fn opened(window: &mut MemoryWindow, key: RKey) {
        window.opened(key);
    }
}
