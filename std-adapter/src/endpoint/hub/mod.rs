//! Many connected peers on one completion queue, for one thread: what a server with thousands of clients is
//! made of.
//!
//! A [`Hub`] owns one completion queue with one channel, one domain, one pool of blocks and one set of arrays
//! in which requests are built. Its members are connected queue pairs, at most `N` at a time, that come and
//! go: from a request ([`Hub::accept`]), or by a way that was found (`Hub::connect`). A member is known by
//! its [`Key`], which no later member ever has; [`Hub::peer`] lends it out with the verbs of an
//! [`Endpoint`](super::Endpoint).
//!
//! One thread uses a hub. [`Hub::poll`] fetches completions and marks what has ended; [`Hub::next_ended`] hands the
//! outcomes out, so many a member before the next one has its turn ([`Options::budget`]). Both take the same
//! time however many members there are, and neither allocates, locks or makes a system call.
//! [`Hub::poll_event`] says who asks, stands or has ended; it does make system calls.
//! [`poller::Serve`](crate::poller::Serve) does all of this on a thread of its own.
//!
//! Invariant: a context that went in comes out once: by a refused post, by [`Hub::next_ended`], or by
//! [`Hub::close`]. A member's queue pair is destroyed before its contexts are given up.
//!
//! ```
//! use nanoverbs::endpoint::{Options, Side, Soft, SoftDevice};
//! use nanoverbs::hub::{Event, Hub};
//! use nanoverbs::nanoverbs_core::Block;
//! use std::time::Duration;
//!
//! static DEVICE: SoftDevice<8> = SoftDevice::new();
//!
//! // At most four clients. On a real device: `Options::hub`, and `Hub::listen` in the place of a door.
//! let mut hub: Hub<Soft<8>, Block, 4> = Options::new().soft_hub(&DEVICE)?;
//! let door = hub.door();
//! let connect = || door.connect::<Block>(Options::new().blocks(4, 4096));
//! let mut clients = [connect()?, connect()?, connect()?]
//!     .map(|prepared| prepared.receives(1).unwrap().establish(Duration::from_secs(5)).unwrap());
//!
//! while let Some(event) = hub.poll_event()? {
//!     if let Event::Request(request) = event {
//!         hub.accept(request)?.receives(2)?.start()?;
//!     }
//! }
//! for client in &mut clients {
//!     let block = client.block().expect("a block is free");
//!     client.post_send(block)?;
//! }
//! // An echo for all of them.
//! let mut echoes = 0;
//! while echoes < 3 {
//!     hub.poll()?;
//!     while let Some((key, side, ended)) = hub.next_ended() {
//!         if side == Side::Recv && ended.outcome.is_done() {
//!             hub.peer(key)?.post_send(ended.context)?;
//!             echoes += 1;
//!         }
//!     }
//! }
//! for client in &mut clients {
//!     assert!(client.recv_completion(Duration::from_secs(5))?.outcome.is_done());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod event;
mod joining;
mod member;
mod peer;
mod soft;
#[cfg(feature = "librdmacm")]
mod verbs;

pub use error::{AdmitError, HubError, NotAMember};
pub use event::{Event, Request};
pub use joining::{Joining, Ready};
pub use member::Key;
pub use peer::Peer;
pub(super) use soft::SoftGround;
pub use soft::{Door, SoftRequest};
#[cfg(feature = "librdmacm")]
pub(super) use verbs::VerbsGround;

use std::fmt;

use nanoverbs_core::{
    Armed, Block, Completion, Completions, Ended, Group, JoinError, Joined, Member as Seat,
    PollError, Route, Turns,
};

use super::driver::sealed::{Backend, Base, Ends, Ground, News};
use super::pair::Pair;
use super::soft::NAP;
use super::storage::Links;
use super::{BlockPool, Driver, EndpointError, Options, Shared, Side, WaitError, Window};
use crate::memory::{Pages, Rights};
use crate::poller::Sources;
use crate::{CallError, Deadline};
use member::{Member, Phase};

/// A place for each member.
type Places<D, C> = Box<[Option<Box<Member<D, C>>>]>;

/// Completions that are fetched at most at a time.
const BATCH: usize = 32;

/// At most `N` connected queue pairs on one completion queue, for one thread; `N` is a power of two up to 65,536.
/// `D` is the device behind them, [`Soft`](super::Soft) or `Verbs`; `C` the context of their requests, as for an
/// [`Endpoint`](super::Endpoint).
///
/// Each member has the depths, pieces and inline bytes of the options; the blocks are those of all members
/// together. A member takes about as many bytes as its slots, 6 KiB with a [`Block`] as its context; they are
/// allocated when it joins.
///
/// Dropped, it closes without waiting: contexts whose outcome has not come are dropped once their queue
/// pair is destroyed.
pub struct Hub<D: Driver, C: 'static, const N: usize> {
    /// First, so that each queue pair is destroyed before what it completes on.
    members: Places<D, C>,
    group: Box<Group<N>>,
    turns: Box<Turns<N>>,
    completions: Completions<D::PollPort, BATCH>,
    links: Links,
    pool: BlockPool,
    options: Options,
    strays: u64,
    /// Members that [`Hub::poll_event`] looks at: something has failed, or they have ended and their last outcomes are
    /// not taken. Room for all of them.
    watched: Vec<Key>,
    ground: D::Ground,
}

impl<D: Driver, C: 'static, const N: usize> Hub<D, C, N> {
    /// Completions that [`Hub::poll`] fetches at most: when it did, there may be more.
    pub const BATCH: usize = BATCH;

    /// How many completions a hub of these options needs room for.
    fn room(options: &Options) -> u64 {
        (N as u64).saturating_mul(u64::from(options.send_depth) + u64::from(options.recv_depth))
    }

    fn new(
        ground: D::Ground,
        port: D::PollPort,
        capacity: u32,
        options: Options,
    ) -> Result<Self, HubError> {
        let pool = BlockPool::new(ground.base(), options.blocks, options.block_len)?;
        Ok(Self {
            members: (0..N).map(|_| None).collect(),
            group: Box::new(Group::new()),
            turns: Box::new(Turns::new(options.budget)),
            completions: Completions::new(port, capacity),
            links: Links::new(),
            pool,
            options,
            strays: 0,
            watched: Vec::with_capacity(N),
            ground,
        })
    }

    /// Fetches completions, at most [`Hub::BATCH`], and marks what they end: [`Hub::next_ended`] has it. Says how many
    /// came. Never waits.
    ///
    /// # Errors
    ///
    /// [`PollError`] when the completion queue cannot be polled any more.
    #[inline]
    pub fn poll(&mut self) -> Result<usize, PollError> {
        self.fetch(None)
    }

    /// The same while a member is out of its place, because it is being closed.
    #[inline(always)]
    fn fetch(&mut self, mut out: Option<(usize, &mut Pair<D, C>)>) -> Result<usize, PollError> {
        let Self { completions, group, members, turns, strays, watched, .. } = self;
        let batch = completions.poll()?;
        let count = batch.len();
        for completion in batch {
            let (at, side) = match group.route(&completion) {
                Route::Send(at) => (at, Side::Send),
                Route::Recv(at) => (at, Side::Recv),
                Route::Stale => continue,
            };
            let is_known = match members.get_mut(at) {
                Some(Some(member)) => {
                    if !completion.is_success() {
                        member.fails(watched);
                    }
                    // Who is not told yet that it stands is served when it is.
                    if member.is_heard() {
                        turns.ready(at);
                    }
                    retire(&mut member.pair, side, completion)
                }
                _ => match &mut out {
                    Some((closing, pair)) if *closing == at => retire(pair, side, completion),
                    _ => false,
                },
            };
            *strays = strays.wrapping_add(u64::from(!is_known));
        }
        Ok(count)
    }

    /// The next request that has ended, with its member: the oldest one of the member whose turn it is, of its
    /// two queues in turn. Does not poll. In between the caller may post.
    ///
    /// What a member that is still on its way has received comes when it stands
    /// ([`Event::Established`]), so that it may be answered.
    #[inline]
    pub fn next_ended(&mut self) -> Option<(Key, Side, Ended<C>)> {
        let Self { turns, members, .. } = self;
        turns.next(|at| members.get_mut(at)?.as_mut()?.take())
    }

    /// Lends a member out, with the verbs of an endpoint.
    ///
    /// # Errors
    ///
    /// [`NotAMember`] when it has left, or is another hub's.
    #[inline]
    pub fn peer(&mut self, key: Key) -> Result<Peer<'_, D, C>, NotAMember> {
        match self.members.get_mut(key.at()) {
            Some(Some(member)) if member.key == key => {
                Ok(Peer { member, links: &mut self.links, pool: &mut self.pool })
            }
            _ => Err(NotAMember { key }),
        }
    }

    /// A free block of the hub's own memory, or `None` when all are out.
    #[inline(always)]
    pub fn block(&mut self) -> Option<Block> {
        self.pool.allocate()
    }

    /// Makes a peer that asked to be connected a member: decide on receives to go on.
    ///
    /// Makes system calls and allocates, as everything that lets members come and go.
    ///
    /// # Errors
    ///
    /// [`AdmitError`] when there is no place, or the device cannot have the queue pair; the peer is refused
    /// then. On the soft device a request is for the hub whose [`Door`] it came through, and for no other one.
    pub fn accept(&mut self, request: Request<D>) -> Result<Joining<'_, D, C, N>, AdmitError> {
        self.admit(|ground, options| ground.accept(options, request))
    }

    /// A place for a queue pair, and then the queue pair.
    fn admit(
        &mut self,
        make: impl FnOnce(&D::Ground, &Options) -> Result<Ends<D>, EndpointError>,
    ) -> Result<Joining<'_, D, C, N>, AdmitError> {
        let Joined { member: seat, send, recv } = self.join()?;
        let key = Key::new(seat.index(), send.serial());
        let made = make(&self.ground, &self.options)
            .and_then(|ends| Ok(Pair::new(ends, Some((send, recv)))?));
        let pair = match made {
            Ok(pair) => pair,
            Err(error) => {
                let _ = self.group.leave(seat);
                return Err(error.into());
            }
        };
        self.ground.enter(&pair.driver, key);
        if let Some(place) = self.members.get_mut(key.at()) {
            *place = Some(Box::new(Member::new(pair, seat, key)));
        }
        Ok(Joining::new(self, key))
    }

    /// A place in the group. Where the last ones to leave may have completions out, these are fetched.
    fn join(&mut self) -> Result<Joined, JoinError> {
        let Options { send_depth, recv_depth, .. } = self.options;
        loop {
            match self.group.join(&mut self.completions, send_depth, recv_depth) {
                Err(JoinError::Leaving { .. } | JoinError::CqTooSmall(_))
                    if self.group.leaving() > 0 =>
                {
                    // The group saw some. Nobody posts meanwhile, so there are no more than are in flight now.
                    self.poll().map_err(JoinError::Poll)?;
                }
                joined => return joined,
            }
        }
    }

    /// Ends a member's connection, collects the outcome of everything that it has in flight until the deadline,
    /// destroys its queue pair, and hands each context to `each`; those without an outcome as abandoned.
    /// Meanwhile the outcomes of the other members wait to be taken. With a deadline of zero it does not wait:
    /// right for a member that [has ended](Event::Ended), which has nothing left but, at most, silent sends.
    ///
    /// Silent requests are as those of an [endpoint](super::Endpoint::close).
    ///
    /// # Errors
    ///
    /// [`NotAMember`] when it has left, or is another hub's.
    pub fn close(
        &mut self,
        key: Key,
        deadline: impl Into<Deadline>,
        each: impl FnMut(Side, Ended<C>),
    ) -> Result<(), NotAMember> {
        let at = key.at();
        self.peer(key)?;
        let Some(member) = self.members.get_mut(at).and_then(Option::take) else {
            return Err(NotAMember { key });
        };
        let Member { pair, seat, .. } = *member;
        self.turns.forget(at);
        self.watched.retain(|watched| *watched != key);
        self.ground.leave(&pair.driver, key);
        let mut leaving = Leaving { hub: self, pair, seat: Some(seat) };
        let Leaving { hub, pair, .. } = &mut leaving;
        // A completion queue that cannot be polled brings nothing, and the deadline ends it.
        let fetch = |pair: &mut Pair<D, C>| while matches!(hub.fetch(Some((at, pair))), Ok(1..)) {};
        pair.finish(deadline.into(), fetch, each);
        Ok(())
    }

    /// Ends all members at once, as [`Hub::close`] does one; the deadline is that of all of them together.
    pub fn close_all(
        &mut self,
        deadline: impl Into<Deadline>,
        mut each: impl FnMut(Key, Side, Ended<C>),
    ) {
        let deadline = deadline.into();
        // The peers are told, and everything is flushed, at the same time.
        for member in self.members.iter_mut().flatten() {
            member.pair.driver.disconnect();
        }
        let keys: Vec<Key> = self.keys().collect();
        for key in keys {
            let _ = self.close(key, deadline, |side, ended| each(key, side, ended));
        }
    }

    /// What has become of the connections since the last call; `None` when nothing has, for now. Ask until it
    /// says so before sleeping. Never waits; makes system calls.
    ///
    /// # Errors
    ///
    /// [`CallError`] when the device or the kernel's connection manager is out of order.
    pub fn poll_event(&mut self) -> Result<Option<Event<D>>, CallError> {
        let mut at = 0;
        while let Some(&key) = self.watched.get(at) {
            let event = self.look(key);
            if self.is_ending(key) {
                at += 1;
            } else {
                self.watched.swap_remove(at);
            }
            if event.is_some() {
                return Ok(event);
            }
        }
        self.ground.begin();
        loop {
            let event = match self.ground.poll()? {
                None => return Ok(None),
                Some(News::Request(request)) => Some(Event::Request(request)),
                Some(News::Member(key)) => self.look(key),
            };
            if event.is_some() {
                return Ok(event);
            }
        }
    }

    /// What has become of a member.
    fn look(&mut self, key: Key) -> Option<Event<D>> {
        let Self { members, watched, turns, .. } = self;
        let member = members.get_mut(key.at())?.as_mut().filter(|member| member.key == key)?;
        let event = member.look();
        if member.is_ending() {
            member.watch(watched);
        }
        // What it has received while it was on its way.
        if event.is_some() && member.has_outcomes() {
            turns.ready(key.at());
        }
        event
    }

    /// Whether a member has ended and its end is not told yet.
    fn is_ending(&self, key: Key) -> bool {
        let member = self.members.get(key.at()).and_then(Option::as_ref);
        member.is_some_and(|member| member.key == key && member.is_ending())
    }

    /// Whether members are about to be [told as ended](Event::Ended) as soon as what they had in flight is out:
    /// then [`poll_event`](Hub::poll_event) wants to be asked again soon.
    #[inline(always)]
    pub const fn has_ending(&self) -> bool {
        !self.watched.is_empty()
    }

    /// Asks for an event with the next completion, and looks once more. Only after [`Armed::Quiet`], and
    /// when [`poll_event`](Hub::poll_event) says `None`, may the thread sleep, and until one of the
    /// [`sources`](Hub::sources) wakes it. Makes system calls.
    ///
    /// # Errors
    ///
    /// [`WaitError`] when the device cannot be polled or armed any more.
    pub fn arm(&mut self) -> Result<Armed, WaitError> {
        self.ground.drain()?;
        if self.turns.waiting() > 0 {
            return Ok(Armed::Ready);
        }
        Ok(self.completions.arm(false)?)
    }

    /// Adds what ends a sleep: completions of an armed hub, and news of its connections. On the soft device,
    /// which raises no events, the sleep is made short instead.
    pub fn sources<'s>(&'s self, sources: &mut Sources<'s>) {
        self.ground.sources(sources);
        if self.has_ending() {
            sources.at_most(NAP);
        }
    }

    /// Registers `len` bytes, rounded up to whole pages, that every member's peer may reach as far as `rights`
    /// go, if it is told of it.
    ///
    /// # Errors
    ///
    /// [`EndpointError`] when there is no memory, or it cannot be registered.
    pub fn share(&self, len: usize, rights: Rights) -> Result<Shared, EndpointError> {
        self.ground.base().share(Pages::new(len)?, rights)
    }

    /// A memory window for any member, see [`Endpoint::window`](super::Endpoint::window).
    ///
    /// # Errors
    ///
    /// [`EndpointError`] when the device has no windows, or no more of them.
    pub fn window(&self) -> Result<Window<D>, EndpointError> {
        Window::new(self.ground.base())
    }

    /// The members, those on their way too. Looks at each place.
    pub fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        self.members.iter().flatten().map(|member| member.key)
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        self.group.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.group.is_empty()
    }

    /// Members that are in line for their turn: all that have outcomes to be taken, and some that had.
    pub fn waiting(&self) -> usize {
        self.turns.waiting()
    }

    /// Sends in flight of all members. Looks at each place.
    pub fn sends_in_flight(&self) -> u32 {
        let members = self.members.iter().flatten();
        members.map(|member| member.pair.in_flight(Side::Send)).fold(0, u32::wrapping_add)
    }

    /// The device behind it.
    pub fn device_name(&self) -> String {
        self.ground.base().device_name()
    }

    /// Completions of members that had left. The count wraps.
    pub fn stale(&self) -> usize {
        self.group.stale()
    }

    /// Completions that belonged to nothing here. Not 0 points to a device that repeats itself.
    pub const fn strays(&self) -> u64 {
        self.strays
    }
}

/// A member that is being closed. Its place is free again afterwards, also when the caller's closure panics.
struct Leaving<'h, D: Driver, C: 'static, const N: usize> {
    hub: &'h mut Hub<D, C, N>,
    pair: Pair<D, C>,
    seat: Option<Seat>,
}

impl<D: Driver, C: 'static, const N: usize> Drop for Leaving<'_, D, C, N> {
    fn drop(&mut self) {
        self.pair.end();
        // One whose queue pair could not be destroyed keeps its place and its room.
        if self.pair.in_flight(Side::Send) == 0
            && self.pair.in_flight(Side::Recv) == 0
            && let Some(seat) = self.seat.take()
        {
            let _ = self.hub.group.leave(seat);
        }
    }
}

/// Whether there was a request that it ends.
#[inline(always)]
fn retire<D: Driver, C>(pair: &mut Pair<D, C>, side: Side, completion: Completion) -> bool {
    match side {
        Side::Send => pair.sends.retire(completion).is_ok(),
        Side::Recv => pair.recvs.retire(completion).is_ok(),
    }
}

impl<D: Driver, C: 'static, const N: usize> fmt::Debug for Hub<D, C, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub")
            .field("device", &self.device_name())
            .field("group", &self.group)
            .field("turns", &self.turns)
            .field("strays", &self.strays)
            .finish_non_exhaustive()
    }
}
