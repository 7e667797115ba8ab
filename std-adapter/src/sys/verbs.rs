//! libibverbs: devices, domains, regions, completion queues, and what a queue pair needs beside its
//! data path.
//!
//! Exported functions only; what needs the extended table is in [`extended`](super::extended).

use std::ffi::{CStr, c_int};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use nanoverbs_core::{Access, LKey, QpNum, RKey};

use super::cm::set_nonblocking;
use super::{CallError, CompletionChannelPtr, ContextPtr, CqPtr, MrPtr, PdPtr, QpPtr};
use super::{ffi, non_null, zero_or_errno};

/// What a device can do, as far as this crate looks at it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RawLimits {
    pub(crate) max_qp_wr: c_int,
    pub(crate) max_sge: c_int,
    pub(crate) max_sge_rd: c_int,
    pub(crate) max_cqe: c_int,
    pub(crate) max_qp_rd_atom: c_int,
    pub(crate) max_qp_init_rd_atom: c_int,
    pub(crate) max_mr_size: u64,
    pub(crate) max_msg_sz: u32,
    /// In bytes.
    pub(crate) active_mtu: u32,
    pub(crate) atomic_cap: u32,
    pub(crate) is_iwarp: bool,
    pub(crate) has_on_demand_paging: bool,
}

/// Calls `each` with the name of every device, until it says `true`; opens that one.
pub(crate) fn open_first(
    mut each: impl FnMut(&CStr) -> bool,
) -> Result<Option<ContextPtr>, CallError> {
    #[cfg(feature = "static")]
    super::providers::name();
    let mut len: c_int = 0;
    // SAFETY: `len` is a place for a number.
    let list = non_null("ibv_get_device_list", unsafe { ffi::ibv_get_device_list(&raw mut len) })?;
    let mut opened = Ok(None);
    for i in 0..usize::try_from(len).unwrap_or(0) {
        // SAFETY: the list has `len` entries.
        let device = unsafe { *list.as_ptr().add(i) };
        // SAFETY: the device is in the list, which was not freed yet.
        let name = unsafe { ffi::ibv_get_device_name(device) };
        if name.is_null() {
            continue;
        }
        // SAFETY: a name is a C string that lives as long as its device.
        if each(unsafe { CStr::from_ptr(name) }) {
            // SAFETY: as above.
            let context = unsafe { ffi::ibv_open_device(device) };
            opened = non_null("ibv_open_device", context).map(|c| Some(ContextPtr::new(c)));
            break;
        }
    }
    // SAFETY: the list came from `ibv_get_device_list`; an open device holds what it needs of it.
    unsafe { ffi::ibv_free_device_list(list.as_ptr()) };
    opened
}

/// # Safety
///
/// The context came from [`open_first`]; nothing of it is left.
pub(crate) unsafe fn close_device(context: ContextPtr) -> Result<(), CallError> {
    // SAFETY: the caller's promise.
    zero_or_errno("ibv_close_device", unsafe { ffi::ibv_close_device(context.as_ptr()) })
}

/// # Safety
///
/// The context is alive.
pub(crate) unsafe fn device_name(context: ContextPtr) -> String {
    // SAFETY: the caller's promise; a context's device is alive with it.
    let name = unsafe { ffi::ibv_get_device_name((*context.as_ptr()).device) };
    if name.is_null() {
        return String::new();
    }
    // SAFETY: a name is a C string that lives as long as its device.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

/// How many interrupts completion queues can choose from.
///
/// # Safety
///
/// The context is alive.
pub(crate) unsafe fn vectors(context: ContextPtr) -> u32 {
    // SAFETY: the caller's promise.
    u32::try_from(unsafe { (*context.as_ptr()).num_comp_vectors }).unwrap_or(0)
}

/// # Safety
///
/// The context is alive.
pub(crate) unsafe fn limits(context: ContextPtr) -> Result<RawLimits, CallError> {
    let mut attr = MaybeUninit::<ffi::ibv_device_attr>::zeroed();
    // SAFETY: the caller's promise.
    let ret = unsafe { ffi::ibv_query_device(context.as_ptr(), attr.as_mut_ptr()) };
    zero_or_errno("ibv_query_device", ret)?;
    // SAFETY: zeroed before, filled by the call; integers only.
    let attr = unsafe { attr.assume_init() };
    // SAFETY: the caller's promise; a context's device is alive with it.
    let transport = unsafe { (*(*context.as_ptr()).device).transport_type };
    let mut port = MaybeUninit::<ffi::ibv_port_attr>::zeroed();
    // SAFETY: the caller's promise. The exported function fills in an older, shorter form of the
    // structure, which the newer one starts with.
    let ret = unsafe { ffi::ibv_query_port(context.as_ptr(), 1, port.as_mut_ptr().cast()) };
    zero_or_errno("ibv_query_port", ret)?;
    // SAFETY: zeroed before, filled by the call; integers only.
    let port = unsafe { port.assume_init() };
    Ok(RawLimits {
        max_qp_wr: attr.max_qp_wr,
        max_sge: attr.max_sge,
        max_sge_rd: attr.max_sge_rd,
        max_cqe: attr.max_cqe,
        max_qp_rd_atom: attr.max_qp_rd_atom,
        max_qp_init_rd_atom: attr.max_qp_init_rd_atom,
        max_mr_size: attr.max_mr_size,
        max_msg_sz: port.max_msg_sz,
        // 1 is 256 bytes, 5 is 4,096.
        active_mtu: 128_u32.checked_shl(port.active_mtu).filter(|mtu| *mtu <= 4096).unwrap_or(256),
        atomic_cap: attr.atomic_cap,
        is_iwarp: transport == ffi::ibv_transport_type::IBV_TRANSPORT_IWARP,
        // SAFETY: the caller's promise. A provider that cannot be asked has none.
        has_on_demand_paging: unsafe { super::extended::has_on_demand_paging(context) }
            .unwrap_or(false),
    })
}

/// # Safety
///
/// The context is alive, and outlives the domain.
pub(crate) unsafe fn alloc_pd(context: ContextPtr) -> Result<PdPtr, CallError> {
    // SAFETY: the caller's promise.
    let pd = unsafe { ffi::ibv_alloc_pd(context.as_ptr()) };
    non_null("ibv_alloc_pd", pd).map(PdPtr::new)
}

/// # Safety
///
/// The domain is alive, and nothing is left in it.
pub(crate) unsafe fn dealloc_pd(pd: PdPtr) -> Result<(), CallError> {
    // SAFETY: the caller's promise.
    zero_or_errno("ibv_dealloc_pd", unsafe { ffi::ibv_dealloc_pd(pd.as_ptr()) })
}

/// Registers memory.
///
/// # Safety
///
/// The domain is alive; `addr` and `len` are mapped memory, which stays mapped until [`dereg_mr`].
pub(crate) unsafe fn reg_mr(
    pd: PdPtr,
    addr: NonNull<u8>,
    len: usize,
    access: Access,
) -> Result<(MrPtr, LKey, RKey), CallError> {
    // SAFETY: the caller's promise.
    let mr = unsafe {
        ffi::ibv_reg_mr(pd.as_ptr(), addr.as_ptr().cast(), len, access.bits().cast_signed())
    };
    let mr = non_null("ibv_reg_mr", mr)?;
    // SAFETY: the region was just made.
    let (lkey, rkey) = unsafe { ((*mr.as_ptr()).lkey, (*mr.as_ptr()).rkey) };
    Ok((MrPtr::new(mr), LKey::from_raw(lkey), RKey::from_raw(rkey)))
}

/// # Safety
///
/// The region is alive, and no request uses it.
pub(crate) unsafe fn dereg_mr(mr: MrPtr) -> Result<(), CallError> {
    // SAFETY: the caller's promise.
    zero_or_errno("ibv_dereg_mr", unsafe { ffi::ibv_dereg_mr(mr.as_ptr()) })
}

/// A channel for the events of completion queues, nonblocking.
///
/// # Safety
///
/// The context is alive, and outlives the channel.
pub(crate) unsafe fn create_comp_channel(
    context: ContextPtr,
) -> Result<CompletionChannelPtr, CallError> {
    // SAFETY: the caller's promise.
    let channel = unsafe { ffi::ibv_create_comp_channel(context.as_ptr()) };
    let channel = CompletionChannelPtr::new(non_null("ibv_create_comp_channel", channel)?);
    // SAFETY: the channel was just made.
    if let Err(error) = set_nonblocking(unsafe { (*channel.as_ptr()).fd }) {
        // SAFETY: the channel was just made and nothing uses it.
        let _ = unsafe { destroy_comp_channel(channel) };
        return Err(error);
    }
    Ok(channel)
}

/// # Safety
///
/// The channel is alive, and no completion queue uses it.
pub(crate) unsafe fn destroy_comp_channel(channel: CompletionChannelPtr) -> Result<(), CallError> {
    // SAFETY: the caller's promise.
    let ret = unsafe { ffi::ibv_destroy_comp_channel(channel.as_ptr()) };
    zero_or_errno("ibv_destroy_comp_channel", ret)
}

/// # Safety
///
/// The channel outlives the result.
pub(crate) unsafe fn comp_channel_as_fd<'a>(channel: CompletionChannelPtr) -> BorrowedFd<'a> {
    // SAFETY: the caller's promise; a live channel's descriptor is open.
    unsafe { BorrowedFd::borrow_raw((*channel.as_ptr()).fd) }
}

/// Takes one event off the channel and acknowledges it; says whether there was one.
///
/// # Safety
///
/// The channel is alive.
pub(crate) unsafe fn take_cq_event(channel: CompletionChannelPtr) -> Result<bool, CallError> {
    let mut cq: *mut ffi::ibv_cq = ptr::null_mut();
    let mut context = ptr::null_mut();
    loop {
        // SAFETY: the channel is alive; the other two are places for pointers.
        let ret = unsafe { ffi::ibv_get_cq_event(channel.as_ptr(), &raw mut cq, &raw mut context) };
        match super::minus_one("ibv_get_cq_event", ret) {
            Ok(()) => break,
            Err(error) if error.errno() == libc::EINTR => {}
            Err(error) if error.errno() == libc::EAGAIN => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    // SAFETY: the completion queue of an event lives until the event is acknowledged: destroying
    // it waits for that. One event was taken, one is acknowledged.
    unsafe { ffi::ibv_ack_cq_events(cq, 1) };
    Ok(true)
}

/// Gives the queue and how many completions the device says it holds.
///
/// # Safety
///
/// Context and channel are alive, and outlive the queue.
pub(crate) unsafe fn create_cq(
    context: ContextPtr,
    depth: c_int,
    channel: Option<CompletionChannelPtr>,
    vector: u32,
) -> Result<(CqPtr, c_int), CallError> {
    let channel = channel.map_or(ptr::null_mut(), CompletionChannelPtr::as_ptr);
    // SAFETY: the caller's promise.
    let cq = unsafe {
        let vector = vector.cast_signed();
        ffi::ibv_create_cq(context.as_ptr(), depth, ptr::null_mut(), channel, vector)
    };
    let cq = non_null("ibv_create_cq", cq)?;
    // SAFETY: the queue was just made.
    let granted = unsafe { (*cq.as_ptr()).cqe };
    Ok((CqPtr::new(cq), granted))
}

/// # Safety
///
/// The queue is alive, no queue pair uses it, and its events are acknowledged.
pub(crate) unsafe fn destroy_cq(cq: CqPtr) -> Result<(), CallError> {
    // SAFETY: the caller's promise.
    zero_or_errno("ibv_destroy_cq", unsafe { ffi::ibv_destroy_cq(cq.as_ptr()) })
}

/// # Safety
///
/// The queue pair is alive.
pub(crate) unsafe fn qp_number(qp: QpPtr) -> QpNum {
    // SAFETY: the caller's promise.
    QpNum::from_raw(unsafe { (*qp.as_ptr()).qp_num })
}

/// Moves a queue pair to ERR: everything in it is flushed.
///
/// # Safety
///
/// The queue pair is alive.
pub(crate) unsafe fn qp_to_error(qp: QpPtr) -> Result<(), CallError> {
    // SAFETY: a structure of integers: all zeros is a value.
    let mut attr = unsafe { MaybeUninit::<ffi::ibv_qp_attr>::zeroed().assume_init() };
    attr.qp_state = ffi::ibv_qp_state::IBV_QPS_ERR;
    let mask = ffi::ibv_qp_attr_mask::IBV_QP_STATE.0.cast_signed();
    // SAFETY: the caller's promise; the attributes are copied during the call.
    let ret = unsafe { ffi::ibv_modify_qp(qp.as_ptr(), &raw mut attr, mask) };
    zero_or_errno("ibv_modify_qp", ret)
}

/// Sets how long a peer shall wait when no receive is posted here, a code of five bits.
///
/// # Safety
///
/// The queue pair is alive.
pub(crate) unsafe fn set_min_rnr_timer(qp: QpPtr, code: u8) -> Result<(), CallError> {
    // SAFETY: a structure of integers: all zeros is a value.
    let mut attr = unsafe { MaybeUninit::<ffi::ibv_qp_attr>::zeroed().assume_init() };
    attr.min_rnr_timer = code;
    let mask = ffi::ibv_qp_attr_mask::IBV_QP_MIN_RNR_TIMER.0.cast_signed();
    // SAFETY: the caller's promise; the attributes are copied during the call.
    let ret = unsafe { ffi::ibv_modify_qp(qp.as_ptr(), &raw mut attr, mask) };
    zero_or_errno("ibv_modify_qp", ret)
}

/// What a device says of a queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QpView {
    pub(crate) state: u32,
    pub(crate) min_rnr_timer: u8,
    pub(crate) retry: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) ack_timeout: u8,
    pub(crate) reads_out: u8,
    pub(crate) reads_in: u8,
}

/// # Safety
///
/// The queue pair is alive.
pub(crate) unsafe fn query_qp(qp: QpPtr) -> Result<QpView, CallError> {
    use ffi::ibv_qp_attr_mask as mask;
    let mut attr = MaybeUninit::<ffi::ibv_qp_attr>::zeroed();
    let mut init = MaybeUninit::<ffi::ibv_qp_init_attr>::zeroed();
    let wanted = mask::IBV_QP_STATE.0
        | mask::IBV_QP_MIN_RNR_TIMER.0
        | mask::IBV_QP_TIMEOUT.0
        | mask::IBV_QP_RETRY_CNT.0
        | mask::IBV_QP_RNR_RETRY.0
        | mask::IBV_QP_MAX_QP_RD_ATOMIC.0
        | mask::IBV_QP_MAX_DEST_RD_ATOMIC.0;
    // SAFETY: the caller's promise; both are places for the structures.
    let ret = unsafe {
        ffi::ibv_query_qp(qp.as_ptr(), attr.as_mut_ptr(), wanted.cast_signed(), init.as_mut_ptr())
    };
    zero_or_errno("ibv_query_qp", ret)?;
    // SAFETY: zeroed before, filled by the call; integers only.
    let attr = unsafe { attr.assume_init() };
    Ok(QpView {
        state: attr.qp_state,
        min_rnr_timer: attr.min_rnr_timer,
        retry: attr.retry_cnt,
        rnr_retry: attr.rnr_retry,
        ack_timeout: attr.timeout,
        reads_out: attr.max_rd_atomic,
        reads_in: attr.max_dest_rd_atomic,
    })
}
