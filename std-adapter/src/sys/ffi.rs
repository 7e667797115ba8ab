//! The binding: what the headers of libibverbs and librdmacm declare.

#[cfg(not(feature = "verbs"))]
compile_error!("the feature `librdmacm` is internal; turn on `verbs`");

#[cfg(feature = "verbs")]
pub(super) use rdma_sys::*;
