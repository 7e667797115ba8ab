//! Memory windows, through the pointers in `ibv_context.ops`.

use nanoverbs_core::RKey;
use nanoverbs_core::abi::BindMw;

use super::{CallError, MrPtr, MwPtr, PdPtr, ffi, non_null, zero_or_errno};

/// A window of type 2, closed, and its first key.
///
/// # Safety
///
/// The domain is alive, and outlives the window.
pub(crate) unsafe fn alloc_mw(pd: PdPtr) -> Result<(MwPtr, RKey), CallError> {
    // SAFETY: the caller's promise; a context outlives its domains.
    let alloc = unsafe { (*(*pd.as_ptr()).context).ops.alloc_mw };
    let alloc = alloc.ok_or(CallError::new("ibv_alloc_mw", libc::EOPNOTSUPP))?;
    // SAFETY: the caller's promise.
    let mw =
        non_null("ibv_alloc_mw", unsafe { alloc(pd.as_ptr(), ffi::ibv_mw_type::IBV_MW_TYPE_2) })?;
    // SAFETY: the window was just made.
    let key = unsafe { (*mw.as_ptr()).rkey };
    Ok((MwPtr::new(mw), RKey::from_raw(key)))
}

/// # Safety
///
/// The window is alive.
pub(crate) unsafe fn dealloc_mw(mw: MwPtr) -> Result<(), CallError> {
    // SAFETY: the caller's promise; a context outlives its windows.
    let dealloc = unsafe { (*(*mw.as_ptr()).context).ops.dealloc_mw };
    let dealloc = dealloc.ok_or(CallError::new("ibv_dealloc_mw", libc::EOPNOTSUPP))?;
    // SAFETY: the caller's promise.
    zero_or_errno("ibv_dealloc_mw", unsafe { dealloc(mw.as_ptr()) })
}

/// Notes the key that a window has now: devices look for the old one when it is opened again.
///
/// # Safety
///
/// The window is alive, and no request that opens it is being posted.
pub(crate) unsafe fn set_mw_key(mw: MwPtr, key: RKey) {
    // SAFETY: the caller's promise.
    unsafe { (*mw.as_ptr()).rkey = key.to_raw() };
}

/// A request to open a window, but for where and what for.
pub(crate) const fn bind(mw: MwPtr, mr: MrPtr, key: RKey) -> BindMw {
    let (mw, mr) = (mw.as_ptr().cast(), mr.as_ptr().cast());
    BindMw { mw, rkey: key, mr, addr: 0, length: 0, mw_access_flags: 0 }
}
