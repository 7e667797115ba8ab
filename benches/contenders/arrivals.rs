//! Receives: posted and taken, one by one and in chains.

use core::ffi::c_void;

use nanoverbs_benches::ffi::{BATCH, CHAIN, DEPTH, Setup};
use nanoverbs_core::{
    Completions, Domain, RecvBuffers, RecvConfig, RecvLink, RecvQueue, RecvSlots, RecvStaging,
    SliceList,
};

use crate::port::{Arrivals, Cq};
use crate::{Make, Message, Token, fail, messages, queue_pairs, refused};

// SAFETY: messages live as long as the state, which outlives the run, and nobody looks at their memory.
unsafe impl RecvBuffers for Token {
    #[inline(always)]
    fn scatter(&mut self, list: &mut SliceList<'_>) {
        // SAFETY: as above.
        list.push(unsafe { self.0.as_ref() }.slice);
    }
}

type Queue = RecvQueue<'static, Arrivals, Token, DEPTH>;

struct State {
    setup: Setup,
    queues: Box<[Box<Queue>]>,
    completions: Completions<Cq, BATCH>,
    staging: RecvLink<'static, CHAIN, 1>,
    messages: Box<[Message]>,
}

pub(crate) extern "C" fn open(setup: *const Setup) -> *mut c_void {
    // SAFETY: the program keeps the setup until `close`.
    let setup = unsafe { setup.read() };
    let queues = queue_pairs(&setup).iter().map(|qp| {
        let place = Box::<Queue>::new_uninit();
        let slots: &'static mut RecvSlots<Token, DEPTH> = Box::leak(Box::default());
        // SAFETY: a live queue pair of a mode that receives.
        let port = unsafe { Arrivals::new(qp.cast()) };
        let config = RecvConfig::new(Domain::from_raw(setup.domain)).max_sges(1);
        Box::write(place, RecvQueue::new(port, slots, config).expect("the numbers fit"))
    });
    let queues = queues.collect();
    // SAFETY: a live completion queue.
    let port = unsafe { Cq::new(setup.cq.cast()) };
    let staging: &'static mut RecvStaging<CHAIN, 1> = Box::leak(Box::default());
    Box::into_raw(Box::new(State {
        queues,
        completions: Completions::new(port, u32::MAX),
        staging: staging.link(),
        messages: messages(&setup),
        setup,
    }))
    .cast()
}

pub(crate) extern "C" fn close(state: *mut c_void) {
    // SAFETY: made by `open`.
    drop(unsafe { Box::from_raw(state.cast::<State>()) });
}

/// Posts the receives of a round in chains of `n`, and takes what has arrived.
#[inline(always)]
fn rounds(state: *mut c_void, count: u64, n: impl Fn(&Setup) -> usize) -> u64 {
    // SAFETY: made by `open`, and used by one thread.
    let state = unsafe { &mut *state.cast::<State>() };
    let (mut sum, mut at) = (0_u64, state.setup.at as usize);
    let n = n(&state.setup);
    for _ in 0..count {
        let Some(queue) = state.queues.get_mut(at).map(Box::as_mut) else { fail() };
        let mut rest = &state.messages[..];
        while let Some((now, later)) = rest.split_at_checked(n).filter(|(now, _)| !now.is_empty()) {
            let Ok(mut chain) = queue.reserve(&mut state.staging, n) else { fail() };
            for message in now {
                if let Err(rejected) = chain.push(Token::make(message)) {
                    refused(rejected.error);
                }
            }
            if chain.submit().is_err() {
                fail();
            }
            rest = later;
        }
        let Ok(batch) = state.completions.poll() else { fail() };
        for completion in batch {
            if queue.retire(completion).is_err() {
                fail();
            }
        }
        while let Some(ended) = queue.take() {
            if !ended.outcome.is_done() {
                fail();
            }
            sum = sum.wrapping_add(ended.context.number());
        }
        at = if at + 1 == state.queues.len() { 0 } else { at + 1 };
    }
    state.setup.at = at as u32;
    sum
}

pub(crate) extern "C" fn single(state: *mut c_void, count: u64) -> u64 {
    rounds(state, count, |_| 1)
}

pub(crate) extern "C" fn chain(state: *mut c_void, count: u64) -> u64 {
    rounds(state, count, |setup| setup.chain as usize)
}
