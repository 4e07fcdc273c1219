//! Tests the limits of the number of exit records, and how consumers acknowledge them.

use pleg_core::LifecycleType::{
    ContainerChanged, ContainerDied, ContainerRemoved, ContainerStarted,
};
use pleg_core::Subject;

use super::*;

pub(super) const ONE: ConsumerId = ConsumerId::new(1);
pub(super) const TWO: ConsumerId = ConsumerId::new(2);

pub(super) fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

fn announce(records: &mut ExitRecords, what: LifecycleType, subject: Subject, detected: u64) {
    let event = PodLifecycleEvent::new(what, "p", Some(subject), at(detected));
    records.announced(&event, |_| what != ContainerRemoved);
}

fn container(id: &str, name: &str) -> Subject {
    let mut subject = Subject::new(id, Kind::Container, name);
    subject.exit_code = Some(1);
    subject
}

fn died(records: &mut ExitRecords, id: &str, name: &str, detected: u64) {
    announce(records, ContainerDied, container(id, name), detected);
}

fn removed(records: &mut ExitRecords, id: &str, name: &str, detected: u64) {
    announce(records, ContainerRemoved, container(id, name), detected);
}

fn of_p(records: &ExitRecords) -> Arc<[Exit]> {
    records.of(&"p".into())
}

fn ids(records: &ExitRecords) -> Vec<String> {
    of_p(records).iter().map(|r| r.id.to_string()).collect()
}

fn acknowledge(records: &mut ExitRecords, consumer: ConsumerId, id: &str) -> bool {
    let known = of_p(records).iter().find(|r| r.id.as_str() == id).cloned();
    let record = known.expect("a record");
    let detected = record.detected;
    records
        .acknowledge(consumer, &record.id, detected)
        .is_some()
}

#[test]
fn last_three_removed_containers_of_a_name_have_exit_records() {
    let mut records = ExitRecords::default();
    for (n, id) in (1..).zip(["1", "2", "3", "4"]) {
        died(&mut records, id, "app", n);
        removed(&mut records, id, "app", n);
    }
    died(&mut records, "other", "side", 5);
    removed(&mut records, "other", "side", 5);
    assert_eq!(ids(&records), ["2", "3", "4", "other"]);
}

/// After a restart, the generator may detect the ends of older containers after the end of the newest one.
#[test]
fn per_name_limit_keeps_exit_records_of_existing_containers() {
    let mut records = ExitRecords::default();
    records.register(ONE, &"one".into());
    for (id, detected) in [("9", 1), ("1", 2), ("3", 2), ("8", 2)] {
        died(&mut records, id, "app", detected);
    }
    assert_eq!(ids(&records), ["9", "1", "3", "8"]);
    assert!(records.is_awaited(&"9".into()));
    for id in ["1", "3", "8", "9"] {
        removed(&mut records, id, "app", 7);
    }
    assert_eq!(ids(&records), ["1", "3", "8"]);
    assert!(!records.is_awaited(&"9".into()));
}

#[test]
fn earliest_attempt_is_dropped_first_among_exits_detected_together() {
    let mut records = ExitRecords::default();
    for attempt in [4, 3, 1, 2] {
        let mut subject = container(&attempt.to_string(), "app");
        subject.attempt = attempt;
        announce(&mut records, ContainerDied, subject.clone(), 7);
        announce(&mut records, ContainerRemoved, subject, 7);
    }
    assert_eq!(ids(&records), ["2", "3", "4"]);
}

#[test]
fn pod_has_at_most_1000_exit_records() {
    let mut records = ExitRecords::default();
    for n in 0..=1000 {
        died(&mut records, &format!("c{n}"), &format!("app{n}"), n);
    }
    assert_eq!((ids(&records).len(), &*ids(&records)[0]), (1000, "c1"));
}

#[test]
fn late_exit_code_or_removal_preserves_an_exits_detection_time() {
    let mut records = ExitRecords::default();
    let mut subject = Subject::new("1", Kind::Container, "app");
    announce(&mut records, ContainerDied, subject.clone(), 7);
    subject.exit_code = Some(137);
    subject.reason = "OOMKilled".into();
    announce(&mut records, ContainerChanged, subject, 8);
    // A later read shows the removed id again.
    for (what, is_removed) in [(ContainerRemoved, true), (ContainerChanged, false)] {
        let subject = Subject::new("1", Kind::Container, "app");
        announce(&mut records, what, subject, 9);
        let record = of_p(&records)[0].clone();
        let end = (record.exit_code, &*record.reason);
        assert_eq!(end, (Some(137), "OOMKilled"));
        assert_eq!((record.detected, record.removed), (at(7), is_removed));
    }
}

#[test]
fn exit_record_is_removed_if_the_container_runs_again() {
    let mut records = ExitRecords::default();
    records.register(ONE, &"one".into());
    died(&mut records, "1", "app", 1);
    announce(&mut records, ContainerStarted, container("1", "app"), 2);
    assert!(ids(&records).is_empty() && records.unacknowledged().is_empty());
    died(&mut records, "1", "app", 3);
    // The consumer has seen the first end only.
    assert_eq!(records.acknowledge(ONE, &"1".into(), at(1)), None);
    assert_eq!(records.acknowledge(ONE, &"unknown".into(), at(3)), None);
    assert!(acknowledge(&mut records, ONE, "1"));
}

#[test]
fn exit_record_is_removed_when_every_consumer_has_acknowledged_it() {
    let mut records = ExitRecords::default();
    for (consumer, name) in [(ONE, "one"), (TWO, "two")] {
        records.register(consumer, &name.into());
    }
    died(&mut records, "1", "app", 1);
    assert!(!acknowledge(&mut records, ONE, "1"));
    assert!(!acknowledge(&mut records, ONE, "1"), "once each");
    assert!(records.is_awaited(&"1".into()));
    assert!(acknowledge(&mut records, TWO, "1"));
    assert!(ids(&records).is_empty());
    removed(&mut records, "1", "app", 2);
    assert!(ids(&records).is_empty(), "a removal is no new end");
}

#[test]
fn exit_awaits_acknowledgement_only_of_consumers_registered_before_it() {
    let mut records = ExitRecords::default();
    died(&mut records, "0", "app", 1);
    records.register(ONE, &"one".into());
    died(&mut records, "1", "app", 2);
    records.register(TWO, &"two".into());
    died(&mut records, "2", "app", 3);
    // An announcement that adds an exit code does not announce a new exit.
    announce(&mut records, ContainerChanged, container("1", "app"), 4);
    for id in ["0", "1", "2"] {
        acknowledge(&mut records, ONE, id);
    }
    assert_eq!(ids(&records), ["0", "2"]);
    assert!(!records.is_awaited(&"0".into()) && records.is_awaited(&"2".into()));
    records.unregister(TWO);
    assert!(!records.is_awaited(&"2".into()));
    assert_eq!(ids(&records), ["0", "2"], "kept within the bounds");
}

#[test]
fn exit_records_are_dropped_ten_minutes_after_the_pod_disappeared() {
    let mut records = ExitRecords::default();
    records.register(ONE, &"one".into());
    let (p, gone) = (PodUid::from("p"), at(5));
    records.pod_is_gone(&p, at(1));
    assert_eq!(records.due(), None, "it has no records");
    died(&mut records, "1", "app", 1);
    records.pod_is_gone(&p, at(2));
    records.pod_exists(&p);
    records.pod_is_gone(&p, gone);
    records.pod_is_gone(&p, at(6));
    assert!(records.forget(at(4).after(RETENTION)).is_empty());
    assert_eq!(records.due(), Some(gone.after(RETENTION)));
    assert_eq!(records.forget(gone.after(RETENTION)), [p]);
    assert!(ids(&records).is_empty() && records.unacknowledged().is_empty());
    assert_eq!(records.due(), None);
}
