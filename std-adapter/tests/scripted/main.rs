//! The adapter on a librdmacm and a libibverbs that do what a test says.
//!
//! Functions of the same names stand in this program, and the linker takes them before those of the shared
//! libraries. They keep count of what C programs get wrong: events that are not acknowledged when something
//! is destroyed, which would hang there for ever; what is destroyed in the wrong order, twice, or not at
//! all; and what is used afterwards. [`script::Script::finish`] fails the test for each of them.
#![cfg(feature = "verbs")]
#![allow(missing_docs, reason = "for tests")]
#![allow(unsafe_code, reason = "the functions of C libraries")]

mod apart;
mod completions;
mod connections;
mod devices;
mod domains;
mod library;
mod script;
