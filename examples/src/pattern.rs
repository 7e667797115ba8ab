//! What messages are filled with: bytes that depend on the round and on their place, so that an old
//! message, a shifted one and a torn one are all noticed.
//!
//! ```
//! use nanoverbs_examples::pattern;
//!
//! let mut message = [0; 13];
//! pattern::fill(&mut message, 7);
//! assert_eq!(pattern::first_wrong(&message, 7), None);
//! message[9] ^= 1;
//! assert_eq!(pattern::first_wrong(&message, 7), Some(9));
//! ```

/// An odd number, so that no two words of a message are the same.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Fills a message for a round.
pub fn fill(message: &mut [u8], round: u64) {
    let mut word = first_word(round);
    let mut words = message.chunks_exact_mut(8);
    for chunk in &mut words {
        chunk.copy_from_slice(&word.to_le_bytes());
        word = word.wrapping_add(STEP);
    }
    let rest = words.into_remainder();
    rest.copy_from_slice(&word.to_le_bytes()[..rest.len()]);
}

/// Where a message first differs from what [`fill`] makes for this round.
#[inline]
pub fn first_wrong(message: &[u8], round: u64) -> Option<usize> {
    let mut word = first_word(round);
    let mut difference = 0;
    let words = message.chunks_exact(8);
    let rest = words.remainder();
    for chunk in words {
        let found = u64::from_le_bytes([
            chunk[0], chunk[1], chunk[2], chunk[3], chunk[4], chunk[5], chunk[6], chunk[7],
        ]);
        difference |= found ^ word;
        word = word.wrapping_add(STEP);
    }
    let is_wrong = difference != 0 || rest != &word.to_le_bytes()[..rest.len()];
    if is_wrong { locate(message, round) } else { None }
}

#[cold]
fn locate(message: &[u8], round: u64) -> Option<usize> {
    let mut expected = vec![0; message.len()];
    fill(&mut expected, round);
    message.iter().zip(&expected).position(|(found, expected)| found != expected)
}

/// SplitMix64's scrambler: neighbouring rounds share nothing.
fn first_word(round: u64) -> u64 {
    let word = round.wrapping_add(1).wrapping_mul(STEP);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_single_wrong_byte_is_found() {
        for len in 0..40 {
            let mut message = vec![0; len];
            fill(&mut message, 3);
            assert_eq!(first_wrong(&message, 3), None);
            for at in 0..len {
                message[at] ^= 0x80;
                assert_eq!(first_wrong(&message, 3), Some(at));
                message[at] ^= 0x80;
            }
        }
    }

    #[test]
    fn a_message_of_another_round_is_wrong() {
        let mut message = [0; 64];
        fill(&mut message, 1);
        assert_eq!(first_wrong(&message, 2), Some(0));
    }
}
