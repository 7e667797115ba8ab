//! How to listen, and why an address cannot be listened on.

use std::fmt;
use std::net::SocketAddr;

use super::{CmId, EventChannel, Listener};
use crate::sys::CallError;
use crate::sys::cm::{IdOption, Space};

/// How to listen.
///
/// ```no_run
/// use nanoverbs::cm::ListenOptions;
///
/// let addr = "[::]:7471".parse()?;
/// let listener = ListenOptions::new().ipv6_only().backlog(16).bind(addr)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "nobody listens until `bind` is called"]
pub struct ListenOptions {
    backlog: i32,
    tos: Option<u8>,
    reuse_addr: bool,
    ipv6_only: bool,
    channel: Option<EventChannel>,
}

impl ListenOptions {
    /// 128 requests may wait, on a channel of the listener's own.
    pub const fn new() -> Self {
        Self { backlog: 128, tos: None, reuse_addr: false, ipv6_only: false, channel: None }
    }

    /// So many requests may wait to be taken; further ones are refused by the kernel.
    pub const fn backlog(mut self, requests: u16) -> Self {
        self.backlog = requests as i32;
        self
    }

    /// The type of service of the connections (RFC 2474).
    #[doc(alias = "RDMA_OPTION_ID_TOS")]
    #[doc(alias = "rdma_set_option")]
    pub const fn tos(mut self, tos: u8) -> Self {
        self.tos = Some(tos);
        self
    }

    /// Also when the port is bound by somebody else who says the same, and does not listen.
    #[doc(alias = "RDMA_OPTION_ID_REUSEADDR")]
    #[doc(alias = "rdma_set_option")]
    pub const fn reuse_addr(mut self) -> Self {
        self.reuse_addr = true;
        self
    }

    /// Only IPv6 on an unspecified IPv6 address, so that another can listen for IPv4 on that port.
    #[doc(alias = "RDMA_OPTION_ID_AFONLY")]
    #[doc(alias = "rdma_set_option")]
    pub const fn ipv6_only(mut self) -> Self {
        self.ipv6_only = true;
        self
    }

    /// On `channel`, beside other steps. The requests that come in report there as well, unless they
    /// are moved ([`Request::move_to`](super::Request::move_to)); without this each has a channel of
    /// its own.
    pub fn on(mut self, channel: &EventChannel) -> Self {
        self.channel = Some(channel.clone());
        self
    }

    /// Listens on `addr`, as [`Listener::bind`] says.
    ///
    /// # Errors
    ///
    /// [`BindError`] says what is wrong with the address, or with this machine.
    #[doc(alias = "rdma_bind_addr")]
    #[doc(alias = "rdma_listen")]
    pub fn bind(self, addr: SocketAddr) -> Result<Listener, BindError> {
        let shares = self.shares();
        let (id, local) = self.bound(Space::Connected, addr)?;
        Ok(Listener::new(id, local, shares))
    }

    /// Whether a channel was given.
    pub(super) const fn shares(&self) -> bool {
        self.channel.is_some()
    }

    /// An identifier that listens.
    pub(super) fn bound(
        self,
        space: Space,
        addr: SocketAddr,
    ) -> Result<(CmId, SocketAddr), BindError> {
        let channel = match self.channel {
            Some(channel) => channel,
            None => EventChannel::new().map_err(BindError::NoConnectionManager)?,
        };
        let id = CmId::with_space(&channel, space).map_err(BindError::Call)?;
        let options = [
            self.tos.map(IdOption::Tos),
            self.reuse_addr.then_some(IdOption::ReuseAddr(true)),
            self.ipv6_only.then_some(IdOption::OneFamily(true)),
        ];
        for option in options.into_iter().flatten() {
            id.set(option).map_err(BindError::Call)?;
        }
        id.bind(addr).map_err(|error| BindError::from_call(addr, error))?;
        // An address that no device has is found by now; 127.0.0.1 counts as any address to the
        // kernel, and nothing would ever arrive on it.
        if !addr.ip().is_unspecified() && id.context().is_none() {
            return Err(BindError::NoRdmaDeviceForAddress { addr });
        }
        id.listen(self.backlog).map_err(|error| BindError::from_call(addr, error))?;
        let local = id.local_addr().unwrap_or(addr);
        Ok((id, local))
    }
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// An address cannot be listened on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum BindError {
    /// This machine has no connection manager.
    NoConnectionManager(CallError),
    /// No RDMA device has this address.
    NoRdmaDeviceForAddress {
        /// The address.
        addr: SocketAddr,
    },
    /// Somebody listens there already.
    AddressInUse {
        /// The address.
        addr: SocketAddr,
    },
    /// This machine does not have the address, or it lacks its scope, or somebody listens on its port
    /// at all addresses: the kernel has one number for these.
    NotOurAddress {
        /// The address.
        addr: SocketAddr,
    },
    /// The port is reserved for the administrator.
    NotPermitted {
        /// The address.
        addr: SocketAddr,
    },
    /// The kernel says no.
    Call(CallError),
}

impl BindError {
    pub(crate) fn from_call(addr: SocketAddr, error: CallError) -> Self {
        match error.errno() {
            libc::EADDRINUSE => Self::AddressInUse { addr },
            // Every machine has these: it is the port that somebody else has.
            libc::EADDRNOTAVAIL if addr.ip().is_unspecified() => Self::AddressInUse { addr },
            libc::ENODEV => Self::NoRdmaDeviceForAddress { addr },
            libc::EADDRNOTAVAIL | libc::EINVAL => Self::NotOurAddress { addr },
            libc::EACCES => Self::NotPermitted { addr },
            _ => Self::Call(error),
        }
    }
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoConnectionManager(error) | Self::Call(error) => error.fmt(f),
            Self::NoRdmaDeviceForAddress { addr } => no_device(f, *addr),
            Self::AddressInUse { addr } => {
                write!(f, "{addr} is in use; choose another port, or stop who listens there")
            }
            Self::NotOurAddress { addr } => write!(
                f,
                "this machine does not have the address {addr}; `ip addr` shows those it has, and \
                 a link-local address needs its interface behind a %; or somebody listens on the \
                 port at all addresses"
            ),
            Self::NotPermitted { addr } => {
                write!(f, "this user may not listen on {addr}; choose a port above 1023")
            }
        }
    }
}

impl std::error::Error for BindError {}

pub(super) fn no_device(f: &mut fmt::Formatter<'_>, addr: SocketAddr) -> fmt::Result {
    let ip = addr.ip();
    write!(f, "no RDMA device has the address {ip}; ")?;
    if ip.is_loopback() {
        f.write_str("use the address of the RDMA interface itself, also on the same machine")
    } else {
        f.write_str("`rdma link` and `ip addr` show which addresses have one")
    }
}
