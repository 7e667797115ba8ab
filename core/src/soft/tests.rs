//! The device through its ports, with requests made by hand.

extern crate std;

mod bed;
mod datagrams;
mod faults;
mod messages;
mod posting;
mod profiles;
mod remote;
mod setup;
mod states;
mod threads;
