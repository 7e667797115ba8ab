//! What a ping says: the same letters as rdma-core's rping sends, so that either end can check them.

use std::borrow::Cow;
use std::io::Write;

use crate::Failure;

/// The shortest ping, as in rdma-core: its words, a number of ten digits, and the 0 at the end.
pub(super) const SHORTEST: usize = 26;
/// The longest ping.
pub(super) const LONGEST: usize = 65_536;

/// From `A` to `z`, what lies between the two cases included.
const LETTERS: usize = (b'z' - b'A' + 1) as usize;

/// Writes the ping of this round: `rdma-ping-7: HIJK…` and a 0 as the last byte. The letters start one
/// further each round.
pub(super) fn fill(ping: &mut [u8], round: u64) {
    let mut rest = &mut *ping;
    // What does not fit is left out.
    let _ = write!(rest, "rdma-ping-{round}: ");
    for (at, byte) in rest.iter_mut().enumerate() {
        *byte = b'A' + ((round as usize % LETTERS + at) % LETTERS) as u8;
    }
    if let Some(last) = ping.last_mut() {
        *last = 0;
    }
}

/// Sees that a ping is what [`fill`] makes for this round.
///
/// # Errors
///
/// [`Failure`] names the first wrong byte.
pub(super) fn check(ping: &[u8], round: u64) -> Result<(), Failure> {
    let mut expected = vec![0; ping.len()];
    fill(&mut expected, round);
    match ping.iter().zip(&expected).position(|(found, expected)| found != expected) {
        None => Ok(()),
        Some(at) => Err(Failure::new(format!(
            "ping {round}: byte {at} of {} is wrong ({:#04x})",
            ping.len(),
            ping[at]
        ))),
    }
}

/// The letters before the first 0, for people.
pub(super) fn shown(ping: &[u8]) -> Cow<'_, str> {
    let len = ping.iter().position(|&byte| byte == 0).unwrap_or(ping.len());
    String::from_utf8_lossy(&ping[..len])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ping_is_what_rdma_core_sends() {
        let mut ping = [1; 64];
        fill(&mut ping, 0);
        assert_eq!(&ping, b"rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqr\0");
        // The letters start over behind z, those of the 58th round with A again.
        fill(&mut ping, 57);
        assert_eq!(&ping[..16], b"rdma-ping-57: zA");
        fill(&mut ping, 58);
        assert_eq!(&ping[..16], b"rdma-ping-58: AB");
        assert_eq!(shown(&ping).len(), 63);
    }

    #[test]
    fn every_wrong_byte_of_every_length_is_found() {
        for len in SHORTEST..90 {
            let mut ping = vec![0; len];
            fill(&mut ping, u64::MAX);
            check(&ping, u64::MAX).unwrap();
            assert_eq!(ping[len - 1], 0);
            for at in 0..len {
                ping[at] ^= 1;
                let said = check(&ping, u64::MAX).unwrap_err().to_string();
                assert!(said.contains(&format!("byte {at} of {len} is wrong")), "{said}");
                ping[at] ^= 1;
            }
        }
    }
}
