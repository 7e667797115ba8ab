//! What a host lacks that a latency-critical program would want.
//!
//! [`doctor`] looks at this host, [`Doctor`] also at chosen cores and at one device. It only reads files
//! under `/proc` and `/sys`, changes nothing, and may be called from any thread. Other threads,
//! interrupts, the power management and the memory management of the kernel are what moves the
//! tail of a latency; each [`Finding`] says what was read, why it matters and what helps.
//!
//! ```
//! for finding in nanoverbs::doctor::doctor() {
//!     println!("{finding}");
//! }
//! ```

mod checks;
mod host;

use std::fmt;
use std::path::PathBuf;

use crate::Cores;
use host::Host;

/// Looks at this host as a whole.
pub fn doctor() -> Vec<Finding> {
    Doctor::new().examine()
}

/// An examination, before it begins.
///
/// ```
/// use nanoverbs::Cores;
/// use nanoverbs::doctor::{Doctor, Verdict};
///
/// let findings = Doctor::new().cores(Cores::from_iter([0])).examine();
/// let wanting = findings.iter().filter(|finding| finding.verdict == Verdict::Wanting).count();
/// # let _ = wanting;
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is examined yet"]
pub struct Doctor {
    root: PathBuf,
    cores: Option<Cores>,
    device: Option<String>,
}

impl Doctor {
    /// Of this host, with all cores that this process may use, and all its RDMA devices.
    pub fn new() -> Self {
        Self { root: PathBuf::from("/"), cores: None, device: None }
    }

    /// Of these cores: each of them should have what a poller wants. Without this it is enough that one
    /// core is isolated, without a tick, without a sibling, or near to the device.
    pub fn cores(mut self, cores: Cores) -> Self {
        self.cores = Some(cores);
        self
    }

    /// Of this RDMA device alone.
    pub fn device(mut self, name: impl Into<String>) -> Self {
        self.device = Some(name.into());
        self
    }

    /// Reads `proc` and `sys` below this directory: a copy from another host, or a made-up one.
    pub fn root(mut self, root: impl Into<PathBuf>) -> Self {
        self.root = root.into();
        self
    }

    /// Looks. One finding for each [`Check`], in their order; on the device, one for each device.
    pub fn examine(&self) -> Vec<Finding> {
        let host = Host::new(&self.root);
        checks::all(&host, self.cores.as_ref(), self.device.as_deref())
    }
}

impl Default for Doctor {
    fn default() -> Self {
        Self::new()
    }
}

/// What was looked at, and what there is to say about it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// What was looked at.
    pub check: Check,
    /// Whether it is as it should be.
    pub verdict: Verdict,
    /// What was read, and where.
    pub read: String,
    /// Why it matters.
    pub why: &'static str,
    /// What helps.
    pub advice: &'static str,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<8}{:<16}{}", self.verdict, self.check, self.read)?;
        if self.verdict == Verdict::Wanting {
            write!(f, "\n{:24}why: {}\n{:24}do:  {}", "", self.why, "", self.advice)?;
        }
        Ok(())
    }
}

/// Whether something is as it should be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// It is.
    Fine,
    /// It is not.
    Wanting,
    /// This host does not say.
    Unknown,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Fine => "fine",
            Self::Wanting => "wanting",
            Self::Unknown => "unknown",
        })
    }
}

/// What is looked at.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Check {
    /// The cores that this process may use.
    Cores,
    /// Whether the scheduler leaves a core alone (`isolcpus`).
    Isolation,
    /// Whether the timer interrupt leaves a core alone (`nohz_full`).
    Tick,
    /// Whether a core keeps its frequency.
    Governor,
    /// How deep an idle core sleeps.
    IdleStates,
    /// Whether a core shares its execution units with another.
    Siblings,
    /// Whether reading the time is a system call.
    Clock,
    /// Whether a core is near to the RDMA device.
    DeviceNode,
    /// Whether the kernel moves pages between memory nodes.
    NumaBalancing,
    /// Whether the kernel makes huge pages of small ones behind one's back.
    HugePages,
    /// How much memory this process may lock, and register.
    LockedMemory,
    /// Whether this process may use `SCHED_FIFO`.
    RealTime,
    /// Whether real-time threads are made to pause.
    Throttling,
}

impl Check {
    /// Its name, for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cores => "cores",
            Self::Isolation => "isolation",
            Self::Tick => "tick",
            Self::Governor => "governor",
            Self::IdleStates => "idle-states",
            Self::Siblings => "siblings",
            Self::Clock => "clock",
            Self::DeviceNode => "device-node",
            Self::NumaBalancing => "numa-balancing",
            Self::HugePages => "huge-pages",
            Self::LockedMemory => "locked-memory",
            Self::RealTime => "real-time",
            Self::Throttling => "throttling",
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests;
