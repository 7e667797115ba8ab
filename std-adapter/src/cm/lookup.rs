//! Names to addresses.

use std::ffi::CString;
use std::fmt;
use std::net::SocketAddr;

use crate::sys::CallError;
use crate::sys::lookup::{self, LookupFailure, RawQuery};

/// What to look for: an address to listen on, or that of a peer. Which flags, port space and queue
/// pair type go together follows from the constructor.
///
/// ```no_run
/// use nanoverbs::cm::{Connector, Lookup};
///
/// for found in Lookup::connect("storage.example", "7471").run()? {
///     println!("{}", found.addr);
/// }
/// # Ok::<(), nanoverbs::cm::LookupError>(())
/// ```
///
/// A lookup blocks, for as long as the system's resolver wants. Programs that cannot wait keep
/// addresses, not names.
#[derive(Clone, Debug)]
#[doc(alias = "rdma_getaddrinfo")]
#[doc(alias = "rdma_addrinfo")]
#[must_use = "nothing is looked up until `run` is called"]
pub struct Lookup<'a> {
    node: Option<&'a str>,
    service: &'a str,
    source: Option<SocketAddr>,
    passive: bool,
    numeric: bool,
    family: Option<i32>,
    datagrams: bool,
}

/// An address that was found.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Found {
    /// The address: of the peer, or to listen on.
    pub addr: SocketAddr,
    /// The address to come from, for [`Connector::from_addr`](super::Connector::from_addr).
    pub source: Option<SocketAddr>,
    /// The full name, where the resolver gives one.
    pub name: Option<String>,
}

impl<'a> Lookup<'a> {
    const fn new(node: Option<&'a str>, service: &'a str, passive: bool) -> Self {
        Self {
            node,
            service,
            source: None,
            passive,
            numeric: false,
            family: None,
            datagrams: false,
        }
    }

    /// Addresses of `node`, to connect to. `service` is a port, or its name.
    pub const fn connect(node: &'a str, service: &'a str) -> Self {
        Self::new(Some(node), service, false)
    }

    /// Addresses to listen on, for all interfaces. `service` is a port, or its name.
    pub const fn listen(service: &'a str) -> Self {
        Self::new(None, service, true)
    }

    /// Addresses to listen on, of this machine's `node`.
    pub const fn listen_on(node: &'a str, service: &'a str) -> Self {
        Self::new(Some(node), service, true)
    }

    /// IPv4 only.
    pub const fn ipv4(mut self) -> Self {
        self.family = Some(libc::AF_INET);
        self
    }

    /// IPv6 only.
    pub const fn ipv6(mut self) -> Self {
        self.family = Some(libc::AF_INET6);
        self
    }

    /// For datagrams instead of connections.
    pub const fn datagrams(mut self) -> Self {
        self.datagrams = true;
        self
    }

    /// The node is an address in digits: nobody is asked.
    pub const fn numeric(mut self) -> Self {
        self.numeric = true;
        self
    }

    /// From this address.
    pub const fn from_addr(mut self, source: SocketAddr) -> Self {
        self.source = Some(source);
        self
    }

    /// Asks. Results that are no IP addresses are left out.
    ///
    /// # Errors
    ///
    /// [`LookupError`] tells a machine without RDMA from a name that nobody knows.
    #[doc(alias = "rdma_getaddrinfo")]
    #[doc(alias = "rdma_freeaddrinfo")]
    pub fn run(&self) -> Result<Vec<Found>, LookupError> {
        let text = |text: &str| CString::new(text).map_err(|_| LookupError::NotAName);
        let node = self.node.map(text).transpose()?;
        let service = text(self.service)?;
        let found = lookup::lookup(&RawQuery {
            node: node.as_deref(),
            service: Some(&service),
            source: self.source,
            passive: self.passive,
            numeric: self.numeric,
            family: self.family,
            datagrams: self.datagrams,
        })?;
        let of = |found: lookup::RawFound| {
            let (addr, source) = if self.passive {
                (found.source?, None)
            } else {
                (found.destination?, found.source)
            };
            Some(Found { addr, source, name: found.name })
        };
        Ok(found.into_iter().filter_map(of).collect())
    }
}

/// Nothing was found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum LookupError {
    /// A name has a zero byte in it.
    NotAName,
    /// This machine has no RDMA device, or none of them is up.
    NoRdmaDevice,
    /// The resolver does not know the name, or failed.
    Resolver {
        /// Its number, `EAI_*`.
        code: i32,
    },
    /// The kernel says no.
    Call(CallError),
}

impl From<LookupFailure> for LookupError {
    fn from(failure: LookupFailure) -> Self {
        match failure {
            LookupFailure::Call(error) if error.errno() == libc::ENODEV => Self::NoRdmaDevice,
            LookupFailure::Call(error) => Self::Call(error),
            LookupFailure::Resolver(code) => Self::Resolver { code },
        }
    }
}

impl fmt::Display for LookupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAName => f.write_str("a name cannot have a zero byte in it"),
            Self::NoRdmaDevice => f.write_str(
                "this machine has no RDMA device that could be used; `rdma link` shows those it has",
            ),
            Self::Resolver { code } => {
                write!(f, "the resolver says: {}", lookup::resolver_text(*code))
            }
            Self::Call(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for LookupError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f50_a_machine_without_rdma_is_not_told_about_flags() {
        let error = CallError::new("rdma_getaddrinfo", libc::ENODEV);
        let error = LookupError::from(LookupFailure::Call(error));
        assert_eq!(error, LookupError::NoRdmaDevice);
        assert!(error.to_string().contains("no RDMA device"), "{error}");
        let resolver = LookupError::from(LookupFailure::Resolver(libc::EAI_NONAME));
        assert!(resolver.to_string().starts_with("the resolver says: "), "{resolver}");
    }

    #[test]
    fn f51_flags_and_port_space_follow_from_the_constructor() {
        let listen = Lookup::listen("7471");
        assert!(listen.passive && listen.node.is_none() && !listen.datagrams);
        let connect = Lookup::connect("a", "7471").datagrams().ipv6();
        assert!(!connect.passive && connect.datagrams);
        assert_eq!(connect.family, Some(libc::AF_INET6));
        assert_eq!(Lookup::connect("a\0b", "1").run(), Err(LookupError::NotAName));
    }
}
