//! A device made of a script: it notes what is posted and completes what it is told to.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(missing_docs, reason = "for tests")]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::rc::Rc;

use nanoverbs_core::abi::{RecvWr, SendWr, Sge, Wc, send_flags, wc_opcode};
use nanoverbs_core::port::{PollPort, RecvPort, SendPort};
use nanoverbs_core::{
    Access, Block, BlockHeader, Domain, LKey, Pool, RKey, RecvConfig, RecvQueue, RecvSlots, Region,
    Registration, RemoteRegion, SendConfig, SendQueue, SendSlots,
};

/// A request as the device saw it.
#[derive(Clone, Debug)]
pub struct Posted {
    pub wr_id: u64,
    pub opcode: u32,
    pub flags: u32,
    pub imm_data: u32,
    pub sges: Vec<Sge>,
    pub bytes: Vec<u8>,
}

impl Posted {
    pub fn is_signaled(&self) -> bool {
        self.flags & send_flags::SIGNALED != 0
    }
}

#[derive(Debug, Default)]
pub struct Script {
    pub calls: usize,
    pub sends: Vec<Posted>,
    pub recvs: Vec<Posted>,
    pub completions: VecDeque<Wc>,
    /// What the next post returns, and how many requests it takes; `None` is "no word".
    pub refuse: Option<(i32, Option<usize>)>,
}

#[derive(Clone, Debug, Default)]
pub struct Device(pub Rc<RefCell<Script>>);

impl Device {
    pub fn complete(&self, wr_id: u64, status: u32) {
        self.complete_with(Wc { wr_id, status, ..Wc::EMPTY });
    }

    pub fn complete_with(&self, wc: Wc) {
        self.0.borrow_mut().completions.push_back(wc);
    }

    pub fn arrive(&self, wr_id: u64, byte_len: u32) {
        self.complete_with(Wc { wr_id, byte_len, opcode: wc_opcode::RECV, ..Wc::EMPTY });
    }

    pub fn refuse_next(&self, code: i32, accepted: Option<usize>) {
        self.0.borrow_mut().refuse = Some((code, accepted));
    }

    pub fn sends(&self) -> Vec<Posted> {
        self.0.borrow().sends.clone()
    }

    pub fn recvs(&self) -> Vec<Posted> {
        self.0.borrow().recvs.clone()
    }

    pub fn calls(&self) -> usize {
        self.0.borrow().calls
    }

    fn note(&self, inline: bool, sges: &[Sge]) -> Vec<u8> {
        let mut bytes = Vec::new();
        if inline {
            for sge in sges {
                let pointer = sge.addr.pointer();
                // SAFETY: a queue promises that inline data is valid during the post.
                bytes.extend_from_slice(unsafe {
                    std::slice::from_raw_parts(pointer, sge.length as usize)
                });
            }
        }
        bytes
    }
}

fn row(list: *const Sge, count: i32) -> Vec<Sge> {
    // SAFETY: a queue promises that the first `num_sge` entries are valid.
    (0..count as usize).map(|at| unsafe { *list.add(at) }).collect()
}

macro_rules! post {
    ($self:ident, $first:ident, $bad:ident, $note:expr) => {{
        $self.0.borrow_mut().calls += 1;
        let refuse = $self.0.borrow_mut().refuse.take();
        let limit = refuse.map_or(usize::MAX, |(_, accepted)| accepted.unwrap_or(usize::MAX));
        let (mut at, mut request) = (0, $first);
        while !request.is_null() && at < limit {
            // SAFETY: a queue promises a valid chain that ends with null.
            let wr = unsafe { &*request };
            $note(wr);
            (at, request) = (at + 1, wr.next);
        }
        match refuse {
            Some((code, accepted)) => {
                if accepted.is_some() {
                    *$bad = request;
                }
                code
            }
            None => 0,
        }
    }};
}

// SAFETY: it keeps to the contract: what it notes as taken it completes at most once, in order, on the
// test's word.
unsafe impl SendPort for Device {
    unsafe fn post_send(&mut self, first: *mut SendWr, bad: &mut *mut SendWr) -> i32 {
        post!(self, first, bad, |wr: &SendWr| {
            let sges = row(wr.sg_list, wr.num_sge);
            let bytes = self.note(wr.send_flags & send_flags::INLINE != 0, &sges);
            self.0.borrow_mut().sends.push(Posted {
                wr_id: wr.wr_id,
                opcode: wr.opcode,
                flags: wr.send_flags,
                imm_data: wr.imm_data,
                sges,
                bytes,
            });
        })
    }
}

// SAFETY: as above.
unsafe impl RecvPort for Device {
    unsafe fn post_recv(&mut self, first: *mut RecvWr, bad: &mut *mut RecvWr) -> i32 {
        post!(self, first, bad, |wr: &RecvWr| {
            let sges = row(wr.sg_list, wr.num_sge);
            self.0.borrow_mut().recvs.push(Posted {
                wr_id: wr.wr_id,
                opcode: 0,
                flags: 0,
                imm_data: 0,
                sges,
                bytes: Vec::new(),
            });
        })
    }
}

// SAFETY: it gives what the test put in, once, and no more than asked.
unsafe impl PollPort for Device {
    fn poll(&mut self, into: &mut [Wc]) -> i32 {
        let mut script = self.0.borrow_mut();
        let count = into.len().min(script.completions.len());
        for entry in &mut into[..count] {
            *entry = script.completions.pop_front().unwrap();
        }
        count as i32
    }
}

pub fn domain() -> Domain {
    Domain::from_raw(7)
}

/// A pool on leaked memory that is registered with these rights, in this domain.
pub fn pool_in(domain: Domain, access: Access, blocks: usize, block_len: usize) -> Pool {
    let memory: &'static mut [u8] = Box::leak(vec![0; blocks * block_len].into_boxed_slice());
    let registration = Registration {
        addr: NonNull::from(&mut *memory).cast(),
        len: memory.len(),
        lkey: LKey::from_raw(0x11),
        rkey: RKey::from_raw(0),
        access,
        domain,
    };
    // SAFETY: the memory is leaked, and nobody else has it.
    let region = unsafe { Region::from_raw(registration) };
    let headers: Vec<_> = (0..blocks).map(|_| BlockHeader::new()).collect();
    Pool::new(Box::leak(Box::default()), Box::leak(headers.into_boxed_slice()), region, block_len)
        .unwrap()
}

pub fn pool(blocks: usize, block_len: usize) -> Pool {
    pool_in(domain(), Access::LOCAL_WRITE, blocks, block_len)
}

pub fn remote(len: u64) -> RemoteRegion {
    let access = Access::REMOTE_READ.with(Access::REMOTE_WRITE);
    RemoteRegion::new(0x1000, len, RKey::from_raw(0x22), access).unwrap()
}

pub fn send_config() -> SendConfig {
    SendConfig::new(domain()).reads(4).max_inline(64).max_message(1 << 20)
}

pub fn send_queue<C, const N: usize>(
    device: &Device,
    config: SendConfig,
) -> SendQueue<'static, Device, C, N> {
    let slots = Box::leak(Box::new(SendSlots::new()));
    let mut queue = SendQueue::new(device.clone(), slots, config).unwrap();
    queue.open();
    queue
}

pub fn recv_queue<C, const N: usize>(device: &Device) -> RecvQueue<'static, Device, C, N> {
    let slots = Box::leak(Box::new(RecvSlots::new()));
    RecvQueue::new(device.clone(), slots, RecvConfig::new(domain())).unwrap()
}

/// A context that shows whether it was dropped.
pub type Tracked = (Option<Block>, Rc<()>);
