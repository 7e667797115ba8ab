//! Connected queue pairs: messages, WRITEs, READs, atomics.

use nanoverbs_core::{Part, Pool, PushError, Rejected, Success, op};

use super::{Around, Chain, Request, Transport, flagged};
use crate::bed::{BLOCK_LEN, HALF, PATTERN, WORD_AT};
use crate::ledger::Context;
use crate::reference::{Arrival, Atomic};
use crate::step::{Item, Kind};

pub(crate) struct Connected;

pub(crate) enum Operation {
    Send(op::Send),
    SendInline(op::Send),
    Raw(op::Send),
    Write(op::Write),
    WriteInline(op::Write),
    Read(op::Read),
    FetchAdd(op::FetchAdd),
    CompareSwap(op::CompareSwap),
}

impl Transport for Connected {
    const DATAGRAM: bool = false;
    type Buffers = [Option<Part>; 2];
    type Operation = Operation;

    fn buffers(pool: &mut Pool, count: u8, len: usize) -> [Option<Part>; 2] {
        let mut part = |wanted: bool| {
            let block = if wanted { pool.allocate() } else { None }?;
            Some(Part::new(block, len).unwrap())
        };
        [part(count > 0), part(count > 1)]
    }

    fn message(buffers: &mut [Option<Part>; 2]) -> Option<&mut [u8]> {
        buffers[0].as_deref_mut()
    }

    fn blocks(buffers: &[Option<Part>; 2]) -> u32 {
        buffers.iter().flatten().count() as u32
    }

    fn request(around: &mut Around<'_>, item: Item) -> Request<Self> {
        let (kind, atomic) = (item.kind, item.atomic());
        let is_inline = matches!(kind, Kind::SendInline | Kind::WriteInline);
        let len = match kind {
            Kind::Read => BLOCK_LEN,
            _ if atomic.is_some() => [8, 16][usize::from(item.is_odd && item.signaled)],
            _ if item.is_odd => 0,
            _ => [8, BLOCK_LEN][usize::from(item.is_long)],
        };
        let mut context: Context<Self> = match kind {
            _ if is_inline => {
                Context::inline(if item.is_odd { 40 } else { [8, 32][usize::from(item.is_long)] })
            }
            Kind::Raw => Context::new([None, None]),
            _ => Context::new(Self::buffers(around.pool, item.blocks, len)),
        };
        let reads = kind == Kind::Read || atomic.is_some();
        if reads {
            context.buffers.iter_mut().flatten().for_each(|part| part.fill(0));
        }
        let id = context.id;
        let parts = || context.buffers.iter().flatten().filter(|part| !part.is_empty());
        let pieces = parts().count() as u32;
        let total: usize = match is_inline {
            true => context.as_ref().len(),
            false => parts().map(|part| part.len()).sum(),
        };
        let total = total as u64;
        // Where the atomic's word is, or four bytes before it; as long as what is read or written, or a byte.
        let (at, room) = match kind {
            _ if atomic.is_some() => (WORD_AT - 4 * u64::from(item.is_odd), 8),
            _ if item.is_odd && kind != Kind::WriteInline => (if reads { 0 } else { HALF }, 1),
            _ => (if reads { 0 } else { HALF }, HALF),
        };
        let remote = around.remote.at(at, room).unwrap();
        let [inline, sges, read_sges] = around.caps;
        let max = (if reads { read_sges } else { sges }).min(2);
        let one_sided =
            reads || matches!(kind, Kind::Write | Kind::WriteImmediate | Kind::WriteInline);
        let refused = match () {
            () if is_inline && total > inline.into() => {
                Some(PushError::InlineTooLong { given: total, max: inline })
            }
            () if pieces > max => Some(PushError::TooManySges { given: pieces, max }),
            () if atomic.is_some() && (total, pieces) != (8, 1) => {
                Some(PushError::BadAtomicLength { total, pieces })
            }
            () if atomic.is_some() && item.is_odd => {
                Some(PushError::Unaligned { remote_addr: remote.addr() })
            }
            () if one_sided && total > room => {
                Some(PushError::RemoteTooShort { total, remote: room })
            }
            () => None,
        };
        let send = op::Send::new();
        let operation = match (kind, atomic) {
            (_, Some(Atomic::Add(add))) => {
                Operation::FetchAdd(flagged!(op::FetchAdd::new(remote, add), item, after_reads))
            }
            (_, Some(Atomic::Swap(expected, new))) => {
                let operation = op::CompareSwap::new(remote, expected, new);
                Operation::CompareSwap(flagged!(operation, item, after_reads))
            }
            (Kind::Write, _) => {
                Operation::Write(flagged!(op::Write::new(remote), item, after_reads))
            }
            (Kind::WriteImmediate, _) => {
                let operation = op::Write::new(remote).immediate(id);
                Operation::Write(flagged!(operation, item, after_reads))
            }
            (Kind::WriteInline, _) => {
                Operation::WriteInline(flagged!(op::Write::new(remote), item, after_reads))
            }
            (Kind::Read, _) => Operation::Read(flagged!(op::Read::new(remote), item, after_reads)),
            (Kind::SendImmediate, _) => {
                Operation::Send(flagged!(send.immediate(id), item, after_reads))
            }
            (Kind::SendInline, _) => Operation::SendInline(flagged!(send, item, after_reads)),
            (Kind::Raw, _) => Operation::Raw(flagged!(send, item, after_reads)),
            _ => Operation::Send(flagged!(send, item, after_reads)),
        };
        let len = total as u32;
        let arrival = match kind {
            Kind::WriteImmediate => Some(Arrival::Write { id, len }),
            _ if one_sided => None,
            _ => Some(Arrival::Message { id, len, immediate: kind == Kind::SendImmediate }),
        };
        let arrival = arrival.map(|arrival| (1 - around.side, arrival));
        Request { operation, context, refused, read: reads, atomic, arrival }
    }

    fn push(
        chain: &mut Chain<'_, '_, '_, Self>,
        operation: Operation,
        context: Context<Self>,
    ) -> Result<(), Rejected<Context<Self>>> {
        match operation {
            Operation::Send(op) => chain.push(op, context),
            Operation::SendInline(op) => chain.push_inline(op, context),
            // SAFETY: no memory is named.
            Operation::Raw(op) => unsafe { chain.push_raw(op, &[], context) },
            Operation::Write(op) => chain.push(op, context),
            Operation::WriteInline(op) => chain.push_inline(op, context),
            Operation::Read(op) => chain.push(op, context),
            Operation::FetchAdd(op) => chain.push(op, context),
            Operation::CompareSwap(op) => chain.push(op, context),
        }
    }

    fn arrives(under_way: &mut Vec<Arrival>) -> Option<Arrival> {
        assert!(!under_way.is_empty(), "the peer has sent something");
        Some(under_way.remove(0))
    }

    fn check_arrival(
        context: &Context<Self>,
        success: &Success,
        arrived: Option<Arrival>,
        _: &mut Vec<Arrival>,
    ) {
        match arrived.expect("it was told in its turn") {
            Arrival::Message { id, len, immediate } => {
                assert!(!success.is_write());
                assert_eq!(success.byte_len(), Some(len));
                assert_eq!(success.immediate(), immediate.then_some(id));
                if let (4.., Some(part)) = (len, &context.buffers[0]) {
                    assert_eq!(part[..4], id.to_le_bytes(), "in order, once, and whole");
                }
            }
            Arrival::Write { id, len } => {
                assert!(success.is_write());
                assert_eq!((success.byte_len(), success.immediate()), (Some(len), Some(id)));
            }
        }
    }

    fn check_answer(context: &Context<Self>, byte_len: u32, word: Option<u64>) {
        let parts = || context.buffers.iter().flatten();
        assert_eq!(byte_len as usize, parts().map(|part| part.len()).sum::<usize>(), "its length");
        match word {
            Some(word) => assert_eq!(parts().next().and_then(Part::word), Some(word), "the word"),
            None => assert!(parts().all(|part| part.iter().all(|byte| *byte == PATTERN))),
        }
    }
}
