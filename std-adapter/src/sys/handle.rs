//! Pointers to C objects, as types of their own.
//!
//! A handle is a number with a meaning: it owns nothing, and may dangle. Who uses one says why it
//! does not.

use std::ptr::NonNull;

use super::ffi;

macro_rules! handle {
    ($($(#[$meta:meta])* $name:ident => $target:ident;)*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        #[repr(transparent)]
        pub(crate) struct $name(NonNull<ffi::$target>);

        // SAFETY: libibverbs and librdmacm are thread safe, and a handle is only an address.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}

        #[allow(dead_code, reason = "not every handle needs every way in and out")]
        impl $name {
            pub(in crate::sys) const fn new(pointer: NonNull<ffi::$target>) -> Self {
                Self(pointer)
            }

            #[inline(always)]
            pub(in crate::sys) const fn as_ptr(self) -> *mut ffi::$target {
                self.0.as_ptr()
            }

            /// The pointer, for who passes it on and never follows it.
            pub(crate) const fn as_opaque(self) -> *mut () {
                self.0.as_ptr().cast()
            }

            /// The address, for comparing and for printing.
            pub(crate) fn address(self) -> usize {
                self.0.addr().get()
            }
        }
    )*};
}

handle! {
    /// `rdma_event_channel *`
    ChannelPtr => rdma_event_channel;
    /// `rdma_cm_id *`
    CmIdPtr => rdma_cm_id;
    /// `ibv_context *`
    ContextPtr => ibv_context;
    /// `ibv_pd *`
    PdPtr => ibv_pd;
    /// `ibv_mr *`
    MrPtr => ibv_mr;
    /// `ibv_mw *`
    MwPtr => ibv_mw;
    /// `ibv_cq *`
    CqPtr => ibv_cq;
    /// `ibv_comp_channel *`
    CompletionChannelPtr => ibv_comp_channel;
    /// `ibv_srq *`
    SrqPtr => ibv_srq;
    /// `ibv_qp *`
    QpPtr => ibv_qp;
    /// `ibv_td *`
    TdPtr => ibv_td;
    /// `ibv_ah *`
    AhPtr => ibv_ah;
}
