//! How hard a connection tries: retries, timers, and how many READs may be under way.
//!
//! Every default is finite and none is zero. librdmacm's own defaults are 7 and 7, which on some
//! devices means for ever, and a cleared structure means "never try again".

use std::fmt;
use std::time::Duration;

use super::private_data::ToSend;
use crate::Limits;

/// A number is not one of those that the wire has room for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OutOfRange {
    /// What it would have been.
    pub what: &'static str,
    /// The number.
    pub given: u64,
    /// The smallest one.
    pub min: u64,
    /// The largest one.
    pub max: u64,
}

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, given, min, max } = self;
        write!(f, "{what} is from {min} to {max}, not {given}")
    }
}

impl std::error::Error for OutOfRange {}

/// How often a request is sent again when no answer comes. Of the connecting side; both use it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[doc(alias = "retry_count")]
pub struct Retry(u8);

impl Retry {
    /// Seven times on most devices, and without end on some (Soft-RoCE is one): a dead peer is
    /// never noticed there.
    pub const SEVEN_OR_FOREVER: Self = Self(7);

    /// So many times, 0 to 6.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`] for any other number.
    pub const fn times(times: u8) -> Result<Self, OutOfRange> {
        if times > 6 {
            return Err(OutOfRange {
                what: "the number of retries",
                given: times as u64,
                min: 0,
                max: 6,
            });
        }
        Ok(Self(times))
    }

    /// The three bits of the wire.
    pub const fn code(self) -> u8 {
        self.0
    }
}

impl Default for Retry {
    /// 6: the most that is finite everywhere.
    fn default() -> Self {
        Self(6)
    }
}

/// How often a message is sent again when the peer has no receive posted ("receiver not ready").
///
/// Each side states how often *its peer* shall try; how long the peer waits in between is
/// [`RnrTimer`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[doc(alias = "rnr_retry_count")]
pub struct RnrRetry(u8);

impl RnrRetry {
    /// The first missing receive ends the connection.
    pub const NEVER: Self = Self(0);
    /// A missing receive stalls the sender, without end if it never comes.
    pub const FOREVER: Self = Self(7);

    /// So many times, 1 to 6.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`] for any other number.
    pub const fn times(times: u8) -> Result<Self, OutOfRange> {
        if times == 0 || times > 6 {
            return Err(OutOfRange {
                what: "the number of retries for a missing receive",
                given: times as u64,
                min: 1,
                max: 6,
            });
        }
        Ok(Self(times))
    }

    /// The three bits of the wire.
    pub const fn code(self) -> u8 {
        self.0
    }
}

impl Default for RnrRetry {
    /// 6.
    fn default() -> Self {
        Self(6)
    }
}

/// How long a peer waits before it tries again when this side has no receive posted.
///
/// The connection manager leaves it at 655 ms, so that one late receive stalls the sender for that
/// long. This library lowers it once connected.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[doc(alias = "min_rnr_timer")]
pub struct RnrTimer(u8);

/// Hundredths of a millisecond, by code. Code 0 is the longest.
const RNR_TIMES: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

impl RnrTimer {
    /// The shortest time that is at least `delay`; the longest one, 655.36 ms, when there is none.
    pub fn at_least(delay: Duration) -> Self {
        // Codes 1 to 31 ascend.
        (1..32).map(Self).find(|timer| timer.duration() >= delay).unwrap_or(Self(0))
    }

    pub(crate) const fn from_code(code: u8) -> Self {
        Self(code & 31)
    }

    /// The time.
    pub fn duration(self) -> Duration {
        Duration::from_micros(u64::from(RNR_TIMES[usize::from(self.0 & 31)]) * 10)
    }

    /// The five bits of the wire.
    pub const fn code(self) -> u8 {
        self.0
    }
}

impl Default for RnrTimer {
    /// 10.24 ms: with 6 retries a receive may be 60 ms late.
    fn default() -> Self {
        Self(20)
    }
}

/// How long an acknowledgement may take before a request is sent again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[doc(alias = "RDMA_OPTION_ID_ACK_TIMEOUT")]
pub struct AckTimeout(u8);

impl AckTimeout {
    /// No time-out: a lost packet stalls for ever.
    pub const INFINITE: Self = Self(0);

    /// 4.096 µs × 2^`code`, 1 to 31.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`] for any other number.
    pub const fn code(code: u8) -> Result<Self, OutOfRange> {
        if code == 0 || code > 31 {
            return Err(OutOfRange {
                what: "the code of the acknowledge timeout",
                given: code as u64,
                min: 1,
                max: 31,
            });
        }
        Ok(Self(code))
    }

    /// The bits of the wire.
    pub const fn to_code(self) -> u8 {
        self.0
    }

    /// The time of one try; `None` when there is no end to it. Devices may take up to four times
    /// as long.
    pub const fn duration(self) -> Option<Duration> {
        if self.0 == 0 {
            return None;
        }
        Some(Duration::from_nanos(4096 << self.0))
    }

    /// The time until a dead peer is noticed, tries and all; `None` when it may never be.
    pub fn worst_case(self, retry: Retry) -> Option<Duration> {
        if retry == Retry::SEVEN_OR_FOREVER {
            return None;
        }
        self.duration().map(|time| time * (u32::from(retry.code()) + 1))
    }
}

/// What a connection shall be like.
///
/// ```
/// use nanoverbs::cm::{ConnectParams, RnrRetry};
///
/// let params = ConnectParams::new().rnr_retry(RnrRetry::NEVER).private_data(b"version 1");
/// ```
#[derive(Clone, Copy, Debug)]
#[doc(alias = "rdma_conn_param")]
#[must_use = "parameters do nothing until a connection is made with them"]
pub struct ConnectParams {
    pub(super) retry: Retry,
    pub(super) rnr_retry: RnrRetry,
    pub(super) rnr_timer: RnrTimer,
    pub(super) ack_timeout: Option<AckTimeout>,
    reads_out: Option<u8>,
    reads_in: Option<u8>,
    pub(super) private_data: ToSend,
}

impl ConnectParams {
    /// Six retries of each kind, 10 ms between those for a missing receive, the connection
    /// manager's acknowledge timeout (about 2 s a try), as many READs as the device can do, no
    /// private data.
    pub fn new() -> Self {
        Self {
            retry: Retry::default(),
            rnr_retry: RnrRetry::default(),
            rnr_timer: RnrTimer::default(),
            ack_timeout: None,
            reads_out: None,
            reads_in: None,
            private_data: ToSend::EMPTY,
        }
    }

    /// How often a request is sent again when no answer comes. Ignored by the accepting side.
    pub const fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// How often the peer tries again when this side has no receive posted.
    pub const fn rnr_retry(mut self, retry: RnrRetry) -> Self {
        self.rnr_retry = retry;
        self
    }

    /// How long the peer waits before it does.
    pub const fn rnr_timer(mut self, timer: RnrTimer) -> Self {
        self.rnr_timer = timer;
        self
    }

    /// How long an acknowledgement may take.
    pub const fn ack_timeout(mut self, timeout: AckTimeout) -> Self {
        self.ack_timeout = Some(timeout);
        self
    }

    /// READs and atomics under way at a time: `reads_out` of this side's, `reads_in` of the peer's.
    /// What is agreed on is the smaller of what both sides say; see
    /// [`Connection::reads`](super::Connection::reads).
    pub const fn reads(mut self, reads_out: u8, reads_in: u8) -> Self {
        self.reads_out = Some(reads_out);
        self.reads_in = Some(reads_in);
        self
    }

    /// Bytes that travel along. How many can is checked by the call that sends them.
    pub fn private_data(mut self, data: &[u8]) -> Self {
        self.private_data = ToSend::new(data);
        self
    }

    /// The READs to ask for on a device.
    pub(super) fn reads_on(&self, limits: Limits) -> Result<ReadDepths, OutOfRange> {
        let checked = |what, asked: Option<u8>, max: u8| match asked {
            None => Ok(max),
            Some(asked) if asked <= max => Ok(asked),
            Some(asked) => {
                Err(OutOfRange { what, given: u64::from(asked), min: 0, max: u64::from(max) })
            }
        };
        Ok(ReadDepths {
            reads_out: checked(
                "the number of own READs under way on this device",
                self.reads_out,
                limits.reads_out,
            )?,
            reads_in: checked(
                "the number of the peer's READs under way on this device",
                self.reads_in,
                limits.reads_in,
            )?,
        })
    }
}

impl Default for ConnectParams {
    fn default() -> Self {
        Self::new()
    }
}

/// How many READs and atomics may be under way at a time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReadDepths {
    /// This side's own. With 0 a READ must not be posted: it would never end, or end the
    /// connection.
    #[doc(alias = "initiator_depth")]
    pub reads_out: u8,
    /// The peer's, served by this side.
    #[doc(alias = "responder_resources")]
    pub reads_in: u8,
}

impl ReadDepths {
    /// The smaller of both, each way.
    pub(super) fn min(self, other: Self) -> Self {
        Self {
            reads_out: self.reads_out.min(other.reads_out),
            reads_in: self.reads_in.min(other.reads_in),
        }
    }
}
