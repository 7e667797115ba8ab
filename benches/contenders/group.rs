//! Many queue pairs on one completion queue: each request goes to the next one, and a completion finds its
//! queue through the group.

use core::ffi::c_void;

use nanoverbs_benches::ffi::{BATCH, CHAIN, DEPTH, Setup};
use nanoverbs_core::{Completions, Group, Joined, Member, Route, SendLink, SendQueue, SendStaging};

use crate::port::Cq;
use crate::{Make, Message, Queue, Token, fail, messages, operation, queues, refused};

const MEMBERS: usize = 4096;

struct State {
    setup: Setup,
    group: Box<Group<MEMBERS>>,
    _members: Vec<Member>,
    /// By the index of the member.
    queues: Box<[Box<Queue<Token>>]>,
    completions: Completions<Cq, BATCH>,
    staging: SendLink<'static, CHAIN, 1>,
    messages: Box<[Message]>,
}

pub(crate) extern "C" fn open(setup: *const Setup) -> *mut c_void {
    // SAFETY: the program keeps the setup until `close`.
    let setup = unsafe { setup.read() };
    // SAFETY: a live completion queue.
    let port = unsafe { Cq::new(setup.cq.cast()) };
    let mut completions = Completions::new(port, u32::MAX);
    let mut group = Box::<Group<MEMBERS>>::default();
    let mut members = Vec::new();
    let queues = queues(&setup, |port, slots, config| {
        let room = DEPTH as u32;
        let Joined { member, send, .. } =
            group.join(&mut completions, room, 0).expect("there is room");
        assert_eq!(member.index(), members.len(), "indices come in order");
        members.push(member);
        SendQueue::with_seat(port, slots, config, send).expect("the numbers fit")
    });
    let staging: &'static mut SendStaging<CHAIN, 1> = Box::leak(Box::default());
    Box::into_raw(Box::new(State {
        group,
        _members: members,
        queues,
        completions,
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

impl State {
    #[inline(always)]
    fn post(&mut self) {
        let mut at = self.setup.at as usize;
        for message in &self.messages {
            let Some(queue) = self.queues.get_mut(at).map(Box::as_mut) else { fail() };
            let Ok(mut chain) = queue.reserve(&mut self.staging, 1) else { fail() };
            if let Err(rejected) = chain.push(operation(message), Token::make(message)) {
                refused(rejected.error);
            }
            if chain.submit().is_err() {
                fail();
            }
            at = if at + 1 == self.queues.len() { 0 } else { at + 1 };
        }
        self.setup.at = at as u32;
    }

    #[inline(always)]
    fn consume(&mut self) -> u64 {
        let mut sum = 0_u64;
        let Ok(batch) = self.completions.poll() else { fail() };
        for completion in batch {
            let Route::Send(index) = self.group.route(&completion) else { fail() };
            let Some(queue) = self.queues.get_mut(index).map(Box::as_mut) else { fail() };
            if queue.retire(completion).is_err() {
                fail();
            }
            while let Some(ended) = queue.take() {
                if !ended.outcome.is_done() {
                    fail();
                }
                sum = sum.wrapping_add(ended.context.number());
            }
        }
        sum
    }
}

pub(crate) extern "C" fn single(state: *mut c_void, count: u64) -> u64 {
    // SAFETY: made by `open`, and used by one thread.
    let state = unsafe { &mut *state.cast::<State>() };
    let mut sum = 0_u64;
    for _ in 0..count {
        state.post();
        sum = sum.wrapping_add(state.consume());
    }
    sum
}

/// Counts only what polling, routing, retiring and taking cost.
pub(crate) extern "C" fn poll(state: *mut c_void, count: u64) -> u64 {
    // SAFETY: made by `open`, and used by one thread.
    let state = unsafe { &mut *state.cast::<State>() };
    let (section, mut sum) = (state.setup.section, 0_u64);
    for _ in 0..count {
        state.post();
        section();
        sum = sum.wrapping_add(state.consume());
        section();
    }
    sum
}
