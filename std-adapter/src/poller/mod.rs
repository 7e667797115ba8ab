//! A thread that does nothing but poll: pinned to a core, or not, and always stoppable.
//!
//! [`Poller::builder`] says how it shall be; what the system does not grant is an error before it
//! starts, never something less. [`Work`] says what it does: a closure, an endpoint with a handler
//! ([`Drive`]), a hub with a host ([`Serve`]), or a type of one's own. [`Poller::join`] gives the work back, with a [`Report`].
//!
//! The poller's thread calls the work, and nobody else does. Its handles ([`StopHandle`], [`Waker`],
//! [`Gauge`]) are for any thread. While there is work, a turn of the loop itself makes no system call,
//! allocates nothing and takes no lock.
//!
//! Invariants: a poller that was asked to stop ends, whether it spins, yields or sleeps, if its work's turns end.
//! No wake-up is lost: it sleeps only after it armed and looked once more. The work comes back, or is
//! dropped by the thread, once.
//!
//! # A strategy and a poller
//!
//! The thread that decides and the thread that polls hand over through rings, a batch at a time. The
//! one that decides stops first and says so by stopping the poller; that one goes on until the ring is empty:
//!
//! ```
//! use std::thread;
//! use std::time::Duration;
//! use nanoverbs::poller::{End, IdlePolicy, Poller, Turn, Woken};
//! use nanoverbs_core::Ring;
//!
//! let mut orders = Ring::<u64, 64>::new();
//! let (mut producer, mut consumer) = orders.split();
//!
//! let report = thread::scope(|scope| {
//!     let mut sum = 0;
//!     let work = Woken(move |batch: usize| {
//!         let taken = consumer.drain(batch).inspect(|order| sum += order).count();
//!         if taken > 0 { Turn::Busy(taken) } else { Turn::Idle }
//!     });
//!     let idle = IdlePolicy::SpinThenSleep { spins: 100, longest: Duration::from_secs(1) };
//!     let poller = Poller::builder().name("poll").idle(idle).spawn_scoped(scope, work).map_err(|error| error.cause)?;
//!
//!     // The strategy: four orders are published by one store, and one swap says so.
//!     let waker = poller.waker();
//!     for batch in 0..100_u64 {
//!         let mut grant = loop {
//!             match producer.reserve(4) {
//!                 Some(grant) => break grant,
//!                 None => thread::yield_now(),
//!             }
//!         };
//!         for order in 0..4 {
//!             grant.write(4 * batch + order)?;
//!         }
//!         grant.commit();
//!         waker.wake();
//!     }
//!     poller.stop();
//!     Ok::<_, Box<dyn std::error::Error>>(poller.join())
//! })?;
//! assert!(matches!(report.end, End::Stopped { drained: true }));
//! assert_eq!(report.stats.completions, 400);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod builder;
mod drive;
mod error;
mod remote;
mod run;
mod serve;
mod sources;
mod work;

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

pub use builder::{Builder, Scheduling};
pub use drive::{Drive, Handler};
pub use error::{Refused, SpawnError};
pub use remote::{Gauge, Stats, StopHandle, Waker};
pub use run::{End, Report};
pub use serve::{Host, Serve};
pub use work::{IdlePolicy, Sources, Turn, Woken, Work};

use crate::{CallError, Cores, Deadline, sys};
use remote::Shared;

/// The cores that the calling thread may run on; a poller that it spawns may have one of these.
///
/// # Errors
///
/// What the kernel says.
pub fn allowed_cores() -> Result<Cores, CallError> {
    sys::thread::allowed_cores()
}

/// Lets the calling thread run on `core` alone. The pollers that it spawns afterwards may have no other: spawn them
/// first.
///
/// # Errors
///
/// [`Refused::Core`] when it is not one of the [`allowed_cores`].
pub fn pin_this_thread(core: usize) -> Result<(), Refused> {
    let allowed = sys::thread::allowed_cores().map_err(Refused::Call)?;
    if !allowed.contains(core) {
        return Err(Refused::Core { asked: core, allowed });
    }
    sys::thread::pin(core).map_err(Refused::Call)
}

/// A polling thread. Dropped, it is stopped and waited for, but not for long: when its work is stuck in a turn it is
/// left to itself after the time to drain and a second more.
pub struct Poller<W> {
    shared: Arc<Shared>,
    reports: Receiver<Report<W>>,
    /// None in a scope, which joins it.
    thread: Option<JoinHandle<()>>,
    name: String,
    id: i32,
    drain: Duration,
}

impl Poller<()> {
    /// How a new poller shall be.
    pub fn builder() -> Builder {
        Builder::new()
    }
}

impl<W> Poller<W> {
    fn new(
        shared: Arc<Shared>,
        reports: Receiver<Report<W>>,
        thread: Option<JoinHandle<()>>,
        name: String,
        id: i32,
        drain: Duration,
    ) -> Self {
        Self { shared, reports, thread, name, id, drain }
    }

    /// Asks it to end, as [`StopHandle::stop`] does.
    pub fn stop(&self) {
        self.shared.stop.request();
        self.shared.wake();
    }

    /// A handle to end it with.
    pub fn stop_handle(&self) -> StopHandle {
        StopHandle(Arc::clone(&self.shared))
    }

    /// A handle to wake it with.
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.shared))
    }

    /// A handle to read its counters with.
    pub fn gauge(&self) -> Gauge {
        Gauge(Arc::clone(&self.shared))
    }

    /// What it has done so far.
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// The kernel's number of its thread, for `chrt`, `taskset` and `perf`.
    pub const fn thread_id(&self) -> i32 {
        self.id
    }

    /// Waits until it has ended, of itself or because it was stopped. It does not stop it.
    pub fn join(mut self) -> Report<W> {
        match self.reports.recv() {
            Ok(report) => {
                self.join_thread();
                report
            }
            Err(_) => self.died(),
        }
    }

    /// Waits until it has ended, or the deadline has passed.
    ///
    /// # Errors
    ///
    /// The poller itself, when it still runs.
    pub fn join_until(mut self, deadline: impl Into<Deadline>) -> Result<Report<W>, Self> {
        let received = match deadline.into().remaining() {
            Some(left) => self.reports.recv_timeout(left),
            None => self.reports.recv().map_err(RecvTimeoutError::from),
        };
        match received {
            Ok(report) => {
                self.join_thread();
                Ok(report)
            }
            Err(RecvTimeoutError::Timeout) => Err(self),
            Err(RecvTimeoutError::Disconnected) => self.died(),
        }
    }

    fn join_thread(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    /// The thread sends a report whatever its work does, so this is not reached; a panic of its own would go
    /// on here.
    fn died(&mut self) -> ! {
        match self.thread.take().map(JoinHandle::join) {
            Some(Err(payload)) => std::panic::resume_unwind(payload),
            _ => unreachable!("a poller ends with a report"),
        }
    }
}

impl<W> Drop for Poller<W> {
    fn drop(&mut self) {
        self.stop();
        let patience = self.drain.saturating_add(Duration::from_secs(1));
        // The work is dropped here, or, when it comes too late, by its thread.
        match self.reports.recv_timeout(patience) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(_) | Err(RecvTimeoutError::Disconnected) => self.join_thread(),
        }
    }
}

impl<W> fmt::Debug for Poller<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller")
            .field("name", &self.name)
            .field("thread_id", &self.id)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
