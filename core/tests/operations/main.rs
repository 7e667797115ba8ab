//! Every operation on the soft device, and what each of them is refused for.
#![allow(missing_docs, reason = "for tests")]

mod atomics;
mod bed;
mod datagrams;
mod keys;
mod messages;
mod shared_receives;
