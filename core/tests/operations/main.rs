//! Every operation on the soft device, and what each of them is refused for.
#![allow(missing_docs, reason = "for tests")]

mod atomics;
mod bed;
mod datagrams;
mod events;
mod keys;
mod limits;
mod messages;
mod shared_receives;
