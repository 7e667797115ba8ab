//! What a client and the target say to each other.

use nanoverbs::nanoverbs_core::{Block, RemoteRegion};

use crate::Failure;

/// What a client wants.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Wish {
    /// A block into its memory.
    Load,
    /// Its memory into a block.
    Store,
}

/// A client's request: an operation, the number of one of its blocks, and where in the client's memory.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) wish: Wish,
    pub(super) number: u32,
    pub(super) memory: RemoteRegion,
}

/// Bytes of a request.
const ASK: usize = 5 + RemoteRegion::WIRE_LEN;
/// Bytes of an answer: the number of the block.
const ANSWER: usize = 4;

impl Ask {
    /// Writes it into a block, which is as long as it then.
    pub(super) fn write(&self, block: &mut Block) -> Result<(), Failure> {
        block.set_len(ASK)?;
        block[0] = u8::from(self.wish == Wish::Store);
        block[1..5].copy_from_slice(&self.number.to_be_bytes());
        block[5..].copy_from_slice(&self.memory.to_wire());
        Ok(())
    }

    /// Reads one that came; `None` when it is none. Nothing that a client says is believed before it is checked.
    pub(super) fn read(message: &[u8]) -> Option<Self> {
        let message: &[u8; ASK] = message.try_into().ok()?;
        let wish = match message[0] {
            0 => Wish::Load,
            1 => Wish::Store,
            _ => return None,
        };
        let number = u32::from_be_bytes(*message[1..].first_chunk()?);
        let memory = RemoteRegion::from_wire(message[5..].first_chunk()?).ok()?;
        Some(Self { wish, number, memory })
    }
}

/// Writes the answer for a block with this number.
pub(super) fn answer(block: &mut Block, number: u32) -> Result<(), Failure> {
    block.set_len(ANSWER)?;
    block.copy_from_slice(&number.to_be_bytes());
    Ok(())
}

/// The number in an answer.
pub(super) fn answered(message: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(*message.first_chunk()?))
}
