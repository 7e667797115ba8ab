//! Datagrams: where they go, and what is hidden of them.

use nanoverbs_core::port::Datagrams;
use nanoverbs_core::soft::{Profile, QpConfig, RecvEnd, SendEnd};
use nanoverbs_core::{
    Completions, Datagram, Domain, PushError, RecvConfig, RecvQueue, RecvSlots, RecvStaging,
    SendConfig, SendQueue, SendSlots, SendStaging, op,
};

use crate::bed::*;

const QKEY: u32 = 0x1234;

type Sends = SendQueue<'static, Datagrams<SendEnd<'static, 32>>, Datagram, 8>;
type Recvs = RecvQueue<'static, Datagrams<RecvEnd<'static, 32>>, Datagram, 8>;

struct Node {
    sends: Sends,
    recvs: Recvs,
    completions: Completions<nanoverbs_core::soft::CompletionQueue<'static, 6, 32>>,
    control: nanoverbs_core::soft::Control<'static, 6, 32>,
    peer: op::Peer,
}

fn node(device: &'static Dev, domain: Domain) -> Node {
    let queue = device.completion_queue(32).unwrap();
    let config = QpConfig::new(domain).datagram(QKEY).mtu(1024);
    let pair = device.queue_pair(config, &queue, &queue).unwrap();
    let config = SendConfig::new(domain).max_message(1024).max_inline(64);
    let mut sends =
        SendQueue::new(Datagrams::new(pair.send), leak(SendSlots::new()), config).unwrap();
    sends.open();
    let recvs =
        RecvQueue::new(Datagrams::new(pair.recv), leak(RecvSlots::new()), RecvConfig::new(domain));
    let peer = device.peer(domain, pair.control.number(), QKEY);
    let (recvs, completions) = (recvs.unwrap(), Completions::new(queue, 32));
    Node { sends, recvs, completions, control: pair.control, peer }
}

impl Node {
    fn post_recv(&mut self, datagram: Datagram) {
        let mut staging = RecvStaging::<1, 1>::new();
        let mut link = staging.link();
        let mut chain = self.recvs.reserve(&mut link, 1).unwrap();
        chain.push(datagram).unwrap();
        chain.submit().unwrap();
    }

    fn send(&mut self, operation: op::Datagram, datagram: Datagram) -> Result<(), PushError> {
        let mut staging = SendStaging::<1, 1>::new();
        let mut link = staging.link();
        let mut chain = self.sends.reserve(&mut link, 1).unwrap();
        chain.push(operation.signaled(), datagram).map_err(|rejected| rejected.error)?;
        chain.submit().unwrap();
        Ok(())
    }

    fn poll(&mut self) {
        for _ in 0..3 {
            for completion in self.completions.poll().unwrap() {
                if completion.is_recv() {
                    self.recvs.retire(completion).unwrap();
                } else {
                    self.sends.retire(completion).unwrap();
                }
            }
        }
    }
}

#[test]
fn f75_the_forty_bytes_before_a_datagram_are_hidden() {
    for profile in profiles() {
        let device = device(profile);
        let domain = device.domain();
        let (mut a, mut b) = (node(device, domain), node(device, domain));
        // 64 bytes of message: the blocks are longer by the prefix.
        let mut pool = pool(device, domain, 8, 64 + Datagram::PREFIX);
        let mut next = || Datagram::new(pool.allocate().unwrap()).unwrap();
        b.post_recv(next());
        let mut message = next();
        assert_eq!((message.len(), message.capacity()), (64, 64));
        message.fill(5);
        a.send(op::Datagram::new(b.peer).immediate(0x89ab_cdef), message).unwrap();
        b.poll();
        let arrived = b.recvs.take().unwrap();
        let success = *arrived.outcome.success().unwrap();
        assert_eq!(arrived.context.payload(&success), [5; 64]);
        assert_eq!(success.immediate(), Some(0x89ab_cdef));
        assert_eq!(success.source(), a.control.number());
        assert_eq!(arrived.context.header()[20], 0x45, "an IPv4 header");
        // The same block goes back as the answer, cut to what it shall say.
        let mut answer = arrived.context;
        assert!(answer.set_len(3) && !answer.set_len(65));
        answer.copy_from_slice(b"yes");
        a.post_recv(next());
        b.send(op::Datagram::new(b.peer.at(success.source(), QKEY)), answer).unwrap();
        a.poll();
        assert!(a.sends.take().unwrap().outcome.is_done());
        let arrived = a.recvs.take().unwrap();
        assert_eq!(arrived.context.payload(arrived.outcome.success().unwrap()), b"yes");
        assert_eq!(arrived.message(), Some(&b"yes"[..]));
    }
}

#[test]
fn f75_a_block_without_room_for_the_prefix_is_no_datagram() {
    let device = device(Profile::STRICT);
    let mut pool = pool(device, device.domain(), 1, 39);
    let block = Datagram::new(pool.allocate().unwrap()).unwrap_err();
    assert_eq!(block.len(), 39);
}

#[test]
fn a_datagram_longer_than_a_packet_or_of_another_domain_is_refused() {
    let device = device(Profile::STRICT);
    let domain = device.domain();
    let (mut a, b) = (node(device, domain), node(device, domain));
    let mut pool = pool(device, domain, 2, 1025 + Datagram::PREFIX);
    let mut next = || Datagram::new(pool.allocate().unwrap()).unwrap();
    let error = a.send(op::Datagram::new(b.peer), next()).unwrap_err();
    assert_eq!(error, PushError::MessageTooLong { total: 1025, max: 1024 });
    let stranger = device.domain();
    let peer = device.peer(stranger, b.control.number(), QKEY);
    let mut short = next();
    short.set_len(8);
    let error = a.send(op::Datagram::new(peer), short).unwrap_err();
    assert_eq!(error, PushError::WrongDomain { given: stranger, queue: domain });
}

#[test]
fn a_datagram_that_nobody_takes_has_left_all_the_same() {
    let device = device(Profile::STRICT);
    let domain = device.domain();
    let (mut a, b) = (node(device, domain), node(device, domain));
    let mut pool = pool(device, domain, 2, 64 + Datagram::PREFIX);
    for peer in [b.peer, b.peer.at(b.control.number(), QKEY + 1)] {
        let datagram = Datagram::new(pool.allocate().unwrap()).unwrap();
        a.send(op::Datagram::new(peer), datagram).unwrap();
        a.poll();
        assert!(a.sends.take().unwrap().outcome.is_done());
    }
}
