//! Completion queues and their channels.

use std::sync::Arc;
use std::time::Duration;

use nanoverbs::cm::EventChannel;
use nanoverbs::{
    Arm, ArmRefused, CompletionChannel, CompletionQueue, CompletionQueueError, Device,
    QueuePairError, QueuePairOptions,
};

use crate::connections::route;
use crate::script::Script;

fn device(channel: &EventChannel) -> Arc<Device> {
    Arc::clone(route(1, channel).device())
}

#[test]
fn f36_events_are_acknowledged_once_each_and_on_their_own_queue() {
    let script = Script::new();
    let events = EventChannel::new().expect("a channel");
    let device = device(&events);
    let channel = CompletionChannel::new(&device).expect("a channel");
    let queue = || CompletionQueue::new(&device, 16, Some(&channel)).expect("a queue");
    let (a, b) = (queue(), queue());
    // Two of one, one of the other.
    for at in [0, 1, 0] {
        [&a, &b][at].arm(Arm::Any).expect("it can");
        Script::completes(Script::queue_address(at), false);
    }
    assert_eq!(channel.drain(), Ok(3));
    assert_eq!(channel.drain(), Ok(0));
    // One more of each, which nobody takes: the queues go all the same, and the channel after them.
    for (at, queue) in [a, b].into_iter().enumerate() {
        queue.arm(Arm::Any).expect("it can");
        Script::completes(Script::queue_address(at), false);
    }
    assert_eq!(channel.drain(), Ok(0), "the events of what is gone are gone");
    drop((channel, device, events));
    script.finish();
}

#[test]
fn f33_a_queue_that_takes_sends_is_not_armed_for_solicited_completions() {
    let script = Script::new();
    let events = EventChannel::new().expect("a channel");
    let route = route(1, &events);
    let device = Arc::clone(route.device());
    let channel = CompletionChannel::new(&device).expect("a channel");
    let queue = || CompletionQueue::new(&device, 16, Some(&channel)).expect("a queue");
    let (sends, receives) = (queue(), queue());
    let domain = device.domain().expect("a domain");
    let options = QueuePairOptions::new(4, 4);
    let pair = route.create_queue_pair(&domain, &sends, &receives, options).expect("a pair");
    assert_eq!(sends.arm(Arm::Solicited), Err(ArmRefused::SolicitedWithSends));
    receives.arm(Arm::Solicited).expect("receives alone may be");
    Script::completes(Script::queue_address(1), false);
    assert_eq!(channel.wait(Duration::from_millis(1)), Ok(false));
    Script::completes(Script::queue_address(1), true);
    assert_eq!(channel.wait(Duration::from_secs(20)), Ok(true));
    let plain = CompletionQueue::new(&device, 16, None).expect("a queue");
    assert_eq!(plain.arm(Arm::Any), Err(ArmRefused::NoChannel));
    drop(pair);
    sends.arm(Arm::Solicited).expect("no sends complete there any more");
    drop((sends, receives, plain, channel, domain, device, events));
    script.finish();
}

#[test]
fn f34_a_wait_ends_for_the_event_and_not_for_the_descriptor() {
    let script = Script::new();
    let events = EventChannel::new().expect("a channel");
    let device = device(&events);
    let channel = CompletionChannel::new(&device).expect("a channel");
    let queue = CompletionQueue::new(&device, 16, Some(&channel)).expect("a queue");
    queue.arm(Arm::Any).expect("it can");
    // Five complete; the first raises the one event.
    for _ in 0..5 {
        Script::completes(Script::queue_address(0), false);
    }
    assert_eq!(channel.wait(Duration::from_secs(20)), Ok(true));
    assert_eq!(channel.wait(Duration::from_millis(1)), Ok(false), "nor does it spin");
    drop((queue, channel, device, events));
    script.finish();
}

#[test]
fn f10_the_room_of_a_queue_is_reserved_and_given_back() {
    let script = Script::new();
    let events = EventChannel::new().expect("a channel");
    let device = device(&events);
    let queue = CompletionQueue::new(&device, 12, None).expect("a queue");
    let domain = device.domain().expect("a domain");
    let options = QueuePairOptions::new(4, 4);
    let first = route(1, &events).create_queue_pair(&domain, &queue, &queue, options);
    assert_eq!(queue.free(), 4);
    let refused = route(1, &events).create_queue_pair(&domain, &queue, &queue, options);
    let too_small = QueuePairError::CompletionQueueTooSmall { need: 4, have: 0 };
    assert_eq!(refused.map(drop), Err(too_small));
    assert_eq!(queue.free(), 4, "a refused queue pair holds nothing");
    drop(first.expect("there is room for one"));
    assert_eq!(queue.free(), 12);
    let given = device.limits().completions + 1;
    let refused = CompletionQueue::new(&device, given, None).map(drop);
    assert_eq!(refused, Err(CompletionQueueError::Depth { given, max: given - 1 }));
    drop((queue, domain, device, events));
    script.finish();
}
