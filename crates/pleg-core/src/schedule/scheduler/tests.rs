use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn scheduler(most_overdue: usize) -> InspectionScheduler {
    InspectionScheduler::new(Lanes {
        slots: 1,
        retry_slots: 1,
        slot_time: SECOND / 4,
        most_overdue,
        backoff_first: SECOND,
        backoff_most: 4 * SECOND,
    })
}

fn at(seconds: u64) -> Instant {
    Instant::from_origin(Duration::from_secs(seconds))
}

#[test]
fn one_pod_has_one_in_flight_and_one_queued() {
    let (mut scheduler, p) = (scheduler(1), PodUid::from("p"));
    assert!(scheduler.is_idle() && !scheduler.owes(&p));
    assert_eq!(scheduler.request_inspection(&p, Cause::Changed), None);
    assert!(!scheduler.is_idle() && scheduler.owes(&p) && scheduler.can_start());
    assert_eq!(scheduler.in_flight(&p), None);
    let start = scheduler.start(Ticket(1), at(1)).map(|s| s.uid);
    assert_eq!((start, scheduler.can_start()), (Some(p.clone()), false));
    assert_eq!(scheduler.in_flight(&p), Some((Ticket(1), at(1))));
    assert!(scheduler.is_in_flight(Ticket(1)) && !scheduler.is_idle());
    scheduler.request_inspection(&p, Cause::Waiter);
    assert_eq!(scheduler.start(Ticket(2), at(1)), None);
    let finished = scheduler
        .finish(Ticket(1), Outcome::Complete, true, at(2))
        .map(|(l, _)| l.causes);
    assert!(finished.is_some_and(|c| c.contains(Cause::Changed) && !c.contains(Cause::Waiter)));
    assert!(scheduler.can_start() && scheduler.owes(&p));
    assert!(scheduler.start(Ticket(2), at(2)).is_some());
    scheduler.finish(Ticket(2), Outcome::Complete, true, at(3));
    assert!(scheduler.is_idle() && !scheduler.owes(&p));
    assert_eq!(
        scheduler.finish(Ticket(2), Outcome::Complete, true, at(3)),
        None
    );
}

#[test]
fn a_failing_pod_waits_out_a_backoff_unless_somebody_asks() {
    let (mut scheduler, p) = (scheduler(1), PodUid::from("p"));
    let mut retry_at = Vec::new();
    for (n, due) in [0, 1, 3, 7].into_iter().enumerate() {
        let ticket = Ticket(n as u64);
        scheduler.request_inspection(&p, Cause::Retry);
        assert!(scheduler.start(ticket, at(due)).is_some());
        let finished = scheduler.finish(ticket, Outcome::ListFailed, true, at(due));
        retry_at.push(finished.and_then(|(_, retry_at)| retry_at));
    }
    assert_eq!(retry_at, [1, 3, 7, 11].map(|s| Some(at(s))));
    assert!(scheduler.is_failing(&p) && !scheduler.is_failing(&"q".into()));
    assert_eq!(scheduler.failing_pods().count(), 1);
    let put_off = scheduler.request_inspection(&p, Cause::Changed);
    assert_eq!(put_off, Some(at(11)));
    assert!(!scheduler.can_start());
    assert!(!scheduler.is_to_be_retried(&p, at(10)) && scheduler.is_to_be_retried(&p, at(11)));
    scheduler.request_inspection(&p, Cause::Waiter);
    assert!(scheduler.start(Ticket(8), at(8)).is_some());
    let failed_again = scheduler.finish(Ticket(8), Outcome::ListFailed, true, at(8));
    assert_eq!(
        failed_again.and_then(|(_, retry_at)| retry_at),
        Some(at(11))
    );
    scheduler.request_inspection(&p, Cause::Waiter);
    assert!(scheduler.start(Ticket(9), at(9)).is_some());
    scheduler.finish(Ticket(9), Outcome::Complete, true, at(9));
    assert!(!scheduler.is_failing(&p));
    assert_eq!(
        (scheduler.failing_pods().count(), scheduler.is_idle()),
        (0, true)
    );
    assert_eq!(
        (scheduler.backoff(), scheduler.slot_time()),
        ((SECOND, 4 * SECOND), SECOND / 4)
    );
}

#[test]
fn a_failing_status_does_not_put_off_the_rest_of_its_pod() {
    let (mut scheduler, p) = (scheduler(1), PodUid::from("p"));
    scheduler.request_inspection(&p, Cause::Changed);
    assert!(scheduler.start(Ticket(1), at(0)).is_some());
    scheduler.finish(Ticket(1), Outcome::StatusFailed, true, at(0));
    assert!(scheduler.is_failing(&p) && !scheduler.may_be_retried(&p, at(0)));
    assert_eq!(scheduler.request_inspection(&p, Cause::Changed), None);
    assert!(scheduler.start(Ticket(2), at(0)).is_some());
    scheduler.finish(Ticket(2), Outcome::NotRepeated, true, at(0));
    assert!(scheduler.is_failing(&p), "it was not read again");
    assert!(scheduler.is_to_be_retried(&p, at(1)));
}

#[test]
fn backoff_cleared_during_an_inspection_repeats_the_failed_status() {
    let (mut scheduler, p) = (scheduler(1), PodUid::from("p"));
    scheduler.request_inspection(&p, Cause::Changed);
    assert!(scheduler.start(Ticket(1), at(0)).is_some());
    scheduler.finish(Ticket(1), Outcome::StatusFailed, true, at(0));
    scheduler.request_inspection(&p, Cause::Changed);
    assert!(scheduler.start(Ticket(2), at(0)).is_some());
    scheduler.clear_backoff();
    scheduler.finish(Ticket(2), Outcome::NotRepeated, true, at(1));
    let retry = scheduler.start(Ticket(3), at(1));
    assert!(retry.is_some_and(|start| start.causes.contains(Cause::Retry)));
}

#[test]
fn one_that_is_overdue_gives_its_slot_back_and_the_oldest_is_given_up() {
    let mut scheduler = scheduler(1);
    assert_eq!(scheduler.hung(), []);
    let (a, b) = (PodUid::from("a"), PodUid::from("b"));
    for (n, uid) in ["a", "b"].into_iter().enumerate() {
        scheduler.request_inspection(&uid.into(), Cause::Changed);
        assert!(
            scheduler.start(Ticket(n as u64), at(n as u64)).is_some(),
            "{uid}"
        );
        let cancelled = scheduler.overdue(Ticket(n as u64));
        assert_eq!(cancelled, (n == 1).then_some(Ticket(0)));
    }
    assert_eq!(scheduler.overdue(Ticket(1)), None, "twice is once");
    assert_eq!(
        scheduler.hung(),
        [(Ticket(0), &a, at(0)), (Ticket(1), &b, at(1))]
    );
    scheduler.finish(Ticket(0), Outcome::ListFailed, true, at(2));
    assert_eq!(scheduler.hung(), [(Ticket(1), &b, at(1))]);
    assert!(!scheduler.is_idle());
    scheduler.finish(Ticket(1), Outcome::Complete, true, at(2));
    assert!(scheduler.is_idle());
    scheduler.request_inspection(&"c".into(), Cause::Changed);
    assert!(scheduler.can_start(), "no slot is lost");
    scheduler.forget(&"c".into());
    assert!(scheduler.owes(&"c".into()), "what is queued stays");
    scheduler.forget(&"a".into());
    assert!(!scheduler.owes(&"a".into()));
}

#[test]
fn no_more_start_than_there_are_slots() {
    let mut scheduler = scheduler(1);
    assert!(!scheduler.is_in_flight(Ticket(1)));
    for n in [1, 2] {
        let uid = PodUid::from(n.to_string());
        scheduler.request_inspection(&uid, Cause::Changed);
        assert!(scheduler.start(Ticket(n), at(0)).is_some());
        scheduler.finish(Ticket(n), Outcome::ListFailed, true, at(0));
    }
    for uid in ["1", "2"] {
        assert_eq!(
            scheduler.request_inspection(&uid.into(), Cause::Waiter),
            None
        );
    }
    assert!(scheduler.start(Ticket(3), at(0)).is_some());
    assert!(!scheduler.can_start(), "the lane of retries is full");
    assert_eq!(scheduler.start(Ticket(4), at(0)), None);
    scheduler.request_inspection(&"3".into(), Cause::Changed);
    assert!(scheduler.can_start(), "the other one is not");
    scheduler.finish(Ticket(3), Outcome::Complete, true, at(1));
    assert!(scheduler.start(Ticket(4), at(1)).is_some());
    assert!(scheduler.start(Ticket(5), at(1)).is_some());
    scheduler.request_inspection(&"4".into(), Cause::Changed);
    assert!(!scheduler.can_start(), "both lanes are full");
}

/// A pod is failing if its last inspection failed, not if an inspection is owed to it.
#[test]
fn a_pod_that_is_owed_an_inspection_is_not_failing() {
    let (mut scheduler, p) = (scheduler(1), PodUid::from("p"));
    scheduler.request_inspection(&p, Cause::Changed);
    assert_eq!(
        (scheduler.failing_pods().count(), scheduler.is_failing(&p)),
        (0, false)
    );
    assert!(scheduler.start(Ticket(1), at(0)).is_some());
    assert_eq!(scheduler.failing_pods().count(), 0, "it has not answered");
    scheduler.finish(Ticket(1), Outcome::ListFailed, true, at(1));
    scheduler.request_inspection(&"q".into(), Cause::Changed);
    assert_eq!(scheduler.failing_pods().collect::<Vec<_>>(), [&p]);
}

#[test]
fn request_during_an_inspection_is_delayed_only_if_its_lists_fail() {
    for (outcome, starts) in [(Outcome::StatusFailed, true), (Outcome::ListFailed, false)] {
        let (mut scheduler, p) = (scheduler(1), PodUid::from("p"));
        scheduler.request_inspection(&p, Cause::Changed);
        assert!(scheduler.start(Ticket(1), at(0)).is_some());
        scheduler.request_inspection(&p, Cause::Changed);
        scheduler.finish(Ticket(1), outcome, true, at(0));
        assert_eq!(scheduler.can_start(), starts, "{outcome:?}");
    }
}

#[test]
fn pod_is_asked_for_except_between_two_retries() {
    let (mut scheduler, p) = (scheduler(1), PodUid::from("p"));
    assert!(!scheduler.is_asked_for(&p), "no request");
    scheduler.request_inspection(&p, Cause::Changed);
    assert!(scheduler.is_asked_for(&p), "queued");
    assert!(scheduler.start(Ticket(1), at(0)).is_some());
    assert!(scheduler.is_asked_for(&p), "in flight");
    scheduler.finish(Ticket(1), Outcome::ListFailed, true, at(0));
    assert!(!scheduler.is_asked_for(&p), "waits for its retry");
    scheduler.request_inspection(&p, Cause::Changed);
    assert!(scheduler.is_asked_for(&p), "requested before its retry");
}

#[test]
fn cleared_backoff_adds_no_cause_to_a_queued_inspection() {
    let (mut scheduler, p) = (scheduler(1), PodUid::from("p"));
    scheduler.request_inspection(&p, Cause::Changed);
    assert!(scheduler.start(Ticket(1), at(0)).is_some());
    scheduler.finish(Ticket(1), Outcome::ListFailed, true, at(0));
    scheduler.request_inspection(&p, Cause::Waiter);
    scheduler.clear_backoff();
    let start = scheduler.start(Ticket(2), at(0));
    assert!(start.is_some_and(|start| start.causes.iter().eq([Cause::Waiter])));
}
