//! Programs to start from, and what they share.
//!
//! [`atomic_counter`], [`pingpong`], [`readv`], [`rping`] and [`target`] are one program each, with a few lines of `main` in `src/bin`.
#![deny(unsafe_code)]

pub mod failure;
pub use failure::Failure;

#[expect(unsafe_code, reason = "asks the system for the number of an interface")]
pub mod place;
pub use place::Place;

pub mod cpu;

pub mod output;

pub mod pattern;

pub mod atomic_counter;
pub mod pingpong;
pub mod readv;
pub mod rping;
pub mod target;

#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
