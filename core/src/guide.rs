//! How to prove your own threads with loom.
//!
//! [loom](https://docs.rs/loom) runs a test once for every interleaving of its threads, and for
//! every value that a weakly ordered load may see. This crate is written for it: built with `--cfg
//! loom`, its rings, pools, doorbells, flags and counters, and the software device, use loom's
//! atomics and cells instead of the machine's. So a test of *your* program sees through them, and
//! finds the interleaving that loses an order or sends it twice. A whole program of this kind is
//! `loom-tests/tests/user_app.rs` in the repository.
//!
//! # Set-up
//!
//! In your manifest, the loom that this crate uses, and the `cfg` made known:
//!
//! ```toml
//! [target.'cfg(loom)'.dependencies]
//! loom = "0.7"
//!
//! [lints.rust]
//! unexpected_cfgs = { level = "warn", check-cfg = ["cfg(loom)"] }
//! ```
//!
//! Your own threads, atomics and cells have to be loom's too, or loom does not see them. One module
//! chooses:
//!
//! ```
//! mod threads {
//!     #[cfg(loom)]
//!     pub use loom::thread::{spawn, yield_now};
//!     #[cfg(not(loom))]
//!     pub use std::thread::{spawn, yield_now};
//!
//!     /// Every interleaving under loom, one run otherwise.
//!     pub fn check(test: impl Fn() + Send + Sync + 'static) {
//!         #[cfg(loom)]
//!         {
//!             let mut model = loom::model::Builder::new();
//!             // Enough to find what there is to find, and it ends; see below.
//!             model.preemption_bound = Some(3);
//!             // The software device takes more steps than the thousand that loom allows for.
//!             model.max_branches = 20_000;
//!             model.check(test);
//!         }
//!         #[cfg(not(loom))]
//!         test();
//!     }
//! }
//!
//! use nanoverbs_core::Ring;
//!
//! threads::check(|| {
//!     // Threads are `'static`, so the ring is leaked, once an interleaving.
//!     let ring = Box::leak(Box::new(Ring::<u32, 2>::new()));
//!     let (mut producer, mut consumer) = ring.split();
//!     let decides = threads::spawn(move || producer.push(7).is_ok());
//!     let order = loop {
//!         match consumer.pop() {
//!             Some(order) => break order,
//!             None => threads::yield_now(), // in every loop that waits
//!         }
//!     };
//!     assert_eq!(order, 7);
//!     assert!(decides.join().unwrap());
//! });
//! ```
//!
//! Run it on its own, with optimisation, in a target folder of its own:
//!
//! ```sh
//! RUSTFLAGS='--cfg loom' cargo test --release --target-dir target/loom --test my_model
//! ```
//!
//! # What is different under loom
//!
//! * Constructors are not `const`, because loom's atomics are not: no ring, bell or device in a
//!   `static`. Make them inside of the test.
//! * A loop that waits must yield in every turn. One that does not is reported as "exceeded maximum
//!   number of branches".
//! * The first thread of a test has 32 KiB of stack. Make a software device, which is larger than
//!   it looks while it is built, with the smallest parameters that do, or on a thread of
//!   `loom::thread::Builder::stack_size`.
//! * Use few values: two threads, rings of two, at most three values. What goes wrong at all goes
//!   wrong there.
//!
//! # What it proves
//!
//! State what must hold of all runs, not of one: each order has one report; the exchange saw it
//! once if the report says "sent" and never otherwise. Assert as well that both ends of a race were
//! seen in *some* run, with a plain static that outlives the model. Then break the program on
//! purpose and see that the model fails: one that passes with the error in it looks elsewhere.
//!
//! A ring loses nothing and doubles nothing, so an order is sent twice only by a program that
//! decides twice. Send an order again when its report says that it failed; never because no report
//! has come yet.
//!
//! # What it does not prove
//!
//! * Interleavings with more preemptions than the bound. Raise it with `LOOM_MAX_PREEMPTIONS`.
//! * Anything about plain memory that loom does not see: the bytes of a block, and what a peer's
//!   device writes into a shared region. That ownership of a block changes threads properly is seen
//!   by the ring that carries it.
//! * That a value which only ever moves through `Relaxed` loads is seen in time.
//! * A store is compared with the last access to the same atomic only. Where one thread loads and
//!   then stores it, the load by another thread before that goes unnoticed: let the thread that
//!   only reads be the one that is spawned.
