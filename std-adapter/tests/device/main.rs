//! Tests against a real RDMA device, run in the Soft-RoCE bed by `make rxe`.
//!
//! Both ends are in one process, at the address in `NANOVERBS_RXE_ADDR`. What is asserted is what
//! Soft-RoCE does; where hardware differs, the test says so.
#![cfg(feature = "librdmacm")]

mod accounting;
mod apart;
mod connect;
mod datagrams;
mod endpoint;
mod ends;
mod events;
mod faults;
mod field;
mod hub;
mod hub_faults;
mod lookup;
mod ops;
mod poller;
mod queues;
mod refusals;
mod resources;
mod shared_channel;
mod shared_receives;
mod signals;
mod transfer;

use std::fs;
use std::os::fd::{AsFd, AsRawFd};

#[test]
#[ignore = "needs an RDMA device: make rxe"]
fn the_bed_has_an_active_device() {
    let state = fs::read_to_string("/sys/class/infiniband/rxe0/ports/1/state").unwrap();
    assert!(state.contains("ACTIVE"), "rxe0 is in state {state}");
}

/// Blocks until a descriptor is readable, as a program's own event loop would.
fn readable(what: &impl AsFd) {
    let fd = what.as_fd().as_raw_fd();
    let mut polled = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, of an open descriptor.
    let ready = unsafe { libc::poll(&raw mut polled, 1, 20_000) };
    assert_eq!(ready, 1, "nothing happened");
}
