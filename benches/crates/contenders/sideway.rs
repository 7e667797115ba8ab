//! The crate `sideway` as it is published, by its classic path (`ibv_post_send`, `ibv_poll_cq`): the one that
//! every provider has.

use core::ffi::c_void;
use core::num::NonZeroU32;
use std::error::Error;
use std::sync::Arc;

use nanoverbs_benches_crates::ffi::{Contender, DEPTH, Request, Setup};
use sideway::ibverbs::completion::BasicCompletionQueue;
use sideway::ibverbs::device::DeviceList;
use sideway::ibverbs::queue_pair::{
    BasicQueuePair, PostSendGuard, QueuePair, SetScatterGatherEntry, WorkRequestFlags,
};

struct State {
    setup: Setup,
    queue_pairs: Vec<BasicQueuePair>,
    completions: Arc<BasicCompletionQueue>,
}

fn try_open(setup: Setup) -> Result<Box<State>, Box<dyn Error>> {
    let devices = DeviceList::new()?;
    let context = devices.get(0).ok_or("no device")?.open()?;
    let mut completions = context.create_cq_builder().setup_cqe(1024).build()?;
    if let (Some(queue), Some(batch)) =
        (Arc::get_mut(&mut completions), NonZeroU32::new(setup.batch))
    {
        queue.setup_poll_batch(batch);
    }
    let domain = context.alloc_pd()?;
    let queue_pairs = (0..setup.nqps)
        .map(|_| {
            domain
                .create_qp_builder()
                .setup_send_cq(completions.clone())
                .setup_recv_cq(completions.clone())
                .setup_max_send_wr(DEPTH as u32)
                .build()
        })
        .collect::<Result<_, _>>()?;
    Ok(Box::new(State { setup, queue_pairs, completions }))
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

/// Posts the requests of a round in chains of `n`, and takes what has ended.
fn run(state: *mut c_void, rounds: u64, n: impl Fn(&Setup) -> usize) -> u64 {
    // SAFETY: made by `open`, and used by one thread.
    let State { setup, queue_pairs, completions } = unsafe { &mut *state.cast::<State>() };
    // SAFETY: `requests` has `per_round` entries.
    let requests: &[Request] =
        unsafe { core::slice::from_raw_parts(setup.requests, setup.per_round as usize) };
    let n = n(setup);
    let (mut sum, mut at) = (0_u64, setup.at as usize);
    for _ in 0..rounds {
        let Some(queue_pair) = queue_pairs.get_mut(at) else { fail() };
        for chain in requests.chunks(n) {
            let mut guard = queue_pair.start_post_send();
            for request in chain {
                let flags = WorkRequestFlags::from(request.flags);
                let handle = guard.construct_wr(request.context, flags).setup_send();
                // SAFETY: the memory lives for the whole process, and nobody writes it.
                unsafe { handle.setup_sge(request.lkey, request.addr, request.length) };
            }
            if guard.post().is_err() {
                fail();
            }
        }
        let Ok(poller) = completions.start_poll() else { fail() };
        for completion in poller {
            if completion.status() != 0 {
                fail();
            }
            sum = sum.wrapping_add(completion.wr_id());
        }
        at = if at + 1 == queue_pairs.len() { 0 } else { at + 1 };
    }
    setup.at = at as u32;
    sum
}

extern "C" fn single(state: *mut c_void, rounds: u64) -> u64 {
    run(state, rounds, |_| 1)
}

extern "C" fn chain(state: *mut c_void, rounds: u64) -> u64 {
    run(state, rounds, |setup| setup.chain as usize)
}

static ALL: [Contender; 2] = [
    Contender { name: c"sideway_single".as_ptr(), open, run: single, close },
    Contender { name: c"sideway_chain".as_ptr(), open, run: chain, close },
];

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
