//! Asynchronous events, and devices that go away.

use std::sync::Arc;

use nanoverbs::Device;
use nanoverbs::cm::{BindError, ConnectionEvent, EventChannel};
use nanoverbs::event::{DeviceEventKind, Subject};
use nanoverbs_core::QpNum;

use crate::connections::{connected, kind};
use crate::script::Script;

const CQ_ERR: u32 = 0;
const QP_FATAL: u32 = 1;
const SQ_DRAINED: u32 = 5;
const LAST_WQE_REACHED: u32 = 16;
const ERROR_STATE: u32 = 6;

#[test]
fn f66_an_event_is_acknowledged_when_it_is_read_and_closes_what_it_is_about() {
    let script = Script::new();
    let channel = EventChannel::new().expect("a channel");
    let (first, _) = connected(1, &channel);
    let (second, _) = connected(1, &channel);
    let device = Arc::clone(first.queue_pair().domain().device());
    let number = Some(QpNum::from_raw(1));
    for (kind, told, has_failed) in [
        (SQ_DRAINED, DeviceEventKind::SendQueueDrained, false),
        (QP_FATAL, DeviceEventKind::QueuePairFatal, true),
    ] {
        Script::async_event(1, kind, Script::queue_pair_address(0));
        let event = device.poll_event().expect("no error").expect("an event");
        assert_eq!((event.kind, event.subject), (told, Subject::QueuePair(number)));
        assert_eq!(first.queue_pair().has_failed(), has_failed);
    }
    assert_eq!(Script::queue_pair_state(0), ERROR_STATE);
    assert_ne!(Script::queue_pair_state(1), ERROR_STATE, "the other goes on");
    // The queues of the second: the third and the fourth that were made.
    Script::async_event(1, CQ_ERR, Script::queue_address(2));
    let event = device.poll_event().expect("no error").expect("an event");
    assert_eq!(event.kind, DeviceEventKind::CompletionQueueError);
    assert!(second.queue_pair().has_failed());
    assert_eq!(Script::queue_pair_state(1), ERROR_STATE);
    drop((first, second, device, channel));
    script.finish();
}

#[test]
fn f66_what_nobody_reads_keeps_nothing_from_going() {
    let script = Script::new();
    let channel = EventChannel::new().expect("a channel");
    let (connection, _) = connected(1, &channel);
    Script::async_event(1, QP_FATAL, Script::queue_pair_address(0));
    Script::async_event(1, CQ_ERR, Script::queue_address(0));
    let device = Arc::clone(connection.queue_pair().domain().device());
    drop(connection);
    // They are about what is gone by now.
    let event = device.poll_event().expect("no error").expect("an event");
    assert_eq!(event.subject, Subject::QueuePair(None));
    assert!(device.poll_event().expect("no error").is_some());
    drop((device, channel));
    script.finish();
}

#[test]
fn a_device_is_found_by_its_address_and_is_the_one_of_its_connections() {
    let script = Script::new();
    let device = Device::at(Script::addr(1, 0).ip()).expect("there is one");
    let channel = EventChannel::new().expect("a channel");
    let (connection, _) = connected(1, &channel);
    assert!(Arc::ptr_eq(&device, connection.queue_pair().domain().device()));
    let nowhere = "10.9.9.9".parse().expect("an address");
    let refused = Device::at(nowhere).map(drop);
    assert!(matches!(refused, Err(BindError::NoRdmaDeviceForAddress { .. })), "{refused:?}");
    drop((connection, device, channel));
    script.finish();
}

#[test]
fn f65_nobody_waits_for_the_last_receive_of_a_queue_pair() {
    let script = Script::new();
    let channel = EventChannel::new().expect("a channel");
    let (connection, _) = connected(1, &channel);
    let device = Arc::clone(connection.queue_pair().domain().device());
    // It never comes on some devices; where it does, it is told and ends nothing.
    Script::async_event(1, LAST_WQE_REACHED, Script::queue_pair_address(0));
    let event = device.poll_event().expect("no error").expect("an event");
    assert_eq!(event.kind, DeviceEventKind::LastReceiveTaken);
    assert!(!connection.queue_pair().has_failed());
    drop((connection, device, channel));
    script.finish();
}

#[test]
fn f62_a_removal_is_told_to_everybody_and_nothing_is_asked_of_the_device_after_it() {
    let script = Script::new();
    let channel = EventChannel::new().expect("a channel");
    let (connection, id) = connected(1, &channel);
    let device = Arc::clone(connection.queue_pair().domain().device());
    assert_eq!(device.poll_event(), Ok(None));
    // The identifier that stands for the device hears of it as well as the connection's, now or later.
    let anchor = Script::last("rdma_bind_addr");
    Script::pull(1);
    Script::event(id, kind::DEVICE_REMOVAL, 0, &[]);
    assert_eq!(connection.poll_event(), Ok(Some(ConnectionEvent::DeviceRemoved)));
    assert!(connection.has_ended());
    assert!(device.is_removed(), "whoever hears of it first tells the device");
    Script::event(anchor, kind::DEVICE_REMOVAL, 0, &[]);
    let asked = Script::asked(1);
    let event = device.poll_event().expect("no error").expect("an event");
    assert_eq!((event.kind, event.subject), (DeviceEventKind::Removed, Subject::Device));
    assert!(device.is_removed() && connection.queue_pair().has_failed());
    assert_eq!(device.poll_event(), Ok(None), "once");
    assert_eq!(Script::asked(1), asked, "a removed device is not asked");
    // Everything that is destroyed from here on says EIO, and goes.
    drop((connection, device, channel));
    script.finish();
}

#[test]
fn f62_a_device_that_says_eio_before_anybody_was_told_counts_as_removed() {
    let script = Script::new();
    let channel = EventChannel::new().expect("a channel");
    let (connection, _) = connected(2, &channel);
    let device = Arc::clone(connection.queue_pair().domain().device());
    Script::pull(2);
    let event = device.poll_event().expect("no error").expect("an event");
    assert_eq!(event.kind, DeviceEventKind::Removed);
    assert!(device.is_removed());
    drop((connection, device, channel));
    script.finish();
}
