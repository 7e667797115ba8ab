//! Any bytes from the other side, as in `fuzz/`, a few thousand times.

mod checks;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 500 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn completions_of_any_bytes_end_what_is_in_flight_and_nothing_else(
        bytes in prop::collection::vec(any::<u8>(), 0..if cfg!(miri) { 200 } else { 1000 }),
    ) {
        checks::completions(&bytes);
    }

    #[test]
    fn f44_a_region_of_any_bytes_is_refused_or_comes_out_as_it_was(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        is_small: bool,
    ) {
        let mut bytes = bytes;
        if is_small {
            // Lengths and offsets of a few bytes meet more often.
            bytes.iter_mut().enumerate().filter(|(at, _)| at % 8 > 1).for_each(|(_, byte)| *byte = 0);
        }
        checks::wire(&bytes);
    }
}
