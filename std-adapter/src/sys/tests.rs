use std::io;

use super::convert::{CallError, errno, minus_one};

fn set_errno(value: i32) {
    // SAFETY: the calling thread's own errno.
    unsafe { *libc::__errno_location() = value };
}

#[test]
fn minus_one_means_errno() {
    set_errno(libc::ENODEV);
    assert_eq!(minus_one("rdma_x", -1), Err(CallError::new("rdma_x", libc::ENODEV)));
    assert_eq!(minus_one("rdma_x", 0), Ok(()));
}

#[test]
fn a_failure_that_forgot_its_errno_is_an_io_error_not_success() {
    set_errno(0);
    assert_eq!(errno(), libc::EIO);
}

#[test]
fn an_error_names_the_call_and_the_cause() {
    let error = CallError::new("ibv_create_cq", libc::EINVAL);
    assert_eq!(error.to_string(), "ibv_create_cq failed: Invalid argument (os error 22)");
    assert_eq!((error.call(), error.errno()), ("ibv_create_cq", 22));
    assert_eq!(io::Error::from(error).raw_os_error(), Some(22));
}

#[test]
fn an_error_says_what_would_help_where_that_is_known() {
    let cases = [
        ("rdma_create_event_channel", libc::ENODEV, "rdma_ucm"),
        ("rdma_create_event_channel", libc::EACCES, "/dev/infiniband"),
        ("ibv_create_cq", libc::ENOMEM, "ulimit -l"),
        ("ibv_create_comp_channel", libc::EMFILE, "ulimit -n"),
    ];
    for (call, errno, help) in cases {
        let text = CallError::new(call, errno).to_string();
        assert!(text.contains(help), "{text}");
    }
}

#[cfg(feature = "librdmacm")]
mod with_verbs {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
    use std::slice;

    use super::set_errno;
    use crate::sys::address::{self, RawAddress};
    use crate::sys::convert::{count, non_null, normal, zero_or_errno};

    #[test]
    fn f09_every_way_to_return_an_error_number_is_understood() {
        set_errno(libc::ENOMEM);
        for ret in [12, -12, -1] {
            assert_eq!(zero_or_errno("ibv_x", ret).map_err(|e| e.errno()), Err(12), "{ret}");
        }
        assert_eq!((normal(22), normal(-22)), (22, 22));
        assert_eq!(normal(i32::MIN), libc::EIO);
        assert_eq!(zero_or_errno("ibv_x", 0), Ok(()));
    }

    #[test]
    fn a_count_is_a_count_and_a_negative_number_an_error() {
        assert_eq!(count("poll", 3), Ok(3));
        assert_eq!(count("poll", 0), Ok(0));
        set_errno(libc::EINTR);
        assert_eq!(count("poll", -1).map_err(|e| e.errno()), Err(libc::EINTR));
        assert_eq!(count("ibv_poll_cq", -12).map_err(|e| e.errno()), Err(12));
        assert_eq!(count("ibv_poll_cq", i32::MIN).map_err(|e| e.errno()), Err(libc::EIO));
    }

    #[test]
    fn null_means_errno() {
        set_errno(libc::EMFILE);
        let null = non_null("ibv_x", std::ptr::null_mut::<u8>());
        assert_eq!(null.map_err(|e| e.errno()), Err(libc::EMFILE));
        let mut byte = 0_u8;
        assert!(non_null("ibv_x", &raw mut byte).is_ok());
    }

    fn bytes_of(addr: SocketAddr, len: usize) -> Vec<u8> {
        let mut raw = RawAddress::new(addr);
        let first = raw.as_mut_ptr().cast::<u8>();
        // SAFETY: an address is longer than `len` and was zeroed before it was filled.
        unsafe { slice::from_raw_parts(first, len) }.to_vec()
    }

    fn back(addr: SocketAddr) -> Option<SocketAddr> {
        let mut raw = RawAddress::new(addr);
        // SAFETY: the pointer is that of a whole storage.
        unsafe { address::read(raw.as_mut_ptr().cast()) }
    }

    #[test]
    fn f54_an_ipv4_address_has_its_bytes_in_the_order_of_the_wire() {
        let addr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 7471);
        let family = (libc::AF_INET as u16).to_ne_bytes();
        let wire = [0x1d, 0x2f, 0x0a, 0x00, 0x00, 0x01, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(bytes_of(addr, 16), [&family[..], &wire].concat());
        assert_eq!(back(addr), Some(addr));
    }

    #[test]
    fn f54_an_ipv6_address_keeps_its_scope() {
        let ip: Ipv6Addr = "fe80::1:2".parse().expect("an address");
        let addr = SocketAddr::V6(SocketAddrV6::new(ip, 7471, 0x0102_0304, 5));
        let family = (libc::AF_INET6 as u16).to_ne_bytes();
        let mut expected = [&family[..], &[0x1d, 0x2f, 1, 2, 3, 4]].concat();
        expected.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2]);
        expected.extend(5_u32.to_ne_bytes());
        assert_eq!(bytes_of(addr, 28), expected);
        assert_eq!(back(addr), Some(addr));
    }

    #[test]
    fn an_address_of_another_family_is_none() {
        let mut raw = RawAddress::new(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 1));
        // SAFETY: the pointer is that of a whole storage.
        unsafe { (*raw.as_mut_ptr()).sa_family = 27 };
        // SAFETY: as above.
        assert_eq!(unsafe { address::read(raw.as_mut_ptr().cast()) }, None);
    }
}
