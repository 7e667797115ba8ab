//! Protection domains: who may use which memory.
//!
//! A queue pair reaches regions of its own domain only. Most programs share one domain a device
//! ([`Device::domain`]) and never look here. Any thread.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nanoverbs_core::Domain;

use crate::sys::datagram::RawWay;
use crate::sys::{self, AhPtr, CallError, PdPtr, TdPtr};
use crate::{Device, WrongProcess};

/// A protection domain of a device.
#[doc(alias = "ibv_pd")]
pub struct ProtectionDomain {
    pd: PdPtr,
    /// For one of a single thread: the domain that it stands on, which keeps its ways.
    beneath: Option<(Arc<Self>, TdPtr)>,
    id: Domain,
    /// Ways to peers of datagrams, each made once.
    ways: Mutex<HashMap<RawWay, AhPtr>>,
    device: Arc<Device>,
}

impl ProtectionDomain {
    /// A new domain, for those who keep tenants apart.
    ///
    /// # Errors
    ///
    /// [`DomainError::Exhausted`] after 8 million domains in one process, and what the device says.
    #[doc(alias = "ibv_alloc_pd")]
    pub fn new(device: &Arc<Device>) -> Result<Arc<Self>, DomainError> {
        device.check_process().map_err(DomainError::WrongProcess)?;
        let id = next_domain(&NEXT).ok_or(DomainError::Exhausted)?;
        // SAFETY: the device lives, and this domain will hold it.
        let pd = unsafe { sys::verbs::alloc_pd(device.context()) }.map_err(DomainError::Call)?;
        let (ways, device) = (Mutex::default(), Arc::clone(device));
        Ok(Arc::new(Self { pd, beneath: None, id, ways, device }))
    }

    /// A new domain whose queue pairs go without the device library's locks ("thread domain"), where
    /// the device offers that. It has its own memory; [`for_one_thread`](Self::for_one_thread) shares it.
    ///
    /// # Errors
    ///
    /// As for [`for_one_thread`](Self::for_one_thread), and for [`new`](Self::new).
    ///
    /// # Safety
    ///
    /// As for [`for_one_thread`](Self::for_one_thread).
    pub unsafe fn single_threaded(device: &Arc<Device>) -> Result<Arc<Self>, DomainError> {
        let plain = Self::new(device)?;
        // SAFETY: the caller's promise.
        unsafe { plain.for_one_thread() }
    }

    /// A domain over this one whose queue pairs go without the device library's locks ("thread domain"), where
    /// the device offers that. Memory of either can be used by the queue pairs of both, so that threads with such
    /// a domain each register their memory once.
    ///
    /// It goes wherever a domain does: into `create_queue_pair`, where C has `rdma_create_qp_ex`.
    ///
    /// # Errors
    ///
    /// [`DomainError::Unsupported`] when the device does not; take this one then.
    ///
    /// # Safety
    ///
    /// No two threads at a time post to the queue pairs of the new domain and to its shared receive queues, poll
    /// their completion queues,
    /// make or destroy them or change their state (`ibv_alloc_td(3)`), from now until it is gone. Those of
    /// this domain are as free as before.
    #[doc(alias = "ibv_alloc_td")]
    #[doc(alias = "ibv_alloc_parent_domain")]
    #[doc(alias = "rdma_create_qp_ex")]
    pub unsafe fn for_one_thread(self: &Arc<Self>) -> Result<Arc<Self>, DomainError> {
        let device = &self.device;
        device.check_process().map_err(DomainError::WrongProcess)?;
        let unsupported = |error: CallError| match error.errno() {
            libc::EOPNOTSUPP | libc::ENOSYS => DomainError::Unsupported,
            _ => DomainError::Call(error),
        };
        // Devices put such a domain over a plain one, and over no other.
        let plain = self.beneath.as_ref().map_or(self, |(plain, _)| plain);
        // SAFETY: the device lives, and this domain will hold it.
        let td = unsafe { sys::extended::alloc_td(device.context()) }.map_err(unsupported)?;
        // SAFETY: all live, and this domain will hold them.
        match unsafe { sys::extended::alloc_parent_domain(device.context(), plain.pd, td) } {
            Ok(pd) => Ok(Arc::new(Self {
                pd,
                beneath: Some((Arc::clone(plain), td)),
                id: plain.id,
                ways: Mutex::default(),
                device: Arc::clone(device),
            })),
            Err(error) => {
                // SAFETY: the thread domain was just made and nothing uses it.
                let _ = unsafe { sys::extended::dealloc_td(td) };
                Err(unsupported(error))
            }
        }
    }

    /// Whether its queue pairs go without the device library's locks.
    pub const fn is_single_threaded(&self) -> bool {
        self.beneath.is_some()
    }

    /// Its identity, as the core's checks compare it. Unique in the process, but that a domain
    /// [of one thread](Self::for_one_thread) has that of the domain that it stands on.
    pub const fn id(&self) -> Domain {
        self.id
    }

    /// Its device.
    pub const fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The address handle for a way. It stays until the domain goes, when no queue pair is left to use it.
    pub(crate) fn handle(&self, way: RawWay) -> Result<AhPtr, CallError> {
        if let Some((plain, _)) = &self.beneath {
            // Queue pairs of that one may use it too, and of all that stand on it.
            return plain.handle(way);
        }
        let mut ways = self.ways.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = ways.get(&way) {
            return Ok(*known);
        }
        // SAFETY: the domain lives, and destroys the handle before it goes.
        let ah = unsafe { sys::datagram::create_ah(self.pd, &way) }?;
        ways.insert(way, ah);
        Ok(ah)
    }

    pub(crate) const fn pd(&self) -> PdPtr {
        self.pd
    }
}

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtectionDomain")
            .field("id", &self.id)
            .field("device", &self.device.name())
            .finish_non_exhaustive()
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        if self.device.is_parents() {
            return;
        }
        for (_, ah) in self.ways.get_mut().unwrap_or_else(PoisonError::into_inner).drain() {
            // SAFETY: it was kept here alone, and queue pairs hold their domain: none can use it.
            let _ = unsafe { sys::datagram::destroy_ah(ah) };
        }
        // SAFETY: regions and queue pairs hold their domain, so none is left in it.
        let _ = unsafe { sys::verbs::dealloc_pd(self.pd) };
        if let Some((_, td)) = self.beneath {
            // SAFETY: the domain above it is gone, which alone used it.
            let _ = unsafe { sys::extended::dealloc_td(td) };
        }
    }
}

/// A protection domain cannot be had.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum DomainError {
    /// The numbers of domains have run out in this process.
    Exhausted,
    /// The device has no such domains.
    Unsupported,
    /// The device belongs to the parent of this process.
    WrongProcess(WrongProcess),
    /// The device says no.
    Call(CallError),
}

impl fmt::Display for DomainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exhausted => f.write_str(
                "this process has made 8 million protection domains, more than can be told apart",
            ),
            Self::Unsupported => {
                f.write_str("this device has no domains of a single thread; take a plain one")
            }
            Self::WrongProcess(error) => error.fmt(f),
            Self::Call(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for DomainError {}

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Domains of real devices have the top one of the 24 bits; software devices number theirs below.
const REAL: u32 = 1 << 23;

/// The next number, never one twice.
fn next_domain(next: &AtomicU32) -> Option<Domain> {
    // Relaxed: only uniqueness matters.
    next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < REAL).then_some(n + 1))
        .ok()
        .map(|n| Domain::from_raw(REAL | n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_are_numbered_once_each_and_apart_from_soft_ones() {
        let next = AtomicU32::new(0);
        let first = next_domain(&next).map(Domain::to_raw);
        let second = next_domain(&next).map(Domain::to_raw);
        assert_eq!((first, second), (Some(0x80_0000), Some(0x80_0001)));
    }

    #[test]
    fn the_last_number_is_not_given_twice() {
        let next = AtomicU32::new(REAL - 1);
        assert_eq!(next_domain(&next).map(Domain::to_raw), Some(0xff_ffff));
        assert_eq!(next_domain(&next), None);
        assert_eq!(next_domain(&next), None);
    }
}
