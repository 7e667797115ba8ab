//! Ticks a request: the time stamp counter, fenced, over blocks, contenders in turn.
//!
//! A shared machine is never quiet for long. So every repetition runs a block of each contender, a
//! ratio is that of two blocks of the same repetition, and the median of those ratios is reported.

use crate::bed::{Bed, Shape};
use crate::object::{Entry, Provider};

/// Reads the time stamp counter (elsewhere than on x86-64: nanoseconds), with nothing in flight.
#[inline(always)]
pub(crate) fn now() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_mm_lfence, _rdtsc};
        // SAFETY: every x86-64 has both.
        unsafe {
            _mm_lfence();
            let ticks = _rdtsc();
            _mm_lfence();
            ticks
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        use std::sync::OnceLock;
        use std::time::Instant;
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }
}

/// The blocks of one contender, in ticks a request.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) entry: Entry,
    pub(crate) blocks: Vec<f64>,
}

impl Series {
    pub(crate) fn min(&self) -> f64 {
        self.blocks.iter().copied().fold(f64::INFINITY, f64::min)
    }

    pub(crate) fn median(&self) -> f64 {
        median(self.blocks.clone())
    }

    /// The median of the ratios of blocks that ran next to each other.
    pub(crate) fn ratio_to(&self, reference: &Self) -> f64 {
        median(self.blocks.iter().zip(&reference.blocks).map(|(ours, c)| ours / c).collect())
    }
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Runs `repetitions` blocks of `rounds` rounds of each entry, in turn.
pub(crate) fn measure<'e>(
    provider: &Provider,
    entries: impl Iterator<Item = &'e Entry>,
    shape: Shape,
    rounds: u64,
    repetitions: usize,
) -> Vec<Series> {
    let beds: Vec<_> = entries.map(|entry| Bed::open(provider, entry, shape)).collect();
    let mut series: Vec<_> = beds
        .iter()
        .map(|bed| Series { entry: bed.entry().clone(), blocks: Vec::with_capacity(repetitions) })
        .collect();
    let requests = (rounds * u64::from(shape.round)) as f64;
    for bed in &beds {
        bed.run(rounds);
    }
    for repetition in 0..repetitions {
        for step in 0..beds.len() {
            // Another neighbour each time.
            let at = (step * (1 + repetition % 2) + repetition) % beds.len();
            let at =
                if beds.len().is_multiple_of(2) { (step + repetition) % beds.len() } else { at };
            let start = now();
            beds[at].run(rounds);
            series[at].blocks.push((now() - start) as f64 / requests);
        }
    }
    series
}
