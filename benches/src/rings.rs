//! Rings between two threads: ours, rtrb, heapless' and crossbeam's.
//!
//! Each block starts a partner thread on the other processor; blocks of all rings take turns. A round
//! trip goes there through one ring and back through another; a stream goes one way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::report::Row;
use crate::ticks::{median, now};

const CAPACITY: usize = 256;
const TRIPS: u64 = 4_000;
const ITEMS: u64 = 64_000;
const BLOCKS: usize = 60;
/// On a machine that others use as well, two threads that spin take for ever: then fewer blocks do.
const PATIENCE: Duration = Duration::from_secs(90);

/// Keeps this thread on one processor.
fn pin(processor: usize) {
    // SAFETY: a set of processors on the stack, for this thread.
    unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

/// Ticks a round trip: `there` and `back` push, `their` and `our` spin until something comes.
fn trip(
    mut there: impl FnMut(u64) + Send,
    mut their: impl FnMut() -> u64 + Send,
    mut back: impl FnMut(u64) + Send,
    mut our: impl FnMut() -> u64 + Send,
) -> f64 {
    let ready = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            ready.store(true, Ordering::Release);
            for _ in 0..TRIPS {
                back(their());
            }
        });
        while !ready.load(Ordering::Acquire) {
            core::hint::spin_loop();
        }
        let start = now();
        for item in 0..TRIPS {
            there(item);
            assert_eq!(our(), item);
        }
        (now() - start) as f64 / TRIPS as f64
    })
}

/// Ticks an item: `produce` hands over from its argument on and says how many; `consume` how many it took.
fn stream(
    mut produce: impl FnMut(u64) -> u64 + Send,
    mut consume: impl FnMut() -> u64 + Send,
) -> f64 {
    let ready = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            ready.store(true, Ordering::Release);
            let mut left = ITEMS;
            while left > 0 {
                left -= consume();
            }
        });
        while !ready.load(Ordering::Acquire) {
            core::hint::spin_loop();
        }
        let start = now();
        let mut item = 0;
        while item < ITEMS {
            item += produce(item);
        }
        (now() - start) as f64 / ITEMS as f64
    })
}

fn ours_trip() -> f64 {
    let (mut a, mut b) = (Box::new(Ours::new()), Box::new(Ours::new()));
    let ((mut to, mut from), (mut back, mut home)) = (a.split(), b.split());
    trip(
        |item| while to.push(item).is_err() {},
        || loop {
            if let Some(item) = from.pop() {
                break item;
            }
        },
        |item| while back.push(item).is_err() {},
        || loop {
            if let Some(item) = home.pop() {
                break item;
            }
        },
    )
}

type Ours = nanoverbs_core::Ring<u64, CAPACITY>;

fn ours_stream(batch: u64) -> f64 {
    let mut ring = Box::new(Ours::new());
    let (mut to, mut from) = ring.split();
    let mut sum = 0;
    stream(
        |item| {
            if batch == 1 {
                return u64::from(to.push(item).is_ok());
            }
            let Some(mut grant) = to.reserve(batch as usize) else { return 0 };
            for next in item..item + batch {
                let _ = grant.write(next);
            }
            grant.commit() as u64
        },
        || {
            if batch == 1 {
                return from.pop().map_or(0, |item| {
                    sum += item;
                    1
                });
            }
            let mut taken = 0;
            for item in from.drain(batch as usize) {
                sum += item;
                taken += 1;
            }
            taken
        },
    )
}

fn rtrb_trip() -> f64 {
    let ((mut to, mut from), (mut back, mut home)) =
        (rtrb::RingBuffer::new(CAPACITY), rtrb::RingBuffer::new(CAPACITY));
    trip(
        |item| while to.push(item).is_err() {},
        || loop {
            if let Ok(item) = from.pop() {
                break item;
            }
        },
        |item| while back.push(item).is_err() {},
        || loop {
            if let Ok(item) = home.pop() {
                break item;
            }
        },
    )
}

fn rtrb_stream(batch: u64) -> f64 {
    let (mut to, mut from) = rtrb::RingBuffer::new(CAPACITY);
    let mut sum = 0_u64;
    stream(
        |item| {
            if batch == 1 {
                return u64::from(to.push(item).is_ok());
            }
            let Ok(chunk) = to.write_chunk_uninit(batch as usize) else { return 0 };
            chunk.fill_from_iter(item..item + batch) as u64
        },
        || {
            if batch == 1 {
                return from.pop().map_or(0, |item| {
                    sum += item;
                    1
                });
            }
            let Ok(chunk) = from.read_chunk(from.slots().min(batch as usize)) else { return 0 };
            let taken = chunk.len() as u64;
            sum += chunk.into_iter().sum::<u64>();
            taken
        },
    )
}

type Heapless = heapless::spsc::Queue<u64, CAPACITY>;

fn heapless_trip() -> f64 {
    let (mut a, mut b) = (Box::new(Heapless::new()), Box::new(Heapless::new()));
    let ((mut to, mut from), (mut back, mut home)) = (a.split(), b.split());
    trip(
        |item| while to.enqueue(item).is_err() {},
        || loop {
            if let Some(item) = from.dequeue() {
                break item;
            }
        },
        |item| while back.enqueue(item).is_err() {},
        || loop {
            if let Some(item) = home.dequeue() {
                break item;
            }
        },
    )
}

fn heapless_stream() -> f64 {
    let mut ring = Box::new(Heapless::new());
    let (mut to, mut from) = ring.split();
    let mut sum = 0;
    stream(
        |item| u64::from(to.enqueue(item).is_ok()),
        || {
            from.dequeue().map_or(0, |item| {
                sum += item;
                1
            })
        },
    )
}

fn crossbeam_trip() -> f64 {
    let (there, back) =
        (crossbeam_queue::ArrayQueue::new(CAPACITY), crossbeam_queue::ArrayQueue::new(CAPACITY));
    trip(
        |item| while there.push(item).is_err() {},
        || loop {
            if let Some(item) = there.pop() {
                break item;
            }
        },
        |item| while back.push(item).is_err() {},
        || loop {
            if let Some(item) = back.pop() {
                break item;
            }
        },
    )
}

fn crossbeam_stream() -> f64 {
    let ring = crossbeam_queue::ArrayQueue::new(CAPACITY);
    let mut sum = 0;
    stream(
        |item| u64::from(ring.push(item).is_ok()),
        || {
            ring.pop().map_or(0, |item| {
                sum += item;
                1
            })
        },
    )
}

/// The fastest tenth: two threads that spin are disturbed by whatever else runs, and mostly are on a
/// machine with two processors.
fn quiet(blocks: &[f64]) -> f64 {
    let mut sorted = blocks.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 10).copied().unwrap_or(f64::NAN)
}

/// Bar 6.
pub(crate) fn rows(skipped: &mut Vec<String>) -> Vec<Row> {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        skipped.push("bar 6: one processor only".to_owned());
        return Vec::new();
    }
    pin(0);
    let measures: [(&str, &dyn Fn() -> f64); 12] = [
        ("ours, round trip", &ours_trip),
        ("rtrb, round trip", &rtrb_trip),
        ("heapless, round trip", &heapless_trip),
        ("crossbeam ArrayQueue, round trip", &crossbeam_trip),
        ("ours, stream", &|| ours_stream(1)),
        ("rtrb, stream", &|| rtrb_stream(1)),
        ("heapless, stream", &heapless_stream),
        ("crossbeam ArrayQueue, stream", &crossbeam_stream),
        ("ours, stream, published every 4", &|| ours_stream(4)),
        ("rtrb, stream, published every 4", &|| rtrb_stream(4)),
        ("ours, stream, published every 16", &|| ours_stream(16)),
        ("rtrb, stream, published every 16", &|| rtrb_stream(16)),
    ];
    let mut blocks = vec![Vec::with_capacity(BLOCKS); measures.len()];
    let began = Instant::now();
    for block in 0..BLOCKS {
        if block > 0 && began.elapsed() > PATIENCE {
            break;
        }
        for step in 0..measures.len() {
            let at = (step + block) % measures.len();
            blocks[at].push(measures[at].1());
        }
    }
    println!("{:<40} {:>8} {:>8} {:>8}", "rings, ticks", "min", "tenth", "median");
    for ((name, _), blocks) in measures.iter().zip(&blocks) {
        let min = blocks.iter().copied().fold(f64::INFINITY, f64::min);
        println!("{name:<40} {min:>8.1} {:>8.1} {:>8.1}", quiet(blocks), median(blocks.clone()));
    }
    println!();
    let row = |what: &str, ours: usize, reference: usize, limit: f64| {
        Row::beside("6", what, "ticks", (quiet(&blocks[ours]), quiet(&blocks[reference])), limit)
    };
    vec![
        row("ring, a round trip, beside rtrb", 0, 1, 1.0),
        row("ring, a stream, an item, beside rtrb", 4, 5, 1.0),
        row(
            "ring, a stream published every 16, an item, beside rtrb's items one by one",
            10,
            5,
            0.45,
        ),
    ]
}
