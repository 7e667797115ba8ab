//! The data path against a false provider: an operations table of our own.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

use super::*;

thread_local! {
    static RETURN: Cell<c_int> = const { Cell::new(0) };
    static NAME_BAD: Cell<bool> = const { Cell::new(false) };
}

unsafe extern "C" fn post_send(
    _: *mut ffi::ibv_qp,
    wr: *mut ffi::ibv_send_wr,
    bad: *mut *mut ffi::ibv_send_wr,
) -> c_int {
    if NAME_BAD.get() {
        // SAFETY: the tests pass a chain of two and a place for the second one's address.
        unsafe { *bad = (*wr).next };
    }
    RETURN.get()
}

unsafe extern "C" fn post_recv(
    _: *mut ffi::ibv_qp,
    _: *mut ffi::ibv_recv_wr,
    _: *mut *mut ffi::ibv_recv_wr,
) -> c_int {
    RETURN.get()
}

unsafe extern "C" fn poll_cq(_: *mut ffi::ibv_cq, room: c_int, wc: *mut ffi::ibv_wc) -> c_int {
    for i in 0..RETURN.get().clamp(0, room) {
        // SAFETY: the tests pass `room` entries.
        unsafe { (*wc.add(i as usize)).wr_id = 40 + i as u64 };
    }
    RETURN.get()
}

struct False {
    context: Box<ffi::ibv_context>,
    qp: Box<ffi::ibv_qp>,
    cq: Box<ffi::ibv_cq>,
}

fn provider() -> False {
    // SAFETY: structures of integers, pointers and optional functions: all zeros is a value.
    let mut it = unsafe {
        False {
            context: Box::new(MaybeUninit::zeroed().assume_init()),
            qp: Box::new(MaybeUninit::zeroed().assume_init()),
            cq: Box::new(MaybeUninit::zeroed().assume_init()),
        }
    };
    it.context.ops.post_send = Some(post_send);
    it.context.ops.post_recv = Some(post_recv);
    it.context.ops.poll_cq = Some(poll_cq);
    it.qp.context = &raw mut *it.context;
    it.cq.context = &raw mut *it.context;
    it
}

fn qp(of: &mut False) -> QpPtr {
    QpPtr::new(NonNull::from(&mut *of.qp))
}

fn cq(of: &mut False) -> CqPtr {
    CqPtr::new(NonNull::from(&mut *of.cq))
}

#[test]
fn f09_what_a_post_returns_is_an_error_number_whatever_its_sign() {
    let mut it = provider();
    // SAFETY: the false queue pair lives until the end of the test.
    let (send, recv) = unsafe { (SendOp::new(qp(&mut it)), RecvOp::new(qp(&mut it))) };
    let (send, recv) = (send.expect("it has one"), recv.expect("it has one"));
    let mut last = SendWr::EMPTY;
    let mut first = SendWr { next: &raw mut last, ..SendWr::EMPTY };
    let mut only = RecvWr::EMPTY;
    // SAFETY: the calling thread's own errno.
    unsafe { *libc::__errno_location() = libc::ENOMEM };
    for (ret, expected) in [(0, 0), (12, 12), (-12, 12), (-1, 12), (22, 22), (-22, 22)] {
        RETURN.set(ret);
        let mut bad = ptr::null_mut();
        // SAFETY: a chain of two; the false provider reads no more than their links.
        assert_eq!(unsafe { send.post(&raw mut first, &mut bad) }, expected, "{ret}");
        assert!(bad.is_null(), "nothing was named");
        let mut bad = ptr::null_mut();
        // SAFETY: a chain of one, which the false provider does not read.
        assert_eq!(unsafe { recv.post(&raw mut only, &mut bad) }, expected, "{ret}");
    }
}

#[test]
fn f07_the_request_that_was_refused_comes_back_by_name() {
    let mut it = provider();
    // SAFETY: the false queue pair lives until the end of the test.
    let send = unsafe { SendOp::new(qp(&mut it)) }.expect("it has one");
    let mut last = SendWr::EMPTY;
    let mut first = SendWr { next: &raw mut last, ..SendWr::EMPTY };
    let mut bad = ptr::null_mut();
    RETURN.set(12);
    NAME_BAD.set(true);
    // SAFETY: a chain of two.
    assert_eq!(unsafe { send.post(&raw mut first, &mut bad) }, 12);
    assert_eq!(bad, &raw mut last);
}

#[test]
fn a_poll_counts_what_was_written_and_no_more_than_there_is_room_for() {
    let mut it = provider();
    // SAFETY: the false queue lives until the end of the test.
    let poll = unsafe { PollOp::new(cq(&mut it)) }.expect("it has one");
    let mut into = [Wc::EMPTY; 4];
    RETURN.set(3);
    // SAFETY: as above.
    assert_eq!(unsafe { poll.poll(&mut into) }, 3);
    assert_eq!(into.map(|wc| wc.wr_id), [40, 41, 42, 0]);
    RETURN.set(7);
    // SAFETY: as above.
    assert_eq!(unsafe { poll.poll(&mut into) }, 4, "a count that cannot be");
    RETURN.set(-12);
    // SAFETY: as above.
    assert_eq!(unsafe { poll.poll(&mut into) }, -12);
}

#[test]
fn a_device_without_the_operation_is_refused_when_the_port_is_made() {
    let mut it = provider();
    it.context.ops.post_send = None;
    it.context.ops.poll_cq = None;
    // SAFETY: the false objects live until the end of the test.
    unsafe {
        assert_eq!(SendOp::new(qp(&mut it)).map_err(|e| e.errno()).err(), Some(libc::EOPNOTSUPP));
        assert!(PollOp::new(cq(&mut it)).is_err());
    }
}
