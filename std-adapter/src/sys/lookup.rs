//! Names to addresses: `rdma_getaddrinfo`.

use std::ffi::{CStr, c_char, c_int};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::ptr;

use super::address::{self, RawAddress};
use super::{CallError, errno, ffi};

/// What to look for.
pub(crate) struct RawQuery<'a> {
    pub(crate) node: Option<&'a CStr>,
    pub(crate) service: Option<&'a CStr>,
    pub(crate) source: Option<SocketAddr>,
    pub(crate) passive: bool,
    pub(crate) numeric: bool,
    pub(crate) family: Option<c_int>,
    pub(crate) datagrams: bool,
}

/// One result.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct RawFound {
    pub(crate) source: Option<SocketAddr>,
    pub(crate) destination: Option<SocketAddr>,
    pub(crate) name: Option<String>,
}

/// Why there is none: −1 with `errno`, or a number of the resolver's. `gai_strerror` knows only the
/// latter, and calls the former a bad `ai_flags`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LookupFailure {
    Call(CallError),
    Resolver(c_int),
}

/// Whether the resolver failed, and how.
fn outcome(ret: c_int) -> Result<(), LookupFailure> {
    const CALL: &str = "rdma_getaddrinfo";
    match ret {
        0 => Ok(()),
        -1 => Err(LookupFailure::Call(CallError::new(CALL, errno()))),
        libc::EAI_SYSTEM => Err(LookupFailure::Call(CallError::new(CALL, errno()))),
        other => Err(LookupFailure::Resolver(other)),
    }
}

/// Asks, and blocks until the resolver has answered.
pub(crate) fn lookup(query: &RawQuery<'_>) -> Result<Vec<RawFound>, LookupFailure> {
    const PASSIVE: c_int = 1;
    const NUMERIC_HOST: c_int = 2;
    const NO_ROUTE: c_int = 4;
    const FAMILY: c_int = 8;
    // SAFETY: a structure of integers and pointers: all zeros is a value.
    let mut hints = unsafe { MaybeUninit::<ffi::rdma_addrinfo>::zeroed().assume_init() };
    // A route is found when the connection is made.
    hints.ai_flags = NO_ROUTE
        | if query.passive { PASSIVE } else { 0 }
        | if query.numeric { NUMERIC_HOST } else { 0 }
        | if query.family.is_some() { FAMILY } else { 0 };
    hints.ai_family = query.family.unwrap_or(0);
    let (qp_type, space) = if query.datagrams {
        (ffi::ibv_qp_type::IBV_QPT_UD, ffi::rdma_port_space::RDMA_PS_UDP)
    } else {
        (ffi::ibv_qp_type::IBV_QPT_RC, ffi::rdma_port_space::RDMA_PS_TCP)
    };
    hints.ai_qp_type = qp_type.cast_signed();
    hints.ai_port_space = space.cast_signed();
    let mut source = query.source.map(RawAddress::new);
    if let Some(source) = &mut source {
        hints.ai_src_addr = source.as_mut_ptr();
        hints.ai_src_len = source.len();
    }
    let text = |text: Option<&CStr>| text.map_or(ptr::null(), CStr::as_ptr);
    let mut list: *mut ffi::rdma_addrinfo = ptr::null_mut();
    // SAFETY: names end with a zero or are null, the hints are whole, and `list` is a place for a
    // pointer; all are read during the call only.
    outcome(unsafe {
        ffi::rdma_getaddrinfo(
            text(query.node),
            text(query.service),
            &raw const hints,
            &raw mut list,
        )
    })?;
    let mut found = Vec::new();
    let mut next = list;
    // SAFETY: the list is the resolver's, and was not freed yet.
    while let Some(info) = unsafe { next.as_ref() } {
        // SAFETY: a result's addresses and names live as long as the list.
        let of = |addr, len| unsafe { address::read_sized(addr, len) };
        let result = RawFound {
            source: of(info.ai_src_addr, info.ai_src_len),
            destination: of(info.ai_dst_addr, info.ai_dst_len),
            // SAFETY: as above.
            name: unsafe { name(info.ai_dst_canonname) }
                // SAFETY: as above.
                .or_else(|| unsafe { name(info.ai_src_canonname) }),
        };
        // InfiniBand's own addresses are none that a peer on IP could be asked for.
        if result.source.is_some() || result.destination.is_some() {
            found.push(result);
        }
        next = info.ai_next;
    }
    if !list.is_null() {
        // SAFETY: it came from `rdma_getaddrinfo`, and nothing of it is used any more.
        unsafe { ffi::rdma_freeaddrinfo(list) };
    }
    Ok(found)
}

/// # Safety
///
/// Null, or a C string.
unsafe fn name(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// What the resolver says of one of its numbers.
pub(crate) fn resolver_text(code: c_int) -> String {
    // SAFETY: any number is allowed; the text is static.
    let text = unsafe { libc::gai_strerror(code) };
    if text.is_null() {
        return String::new();
    }
    // SAFETY: a C string that lives for ever.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f50_minus_one_is_an_error_number_and_the_rest_are_the_resolvers() {
        // SAFETY: the calling thread's own errno.
        unsafe { *libc::__errno_location() = libc::ENODEV };
        let call = CallError::new("rdma_getaddrinfo", libc::ENODEV);
        assert_eq!(outcome(-1), Err(LookupFailure::Call(call)));
        assert_eq!(outcome(libc::EAI_NONAME), Err(LookupFailure::Resolver(-2)));
        assert_eq!(outcome(0), Ok(()));
        assert!(!resolver_text(libc::EAI_NONAME).is_empty());
    }
}
