//! The extended table of libibverbs: completion queues with options, thread domains, the clock.
//!
//! rdma-sys compares the table's mark with `u32::MAX`, where rdma-core has `UINTPTR_MAX`, so its own
//! wrappers say "unsupported" for everything on 64 bit. The table is reached by hand here, and each
//! entry only when the library at run time is new enough to have it.

use std::ffi::c_int;
use std::mem::{MaybeUninit, offset_of};
use std::ptr::{self, NonNull};

use nanoverbs_core::abi::Wc;

use super::{CallError, CompletionChannelPtr, ContextPtr, CqPtr, PdPtr, TdPtr};
use super::{ffi, non_null, normal, zero_or_errno};

/// The mark of a context that has the table, `__VERBS_ABI_IS_EXTENDED`.
const EXTENDED: usize = usize::MAX;

/// The table of a context.
///
/// # Safety
///
/// The context is alive.
unsafe fn table(context: *mut ffi::ibv_context) -> Option<NonNull<ffi::verbs_context>> {
    // SAFETY: the caller's promise.
    if unsafe { (*context).abi_compat }.addr() != EXTENDED {
        return None;
    }
    // SAFETY: the mark says that the context is the last member of such a table.
    let table = unsafe { context.byte_sub(offset_of!(ffi::verbs_context, context)) };
    NonNull::new(table.cast())
}

/// An entry of the table, or `EOPNOTSUPP`.
macro_rules! entry {
    ($context:expr, $call:literal, $name:ident) => {{
        let unsupported = CallError::new($call, libc::EOPNOTSUPP);
        // SAFETY: the caller's promise: the context is alive.
        let table = unsafe { table($context) }.ok_or(unsupported)?;
        // It grows towards lower addresses: an entry is there when it lies within the size.
        let reaches = size_of::<ffi::verbs_context>() - offset_of!(ffi::verbs_context, $name);
        // SAFETY: the size stands right before the context in every version.
        if unsafe { (*table.as_ptr()).sz } < reaches {
            return Err(unsupported);
        }
        // SAFETY: it lies within the size.
        unsafe { (*table.as_ptr()).$name }.ok_or(unsupported)?
    }};
}

/// What a completion queue shall have beside its depth.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct CqExtras {
    pub(crate) vector: u32,
    pub(crate) single_threaded: bool,
    pub(crate) timestamps: bool,
}

/// # Safety
///
/// Context and channel are alive, and outlive the queue. With `single_threaded`, one thread at a time
/// uses it, and the queue pairs on it.
pub(crate) unsafe fn create_cq_ex(
    context: ContextPtr,
    depth: u32,
    channel: Option<CompletionChannelPtr>,
    extras: CqExtras,
) -> Result<(CqPtr, c_int), CallError> {
    /// Length, immediate, both queue pairs, and the old fields.
    const STANDARD: u64 = 0x7f;
    const TIMESTAMP: u64 = 1 << 7;
    const MASK_FLAGS: u32 = 1;
    const SINGLE_THREADED: u32 = 1;
    let create = entry!(context.as_ptr(), "ibv_create_cq_ex", create_cq_ex);
    let mut attr = ffi::ibv_cq_init_attr_ex {
        cqe: depth,
        cq_context: ptr::null_mut(),
        channel: channel.map_or(ptr::null_mut(), CompletionChannelPtr::as_ptr),
        comp_vector: extras.vector,
        wc_flags: if extras.timestamps { STANDARD | TIMESTAMP } else { STANDARD },
        comp_mask: if extras.single_threaded { MASK_FLAGS } else { 0 },
        flags: if extras.single_threaded { SINGLE_THREADED } else { 0 },
        parent_domain: ptr::null_mut(),
    };
    // SAFETY: the caller's promise; the attributes are copied during the call.
    let cq = unsafe { create(context.as_ptr(), &raw mut attr) };
    let cq = non_null("ibv_create_cq_ex", cq)?;
    // SAFETY: the queue was just made. An extended queue starts with what a plain one is.
    let granted = unsafe { (*cq.as_ptr()).cqe };
    Ok((CqPtr::new(cq.cast()), granted))
}

const _: () = assert!(offset_of!(ffi::ibv_cq_ex, cqe) == offset_of!(ffi::ibv_cq, cqe));
const _: () = assert!(
    offset_of!(ffi::ibv_cq_ex, async_events_completed)
        == offset_of!(ffi::ibv_cq, async_events_completed)
);

/// How many thousand times a second the device's clock ticks.
///
/// # Safety
///
/// The context is alive.
pub(crate) unsafe fn clock_khz(context: ContextPtr) -> Result<u64, CallError> {
    // SAFETY: the caller's promise.
    let attr = unsafe { query_device(context) }?;
    // SAFETY: zeroed before, filled by the call; one integer of it is read.
    Ok(unsafe { (*attr.as_ptr()).hca_core_clock })
}

/// Whether the device brings pages in when it wants them.
///
/// # Safety
///
/// The context is alive.
pub(crate) unsafe fn has_on_demand_paging(context: ContextPtr) -> Result<bool, CallError> {
    const SUPPORT: u64 = 1;
    // SAFETY: the caller's promise.
    let attr = unsafe { query_device(context) }?;
    // SAFETY: zeroed before, filled by the call; one integer of it is read.
    Ok(unsafe { (*attr.as_ptr()).odp_caps.general_caps } & SUPPORT != 0)
}

/// What the device says of itself.
///
/// # Safety
///
/// The context is alive.
unsafe fn query_device(
    context: ContextPtr,
) -> Result<MaybeUninit<ffi::ibv_device_attr_ex>, CallError> {
    let query = entry!(context.as_ptr(), "ibv_query_device_ex", query_device_ex);
    let mut attr = MaybeUninit::<ffi::ibv_device_attr_ex>::zeroed();
    let len = size_of::<ffi::ibv_device_attr_ex>();
    // SAFETY: the caller's promise; `attr` is a place of that size, and no input is allowed.
    let ret = unsafe { query(context.as_ptr(), ptr::null(), attr.as_mut_ptr(), len) };
    zero_or_errno("ibv_query_device_ex", ret)?;
    Ok(attr)
}

/// A thread domain: what is made in it is used by one thread at a time.
///
/// # Safety
///
/// The context is alive, and outlives the domain.
pub(crate) unsafe fn alloc_td(context: ContextPtr) -> Result<TdPtr, CallError> {
    let alloc = entry!(context.as_ptr(), "ibv_alloc_td", alloc_td);
    let mut attr = ffi::ibv_td_init_attr { comp_mask: 0 };
    // SAFETY: the caller's promise; the attributes are copied during the call.
    let td = unsafe { alloc(context.as_ptr(), &raw mut attr) };
    non_null("ibv_alloc_td", td).map(TdPtr::new)
}

/// # Safety
///
/// The thread domain is alive, and no parent domain uses it.
pub(crate) unsafe fn dealloc_td(td: TdPtr) -> Result<(), CallError> {
    // SAFETY: the caller's promise.
    let context = unsafe { (*td.as_ptr()).context };
    let dealloc = entry!(context, "ibv_dealloc_td", dealloc_td);
    // SAFETY: the caller's promise.
    zero_or_errno("ibv_dealloc_td", unsafe { dealloc(td.as_ptr()) })
}

/// A protection domain over another one, whose queue pairs belong to a thread domain. Given back as
/// any protection domain.
///
/// # Safety
///
/// All are alive and of one context, and outlive the result.
pub(crate) unsafe fn alloc_parent_domain(
    context: ContextPtr,
    pd: PdPtr,
    td: TdPtr,
) -> Result<PdPtr, CallError> {
    let alloc = entry!(context.as_ptr(), "ibv_alloc_parent_domain", alloc_parent_domain);
    let mut attr = ffi::ibv_parent_domain_init_attr {
        pd: pd.as_ptr(),
        td: td.as_ptr(),
        comp_mask: 0,
        alloc: None,
        free: None,
        pd_context: ptr::null_mut(),
    };
    // SAFETY: the caller's promise; the attributes are copied during the call.
    let parent = unsafe { alloc(context.as_ptr(), &raw mut attr) };
    non_null("ibv_alloc_parent_domain", parent).map(PdPtr::new)
}

type Start = unsafe extern "C" fn(*mut ffi::ibv_cq_ex, *mut ffi::ibv_poll_cq_attr) -> c_int;
type End = unsafe extern "C" fn(*mut ffi::ibv_cq_ex);
type Read<T> = unsafe extern "C" fn(*mut ffi::ibv_cq_ex) -> T;

/// The way to poll an extended queue with the time of each completion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimedPollOp {
    cq: CqPtr,
    start: Start,
    end: End,
    opcode: Read<u32>,
    vendor_err: Read<u32>,
    byte_len: Read<u32>,
    imm_data: Read<u32>,
    qp_num: Read<u32>,
    src_qp: Read<u32>,
    wc_flags: Read<u32>,
    time: Read<u64>,
}

impl TimedPollOp {
    /// # Safety
    ///
    /// The queue is alive, and was made by [`create_cq_ex`] with timestamps.
    pub(crate) unsafe fn new(cq: CqPtr) -> Result<Self, CallError> {
        let ex = cq.as_ptr().cast::<ffi::ibv_cq_ex>();
        // SAFETY: the caller's promise.
        let ex = unsafe { &*ex };
        let missing = CallError::new("ibv_start_poll", libc::EOPNOTSUPP);
        Ok(Self {
            cq,
            start: ex.start_poll.ok_or(missing)?,
            end: ex.end_poll.ok_or(missing)?,
            opcode: ex.read_opcode.ok_or(missing)?,
            vendor_err: ex.read_vendor_err.ok_or(missing)?,
            byte_len: ex.read_byte_len.ok_or(missing)?,
            imm_data: ex.read_imm_data.ok_or(missing)?,
            qp_num: ex.read_qp_num.ok_or(missing)?,
            src_qp: ex.read_src_qp.ok_or(missing)?,
            wc_flags: ex.read_wc_flags.ok_or(missing)?,
            time: ex.read_completion_ts.ok_or(missing)?,
        })
    }

    /// Writes completions from the first entry on and calls `timed` with the place and time of each;
    /// returns how many, or a negative error number.
    ///
    /// Each completion has a start and an end of its own: releases differ in what the end of a longer
    /// walk does, and one of them repeats completions.
    ///
    /// # Safety
    ///
    /// The queue is alive.
    pub(crate) unsafe fn poll(self, into: &mut [Wc], mut timed: impl FnMut(usize, u64)) -> i32 {
        let ex = self.cq.as_ptr().cast::<ffi::ibv_cq_ex>();
        let mut count = 0;
        for entry in into.iter_mut().take(c_int::MAX as usize) {
            let mut attr = ffi::ibv_poll_cq_attr { comp_mask: 0 };
            // SAFETY: the caller's promise.
            match unsafe { (self.start)(ex, &raw mut attr) } {
                0 => {}
                libc::ENOENT => break,
                ret if count == 0 => return normal(ret).wrapping_neg(),
                _ => break,
            }
            // SAFETY: a walk has started, so that the queue's current completion can be read: its
            // status and number lie in the queue, and the rest is read by the queue's functions.
            unsafe {
                entry.wr_id = (*ex).wr_id;
                entry.status = (*ex).status;
                entry.vendor_err = 0;
                entry.qp_num = (self.qp_num)(ex);
                if entry.status == ffi::ibv_wc_status::IBV_WC_SUCCESS {
                    entry.opcode = (self.opcode)(ex);
                    entry.wc_flags = (self.wc_flags)(ex);
                    entry.byte_len = (self.byte_len)(ex);
                    entry.imm_data = (self.imm_data)(ex);
                    entry.src_qp = (self.src_qp)(ex);
                } else {
                    entry.vendor_err = (self.vendor_err)(ex);
                }
                timed(count as usize, (self.time)(ex));
                (self.end)(ex);
            }
            count += 1;
        }
        count
    }
}

#[cfg(test)]
mod tests;
