//! The pool: its owner allocates, other threads drop blocks.
//!
//! Mutation notes. What makes the models of this file fail:
//!
//! * the release of the exchange in `PoolRoot::give_back`, relaxed: the owner follows a link before
//!   it is written;
//! * the acquire of the swap in `Pool::allocate`, relaxed: the same, from the other side.
#![cfg(loom)]

use std::ptr::NonNull;

use loom::thread;
use nanoverbs_core::{
    Access, BlockHeader, Domain, LKey, Pool, PoolRoot, RKey, Region, Registration,
};
use nanoverbs_loom_tests::{model, take};

fn pool(blocks: usize) -> Pool {
    let memory: &'static mut [u8] = Box::leak(vec![0; blocks * 8].into_boxed_slice());
    let registration = Registration {
        addr: NonNull::from(&mut *memory).cast(),
        len: memory.len(),
        lkey: LKey::from_raw(1),
        rkey: RKey::from_raw(0),
        access: Access::LOCAL_WRITE,
        domain: Domain::from_raw(1),
    };
    // SAFETY: the memory is leaked, and nobody else has it.
    let region = unsafe { Region::from_raw(registration) };
    let headers: Vec<_> = (0..blocks).map(|_| BlockHeader::new()).collect();
    let root = Box::leak(Box::new(PoolRoot::new()));
    Pool::new(root, Box::leak(headers.into_boxed_slice()), region, 8).unwrap()
}

#[test]
fn a_block_dropped_elsewhere_is_allocated_again() {
    model(|| {
        let mut pool = pool(1);
        let mut block = pool.allocate().unwrap();
        let other = thread::spawn(move || {
            block.fill(7);
            drop(block);
        });
        let again = take(1, || pool.allocate());
        assert!(again[0].iter().all(|&byte| byte == 7), "what the last holder wrote is there");
        assert!(pool.allocate().is_none());
        other.join().unwrap();
    });
}

#[test]
fn blocks_dropped_on_two_threads_all_come_back() {
    model(|| {
        let mut pool = pool(3);
        let (a, b, c) =
            (pool.allocate().unwrap(), pool.allocate().unwrap(), pool.allocate().unwrap());
        let other = thread::spawn(move || {
            drop(a);
            drop(b);
        });
        drop(c);
        let mut all = take(3, || pool.allocate());
        for (at, block) in all.iter_mut().enumerate() {
            block.fill(at as u8);
        }
        for (at, block) in all.iter().enumerate() {
            assert!(block.iter().all(|&byte| byte == at as u8), "two blocks share memory");
        }
        assert!(pool.allocate().is_none());
        other.join().unwrap();
    });
}

#[test]
fn closing_beside_a_drop_gives_the_storage_back_or_counts_what_is_out() {
    model(|| {
        let mut pool = pool(2);
        let (a, b) = (pool.allocate().unwrap(), pool.allocate().unwrap());
        let other = thread::spawn(move || {
            drop(a);
            drop(b);
        });
        let closed = pool.close();
        other.join().unwrap();
        if let Err(still) = closed {
            assert!(still.out == 1 || still.out == 2);
            let (_, headers, _) = still.pool.close().unwrap();
            assert_eq!(headers.len(), 2);
        }
    });
}
