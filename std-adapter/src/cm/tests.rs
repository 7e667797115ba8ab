use std::net::SocketAddr;
use std::time::Duration;

use super::channel::Event;
use super::private_data::ToSend;
use super::*;
use crate::{Atomics, CallError, Limits};

fn addr(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

#[test]
fn f03_no_default_is_zero_and_none_is_for_ever() {
    let params = ConnectParams::new();
    assert_eq!(params.retry.code(), 6);
    assert_eq!(params.rnr_retry.code(), 6);
    assert_eq!(params.rnr_timer.duration(), Duration::from_micros(10_240));
}

#[test]
fn f03_numbers_that_the_wire_has_no_room_for_are_refused() {
    assert!(Retry::times(6).is_ok());
    assert!(Retry::times(0).is_ok());
    for times in [7, 8, 255] {
        assert!(Retry::times(times).is_err());
        assert!(RnrRetry::times(times).is_err());
    }
    assert!(RnrRetry::times(0).is_err(), "never has a name of its own");
    assert_eq!(
        RnrRetry::times(8).map_err(|e| e.to_string()),
        Err("the number of retries for a missing receive is from 1 to 6, not 8".into())
    );
    assert_eq!((RnrRetry::NEVER.code(), RnrRetry::FOREVER.code()), (0, 7));
}

#[test]
fn rnr_timers_are_found_by_time() {
    let micros = Duration::from_micros;
    let cases = [(0, 1, 10), (11, 2, 20), (10_000, 20, 10_240), (500_000, 0, 655_360)];
    for (asked, code, got) in cases {
        let timer = RnrTimer::at_least(micros(asked));
        assert_eq!((timer.code(), timer.duration()), (code, micros(got)), "{asked}");
    }
    assert_eq!(RnrTimer::at_least(Duration::MAX).code(), 0);
}

#[test]
fn f61_the_worst_case_of_a_timeout_is_known() {
    let times = |n| Retry::times(n).expect("in range");
    let code = |n| AckTimeout::code(n).expect("in range");
    assert_eq!(AckTimeout::INFINITE.duration(), None);
    assert_eq!(AckTimeout::INFINITE.worst_case(times(1)), None);
    assert_eq!(code(14).duration(), Some(Duration::from_nanos(4096 << 14)));
    assert_eq!(code(14).worst_case(times(6)), Some(Duration::from_nanos((4096 << 14) * 7)));
    assert_eq!(code(18).worst_case(Retry::SEVEN_OR_FOREVER), None);
    assert_eq!(code(31).duration(), Some(Duration::from_nanos(4096 << 31)));
    assert!(AckTimeout::code(0).is_err(), "infinite has a name of its own");
    assert!(AckTimeout::code(32).is_err());
}

#[test]
fn f49_each_call_has_its_own_limit_of_private_data() {
    for (max, len) in [
        (PrivateData::MAX_CONNECT, 56),
        (PrivateData::MAX_ACCEPT, 196),
        (PrivateData::MAX_REJECT, 148),
    ] {
        assert_eq!(max, len);
        assert_eq!(ToSend::new(&vec![7; len]).within(max), Ok(&vec![7; len][..]));
        for given in [len + 1, 255, 256, 1 << 20] {
            if given > max {
                let refused = ToSend::new(&vec![7; given]).within(max).map(<[u8]>::len);
                assert_eq!(refused, Err(PrivateDataTooLong { given, max }));
            }
        }
    }
    assert_eq!(ToSend::EMPTY.within(56), Ok(&[][..]));
}

#[test]
fn f48_what_arrives_is_what_was_sent_and_zeros() {
    let mut bytes = [0; 255];
    bytes[..3].copy_from_slice(&[1, 2, 3]);
    let data = PrivateData::received(&bytes, 56);
    assert_eq!(data.as_bytes().len(), 56);
    assert_eq!(data.first(), Some([1, 2, 3, 0]));
    assert_eq!(data.first::<57>(), None);
    assert_eq!(PrivateData::empty().as_bytes(), &[]);
}

#[test]
fn f25_more_reads_than_the_device_has_are_refused_before_it_is_asked() {
    let limits = Limits {
        queue_depth: 1,
        sges: 1,
        read_sges: 1,
        completions: 1,
        reads_in: 16,
        reads_out: 8,
        region_len: 1,
        message: 1,
        packet: 1,
        atomics: Atomics::Device,
        iwarp: false,
        on_demand: false,
    };
    let own = ConnectParams::new().reads_on(limits);
    assert_eq!(own, Ok(ReadDepths { reads_out: 8, reads_in: 16 }), "never zero by accident");
    assert!(ConnectParams::new().reads(9, 1).reads_on(limits).is_err());
    assert!(ConnectParams::new().reads(1, 17).reads_on(limits).is_err());
    let less = ReadDepths { reads_out: 2, reads_in: 200 };
    assert_eq!(own.map(|own| own.min(less)), Ok(ReadDepths { reads_out: 2, reads_in: 16 }));
}

#[test]
fn an_event_of_an_unknown_kind_is_kept_as_it_is() {
    assert_eq!(EventKind::from_raw(9), EventKind::Established);
    assert_eq!(EventKind::from_raw(4711), EventKind::Other(4711));
}

fn event(kind: EventKind, status: i32) -> Event {
    Event { kind, status, private_data: None, reads_in: 0, reads_out: 0, peer: None, request: None }
}

#[test]
fn a_refusal_says_whether_anybody_listens() {
    let peer = addr("10.0.0.1:7471");
    let of = |kind, status| ConnectError::from_event(peer, &event(kind, status));
    assert_eq!(of(EventKind::Rejected, 8), ConnectError::NobodyListens { peer });
    assert_eq!(of(EventKind::Rejected, -111), ConnectError::NobodyListens { peer });
    let refused = ConnectError::Rejected { peer, private_data: None };
    assert_eq!(of(EventKind::Rejected, 28), refused);
    assert_eq!(of(EventKind::Rejected, 10), ConnectError::Refused { peer, reason: 10 });
    assert_eq!(of(EventKind::Unreachable, -110), ConnectError::Unreachable { peer });
    assert_eq!(
        of(EventKind::Rejected, 8).to_string(),
        "nobody listens on 10.0.0.1:7471; start the other side first"
    );
}

#[test]
fn f52_an_address_without_a_device_is_named_and_loopback_is_explained() {
    let loopback = addr("127.0.0.1:7471");
    let text = BindError::NoRdmaDeviceForAddress { addr: loopback }.to_string();
    assert_eq!(
        text,
        "no RDMA device has the address 127.0.0.1; use the address of the RDMA interface itself, \
         also on the same machine"
    );
    let error = CallError::new("rdma_resolve_route", libc::ENODEV);
    let resolved = ResolveError::from_call(loopback, error);
    assert_eq!(resolved.to_string(), text);
    let elsewhere = ResolveError::NoRdmaDeviceForAddress { addr: addr("[2001:db8::7]:1") };
    assert!(elsewhere.to_string().starts_with("no RDMA device leads to 2001:db8::7; "));
}

#[test]
fn what_is_wrong_with_an_address_has_a_name() {
    let addr = addr("10.0.0.1:7471");
    let of = |errno| BindError::from_call(addr, CallError::new("rdma_bind_addr", errno));
    assert_eq!(of(libc::EADDRINUSE), BindError::AddressInUse { addr });
    assert_eq!(of(libc::ENODEV), BindError::NoRdmaDeviceForAddress { addr });
    assert_eq!(of(libc::EADDRNOTAVAIL), BindError::NotOurAddress { addr });
    assert_eq!(of(libc::EACCES), BindError::NotPermitted { addr });
    assert!(of(libc::EADDRINUSE).to_string().starts_with("10.0.0.1:7471 is in use; "));
    assert!(matches!(of(libc::EIO), BindError::Call(_)));
}

#[test]
fn a_listener_moves_between_threads() {
    static_assertions::assert_impl_all!(Listener: Send);
    static_assertions::assert_impl_all!(Request: Send);
    static_assertions::assert_impl_all!(Incoming: Send);
    static_assertions::assert_impl_all!(Route: Send);
    static_assertions::assert_impl_all!(Outgoing: Send);
    static_assertions::assert_impl_all!(Connection: Send, Sync);
    static_assertions::assert_impl_all!(crate::QueuePair: Send, Sync);
    static_assertions::assert_impl_all!(crate::CompletionQueue: Send, Sync);
    static_assertions::assert_impl_all!(crate::Device: Send, Sync);
}
