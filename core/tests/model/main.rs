//! Queues and a soft device do what they like in random order, with every fault that the device can
//! play, beside a reference that keeps plain lists. After each step both say the same; at the end
//! every context has come back once, every block is in its pool, and the memory can be given back.
//!
//! `NANOVERBS_MODEL_CASES` changes how many cases there are; `make soak` runs `soak`, below.

mod bed;
mod chain;
mod ledger;
mod reference;
mod step;
mod tap;
mod transport;
mod world;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence};

use transport::{Connected, Datagrams};

/// What a failed case is made of, in words.
fn told(setup: [u8; 16], steps: &[[u8; 8]]) -> String {
    let steps = steps.iter().map(|step| format!("  {:?}\n", step::Step::decode(*step)));
    format!("{:#?}\n{}", step::Setup::decode(setup), steps.collect::<String>())
}

/// How many cases each of the two tests has, and how long they are at most.
fn cases() -> u32 {
    let asked = std::env::var("NANOVERBS_MODEL_CASES").ok().and_then(|cases| cases.parse().ok());
    asked.unwrap_or(if cfg!(miri) { 3 } else { 5_000 })
}
const STEPS: usize = if cfg!(miri) { 20 } else { 80 };

/// Runs a case; what went wrong as a failure of proptest, which then looks for a shorter case.
fn case(
    run: fn([u8; 16], &[[u8; 8]]) -> usize,
    setup: [u8; 16],
    steps: &[[u8; 8]],
) -> Result<(), TestCaseError> {
    match std::panic::catch_unwind(|| run(setup, steps)) {
        Ok(_) => Ok(()),
        Err(panic) => {
            let why = panic.downcast_ref::<String>().map(String::as_str);
            let why = why.or(panic.downcast_ref::<&str>().copied()).unwrap_or_default();
            Err(TestCaseError::fail(format!("{why}\n{}", told(setup, steps))))
        }
    }
}

proptest! {
    #![proptest_config(Config {
        cases: cases(),
        failure_persistence: (!cfg!(miri)).then(|| {
            Box::new(FileFailurePersistence::WithSource("regressions")) as Box<_>
        }),
        ..Config::default()
    })]

    #[test]
    fn f06_any_sequence_of_steps_agrees_with_the_reference_and_loses_no_context(
        setup: [u8; 16],
        steps in prop::collection::vec(any::<[u8; 8]>(), 0..STEPS),
    ) {
        case(world::run::<Connected>, setup, &steps)?;
    }

    #[test]
    fn f06_any_sequence_of_datagrams_agrees_with_the_reference_and_loses_no_context(
        setup: [u8; 16],
        steps in prop::collection::vec(any::<[u8; 8]>(), 0..STEPS),
    ) {
        case(world::run::<Datagrams>, setup, &steps)?;
    }
}

/// Cases without end, `NANOVERBS_SOAK_SECONDS` long: run by `make soak`.
#[test]
#[ignore = "takes five minutes: make soak"]
fn soak() {
    let seconds = std::env::var("NANOVERBS_SOAK_SECONDS").ok().and_then(|text| text.parse().ok());
    let limit = Duration::from_secs(seconds.unwrap_or(300));
    let mut seed =
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    println!("soak: seed {seed}");
    let mut random = || {
        // SplitMix64.
        seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let (began, mut cases, mut contexts, mut warm) = (Instant::now(), 0_u64, 0_u64, None);
    let mut steps = Vec::with_capacity(256);
    while began.elapsed() < limit {
        let mut setup = [0; 16];
        setup[..8].copy_from_slice(&random().to_le_bytes());
        setup[8..].copy_from_slice(&random().to_le_bytes());
        steps.clear();
        steps.extend((0..random() % 256).map(|_| random().to_le_bytes()));
        let run = if cases % 2 == 0 { world::run::<Connected> } else { world::run::<Datagrams> };
        let ran = std::panic::catch_unwind(|| run(setup, &steps));
        match ran {
            Ok(count) => (cases, contexts) = (cases + 1, contexts + count as u64),
            Err(panic) => {
                println!("{}", told(setup, &steps));
                std::panic::resume_unwind(panic);
            }
        }
        if cases == 1000 {
            warm = resident();
        }
    }
    let now = resident();
    println!("soak: {cases} cases, {contexts} contexts, all back, in {} s", limit.as_secs());
    println!("soak: resident memory {warm:?} KiB after 1,000 cases, {now:?} KiB at the end");
    if let (Some(warm), Some(now)) = (warm, now) {
        assert!(now <= warm + 1024, "memory has grown");
    }
}

/// Resident memory in KiB, where the system says it.
fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches("kB").trim().parse().ok()
}
