//! How a poller shall be, before it is.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, Scope};
use std::time::Duration;

use super::remote::Shared;
use super::run::{Plan, run};
use super::{IdlePolicy, Poller, Refused, Report, SpawnError, Work};
use crate::sys;

/// How the system schedules a poller.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Scheduling {
    /// As any other thread, also when it is started from a real-time one.
    Normal,
    /// `SCHED_FIFO`: nothing but the kernel and higher priorities interrupts it. On a core of its own, or the
    /// core is lost for everybody else: a poller that spins never gives it up.
    Fifo {
        /// 1 to 99, higher comes first. Below 50 the interrupt threads of a real-time kernel go first.
        priority: i32,
    },
}

/// How a poller shall be. What cannot be had is refused when it is spawned.
///
/// ```
/// use nanoverbs::poller::{IdlePolicy, Poller, Scheduling};
/// use std::time::Duration;
///
/// let builder = Poller::builder()
///     .name("feed")
///     .core(3)
///     .scheduling(Scheduling::Fifo { priority: 40 })
///     .idle(IdlePolicy::SpinThenSleep { spins: 10_000, longest: Duration::from_secs(1) })
///     .batch(32)
///     .lock_memory()
///     .prefault_stack(256 << 10);
/// # let _ = builder;
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until a poller is spawned"]
pub struct Builder {
    name: String,
    core: Option<usize>,
    scheduling: Scheduling,
    idle: IdlePolicy,
    batch: usize,
    lock_memory: bool,
    stack: usize,
    drain: Duration,
}

impl Builder {
    /// The largest batch.
    pub const MAX_BATCH: usize = 1 << 16;
    /// The most of a stack that can be prefaulted, in bytes.
    pub const MAX_STACK: usize = 64 << 20;

    /// Named `poller`, on any core, scheduled normally, spins 1,000 empty turns and yields then, batches of 16,
    /// nothing locked or prefaulted, and a second to drain when it is stopped.
    pub fn new() -> Self {
        Self {
            name: "poller".to_owned(),
            core: None,
            scheduling: Scheduling::Normal,
            idle: IdlePolicy::SpinThenYield { spins: 1000 },
            batch: 16,
            lock_memory: false,
            stack: 0,
            drain: Duration::from_secs(1),
        }
    }

    /// What tools show the thread as, 1 to 15 bytes.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Runs on this core alone: one of those that the spawning thread may run on
    /// ([`allowed_cores`](super::allowed_cores)).
    pub const fn core(mut self, core: usize) -> Self {
        self.core = Some(core);
        self
    }

    /// How the system schedules it.
    pub const fn scheduling(mut self, scheduling: Scheduling) -> Self {
        self.scheduling = scheduling;
        self
    }

    /// How it passes the time when there is nothing to do.
    pub const fn idle(mut self, idle: IdlePolicy) -> Self {
        self.idle = idle;
        self
    }

    /// How much a turn deals with at most, 1 to [`Builder::MAX_BATCH`]. A small one keeps turns short, a large one
    /// saves work.
    pub const fn batch(mut self, most: usize) -> Self {
        self.batch = most;
        self
    }

    /// Locks the memory of the whole process, what it has and what it will have (`mlockall(2)`), so that no page is
    /// ever fetched from a disk. It stays locked when the poller ends. From then on memory beyond the limit of
    /// locked memory cannot be allocated.
    pub const fn lock_memory(mut self) -> Self {
        self.lock_memory = true;
        self
    }

    /// Touches so many bytes of the thread's stack before it starts, so that no turn is the first to. The stack is
    /// made large enough.
    pub const fn prefault_stack(mut self, bytes: usize) -> Self {
        self.stack = bytes;
        self
    }

    /// How long a poller that was asked to stop may go on, to deal with what was handed over before and to wait for
    /// what is [`Turn::Pending`](super::Turn::Pending).
    pub const fn drain(mut self, longest: Duration) -> Self {
        self.drain = longest;
        self
    }

    /// Starts the thread. It begins to work when everything that was asked for is in force.
    ///
    /// Signals are kept away from the thread, but for those of its own faults: a handler runs on another one.
    ///
    /// # Errors
    ///
    /// [`SpawnError`] with the work, and what cannot be had.
    pub fn spawn<W: Work + Send + 'static>(self, work: W) -> Result<Poller<W>, SpawnError<W>> {
        self.start(work, |builder, body| builder.spawn(body).map(Some))
    }

    /// The same for work that borrows, such as the ends of a ring: the thread ends in `scope`.
    ///
    /// The scope waits for it without a bound, so stop the poller before: dropping its handle does.
    ///
    /// # Errors
    ///
    /// [`SpawnError`] with the work, and what cannot be had.
    pub fn spawn_scoped<'scope, W: Work + Send + 'scope>(
        self,
        scope: &'scope Scope<'scope, '_>,
        work: W,
    ) -> Result<Poller<W>, SpawnError<W>> {
        self.start(work, |builder, body| builder.spawn_scoped(scope, body).map(|_| None))
    }

    fn start<'t, W: Work + Send + 't>(
        self,
        work: W,
        spawn: impl FnOnce(
            thread::Builder,
            Box<dyn FnOnce() + Send + 't>,
        ) -> std::io::Result<Option<thread::JoinHandle<()>>>,
    ) -> Result<Poller<W>, SpawnError<W>> {
        match self.try_start(work.can_sleep(), spawn) {
            Ok(started) => Ok(started.with(work)),
            Err(cause) => Err(SpawnError { work, cause }),
        }
    }

    /// Everything but the work, which is sent when nothing can be refused any more.
    fn try_start<'t, W: Work + Send + 't>(
        self,
        can_sleep: bool,
        spawn: impl FnOnce(
            thread::Builder,
            Box<dyn FnOnce() + Send + 't>,
        ) -> std::io::Result<Option<thread::JoinHandle<()>>>,
    ) -> Result<Started<W>, Refused> {
        self.check(can_sleep)?;
        let shared = Arc::new(Shared::new(self.idle.sleeps()).map_err(Refused::Call)?);
        let plan = Plan { idle: self.idle, batch: self.batch, drain: self.drain };
        let (verdict, verdicts) = sync_channel(1);
        let (work, works): (SyncSender<W>, Receiver<W>) = sync_channel(1);
        let (report, reports): (SyncSender<Report<W>>, _) = sync_channel(1);
        let mut builder = thread::Builder::new().name(self.name.clone());
        if self.stack > 0 {
            // Frames without optimisation take up to twice as much.
            builder = builder.stack_size(self.stack * 2 + DEFAULT_STACK);
        }
        let (name, drain, seen) = (self.name.clone(), self.drain, Arc::clone(&shared));
        let body = move || {
            let ready = self.prepare();
            let is_ready = ready.is_ok();
            if verdict.send(ready).is_err() || !is_ready {
                return;
            }
            let Ok(work) = works.recv() else { return };
            // When nobody waits for the report, the work is dropped here.
            let _ = report.send(run(work, &seen, plan));
        };
        let thread = spawn(builder, Box::new(body)).map_err(Refused::Thread)?;
        match verdicts.recv() {
            Ok(Ok(id)) => {
                Ok(Started { work, poller: Poller::new(shared, reports, thread, name, id, drain) })
            }
            Ok(Err(refused)) => {
                if let Some(thread) = thread {
                    let _ = thread.join();
                }
                Err(refused)
            }
            Err(_) => Err(Refused::Thread(std::io::Error::other("the thread ended early"))),
        }
    }

    /// What can be said without a thread.
    fn check(&self, can_sleep: bool) -> Result<(), Refused> {
        let name = self.name.as_bytes();
        if name.is_empty() || name.len() > 15 || name.contains(&0) {
            return Err(Refused::Name { asked: self.name.clone() });
        }
        if self.batch == 0 || self.batch > Self::MAX_BATCH {
            return Err(Refused::Batch { asked: self.batch, max: Self::MAX_BATCH });
        }
        if self.stack > Self::MAX_STACK {
            return Err(Refused::Stack { asked: self.stack, max: Self::MAX_STACK });
        }
        if self.idle.sleeps() && !can_sleep {
            return Err(Refused::CannotSleep);
        }
        if let Some(asked) = self.core {
            let allowed = sys::thread::allowed_cores().map_err(Refused::Call)?;
            if !allowed.contains(asked) {
                return Err(Refused::Core { asked, allowed });
            }
        }
        if let Scheduling::Fifo { priority: asked } = self.scheduling {
            let (min, max) = sys::thread::fifo_priorities();
            if asked < min || asked > max {
                return Err(Refused::Priority { asked, min, max });
            }
        }
        Ok(())
    }

    /// Makes the calling thread what was asked for, and says its number. Locking comes last, because
    /// it outlives the thread.
    fn prepare(&self) -> Result<i32, Refused> {
        sys::thread::block_signals().map_err(Refused::Call)?;
        if let Some(asked) = self.core {
            sys::thread::pin(asked).map_err(|error| {
                match sys::thread::allowed_cores() {
                    // The set has changed since it was looked at.
                    Ok(allowed) if error.errno() == libc::EINVAL => {
                        Refused::Core { asked, allowed }
                    }
                    _ => Refused::Call(error),
                }
            })?;
        }
        match self.scheduling {
            Scheduling::Normal => sys::thread::normal_scheduling().map_err(Refused::Call)?,
            Scheduling::Fifo { priority } => sys::thread::fifo(priority).map_err(|error| {
                Refused::Fifo { priority, limit: sys::thread::fifo_limit(), error }
            })?,
        }
        if self.lock_memory {
            sys::thread::lock_all_memory().map_err(|error| Refused::LockMemory {
                limit: sys::thread::locked_memory_limit(),
                error,
            })?;
        }
        touch_stack(self.stack);
        Ok(sys::thread::thread_id())
    }
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

/// A thread that waits for its work.
struct Started<W> {
    work: SyncSender<W>,
    poller: Poller<W>,
}

impl<W> Started<W> {
    fn with(self, work: W) -> Poller<W> {
        // The thread waits for it; there is room, so this does not.
        let _ = self.work.send(work);
        self.poller
    }
}

/// Writes to each page of so many bytes below.
#[inline(never)]
fn touch_stack(bytes: usize) {
    const PIECE: usize = 2048;
    if bytes == 0 {
        return;
    }
    let mut piece = [0_u8; PIECE];
    std::hint::black_box(&mut piece);
    touch_stack(bytes.saturating_sub(PIECE));
    // After the call, so that it is no tail call.
    std::hint::black_box(&mut piece);
}

/// What the standard library gives a thread.
const DEFAULT_STACK: usize = 2 << 20;
