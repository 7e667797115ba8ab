//! RDMA devices.
//!
//! A [`Device`] comes with a connection (the connection manager picks it by address) or is opened
//! by name. All connections over one device share one [`Device`], and by default one protection
//! domain. Any thread may call anything here.
//!
//! Invariant: the C context lives as long as its [`Device`]. A device that was opened by name
//! owns its context. A device that came with a connection keeps an identifier bound to it, because
//! librdmacm may close a context with its last identifier.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::cm::{BindError, CmId, EventChannel, EventKind};
use crate::event::{DeviceEvent, Tenants};
use crate::sys::{self, CallError, ContextPtr};
use crate::trace::say;
use crate::{DomainError, ProtectionDomain};

mod error;
pub use error::{OpenError, WrongProcess};

/// An RDMA device.
///
/// Its descriptor is readable when [`poll_event`](Self::poll_event) may have something.
#[doc(alias = "ibv_context")]
pub struct Device {
    context: ContextPtr,
    name: String,
    limits: Limits,
    pid: u32,
    default_domain: Mutex<Weak<ProtectionDomain>>,
    removed: AtomicBool,
    tenants: Tenants,
    anchor: Anchor,
}

/// What keeps the context alive.
enum Anchor {
    /// It was opened by name, and is closed with the device.
    Opened,
    /// An identifier that is bound to it.
    Bound(Arc<CmId>),
    /// Nothing any more.
    Gone,
}

/// What a device can do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[doc(alias = "ibv_device_attr")]
#[non_exhaustive]
pub struct Limits {
    /// Requests in one queue.
    pub queue_depth: u32,
    /// Pieces in one request.
    pub sges: u32,
    /// Pieces in one READ.
    pub read_sges: u32,
    /// Completions in one completion queue.
    pub completions: u32,
    /// READs and atomics of a peer that one queue pair serves at a time.
    pub reads_in: u8,
    /// READs and atomics that one queue pair has under way at a time.
    pub reads_out: u8,
    /// Length of one region in bytes.
    pub region_len: u64,
    /// Length of one message in bytes, on the first port.
    pub message: u32,
    /// Length of one packet in bytes, on the first port: of one datagram.
    pub packet: u32,
    /// What its atomics are atomic against.
    pub atomics: Atomics,
    /// Whether it speaks iWARP, where the target of a READ needs remote rights.
    pub iwarp: bool,
    /// Whether it brings pages in when it wants them, so that registered memory need not be locked.
    pub on_demand: bool,
}

/// What a device's atomics are atomic against, `ibv_atomic_cap`. The old value always arrives in this
/// machine's byte order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[doc(alias = "ibv_atomic_cap")]
#[non_exhaustive]
pub enum Atomics {
    /// It has none.
    None,
    /// Each other, on this device only: neither the processor's nor another device's.
    Device,
    /// Everything that touches the memory, the processor too.
    Global,
}

/// The names of the devices of this machine; empty when there is none.
///
/// # Errors
///
/// [`CallError`] when they cannot be listed.
#[doc(alias = "ibv_get_device_list")]
pub fn devices() -> Result<Vec<String>, CallError> {
    let mut names = Vec::new();
    let listed = sys::verbs::open_first(|name| {
        names.push(name.to_string_lossy().into_owned());
        false
    });
    match listed {
        Ok(_) => Ok(names),
        Err(error) if matches!(error.errno(), libc::ENOSYS | libc::ENOENT) => Ok(names),
        Err(error) => Err(error),
    }
}

impl Device {
    /// Opens the device called `name`, as `rdma link` or [`devices`] show it.
    ///
    /// # Errors
    ///
    /// [`OpenError::NoSuchDevice`], or [`OpenError::Call`] when it cannot be opened.
    #[doc(alias = "ibv_open_device")]
    pub fn open(name: &str) -> Result<Arc<Self>, OpenError> {
        let context = match sys::verbs::open_first(|known| known.to_bytes() == name.as_bytes()) {
            Ok(Some(context)) => context,
            Ok(None) => return Err(OpenError::NoSuchDevice { name: name.to_owned() }),
            Err(error) if error.errno() == libc::ENOSYS => {
                return Err(OpenError::NoSuchDevice { name: name.to_owned() });
            }
            Err(error) => return Err(OpenError::Call(error)),
        };
        // SAFETY: the context was just opened.
        let limits = unsafe { quiet_limits(context) }.map_err(|error| {
            // SAFETY: the context was just opened and nothing uses it.
            let _ = unsafe { sys::verbs::close_device(context) };
            OpenError::Call(error)
        })?;
        Ok(Self::new(context, limits, Anchor::Opened))
    }

    /// The device that has an address of this machine, as `ip address` shows it on the RDMA interface.
    ///
    /// # Errors
    ///
    /// [`BindError::NoRdmaDeviceForAddress`], also for addresses that stand for all devices;
    /// [`BindError::NotOurAddress`].
    #[doc(alias = "rdma_bind_addr")]
    pub fn at(addr: IpAddr) -> Result<Arc<Self>, BindError> {
        let addr = SocketAddr::new(addr, 0);
        let channel = EventChannel::new().map_err(BindError::NoConnectionManager)?;
        let id = Arc::new(CmId::new(&channel).map_err(BindError::Call)?);
        id.bind(addr).map_err(|error| BindError::from_call(addr, error))?;
        Self::of(&id).map_err(BindError::Call)?.ok_or(BindError::NoRdmaDeviceForAddress { addr })
    }

    /// The device that `id` is bound to: the one that other identifiers use already, or a new one.
    /// `None` when it is bound to none.
    pub(crate) fn of(id: &Arc<CmId>) -> Result<Option<Arc<Self>>, CallError> {
        let Some(context) = id.context() else { return Ok(None) };
        let mut known = registry();
        known.retain(|device| device.strong_count() > 0);
        // A device that is being dropped just now does not upgrade; a second one for the same
        // context does no harm.
        if let Some(device) =
            known.iter().filter_map(Weak::upgrade).find(|device| device.context == context)
        {
            return Ok(Some(device));
        }
        // SAFETY: `id` is bound to the context, which therefore lives.
        let limits = unsafe { quiet_limits(context) }?;
        let anchor = Anchor::Bound(anchor_beside(id));
        let device = Self::new(context, limits, anchor);
        known.push(Arc::downgrade(&device));
        Ok(Some(device))
    }

    fn new(context: ContextPtr, limits: sys::verbs::RawLimits, anchor: Anchor) -> Arc<Self> {
        // SAFETY: who calls has just made sure that the context lives.
        let name = unsafe { sys::verbs::device_name(context) };
        say!(debug, "a device is in use", device = name);
        Arc::new(Self {
            context,
            name,
            limits: Limits::from_raw(limits),
            pid: std::process::id(),
            default_domain: Mutex::new(Weak::new()),
            removed: AtomicBool::new(false),
            tenants: Tenants::default(),
            anchor,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it can do.
    pub const fn limits(&self) -> Limits {
        self.limits
    }

    /// The domain that everything shares which does not ask for its own.
    ///
    /// # Errors
    ///
    /// As for [`ProtectionDomain::new`].
    #[doc(alias = "ibv_alloc_pd")]
    pub fn domain(self: &Arc<Self>) -> Result<Arc<ProtectionDomain>, DomainError> {
        let mut default = self.default_domain.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(domain) = default.upgrade() {
            return Ok(domain);
        }
        let domain = ProtectionDomain::new(self)?;
        *default = Arc::downgrade(&domain);
        Ok(domain)
    }

    /// How many interrupts completion queues can choose from.
    #[doc(alias = "num_comp_vectors")]
    pub fn vectors(&self) -> u32 {
        // SAFETY: the context lives as long as `self`.
        unsafe { sys::verbs::vectors(self.context) }
    }

    /// How many thousand times a second the device's clock ticks; `None` when it has none.
    #[doc(alias = "hca_core_clock")]
    #[doc(alias = "ibv_query_device_ex")]
    pub fn clock_khz(&self) -> Option<u64> {
        // SAFETY: the context lives as long as `self`.
        unsafe { sys::extended::clock_khz(self.context) }.ok().filter(|clock| *clock > 0)
    }

    /// Whether the device is being removed, as far as the connection manager has told. Its removal
    /// waits until every handle of it is gone.
    pub fn is_removed(&self) -> bool {
        if let Anchor::Bound(id) = &self.anchor {
            while let Ok(Some(event)) = id.next_event() {
                if event.kind == EventKind::DeviceRemoved {
                    self.note_removed();
                }
            }
        }
        // Relaxed: it says nothing about other memory.
        self.removed.load(Ordering::Relaxed)
    }

    /// Somebody was told that the device is being removed: a connection, say, before the device was.
    pub(crate) fn note_removed(&self) {
        // Relaxed: as in `is_removed`.
        self.removed.store(true, Ordering::Relaxed);
        self.tenants.remove_device();
    }

    /// What has happened to the device since the last call; `None` when nothing has. Never blocks.
    ///
    /// What the event ends is closed when this returns: see [`event`](crate::event).
    ///
    /// ```no_run
    /// # fn go(device: &nanoverbs::Device) -> Result<(), nanoverbs::CallError> {
    /// while let Some(event) = device.poll_event()? {
    ///     println!("{}: {:?} of {:?}", device.name(), event.kind, event.subject);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// What the kernel says.
    #[doc(alias = "ibv_get_async_event")]
    #[doc(alias = "ibv_ack_async_event")]
    pub fn poll_event(&self) -> Result<Option<DeviceEvent>, CallError> {
        if let Some(event) = self.tenants.take() {
            return Ok(Some(event));
        }
        self.look()?;
        Ok(self.tenants.take())
    }

    /// Reads the events that there are and closes what they concern; keeps them for `poll_event`.
    pub(crate) fn look(&self) -> Result<(), CallError> {
        if self.check_process().is_err() || self.is_removed() {
            return Ok(());
        }
        // SAFETY: the device owns its context, or an identifier that is bound to it; who made the
        // device made the descriptor nonblocking.
        match unsafe { self.tenants.read(self.context) } {
            // It was pulled before the connection manager could say so.
            Err(error) if matches!(error.errno(), libc::EIO | libc::ENODEV) => {
                self.note_removed();
                Ok(())
            }
            other => other,
        }
    }

    pub(crate) const fn tenants(&self) -> &Tenants {
        &self.tenants
    }

    pub(crate) const fn context(&self) -> ContextPtr {
        self.context
    }

    /// Refuses when this process is a child of the one that opened the device: its handles work on
    /// the parent's queues there.
    pub(crate) fn check_process(&self) -> Result<(), WrongProcess> {
        match std::process::id() {
            pid if pid == self.pid => Ok(()),
            _ => Err(WrongProcess),
        }
    }

    /// Whether handles are to be leaked: in a child their destruction would be that of the parent's.
    pub(crate) fn is_parents(&self) -> bool {
        self.check_process().is_err()
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the context lives as long as `self`.
        unsafe { sys::async_event::async_fd(self.context) }
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("name", &self.name)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let removed = self.is_removed();
        match std::mem::replace(&mut self.anchor, Anchor::Gone) {
            Anchor::Opened => {
                // A device that was pulled says EIO; there is nobody to tell and nothing to do.
                // SAFETY: everything made on the context holds the device, so nothing is left.
                let _ = unsafe { sys::verbs::close_device(self.context) };
            }
            Anchor::Bound(id) => {
                drop(id);
                if removed {
                    sys::cm::let_go_of_removed_devices();
                }
            }
            Anchor::Gone => {}
        }
    }
}

impl Limits {
    fn from_raw(raw: sys::verbs::RawLimits) -> Self {
        // A negative limit would be a device's mistake; it counts as none.
        let number = |value: i32| u32::try_from(value).unwrap_or(0);
        let byte = |value: i32| u8::try_from(value.clamp(0, 255)).unwrap_or(0);
        Self {
            queue_depth: number(raw.max_qp_wr),
            sges: number(raw.max_sge),
            // Some devices leave it at zero and mean that there is no lower limit for READs.
            read_sges: if raw.max_sge_rd > 0 {
                number(raw.max_sge_rd)
            } else {
                number(raw.max_sge)
            },
            completions: number(raw.max_cqe),
            reads_in: byte(raw.max_qp_rd_atom),
            reads_out: byte(raw.max_qp_init_rd_atom),
            region_len: raw.max_mr_size,
            message: raw.max_msg_sz,
            packet: raw.active_mtu,
            atomics: match raw.atomic_cap {
                0 => Atomics::None,
                2 => Atomics::Global,
                // Newer codes promise no more than this one.
                _ => Atomics::Device,
            },
            iwarp: raw.is_iwarp,
            on_demand: raw.has_on_demand_paging,
        }
    }
}

/// The limits of a device whose events shall not block from here on.
///
/// # Safety
///
/// The context is alive.
unsafe fn quiet_limits(context: ContextPtr) -> Result<sys::verbs::RawLimits, CallError> {
    // SAFETY: the caller's promise.
    unsafe { sys::async_event::make_nonblocking(context) }?;
    // SAFETY: as above.
    unsafe { sys::verbs::limits(context) }
}

/// The devices that came with connections and are in use.
fn registry() -> MutexGuard<'static, Vec<Weak<Device>>> {
    static KNOWN: Mutex<Vec<Weak<Device>>> = Mutex::new(Vec::new());
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An identifier of its own, bound to the same device, so that `id` can go when its connection
/// does; `id` itself where that cannot be had.
fn anchor_beside(id: &Arc<CmId>) -> Arc<CmId> {
    let beside = || {
        let mut addr: SocketAddr = id.local_addr()?;
        addr.set_port(0);
        let anchor = CmId::new(&EventChannel::new().ok()?).ok()?;
        anchor.bind(addr).ok()?;
        (anchor.context() == id.context()).then(|| Arc::new(anchor))
    };
    beside().unwrap_or_else(|| Arc::clone(id))
}
