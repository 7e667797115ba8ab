//! Latencies, recorded without an allocation.
//!
//! One thread owns a recorder and records; it hands the whole of it over, or merges it into
//! another, when somebody wants to see it.
//!
//! A value falls into one of 32 buckets of its power of two, so a bucket is at most 1/32 of its
//! value wide: an answer is exact below 64 and at most 3.2 % too high above.

use core::fmt;

/// Buckets in each power of two.
const ROW: usize = 32;
/// Values below this have a bucket each: the first row.
const FIRST_BITS: u32 = ROW.ilog2();

/// A histogram of fixed size, for values below 2^(`ROWS` + 4); with 32 rows that is a minute in
/// nanoseconds. What is beyond falls into the last bucket, whose quantiles are the greatest value.
///
/// 128 bytes a row. The values may have any unit.
///
/// ```
/// use nanoverbs_core::Recorder;
///
/// let mut recorder = Recorder::<32>::new();
/// for nanoseconds in 1..=1000 {
///     recorder.record(nanoseconds);
/// }
/// assert_eq!((recorder.count(), recorder.min(), recorder.max()), (1000, Some(1), Some(1000)));
/// let p99 = recorder.quantile(99, 100).unwrap();
/// assert!((990..=1000).contains(&p99));
/// ```
#[derive(Clone)]
pub struct Recorder<const ROWS: usize = 32> {
    counts: [[u32; ROW]; ROWS],
    count: u64,
    min: u64,
    max: u64,
}

impl<const ROWS: usize> Recorder<ROWS> {
    const ROWS_OK: () = assert!(ROWS >= 1 && ROWS <= 60, "a recorder has between 1 and 60 rows");

    /// Nothing recorded.
    pub const fn new() -> Self {
        const { Self::ROWS_OK }
        Self { counts: [[0; ROW]; ROWS], count: 0, min: u64::MAX, max: 0 }
    }

    /// Records a value. A bucket counts up to 2^32 - 1 and stays there.
    #[inline]
    pub fn record(&mut self, value: u64) {
        let (row, column) = Self::bucket(value);
        let count = &mut self.counts[row][column];
        *count = count.saturating_add(1);
        self.count = self.count.wrapping_add(1);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Adds what another one has recorded.
    pub fn merge(&mut self, other: &Self) {
        for (row, others) in self.counts.iter_mut().zip(&other.counts) {
            for (count, more) in row.iter_mut().zip(others) {
                *count = count.saturating_add(*more);
            }
        }
        self.count = self.count.wrapping_add(other.count);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Forgets everything.
    pub const fn clear(&mut self) {
        *self = Self::new();
    }

    /// How many values were recorded.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The least value, exactly.
    pub const fn min(&self) -> Option<u64> {
        if self.count == 0 { None } else { Some(self.min) }
    }

    /// The greatest value, exactly, also when it is beyond the last row.
    pub const fn max(&self) -> Option<u64> {
        if self.count == 0 { None } else { Some(self.max) }
    }

    /// The value that `part` of `whole` values do not exceed: `quantile(9_999, 10_000)` is p99.99.
    /// `None` when nothing was recorded, or `part` is not between 0 and `whole`.
    ///
    /// It is the upper end of the bucket, so it is never too low; it is exact for the greatest
    /// value.
    pub fn quantile(&self, part: u32, whole: u32) -> Option<u64> {
        if self.count == 0 || part > whole || whole == 0 {
            return None;
        }
        let (part, whole) = (u128::from(part), u128::from(whole));
        let wanted = (u128::from(self.count) * part).div_ceil(whole).max(1);
        let mut seen = 0;
        for (last, count) in self.buckets() {
            seen += u128::from(count);
            if seen >= wanted {
                // The last bucket has no upper end.
                let is_beyond = last == Self::last_of(ROWS - 1, ROW - 1);
                let last = if is_beyond { self.max } else { last };
                return Some(last.clamp(self.min, self.max));
            }
        }
        Some(self.max)
    }

    /// The buckets that have something, from the lowest: the greatest value that falls into it, and
    /// how many did. The last bucket also has what is beyond.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u32)> {
        let rows = self.counts.iter().enumerate();
        rows.flat_map(|(row, counts)| {
            let columns = counts.iter().enumerate().filter(|(_, count)| **count > 0);
            columns.map(move |(column, count)| (Self::last_of(row, column), *count))
        })
    }

    /// The row and the column of a value, both in bounds.
    #[inline(always)]
    fn bucket(value: u64) -> (usize, usize) {
        // Below 64, that is in the first two rows, a value is its own bucket.
        let bits = u64::BITS - 1 - (value | (ROW as u64 - 1)).leading_zeros();
        let row = bits.wrapping_sub(FIRST_BITS).wrapping_add(1) as usize;
        if row >= ROWS {
            return (ROWS - 1, ROW - 1);
        }
        let shift = (row as u32).saturating_sub(1);
        (row, (value >> shift) as usize & (ROW - 1))
    }

    /// The greatest value of a bucket.
    fn last_of(row: usize, column: usize) -> u64 {
        if row == 0 {
            return column as u64;
        }
        let shift = row as u32 - 1;
        let first = ((ROW + column) as u64) << shift;
        first | ((1 << shift) - 1)
    }
}

impl<const ROWS: usize> Default for Recorder<ROWS> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const ROWS: usize> fmt::Debug for Recorder<ROWS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder")
            .field("count", &self.count)
            .field("min", &self.min())
            .field("p50", &self.quantile(1, 2))
            .field("p99", &self.quantile(99, 100))
            .field("p99.99", &self.quantile(9_999, 10_000))
            .field("max", &self.max())
            .finish()
    }
}

static_assertions::const_assert_eq!(size_of::<Recorder<32>>(), 32 * 128 + 24);

#[cfg(test)]
mod tests;
