//! Datagrams: messages to the other side, to oneself, or to nobody.

use nanoverbs_core::{Datagram, Pool, PushError, QpNum, Rejected, Success, op};

use super::{Around, Chain, Request, Transport, flagged};
use crate::bed::{BLOCK_LEN, QKEY};
use crate::ledger::Context;
use crate::reference::Arrival;
use crate::step::{Item, Kind};

pub(crate) struct Datagrams;

pub(crate) enum Operation {
    Send(op::Datagram),
    Inline(op::Datagram),
    Raw(op::Datagram),
}

impl Transport for Datagrams {
    const DATAGRAM: bool = true;
    type Buffers = Option<Datagram>;
    type Operation = Operation;

    fn buffers(pool: &mut Pool, count: u8, len: usize) -> Option<Datagram> {
        let block = if count > 0 { pool.allocate() } else { None }?;
        let mut datagram = Datagram::new(block).unwrap();
        assert!(datagram.set_len(len.min(BLOCK_LEN - Datagram::PREFIX)));
        Some(datagram)
    }

    fn message(buffers: &mut Option<Datagram>) -> Option<&mut [u8]> {
        buffers.as_deref_mut()
    }

    fn blocks(buffers: &Option<Datagram>) -> u32 {
        buffers.is_some().into()
    }

    fn request(around: &mut Around<'_>, item: Item) -> Request<Self> {
        let is_inline = matches!(item.kind, Kind::SendInline | Kind::WriteInline);
        let immediate = matches!(item.kind, Kind::SendImmediate | Kind::WriteImmediate);
        let len = if item.is_odd { 0 } else { [8, BLOCK_LEN][usize::from(item.is_long)] };
        let context: Context<Self> = match item.kind {
            _ if is_inline => {
                Context::inline(if item.is_odd { 40 } else { [8, 32][usize::from(item.is_long)] })
            }
            Kind::Raw => Context::new(None),
            _ => Context::new(Self::buffers(around.pool, item.blocks, len)),
        };
        let (id, total) = match is_inline {
            true => (context.id, context.as_ref().len() as u32),
            false => (context.id, context.buffers.as_ref().map_or(0, |it| it.len()) as u32),
        };
        let max = around.caps[0];
        let refused = (is_inline && total > max)
            .then_some(PushError::InlineTooLong { given: total.into(), max });
        let other = 1 - around.side;
        let (to, peer) = match (item.fence, item.blocks, item.is_long) {
            (false, 2, _) => (Some(around.side), around.peers[around.side]),
            (true, 2, true) => (None, around.peers[other].at(QpNum::from_raw(0xff_ffff), QKEY)),
            (true, 2, false) => (None, around.peers[other].at(around.peers[other].number(), 1)),
            _ => (Some(other), around.peers[other]),
        };
        let datagram = op::Datagram::new(peer);
        let datagram = if immediate { datagram.immediate(id) } else { datagram };
        let datagram = flagged!(datagram, item);
        let operation = match item.kind {
            _ if is_inline => Operation::Inline(datagram),
            Kind::Raw => Operation::Raw(datagram),
            _ => Operation::Send(datagram),
        };
        let arrival = to.map(|side| (side, Arrival::Message { id, len: total, immediate }));
        Request { operation, context, refused, read: false, atomic: None, arrival }
    }

    fn push(
        chain: &mut Chain<'_, '_, '_, Self>,
        operation: Operation,
        context: Context<Self>,
    ) -> Result<(), Rejected<Context<Self>>> {
        match operation {
            Operation::Send(op) => chain.push(op, context),
            Operation::Inline(op) => chain.push_inline(op, context),
            // SAFETY: no memory is named.
            Operation::Raw(op) => unsafe { chain.push_raw(op, &[], context) },
        }
    }

    /// Any may be lost on its way.
    fn arrives(_: &mut Vec<Arrival>) -> Option<Arrival> {
        None
    }

    fn check_arrival(
        context: &Context<Self>,
        success: &Success,
        _: Option<Arrival>,
        under_way: &mut Vec<Arrival>,
    ) {
        let payload = context.buffers.as_ref().expect("it has room").payload(success);
        let told = payload.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
        let is_it = |sent: &Arrival| match *sent {
            Arrival::Message { id, len, immediate } => {
                payload.len() == len as usize
                    && success.byte_len() == Some(len + Datagram::PREFIX as u32)
                    && success.immediate() == immediate.then_some(id)
                    && told.is_none_or(|told| told == id)
            }
            Arrival::Write { .. } => false,
        };
        let at = under_way.iter().position(is_it).expect("it was sent, and arrives once");
        under_way.remove(at);
    }

    fn check_answer(_: &Context<Self>, _: u32, _: Option<u64>) {
        unreachable!("datagrams bring nothing back");
    }
}
