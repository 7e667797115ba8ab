//! Hubs on the soft device: many peers on one completion queue, without hardware.

mod ends;
mod members;
mod model;
mod serve;
mod work;

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nanoverbs::Deadline;
use nanoverbs::endpoint::{
    Endpoint, EndpointError, Options, PostError, ReceiveError, Refusal, Side, Soft, SoftDevice,
    WaitError,
};
use nanoverbs::hub::{AdmitError, Door, Event, Hub, HubError, Key, NotAMember};
use nanoverbs::memory::Rights;
use nanoverbs::poller::{End, Host, IdlePolicy, Poller, Serve};
use nanoverbs_core::{
    Block, Ended, JoinError, Outcome, PollError, RemoteRegion, ReserveError, leaked_contexts, op,
};

const PATIENCE: Duration = Duration::from_secs(60);

fn soon() -> Deadline {
    Deadline::after(PATIENCE)
}

/// A device with room for so many queue pairs, which a stack has not.
macro_rules! device {
    ($qps:literal) => {{
        static DEVICE: SoftDevice<$qps> = SoftDevice::new();
        &DEVICE
    }};
}
use device;

type Client<const QPS: usize> = Endpoint<Soft<QPS>, Block>;

/// A connected client with receives posted; the hub has yet to accept it.
fn client<const QPS: usize>(door: &Door<QPS>, receives: usize) -> Client<QPS> {
    let options = Options::new().depth(16, 16).blocks(32, 64);
    door.connect(options).unwrap().receives(receives).unwrap().establish(soon()).unwrap()
}

/// Accepts whoever asks, with `receives` posted for each; the keys in the order in which they asked.
fn accept<C, const QPS: usize, const N: usize>(
    hub: &mut Hub<Soft<QPS>, C, N>,
    receives: usize,
) -> Vec<Key>
where
    C: nanoverbs_core::RecvBuffers + From<Block>,
{
    let mut keys = Vec::new();
    while let Some(event) = hub.poll_event().unwrap() {
        match event {
            Event::Request(request) => {
                let ready = hub.accept(request).unwrap().receives(receives).unwrap();
                keys.push(ready.start().unwrap());
            }
            Event::Established(key) => assert!(keys.contains(&key)),
            other => panic!("{other:?}"),
        }
    }
    keys
}

/// All outcomes that there are.
fn outcomes<C: 'static, const QPS: usize, const N: usize>(
    hub: &mut Hub<Soft<QPS>, C, N>,
) -> Vec<(Key, Side, Ended<C>)> {
    let mut all = Vec::new();
    while hub.poll().unwrap() > 0 {}
    while let Some(outcome) = hub.next_ended() {
        all.push(outcome);
    }
    all
}

fn say<const QPS: usize>(client: &mut Client<QPS>, word: u32) {
    let mut block = client.block().unwrap();
    block.set_len(4).unwrap();
    block.copy_from_slice(&word.to_le_bytes());
    client.post_send(block).unwrap();
}

fn word(block: &[u8]) -> u32 {
    u32::from_le_bytes(*block.first_chunk().unwrap())
}

/// Every block of a hub, which has none out.
fn all_blocks<const QPS: usize, const N: usize>(hub: &mut Hub<Soft<QPS>, Block, N>, count: usize) {
    let blocks: Vec<_> = std::iter::from_fn(|| hub.block()).collect();
    assert_eq!(blocks.len(), count, "every block is back");
}
