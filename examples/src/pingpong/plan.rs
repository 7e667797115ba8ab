//! What both ends have to agree on, and how the client tells the server.

use std::fmt;

use nanoverbs::endpoint::{Idle, Options};

#[cfg(any(feature = "librdmacm", test))]
use super::Args;
use crate::Failure;

/// How messages go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Game {
    /// SENDs, there and back.
    Send,
    /// WRITEs into the other's memory, there and back. Each brings an immediate, whose completion says
    /// that it has arrived.
    Write,
    /// The same without immediates: who waits looks at its memory. Right only on a device that shows
    /// the bytes of a message in their order.
    WriteInOrder,
    /// READs of the server's memory, whose program does not notice.
    Read,
    /// SENDs one way, as many as go.
    Rate,
}

impl Game {
    const ALL: [Self; 5] = [Self::Send, Self::Write, Self::WriteInOrder, Self::Read, Self::Rate];

    /// Whether messages land in memory that the other end was told of.
    pub(super) const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::WriteInOrder)
    }

    /// What a round is called, one of them.
    pub(super) const fn round(self) -> &'static str {
        if matches!(self, Self::Rate) { "message" } else { "round trip" }
    }

    /// Messages of a round, for who counts them.
    pub(super) const fn messages(self) -> u64 {
        if matches!(self, Self::Read | Self::Rate) { 1 } else { 2 }
    }
}

/// As in "its client plays …".
impl fmt::Display for Game {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Send => "SENDs there and back",
            Self::Write => "WRITEs there and back",
            Self::WriteInOrder => "WRITEs in order there and back",
            Self::Read => "READs",
            Self::Rate => "SENDs one way",
        })
    }
}

/// What is to be played.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Plan {
    /// How messages go.
    pub game: Game,
    /// Bytes in a message.
    pub size: usize,
    /// Rounds that are timed: round trips, or messages of a game that goes one way.
    pub iters: u64,
    /// Rounds before.
    pub warmup: u64,
    /// Messages under way at a time.
    pub depth: u32,
}

impl Plan {
    /// Bytes of the longest message.
    pub const MAX_SIZE: usize = 1 << 30;
    /// Messages under way at a time, at most.
    pub const MAX_DEPTH: u32 = 64;
    /// Bytes of what [`Plan::to_wire`] makes.
    pub const WIRE_LEN: usize = 32;

    const MAGIC: [u8; 8] = *b"nvping02";
    const MAX_MEMORY: usize = 1 << 30;

    /// All rounds.
    pub fn rounds(&self) -> u64 {
        self.warmup + self.iters
    }

    /// Each end needs a block for every receive, and for every message that is on its way or whose
    /// completion is late.
    fn blocks(&self) -> usize {
        self.receives() + 2 * self.depth as usize
    }

    /// Receives that an end has posted when the game begins: twice as many as messages are under way, so that
    /// an answer goes out first, and the receive that a message has ended is posted again after that.
    pub(super) fn receives(&self) -> usize {
        match self.game {
            // The one for a READing client's farewell.
            Game::Read => 1,
            Game::WriteInOrder => 0,
            Game::Send | Game::Write | Game::Rate => 2 * self.depth as usize,
        }
    }

    /// Places in an end's memory for messages that the other one writes or reads. Twice as many as are
    /// under way: what has arrived is looked at while the next one comes.
    pub(super) fn places(&self) -> usize {
        match self.game {
            game if game.writes() => 2 * self.depth as usize,
            Game::Read => 1,
            _ => 0,
        }
    }

    /// Bytes from one place to the next: the message at the end of whole words.
    pub(super) fn stride(&self) -> usize {
        self.size.next_multiple_of(8)
    }

    /// Requests of a chain, in a game that goes one way.
    pub(super) fn chain(&self) -> usize {
        // As long as a queue of this depth lets it be.
        (self.depth as usize / 4 + 1).min(Self::MAX_CHAIN)
    }

    /// Requests of a chain, at most.
    pub(super) const MAX_CHAIN: usize = 16;

    pub(super) fn check(&self) -> Result<(), Failure> {
        let memory = (self.blocks() + self.places()).saturating_mul(self.stride());
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
        let sends = if self.game == Game::Rate { self.depth } else { 2 * self.depth };
        Options::new()
            .depth(sends, 2 * self.depth)
            .inline(inline)
            .blocks(self.blocks(), self.size)
            .idle(idle)
    }

    /// The form in which it travels with the client's request for a connection: big-endian behind
    /// a magic word.
    pub fn to_wire(&self) -> [u8; Self::WIRE_LEN] {
        let game = Game::ALL.iter().position(|game| *game == self.game).unwrap_or(0);
        let mut wire = [0; Self::WIRE_LEN];
        wire[..8].copy_from_slice(&Self::MAGIC);
        wire[8..12].copy_from_slice(&(self.size as u32).to_be_bytes());
        wire[12..14].copy_from_slice(&(game as u16).to_be_bytes());
        wire[14..16].copy_from_slice(&(self.depth as u16).to_be_bytes());
        wire[16..24].copy_from_slice(&self.iters.to_be_bytes());
        wire[24..].copy_from_slice(&self.warmup.to_be_bytes());
        wire
    }

    /// Reads it; `None` when it comes from another program.
    pub fn from_wire(wire: &[u8]) -> Option<Self> {
        let wire = wire.strip_prefix(&Self::MAGIC)?;
        let short = |at: usize| wire.get(at..at + 2)?.try_into().ok().map(u16::from_be_bytes);
        let word = |at: usize| wire.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
        let long = |at: usize| wire.get(at..at + 8)?.try_into().ok().map(u64::from_be_bytes);
        let plan = Self {
            size: usize::try_from(word(0)?).ok()?,
            game: *Game::ALL.get(usize::from(short(4)?))?,
            depth: short(6)?.into(),
            iters: long(8)?,
            warmup: long(16)?,
        };
        // Numbers of a peer are checked as those of a person are.
        let is_sane = plan.size > 0
            && plan.iters > 0
            && (1..=Self::MAX_DEPTH).contains(&plan.depth)
            && plan.warmup.checked_add(plan.iters).is_some()
            && plan.check().is_ok();
        is_sane.then_some(plan)
    }

    /// Where the server was told something else than the client.
    #[cfg(any(feature = "librdmacm", test))]
    pub(super) fn contradiction(&self, server: &Args) -> Option<String> {
        if let Some(game) = server.told_game()
            && game != self.game
        {
            return Some(format!(
                "the server was told to play {game} and the client {}",
                self.game
            ));
        }
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
        Self { game: Game::Send, size: 64, iters: 100_000, warmup: 1000, depth: 1 }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn a_plan_comes_back_from_the_wire() {
        for game in Game::ALL {
            let plan = Plan { game, size: 65536, iters: 10_000, warmup: 0, depth: 64 / 8 };
            let mut wire = plan.to_wire().to_vec();
            wire.extend([0; 24]);
            assert_eq!(Plan::from_wire(&wire), Some(plan));
        }
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
        let mut unknown_game = Plan::default().to_wire();
        unknown_game[13] = Game::ALL.len() as u8;
        assert_eq!(Plan::from_wire(&unknown_game), None);
    }

    #[test]
    fn a_server_that_was_told_nothing_agrees_to_everything() {
        let plan = Plan { size: 100, ..Plan::default() };
        let told =
            |line: &[&str]| plan.contradiction(&Args::parse_from([&["pingpong"], line].concat()));
        assert_eq!(told(&[]), None);
        assert_eq!(told(&["-s", "100", "--verb", "send"]), None);
        assert_eq!(
            told(&["-s", "64"]).unwrap(),
            "--size is 64 at the server and 100 at the client"
        );
        assert_eq!(
            told(&["--rate"]).unwrap(),
            "the server was told to play SENDs one way and the client SENDs there and back"
        );
    }

    #[test]
    fn every_depth_has_room_for_its_chains() {
        for depth in 1..=Plan::MAX_DEPTH {
            let plan = Plan { depth, ..Plan::default() };
            assert!((1..=depth as usize).contains(&plan.chain()), "{depth}");
        }
    }
}
