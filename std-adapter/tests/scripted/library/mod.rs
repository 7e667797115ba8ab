//! The false functions, as far as the adapter calls them on this way.

use std::ffi::c_int;
use std::mem::MaybeUninit;

mod libibverbs;
mod librdmacm;

pub(crate) use libibverbs::make_context;
pub(crate) use librdmacm::{event, request};

/// A structure of C on the heap for ever, all zeros.
fn zeroed<T>() -> *mut T {
    // SAFETY: structures of integers, pointers and optional functions: all zeros is a value.
    let value = unsafe { MaybeUninit::<T>::zeroed().assume_init() };
    let raw = Box::into_raw(Box::new(value));
    raw.expose_provenance();
    raw
}

fn fails(errno: c_int) -> c_int {
    // SAFETY: the place belongs to this thread.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// Closes a descriptor of an object that is gone.
fn close(fd: c_int) {
    // SAFETY: the object's own, which nobody uses any more.
    unsafe { libc::close(fd) };
}
