//! Chains of requests: built, posted, refused, cut short, thrown away.

use nanoverbs_core::{PushError, RecvStaging, SubmitError};

use crate::bed::{BLOCK_LEN, CHAIN, World};
use crate::ledger::{self, Context};
use crate::reference::{Arrival, Entry, Reserved, Shut};
use crate::step::{Chain, Fate};
use crate::tap::Post;
use crate::transport::{Around, Request, Transport};

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
    ($chain:ident, $staged:ident, $log:expr, $model:expr, $rest:expr, $gone:expr, $faulty:expr, $accept:expr) => {{
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
            let count = accepted(&post, $staged.len(), $faulty || $gone);
            $model.posted(&$staged, count, &post, &before);
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
                        Fate::Submit if !$gone => chain = rest,
                        Fate::Drop | Fate::Forget => break false,
                        Fate::Submit | Fate::TakeApart => {
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
        $chain.into_contexts(|context: Context<T>| back.push(context.id));
        assert!(back.iter().eq($staged.iter().map(|one: &Entry| &one.id)), "in their order");
    }};
}

/// Ends a chain as its fate says, if it is not submitted.
macro_rules! throw_away {
    ($chain:ident, $staged:ident, $fate:expr, $owns_memory:expr) => {
        match $fate {
            Fate::TakeApart => take_apart!($chain, $staged),
            Fate::Forget if !$owns_memory => {
                $staged.iter().for_each(|one| ledger::forget(one.id));
                std::mem::forget($chain);
            }
            _ => drop($chain),
        }
    };
}

/// A chain, if there is room for it as there must be; returns if not.
macro_rules! reserve {
    ($queue:expr, $model:expr, $link:expr, $asked:expr) => {{
        let must = $model.reserve($asked, CHAIN as u32);
        match $queue.reserve($link, $asked as usize) {
            // Nothing always fits.
            Ok(chain) => {
                assert!(must == Reserved::Yes || $asked == 0, "{must:?}");
                chain
            }
            Err(error) => return assert_eq!(Reserved::from(error), must),
        }
    }};
}

impl<T: Transport> World<'_, '_, '_, T> {
    pub(crate) fn send(&mut self, ordered: &Chain) {
        let side = &mut self.sides[ordered.side];
        if let (Some(fault), Some(control)) = (ordered.fault, &side.control) {
            control.fail_next_send(fault);
            side.send_is_faulty = true;
        }
        let mut around = Around {
            pool: self.pool,
            side: ordered.side,
            remote: self.memory[1 - ordered.side].advertise(),
            peers: self.peers,
            caps: side.caps,
        };
        let mut chain =
            reserve!(side.sends, side.send_model, &mut self.send_link, ordered.reserved);
        let (mut staged, mut owns_memory) = (Vec::<Entry>::new(), false);
        let mut arrivals: Vec<(usize, Arrival)> = vec![];
        for item in ordered.items.iter().flatten() {
            let request: Request<T> = T::request(&mut around, *item);
            let Request { operation, context, refused, read, atomic, arrival } = request;
            let id = context.id;
            let owns = T::blocks(&context.buffers) > 0;
            let refused = match () {
                () if staged.len() as u32 == ordered.reserved => Some(PushError::ChainFull),
                () if refused.is_none() && read => side.send_model.check_read(&staged),
                () => refused,
            };
            let error = T::push(&mut chain, operation, context).map_err(|rejected| {
                assert_eq!(rejected.context.id, id, "the context that was refused");
                rejected.error
            });
            assert_eq!(error.err(), refused, "what a push of {item:?} says");
            if refused.is_some() {
                continue;
            }
            staged.push(Entry { read, atomic, signaled: item.signaled, ..Entry::recv(id) });
            owns_memory |= owns;
            arrivals.extend(arrival);
            assert_eq!(chain.len(), staged.len());
        }
        let mut accepted: Vec<(usize, Arrival)> = vec![];
        if ordered.fate == Fate::Submit {
            let mut accept =
                |id| accepted.extend(arrivals.iter().filter(|(_, arrival)| arrival.id() == id));
            let (log, model) = (&side.send_log, &mut side.send_model);
            let faulty = &mut side.send_is_faulty;
            side.is_unknown |=
                submit!(chain, staged, log, model, ordered.rest, self.is_gone, *faulty, accept);
        } else {
            throw_away!(chain, staged, ordered.fate, owns_memory);
        }
        for (to, arrival) in accepted {
            self.sides[to].under_way.push(arrival);
        }
    }

    pub(crate) fn recv(&mut self, ordered: &Chain) {
        let side = &mut self.sides[ordered.side];
        let max = side.caps[1].min(2);
        macro_rules! recv {
            ($of:ident) => {{
                let mut chain =
                    reserve!($of.recvs, $of.recv_model, &mut self.recv_link, ordered.reserved);
                let (mut staged, mut owns_memory) = (Vec::<Entry>::new(), false);
                for item in ordered.items.iter().flatten() {
                    // Most have room for a message.
                    let count = if item.is_odd && item.is_long { 0 } else { item.blocks };
                    let context = Context::<T>::new(T::buffers(self.pool, count, BLOCK_LEN));
                    let (id, given) = (context.id, T::blocks(&context.buffers));
                    let refused = match () {
                        () if staged.len() as u32 == ordered.reserved => Some(PushError::ChainFull),
                        () if given > max => Some(PushError::TooManySges { given, max }),
                        () => None,
                    };
                    let error = chain.push(context).map_err(|rejected| {
                        assert_eq!(rejected.context.id, id, "the context that was refused");
                        rejected.error
                    });
                    assert_eq!(error.err(), refused, "what a push of {item:?} says");
                    if refused.is_none() {
                        staged.push(Entry::recv(id));
                        owns_memory |= given > 0;
                    }
                    assert_eq!(chain.len(), staged.len());
                }
                if ordered.fate == Fate::Submit {
                    let (log, model) = (&$of.recv_log, &mut $of.recv_model);
                    submit!(
                        chain,
                        staged,
                        log,
                        model,
                        ordered.rest,
                        self.is_gone,
                        $of.recv_is_faulty,
                        |_: u32| ()
                    )
                } else {
                    throw_away!(chain, staged, ordered.fate, owns_memory);
                    false
                }
            }};
        }
        if let Some(common) = &mut self.common {
            if let Some(fault) = ordered.fault {
                self.device.fail_next_recv(common.id, fault);
                common.recv_is_faulty = true;
            }
            recv!(common);
        } else {
            if let (Some(fault), Some(control)) = (ordered.fault, &side.control) {
                control.fail_next_recv(fault);
                side.recv_is_faulty = true;
            }
            let is_unknown = recv!(side);
            side.is_unknown |= is_unknown;
        }
    }

    /// Posts receives with room for any message, as many as fit; says whether any did.
    pub(crate) fn feed(&mut self, side: usize) -> bool {
        let side = &mut self.sides[side];
        let mut staging = RecvStaging::<1, 2>::new();
        let mut link = staging.link();
        let blocks = side.caps[1].min(2) as u8;
        macro_rules! feed {
            ($of:ident) => {{
                let (has_room, mut is_unknown) = ($of.recvs.free() > 0, false);
                while $of.recvs.free() > 0 {
                    let context = Context::<T>::new(T::buffers(self.pool, blocks, BLOCK_LEN));
                    let mut staged = vec![Entry::recv(context.id)];
                    let mut chain = $of.recvs.reserve(&mut link, 1).unwrap();
                    chain.push(context).unwrap();
                    let (log, model) = (&$of.recv_log, &mut $of.recv_model);
                    is_unknown |= submit!(
                        chain,
                        staged,
                        log,
                        model,
                        Fate::Submit,
                        self.is_gone,
                        $of.recv_is_faulty,
                        |_: u32| ()
                    );
                }
                (has_room, is_unknown)
            }};
        }
        if let Some(common) = &mut self.common {
            feed!(common).0
        } else {
            let (has_room, is_unknown) = feed!(side);
            side.is_unknown |= is_unknown;
            has_room
        }
    }
}
