//! What differs between connected queue pairs and datagrams: buffers, requests, and what arrives.

mod connected;
mod datagrams;

use nanoverbs_core::{
    Pool, PushError, RecvBuffers, Rejected, RemoteRegion, SendBuffers, SendChain, Success, op,
};

pub(crate) use connected::Connected;
pub(crate) use datagrams::Datagrams;

use crate::bed::{CHAIN, SendPort};
use crate::ledger::Context;
use crate::reference::{Arrival, Atomic};
use crate::step::Item;

/// A kind of queue pairs.
pub(crate) trait Transport: Sized + 'static {
    const DATAGRAM: bool;
    type Buffers: Default + RecvBuffers + SendBuffers;
    type Operation;

    /// Up to `count` blocks of `len` bytes, as far as there are any.
    fn buffers(pool: &mut Pool, count: u8, len: usize) -> Self::Buffers;

    /// The start of the message in them.
    fn message(buffers: &mut Self::Buffers) -> Option<&mut [u8]>;

    /// How many blocks are in them.
    fn blocks(buffers: &Self::Buffers) -> u32;

    /// A request as `item` says.
    fn request(around: &mut Around<'_>, item: Item) -> Request<Self>;

    fn push(
        chain: &mut Chain<'_, '_, '_, Self>,
        operation: Self::Operation,
        context: Context<Self>,
    ) -> Result<(), Rejected<Context<Self>>>;

    /// Of what is under way, that whose receive completes now; `None` where that cannot be told.
    fn arrives(under_way: &mut Vec<Arrival>) -> Option<Arrival>;

    /// What a receive has brought, by its buffers and its outcome, is what was sent.
    fn check_arrival(
        context: &Context<Self>,
        success: &Success,
        arrived: Option<Arrival>,
        under_way: &mut Vec<Arrival>,
    );

    /// A READ has brought the peer's bytes, and an atomic this word.
    fn check_answer(context: &Context<Self>, byte_len: u32, word: Option<u64>);
}

pub(crate) type Chain<'q, 'd, 's, T> = SendChain<'q, 's, SendPort<'d, T>, Context<T>, 16, CHAIN, 2>;

/// What a request is made of, and held against.
pub(crate) struct Around<'a> {
    pub(crate) pool: &'a mut Pool,
    pub(crate) side: usize,
    /// The peer's memory.
    pub(crate) remote: RemoteRegion,
    /// The addresses of both sides.
    pub(crate) peers: [op::Peer; 2],
    /// Longest inline message, pieces of any request, pieces of a READ: as granted.
    pub(crate) caps: [u32; 3],
}

pub(crate) struct Request<T: Transport> {
    pub(crate) operation: T::Operation,
    pub(crate) context: Context<T>,
    /// Why it is refused, if credits for READs are not the reason.
    pub(crate) refused: Option<PushError>,
    /// It takes one of these credits.
    pub(crate) read: bool,
    pub(crate) atomic: Option<Atomic>,
    /// What it may bring, and to which side.
    pub(crate) arrival: Option<(usize, Arrival)>,
}

/// An operation with the flags of its item.
macro_rules! flagged {
    ($op:expr, $item:ident $(, $fence:ident)?) => {{
        let op = $op;
        let op = if $item.signaled { op.signaled() } else { op };
        $(let op = if $item.fence { op.$fence() } else { op };)?
        op
    }};
}
use flagged;
