//! Hubs on the soft device: all ends in one process, no hardware and no C library.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nanoverbs_core::soft::CqId;

use super::{Backend, Ends, Ground, Hub, HubError, Key, News};
use crate::CallError;
use crate::endpoint::soft::{NAP, SoftBase, prepared};
use crate::endpoint::{EndpointError, Options, Prepared, Soft, SoftDevice};
use crate::poller::Sources;

/// Peers that asked and were not accepted yet; `None` when the hub is gone.
type Waiting<const QPS: usize> = Arc<Mutex<Option<VecDeque<SoftRequest<QPS>>>>>;

/// What the members of a hub on the soft device share.
#[derive(Debug)]
#[expect(unnameable_types, reason = "the sealed traits speak of it")]
pub struct SoftGround<const QPS: usize> {
    door: Door<QPS>,
    keys: Vec<Key>,
    /// The next member to look at.
    next: usize,
    /// How many were looked at since the question was asked.
    looked: usize,
}

/// The way to a hub on the soft device, for its peers: what a listener's address is on a real one. A clone is
/// another handle; any thread may connect.
#[derive(Clone, Debug)]
pub struct Door<const QPS: usize> {
    base: SoftBase<QPS>,
    queue: CqId,
    options: Options,
    waiting: Waiting<QPS>,
}

/// A peer that asks a hub on the soft device to be connected. Dropped, it is refused: its connection has ended.
pub struct SoftRequest<const QPS: usize> {
    /// The hub's completion queue.
    queue: CqId,
    ends: Option<Ends<Soft<QPS>>>,
}

impl Options {
    /// A hub on `device`, whose peers come through its [`Door`]. Each member and each peer is a
    /// queue pair of the device.
    ///
    /// # Errors
    ///
    /// [`HubError`] when a size is out of range, or the device has no room for the hub.
    pub fn soft_hub<C: 'static, const N: usize, const QPS: usize>(
        self,
        device: &'static SoftDevice<QPS>,
    ) -> Result<Hub<Soft<QPS>, C, N>, HubError> {
        self.check()?;
        let (need, max) = (Hub::<Soft<QPS>, C, N>::room(&self), SoftDevice::<QPS>::COMPLETIONS);
        let max = u32::try_from(max).unwrap_or(u32::MAX);
        let capacity = match u32::try_from(need) {
            Ok(capacity) if capacity <= max => capacity,
            _ => return Err(HubError::TooManyCompletions { need, max }),
        };
        let queue = device.completion_queue(capacity as usize)?;
        let base = SoftBase { device, domain: device.domain() };
        let waiting = Arc::new(Mutex::new(Some(VecDeque::new())));
        let door = Door { base, queue: queue.id(), options: self, waiting };
        Hub::new(SoftGround { door, keys: Vec::new(), next: 0, looked: 0 }, queue, capacity, self)
    }
}

impl<C: 'static, const N: usize, const QPS: usize> Hub<Soft<QPS>, C, N> {
    /// The way in for its peers.
    pub fn door(&self) -> Door<QPS> {
        self.ground.door.clone()
    }
}

impl<const QPS: usize> Door<QPS> {
    /// An endpoint that is connected to the hub as soon as that accepts: post receives, then establish.
    ///
    /// # Errors
    ///
    /// [`EndpointError`] when a size is out of range, the device has no queue pair left, or the hub is gone.
    pub fn connect<C: 'static>(
        &self,
        options: Options,
    ) -> Result<Prepared<Soft<QPS>, C>, EndpointError> {
        options.check()?;
        let base = SoftBase { domain: self.base.device.domain(), ..self.base };
        let queues = base.queues(&options)?;
        let near = base.queue_pair(&options, (&queues.0).into(), (&queues.1).into())?;
        let far = self.base.queue_pair(&self.options, self.queue, self.queue)?;
        near.control.connect(&far.control)?;
        let ended = Arc::new(AtomicBool::new(false));
        let ends = Some(self.base.ends(far, Arc::clone(&ended)));
        let request = SoftRequest { queue: self.queue, ends };
        let endpoint = prepared(&options, base.ends(near, ended), queues)?;
        match self.waiting().as_mut() {
            Some(waiting) => waiting.push_back(request),
            None => return Err(CallError::new("rdma_connect", libc::ECONNREFUSED).into()),
        }
        Ok(endpoint)
    }

    fn waiting(&self) -> MutexGuard<'_, Option<VecDeque<SoftRequest<QPS>>>> {
        // No panic can leave the list half written.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<const QPS: usize> Ground<Soft<QPS>> for SoftGround<QPS> {
    fn base(&self) -> &SoftBase<QPS> {
        &self.door.base
    }

    fn accept(
        &self,
        _: &Options,
        mut request: SoftRequest<QPS>,
    ) -> Result<Ends<Soft<QPS>>, EndpointError> {
        // Its completions go where the hub is whose door it came through.
        let ends = if request.queue == self.door.queue { request.ends.take() } else { None };
        ends.ok_or(EndpointError::Call(CallError::new("rdma_accept", libc::EINVAL)))
    }

    fn enter(&mut self, _: &Soft<QPS>, key: Key) {
        self.keys.push(key);
    }

    fn leave(&mut self, _: &Soft<QPS>, key: Key) {
        if let Some(at) = self.keys.iter().position(|known| *known == key) {
            self.keys.remove(at);
            // The look that is under way skips nobody.
            self.next -= usize::from(at < self.next);
        }
    }

    fn begin(&mut self) {
        self.looked = 0;
    }

    /// The device says nothing of connections, so each member is looked at, once a question, those first who had
    /// to wait.
    fn poll(&mut self) -> Result<Option<News<SoftRequest<QPS>>>, CallError> {
        let request = self.door.waiting().as_mut().and_then(VecDeque::pop_front);
        if let Some(request) = request {
            return Ok(Some(News::Request(request)));
        }
        if self.looked >= self.keys.len() {
            return Ok(None);
        }
        self.looked += 1;
        let at = if self.next < self.keys.len() { self.next } else { 0 };
        self.next = at + 1;
        Ok(self.keys.get(at).copied().map(News::Member))
    }

    fn drain(&self) -> Result<(), CallError> {
        Ok(())
    }

    fn sources<'s>(&'s self, sources: &mut Sources<'s>) {
        // The soft device raises no events; and it may be this thread that has to drive it.
        sources.at_most(NAP);
    }
}

impl<const QPS: usize> Drop for SoftRequest<QPS> {
    fn drop(&mut self) {
        if let Some(ends) = &mut self.ends {
            ends.driver.disconnect();
        }
    }
}

/// Who asked and was not accepted is refused.
impl<const QPS: usize> Drop for SoftGround<QPS> {
    fn drop(&mut self) {
        let refused = self.door.waiting().take();
        drop(refused);
    }
}

impl<const QPS: usize> std::fmt::Debug for SoftRequest<QPS> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SoftRequest").finish_non_exhaustive()
    }
}
