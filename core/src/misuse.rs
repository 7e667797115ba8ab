//! What the compiler refuses. Nothing but documentation tests: each is a program that works, and the
//! same with one line more, which must not compile.

/// `$name`: a working program is `$before` and `$works`; `$before` and `$refused` fails with `$code`.
macro_rules! refused {
    ($($(#[doc = $doc:literal])* $name:ident, $code:literal, $before:expr, $works:expr, $refused:expr;)*) => {$(
        $(#[doc = $doc])*
        ///
        #[doc = concat!("```\n", prelude!(), $before, "\n", $works, "\n# Ok(()) }\n```")]
        ///
        #[doc = concat!("```compile_fail,", $code, "\n", prelude!(), $before, "\n", $refused, "\n# Ok(()) }\n```")]
        #[allow(dead_code, reason = "holds documentation tests")]
        struct $name;
    )*};
}

/// Two connected queue pairs, a pool, queues and staging arrays: enough for all.
macro_rules! prelude {
    () => {
        r#"
# #![allow(unused)]
use nanoverbs_core::soft::{Device, QpConfig};
use nanoverbs_core::*;
# fn main() {}
# fn run() -> Result<(), Box<dyn std::error::Error>> {
static DEVICE: Device<2, 16> = Device::new();
let domain = DEVICE.domain();
let region = DEVICE.register(domain, vec![0; 4096].leak())?;
let shared = DEVICE.register_shared(domain, vec![0; 64].leak(), Access::REMOTE_READ)?;
let headers = (0..16).map(|_| BlockHeader::new()).collect::<Vec<_>>().leak();
let root = Box::leak(Box::new(PoolRoot::new()));
let queue = DEVICE.completion_queue(64)?;
let a = DEVICE.queue_pair(QpConfig::new(domain), &queue, &queue)?;
let b = DEVICE.queue_pair(QpConfig::new(domain), &queue, &queue)?;
let mut completions: Completions<_> = Completions::new(queue, 64);
let (mut slots, mut staging) = (SendSlots::<Block, 16>::new(), SendStaging::<4, 1>::new());
let mut other_slots = SendSlots::<Block, 16>::new();
let (mut recv_slots, mut recv_staging) = (RecvSlots::<Block, 16>::new(), RecvStaging::<4, 1>::new());
let mut sends = SendQueue::new(a.send, &mut slots, SendConfig::new(domain))?;
let mut others = SendQueue::new(b.send, &mut other_slots, SendConfig::new(domain))?;
let mut receives = RecvQueue::new(b.recv, &mut recv_slots, RecvConfig::new(domain))?;
let mut link = staging.link();
let mut recv_link = recv_staging.link();
"#
    };
}

const _: &str = prelude!();

/// The pool, and a block of it.
macro_rules! with_block {
    ($more:literal) => {
        concat!(
            "let mut pool = Pool::new(root, headers, region, 256)?;\n",
            "let mut block = pool.allocate().ok_or(\"none\")?;\n",
            $more
        )
    };
}

refused! {
    /// A buffer is not touched while it is posted: its block has moved into the queue (F16).
    UseOfAPostedBuffer, "E0382",
        with_block!("let mut chain = sends.reserve(&mut link, 1)?;\nblock[0] = 1;\nchain.push(op::Send::new(), block)?;"),
        "", "block[0] = 2;";
    /// A region that blocks were carved out of is the pool's, and cannot be dropped or taken back.
    RegionOfAPool, "E0382",
        with_block!("drop(block);"),
        "let (_, _, region) = pool.close()?;\nDEVICE.take_back(region);", "DEVICE.take_back(region);";
    /// Shared memory that a request names stays registered for ever, or as long as its owner (F16).
    RegionOfASharedSlice, "E0597",
        "", "let shared = Box::leak(Box::new(shared));\nlet piece = SharedSlice::new(shared, 0, 8)?;",
        "let piece = SharedSlice::new(&shared, 0, 8)?;";
    /// A word that is polled is its region's (F43).
    RegionOfAPolledFlag, "E0505",
        "let flag = PolledFlag::new(&shared, 0, InOrder::said_by_the_device())?;",
        "let seen = flag.load();\nDEVICE.take_back_shared(shared);",
        "DEVICE.take_back_shared(shared);\nlet seen = flag.load();";
    /// A pool's storage is lent for ever; it comes back with the pool's end alone.
    StorageOfAPool, "E0505",
        with_block!("drop(block);"),
        "drop(pool);", "drop(headers);\ndrop(pool);";
    /// A device outlives its queue pairs.
    DeviceWithQueuePairs, "E0505",
        "let device = Device::<2, 16>::new();\nlet queue = device.completion_queue(16)?;",
        "drop(queue);\ndrop(device);", "drop(device);\ndrop(queue);";
    /// The slots of a queue outlive it.
    SlotsOfAQueue, "E0505",
        "let at = sends.in_flight();", "drop(sends);\ndrop(slots);", "drop(slots);\ndrop(sends);";
    /// Linked arrays cannot move.
    MovedStaging, "E0505",
        "let chain = sends.reserve(&mut link, 1)?;",
        "drop(chain);\nlet moved = staging;", "let moved = staging;\ndrop(chain);";
    /// A key for peers is not a key for this side (F18).
    KeysMixedUp, "E0308",
        "let keys = shared.registration();\nlet at = keys.addr.as_ptr();",
        "let piece = abi::Sge::new(at, 8, keys.lkey);", "let piece = abi::Sge::new(at, 8, keys.rkey);";
    /// Memory that a peer may touch is not for messages, and is never seen as bytes (F43).
    PoolOfSharedMemory, "E0308",
        "", "let pool = Pool::new(root, headers, region, 256)?;",
        "let pool = Pool::new(root, headers, shared, 256)?;";
    /// As above.
    BytesOfSharedMemory, "E0608",
        "let mut bytes = [0; 8];", "shared.read_at(0, &mut bytes)?;", "let byte = shared[0];";
    /// A queue belongs to one thread (F74).
    QueueOfTwoThreads, "E0277",
        "std::thread::scope(|scope| {",
        "scope.spawn(move || sends.in_flight());\n});",
        "scope.spawn(|| sends.in_flight());\n});";
    /// As above, for who polls (F41).
    PollerOfTwoThreads, "E0596",
        "std::thread::scope(|scope| {",
        "scope.spawn(move || completions.poll().is_ok());\n});",
        "let shared = &completions;\nscope.spawn(move || shared.poll().is_ok());\n});";
    /// A completion ends its request once.
    CompletionTwice, "E0382",
        "let completion = completions.poll()?.next().ok_or(\"none\")?;\nsends.retire(completion)?;",
        "", "sends.retire(completion)?;";
    /// And is not copied.
    CopyOfACompletion, "E0599",
        "let completion = completions.poll()?.next().ok_or(\"none\")?;",
        "sends.retire(completion)?;", "sends.retire(completion.clone())?;";
    /// Nor made.
    MadeCompletion, "E0423",
        "", "let raw = abi::Wc::EMPTY;", "let completion = Completion(abi::Wc::EMPTY);";
    /// A chain is its queue's: two cannot be built in the same arrays.
    TwoChainsInOneStaging, "E0499",
        "let chain = sends.reserve(&mut link, 1)?;",
        "chain.submit().unwrap();\nothers.reserve(&mut link, 1)?.submit().unwrap();",
        "let other = others.reserve(&mut link, 1)?;\nchain.submit().unwrap();";
    /// Nor does a queue do anything else while one is built on it.
    TakeWhileAChainIsBuilt, "E0499",
        "let chain = sends.reserve(&mut link, 1)?;",
        "chain.submit().unwrap();\nsends.take();", "sends.take();\nchain.submit().unwrap();";
    /// A chain of receives takes no sends.
    SendOnAReceiveQueue, "E0061",
        with_block!("let mut chain = receives.reserve(&mut recv_link, 1)?;"),
        "chain.push(block)?;", "chain.push(op::Send::new(), block)?;";
    /// A receive waits for nothing: there is no fence to ask for (F27).
    FenceOnAReceive, "E0599",
        with_block!("let mut chain = receives.reserve(&mut recv_link, 1)?;"),
        "chain.push(block)?;", "chain.after_reads().push(block)?;";
    /// Nor does a datagram, which READs do not precede.
    FenceOnADatagram, "E0599",
        "let peer = DEVICE.peer(domain, a.control.number(), 0);",
        "let message = op::Datagram::new(peer).signaled();",
        "let message = op::Datagram::new(peer).after_reads();";
    /// A way to a datagram queue pair is for datagrams and stays so: a device follows the address in each.
    DatagramPortTakenApart, "E0616",
        "let config = QpConfig::new(domain).datagram(1);\n\
         let end = DEVICE.queue_pair(config, completions.port(), completions.port())?;",
        "let port = port::Datagrams::new(end.send);", "let port = port::Datagrams::new(end.send).0;";
    /// A context of one's own owns no memory, unless it says so in unsafe code.
    ContextWithoutMemory, "E0277",
        "let mut slots = SendSlots::<Vec<u8>, 16>::new();\n\
         let end = DEVICE.queue_pair(QpConfig::new(domain), completions.port(), completions.port())?;\n\
         let mut queue = SendQueue::new(end.send, &mut slots, SendConfig::new(domain).max_inline(8))?;\n\
         let mut chain = queue.reserve(&mut link, 1)?;",
        "chain.push_inline(op::Send::new(), vec![1])?;", "chain.push(op::Send::new(), vec![1])?;";
    /// Nor can a program teach an operation, in safe code, to name memory that its context does not own.
    OperationThatNamesForeignMemory, "E0277",
        "struct Mine(Slice);",
        "let mine = Mine(region.slice(0, 64)?);",
        "impl op::Operation<Mine> for op::Send {\n\
             fn names(mine: &Mine, list: &mut SliceList<'_>) { list.push(mine.0) }\n\
         }";
}
