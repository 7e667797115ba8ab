//! Every operation on the soft device, what each of them is refused for, and how they end.
#![allow(missing_docs, reason = "for tests")]

mod atomics;
mod bed;
mod datagrams;
mod ends;
mod events;
mod keys;
mod limits;
mod messages;
mod shared_receives;
