//! The providers in a program that is linked statically.
//!
//! They announce themselves to libibverbs before `main`, but only those that the linker has taken in,
//! and it takes what somebody names. Which ones is chosen at build time, see the crate's `build.rs`.

use std::ffi::{c_int, c_void};
use std::ptr;

macro_rules! providers {
    ($($name:ident)*) => {
        /// Names them, as rdma-core's macro `RDMA_STATIC_PROVIDERS` does; does nothing.
        pub(super) fn name() {
            unsafe extern "C" {
                $(static $name: c_int;)*
                fn ibv_static_providers(unused: *mut c_void, ...);
            }
            let none = ptr::null_mut::<c_void>();
            // SAFETY: the function looks at no argument; the addresses are taken, nothing is read.
            unsafe { ibv_static_providers(none, $(&raw const $name,)* none) };
        }
    };
}

include!(concat!(env!("OUT_DIR"), "/providers.rs"));
