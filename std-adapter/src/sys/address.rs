//! Socket addresses, to C and back.
//!
//! Ports and IPv4 addresses are bytes in network order in memory; they are copied as bytes, never
//! computed with.

use std::mem::{MaybeUninit, size_of};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// An address as C wants it.
pub(crate) struct RawAddress(libc::sockaddr_storage, libc::socklen_t);

// Both kinds fit, so that writing one into the storage stays inside it.
const _: () = assert!(size_of::<libc::sockaddr_in6>() <= size_of::<libc::sockaddr_storage>());
const _: () = assert!(size_of::<libc::sockaddr_in>() <= size_of::<libc::sockaddr_storage>());

impl RawAddress {
    pub(crate) fn new(addr: SocketAddr) -> Self {
        // SAFETY: a socket address is integers and arrays of them: all zeros is a value.
        let mut storage = unsafe { MaybeUninit::<libc::sockaddr_storage>::zeroed().assume_init() };
        let place = &raw mut storage;
        match addr {
            SocketAddr::V4(v4) => {
                // SAFETY: the storage is large enough and aligned for every kind of address.
                let sin = unsafe { &mut *place.cast::<libc::sockaddr_in>() };
                sin.sin_family = libc::AF_INET as libc::sa_family_t;
                sin.sin_port = u16::from_ne_bytes(v4.port().to_be_bytes());
                sin.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
            }
            SocketAddr::V6(v6) => {
                // SAFETY: as above.
                let sin6 = unsafe { &mut *place.cast::<libc::sockaddr_in6>() };
                sin6.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                sin6.sin6_port = u16::from_ne_bytes(v6.port().to_be_bytes());
                sin6.sin6_flowinfo = u32::from_ne_bytes(v6.flowinfo().to_be_bytes());
                sin6.sin6_addr.s6_addr = v6.ip().octets();
                sin6.sin6_scope_id = v6.scope_id();
            }
        }
        let len = match addr {
            SocketAddr::V4(_) => size_of::<libc::sockaddr_in>(),
            SocketAddr::V6(_) => size_of::<libc::sockaddr_in6>(),
        };
        Self(storage, len as libc::socklen_t)
    }

    /// How many bytes of it count.
    pub(crate) const fn len(&self) -> libc::socklen_t {
        self.1
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        (&raw mut self.0).cast()
    }
}

/// The address in `storage`; `None` when it is neither IPv4 nor IPv6.
///
/// # Safety
///
/// `storage` is valid for reads and initialised. (`rdma_get_peer_addr` of rdma-sys gives 16 bytes,
/// too few for IPv6.)
pub(crate) unsafe fn read(storage: *const libc::sockaddr_storage) -> Option<SocketAddr> {
    // SAFETY: the caller's promise.
    let family = unsafe { (*storage).ss_family };
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: the family says what the storage holds; it is aligned for each kind.
            let sin = unsafe { &*storage.cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(sin.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be_bytes(sin.sin_port.to_ne_bytes())).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let sin6 = unsafe { &*storage.cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(sin6.sin6_addr.s6_addr);
            let port = u16::from_be_bytes(sin6.sin6_port.to_ne_bytes());
            let flow = u32::from_be_bytes(sin6.sin6_flowinfo.to_ne_bytes());
            Some(SocketAddrV6::new(ip, port, flow, sin6.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// The address of `len` bytes at `addr`; `None` when it is neither IPv4 nor IPv6, or cut short.
///
/// # Safety
///
/// Null, or so many bytes are there.
pub(crate) unsafe fn read_sized(
    addr: *const libc::sockaddr,
    len: libc::socklen_t,
) -> Option<SocketAddr> {
    // SAFETY: a socket address is integers and arrays of them: all zeros is a value.
    let mut storage = unsafe { MaybeUninit::<libc::sockaddr_storage>::zeroed().assume_init() };
    let len = usize::try_from(len).ok()?;
    if addr.is_null() || len < size_of::<libc::sa_family_t>() || len > size_of_val(&storage) {
        return None;
    }
    // SAFETY: the caller's promise; it fits.
    unsafe {
        std::ptr::copy_nonoverlapping(addr.cast::<u8>(), (&raw mut storage).cast::<u8>(), len);
    }
    let whole = match i32::from(storage.ss_family) {
        libc::AF_INET => size_of::<libc::sockaddr_in>(),
        libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
        _ => return None,
    };
    if len < whole {
        return None;
    }
    // SAFETY: a whole storage.
    unsafe { read(&raw const storage) }
}
