use super::*;
use crate::abi::Wc;
use crate::port::PollPort;

/// Has `first` completions, and `late` more from the moment when it is armed.
struct Port {
    first: i32,
    late: i32,
    code: i32,
    armed: Option<bool>,
}

// SAFETY: no queue retires what comes out of it, so nothing is freed on its word.
unsafe impl PollPort for Port {
    fn poll(&mut self, into: &mut [Wc]) -> i32 {
        let count = self.first.min(into.len() as i32);
        self.first -= count;
        count
    }
}

impl ArmPort for Port {
    fn arm(&mut self, solicited_only: bool) -> i32 {
        self.armed = Some(solicited_only);
        self.first += self.late;
        self.code
    }
}

fn completions(first: i32, late: i32, code: i32) -> Completions<Port, 4> {
    Completions::new(Port { first, late, code, armed: None }, 64)
}

#[test]
fn an_empty_queue_is_armed_and_may_be_waited_for() {
    let mut completions = completions(0, 0, 0);
    assert_eq!(completions.arm(true), Ok(Armed::Quiet));
    assert_eq!(completions.port().armed, Some(true));
}

#[test]
fn what_is_there_is_not_waited_for_and_not_lost() {
    let mut completions = completions(3, 0, 0);
    assert_eq!(completions.arm(false), Ok(Armed::Ready));
    assert_eq!(completions.port().armed, None, "there is no need to arm");
    assert_eq!(completions.poll().unwrap().count(), 3);
}

#[test]
fn f32_what_comes_between_poll_and_arm_is_found() {
    let mut completions = completions(0, 2, 0);
    assert_eq!(completions.arm(false), Ok(Armed::Ready));
    assert_eq!(completions.poll().unwrap().count(), 2);
}

#[test]
fn a_refusal_is_told() {
    assert_eq!(completions(0, 0, 22).arm(false), Err(ArmError::Refused { code: 22 }));
    let failed = Err(ArmError::Poll(PollError { code: -5 }));
    assert_eq!(completions(-5, 0, 0).arm(false), failed);
}
