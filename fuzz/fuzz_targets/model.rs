//! Steps over the soft device, held against the reference model of `core/tests/model`.
#![no_main]

#[path = "../../core/tests/model/bed.rs"]
mod bed;
#[path = "../../core/tests/model/chain.rs"]
mod chain;
#[path = "../../core/tests/model/ledger.rs"]
mod ledger;
#[path = "../../core/tests/model/reference.rs"]
mod reference;
#[path = "../../core/tests/model/step.rs"]
mod step;
#[path = "../../core/tests/model/tap.rs"]
mod tap;
#[path = "../../core/tests/model/transport/mod.rs"]
mod transport;
#[path = "../../core/tests/model/world.rs"]
mod world;

use transport::{Connected, Datagrams};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let run = if kind % 2 == 0 { world::run::<Connected> } else { world::run::<Datagrams> };
    if let Some((setup, steps)) = bytes.split_first_chunk::<16>() {
        run(*setup, steps.as_chunks::<8>().0);
    }
});
