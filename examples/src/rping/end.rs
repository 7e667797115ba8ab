//! What both ends do: say 16 bytes, hear 16 bytes, and wait for what they have posted.

use std::time::Duration;

use nanoverbs::endpoint::{Driver, Endpoint, PostError, Prepared, WaitError};
use nanoverbs::nanoverbs_core::{Block, Ended, Outcome, Part};

use super::{Args, wire};
use crate::Failure;

/// Why an end stops.
pub(super) enum Stop {
    /// The other end has left.
    Left,
    /// Something is wrong.
    Wrong(Failure),
}

impl Stop {
    /// What is said of it when it comes in the middle of a ping.
    pub(super) fn in_ping(self, who: &str, round: u64) -> Failure {
        match self {
            Self::Left => {
                Failure::peer_gone(format!("the {who} has left, or is gone, in ping {round}"))
            }
            Self::Wrong(failure) => failure,
        }
    }
}

impl<F: Into<Failure>> From<F> for Stop {
    fn from(failure: F) -> Self {
        Self::Wrong(failure.into())
    }
}

/// One end of a connection. The context of a request is the buffer that it uses.
pub(super) struct End<D: Driver> {
    pub(super) endpoint: Endpoint<D, Part>,
    patience: Duration,
}

impl<D: Driver> End<D> {
    /// Connects, with two receives posted: the other end has one thing to say at a time.
    pub(super) fn new(mut prepared: Prepared<D, Part>, args: &Args) -> Result<Self, Failure> {
        let mut message = || part(prepared.block(), wire::LEN);
        let receives = [message()?, message()?];
        let patience = args.patience();
        let endpoint = prepared.receives_into(receives)?.establish(patience)?;
        Ok(Self { endpoint, patience })
    }

    /// A buffer of so many bytes.
    pub(super) fn buffer(&mut self, len: usize) -> Result<Part, Failure> {
        part(self.endpoint.block(), len)
    }

    /// Sends a message and waits until it has arrived.
    pub(super) fn say(&mut self, message: [u8; wire::LEN]) -> Result<(), Stop> {
        let mut buffer = self.buffer(message.len())?;
        buffer.copy_from_slice(&message);
        self.endpoint.post_send(buffer).map_err(refused)?;
        self.sent().map(drop)
    }

    /// The next message of the other end. Its receive is posted again before anything is said, so the
    /// next one finds a buffer.
    pub(super) fn hear(&mut self) -> Result<[u8; wire::LEN], Stop> {
        let ended = self.endpoint.recv_completion(self.patience);
        let (buffer, len) = done(ended, "nothing was said")?;
        let heard = buffer.first_chunk().copied();
        self.endpoint.post_recv(buffer).map_err(refused)?;
        match heard {
            Some(heard) if len == Some(wire::LEN as u32) => Ok(heard),
            _ => Err(Stop::Wrong(Failure::new(format!(
                "a message of {} bytes came, and rping's have {}",
                len.unwrap_or(0),
                wire::LEN
            )))),
        }
    }

    /// Waits for the request that was posted.
    pub(super) fn sent(&mut self) -> Result<Part, Stop> {
        let ended = self.endpoint.send_completion(self.patience);
        done(ended, "a request was not answered").map(|(buffer, _)| buffer)
    }
}

fn part(block: Option<Block>, len: usize) -> Result<Part, Failure> {
    block
        .and_then(|block| Part::new(block, len).ok())
        .ok_or_else(|| Failure::new("the endpoint has no block left"))
}

pub(super) fn refused(error: PostError<Part>) -> Failure {
    Failure::new(error.to_string())
}

fn done(ended: Result<Ended<Part>, WaitError>, silence: &str) -> Result<(Part, Option<u32>), Stop> {
    match ended {
        Ok(Ended { outcome: Outcome::Done(success), context }) => Ok((context, success.byte_len())),
        Ok(Ended { outcome: Outcome::Failed(failure), .. }) => {
            Err(Stop::Wrong(Failure::new(failure.to_string())))
        }
        Ok(Ended { outcome: Outcome::Flushed | Outcome::Abandoned, .. })
        | Err(WaitError::Disconnected) => Err(Stop::Left),
        Err(WaitError::TimedOut { .. }) => {
            Err(Stop::Wrong(Failure::peer_gone(format!("{silence} within --timeout"))))
        }
        Err(error) => Err(Stop::Wrong(Failure::new(error.to_string()))),
    }
}
