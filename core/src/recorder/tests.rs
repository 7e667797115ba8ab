extern crate std;
use std::vec::Vec;

use super::*;

type Small = Recorder<8>;

#[test]
fn every_value_lies_in_its_bucket_and_buckets_do_not_overlap() {
    let mut last = None;
    for row in 0..60 {
        for column in 0..ROW {
            let end = Recorder::<60>::last_of(row, column);
            let start = last.map_or(0, |last: u64| last + 1);
            assert!(start <= end);
            assert_eq!(Recorder::<60>::bucket(start), (row, column));
            assert_eq!(Recorder::<60>::bucket(end), (row, column));
            assert!((end - start) * ROW as u64 <= start, "a bucket is narrow");
            last = Some(end);
        }
    }
    assert_eq!(last, Some(u64::MAX));
}

#[test]
fn quantiles_are_those_of_the_sorted_values_and_at_most_a_thirtysecond_too_high() {
    let mut recorder = Recorder::<32>::new();
    let mut values = Vec::new();
    let mut seed = 1_u64;
    for _ in 0..if cfg!(miri) { 500 } else { 5_000 } {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let value = (seed >> 40) >> (seed >> 60);
        recorder.record(value);
        values.push(value);
    }
    values.sort_unstable();
    for (part, whole) in [(0, 1), (1, 2), (9, 10), (99, 100), (9_999, 10_000), (1, 1)] {
        let rank = (values.len() as u64 * part).div_ceil(whole).max(1);
        let exact = values[rank as usize - 1];
        let told = recorder.quantile(part as u32, whole as u32).unwrap();
        assert!(exact <= told && told <= exact + exact / 32, "{part}/{whole}: {exact}, {told}");
    }
    assert_eq!(recorder.quantile(1, 1), values.last().copied());
    assert_eq!(recorder.buckets().map(|(_, count)| count as usize).sum::<usize>(), values.len());
}

#[test]
fn what_is_beyond_counts_as_the_highest_and_the_greatest_value_is_exact() {
    let mut recorder = Small::new();
    for value in [5, 1 << 12, u64::MAX] {
        recorder.record(value);
    }
    assert_eq!(recorder.buckets().collect::<Vec<_>>(), [(5, 1), ((1 << 12) - 1, 2)]);
    assert_eq!(recorder.max(), Some(u64::MAX));
}

#[test]
fn nothing_has_no_quantile_and_neither_has_nonsense() {
    let mut recorder = Small::new();
    assert_eq!((recorder.min(), recorder.max(), recorder.quantile(1, 2)), (None, None, None));
    recorder.record(7);
    assert_eq!((recorder.quantile(3, 2), recorder.quantile(0, 0)), (None, None));
    assert_eq!((recorder.quantile(0, 1), recorder.quantile(1, 1)), (Some(7), Some(7)));
    recorder.clear();
    assert_eq!((recorder.count(), recorder.min()), (0, None));
}

#[test]
fn merged_recorders_are_as_one() {
    let (mut one, mut other, mut both) = (Small::new(), Small::new(), Small::new());
    for value in 0..100 {
        if value % 3 == 0 { &mut one } else { &mut other }.record(value);
        both.record(value);
    }
    one.merge(&other);
    assert!(one.buckets().eq(both.buckets()));
    assert_eq!((one.count(), one.min(), one.max()), (both.count(), both.min(), both.max()));
}

#[test]
fn a_full_bucket_stays_full() {
    let mut recorder = Small::new();
    recorder.counts[0][1] = u32::MAX;
    recorder.record(1);
    assert_eq!(recorder.counts[0][1], u32::MAX);
}

#[test]
fn a_quantile_beyond_the_last_row_is_the_greatest_value() {
    let mut recorder = Recorder::<32>::new();
    recorder.record(5);
    recorder.record(100_000_000_000);
    assert_eq!(recorder.quantile(1, 1), Some(100_000_000_000));
    assert_eq!(recorder.quantile(1, 2), Some(5));
}
