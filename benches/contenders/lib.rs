//! The contenders in Rust: nanoverbs through its public calls, and rdma-sys without it.
#![allow(unreachable_pub, reason = "a shared object has no callers in Rust")]

mod arrivals;
mod group;
mod port;

use core::ffi::c_void;
use core::ptr::NonNull;

use nanoverbs_benches::ffi::{BATCH, CHAIN, Contender, DEPTH, Setup};
use nanoverbs_core::abi::{Sge, send_flags};
use nanoverbs_core::{
    Access, Block, BlockHeader, Completions, Domain, LKey, Pool, PushError, RKey, Region,
    Registration, SendBuffers, SendConfig, SendLink, SendQueue, SendSlots, SendStaging, Slice,
    SliceList, op,
};
use port::{Cq, Qp};

/// A piece of memory that lives as long as the process: with it, any number is a context that owns
/// its buffer, as in `(Piece, u64)`.
struct Piece(Slice);

// SAFETY: the memory is never freed or written while the contenders run.
unsafe impl SendBuffers for Piece {
    #[inline(always)]
    fn gather(&self, list: &mut SliceList<'_>) {
        list.push(self.0);
    }
}

/// The same in eight bytes: a message that lies somewhere for ever, and its address.
#[derive(Clone, Copy)]
struct Token(NonNull<Message>);

struct Message {
    slice: Slice,
    signaled: bool,
    number: u64,
}

// SAFETY: as for `Piece`.
unsafe impl SendBuffers for Token {
    #[inline(always)]
    fn gather(&self, list: &mut SliceList<'_>) {
        // SAFETY: messages live as long as the state, which outlives the run.
        list.push(unsafe { self.0.as_ref() }.slice);
    }
}

type Queue<C> = SendQueue<'static, Qp, C, DEPTH>;

/// What every contender of this library has.
struct State<C: 'static> {
    setup: Setup,
    /// Each allocated beside its slots, as C's are.
    queues: Box<[Box<Queue<C>>]>,
    completions: Completions<Cq, BATCH>,
    staging: SendLink<'static, CHAIN, 1>,
    messages: Box<[Message]>,
}

/// The queue pairs of a setup.
fn queue_pairs(setup: &Setup) -> &[*mut c_void] {
    // SAFETY: `qps` has `nqps` entries.
    unsafe { core::slice::from_raw_parts(setup.qps, setup.nqps as usize) }
}

fn send_config(domain: Domain) -> SendConfig {
    let config = SendConfig::new(domain).max_sges(1, 1).reads(16).max_inline(64);
    config.chain(CHAIN as u16).period((DEPTH / 2) as u16)
}

/// A send queue of each queue pair, which `make` puts together.
fn queues<C: 'static>(
    setup: &Setup,
    mut make: impl FnMut(Qp, &'static mut SendSlots<C, DEPTH>, SendConfig) -> Queue<C>,
) -> Box<[Box<Queue<C>>]> {
    let queue_pairs = queue_pairs(setup).iter().map(|qp| {
        let place = Box::<Queue<C>>::new_uninit();
        let slots: &'static mut SendSlots<C, DEPTH> = Box::leak(Box::default());
        // SAFETY: a live queue pair.
        let port = unsafe { Qp::new(qp.cast()) };
        let mut queue = make(port, slots, send_config(Domain::from_raw(setup.domain)));
        queue.open();
        Box::write(place, queue)
    });
    queue_pairs.collect()
}

/// # Safety
///
/// `setup` lives as long as the state.
unsafe fn open<C: 'static>(setup: *const Setup) -> Box<State<C>> {
    // SAFETY: the caller's promise.
    let setup = unsafe { setup.read() };
    let queues = queues(&setup, |port, slots, config| {
        SendQueue::new(port, slots, config).expect("the numbers fit")
    });
    // SAFETY: a live completion queue.
    let port = unsafe { Cq::new(setup.cq.cast()) };
    let staging: &'static mut SendStaging<CHAIN, 1> = Box::leak(Box::default());
    Box::new(State {
        queues,
        completions: Completions::new(port, u32::MAX),
        staging: staging.link(),
        messages: messages(&setup),
        setup,
    })
}

/// The requests of a round, each checked against the region once.
fn messages(setup: &Setup) -> Box<[Message]> {
    // SAFETY: `requests` has `per_round` entries.
    let requests = unsafe { core::slice::from_raw_parts(setup.requests, setup.per_round as usize) };
    let region = region(setup);
    requests
        .iter()
        .map(|r| {
            let offset = r.addr as usize - region.registration().addr.addr().get();
            Message {
                slice: region.slice(offset, r.length as usize).expect("inside the region"),
                signaled: r.flags & send_flags::SIGNALED != 0,
                number: r.context,
            }
        })
        .collect()
}

fn region(setup: &Setup) -> Region {
    // SAFETY: the region lives for the whole process, and all that is done with it is to name it.
    unsafe {
        let mr = &*setup.mr.cast::<rdma_sys::ibv_mr>();
        Region::from_raw(Registration {
            addr: NonNull::new(mr.addr.cast()).expect("memory"),
            len: mr.length,
            lkey: LKey::from_raw(mr.lkey),
            rkey: RKey::from_raw(mr.rkey),
            access: Access::LOCAL_WRITE,
            domain: Domain::from_raw(setup.domain),
        })
    }
}

extern "C" fn close<C: 'static>(state: *mut c_void) {
    // SAFETY: made by `open` with the same type.
    drop(unsafe { Box::from_raw(state.cast::<State<C>>()) });
}

extern "C" fn open_as<C: 'static>(setup: *const Setup) -> *mut c_void {
    // SAFETY: the program keeps the setup until `close`.
    Box::into_raw(unsafe { open::<C>(setup) }).cast()
}

/// A context that a contender makes of a message.
trait Make: SendBuffers {
    fn make(message: &Message) -> Self;
    fn number(&self) -> u64;
}

impl Make for (Piece, u64) {
    #[inline(always)]
    fn make(message: &Message) -> Self {
        (Piece(message.slice), message.number)
    }

    #[inline(always)]
    fn number(&self) -> u64 {
        self.1
    }
}

impl Make for Token {
    #[inline(always)]
    fn make(message: &Message) -> Self {
        Self(NonNull::from(message))
    }

    #[inline(always)]
    fn number(&self) -> u64 {
        // SAFETY: as for `gather`.
        unsafe { self.0.as_ref() }.number
    }
}

#[inline(always)]
fn operation(message: &Message) -> op::Send {
    let send = op::Send::new();
    if message.signaled { send.signaled() } else { send }
}

#[cold]
#[inline(never)]
fn fail() -> ! {
    std::process::abort()
}

#[cold]
#[inline(never)]
fn refused(error: PushError) -> ! {
    eprintln!("{error}");
    std::process::abort()
}

#[inline(always)]
fn consume<C: 'static>(
    completions: &mut Completions<Cq, BATCH>,
    queue: &mut Queue<C>,
    mut number: impl FnMut(C) -> u64,
) -> u64 {
    let mut sum = 0_u64;
    let Ok(batch) = completions.poll() else { fail() };
    for completion in batch {
        if queue.retire(completion).is_err() {
            fail();
        }
        while let Some(ended) = queue.take() {
            if !ended.outcome.is_done() {
                fail();
            }
            sum = sum.wrapping_add(number(ended.context));
        }
    }
    sum
}

/// Calls `post` with each queue in turn, and takes what has ended.
#[inline(always)]
fn rounds<C: 'static, R>(
    state: *mut c_void,
    rounds: u64,
    source: &mut R,
    number: impl Fn(&mut R, C) -> u64,
    post: impl Fn(&mut R, &mut Queue<C>, &mut SendLink<'static, CHAIN, 1>, &[Message], usize),
) -> u64 {
    // SAFETY: made by `open` with the same type, and used by one thread.
    let state = unsafe { &mut *state.cast::<State<C>>() };
    let chain = state.setup.chain as usize;
    let (mut sum, mut at) = (0_u64, state.setup.at as usize);
    for _ in 0..rounds {
        // SAFETY: `at` stays below the length.
        let queue = unsafe { state.queues.get_unchecked_mut(at) };
        post(source, queue, &mut state.staging, &state.messages, chain);
        sum = sum.wrapping_add(consume(&mut state.completions, queue, |context| {
            number(source, context)
        }));
        at = if at + 1 == state.queues.len() { 0 } else { at + 1 };
    }
    state.setup.at = at as u32;
    sum
}

extern "C" fn single<C: Make>(state: *mut c_void, count: u64) -> u64 {
    rounds::<C, _>(
        state,
        count,
        &mut (),
        |_, context| context.number(),
        |_, queue, staging, messages, _| {
            for message in messages {
                let Ok(mut chain) = queue.reserve(staging, 1) else { fail() };
                if let Err(rejected) = chain.push(operation(message), C::make(message)) {
                    refused(rejected.error);
                }
                if chain.submit().is_err() {
                    fail();
                }
            }
        },
    )
}

extern "C" fn chain<C: Make>(state: *mut c_void, count: u64) -> u64 {
    rounds::<C, _>(
        state,
        count,
        &mut (),
        |_, context| context.number(),
        |_, queue, staging, messages, n| {
            let mut rest = messages;
            while let Some((now, later)) =
                rest.split_at_checked(n).filter(|(now, _)| !now.is_empty())
            {
                let Ok(mut chain) = queue.reserve(staging, n) else { fail() };
                for message in now {
                    if let Err(rejected) = chain.push(operation(message), C::make(message)) {
                        refused(rejected.error);
                    }
                }
                if chain.submit().is_err() {
                    fail();
                }
                rest = later;
            }
        },
    )
}

extern "C" fn raw_single(state: *mut c_void, count: u64) -> u64 {
    rounds::<u64, _>(
        state,
        count,
        &mut (),
        |_, number| number,
        |_, queue, staging, messages, _| {
            for message in messages {
                let Ok(mut chain) = queue.reserve(staging, 1) else { fail() };
                let sge = piece(message);
                // SAFETY: the memory lives for the whole process, and nobody writes it.
                let pushed = unsafe { chain.push_raw(operation(message), &[sge], message.number) };
                if let Err(rejected) = pushed {
                    refused(rejected.error);
                }
                if chain.submit().is_err() {
                    fail();
                }
            }
        },
    )
}

extern "C" fn raw_chain(state: *mut c_void, count: u64) -> u64 {
    rounds::<u64, _>(
        state,
        count,
        &mut (),
        |_, number| number,
        |_, queue, staging, messages, n| {
            let mut rest = messages;
            while let Some((now, later)) =
                rest.split_at_checked(n).filter(|(now, _)| !now.is_empty())
            {
                let Ok(mut chain) = queue.reserve(staging, n) else { fail() };
                for message in now {
                    let sge = piece(message);
                    // SAFETY: the memory lives for the whole process, and nobody writes it.
                    if unsafe { chain.push_raw(operation(message), &[sge], message.number) }
                        .is_err()
                    {
                        fail();
                    }
                }
                if chain.submit().is_err() {
                    fail();
                }
                rest = later;
            }
        },
    )
}

#[inline(always)]
fn piece(message: &Message) -> Sge {
    let slice = &message.slice;
    Sge::new(slice.addr().as_ptr(), slice.len(), slice.lkey())
}

/// Owned blocks: each is allocated before its post, and goes back to its pool when it was taken.
struct Blocks {
    state: Box<State<(Block, u64)>>,
    pool: Pool,
}

extern "C" fn open_blocks(setup: *const Setup) -> *mut c_void {
    // SAFETY: the program keeps the setup until `close`.
    let state = unsafe { open::<(Block, u64)>(setup) };
    let headers = Box::leak((0..DEPTH).map(|_| BlockHeader::new()).collect());
    let len = state.messages.first().map_or(64, |m| m.slice.len() as usize);
    let region = region(&state.setup);
    let pool = Pool::new(Box::leak(Box::default()), headers, region, len).expect("they fit");
    Box::into_raw(Box::new(Blocks { state, pool })).cast()
}

extern "C" fn close_blocks(state: *mut c_void) {
    // SAFETY: made by `open_blocks`.
    drop(unsafe { Box::from_raw(state.cast::<Blocks>()) });
}

/// The number of a block's context; the block goes back to its pool.
#[inline(always)]
fn give_back(pool: &mut Pool, (block, number): (Block, u64)) -> u64 {
    pool.free(block);
    number
}

extern "C" fn block_single(blocks: *mut c_void, count: u64) -> u64 {
    // SAFETY: made by `open_blocks`, and used by one thread.
    let Blocks { state, pool } = unsafe { &mut *blocks.cast::<Blocks>() };
    let state: *mut State<(Block, u64)> = &mut **state;
    rounds(state.cast(), count, pool, give_back, |pool, queue, staging, messages, _| {
        for message in messages {
            let Some(block) = pool.allocate() else { fail() };
            let Ok(mut chain) = queue.reserve(staging, 1) else { fail() };
            if let Err(rejected) = chain.push(operation(message), (block, message.number)) {
                refused(rejected.error);
            }
            if chain.submit().is_err() {
                fail();
            }
        }
    })
}

extern "C" fn block_chain(blocks: *mut c_void, count: u64) -> u64 {
    // SAFETY: made by `open_blocks`, and used by one thread.
    let Blocks { state, pool } = unsafe { &mut *blocks.cast::<Blocks>() };
    let state: *mut State<(Block, u64)> = &mut **state;
    rounds(state.cast(), count, pool, give_back, |pool, queue, staging, messages, n| {
        let mut rest = messages;
        while let Some((now, later)) = rest.split_at_checked(n).filter(|(now, _)| !now.is_empty()) {
            let Ok(mut chain) = queue.reserve(staging, n) else { fail() };
            for message in now {
                let Some(block) = pool.allocate() else { fail() };
                if let Err(rejected) = chain.push(operation(message), (block, message.number)) {
                    refused(rejected.error);
                }
            }
            if chain.submit().is_err() {
                fail();
            }
            rest = later;
        }
    })
}

/// Posts a chain, and counts only what polling, retiring and taking cost.
extern "C" fn poll(state: *mut c_void, count: u64) -> u64 {
    // SAFETY: made by `open` with the same type, and used by one thread.
    let state = unsafe { &mut *state.cast::<State<Token>>() };
    let (n, section) = (state.setup.chain as usize, state.setup.section);
    let Some(queue) = state.queues.first_mut() else { fail() };
    let mut sum = 0_u64;
    for _ in 0..count {
        let Ok(mut chain) = queue.reserve(&mut state.staging, n) else { fail() };
        for message in &state.messages {
            if let Err(rejected) = chain.push(operation(message), Token::make(message)) {
                refused(rejected.error);
            }
        }
        if chain.submit().is_err() {
            fail();
        }
        section();
        sum = sum.wrapping_add(consume(&mut state.completions, queue, |token| token.number()));
        section();
    }
    sum
}

/// A poll that finds nothing.
extern "C" fn empty_poll(state: *mut c_void, mut count: u64) -> u64 {
    // SAFETY: made by `open` with the same type, and used by one thread.
    let state = unsafe { &mut *state.cast::<State<Token>>() };
    let mut sum = 0_u64;
    // Counted down, as in C.
    while count != 0 {
        count -= 1;
        let Ok(batch) = state.completions.poll() else { fail() };
        for completion in batch {
            if !completion.is_success() {
                fail();
            }
            sum = sum.wrapping_add(completion.serial().into());
        }
    }
    sum
}

/// The binding alone: what rdma-sys makes of `rdma_post_send`.
extern "C" fn open_sys(setup: *const Setup) -> *mut c_void {
    // SAFETY: the program keeps the setup until `close`.
    Box::into_raw(Box::new(unsafe { setup.read() })).cast()
}

extern "C" fn close_sys(state: *mut c_void) {
    // SAFETY: made by `open_sys`.
    drop(unsafe { Box::from_raw(state.cast::<Setup>()) });
}

extern "C" fn sys_single(state: *mut c_void, count: u64) -> u64 {
    // SAFETY: made by `open_sys`, and used by one thread.
    let setup = unsafe { &mut *state.cast::<Setup>() };
    // SAFETY: the setup's arrays have these lengths.
    let (ids, requests) = unsafe {
        (
            core::slice::from_raw_parts(setup.ids, setup.nqps as usize),
            core::slice::from_raw_parts(setup.requests, setup.per_round as usize),
        )
    };
    let mut entries = [const { core::mem::MaybeUninit::<rdma_sys::ibv_wc>::uninit() }; BATCH];
    let (mut sum, mut at) = (0_u64, setup.at as usize);
    for _ in 0..count {
        let Some(id) = ids.get(at) else { fail() };
        for r in requests {
            // SAFETY: a live queue pair and region; the payload lies inside it.
            let code = unsafe {
                rdma_sys::rdma_post_send(
                    id.cast(),
                    r.context as *mut c_void,
                    r.addr as *mut c_void,
                    u64::from(r.length) as _,
                    setup.mr.cast(),
                    r.flags as _,
                )
            };
            if code != 0 {
                fail();
            }
        }
        // SAFETY: a live completion queue; the array has room for the batch.
        let polled = unsafe {
            rdma_sys::ibv_poll_cq(setup.cq.cast(), setup.batch as i32, entries.as_mut_ptr().cast())
        };
        for entry in entries.iter().take(polled.max(0) as usize) {
            // SAFETY: the provider has written it.
            let entry = unsafe { entry.assume_init_ref() };
            if entry.status != rdma_sys::ibv_wc_status::IBV_WC_SUCCESS {
                fail();
            }
            sum = sum.wrapping_add(entry.wr_id);
        }
        at = if at + 1 == ids.len() { 0 } else { at + 1 };
    }
    setup.at = at as u32;
    sum
}

macro_rules! contenders {
    ($($name:literal $open:expr, $run:expr, $close:expr;)*) => {
        static ALL: &[Contender] = &[
            $(Contender { name: $name.as_ptr(), open: $open, run: $run, close: $close },)*
        ];
    };
}

contenders! {
    c"value_single" open_as::<(Piece, u64)>, single::<(Piece, u64)>, close::<(Piece, u64)>;
    c"value_chain" open_as::<(Piece, u64)>, chain::<(Piece, u64)>, close::<(Piece, u64)>;
    c"token_single" open_as::<Token>, single::<Token>, close::<Token>;
    c"token_chain" open_as::<Token>, chain::<Token>, close::<Token>;
    c"raw_single" open_as::<u64>, raw_single, close::<u64>;
    c"raw_chain" open_as::<u64>, raw_chain, close::<u64>;
    c"block_single" open_blocks, block_single, close_blocks;
    c"block_chain" open_blocks, block_chain, close_blocks;
    c"poll" open_as::<Token>, poll, close::<Token>;
    c"empty_poll" open_as::<Token>, empty_poll, close::<Token>;
    c"group_single" group::open, group::single, group::close;
    c"group_poll" group::open, group::poll, group::close;
    c"recv_single" arrivals::open, arrivals::single, arrivals::close;
    c"recv_chain" arrivals::open, arrivals::chain, arrivals::close;
    c"sys_single" open_sys, sys_single, close_sys;
}

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
