//! Twins of the structures in `c/bench.h`. Objects of verbs are pointers to who knows what: each contender
//! has a binding of its own.

use core::ffi::{c_char, c_void};

/// Slots of a send queue.
pub const DEPTH: usize = 128;
/// Requests of the longest chain.
pub const CHAIN: usize = 32;
/// Completions of the longest poll.
pub const BATCH: usize = 32;

/// One request as the application has it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Request {
    /// First byte of the payload.
    pub addr: u64,
    /// Its length.
    pub length: u32,
    /// The key of its region.
    pub lkey: u32,
    /// Protection domain and rights, as the twin in C checks them.
    pub tag: u32,
    /// `IBV_SEND_SIGNALED` or 0.
    pub flags: u32,
    /// What comes out when it is done.
    pub context: u64,
}

/// What a contender is given.
#[derive(Debug)]
#[repr(C)]
pub struct Setup {
    /// Queue pairs, `nqps` of them.
    pub qps: *mut *mut c_void,
    /// The same behind connection identifiers.
    pub ids: *mut *mut c_void,
    /// The completion queue of all of them.
    pub cq: *mut c_void,
    /// The region that holds every payload.
    pub mr: *mut c_void,
    /// The requests of a round.
    pub requests: *const Request,
    /// Queue pairs.
    pub nqps: u32,
    /// Requests of a round.
    pub per_round: u32,
    /// Requests of a chain.
    pub chain: u32,
    /// Completions asked for in a poll.
    pub batch: u32,
    /// The protection domain.
    pub domain: u32,
    /// The queue pair whose turn it is, kept from run to run.
    pub at: u32,
    /// Starts and ends what callgrind counts.
    pub section: extern "C" fn(),
}

/// One way to post and to poll.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Contender {
    /// What it is called.
    pub name: *const c_char,
    /// Makes its state.
    pub open: extern "C" fn(*const Setup) -> *mut c_void,
    /// Runs rounds; the sum of the contexts that came out.
    pub run: extern "C" fn(*mut c_void, u64) -> u64,
    /// Drops its state.
    pub close: extern "C" fn(*mut c_void),
}

// SAFETY: names and functions of a shared object that stays loaded.
unsafe impl Sync for Contender {}

/// What a shared object with contenders exports as `contenders`.
pub type Contenders = extern "C" fn(*mut usize) -> *const Contender;
