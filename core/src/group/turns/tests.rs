extern crate std;
use std::vec::Vec;

use super::*;

#[test]
fn everybody_who_is_ready_is_served_before_anybody_is_served_twice_over() {
    let mut work = [100, 5, 5, 5];
    let mut turns = Turns::<4>::new(2);
    (0..4).for_each(|index| turns.ready(index));
    let mut rounds = 0;
    while work[1..] != [0; 3] {
        let before = work;
        turns.round(|index| {
            let more = work[index] > 0;
            work[index] -= i32::from(more);
            more
        });
        rounds += 1;
        let served = |index: usize| before[index] - work[index];
        assert!(
            (0..4).all(|index| served(index) <= 2 && (served(index) > 0 || before[index] == 0))
        );
    }
    assert_eq!((rounds, turns.waiting()), (3, 1));
}

#[test]
fn a_member_stands_in_line_once_and_not_after_it_was_forgotten() {
    let mut turns = Turns::<2>::new(4);
    (turns.head, turns.tail) = (u32::MAX, u32::MAX);
    for _ in 0..5 {
        for _ in 0..3 {
            turns.ready(0);
            turns.ready(1);
        }
        turns.ready(2);
        assert_eq!(turns.waiting(), 2);
        turns.forget(0);
        let mut served = Vec::new();
        assert_eq!(
            turns.round(|index| {
                served.push(index);
                false
            }),
            0
        );
        assert_eq!(served, [1]);
        assert_eq!(turns.waiting(), 0);
    }
    turns.ready(0);
    turns.forget(0);
    turns.ready(0);
    assert_eq!((turns.waiting(), turns.round(|_| true), turns.waiting()), (1, 4, 1));
}

#[test]
fn a_member_whose_handler_panics_is_still_in_line() {
    let mut turns = Turns::<2>::new(4);
    turns.ready(1);
    let caught = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
        turns.round(|_| panic!("a handler's bug"))
    }));
    assert!(caught.is_err());
    assert_eq!((turns.waiting(), turns.round(|index| index == 0)), (1, 0));
}

#[test]
fn piece_by_piece_everybody_has_the_same_turns_as_in_a_round() {
    for budget in 1..5 {
        let (mut whole, mut pieces) = (Turns::<4>::new(budget), Turns::<4>::new(budget));
        let work = [9, 0, 4, 1];
        let (mut left, mut right) = (work, work);
        for index in 0..4 {
            whole.ready(index);
            pieces.ready(index);
        }
        let (mut expected, mut order) = (Vec::new(), Vec::new());
        while whole.waiting() != 0 {
            whole.round(|index| take(&mut left, index).inspect(|at| expected.push(*at)).is_some());
        }
        while let Some(index) = pieces.next(|index| take(&mut right, index)) {
            order.push(index);
        }
        assert_eq!(order, expected);
        assert_eq!(pieces.waiting(), 0);
    }
}

fn take(work: &mut [u32; 4], index: usize) -> Option<usize> {
    work[index] = work[index].checked_sub(1)?;
    Some(index)
}

#[test]
fn who_left_in_the_middle_of_its_turn_is_passed_over_and_the_next_has_a_whole_one() {
    let mut turns = Turns::<2>::new(2);
    turns.ready(0);
    turns.ready(1);
    assert_eq!(turns.next(Some), Some(0));
    turns.forget(0);
    assert_eq!([turns.next(Some), turns.next(Some)], [Some(1), Some(1)]);
    turns.forget(1);
    assert_eq!(turns.next(Some), None);
    assert_eq!(turns.waiting(), 0);
}
