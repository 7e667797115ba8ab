//! Hubs on real devices, whose members are connected through librdmacm.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use super::{AdmitError, Ends, Ground, Hub, HubError, Joining, Key, News};
use crate::cm::{BindError, EventChannel, ListenOptions, Listener, Request, Route, Token};
use crate::endpoint::verbs::{Parts, VerbsBase, poll_port};
use crate::endpoint::{EndpointError, Options, Verbs};
use crate::poller::Sources;
use crate::{CallError, CompletionChannel, CompletionQueue, Device};

/// What the members of a hub on a real device share.
#[derive(Debug)]
#[expect(unnameable_types, reason = "the sealed traits speak of it")]
pub struct VerbsGround {
    parts: Parts,
    events: EventChannel,
    listeners: Vec<Listener>,
    members: HashMap<Token, Key>,
}

impl Options {
    /// A hub on `device`: of a [`Route`], a [`Request`] or a
    /// [`Listener`](crate::cm::Listener::device), or opened [by name](Device::open).
    ///
    /// # Errors
    ///
    /// [`HubError::TooManyCompletions`] when the device has no completion queue for so many requests; another
    /// one when a size is out of range, or a part cannot be had.
    pub fn hub<C: 'static, const N: usize>(
        self,
        device: &Arc<Device>,
    ) -> Result<Hub<Verbs, C, N>, HubError> {
        self.check()?;
        let (need, max) = (Hub::<Verbs, C, N>::room(&self), device.limits().completions);
        let asked = match u32::try_from(need) {
            Ok(asked) if asked <= max => asked,
            _ => return Err(HubError::TooManyCompletions { need, max }),
        };
        let channel = CompletionChannel::new(device)?;
        let queue = CompletionQueue::new(device, asked, Some(&channel))?;
        if queue.depth() < asked {
            return Err(HubError::TooManyCompletions { need, max: queue.depth() });
        }
        let port = poll_port(&queue)?;
        let base = VerbsBase { domain: device.domain()? };
        let parts = Parts { base, channel, sent: Arc::clone(&queue), received: queue };
        let (events, listeners) = (EventChannel::new()?, Vec::new());
        let ground = VerbsGround { parts, events, listeners, members: HashMap::new() };
        Hub::new(ground, port, asked, self)
    }
}

impl<C: 'static, const N: usize> Hub<Verbs, C, N> {
    /// Listens on `addr` as `options` say: peers that ask there come as
    /// [`Event::Request`](super::Event::Request). Says where, for a port that was left to the system. May be called
    /// several times.
    ///
    /// # Errors
    ///
    /// [`BindError`] says what is wrong with the address.
    #[doc(alias = "rdma_listen")]
    pub fn listen(
        &mut self,
        options: ListenOptions,
        addr: SocketAddr,
    ) -> Result<SocketAddr, BindError> {
        let listener = options.on(&self.ground.events).bind(addr)?;
        let local = listener.local_addr();
        self.ground.listeners.push(listener);
        Ok(local)
    }

    /// Listens no more: who asks from now on is refused.
    pub fn stop_listening(&mut self) {
        self.ground.listeners.clear();
    }

    /// Makes a member of the peer that `route` leads to: decide on receives to go on.
    ///
    /// # Errors
    ///
    /// [`AdmitError`] when there is no place, or the device cannot have the queue pair.
    pub fn connect(&mut self, mut route: Route) -> Result<Joining<'_, Verbs, C, N>, AdmitError> {
        self.admit(|ground, options| {
            route.move_to(&ground.events)?;
            ground.parts.on_route(options, route)
        })
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        self.ground.parts.base.domain.device()
    }

    /// What an event loop of the program's own shall watch: completions of an [armed](Hub::arm) hub, and what
    /// [`poll_event`](Hub::poll_event) is for, connections and the device. All are readable then.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 3] {
        [self.ground.parts.channel.as_fd(), self.ground.events.as_fd(), self.device().as_fd()]
    }
}

impl<C: 'static, const N: usize> Joining<'_, Verbs, C, N> {
    /// Bytes that travel with the request or its answer, instead of those of the options. How many can is checked
    /// when it is started.
    pub fn send_along(&mut self, private_data: &[u8]) {
        if let Some(driver) = self.driver() {
            driver.send_along(private_data);
        }
    }
}

impl Ground<Verbs> for VerbsGround {
    fn base(&self) -> &VerbsBase {
        &self.parts.base
    }

    fn accept(
        &self,
        options: &Options,
        mut request: Request,
    ) -> Result<Ends<Verbs>, EndpointError> {
        request.move_to(&self.events)?;
        self.parts.on_request(options, request)
    }

    fn enter(&mut self, driver: &Verbs, key: Key) {
        if let Some(token) = driver.token() {
            self.members.insert(token, key);
        }
    }

    fn leave(&mut self, driver: &Verbs, key: Key) {
        match driver.token() {
            Some(token) => drop(self.members.remove(&token)),
            // It failed on its way, and its name went with the step.
            None => self.members.retain(|_, known| *known != key),
        }
    }

    fn poll(&mut self) -> Result<Option<News<Request>>, CallError> {
        while let Some(token) = self.events.poll_token()? {
            if let Some(key) = self.members.get(&token) {
                return Ok(Some(News::Member(*key)));
            }
            for listener in self.listeners.iter().filter(|listener| listener.token() == token) {
                // A request that could not be taken was refused, and the listener goes on.
                if let Ok(Some(request)) = listener.poll_request() {
                    return Ok(Some(News::Request(request)));
                }
            }
        }
        // What the device has to say closes what it concerns; the events stay for who asks for them.
        self.parts.base.domain.device().look()?;
        if self.parts.sent.has_failed() {
            return Err(CallError::new("ibv_poll_cq", libc::EIO));
        }
        Ok(None)
    }

    fn drain(&self) -> Result<(), CallError> {
        self.parts.channel.drain().map(drop)
    }

    fn sources<'s>(&'s self, sources: &mut Sources<'s>) {
        sources.add(self.parts.channel.as_fd());
        sources.add(self.events.as_fd());
        sources.add(self.parts.base.domain.device().as_fd());
    }
}
