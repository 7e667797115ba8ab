//! Asynchronous events of a device: fetched, copied, acknowledged.

use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use super::cm::set_nonblocking;
use super::{CallError, ContextPtr, ffi, minus_one};

/// What an event is about, as addresses: for comparing, never for following.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum RawSubject {
    CompletionQueue(usize),
    QueuePair(usize),
    SharedReceiveQueue(usize),
    Port(u8),
    Device,
    /// The kind is newer than this library, which cannot tell.
    Unknown,
}

/// The kinds that this library looks at, `ibv_event_type`.
pub(crate) mod kind {
    pub(crate) const CQ_ERR: u32 = 0;
    pub(crate) const QP_FATAL: u32 = 1;
    pub(crate) const QP_REQ_ERR: u32 = 2;
    pub(crate) const QP_ACCESS_ERR: u32 = 3;
    pub(crate) const COMM_EST: u32 = 4;
    pub(crate) const SQ_DRAINED: u32 = 5;
    pub(crate) const PATH_MIG: u32 = 6;
    pub(crate) const PATH_MIG_ERR: u32 = 7;
    pub(crate) const DEVICE_FATAL: u32 = 8;
    pub(crate) const PORT_ACTIVE: u32 = 9;
    pub(crate) const PORT_ERR: u32 = 10;
    pub(crate) const LID_CHANGE: u32 = 11;
    pub(crate) const PKEY_CHANGE: u32 = 12;
    pub(crate) const SM_CHANGE: u32 = 13;
    pub(crate) const SRQ_ERR: u32 = 14;
    pub(crate) const SRQ_LIMIT_REACHED: u32 = 15;
    pub(crate) const QP_LAST_WQE_REACHED: u32 = 16;
    pub(crate) const CLIENT_REREGISTER: u32 = 17;
    pub(crate) const GID_CHANGE: u32 = 18;
    pub(crate) const WQ_FATAL: u32 = 19;

    #[cfg(feature = "verbs")]
    const _: () = {
        use super::ffi::ibv_event_type as t;
        use static_assertions::const_assert_eq;

        const_assert_eq!(QP_FATAL, t::IBV_EVENT_QP_FATAL as u32);
        const_assert_eq!(DEVICE_FATAL, t::IBV_EVENT_DEVICE_FATAL as u32);
        const_assert_eq!(SRQ_LIMIT_REACHED, t::IBV_EVENT_SRQ_LIMIT_REACHED as u32);
        const_assert_eq!(WQ_FATAL, t::IBV_EVENT_WQ_FATAL as u32);
    };
}

/// Makes the descriptor of a device's events nonblocking.
///
/// # Safety
///
/// The context is alive.
pub(crate) unsafe fn make_nonblocking(context: ContextPtr) -> Result<(), CallError> {
    // SAFETY: the caller's promise.
    set_nonblocking(unsafe { (*context.as_ptr()).async_fd })
}

/// # Safety
///
/// The context outlives the result.
pub(crate) unsafe fn async_fd<'a>(context: ContextPtr) -> BorrowedFd<'a> {
    // SAFETY: the caller's promise; a live context's descriptor is open.
    unsafe { BorrowedFd::borrow_raw((*context.as_ptr()).async_fd) }
}

/// The next event; `None` when there is none. `look` is called before it is acknowledged: what it is
/// about cannot be destroyed until then, because destroying waits for that.
///
/// # Safety
///
/// The context is alive, and its descriptor is nonblocking.
pub(crate) unsafe fn next_async_event<T>(
    context: ContextPtr,
    look: impl FnOnce(u32, RawSubject) -> T,
) -> Result<Option<T>, CallError> {
    let mut event = MaybeUninit::<ffi::ibv_async_event>::zeroed();
    loop {
        // SAFETY: the context is alive; `event` is a place for an event.
        let ret = unsafe { ffi::ibv_get_async_event(context.as_ptr(), event.as_mut_ptr()) };
        match minus_one("ibv_get_async_event", ret) {
            Ok(()) => break,
            Err(error) if error.errno() == libc::EINTR => {}
            Err(error) if error.errno() == libc::EAGAIN => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    let place = event.as_mut_ptr();
    // The binding has a Rust enum here, which a newer kernel's code would make undefined.
    // SAFETY: the call has filled it in; a C enum is read as an integer of its size.
    let kind = unsafe { (&raw const (*place).event_type).cast::<u32>().read() };
    // SAFETY: the event was zeroed and filled in; which member is meant follows from the kind, and
    // only its address, or number, is taken.
    let subject = unsafe {
        match kind {
            kind::CQ_ERR => RawSubject::CompletionQueue((*place).element.cq.addr()),
            kind::QP_FATAL..=kind::PATH_MIG_ERR | kind::QP_LAST_WQE_REACHED => {
                RawSubject::QueuePair((*place).element.qp.addr())
            }
            kind::SRQ_ERR | kind::SRQ_LIMIT_REACHED => {
                RawSubject::SharedReceiveQueue((*place).element.srq.addr())
            }
            kind::DEVICE_FATAL => RawSubject::Device,
            kind::PORT_ACTIVE..=kind::SM_CHANGE | kind::CLIENT_REREGISTER | kind::GID_CHANGE => {
                RawSubject::Port(u8::try_from((*place).element.port_num).unwrap_or(0))
            }
            _ => RawSubject::Unknown,
        }
    };
    let seen = look(kind, subject);
    // SAFETY: this event was taken above and is acknowledged once. C reads the kind as an integer.
    unsafe { ffi::ibv_ack_async_event(place) };
    Ok(Some(seen))
}
