//! The device through its ports, with requests made by hand.

extern crate std;

mod bed;
mod messages;
