use super::*;

fn region(memory: &mut [u8], access: Access) -> Registration {
    Registration {
        addr: NonNull::from(&mut *memory).cast(),
        len: memory.len(),
        lkey: LKey::from_raw(1),
        rkey: RKey::from_raw(0x0a0b_0c0d),
        access,
        domain: Domain::from_raw(7),
    }
}

#[test]
fn a_slice_that_ends_past_its_region_is_refused_with_the_numbers() {
    let mut memory = [0; 4096];
    // SAFETY: the memory outlives the region and nobody registers it.
    let region = unsafe { Region::from_raw(region(&mut memory, Access::LOCAL_WRITE)) };
    let fault = OutOfRegion { offset: 4092, len: 8, region_len: 4096 };
    assert_eq!(region.slice(4092, 8).unwrap_err(), fault);
    assert!(region.slice(4092, 4).is_ok());
    assert!(region.slice(4096, 0).is_ok());
    assert!(region.slice(usize::MAX, 2).is_err(), "the sum must not wrap");
}

#[test]
fn a_remote_region_travels_as_these_bytes() {
    let access = Access::REMOTE_READ.with(Access::LOCAL_WRITE);
    let remote =
        RemoteRegion::new(0x0000_7f12_3456_789a, 4096, RKey::from_raw(0x0a0b_0c0d), access)
            .unwrap();
    let wire = [
        0x00, 0x00, 0x7f, 0x12, 0x34, 0x56, 0x78, 0x9a, 0, 0, 0, 0, 0, 0, 0x10, 0, 0x0a, 0x0b,
        0x0c, 0x0d, 0, 0, 0, 5,
    ];
    assert_eq!(remote.to_wire(), wire);
    assert_eq!(RemoteRegion::from_wire(&wire), Ok(remote));
    assert!(RemoteRegion::from_wire(&[0xff; 24]).is_err(), "the end would wrap");
}

#[test]
fn bytes_go_into_a_shared_region_and_come_out_at_any_offset() {
    let mut words = [0_u64; 16];
    let memory = NonNull::from(&mut words).cast();
    let parts = Registration { addr: memory, len: 128, ..region(&mut [], Access::REMOTE_READ) };
    // SAFETY: the words are aligned to 8, as long as said, and untouched while the region lives.
    let shared = unsafe { SharedRegion::from_raw(parts) };
    let step = if cfg!(miri) { 3 } else { 1 };
    for offset in (0..20).step_by(step) {
        for len in (0..40).step_by(step) {
            let mut pattern = [0_u8; 40];
            pattern.iter_mut().enumerate().for_each(|(i, b)| *b = (i + offset) as u8 + 1);
            shared.write_at(0, &[0xee; 128]).unwrap();
            shared.write_at(offset, &pattern[..len]).unwrap();
            let mut back = [0; 128];
            shared.read_at(0, &mut back).unwrap();
            assert_eq!(&back[offset..offset + len], &pattern[..len]);
            assert!(back[..offset].iter().chain(&back[offset + len..]).all(|&b| b == 0xee));
        }
    }
    assert!(shared.write_at(120, &[0; 9]).is_err());
}
