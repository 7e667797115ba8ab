//! Datagrams to and fro, to one peer and to a multicast group.
//!
//! ```text
//! ud_pong serve ADDRESS [GROUP]
//! ud_pong play ADDRESS PEER [GROUP]
//! ```
//!
//! The server sends back what it gets, to whoever sent it, and ends when it gets "bye". The player asks
//! the server for its queue pair, plays a thousand rounds, then sends to the group and waits for the
//! answer of the server, which is a member. Addresses are those of RDMA interfaces, with a port.

#[cfg(feature = "librdmacm")]
mod with_verbs {
    use std::collections::HashMap;
    use std::error::Error;
    use std::net::SocketAddr;
    use std::time::{Duration, Instant};

    use nanoverbs::cm::{DatagramAddress, DatagramEvent, Datagrams, Share};
    use nanoverbs::memory::{LocalMemory, Pages};
    use nanoverbs::nanoverbs_core::{
        BlockHeader, Completions, Datagram, Outcome, Pool, PoolRoot, QpNum, RecvLink, RecvQueue,
        RecvSlots, RecvStaging, SendLink, SendQueue, SendSlots, SendStaging, op, port,
    };
    use nanoverbs::port::{PollPort, RecvPort, SendPort};
    use nanoverbs::{CompletionQueue, QueuePairOptions};

    type Done<T> = Result<T, Box<dyn Error>>;

    const DEPTH: usize = 16;
    const BLOCK: usize = 256;
    const ROUNDS: u32 = 1000;
    const PATIENCE: Duration = Duration::from_secs(5);

    /// A message, who sent it, and the header of its packet.
    type Arrived = (Vec<u8>, QpNum, [u8; Datagram::PREFIX]);

    /// A queue pair for datagrams with its queues and memory. Ports before what they lead to.
    struct Player {
        sends: SendQueue<'static, port::Datagrams<SendPort>, Datagram, DEPTH>,
        receives: RecvQueue<'static, port::Datagrams<RecvPort>, Datagram, DEPTH>,
        sent: Completions<PollPort, DEPTH>,
        received: Completions<PollPort, DEPTH>,
        datagrams: Datagrams,
        send_link: SendLink<'static, 1, 1>,
        recv_link: RecvLink<'static, 1, 1>,
        pool: Pool,
    }

    impl Player {
        fn new(addr: SocketAddr) -> Done<Self> {
            let address = DatagramAddress::bind(addr)?;
            let device = address.device().clone();
            let domain = device.domain()?;
            let queue = || CompletionQueue::new(&device, DEPTH as u32, None);
            let (sent, received) = (queue()?, queue()?);
            let options = QueuePairOptions::new(DEPTH as u32, DEPTH as u32);
            let datagrams = address.create_queue_pair(&domain, &sent, &received, options)?;
            let pair = datagrams.queue_pair();
            // SAFETY: the queues stand above the queue pair in this structure.
            let (send_port, recv_port) =
                unsafe { (pair.datagram_send_port()?, pair.datagram_recv_port()?) };
            let blocks = 2 * DEPTH;
            let memory = LocalMemory::register(Pages::new(blocks * BLOCK)?, &domain)?;
            let headers: Box<[_]> = (0..blocks).map(|_| BlockHeader::new()).collect();
            let (root, headers) = (Box::leak(Box::new(PoolRoot::new())), Box::leak(headers));
            let pool = Pool::new(root, headers, memory.into_region(), BLOCK)
                .map_err(|refused| refused.cause)?;
            let send_slots = Box::leak(Box::new(SendSlots::new()));
            let recv_slots = Box::leak(Box::new(RecvSlots::new()));
            let mut player = Self {
                sends: SendQueue::new(send_port, send_slots, pair.send_config())?,
                receives: RecvQueue::new(recv_port, recv_slots, pair.recv_config())?,
                sent: Completions::new(sent.poll_port()?, DEPTH as u32),
                received: Completions::new(received.poll_port()?, DEPTH as u32),
                datagrams,
                send_link: Box::leak(Box::new(SendStaging::new())).link(),
                recv_link: Box::leak(Box::new(RecvStaging::new())).link(),
                pool,
            };
            // Nobody connects: datagrams may be sent at once.
            player.sends.open();
            for _ in 0..DEPTH / 2 {
                let datagram = player.datagram()?;
                player.receive(datagram)?;
            }
            Ok(player)
        }

        fn datagram(&mut self) -> Done<Datagram> {
            let block = self.pool.allocate().ok_or("no block is free")?;
            Datagram::new(block).map_err(|_| "a block is too short for a datagram".into())
        }

        fn receive(&mut self, datagram: Datagram) -> Done<()> {
            let mut chain = self.receives.reserve(&mut self.recv_link, 1)?;
            chain.push(datagram).map_err(|refused| refused.error)?;
            chain.submit().map_err(|error| error.to_string())?;
            Ok(())
        }

        fn send(&mut self, to: op::Peer, text: &[u8]) -> Done<()> {
            let mut datagram = self.datagram()?;
            if !datagram.set_len(text.len()) {
                return Err("the message is longer than a block".into());
            }
            datagram.copy_from_slice(text);
            let mut chain = self.sends.reserve(&mut self.send_link, 1)?;
            chain.push(op::Datagram::new(to).signaled(), datagram).map_err(|no| no.error)?;
            chain.submit().map_err(|error| error.to_string())?;
            Ok(())
        }

        /// What has arrived.
        fn arrived(&mut self) -> Done<Option<Arrived>> {
            for completion in self.sent.poll()? {
                self.sends.retire(completion)?;
            }
            while let Some(ended) = self.sends.take() {
                drop(ended.context);
            }
            for completion in self.received.poll()? {
                self.receives.retire(completion)?;
            }
            let Some(ended) = self.receives.take() else { return Ok(None) };
            let Outcome::Done(success) = ended.outcome else {
                return Err(format!("a receive ended as {:?}", ended.outcome).into());
            };
            let datagram = ended.context;
            let came = (datagram.payload(&success).to_vec(), success.source(), *datagram.header());
            self.receive(datagram)?;
            Ok(Some(came))
        }

        /// The next message, before the deadline.
        fn answer(&mut self) -> Done<Vec<u8>> {
            let began = Instant::now();
            loop {
                if let Some((message, ..)) = self.arrived()? {
                    return Ok(message);
                }
                if began.elapsed() > PATIENCE {
                    // Datagrams may be lost; a program that minds sends again.
                    return Err("no answer came".into());
                }
                std::thread::yield_now();
            }
        }
    }

    /// Sends back what comes.
    pub(crate) fn serve(addr: SocketAddr, group: Option<SocketAddr>) -> Done<()> {
        let mut player = Player::new(addr)?;
        let membership =
            group.map(|group| player.datagrams.join(group, Share::Full, PATIENCE)).transpose()?;
        println!("serving datagrams on {}", player.datagrams.local_addr());
        let mut ways = HashMap::new();
        let mut count = 0_u32;
        loop {
            while let Some(event) = player.datagrams.poll_event()? {
                if let DatagramEvent::Request(request) = event {
                    request.accept(&player.datagrams, b"")?;
                }
            }
            let Some((message, source, header)) = player.arrived()? else {
                std::thread::yield_now();
                continue;
            };
            if message == b"bye" {
                break;
            }
            count += 1;
            let to = match ways.get(&source) {
                Some(way) => *way,
                None => {
                    let way = player.datagrams.answer(source, &header)?.peer();
                    ways.insert(source, way);
                    way
                }
            };
            player.send(to, &message)?;
        }
        drop(membership);
        println!("{count} datagrams came and went back");
        Ok(())
    }

    /// Plays with the server at `peer`, then with all members of the group.
    pub(crate) fn play(addr: SocketAddr, peer: SocketAddr, group: Option<SocketAddr>) -> Done<()> {
        let mut player = Player::new(addr)?;
        let server = player.datagrams.find(peer, b"", PATIENCE)?.peer();
        let began = Instant::now();
        for round in 0..ROUNDS {
            let message = round.to_be_bytes();
            player.send(server, &message)?;
            if player.answer()? != message {
                return Err("another answer came".into());
            }
        }
        let each = began.elapsed() / ROUNDS;
        println!("{ROUNDS} rounds with {peer}, {each:.1?} each");
        if let Some(group) = group {
            let membership = player.datagrams.join(group, Share::SendOnly, PATIENCE)?;
            player.send(membership.handle().peer(), b"everybody")?;
            if player.answer()? != b"everybody" {
                return Err("another answer came".into());
            }
            println!("{} has answered", membership.addr());
            membership.leave();
        }
        player.send(server, b"bye")?;
        // What is on its way shall have left before the queue pair goes.
        while player.sends.in_flight() > 0 {
            player.arrived()?;
        }
        Ok(())
    }
}

#[cfg(feature = "librdmacm")]
fn run() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["serve", addr] => with_verbs::serve(addr.parse()?, None),
        ["serve", addr, group] => with_verbs::serve(addr.parse()?, Some(group.parse()?)),
        ["play", addr, peer] => with_verbs::play(addr.parse()?, peer.parse()?, None),
        ["play", addr, peer, group] => {
            with_verbs::play(addr.parse()?, peer.parse()?, Some(group.parse()?))
        }
        _ => Err("usage: ud_pong serve ADDRESS [GROUP] | play ADDRESS PEER [GROUP]".into()),
    }
}

#[cfg(not(feature = "librdmacm"))]
fn run() -> Result<(), Box<dyn std::error::Error>> {
    Err("this program needs the feature `verbs` or `declared`".into())
}

fn main() -> std::process::ExitCode {
    match run() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ud_pong: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}
