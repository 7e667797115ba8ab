//! Messages on the soft device, from one queue pair to another: what runs without C.

use nanoverbs_core::soft::{CompletionQueue, Device, QpConfig, RecvEnd, SendEnd};
use nanoverbs_core::{
    Block, BlockHeader, Completions, Pool, RecvConfig, RecvLink, RecvQueue, RecvSlots, RecvStaging,
    SendConfig, SendLink, SendQueue, SendSlots, SendStaging, op,
};

type Sends = SendQueue<'static, SendEnd<'static, 64>, Block, 64>;
type Recvs = RecvQueue<'static, RecvEnd<'static, 64>, Block, 64>;

/// Both ends, a pool for both, and what one thread needs to drive them.
#[expect(missing_debug_implementations, reason = "nobody prints it")]
pub struct Loop {
    pool: Pool,
    sends: Sends,
    recvs: Recvs,
    staging: SendLink<'static, 16, 1>,
    receiving: RecvLink<'static, 16, 1>,
    completions: Completions<CompletionQueue<'static, 2, 64>, 32>,
}

impl Loop {
    /// Two connected queue pairs. `None` when the device refuses, which it does not.
    pub fn new() -> Option<Self> {
        let device: &'static Device<2, 64> = Box::leak(Box::new(Device::new()));
        let domain = device.domain();
        let memory = Box::leak(vec![0_u8; 64 * 256].into_boxed_slice());
        let region = device.register(domain, memory).ok()?;
        let headers = Box::leak((0..256).map(|_| BlockHeader::new()).collect());
        let pool = Pool::new(Box::leak(Box::default()), headers, region, 64).ok()?;
        let queue = device.completion_queue(256).ok()?;
        let a = device.queue_pair(QpConfig::new(domain), &queue, &queue).ok()?;
        let b = device.queue_pair(QpConfig::new(domain), &queue, &queue).ok()?;
        a.control.connect(&b.control).ok()?;
        core::mem::forget((a.control, b.control));
        let slots: &'static mut SendSlots<Block, 64> = Box::leak(Box::default());
        let mut sends = SendQueue::new(a.send, slots, SendConfig::new(domain)).ok()?;
        sends.open();
        let slots: &'static mut RecvSlots<Block, 64> = Box::leak(Box::default());
        let recvs = RecvQueue::new(b.recv, slots, RecvConfig::new(domain)).ok()?;
        let staging: &'static mut SendStaging<16, 1> = Box::leak(Box::default());
        let receiving: &'static mut RecvStaging<16, 1> = Box::leak(Box::default());
        let (staging, receiving) = (staging.link(), receiving.link());
        let completions = Completions::new(queue, 256);
        Some(Self { pool, sends, recvs, staging, receiving, completions })
    }

    /// Sends `count` messages in chains of `n`, at most 16, receives them, and says how many came.
    pub fn run(&mut self, count: usize, n: usize) -> Option<usize> {
        let mut arrived = 0;
        for _ in 0..count / n {
            let mut chain = self.recvs.reserve(&mut self.receiving, n).ok()?;
            for _ in 0..n {
                chain.push(self.pool.allocate()?).ok()?;
            }
            chain.submit().ok()?;
            let mut chain = self.sends.reserve(&mut self.staging, n).ok()?;
            for _ in 0..n {
                chain.push(op::Send::new(), self.pool.allocate()?).ok()?;
            }
            chain.submit().ok()?;
            let until = arrived + n;
            while arrived < until {
                for completion in self.completions.poll().ok()? {
                    if completion.is_recv() {
                        self.recvs.retire(completion).ok()?;
                    } else {
                        self.sends.retire(completion).ok()?;
                    }
                }
                while let Some(ended) = self.recvs.take() {
                    arrived += usize::from(ended.outcome.is_done());
                }
                while self.sends.take().is_some() {}
            }
        }
        Some(arrived)
    }
}
