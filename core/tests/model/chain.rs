//! Chains of requests: built, posted, refused, cut short, thrown away.

use nanoverbs_core::{PushError, RecvStaging, SubmitError, op};

use crate::bed::{Arrival, BLOCK_LEN, CHAIN, HALF, World};
use crate::ledger::{self, Context};
use crate::reference::{Reserved, Shut, Staged};
use crate::step::{Chain, Fate, Item, Kind};
use crate::tap::Post;

const WHO_TOOK_IT_KNOWS: &str = "a post was made";

/// What a post must have come to, for a chain of `len`; how many requests are in flight now.
fn accepted(post: &Post, len: usize, may_be_refused: bool) -> usize {
    assert_eq!(post.ids.len(), len, "requests that the device was shown");
    assert!(post.code == 0 || may_be_refused, "the device refused by itself: {post:?}");
    match post.code {
        0 => len,
        _ => post.accepted.unwrap_or(len),
    }
}

/// Submits, and what is left again, as the fates say. Evaluates to whether the device was silent.
macro_rules! submit {
    ($chain:ident, $staged:ident, $log:expr, $model:expr, $rest:expr, $faulty:expr, $accept:expr) => {{
        let mut chain = $chain;
        let mut before = vec![false; $staged.len()];
        loop {
            let is_empty = $staged.is_empty();
            let submitted = chain.submit();
            if is_empty {
                assert!(matches!(submitted, Ok(0)) && $log.post.take().is_none());
                break false;
            }
            let post = $log.post.take().expect(WHO_TOOK_IT_KNOWS);
            let count = accepted(&post, $staged.len(), $faulty);
            $model.check_signals(&$staged, &post.signaled, &before);
            $model.posted(&$staged[..count], &post.signaled);
            for id in $staged.drain(..count).map(|one| one.id) {
                $accept(id);
            }
            before = post.signaled[count..].to_vec();
            match submitted {
                Ok(is) => {
                    assert_eq!((post.code, is as usize), (0, count));
                    break false;
                }
                Err(SubmitError::Unknown { code }) => {
                    assert_eq!((post.code, post.accepted), (code, None));
                    $model.close(Shut::Unknown);
                    break true;
                }
                Err(SubmitError::Partial { accepted, code, rest }) => {
                    assert_eq!((post.code, post.accepted), (code, Some(accepted as usize)));
                    assert_eq!(rest.len(), $staged.len());
                    $faulty = false;
                    match $rest {
                        Fate::Submit => chain = rest,
                        Fate::Drop | Fate::Forget => break false,
                        Fate::TakeApart => {
                            take_apart!(rest, $staged);
                            break false;
                        }
                    }
                }
            }
        }
    }};
}

macro_rules! take_apart {
    ($chain:ident, $staged:ident) => {{
        let mut back = vec![];
        $chain.into_contexts(|context: Context| back.push(context.id));
        assert!(back.iter().eq($staged.iter().map(|one: &Staged| &one.id)), "in their order");
    }};
}

impl World<'_, '_, '_> {
    pub(crate) fn send(&mut self, ordered: &Chain) {
        let peer = &self.shared[1 - ordered.side];
        let [one, other] = &mut self.sides;
        let (side, far) = if ordered.side == 0 { (one, other) } else { (other, one) };
        if let (Some(fault), Some(control)) = (ordered.fault, &side.control) {
            control.fail_next_send(fault);
            side.is_faulty[0] = true;
        }
        let must = side.send_model.reserve(ordered.reserved, CHAIN as u32);
        let is_small = ordered.reserved == 0;
        let mut chain = match side.sends.reserve(&mut self.send_link, ordered.reserved as usize) {
            Ok(chain) => {
                // Nothing always fits.
                assert!(must == Reserved::Yes || is_small, "{must:?}");
                chain
            }
            Err(error) => {
                assert_eq!(Reserved::from(error), must);
                return;
            }
        };
        let mut staged: Vec<Staged> = vec![];
        let mut arrivals: Vec<(u32, Arrival)> = vec![];
        for item in ordered.items.iter().flatten() {
            let Item { kind, .. } = *item;
            let len = match (item.is_odd, item.is_long) {
                (true, _) if !matches!(kind, Kind::SendInline | Kind::WriteInline) => 0,
                (_, true) => BLOCK_LEN,
                _ => 8,
            };
            let is_inline = matches!(kind, Kind::SendInline | Kind::WriteInline);
            let mut context = match kind {
                Kind::SendInline | Kind::WriteInline => {
                    Context::inline(if item.is_odd { 40 } else { [8, 32][item.is_long as usize] })
                }
                Kind::Raw => Context::new([None, None]),
                Kind::Read => Self::context(self.pool, item.blocks, BLOCK_LEN),
                _ => Self::context(self.pool, item.blocks, len),
            };
            if kind == Kind::Read {
                context.blocks.iter_mut().flatten().for_each(|block| block.fill(0));
            }
            let id = context.id;
            let pieces = context.blocks.iter().flatten().filter(|block| !block.is_empty()).count();
            let total: usize = match is_inline {
                true => context.as_ref().len(),
                false => context.blocks.iter().flatten().map(|block| block.len()).sum(),
            };
            let reads = kind == Kind::Read;
            // As long as what is read or written, or one byte.
            let room = if item.is_odd && kind != Kind::WriteInline { 1 } else { HALF as u64 };
            let from = if reads { 0 } else { HALF as u64 };
            let remote = peer.advertise().at(from, room).unwrap();
            let [inline, sges, read_sges] = side.caps.map(|cap| cap as usize);
            let most = (if reads { read_sges } else { sges }).min(2);
            let one_sided =
                matches!(kind, Kind::Read | Kind::Write | Kind::WriteImmediate | Kind::WriteInline);
            let refused = if staged.len() as u32 == ordered.reserved {
                Some(PushError::ChainFull)
            } else if is_inline && total > inline {
                let (given, max) = (total as u64, inline as u32);
                Some(PushError::InlineTooLong { given, max })
            } else if pieces > most {
                Some(PushError::TooManySges { given: pieces as u32, max: most as u32 })
            } else if one_sided && total as u64 > room {
                Some(PushError::RemoteTooShort { total: total as u64, remote: room })
            } else if reads {
                side.send_model.check_read(&staged)
            } else {
                None
            };
            macro_rules! flags {
                ($op:expr) => {{
                    let op = $op;
                    let op = if item.signaled { op.signaled() } else { op };
                    if item.fence { op.after_reads() } else { op }
                }};
            }
            let send = op::Send::new();
            let pushed = match kind {
                Kind::Send => chain.push(flags!(send), context),
                Kind::SendImmediate => chain.push(flags!(send.immediate(id)), context),
                Kind::SendInline => chain.push_inline(flags!(send), context),
                Kind::Write => chain.push(flags!(op::Write::new(remote)), context),
                Kind::Read => chain.push(flags!(op::Read::new(remote)), context),
                Kind::WriteImmediate => {
                    chain.push(flags!(op::Write::new(remote).immediate(id)), context)
                }
                Kind::WriteInline => chain.push_inline(flags!(op::Write::new(remote)), context),
                // SAFETY: no memory is named.
                Kind::Raw => unsafe { chain.push_raw(flags!(send), &[], context) },
            };
            let error = pushed.map_err(|rejected| {
                assert_eq!(rejected.context.id, id, "the context that was refused");
                rejected.error
            });
            assert_eq!(error.err(), refused, "what a push of {item:?} says");
            if refused.is_some() {
                continue;
            }
            staged.push(Staged { id, read: reads, signaled: item.signaled });
            let (len, immediate) = (total as u32, kind == Kind::SendImmediate);
            match kind {
                Kind::WriteImmediate => arrivals.push((id, Arrival::Write { id, len })),
                _ if one_sided => {}
                _ => arrivals.push((id, Arrival::Message { id, len, immediate })),
            }
            assert_eq!(chain.len(), staged.len());
        }
        let holds_block = |one: &Staged| one.read || arrivals.iter().any(|(id, _)| *id == one.id);
        match ordered.fate {
            Fate::Submit => {
                let mut accept = |id| {
                    let arrival = arrivals.iter().find(|(of, _)| *of == id);
                    far.arrivals.extend(arrival.map(|(_, arrival)| *arrival));
                };
                let (log, model) = (&side.send_log, &mut side.send_model);
                let faulty = &mut side.is_faulty[0];
                side.is_unknown |=
                    submit!(chain, staged, log, model, ordered.rest, *faulty, accept);
            }
            Fate::TakeApart => take_apart!(chain, staged),
            Fate::Forget if !staged.iter().any(holds_block) => {
                // What is left has no block either: inline WRITEs only.
                if ordered.items.iter().flatten().all(|item| item.kind == Kind::WriteInline) {
                    staged.iter().for_each(|one| ledger::forget(one.id));
                    std::mem::forget(chain);
                }
            }
            Fate::Drop | Fate::Forget => drop(chain),
        }
    }

    pub(crate) fn recv(&mut self, ordered: &Chain) {
        let side = &mut self.sides[ordered.side];
        if let (Some(fault), Some(control)) = (ordered.fault, &side.control) {
            control.fail_next_recv(fault);
            side.is_faulty[1] = true;
        }
        let must = side.recv_model.reserve(ordered.reserved, CHAIN as u32);
        let is_small = ordered.reserved == 0;
        let mut chain = match side.recvs.reserve(&mut self.recv_link, ordered.reserved as usize) {
            Ok(chain) => {
                assert!(must == Reserved::Yes || is_small, "{must:?}");
                chain
            }
            Err(error) => {
                assert_eq!(Reserved::from(error), must);
                return;
            }
        };
        let mut staged: Vec<Staged> = vec![];
        for item in ordered.items.iter().flatten() {
            // Most have room for a message.
            let count = if item.is_odd && item.is_long { 0 } else { item.blocks };
            let context = Self::context(self.pool, count, BLOCK_LEN);
            let id = context.id;
            let pieces = context.blocks.iter().flatten().count() as u32;
            let most = side.caps[1].min(2);
            let refused = if staged.len() as u32 == ordered.reserved {
                Some(PushError::ChainFull)
            } else if pieces > most {
                Some(PushError::TooManySges { given: pieces, max: most })
            } else {
                None
            };
            let error = chain.push(context).map_err(|rejected| {
                assert_eq!(rejected.context.id, id, "the context that was refused");
                rejected.error
            });
            assert_eq!(error.err(), refused, "what a push of {item:?} says");
            if refused.is_none() {
                staged.push(Staged { id, read: false, signaled: true });
            }
            assert_eq!(chain.len(), staged.len());
        }
        match ordered.fate {
            Fate::Submit => {
                let (log, model) = (&side.recv_log, &mut side.recv_model);
                let faulty = &mut side.is_faulty[1];
                side.is_unknown |=
                    submit!(chain, staged, log, model, ordered.rest, *faulty, |_: u32| ());
            }
            Fate::TakeApart => take_apart!(chain, staged),
            Fate::Forget | Fate::Drop => drop(chain),
        }
    }

    /// Posts receives with room for any message, as many as fit.
    pub(crate) fn feed(&mut self, side: usize) {
        let side = &mut self.sides[side];
        let mut staging = RecvStaging::<1, 2>::new();
        let mut link = staging.link();
        while side.recvs.free() > 0 {
            let blocks = side.caps[1].min(2) as u8;
            let context = Self::context(self.pool, blocks, BLOCK_LEN);
            let mut staged = vec![Staged { id: context.id, read: false, signaled: true }];
            let mut chain = side.recvs.reserve(&mut link, 1).unwrap();
            chain.push(context).unwrap();
            let (log, model) = (&side.recv_log, &mut side.recv_model);
            let faulty = &mut side.is_faulty[1];
            side.is_unknown |=
                submit!(chain, staged, log, model, Fate::Submit, *faulty, |_: u32| ());
        }
    }
}
