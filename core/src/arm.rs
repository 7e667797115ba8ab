//! Arming a completion queue, so that a thread may sleep until something comes.
//!
//! The polling thread calls, when it is about to wait for an event. A completion that came between
//! the last poll and the arming raises no event, so who arms must look once more before it waits.
//! [`Completions::arm`] does both, in this order, and only [`Armed::Quiet`] is the permission to
//! wait. A thread that waits for several queues arms each of them, and waits when all are quiet.

use core::fmt;

use crate::completion::{Completions, PollError};
use crate::port::ArmPort;

/// Whether the thread may wait for an event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use = "to wait without having looked is to miss a completion"]
pub enum Armed {
    /// There are completions: poll, do not wait. An event may come all the same.
    Ready,
    /// There is none, and the next one brings an event.
    Quiet,
}

impl<P: ArmPort, const BATCH: usize> Completions<P, BATCH> {
    /// Asks for an event with the next completion, and looks once more. With `solicited_only`,
    /// completions of this side's own good requests bring none, nor do receives that the peer did
    /// not flag.
    ///
    /// ```
    /// # use nanoverbs_core::{Armed, Completions, abi::Wc, port::{ArmPort, PollPort}};
    /// # struct Port(bool);
    /// # unsafe impl PollPort for Port { fn poll(&mut self, _: &mut [Wc]) -> i32 { 0 } }
    /// # impl ArmPort for Port { fn arm(&mut self, _: bool) -> i32 { self.0 = true; 0 } }
    /// # let mut completions: Completions<_> = Completions::new(Port(false), 64);
    /// for completion in completions.poll()? {
    ///     // retire it
    /// }
    /// match completions.arm(false)? {
    ///     Armed::Ready => {} // poll again
    ///     Armed::Quiet => {} // wait for the event, then poll
    /// }
    /// # assert!(completions.port().0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ArmError`] when the device refuses.
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn arm(&mut self, solicited_only: bool) -> Result<Armed, ArmError> {
        if self.poll().map_err(ArmError::Poll)?.len() > 0 {
            return Ok(Armed::Ready);
        }
        let code = self.port_mut().arm(solicited_only);
        if code != 0 {
            return Err(ArmError::Refused { code });
        }
        // What came before the arming brings no event, so it has to be found here.
        let came = self.poll().map_err(ArmError::Poll)?.len();
        Ok(if came > 0 { Armed::Ready } else { Armed::Quiet })
    }
}

/// A completion queue cannot be armed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ArmError {
    /// The device refuses to raise an event.
    Refused {
        /// What it returned.
        code: i32,
    },
    /// The device refuses to be polled.
    Poll(PollError),
}

impl fmt::Display for ArmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { code } => {
                write!(f, "arming the completion queue failed with code {code}")
            }
            Self::Poll(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ArmError {}

#[cfg(all(test, not(loom)))]
#[expect(unsafe_code, reason = "ports promise what they do")]
mod tests;
