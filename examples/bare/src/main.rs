//! A ping-pong on the soft device, without std, without an allocator, with every byte in statics.
//!
//! Exits with 0 when every byte came back, and with another number otherwise. Only `main` and the
//! C library's `abort` belong to a system: the rest runs as it is on bare metal.
#![no_std]
#![no_main]

use core::panic::PanicInfo;

use nanoverbs_core::soft::{CompletionQueue, Device, QpConfig, QueuePair, RecvEnd, SendEnd};
use nanoverbs_core::{
    Block, BlockHeader, Completions, Place, Pool, PoolRoot, RecvConfig, RecvLink, RecvQueue,
    RecvSlots, RecvStaging, SendConfig, SendLink, SendQueue, SendSlots, SendStaging, op,
};

const DEPTH: usize = 8;
const BLOCK: usize = 64;
const BLOCKS: usize = 8;
const ROUNDS: u32 = 10_000;

static DEVICE: Device<2, DEPTH> = Device::new();
static MEMORY: Place<[u8; BLOCK * BLOCKS]> = Place::new([0; BLOCK * BLOCKS]);
static HEADERS: Place<[BlockHeader; BLOCKS]> = Place::new([const { BlockHeader::new() }; BLOCKS]);
static ROOT: Place<PoolRoot> = Place::new(PoolRoot::new());
static SEND_SLOTS: [Place<SendSlots<Block, DEPTH>>; 2] =
    [const { Place::new(SendSlots::new()) }; 2];
static RECV_SLOTS: [Place<RecvSlots<Block, DEPTH>>; 2] =
    [const { Place::new(RecvSlots::new()) }; 2];
static SEND_STAGING: Place<SendStaging<1, 1>> = Place::new(SendStaging::new());
static RECV_STAGING: Place<RecvStaging<1, 1>> = Place::new(RecvStaging::new());

/// One end: its queues, and the completion queue of both.
struct End {
    sends: SendQueue<'static, SendEnd<'static, DEPTH>, Block, DEPTH>,
    recvs: RecvQueue<'static, RecvEnd<'static, DEPTH>, Block, DEPTH>,
    completions: Completions<CompletionQueue<'static, 2, DEPTH>, 4>,
}

/// What both ends post from: they run on one thread.
struct Staging {
    send: SendLink<'static, 1, 1>,
    recv: RecvLink<'static, 1, 1>,
}

impl End {
    fn send(&mut self, staging: &mut Staging, block: Block) -> Option<()> {
        let mut chain = self.sends.reserve(&mut staging.send, 1).ok()?;
        chain.push(op::Send::new().signaled(), block).ok()?;
        chain.submit().ok().map(drop)
    }

    fn receive_into(&mut self, staging: &mut Staging, block: Block) -> Option<()> {
        let mut chain = self.recvs.reserve(&mut staging.recv, 1).ok()?;
        chain.push(block).ok()?;
        chain.submit().ok().map(drop)
    }

    /// The next message. The blocks of sends that have ended go back to their pool meanwhile.
    fn received(&mut self) -> Option<Block> {
        loop {
            for completion in self.completions.poll().ok()? {
                if completion.is_recv() {
                    self.recvs.retire(completion).ok()?;
                } else {
                    self.sends.retire(completion).ok()?;
                }
            }
            while let Some(ended) = self.sends.take() {
                ended.outcome.success()?;
            }
            if let Some(ended) = self.recvs.take() {
                return ended.outcome.is_done().then_some(ended.context);
            }
        }
    }
}

/// Plays; the error is the round that went wrong.
fn play() -> Result<(), u32> {
    let (mut ends, mut staging, mut pool) = set_up().ok_or(u32::MAX)?;
    for round in 0..ROUNDS {
        one_round(&mut ends, &mut staging, &mut pool, round as u8).ok_or(round)?;
    }
    Ok(())
}

fn one_round(
    [client, server]: &mut [End; 2],
    staging: &mut Staging,
    pool: &mut Pool,
    byte: u8,
) -> Option<()> {
    let mut ping = pool.allocate()?;
    ping.fill(byte);
    client.send(staging, ping)?;
    let mut pong = server.received()?;
    pong.iter_mut().for_each(|byte| *byte = !*byte);
    server.send(staging, pong)?;
    server.receive_into(staging, pool.allocate()?)?;
    let back = client.received()?;
    let is_right = back.iter().all(|&found| found == !byte);
    client.receive_into(staging, back)?;
    is_right.then_some(())
}

fn set_up() -> Option<([End; 2], Staging, Pool)> {
    let domain = DEVICE.domain();
    let region = DEVICE.register(domain, MEMORY.take()?).ok()?;
    let mut pool = Pool::new(ROOT.take()?, HEADERS.take()?, region, BLOCK).ok()?;
    let mut staging =
        Staging { send: SEND_STAGING.take()?.link(), recv: RECV_STAGING.take()?.link() };
    let make = |index: usize| {
        let queue = DEVICE.completion_queue(2 * DEPTH).ok()?;
        let QueuePair { send, recv, control } =
            DEVICE.queue_pair(QpConfig::new(domain), &queue, &queue).ok()?;
        let (send_slots, recv_slots) = (SEND_SLOTS[index].take()?, RECV_SLOTS[index].take()?);
        let mut sends = SendQueue::new(send, send_slots, SendConfig::new(domain)).ok()?;
        let recvs = RecvQueue::new(recv, recv_slots, RecvConfig::new(domain)).ok()?;
        sends.open();
        let completions = Completions::new(queue, 2 * DEPTH as u32);
        Some((End { sends, recvs, completions }, control))
    };
    let ((client, here), (server, there)) = (make(0)?, make(1)?);
    here.connect(&there).ok()?;
    // The queue pairs live as long as the program; their controls would destroy them.
    core::mem::forget((here, there));
    let mut ends = [client, server];
    for end in &mut ends {
        end.receive_into(&mut staging, pool.allocate()?)?;
    }
    Some((ends, staging, pool))
}

/// Where a C runtime starts a program.
#[unsafe(no_mangle)]
#[expect(unsafe_code, reason = "the C runtime looks for this name")]
pub extern "C" fn main() -> i32 {
    match play() {
        Ok(()) => 0,
        // 1 to 255, whatever the round.
        Err(round) => (round % 255) as i32 + 1,
    }
}

#[expect(unsafe_code, reason = "the C library, which holds the runtime")]
#[link(name = "c")]
unsafe extern "C" {
    safe fn abort() -> !;
}

#[panic_handler]
fn panicked(_: &PanicInfo<'_>) -> ! {
    abort()
}

/// What the prebuilt `core` names and nobody calls: this program does not unwind.
#[unsafe(no_mangle)]
#[expect(unsafe_code, reason = "the linker looks for this name")]
pub extern "C" fn rust_eh_personality() {}
