//! The core's public calls by themselves, for people who change them: `cargo bench -p nanoverbs-benches`, and
//! again after the change. Beside C it is measured by `make bench`.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use nanoverbs_benches::soft::Loop;
use nanoverbs_core::soft::Device;
use nanoverbs_core::{
    Access, BlockHeader, Counters, Doorbell, Pool, Recorder, RemoteRegion, Ring, SharedRegion,
};

/// A message there, on the soft device: allocate, receive, send, poll, retire, take, free.
fn messages(c: &mut Criterion) {
    let mut ends = Loop::new().expect("the soft device refuses nothing here");
    let mut group = c.benchmark_group("message");
    group.throughput(Throughput::Elements(16));
    for n in [1, 4, 16] {
        group.bench_function(format!("chains of {n}"), |b| b.iter(|| ends.run(16, n)));
    }
    group.finish();
}

fn pool(c: &mut Criterion) {
    static DEVICE: Device<1, 64> = Device::new();
    let memory = Box::leak(vec![0_u8; 64 * 64].into_boxed_slice());
    let region = DEVICE.register(DEVICE.domain(), memory).expect("there is room");
    let headers = Box::leak((0..64).map(|_| BlockHeader::new()).collect());
    let mut pool = Pool::new(Box::leak(Box::default()), headers, region, 64).expect("they fit");
    c.bench_function("pool, allocate and free", |b| {
        b.iter(|| {
            let block = pool.allocate().expect("all are free");
            pool.free(black_box(block));
        });
    });
    c.bench_function("pool, allocate and drop", |b| {
        b.iter(|| drop(black_box(pool.allocate().expect("what was dropped comes back"))));
    });
}

fn ring(c: &mut Criterion) {
    let mut ring = Box::new(Ring::<u64, 64>::new());
    let (mut producer, mut consumer) = ring.split();
    c.bench_function("ring, push and pop", |b| {
        b.iter(|| {
            let _ = producer.push(black_box(7));
            consumer.pop()
        });
    });
    c.bench_function("ring, 16 at once", |b| {
        b.iter(|| {
            let mut grant = producer.reserve(16).expect("it is empty");
            for item in 0..16 {
                let _ = grant.write(black_box(item));
            }
            grant.commit();
            consumer.drain(16).sum::<u64>()
        });
    });
}

/// What a poller does once a turn.
fn signals(c: &mut Criterion) {
    let (bell, counters) = (Doorbell::new(), Counters::new());
    let mut recorder = Recorder::<32>::new();
    c.bench_function("doorbell, nobody sleeps", |b| b.iter(|| bell.ring()));
    c.bench_function("counters, a turn", |b| {
        b.iter(|| {
            counters.polled(black_box(3));
            counters.turned(black_box(250));
        });
    });
    c.bench_function("recorder", |b| b.iter(|| recorder.record(black_box(1234))));
}

/// Bytes in and out of memory that a peer may reach.
fn shared_memory(c: &mut Criterion) {
    static DEVICE: Device<1, 64> = Device::new();
    let memory = Box::leak(vec![0_u64; 512].into_boxed_slice());
    let rights = Access::LOCAL_WRITE.with(Access::REMOTE_WRITE);
    let region: SharedRegion =
        DEVICE.register_shared(DEVICE.domain(), memory, rights).expect("there is room");
    let mut group = c.benchmark_group("shared memory");
    for len in [64, 4096] {
        let mut bytes = vec![1_u8; len];
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_function(format!("{len} bytes in"), |b| b.iter(|| region.write_at(0, &bytes)));
        group.bench_function(format!("{len} bytes out"), |b| {
            b.iter(|| region.read_at(0, &mut bytes))
        });
    }
    group.finish();
    let advertised: RemoteRegion = region.advertise();
    c.bench_function("advertised region, to the wire and back", |b| {
        b.iter(|| RemoteRegion::from_wire(black_box(&advertised.to_wire())));
    });
}

criterion_group!(benches, messages, pool, ring, signals, shared_memory);
criterion_main!(benches);
