//! Two queue pairs on a soft device, and what it takes to post one request and to see it end.

use nanoverbs_core::soft::{CompletionQueue, Control, Device, Profile, QpConfig, RecvEnd, SendEnd};
use nanoverbs_core::{
    Access, Block, BlockHeader, Completions, Domain, Ended, Pool, PushError, RecvBuffers,
    RecvConfig, RecvLink, RecvQueue, RecvSlots, RecvStaging, SendConfig, SendLink, SendQueue,
    SendSlots, SendStaging, SharedRegion, op,
};

pub(crate) type Dev = Device<6, 32>;
type Queue = CompletionQueue<'static, 6, 32>;

/// Memory for ever.
pub(crate) fn leak<T>(value: T) -> &'static mut T {
    Box::leak(Box::new(value))
}

pub(crate) fn device(profile: Profile) -> &'static Dev {
    leak(Device::with_profile(profile))
}

/// The profiles that tests of behaviour run on.
pub(crate) fn profiles() -> [Profile; 3] {
    [Profile::STRICT, Profile::rxe(), Profile::mlx5_like()]
}

pub(crate) struct Side<C: 'static> {
    pub(crate) sends: SendQueue<'static, SendEnd<'static, 32>, C, 32>,
    pub(crate) recvs: RecvQueue<'static, RecvEnd<'static, 32>, C, 32>,
    pub(crate) control: Control<'static, 6, 32>,
    pub(crate) send_link: SendLink<'static, 8, 4>,
    pub(crate) recv_link: RecvLink<'static, 8, 4>,
    pub(crate) completions: Completions<Queue>,
}

pub(crate) fn side<C>(device: &'static Dev, domain: Domain) -> Side<C> {
    side_with(device, domain, QpConfig::new(domain))
}

pub(crate) fn side_with<C>(device: &'static Dev, domain: Domain, config: QpConfig) -> Side<C> {
    let queue = device.completion_queue(64).unwrap();
    let pair = device.queue_pair(config, &queue, &queue).unwrap();
    let config = SendConfig::new(domain).reads(4).max_inline(64);
    let mut sends = SendQueue::new(pair.send, leak(SendSlots::new()), config).unwrap();
    sends.open();
    let config = RecvConfig::new(domain);
    Side {
        sends,
        recvs: RecvQueue::new(pair.recv, leak(RecvSlots::new()), config).unwrap(),
        control: pair.control,
        send_link: leak(SendStaging::new()).link(),
        recv_link: leak(RecvStaging::new()).link(),
        completions: Completions::new(queue, 64),
    }
}

pub(crate) fn pair<C>(device: &'static Dev) -> (Side<C>, Side<C>, Domain) {
    let domain = device.domain();
    let (a, b) = (side(device, domain), side(device, domain));
    a.control.connect(&b.control).unwrap();
    (a, b, domain)
}

impl<C> Side<C> {
    pub(crate) fn post<O: op::Operation<C>>(
        &mut self,
        operation: O,
        context: C,
    ) -> Result<(), PushError> {
        let mut chain = self.sends.reserve(&mut self.send_link, 1).unwrap();
        chain.push(operation, context).map_err(|rejected| rejected.error)?;
        assert_eq!(chain.submit().unwrap(), 1);
        Ok(())
    }

    pub(crate) fn post_recv(&mut self, context: C)
    where
        C: RecvBuffers,
    {
        let mut chain = self.recvs.reserve(&mut self.recv_link, 1).unwrap();
        chain.push(context).unwrap();
        assert_eq!(chain.submit().unwrap(), 1);
    }

    pub(crate) fn poll(&mut self) {
        for completion in self.completions.poll().unwrap() {
            if completion.is_recv() {
                self.recvs.retire(completion).unwrap();
            } else {
                self.sends.retire(completion).unwrap();
            }
        }
    }

    pub(crate) fn try_sent(&mut self) -> Option<Ended<C>> {
        (0..4).find_map(|_| {
            self.poll();
            self.sends.take()
        })
    }

    pub(crate) fn sent(&mut self) -> Ended<C> {
        self.try_sent().expect("the request has ended")
    }

    pub(crate) fn try_received(&mut self) -> Option<Ended<C>> {
        (0..4).find_map(|_| {
            self.poll();
            self.recvs.take()
        })
    }

    pub(crate) fn received(&mut self) -> Ended<C> {
        self.try_received().expect("the receive has ended")
    }
}

pub(crate) fn pool(device: &'static Dev, domain: Domain, count: usize, len: usize) -> Pool {
    let memory = Vec::leak(vec![0; count * len]);
    let region = device.register(domain, memory).unwrap();
    let headers = Vec::leak((0..count).map(|_| BlockHeader::new()).collect());
    Pool::new(leak(nanoverbs_core::PoolRoot::new()), headers, region, len).unwrap()
}

pub(crate) const ALL: Access = Access::LOCAL_WRITE
    .with(Access::REMOTE_READ)
    .with(Access::REMOTE_WRITE)
    .with(Access::REMOTE_ATOMIC);

pub(crate) fn shared(
    device: &'static Dev,
    domain: Domain,
    words: usize,
    access: Access,
) -> SharedRegion {
    device.register_shared(domain, Vec::leak(vec![0; words]), access).unwrap()
}

pub(crate) fn word_at(region: &SharedRegion, offset: usize) -> u64 {
    let mut bytes = [0; 8];
    region.read_at(offset, &mut bytes).unwrap();
    u64::from_ne_bytes(bytes)
}

pub(crate) fn filled(pool: &mut Pool, len: usize, byte: u8) -> Block {
    let mut block = pool.allocate().unwrap();
    block.set_len(len).unwrap();
    block.fill(byte);
    block
}
