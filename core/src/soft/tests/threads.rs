//! Two threads on one device: whoever polls drives it.

use super::bed::*;
use super::std::thread;
use crate::abi::{Sge, Wc, opcode};
use crate::port::PollPort;
use crate::soft::Profile;

const ROUNDS: u64 = if cfg!(miri) { 30 } else { 20_000 };

/// An SGE has a pointer in it, so it does not cross to another thread by itself.
struct Crossing<T>(T);
// SAFETY: the memory behind it is not tied to a thread.
unsafe impl<T> Send for Crossing<T> {}

impl<T> Crossing<T> {
    fn get(self) -> T {
        self.0
    }
}

fn poll_or_yield(queue: &mut Queue<'_>, into: &mut [Wc]) -> usize {
    let count = queue.poll(into);
    assert!(count >= 0);
    if count == 0 {
        thread::yield_now();
    }
    count as usize
}

/// One player: sends a ball when it is its turn, and checks each that comes.
fn play(mut is_my_turn: bool, list: [Sge; 2], qp: &mut Qp<'_>, queue: &mut Queue<'_>) {
    let [out, into] = list.map(|sge| [sge]);
    let mut wcs = [Wc::EMPTY; 4];
    assert_eq!(post_recv(&mut qp.recv, &mut [recv_wr(0, &into)]).0, 0);
    let (mut sent, mut ended, mut received) = (0, 0, 0);
    while ended < ROUNDS || received < ROUNDS {
        if is_my_turn && sent < ROUNDS && sent == ended {
            // SAFETY: the block is not in flight: its last send has ended.
            unsafe { out[0].addr.pointer().write_bytes(sent as u8, 64) };
            let wr = send_wr(1, opcode::SEND, &out, SIGNALED);
            assert_eq!(post(&mut qp.send, &mut [wr]).0, 0);
            sent += 1;
            is_my_turn = false;
        }
        let count = poll_or_yield(queue, &mut wcs);
        for wc in &wcs[..count] {
            assert_eq!(wc.status, 0);
            if wc.wr_id == 1 {
                ended += 1;
                continue;
            }
            // SAFETY: the block was received into and is not in flight.
            let byte = unsafe { into[0].addr.pointer().add(63).read() };
            assert_eq!(byte, received as u8);
            received += 1;
            is_my_turn = true;
            assert_eq!(post_recv(&mut qp.recv, &mut [recv_wr(0, &into)]).0, 0);
        }
    }
}

#[test]
fn two_threads_play_ping_pong() {
    let device = device(Profile::STRICT);
    let Bed { mut a, mut b, mut at_a, mut at_b, region, .. } = Bed::new(&device);
    let sge = |offset| piece(region.slice(offset, 64).unwrap());
    let ping = [sge(0), sge(64)];
    let pong = Crossing([sge(128), sge(192)]);
    thread::scope(|scope| {
        scope.spawn(|| play(false, pong.get(), &mut b, &mut at_b));
        play(true, ping, &mut a, &mut at_a);
    });
}

#[test]
fn one_thread_posts_and_another_polls() {
    for profile in [Profile::STRICT, Profile::rxe()] {
        let device = device(profile);
        let Bed { mut a, b, mut at_a, mut at_b, region, .. } = Bed::new(&device);
        let out = Crossing([piece(region.slice(0, 8).unwrap())]);
        let into = [piece(region.slice(2048, 8).unwrap())];
        let mut b_recv = b.recv;
        thread::scope(|scope| {
            scope.spawn(|| {
                let out = out.get();
                let mut id = 0;
                while id < ROUNDS {
                    let flags = if id % 4 == 3 { SIGNALED } else { 0 };
                    let wr = send_wr(id, opcode::SEND, &out, flags);
                    match post(&mut a.send, &mut [wr]).0 {
                        0 => id += 1,
                        code => {
                            assert_eq!(code, 12);
                            thread::yield_now();
                        }
                    }
                }
            });
            let (mut posted, mut arrived, mut ended) = (0, 0, 0);
            let mut wcs = [Wc::EMPTY; 8];
            while arrived < ROUNDS || ended < ROUNDS / 4 {
                while posted < ROUNDS && posted < arrived + 4 {
                    assert_eq!(post_recv(&mut b_recv, &mut [recv_wr(posted, &into)]).0, 0);
                    posted += 1;
                }
                let count = poll_or_yield(&mut at_b, &mut wcs);
                for wc in &wcs[..count] {
                    assert_eq!((wc.wr_id, wc.status), (arrived, 0));
                    arrived += 1;
                }
                let count = poll_or_yield(&mut at_a, &mut wcs);
                for wc in &wcs[..count] {
                    assert_eq!((wc.wr_id, wc.status), (ended * 4 + 3, 0));
                    ended += 1;
                }
            }
        });
    }
}

#[test]
fn a_program_may_look_at_shared_memory_while_a_peer_writes_it() {
    let device = device(Profile::STRICT);
    let mut bed = Bed::new(&device);
    let there = bed.shared(4);
    let to = remote(&there, 0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut bytes = [0; 32];
            for _ in 0..ROUNDS {
                there.read_at(0, &mut bytes).unwrap();
                assert!(bytes.iter().all(|&byte| byte <= 1));
                there.write_at(29, &[1]).unwrap();
            }
        });
        let list = [bed.sge(0, 31)];
        for id in 0..ROUNDS {
            let wr = rdma_wr(id, opcode::RDMA_WRITE, &list, to);
            post(&mut bed.a.send, &mut [wr]);
            assert_eq!(bed.ids_and_statuses_at_a(), [(id, 0)]);
        }
    });
}

#[test]
fn a_queue_pair_may_be_destroyed_while_others_drive() {
    let device = device(Profile::STRICT);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for round in 0..ROUNDS / 10 {
                    let domain = device.domain();
                    let mut queue = device.completion_queue(8).unwrap();
                    let config = crate::soft::QpConfig::new(domain);
                    let mut qp = device.queue_pair(config, &queue, &queue).unwrap();
                    qp.control.connect(&qp.control).unwrap();
                    post_recv(&mut qp.recv, &mut [recv_wr(round, &[])]);
                    post(&mut qp.send, &mut [send_wr(round, opcode::SEND, &[], SIGNALED)]);
                    let mut wcs = [Wc::EMPTY; 8];
                    let mut count = 0;
                    while count < 2 {
                        count += poll_or_yield(&mut queue, &mut wcs);
                    }
                }
            });
        }
    });
}
