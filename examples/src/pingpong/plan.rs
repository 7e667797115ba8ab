//! What both ends have to agree on, and how the client tells the server.

use nanoverbs::endpoint::{Idle, Options};

#[cfg(any(feature = "librdmacm", test))]
use super::Args;
use crate::Failure;

/// What is to be played.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Plan {
    /// Bytes in a message.
    pub size: usize,
    /// Round trips that are timed.
    pub iters: u64,
    /// Round trips before.
    pub warmup: u64,
    /// Messages under way at a time.
    pub depth: u32,
}

impl Plan {
    /// Bytes of the longest message.
    pub const MAX_SIZE: usize = 1 << 30;
    /// Bytes of what [`Plan::to_wire`] makes.
    pub const WIRE_LEN: usize = 32;

    const MAGIC: [u8; 8] = *b"nvping01";
    const MAX_MEMORY: usize = 1 << 30;

    /// All round trips.
    pub fn rounds(&self) -> u64 {
        self.warmup + self.iters
    }

    /// Each end needs a block for every receive, and for every message that is on its way or whose
    /// completion is late.
    fn blocks(&self) -> usize {
        3 * self.depth as usize
    }

    pub(super) fn check(&self) -> Result<(), Failure> {
        let memory = self.blocks().saturating_mul(self.size);
        if memory > Self::MAX_MEMORY {
            return Err(Failure::usage(format!(
                "--size {} and --depth {} need {} MiB of memory at each end, and {} is the limit; \
                 make one of them smaller",
                self.size,
                self.depth,
                memory >> 20,
                Self::MAX_MEMORY >> 20
            )));
        }
        Ok(())
    }

    /// The endpoint that either end plays on.
    pub(super) fn options(&self, inline: u32, idle: Idle) -> Options {
        Options::new()
            .depth(2 * self.depth, self.depth)
            .inline(inline)
            .blocks(self.blocks(), self.size)
            .idle(idle)
    }

    /// The form in which it travels with the client's request for a connection: big-endian behind
    /// a magic word.
    pub fn to_wire(&self) -> [u8; Self::WIRE_LEN] {
        let mut wire = [0; Self::WIRE_LEN];
        wire[..8].copy_from_slice(&Self::MAGIC);
        wire[8..12].copy_from_slice(&(self.size as u32).to_be_bytes());
        wire[12..16].copy_from_slice(&self.depth.to_be_bytes());
        wire[16..24].copy_from_slice(&self.iters.to_be_bytes());
        wire[24..].copy_from_slice(&self.warmup.to_be_bytes());
        wire
    }

    /// Reads it; `None` when it comes from another program.
    pub fn from_wire(wire: &[u8]) -> Option<Self> {
        let wire = wire.strip_prefix(&Self::MAGIC)?;
        let short = |at: usize| wire.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
        let long = |at: usize| wire.get(at..at + 8)?.try_into().ok().map(u64::from_be_bytes);
        let plan = Self {
            size: usize::try_from(short(0)?).ok()?,
            depth: short(4)?,
            iters: long(8)?,
            warmup: long(16)?,
        };
        // Numbers of a peer are checked as those of a person are.
        let is_sane = plan.size > 0
            && plan.iters > 0
            && (1..=64).contains(&plan.depth)
            && plan.warmup.checked_add(plan.iters).is_some()
            && plan.check().is_ok();
        is_sane.then_some(plan)
    }

    /// Where the server was told something else than the client.
    #[cfg(any(feature = "librdmacm", test))]
    pub(super) fn contradiction(&self, server: &Args) -> Option<String> {
        let pairs = [
            ("--size", self.size as u64, server.size.map(|size| size as u64)),
            ("--iters", self.iters, server.iters),
            ("--warmup", self.warmup, server.warmup),
            ("--depth", self.depth.into(), server.depth.map(u64::from)),
        ];
        pairs.into_iter().find_map(|(option, client, server)| match server {
            Some(server) if server != client => {
                Some(format!("{option} is {server} at the server and {client} at the client"))
            }
            _ => None,
        })
    }
}

impl Default for Plan {
    fn default() -> Self {
        Self { size: 64, iters: 100_000, warmup: 1000, depth: 1 }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn a_plan_comes_back_from_the_wire() {
        let plan = Plan { size: 65536, iters: 10_000, warmup: 0, depth: 64 / 8 };
        let mut wire = plan.to_wire().to_vec();
        wire.extend([0; 24]);
        assert_eq!(Plan::from_wire(&wire), Some(plan));
    }

    #[test]
    fn what_another_program_sends_is_no_plan() {
        assert_eq!(Plan::from_wire(&[]), None);
        assert_eq!(Plan::from_wire(&[0; 56]), None);
        assert_eq!(Plan::from_wire(&Plan::MAGIC), None);
        for wrong in [
            Plan { size: 0, ..Plan::default() },
            Plan { depth: 65, ..Plan::default() },
            Plan { iters: 0, ..Plan::default() },
            Plan { iters: u64::MAX, ..Plan::default() },
            Plan { size: Plan::MAX_SIZE, ..Plan::default() },
        ] {
            assert_eq!(Plan::from_wire(&wrong.to_wire()), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_server_that_was_told_nothing_agrees_to_everything() {
        let plan = Plan { size: 100, ..Plan::default() };
        let told =
            |line: &[&str]| plan.contradiction(&Args::parse_from([&["pingpong"], line].concat()));
        assert_eq!(told(&[]), None);
        assert_eq!(told(&["-s", "100"]), None);
        assert_eq!(
            told(&["-s", "64"]).unwrap(),
            "--size is 64 at the server and 100 at the client"
        );
    }
}
