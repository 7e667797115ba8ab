//! What rping's two ends say to each other: one message of 16 bytes, all numbers in network order.

use nanoverbs::nanoverbs_core::{Access, OutOfRegion, RKey, RemoteRegion};

/// Length of every message in bytes. Those of a server say "go ahead" and nothing else.
pub(super) const LEN: usize = 16;

/// The client's message, which tells where its memory is: address (8 bytes), key (4), length (4).
pub(super) fn advertise(region: RemoteRegion) -> [u8; LEN] {
    let mut wire = [0; LEN];
    wire[..8].copy_from_slice(&region.addr().to_be_bytes());
    wire[8..12].copy_from_slice(&region.rkey().to_raw().to_be_bytes());
    // A ping has 64 KiB at most.
    wire[12..].copy_from_slice(&(region.len() as u32).to_be_bytes());
    wire
}

/// What the client's message names. It does not say what may be done there: `access` is what rping is
/// about to do.
///
/// # Errors
///
/// [`OutOfRegion`] when the end of it is past the end of the address space.
pub(super) fn advertised(wire: &[u8; LEN], access: Access) -> Result<RemoteRegion, OutOfRegion> {
    let [a, b, c, d, e, f, g, h, key @ .., l0, l1, l2, l3] = *wire;
    RemoteRegion::new(
        u64::from_be_bytes([a, b, c, d, e, f, g, h]),
        u32::from_be_bytes([l0, l1, l2, l3]).into(),
        RKey::from_raw(u32::from_be_bytes(key)),
        access,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_advertisement_is_address_key_and_length_in_network_order() {
        let key = RKey::from_raw(0x1122_3344);
        let region = RemoteRegion::new(0x7f12_3456_789a_bcd0, 64, key, Access::REMOTE_READ);
        let golden = [
            0x7f, 0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xd0, // address
            0x11, 0x22, 0x33, 0x44, // key
            0x00, 0x00, 0x00, 0x40, // length
        ];
        assert_eq!(advertise(region.unwrap()), golden);
        assert_eq!(advertised(&golden, Access::REMOTE_READ), region);
    }

    #[test]
    fn memory_that_cannot_be_is_refused() {
        let mut wire = [0xff; LEN];
        assert!(
            advertised(&wire, Access::REMOTE_READ).is_err(),
            "it would end past the last address"
        );
        wire[0] = 0;
        let region = advertised(&wire, Access::REMOTE_WRITE).unwrap();
        assert_eq!(region.len(), u64::from(u32::MAX));
    }
}
