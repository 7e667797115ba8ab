//! The crate `ibverbs` as it is published: it posts one request a call, and signals each.

use core::ffi::c_void;
use core::ops::Range;
use std::io;

use ibverbs::ibv_qp_type::IBV_QPT_RC;
use ibverbs::{CompletionQueue, MemoryRegion, QueuePair, ibv_wc};
use nanoverbs_benches_crates::ffi::{BATCH, Contender, DEPTH, Request, Setup};

const LEN: usize = 64;

struct State {
    setup: Setup,
    queue_pairs: Vec<QueuePair<'static>>,
    completions: &'static CompletionQueue<'static>,
    memory: MemoryRegion<u8>,
    base: u64,
}

fn try_open(setup: Setup) -> io::Result<Box<State>> {
    // They borrow from each other, and live as long as the process.
    let context =
        Box::leak(Box::new(ibverbs::devices()?.get(0).ok_or(io::ErrorKind::NotFound)?.open()?));
    let completions = &*Box::leak(Box::new(context.create_cq(1024, 0)?));
    let domain = &*Box::leak(Box::new(context.alloc_pd()?));
    let memory = domain.allocate::<u8>(DEPTH * LEN)?;
    let queue_pairs = (0..setup.nqps)
        .map(|_| {
            let prepared = domain
                .create_qp(completions, completions, IBV_QPT_RC)
                .set_max_send_wr(DEPTH as u32)
                .build()?;
            let peer = prepared.endpoint();
            prepared.handshake(peer)
        })
        .collect::<io::Result<_>>()?;
    // The memory is the crate's own: requests keep their distance from the first.
    let base = requests(&setup).first().map_or(0, |request| request.addr);
    Ok(Box::new(State { setup, queue_pairs, completions, memory, base }))
}

extern "C" fn open(setup: *const Setup) -> *mut c_void {
    // SAFETY: the program keeps the setup until `close`.
    let state = try_open(unsafe { setup.read() }).expect("the false device gives everything");
    Box::into_raw(state).cast()
}

extern "C" fn close(state: *mut c_void) {
    // SAFETY: made by `open`.
    drop(unsafe { Box::from_raw(state.cast::<State>()) });
}

#[cold]
fn fail() -> ! {
    std::process::abort()
}

fn requests(setup: &Setup) -> &'static [Request] {
    // SAFETY: `requests` has `per_round` entries, which the program keeps until `close`.
    unsafe { core::slice::from_raw_parts(setup.requests, setup.per_round as usize) }
}

fn range(request: &Request, base: u64) -> Range<usize> {
    let from = (request.addr - base) as usize;
    from..from + request.length as usize
}

extern "C" fn single(state: *mut c_void, rounds: u64) -> u64 {
    // SAFETY: made by `open`, and used by one thread.
    let state = unsafe { &mut *state.cast::<State>() };
    let State { setup, queue_pairs, completions, memory, base } = state;
    let requests = requests(setup);
    let mut entries = [ibv_wc::default(); BATCH];
    let (mut sum, mut at) = (0_u64, setup.at as usize);
    for _ in 0..rounds {
        let Some(queue_pair) = queue_pairs.get_mut(at) else { fail() };
        for request in requests {
            // SAFETY: nobody else uses the memory.
            let posted =
                unsafe { queue_pair.post_send(memory, range(request, *base), request.context) };
            if posted.is_err() {
                fail();
            }
        }
        let Ok(polled) = completions.poll(&mut entries[..setup.batch as usize]) else { fail() };
        for entry in polled {
            if !entry.is_valid() {
                fail();
            }
            sum = sum.wrapping_add(entry.wr_id());
        }
        at = if at + 1 == queue_pairs.len() { 0 } else { at + 1 };
    }
    setup.at = at as u32;
    sum
}

static ALL: [Contender; 1] =
    [Contender { name: c"ibverbs_single".as_ptr(), open, run: single, close }];

/// All of them, and how many.
///
/// # Safety
///
/// `count` is valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn contenders(count: *mut usize) -> *const Contender {
    // SAFETY: the caller's promise.
    unsafe { count.write(ALL.len()) };
    ALL.as_ptr()
}
