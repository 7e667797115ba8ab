//! Tests against a real RDMA device, run in the Soft-RoCE bed by `make rxe`.
//!
//! Both ends are in one process, at the address in `NANOVERBS_RXE_ADDR`. What is asserted is what
//! Soft-RoCE does; where hardware differs, the test says so.

#[cfg(feature = "librdmacm")]
mod connect;
#[cfg(feature = "librdmacm")]
mod datagrams;
#[cfg(feature = "librdmacm")]
mod endpoint;
#[cfg(feature = "librdmacm")]
mod ends;
#[cfg(feature = "librdmacm")]
mod events;
#[cfg(feature = "librdmacm")]
mod faults;
#[cfg(feature = "librdmacm")]
mod field;
#[cfg(feature = "librdmacm")]
mod lookup;
#[cfg(feature = "librdmacm")]
mod ops;
#[cfg(feature = "librdmacm")]
mod poller;
#[cfg(feature = "librdmacm")]
mod queues;
#[cfg(feature = "librdmacm")]
mod refusals;
#[cfg(feature = "librdmacm")]
mod resources;
#[cfg(feature = "librdmacm")]
mod shared_channel;
#[cfg(feature = "librdmacm")]
mod shared_receives;
#[cfg(feature = "librdmacm")]
mod signals;
#[cfg(feature = "librdmacm")]
mod transfer;

use std::fs;

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn the_bed_has_an_active_device() {
    let state = fs::read_to_string("/sys/class/infiniband/rxe0/ports/1/state").unwrap();
    assert!(state.contains("ACTIVE"), "rxe0 is in state {state}");
}

/// Blocks until a descriptor is readable, as a program's own event loop would.
#[cfg(feature = "librdmacm")]
fn readable(what: &impl std::os::fd::AsFd) {
    use std::os::fd::AsRawFd;
    let fd = what.as_fd().as_raw_fd();
    let mut polled = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, of an open descriptor.
    let ready = unsafe { libc::poll(&raw mut polled, 1, 20_000) };
    assert_eq!(ready, 1, "nothing happened");
}
