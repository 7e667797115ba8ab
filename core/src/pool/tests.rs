extern crate std;
use std::boxed::Box;
use std::vec::Vec;

use super::*;
use crate::abi::{Access, LKey, RKey};
use crate::region::{Domain, Registration};

fn pool(blocks: usize, block_len: usize) -> Pool {
    let memory: &'static mut [u8] = Box::leak(std::vec![0; blocks * block_len].into_boxed_slice());
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
    Pool::new(Box::leak(Box::default()), Box::leak(headers.into_boxed_slice()), region, block_len)
        .unwrap()
}

#[test]
fn blocks_do_not_overlap_and_come_back_when_dropped() {
    let mut pool = pool(4, 16);
    for round in 0..3_u8 {
        let mut blocks: Vec<_> = core::iter::from_fn(|| pool.allocate()).collect();
        assert_eq!(blocks.len(), 4);
        for (at, block) in blocks.iter_mut().enumerate() {
            block.set_len(16).unwrap();
            block.fill(at as u8 + round);
        }
        for (at, block) in blocks.iter().enumerate() {
            assert!(block.iter().all(|&byte| byte == at as u8 + round));
        }
    }
}

#[test]
fn a_length_past_the_capacity_is_refused() {
    let mut block = pool(1, 16).allocate().unwrap();
    assert!(block.set_len(17).is_err());
    assert_eq!((block.len(), block.capacity()), (16, 16));
    block.set_len(3).unwrap();
    assert_eq!((block.len(), block.capacity()), (3, 16));
}

#[test]
fn closing_says_how_many_blocks_are_out_and_works_once_they_are_back() {
    let mut pool = pool(4, 16);
    let held = (pool.allocate().unwrap(), pool.allocate().unwrap());
    let StillOut { pool, out } = pool.close().unwrap_err();
    assert_eq!(out, 2);
    drop(held);
    let (_, headers, region) = pool.close().unwrap();
    assert_eq!((headers.len(), region.registration().len), (4, 64));
}

#[test]
fn a_region_that_is_too_short_comes_back() {
    let region = pool(1, 64).close().unwrap().2;
    let headers: Vec<_> = (0..3).map(|_| BlockHeader::new()).collect();
    let headers = Box::leak(headers.into_boxed_slice());
    let error = Pool::new(Box::leak(Box::default()), headers, region, 30).unwrap_err();
    assert_eq!(error.cause.offset, 60);
}

#[test]
fn blocks_dropped_on_another_thread_are_allocated_again_on_the_owners() {
    let mut pool = pool(3, 16);
    for _ in 0..if cfg!(miri) { 10 } else { 50 } {
        let blocks: Vec<_> = core::iter::from_fn(|| pool.allocate()).collect();
        assert_eq!(blocks.len(), 3);
        std::thread::scope(|scope| {
            for block in blocks {
                scope.spawn(move || drop(block));
            }
        });
    }
}

#[test]
fn a_block_is_as_long_as_it_can_be_when_it_is_allocated_and_when_it_is_received_into() {
    let mut pool = pool(1, 16);
    for back in [drop as fn(Block), |block| drop((block,))] {
        let mut block = pool.allocate().unwrap();
        assert_eq!(block.len(), 16);
        block.set_len(2).unwrap();
        back(block);
    }
    let mut block = pool.allocate().unwrap();
    block.set_len(2).unwrap();
    pool.free(block);
    let mut block = pool.allocate().unwrap();
    assert_eq!(block.len(), 16, "also when the pool was given it back");
    block.set_len(2).unwrap();
    let domain = block.slice().tag;
    block.scatter(&mut SliceList::inspector(domain, crate::region::Wanted::SINK));
    assert_eq!(block.len(), 16, "a message of any length may come");
}

#[test]
fn whatever_holds_a_block_passes_its_length_on_to_a_read() {
    fn totals(mut context: impl RecvBuffers, tag: crate::region::Tag) -> [u64; 3] {
        let list = || SliceList::inspector(tag, crate::region::Wanted::SINK);
        let (mut exact, mut whole, mut after) = (list(), list(), list());
        context.scatter_exact(&mut exact);
        context.scatter(&mut whole);
        // What was received into may be read into as it is.
        context.scatter_exact(&mut after);
        [exact.total(), whole.total(), after.total()]
    }
    let mut pool = pool(1, 16);
    let mut block = || {
        let mut block = pool.allocate().unwrap();
        block.set_len(5).unwrap();
        block
    };
    let tag = block().slice().tag;
    assert_eq!(totals(block(), tag), [5, 16, 16]);
    assert_eq!(totals((block(), 1), tag), [5, 16, 16]);
    assert_eq!(totals(crate::Tagged { buffers: block(), tag: 1 }, tag), [5, 16, 16]);
    assert_eq!(totals([block()], tag), [5, 16, 16]);
    assert_eq!(totals(Some(block()), tag), [5, 16, 16]);
    assert_eq!(totals(heapless::Vec::<_, 2>::from_iter([block()]), tag), [5, 16, 16]);
    assert_eq!(totals(crate::Part::new(block(), 7).ok(), tag), [7, 7, 7]);
}
