//! The files of a host.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Cores;

/// What a host tells, below some root.
pub(super) struct Host {
    root: PathBuf,
}

/// Where a process may lock any amount of memory.
pub(super) const CAP_IPC_LOCK: u32 = 14;
/// Where a process may use any scheduling.
pub(super) const CAP_SYS_NICE: u32 = 23;

impl Host {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// A file's text, without the white space around it.
    pub(super) fn read(&self, path: &str) -> Option<String> {
        let path = self.root.join(path.trim_start_matches('/'));
        fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
    }

    /// The names in a directory, in order; none when there is no such directory.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        let path = self.root.join(path.trim_start_matches('/'));
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        let mut names: Vec<_> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// A set of cores from a file.
    pub(super) fn cores(&self, path: &str) -> Option<Cores> {
        Cores::parse(&self.read(path)?)
    }

    /// The cores that this process may use.
    pub(super) fn allowed(&self) -> Option<Cores> {
        Cores::parse(&self.status("Cpus_allowed_list")?)
    }

    /// Whether this process has a capability.
    pub(super) fn may(&self, capability: u32) -> bool {
        let held = self.status("CapEff").and_then(|text| u64::from_str_radix(&text, 16).ok());
        held.is_some_and(|held| held >> capability & 1 == 1)
    }

    /// The soft limit of this name; `u64::MAX` when there is none.
    pub(super) fn limit(&self, name: &str) -> Option<u64> {
        let limits = self.read("/proc/self/limits")?;
        let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
        match line.split_whitespace().next()? {
            "unlimited" => Some(u64::MAX),
            number => number.parse().ok(),
        }
    }

    fn status(&self, field: &str) -> Option<String> {
        let status = self.read("/proc/self/status")?;
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.map(|value| value.trim().to_owned())
    }
}
