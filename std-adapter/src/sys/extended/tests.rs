//! The extended table against false contexts and a false queue.

use std::cell::Cell;

use super::*;
use crate::sys::CallError;

fn context(mark: usize, size: usize) -> Box<ffi::verbs_context> {
    // SAFETY: a structure of integers, pointers and optional functions: all zeros is a value.
    let mut table = Box::new(unsafe { MaybeUninit::<ffi::verbs_context>::zeroed().assume_init() });
    table.context.abi_compat = ptr::without_provenance_mut(mark);
    table.sz = size;
    table
}

fn clock(table: &mut ffi::verbs_context) -> Result<u64, CallError> {
    let whole: *mut ffi::verbs_context = table;
    let context = whole.wrapping_byte_add(offset_of!(ffi::verbs_context, context)).cast();
    let context = NonNull::new(context).map(ContextPtr::new).expect("an address");
    // SAFETY: the table is alive, and the pointer may reach all of it.
    unsafe { clock_khz(context) }
}

unsafe extern "C" fn query_device_ex(
    _: *mut ffi::ibv_context,
    _: *const ffi::ibv_query_device_ex_input,
    attr: *mut ffi::ibv_device_attr_ex,
    _: usize,
) -> c_int {
    // SAFETY: the tests pass a place for it.
    unsafe { (*attr).hca_core_clock = 1_000_000 };
    0
}

#[test]
fn an_entry_is_used_only_when_mark_size_and_pointer_say_that_it_is_there() {
    let whole = size_of::<ffi::verbs_context>();
    let unsupported = Err(CallError::new("ibv_query_device_ex", libc::EOPNOTSUPP));
    for (mark, size, there, result) in [
        (usize::MAX, whole, true, Ok(1_000_000)),
        (u32::MAX as usize, whole, true, unsupported),
        (0, whole, true, unsupported),
        (usize::MAX, size_of::<ffi::ibv_context>(), true, unsupported),
        (usize::MAX, whole, false, unsupported),
    ] {
        let mut table = context(mark, size);
        table.query_device_ex = there.then_some(query_device_ex as _);
        assert_eq!(clock(&mut table), result, "{mark:#x} {size} {there}");
    }
}

thread_local! {
    static LEFT: Cell<u64> = const { Cell::new(0) };
    static OPEN: Cell<u32> = const { Cell::new(0) };
}

unsafe extern "C" fn start(cq: *mut ffi::ibv_cq_ex, _: *mut ffi::ibv_poll_cq_attr) -> c_int {
    match LEFT.get() {
        0 => libc::ENOENT,
        left => {
            LEFT.set(left - 1);
            OPEN.set(OPEN.get() + 1);
            // SAFETY: the tests pass a queue; every second completion has failed.
            unsafe {
                (*cq).wr_id = left;
                (*cq).status = if left % 2 == 0 { 0 } else { 5 };
            }
            0
        }
    }
}

unsafe extern "C" fn end(_: *mut ffi::ibv_cq_ex) {
    OPEN.set(OPEN.get() - 1);
}

unsafe extern "C" fn number(cq: *mut ffi::ibv_cq_ex) -> u32 {
    // SAFETY: the tests pass a queue.
    unsafe { (*cq).wr_id as u32 }
}

unsafe extern "C" fn time(cq: *mut ffi::ibv_cq_ex) -> u64 {
    // SAFETY: the tests pass a queue.
    unsafe { (*cq).wr_id * 1000 }
}

#[test]
fn completions_come_with_their_times_and_every_walk_is_ended() {
    // SAFETY: a structure of integers, pointers and optional functions: all zeros is a value.
    let mut cq = unsafe { MaybeUninit::<ffi::ibv_cq_ex>::zeroed().assume_init() };
    let pointer = CqPtr::new(NonNull::from(&mut cq).cast());
    // SAFETY: the queue is alive.
    assert!(unsafe { TimedPollOp::new(pointer) }.is_err(), "it has no functions yet");
    cq.start_poll = Some(start);
    cq.end_poll = Some(end);
    cq.read_opcode = Some(number);
    cq.read_vendor_err = Some(number);
    cq.read_byte_len = Some(number);
    cq.read_imm_data = Some(number);
    cq.read_qp_num = Some(number);
    cq.read_src_qp = Some(number);
    cq.read_wc_flags = Some(number);
    cq.read_completion_ts = Some(time);
    let pointer = CqPtr::new(NonNull::from(&mut cq).cast());
    // SAFETY: the queue is alive.
    let op = unsafe { TimedPollOp::new(pointer) }.expect("it has all of them");
    LEFT.set(3);
    let mut entries = [Wc::EMPTY; 2];
    let mut times = Vec::new();
    // SAFETY: the queue is alive.
    let got = unsafe { op.poll(&mut entries, |place, time| times.push((place, time))) };
    assert_eq!((got, &times[..]), (2, &[(0, 3000), (1, 2000)][..]));
    assert_eq!((entries[0].status, entries[0].vendor_err, entries[0].byte_len), (5, 3, 0));
    assert_eq!((entries[1].status, entries[1].byte_len, entries[1].qp_num), (0, 2, 2));
    // SAFETY: as above.
    assert_eq!(unsafe { op.poll(&mut entries, |_, _| {}) }, 1);
    // SAFETY: as above.
    assert_eq!(unsafe { op.poll(&mut entries, |_, _| {}) }, 0);
    assert_eq!(OPEN.get(), 0);
}
