use nanoverbs_core::Access;

use super::*;

#[test]
fn pages_are_whole_aligned_zeroed_and_ours() {
    let mut pages = Pages::new(1).expect("a page");
    assert_eq!(pages.len() % 4096, 0);
    assert_eq!(pages.addr().addr().get() % 4096, 0);
    assert!(pages.as_slice().iter().all(|&byte| byte == 0));
    pages.as_mut_slice()[4095] = 7;
    let (addr, len) = pages.into_raw();
    // SAFETY: they were just given up.
    let again = unsafe { Pages::from_raw(addr, len) };
    assert_eq!(again.as_slice()[4095], 7);
}

#[test]
fn a_length_that_cannot_be_is_refused() {
    assert!(matches!(Pages::new(0), Err(PagesError::Length { len: 0 })));
    assert!(matches!(Pages::new(usize::MAX), Err(PagesError::Length { .. })));
    assert!(matches!(PagesOptions::new().huge().map(usize::MAX), Err(PagesError::Length { .. })));
}

#[test]
fn f70_too_little_locked_memory_names_the_limit() {
    let text = PagesError::LockedMemoryLimit { bytes: 131_072, limit: Some(65_536) }.to_string();
    assert_eq!(
        text,
        "131072 bytes cannot be locked: this process may lock 65536 bytes in all; raise the limit \
         (ulimit -l, or memlock in limits.conf)"
    );
}

#[test]
fn f71_huge_pages_are_had_or_refused_never_replaced() {
    match PagesOptions::new().huge().map(1) {
        Ok(pages) => {
            assert_eq!(pages.len(), 2 << 20);
            assert_eq!(pages.addr().addr().get() % (2 << 20), 0);
        }
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains("1 huge pages of 2 MiB cannot be had"), "{text}");
            assert!(text.contains("/proc/sys/vm/nr_hugepages"), "{text}");
        }
    }
}

#[test]
fn f20_rights_become_flags_that_a_device_accepts() {
    let local = Access::LOCAL_WRITE;
    assert_eq!(Rights::MESSAGES.access(false), local);
    assert_eq!(Rights::READ_SOURCE.access(false), local.with(Access::REMOTE_READ));
    assert_eq!(Rights::WRITE_TARGET.access(false), local.with(Access::REMOTE_WRITE));
    assert_eq!(Rights::ATOMIC_TARGET.access(false), local.with(Access::REMOTE_ATOMIC));
    let both = Rights::READ_SOURCE.and(Rights::WRITE_TARGET);
    assert_eq!(both.access(false), local.with(Access::REMOTE_READ).with(Access::REMOTE_WRITE));
}

#[test]
fn f20_on_iwarp_the_sink_of_a_read_is_writable_from_afar() {
    assert_eq!(Rights::READ_SINK.access(false), Access::LOCAL_WRITE);
    assert!(Rights::READ_SINK.access(true).has(Access::REMOTE_WRITE));
    assert!(!Rights::MESSAGES.access(true).is_remote());
}
