//! Two connected ends, and requests made by hand.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nanoverbs::cm::{ConnectParams, Connection, Connector, Listener};
use nanoverbs::memory::{LocalMemory, Pages};
use nanoverbs::port::{PollPort, RecvPort, SendPort};
use nanoverbs::{CompletionQueue, Device, QueuePair, QueuePairOptions};
use nanoverbs_core::abi::{RecvWr, SendWr, Sge, Wc, opcode, send_flags};
use nanoverbs_core::port::{PollPort as _, RecvPort as _, SendPort as _};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// What waits for nobody is over by then, also on a machine that is busy with other things.
pub(crate) const PROMPT: Duration = Duration::from_secs(10);
/// Bytes of one piece; piece `i` starts at `i * PIECE`.
pub(crate) const PIECE: usize = 256;

pub(crate) fn address() -> SocketAddr {
    SocketAddr::new(ip("NANOVERBS_RXE_ADDR"), 0)
}

pub(crate) fn ip(variable: &str) -> IpAddr {
    let text = std::env::var(variable).expect("the bed sets the address");
    text.parse().expect("an address")
}

/// A queue pair with what it needs. The fields go from top to bottom.
pub(crate) struct Parts {
    pub(crate) send: SendPort,
    pub(crate) recv: RecvPort,
    pub(crate) send_poll: PollPort,
    pub(crate) recv_poll: PollPort,
    pub(crate) queue_pair: Arc<QueuePair>,
    pub(crate) memory: LocalMemory,
}

pub(crate) struct End {
    pub(crate) parts: Parts,
    pub(crate) connection: Connection,
}

pub(crate) fn options() -> QueuePairOptions {
    QueuePairOptions::new(8, 8).inline(64)
}

/// Where sends and receives complete.
pub(crate) type Queues = (Arc<CompletionQueue>, Arc<CompletionQueue>);

pub(crate) fn queues(device: &Arc<Device>) -> Queues {
    let queue = || CompletionQueue::new(device, 8, None).expect("a completion queue");
    (queue(), queue())
}

impl Parts {
    pub(crate) fn new(queue_pair: &Arc<QueuePair>) -> Self {
        let pages = Pages::new(16 * PIECE).expect("pages");
        let memory = LocalMemory::register(pages, queue_pair.domain()).expect("memory");
        // SAFETY: the ports stand above the queue pair in this structure, and sends are posted
        // after connecting.
        let (send, recv) = unsafe { (queue_pair.send_port(), queue_pair.recv_port()) };
        Self {
            send: send.expect("a send port"),
            recv: recv.expect("a receive port"),
            send_poll: queue_pair.send_completions().poll_port().expect("a poll port"),
            recv_poll: queue_pair.recv_completions().poll_port().expect("a poll port"),
            queue_pair: Arc::clone(queue_pair),
            memory,
        }
    }

    fn sge(&self, piece: usize, len: usize) -> Sge {
        let slice = self.memory.region().slice(piece * PIECE, len).expect("inside");
        let lkey = self.memory.region().registration().lkey;
        Sge::new(slice.addr().as_ptr(), slice.len(), lkey)
    }

    pub(crate) fn write(&mut self, piece: usize, bytes: &[u8]) {
        let slice = self.memory.region().slice(piece * PIECE, bytes.len()).expect("inside");
        // SAFETY: inside the memory, and no request uses this piece just now.
        unsafe {
            slice
                .addr()
                .copy_from_nonoverlapping(std::ptr::NonNull::from(bytes).cast(), bytes.len())
        };
    }

    pub(crate) fn read(&self, piece: usize, len: usize) -> Vec<u8> {
        let slice = self.memory.region().slice(piece * PIECE, len).expect("inside");
        // SAFETY: inside the memory, and the receive into this piece has completed.
        unsafe { std::slice::from_raw_parts(slice.addr().as_ptr(), len) }.to_vec()
    }

    pub(crate) fn post_recv(&mut self, piece: usize, len: usize) -> i32 {
        let mut sge = self.sge(piece, len);
        let mut wr = RecvWr {
            wr_id: 100 + piece as u64,
            sg_list: &raw mut sge,
            num_sge: 1,
            ..RecvWr::EMPTY
        };
        let mut bad = std::ptr::null_mut();
        // SAFETY: one request whose piece stays registered until the end of the test.
        unsafe { self.recv.post_recv(&raw mut wr, &mut bad) }
    }

    pub(crate) fn post_send(&mut self, piece: usize, len: usize, flags: u32) -> i32 {
        let mut sge = self.sge(piece, len);
        let mut wr = SendWr {
            wr_id: 200 + piece as u64,
            sg_list: &raw mut sge,
            num_sge: 1,
            opcode: opcode::SEND,
            send_flags: send_flags::SIGNALED | flags,
            ..SendWr::EMPTY
        };
        let mut bad = std::ptr::null_mut();
        // SAFETY: one request whose piece stays registered until the end of the test.
        unsafe { self.send.post_send(&raw mut wr, &mut bad) }
    }

    pub(crate) fn sent(&mut self, count: usize) -> Vec<Wc> {
        completions(&mut self.send_poll, count)
    }

    pub(crate) fn received(&mut self, count: usize) -> Vec<Wc> {
        completions(&mut self.recv_poll, count)
    }
}

/// Polls until there are so many.
pub(crate) fn completions(port: &mut PollPort, count: usize) -> Vec<Wc> {
    let began = Instant::now();
    let mut all = Vec::new();
    while all.len() < count {
        let mut batch = [Wc::EMPTY; 4];
        let got = port.poll(&mut batch);
        assert!(got >= 0, "poll: {got}");
        all.extend(&batch[..got as usize]);
        assert!(began.elapsed() < PATIENCE, "only {} of {count} completions came", all.len());
        thread::yield_now();
    }
    all
}

pub(crate) struct Setup {
    pub(crate) options: QueuePairOptions,
    pub(crate) client: ConnectParams,
    pub(crate) server: ConnectParams,
    /// Receives of [`PIECE`] bytes on each side, posted before connecting.
    pub(crate) receives: usize,
    /// The completion queues of each side.
    pub(crate) queues: fn(&Arc<Device>) -> Queues,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            options: options(),
            client: ConnectParams::new(),
            server: ConnectParams::new(),
            receives: 0,
            queues,
        }
    }
}

/// Client and server, connected.
pub(crate) fn connected(setup: &Setup) -> (End, End) {
    connected_at(address(), setup)
}

pub(crate) fn connected_at(at: SocketAddr, setup: &Setup) -> (End, End) {
    let listener = Listener::bind(at).expect("a listener");
    let peer = listener.local_addr();
    thread::scope(|scope| {
        let client = scope.spawn(move || {
            let route = Connector::new().resolve(peer, PATIENCE).expect("a route");
            let domain = route.device().domain().expect("a domain");
            let (send, recv) = (setup.queues)(route.device());
            let outgoing = route
                .create_queue_pair(&domain, &send, &recv, setup.options)
                .expect("a queue pair");
            let mut parts = Parts::new(outgoing.queue_pair());
            for piece in 0..setup.receives {
                assert_eq!(parts.post_recv(piece, PIECE), 0);
            }
            let connection = outgoing.connect(&setup.client, PATIENCE).expect("a connection");
            End { parts, connection }
        });
        let request = listener.accept(PATIENCE).expect("a request");
        let domain = request.device().domain().expect("a domain");
        let (send, recv) = (setup.queues)(request.device());
        let incoming =
            request.create_queue_pair(&domain, &send, &recv, setup.options).expect("a queue pair");
        let mut parts = Parts::new(incoming.queue_pair());
        for piece in 0..setup.receives {
            assert_eq!(parts.post_recv(piece, PIECE), 0);
        }
        let connection = incoming.accept(&setup.server, PATIENCE).expect("a connection");
        let client = client.join().expect("the client ends well");
        (client, End { parts, connection })
    })
}
