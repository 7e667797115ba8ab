//! A peer that sends any private data along.
#![no_main]

#[path = "../../std-adapter/src/cm/private_data.rs"]
#[allow(dead_code, unused_imports, reason = "the adapter uses the rest")]
mod private_data;

use private_data::{PrivateData, ToSend};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((&len, bytes)) = bytes.split_first() else { return };
    let mut wire = [0; 255];
    let there = bytes.len().min(wire.len());
    wire[..there].copy_from_slice(&bytes[..there]);
    let received = PrivateData::received(&wire, len);
    assert_eq!(received.as_bytes(), &wire[..len.into()]);
    assert_eq!(received.first::<4>().is_some(), len >= 4);
    let _ = format!("{received:?}");
    let sent = ToSend::new(bytes);
    for max in [PrivateData::MAX_CONNECT, PrivateData::MAX_REJECT, PrivateData::MAX_ACCEPT] {
        match sent.within(max) {
            Ok(within) => assert!(within == bytes && bytes.len() <= max),
            Err(error) => assert!(error.given == bytes.len() && bytes.len() > max),
        }
    }
});
