//! Pods whose ids the lists of a pod, which select by label, may not show: a complete list reads them
//! (invariants 3 and 5).

use pleg_core::{
    CallErrorKind, EventType, FailedStatus, Inspection, LifecycleType, Report, ReportedState,
};

use crate::script::{Script, container, exited, failure, nameless, ready, rows, sandbox, status};

fn unlabelled(mut report: Report) -> Report {
    report.identity.unlabelled = true;
    report
}

/// A pod without the pod-uid label that was read, and nothing is requested.
fn unlabelled_pod() -> Script {
    let mut t = Script::confirmed();
    t.node = rows(ReportedState::Running).map(unlabelled).to_vec();
    t.relist();
    t.settle();
    t.pass(10);
    t
}

/// Finding A9: a pod without the pod-uid label, and an unknown pod while such a pod exists, are
/// read by one complete list.
#[test]
fn a9_pod_without_a_label_is_read_by_a_complete_list() {
    let mut t = unlabelled_pod();
    let (lists, inspections) = (t.lists_wanted(), t.inspections_wanted());
    assert_eq!((lists, inspections), (0, 0));
    let known = t.wait("p", t.now());
    let unknown = t.wait("q", t.now());
    assert_eq!((t.lists_wanted(), t.inspections_wanted()), (1, 0), "shared");
    let mut shown = t.node.clone();
    shown.push(unlabelled(sandbox("z", "q", ReportedState::Running)));
    t.node = shown.clone();
    t.list(&shown);
    assert!(t.answer_of(known).expect("answered").is_ok());
    t.settle();
    let view = t.view_for(unknown);
    assert_eq!(view.status.sandboxes.len(), 1, "it exists");

    let waiter = t.wait("p", t.now());
    t.list_fails(CallErrorKind::Unavailable);
    assert!(t.answer_of(waiter).expect("answered").is_err());
}

/// Lists do not show the id, so NotFound does not remove it. But its status call does not fail any more, so the pod
/// is not read again and again until the complete list comes (found by seed 40107422).
#[test]
fn not_found_of_an_id_that_stays_ends_the_retries() {
    let mut t = unlabelled_pod();
    t.request_reinspect("p");
    t.inspected(Inspection {
        failed: vec![FailedStatus {
            id: "c".into(),
            row: None,
            error: failure("broken"),
        }],
        found: vec![t.node[0].clone()],
        ..Inspection::new(None)
    });
    let mut inspected = 0;
    for _ in 0..3_000 {
        t.pass(10);
        if t.inspection_wanted().is_some() {
            let found = t.node[0].clone();
            t.inspect(&[found], &["c"]);
            inspected += 1;
        }
    }
    assert_eq!(t.lists_wanted(), 1, "it is not answered");
    assert!((1..=9).contains(&inspected), "{inspected} inspections");
    assert!(t.health().failing_pods.is_empty());
}

/// Details that are read before the complete list answer nobody, so they are read once, after it.
#[test]
fn details_of_a_pod_without_a_label_are_read_once_after_the_list() {
    let mut t = unlabelled_pod();
    // A list that began before the question does not answer it.
    t.relist();
    t.pass(10);
    let after = t.now();
    let waiter = t.wait_for_details("p", after);
    let unknown = t.wait_for_details("q", after);
    assert_eq!((t.lists_wanted(), t.inspections_wanted()), (1, 0));
    let shown = t.node.clone();
    t.list(&shown);
    assert_eq!((t.lists_wanted(), t.inspections_wanted()), (1, 0));
    t.pass(10);
    t.list(&shown);
    assert_eq!((t.lists_wanted(), t.inspections_wanted()), (0, 2));
    t.settle();
    assert!(t.view_for(waiter).inspected >= Some(after));
    assert_eq!(t.view_for(unknown).status.sandboxes.len(), 0);
}

/// An inspection that was requested for another reason ends before the list: it is not repeated.
#[test]
fn inspection_before_the_list_is_not_repeated_for_details() {
    let mut t = unlabelled_pod();
    let waiter = t.wait_for_details("p", t.now());
    t.request_reinspect("p");
    let shown = t.node.clone();
    t.inspect(&shown, &[]);
    assert_eq!((t.lists_wanted(), t.inspections_wanted()), (1, 0));
    t.settle();
    assert!(t.view_for(waiter).inspected.is_some());
}

/// The answer is as of the older of the two reads: the inspection may lack an id that has no label.
#[test]
fn inspection_before_the_list_does_not_answer_for_a_pod_without_a_label() {
    let mut t = unlabelled_pod();
    let waiter = t.wait("p", t.now());
    t.request_reinspect("p");
    let shown = t.node.clone();
    t.inspect(&shown, &[]);
    assert!(t.answer_of(waiter).is_none());
    t.list(&shown);
    assert!(t.answer_of(waiter).is_some());
}

/// A list by uid does not show an id without the label, so NotFound of its status is the only evidence: a
/// running container was reported as removed, and a kubelet would have started another one.
#[test]
fn not_found_does_not_remove_an_id_without_a_label_unless_a_complete_list_lacks_it() {
    let mut t = unlabelled_pod();
    let shown = t.node.clone();
    let waiter = t.wait("p", t.now());
    for exists in [true, false] {
        t.request_reinspect("p");
        t.inspect(&shown[..1], &["c"]);
        assert_eq!(t.said(LifecycleType::ContainerRemoved, "c"), 0);
        t.pass_to_list();
        t.list(&shown[..1 + usize::from(exists)]);
        t.settle();
    }
    assert_eq!(t.view_for(waiter).status.containers.len(), 1, "it exists");
    assert_eq!(t.said(LifecycleType::ContainerRemoved, "c"), 1);
}

/// The same for a pod whose uid no answer has named yet: its lists are by the id of the sandbox.
#[test]
fn not_found_does_not_remove_an_id_of_a_pod_that_no_answer_has_named() {
    let mut t = Script::confirmed();
    let c = nameless(status("c", "p", ReportedState::Running));
    t.event(EventType::Started, "c", Some(nameless(ready())), &[c]);
    t.pass(1_100);
    assert_eq!(t.inspection_wanted(), Some(&"s".into()));
    t.inspect(&[ready()], &["c"]);
    assert_eq!(t.said(LifecycleType::ContainerRemoved, "c"), 0);
    t.pass_to_list();
    t.list(&rows(ReportedState::Running));
    assert_eq!(t.get("p").status.containers.len(), 1);
}

/// A waiter is not delayed by the backoff of its pod, whichever read has to answer it.
#[test]
fn waiter_of_a_changed_pod_without_a_label_does_not_wait_out_the_backoff() {
    let mut t = unlabelled_pod();
    t.request_reinspect("p");
    let shown = t.node.clone();
    t.list(&shown);
    t.inspection_fails(&[]);
    let waiter = t.wait("p", t.now());
    let ended = [
        shown[0].clone(),
        unlabelled(container("c", "p", ReportedState::Exited)),
    ];
    t.list(&ended);
    assert_eq!(t.inspection_wanted(), Some(&"p".into()));
    t.inspect(
        &[shown[0].clone(), unlabelled(exited("c", "p", 3, "Error"))],
        &[],
    );
    let view = t.view_for(waiter);
    assert_eq!(view.status.containers[0].details.exit_code, Some(3));
}

/// An event without names leaves open whether there is a label.
#[test]
fn pod_of_an_id_without_names_is_read_by_a_complete_list() {
    let mut t = Script::confirmed();
    t.event(EventType::Started, "s", Some(nameless(ready())), &[]);
    t.wait("s", t.now());
    assert_eq!(t.lists_wanted(), 1);
    t.list(&[ready()]);
    t.settle();
    t.pass(10);
    t.wait("p", t.now());
    assert_eq!((t.lists_wanted(), t.inspections_wanted()), (0, 1));
}

/// The list answers no waiter for details, and none of a pod that it shows changed.
#[test]
fn pod_without_a_label_is_inspected_after_its_list_for_what_its_waiter_needs() {
    for (details, c, requested) in [
        (true, ReportedState::Running, "p (details)"),
        (false, ReportedState::Exited, "p (changed waiter)"),
    ] {
        let mut t = unlabelled_pod();
        t.take_requested();
        if details {
            t.wait_for_details("p", t.now());
        } else {
            t.wait("p", t.now());
        }
        t.list(&rows(c).map(unlabelled));
        assert_eq!(t.take_requested_of_pods(), [requested]);
    }
}

/// An inspection that omits an id answers nobody. The list before it is new enough, so the details are
/// read again beside the next list.
#[test]
fn details_are_read_again_at_once_if_the_last_list_is_new_enough() {
    let mut t = unlabelled_pod();
    t.wait_for_details("p", t.now());
    let shown = t.node.clone();
    t.list(&shown);
    assert_eq!(t.inspections_wanted(), 1);
    let new = status("d", "p", ReportedState::Created);
    t.event(EventType::Created, "d", Some(shown[0].clone()), &[new]);
    t.inspect(&shown, &[]);
    assert_eq!((t.lists_wanted(), t.inspections_wanted()), (1, 1));
}

/// The inspection was requested before the waiter asked, and the list after it.
#[test]
fn inspection_that_began_with_the_list_does_not_answer_a_later_waiter() {
    let mut t = unlabelled_pod();
    t.event(EventType::Started, "s", None, &[]);
    assert_eq!(t.inspections_wanted(), 1);
    let waiter = t.wait("p", t.now());
    let shown = t.node.clone();
    t.begins_after = 0;
    t.list(&shown);
    t.begins_after = 1_000_000;
    t.inspect(&shown, &[]);
    assert!(t.answer_of(waiter).is_none());
    t.inspect(&shown, &[]);
    assert!(t.view_for(waiter).as_of.is_some());
}

/// Ids without a label concern their own pod only.
#[test]
fn pod_with_labels_is_inspected_though_another_has_none() {
    let mut t = unlabelled_pod();
    t.node.push(sandbox("z", "q", ReportedState::Running));
    t.relist();
    t.settle();
    t.pass(10);
    t.wait("q", t.now());
    assert_eq!((t.lists_wanted(), t.inspections_wanted()), (0, 1));
}

/// Lists by the label do not show a container in its sandbox's pod, if its label names another one.
#[test]
fn pod_of_a_container_that_moved_away_from_its_label_is_read_by_a_complete_list() {
    let mut t = Script::confirmed();
    t.node = vec![container("c", "q", ReportedState::Running)];
    t.relist();
    t.settle();
    t.node.push(ready());
    t.relist();
    t.settle();
    assert_eq!(t.get("p").status.containers.len(), 1);
    t.pass(10);
    t.wait("p", t.now());
    assert_eq!((t.lists_wanted(), t.inspections_wanted()), (1, 0));
}

/// It moves to the pod that its label names.
#[test]
fn pod_of_a_container_that_moved_to_its_label_is_inspected() {
    let mut t = Script::confirmed();
    t.relist_shows(&[nameless(status("c", "p", ReportedState::Running))]);
    assert_eq!(t.get("c").status.containers.len(), 1);
    let [s, c] = rows(ReportedState::Running);
    t.node = vec![c, s];
    t.relist();
    t.settle();
    assert_eq!(t.get("p").status.containers.len(), 1);
    t.pass(10);
    t.wait("p", t.now());
    assert_eq!((t.lists_wanted(), t.inspections_wanted()), (0, 1));
}

/// No answer has named the pod of a sandbox that is gone, so its container is in the pod of the
/// sandbox's id, which no label names.
#[test]
fn pod_that_no_answer_has_named_is_read_by_a_complete_list() {
    let mut t = Script::confirmed();
    t.relist();
    t.settle();
    let sandbox = || Some(nameless(sandbox("s", "p", ReportedState::Running)));
    t.event(EventType::Started, "c", sandbox(), &[]);
    t.event(EventType::Deleted, "s", None, &[]);
    let pod = t.get("s").status;
    assert_eq!((pod.sandboxes.len(), pod.containers.len()), (0, 1));
    t.inspection_fails(&[]);
    t.drain();
    let before = (t.lists_wanted(), t.inspections_wanted());
    t.wait("s", t.now());
    assert_eq!(before, (0, 0));
    assert_eq!((t.lists_wanted(), t.inspections_wanted()), (1, 0));
}

/// The container was in the pod of its sandbox's id until a status had its label, which names its pod.
#[test]
fn pod_that_the_label_of_a_container_names_is_inspected() {
    let mut t = Script::confirmed();
    t.relist();
    t.settle();
    let sandbox = || Some(nameless(sandbox("s", "p", ReportedState::Running)));
    t.event(EventType::Started, "c", sandbox(), &[]);
    assert_eq!(t.get("s").status.containers.len(), 1);
    t.node = vec![container("c", "p", ReportedState::Running)];
    let own = status("c", "p", ReportedState::Running);
    t.event(EventType::Started, "c", sandbox(), &[own]);
    assert_eq!(t.get("p").status.containers.len(), 1);
    t.settle();
    t.wait("p", t.now());
    assert_eq!((t.lists_wanted(), t.inspections_wanted()), (0, 1));
}

/// An event names a container without its status; later its own status has the label of another pod. Lists
/// of its pod do not show it, so NotFound of its status proves nothing.
#[test]
fn not_found_does_not_remove_a_container_whose_label_was_read_after_its_event() {
    for label in [Some("l"), None] {
        let mut t = Script::confirmed();
        let s = || sandbox("s", "m", ReportedState::Running);
        let own = || match label {
            Some(label) => container("c", label, ReportedState::Running),
            None => unlabelled(container("c", "m", ReportedState::Running)),
        };
        t.relist_shows(&[s()]);
        t.inspect(&[s()], &[]);
        t.event(EventType::Started, "c", Some(s()), &[]);
        t.event(EventType::Started, "c", Some(s()), &[own()]);
        t.request_reinspect("m");
        while t.inspections_wanted() > 0 {
            t.inspect(&[s()], &["c"]);
        }
        let containers = t.get("m").status.containers.len();
        assert_eq!(containers, 1, "label {label:?}");
    }
}

/// The removal was the first that was known of a sandbox without a label, and lists overrule it.
#[test]
fn pod_of_an_overruled_sandbox_without_a_label_is_read_by_a_complete_list() {
    let mut t = Script::confirmed();
    let s = |shown| unlabelled(sandbox("s", "m", shown));
    let exited = s(ReportedState::Exited);
    t.event(EventType::Deleted, "s", Some(exited), &[]);
    t.node = vec![s(ReportedState::Running)];
    t.run(120_000);
    assert_eq!(t.machine.counters().overruled, 1);
    t.settle();
    t.wait("m", t.now());
    assert_eq!((t.lists_wanted(), t.inspections_wanted()), (1, 0));
}
