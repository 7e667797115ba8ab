//! The binding: what the headers of libibverbs and librdmacm declare.
//!
//! One of two. With the feature `verbs` it is rdma-sys, which bindgen makes of the headers that are
//! installed; else the declarations in [`declared`](super::declared), which need neither headers nor
//! libclang. With both, rdma-sys is used, and the compiler compares the two.

#[cfg(not(any(feature = "verbs", feature = "declared")))]
compile_error!("the feature `librdmacm` is internal: turn on `verbs` or `declared`");

#[cfg(feature = "verbs")]
pub(super) use rdma_sys::*;

#[cfg(not(feature = "verbs"))]
pub(super) use super::declared::{rdma_cma::*, verbs::*};
