extern crate std;
use std::boxed::Box;

use super::*;
use crate::{Access, soft::Device};

#[test]
fn f43_a_flag_is_an_aligned_word_inside_its_region_and_shows_what_was_written() {
    let device: &'static Device<1, 2> = Box::leak(Box::new(Device::new()));
    let access = Access::LOCAL_WRITE.with(Access::REMOTE_WRITE);
    let memory = Box::leak(Box::new([0; 4]));
    let region = device.register_shared(device.domain(), memory, access).unwrap();
    let order = InOrder::said_by_the_device();
    let flag = PolledFlag::new(&region, 24, order).unwrap();
    assert_eq!(flag.load(), 0);
    region.write_at(24, &7_usize.to_ne_bytes()).unwrap();
    assert_eq!(flag.load(), 7);
    let error = PolledFlag::new(&region, 25, order).unwrap_err();
    let fault = OutOfRegion { offset: 25, len: size_of::<usize>() as u64, region_len: 32 };
    assert_eq!(error, FlagError::OutOfRegion(fault));
    assert_eq!(PolledFlag::new(&region, 9, order).unwrap_err(), FlagError::Unaligned { offset: 9 });
}
