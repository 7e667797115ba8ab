//! What a queue pair gets when it joins: proof of membership, and an identity for each half.
//!
//! None of these can be copied: two queues with one serial would retire each other's completions.

use crate::id::Serial;

/// A queue pair that has joined a group: the member, and a seat for each of its queues. A seat that
/// is not needed is dropped.
#[derive(Debug)]
#[must_use = "a member is in the group until it leaves"]
pub struct Joined {
    /// To leave with.
    pub member: Member,
    /// To make the send queue with.
    pub send: SendSeat,
    /// To make the receive queue with.
    pub recv: RecvSeat,
}

/// A member of a group, to be kept until it leaves.
#[derive(Debug)]
#[must_use = "a member is in the group until it leaves"]
pub struct Member {
    pub(super) index: u16,
    pub(super) serial: Serial,
}

impl Member {
    /// The number that [`crate::Route`] has for its completions, below the size of the group.
    pub const fn index(&self) -> usize {
        self.index as usize
    }
}

macro_rules! seat {
    ($Seat:ident, $half:literal) => {
        #[doc = concat!("The identity of a member's ", $half, " queue, and how deep it may be.")]
        #[derive(Debug)]
        pub struct $Seat {
            pub(super) serial: Serial,
            pub(super) depth: u32,
        }

        impl $Seat {
            /// Requests that may be in flight: for so many there is room in the completion queue.
            pub const fn depth(&self) -> u32 {
                self.depth
            }

            /// What the queue will have as its serial.
            pub const fn serial(&self) -> u32 {
                self.serial.number()
            }

            pub(crate) fn take(self) -> (Serial, u32) {
                (self.serial, self.depth)
            }
        }
    };
}

seat!(SendSeat, "send");
seat!(RecvSeat, "receive");
