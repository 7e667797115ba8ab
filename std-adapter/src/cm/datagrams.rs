//! Datagrams through the connection manager: a queue pair at an address.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use nanoverbs_core::QpNum;
use nanoverbs_core::abi::{Wc, wc_flags};

use super::group::{JoinError, Joining, Membership, Share};
use super::{
    BindError, CmId, Connector, EventKind, ListenOptions, PeerLookup, PrivateData,
    PrivateDataTooLong, RejectError, Token,
};
use crate::sys::cm::{RawParams, Space};
use crate::sys::{self, CallError};
use crate::{
    AddressHandle, CompletionQueue, Deadline, Device, ProtectionDomain, QueuePair, QueuePairError,
    QueuePairOptions, Receives,
};

/// An address for datagrams, not yet with a queue pair.
///
/// ```no_run
/// # use std::time::Duration;
/// use nanoverbs::cm::{DatagramAddress, Share};
/// use nanoverbs::{CompletionQueue, QueuePairOptions};
///
/// let address = DatagramAddress::bind("10.0.0.1:7471".parse()?)?;
/// let device = address.device().clone();
/// let queue = CompletionQueue::new(&device, 64, None)?;
/// let options = QueuePairOptions::new(32, 32);
/// let datagrams = address.create_queue_pair(&device.domain()?, &queue, &queue, options)?;
/// let deadline = Duration::from_secs(5);
/// let peer = datagrams.find("10.0.0.2:7471".parse()?, b"", deadline)?;
/// let group = datagrams.join("239.1.2.3:7471".parse()?, Share::Full, deadline)?;
/// println!("{:?} and all of {:?}", peer.remote_qp(), group.addr());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct DatagramAddress {
    id: Arc<CmId>,
    device: Arc<Device>,
    local: SocketAddr,
    shares: bool,
}

impl DatagramAddress {
    /// Takes `addr`, the address of an interface that has an RDMA device. Port 0 lets the system
    /// choose. Peers may ask for it from here on.
    ///
    /// # Errors
    ///
    /// [`BindError`] says what is wrong with the address, or with this machine.
    #[doc(alias = "rdma_bind_addr")]
    pub fn bind(addr: SocketAddr) -> Result<Self, BindError> {
        Self::bind_with(ListenOptions::new(), addr)
    }

    /// The same, with options; those for connections mean nothing here.
    ///
    /// # Errors
    ///
    /// As for [`bind`](Self::bind).
    pub fn bind_with(options: ListenOptions, addr: SocketAddr) -> Result<Self, BindError> {
        let shares = options.shares();
        let (id, local) = options.bound(Space::Datagram, addr)?;
        let id = Arc::new(id);
        let device = Device::of(&id).map_err(BindError::Call)?;
        // An unspecified address belongs to no device in particular.
        let device = device.ok_or(BindError::NoRdmaDeviceForAddress { addr })?;
        Ok(Self { id, device, local, shares })
    }

    /// The address, with the port that the system chose.
    #[doc(alias = "rdma_get_src_port")]
    pub const fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The device that has the address.
    pub const fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Makes the queue pair, ready for sends and receives. A
    /// [`SharedReceiveQueue`](crate::SharedReceiveQueue) may stand in the place of the completion queue
    /// of the receives.
    ///
    /// # Errors
    ///
    /// [`QueuePairError`] says which size or which device does not fit.
    #[doc(alias = "rdma_create_qp")]
    pub fn create_queue_pair<'r>(
        self,
        domain: &Arc<ProtectionDomain>,
        send_completions: &Arc<CompletionQueue>,
        receives: impl Into<Receives<'r>>,
        options: QueuePairOptions,
    ) -> Result<Datagrams, QueuePairError> {
        let Self { id, local, shares, .. } = self;
        let (receives, space) = (receives.into(), Space::Datagram);
        let queue_pair = QueuePair::new(&id, domain, send_completions, receives, options, space)?;
        Ok(Datagrams { queue_pair, id, local, shares })
    }
}

/// A queue pair for datagrams at an address.
///
/// Its descriptor is readable when [`poll_event`](Self::poll_event) may have something.
#[derive(Debug)]
pub struct Datagrams {
    queue_pair: Arc<QueuePair>,
    id: Arc<CmId>,
    local: SocketAddr,
    /// Whether what it starts is on its channel.
    shares: bool,
}

/// Something that happened to a [`Datagrams`].
#[derive(Debug)]
#[non_exhaustive]
pub enum DatagramEvent {
    /// A peer asks for the queue pair.
    Request(Box<DatagramRequest>),
    /// The device is being removed: drop everything that was made on it.
    DeviceRemoved,
    /// Something else.
    Other(EventKind),
}

impl Datagrams {
    /// Its name on a shared channel.
    pub fn token(&self) -> Token {
        self.id.token()
    }

    /// The address.
    #[doc(alias = "rdma_get_local_addr")]
    pub const fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The queue pair.
    pub const fn queue_pair(&self) -> &Arc<QueuePair> {
        &self.queue_pair
    }

    /// Asks `peer` for its queue pair, and blocks until it has answered. `private_data` travels along,
    /// at most [`PrivateData::MAX_ASK`] bytes.
    ///
    /// # Errors
    ///
    /// [`FindError`](super::FindError) says why there is no way there.
    #[doc(alias = "rdma_resolve_addr")]
    pub fn find(
        &self,
        peer: SocketAddr,
        private_data: &[u8],
        deadline: impl Into<Deadline>,
    ) -> Result<AddressHandle, super::FindError> {
        let deadline = deadline.into();
        self.start_find(peer, private_data, deadline)?.wait(deadline)
    }

    /// Begins to ask `peer`, and returns at once.
    ///
    /// # Errors
    ///
    /// As for [`find`](Self::find).
    pub fn start_find(
        &self,
        peer: SocketAddr,
        private_data: &[u8],
        deadline: impl Into<Deadline>,
    ) -> Result<PeerLookup, super::FindError> {
        let mut connector = Connector::new().from_addr(self.source());
        if self.shares {
            connector = connector.on(self.id.channel());
        }
        let domain = self.queue_pair.domain();
        PeerLookup::start(domain, connector, peer, private_data, deadline.into())
    }

    /// The way back to where a datagram came from: the `source` of its completion, and the header in
    /// front of it ([`Datagram::header`](nanoverbs_core::Datagram::header)). The network must have put
    /// one there, as Ethernet always does.
    ///
    /// # Errors
    ///
    /// What the device says, most often because the header is none.
    #[doc(alias = "ibv_create_ah_from_wc")]
    #[doc(alias = "ibv_init_ah_from_wc")]
    pub fn answer(&self, source: QpNum, header: &[u8; 40]) -> Result<AddressHandle, CallError> {
        /// What the connection manager gives to all queue pairs for datagrams.
        const QKEY: u32 = 0x0123_4567;
        let domain = self.queue_pair.domain();
        let port = self.id.port().max(1);
        let wc = Wc { src_qp: source.to_raw(), wc_flags: wc_flags::GRH, ..Wc::EMPTY };
        // SAFETY: the domain holds its device.
        let way = unsafe { sys::datagram::way_back(domain.device().context(), &wc, header, port) }?;
        AddressHandle::new(domain, way, source, QKEY)
    }

    /// Joins a multicast group, and blocks until it is joined.
    ///
    /// # Errors
    ///
    /// [`JoinError`].
    pub fn join(
        &self,
        group: SocketAddr,
        share: Share,
        deadline: impl Into<Deadline>,
    ) -> Result<Membership, JoinError> {
        self.start_join(group, share)?.wait(deadline)
    }

    /// Begins to join a multicast group, and returns at once.
    ///
    /// # Errors
    ///
    /// [`JoinError`].
    #[doc(alias = "rdma_join_multicast")]
    #[doc(alias = "rdma_join_multicast_ex")]
    pub fn start_join(&self, group: SocketAddr, share: Share) -> Result<Joining, JoinError> {
        let channel = self.shares.then(|| self.id.channel());
        Joining::start(channel, self.source(), group, share, &self.queue_pair)
    }

    /// Its address, for identifiers beside its own.
    fn source(&self) -> SocketAddr {
        let mut source = self.local;
        source.set_port(0);
        source
    }

    /// What has happened since the last call; `None` when nothing has. Never blocks.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    #[doc(alias = "rdma_get_cm_event")]
    pub fn poll_event(&self) -> Result<Option<DatagramEvent>, CallError> {
        let Some(event) = self.id.next_event()? else { return Ok(None) };
        Ok(Some(match (event.kind, event.request) {
            (EventKind::ConnectRequest, Some(id)) => {
                let data = event.private_data.unwrap_or(PrivateData::empty());
                DatagramEvent::Request(Box::new(DatagramRequest { id, data }))
            }
            (EventKind::DeviceRemoved, _) => {
                self.queue_pair.domain().device().note_removed();
                DatagramEvent::DeviceRemoved
            }
            (other, _) => DatagramEvent::Other(other),
        }))
    }

    /// What happens next; blocks until something does. `None` when the deadline passed first.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn wait_event(
        &self,
        deadline: impl Into<Deadline>,
    ) -> Result<Option<DatagramEvent>, CallError> {
        let deadline = deadline.into();
        loop {
            if let Some(event) = self.poll_event()? {
                return Ok(Some(event));
            }
            if !self.id.wait(deadline)? {
                return Ok(None);
            }
        }
    }
}

impl AsFd for Datagrams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.id.channel().as_fd()
    }
}

/// A peer that asks for a queue pair to send datagrams to. Dropped, it is refused.
#[derive(Debug)]
pub struct DatagramRequest {
    id: CmId,
    data: PrivateData,
}

impl DatagramRequest {
    /// What the peer sent along.
    pub const fn private_data(&self) -> &PrivateData {
        &self.data
    }

    /// Tells it the queue pair of `datagrams`. `private_data` travels along, at most
    /// [`PrivateData::MAX_TELL`] bytes.
    ///
    /// # Errors
    ///
    /// [`RejectError`]; the peer is refused then.
    #[doc(alias = "rdma_accept")]
    pub fn accept(self, datagrams: &Datagrams, private_data: &[u8]) -> Result<(), RejectError> {
        let params = RawParams {
            private_data: within(private_data, PrivateData::MAX_TELL)?,
            responder_resources: 0,
            initiator_depth: 0,
            retry_count: 0,
            rnr_retry_count: 0,
            qp_num: datagrams.queue_pair.number().to_raw(),
            has_srq: false,
        };
        // SAFETY: the identifier came with a request for datagrams.
        unsafe { self.id.accept(params) }.map_err(RejectError::Call)
    }

    /// Refuses, and says why in bytes of its own.
    ///
    /// # Errors
    ///
    /// [`RejectError`]; the peer is refused all the same.
    #[doc(alias = "rdma_reject")]
    pub fn reject(self, private_data: &[u8]) -> Result<(), RejectError> {
        let data = within(private_data, PrivateData::MAX_TELL)?;
        self.id.reject(data).map_err(RejectError::Call)
    }
}

fn within(data: &[u8], max: usize) -> Result<&[u8], RejectError> {
    if data.len() > max {
        return Err(RejectError::PrivateDataTooLong(PrivateDataTooLong { given: data.len(), max }));
    }
    Ok(data)
}
