//! Waiters for a future instant (invariant 4).

use std::time::Duration;

use super::listed;

#[test]
fn a13_cancelled_waiter_leaves_no_timer() {
    let mut t = listed(&["c"]);
    let before = t.machine.clone();
    let day = Duration::from_secs(24 * 3600);
    let after = |n: u64| t.now().after(day).after(Duration::from_millis(n));
    let instants: Vec<_> = (0..100).map(after).collect();
    for after in instants {
        let waiter = t.wait("p", after);
        t.machine.cancel(waiter);
    }
    assert_eq!(t.machine.poll_timeout(), before.poll_timeout());
    assert_eq!(format!("{:?}", t.machine), format!("{before:?}"));
}

#[test]
fn a13_waiter_for_a_future_instant_is_not_failed_by_an_earlier_read() {
    let mut t = listed(&[]);
    let waiter = t.wait("p", t.now().after(Duration::from_secs(30)));
    t.request_relist("p");
    t.inspection_fails(&[]);
    assert!(t.answer_of(waiter).is_none());
}

#[test]
fn cancelled_waiter_leaves_the_timer_of_another_for_the_same_instant() {
    let mut t = listed(&["c"]);
    let after = t.now().after(Duration::from_secs(30));
    let cancelled = t.wait("p", after);
    let waiter = t.wait("p", after);
    t.machine.cancel(cancelled);
    t.pass(30_000);
    assert_eq!(t.inspection_wanted(), Some(&"p".into()));
    t.settle();
    assert!(t.answer_of(waiter).is_some());
}
