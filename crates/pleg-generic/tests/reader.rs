//! Results of reads, successful and failed, of a fake runtime in paused time.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use pleg_generic::{Progress, Reader};
use pleg_runtime::core::{
    CallErrorKind, Details, HeldId, Id, Identity, Inspection, Kind, KnownIds, List, PodCall,
    PodUid, Report, ReportedState, Ticket,
};
use pleg_runtime::fake::{FakeRuntime, Op, container, sandbox};

const DEADLINE: Duration = Duration::from_secs(5);
const LISTS: [(Op, &str); 2] = [
    (Op::Sandboxes, "ListPodSandbox"),
    (Op::Containers, "ListContainers"),
];

/// One pod: sandbox `p-s`, containers `p-a` and `p-b`.
fn one_pod() -> FakeRuntime {
    let runtime = FakeRuntime::new();
    runtime.put(sandbox("p", "s", ReportedState::Running));
    runtime.put(container("p", "a", ReportedState::Running));
    runtime.put(container("p", "b", ReportedState::Running));
    runtime
}

/// A report that names neither pod nor sandbox.
fn report(id: &str, kind: Kind) -> Report {
    let (identity, details) = (Identity::new(kind), Details::none(kind));
    Report::new(id, ReportedState::Running, identity, details)
}

fn reader(runtime: &FakeRuntime) -> Reader<FakeRuntime> {
    Reader::new(Arc::new(runtime.clone()), runtime.clock())
}

async fn list(runtime: &FakeRuntime) -> List {
    let ticket = Ticket::from(7);
    let known = KnownIds::default();
    reader(runtime).list(ticket, DEADLINE, known).await
}

/// Inspects the pod `p`.
async fn inspect(runtime: &FakeRuntime, held: &[HeldId]) -> Inspection {
    let uid = PodUid::from("p");
    let ticket = Ticket::from(1);
    let progress = Progress::default();
    reader(runtime)
        .inspect(ticket, &uid, held, DEADLINE, &progress)
        .await
}

/// Ids that are held as running and whose statuses are owed.
fn held(ids: &[(&str, Kind)]) -> Vec<HeldId> {
    let held = |(id, kind): &(&str, Kind)| HeldId {
        id: Id::from(*id),
        kind: *kind,
        shown: ReportedState::Running,
        owed: true,
    };
    ids.iter().map(held).collect()
}

fn ids(found: &[Report]) -> Vec<&str> {
    found.iter().map(|report| report.id.as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn list_reads_sandboxes_first_and_is_stamped_around_its_calls() {
    let runtime = one_pod();
    let list = list(&runtime).await;
    assert_eq!(list.ticket, Ticket::from(7));
    assert!(list.began <= list.ended);
    let rows = list.rows.unwrap();
    let ids: Vec<_> = rows.new_rows().iter().map(|row| row.id.as_str()).collect();
    assert_eq!(ids, ["p-s", "p-a", "p-b"]);
    let calls: Vec<_> = runtime.calls().iter().map(ToString::to_string).collect();
    assert_eq!(calls, ["ListPodSandbox", "ListContainers"]);
}

#[tokio::test(start_paused = true)]
async fn list_with_a_failed_call_has_no_rows() {
    for (op, operation) in LISTS {
        let runtime = one_pod();
        runtime.fail(op, CallErrorKind::Unavailable);
        let error = list(&runtime).await.rows.unwrap_err();
        let expected = (operation, CallErrorKind::Unavailable);
        assert_eq!((error.operation, error.kind), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn list_that_hangs_ends_at_its_deadline_and_names_the_call() {
    for (op, operation) in LISTS {
        let runtime = one_pod();
        runtime.hang(op);
        let list = list(&runtime).await;
        let error = list.rows.unwrap_err();
        let expected = (operation, CallErrorKind::DeadlineExceeded);
        assert_eq!((error.operation, error.kind), expected);
        assert_eq!(list.ended.since(list.began).as_secs(), 5);
    }
}

#[tokio::test(start_paused = true)]
async fn inspection_reads_listed_and_held_ids() {
    let runtime = one_pod();
    runtime.put(report("h", Kind::Container));
    let inspection = inspect(&runtime, &held(&[("h", Kind::Container)])).await;
    assert_eq!(inspection.error, None);
    assert_eq!(ids(&inspection.found), ["h", "p-a", "p-b", "p-s"]);
    assert!(inspection.gone.is_empty());
    assert_eq!(runtime.calls().len(), 2 + 4, "each once");
}

#[tokio::test(start_paused = true)]
async fn container_status_takes_its_pod_and_sandbox_from_the_list_row() {
    let runtime = one_pod();
    runtime.set_status("p-a", report("p-a", Kind::Container));
    let inspection = inspect(&runtime, &[]).await;
    let identity = &inspection.found[0].identity;
    assert_eq!(identity.sandbox, Some(Id::from("p-s")));
    assert_eq!(identity.pod, Some(PodUid::from("p")));
}

/// Only the two lists, if they show what is held.
#[tokio::test(start_paused = true)]
async fn unchanged_pod_takes_two_calls() {
    let runtime = one_pod();
    let mut held = held(&[
        ("p-a", Kind::Container),
        ("p-b", Kind::Container),
        ("p-s", Kind::Sandbox),
    ]);
    held.iter_mut().for_each(|held| held.owed = false);
    let inspection = inspect(&runtime, &held).await;
    assert_eq!(inspection.unchanged.len(), 3);
    assert!(inspection.found.is_empty());
    assert_eq!(runtime.calls().len(), 2);
}

/// Some runtimes ignore the filter of a list, and return every row of the node.
#[tokio::test(start_paused = true)]
async fn inspection_ignores_rows_of_other_pods() {
    let runtime = one_pod();
    (0..100).for_each(|n| runtime.run_pod(&format!("q{n}")));
    runtime.ignore_filters();
    let inspection = inspect(&runtime, &[]).await;
    assert_eq!(ids(&inspection.found), ["p-a", "p-b", "p-s"]);
    let calls: Vec<_> = runtime.calls().iter().map(ToString::to_string).collect();
    let (lists, statuses) = calls.split_at(2);
    assert_eq!(lists, ["ListPodSandbox p", "ListContainers p"]);
    let statuses: BTreeSet<_> = statuses.iter().map(String::as_str).collect();
    let of_p = [
        "ContainerStatus p-a",
        "ContainerStatus p-b",
        "PodSandboxStatus p-s",
    ];
    assert_eq!((statuses, calls.len()), (BTreeSet::from(of_p), 2 + 3));
}

#[tokio::test(start_paused = true)]
async fn unknown_uid_is_answered_with_nothing() {
    let inspection = inspect(&FakeRuntime::new(), &[]).await;
    assert!(inspection.found.is_empty() && inspection.gone.is_empty());
    assert_eq!(inspection.error, None);
}

#[tokio::test(start_paused = true)]
async fn gone_ids_are_held_and_neither_listed_nor_found() {
    // `h`: held, not listed, NotFound. `p-a`: held, listed, NotFound. `p-b`: listed, NotFound.
    let runtime = one_pod();
    runtime.fail(Op::status("p-a"), CallErrorKind::NotFound);
    runtime.fail(Op::status("p-b"), CallErrorKind::NotFound);
    let held = held(&[
        ("h", Kind::Container),
        ("p-a", Kind::Container),
        ("p-s", Kind::Sandbox),
    ]);
    let inspection = inspect(&runtime, &held).await;
    assert_eq!(inspection.gone, [Id::from("h")]);
    assert_eq!(ids(&inspection.found), ["p-s"]);
    assert_eq!(inspection.error, None);
}

#[tokio::test(start_paused = true)]
async fn failed_status_is_returned_beside_the_others() {
    let runtime = one_pod();
    runtime.fail(Op::status("p-a"), CallErrorKind::Failed);
    let inspection = inspect(&runtime, &held(&[("h", Kind::Container)])).await;
    assert_eq!(ids(&inspection.found), ["p-b", "p-s"]);
    assert_eq!(inspection.gone, [Id::from("h")], "the lists were complete");
    let failed = &inspection.failed[0];
    let failed_call = (failed.id.as_str(), failed.error.operation);
    assert_eq!(failed_call, ("p-a", "ContainerStatus"));
    assert!(failed.row.is_some());
    assert_eq!(inspection.error, None);
}

#[tokio::test(start_paused = true)]
async fn failed_list_makes_the_inspection_partial_and_no_held_id_gone() {
    let runtime = one_pod();
    runtime.fail(Op::Sandboxes, CallErrorKind::Unavailable);
    let held = held(&[("p-s", Kind::Sandbox), ("h", Kind::Container)]);
    let inspection = inspect(&runtime, &held).await;
    assert_eq!(ids(&inspection.found), ["p-a", "p-b", "p-s"]);
    assert!(inspection.gone.is_empty(), "no absence follows");
    assert_eq!(inspection.error.unwrap().operation, "ListPodSandbox");
}

#[tokio::test(start_paused = true)]
async fn hanging_status_does_not_withhold_the_others() {
    let runtime = one_pod();
    runtime.hang(Op::status("p-a"));
    let inspection = inspect(&runtime, &[]).await;
    assert_eq!(ids(&inspection.found), ["p-b", "p-s"]);
    let error = &inspection.failed[0].error;
    let expected = ("ContainerStatus", CallErrorKind::DeadlineExceeded);
    assert_eq!((error.operation, error.kind), expected);
    assert_eq!(inspection.ended.since(inspection.began).as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn progress_shows_the_call_that_hangs() {
    let runtime = one_pod();
    runtime.hang(Op::status("p-b"));
    let (reader, uid, progress) = (reader(&runtime), PodUid::from("p"), Progress::default());
    let inspecting = reader.inspect(Ticket::from(1), &uid, &[], DEADLINE, &progress);
    let shown = tokio::time::timeout(Duration::from_secs(1), inspecting).await;
    assert!(shown.is_err(), "it hangs");
    let call = progress.waits_for();
    assert_eq!(call, Some(PodCall::Status("p-b".into(), Kind::Container)));
}

#[tokio::test(start_paused = true)]
async fn hanging_lists_do_not_make_held_ids_gone() {
    let runtime = one_pod();
    runtime.hang(Op::Sandboxes);
    runtime.hang(Op::Containers);
    let held = held(&[("p-s", Kind::Sandbox), ("p-a", Kind::Container)]);
    let inspection = inspect(&runtime, &held).await;
    assert_eq!(ids(&inspection.found), ["p-a", "p-s"]);
    assert!(inspection.gone.is_empty());
    assert_eq!(inspection.error.unwrap().operation, "ListPodSandbox");
}

#[tokio::test(start_paused = true)]
async fn concurrent_calls_are_bounded() {
    let runtime = FakeRuntime::new();
    runtime.put(sandbox("p", "s", ReportedState::Running));
    for n in 0..100 {
        runtime.put(container("p", &format!("c{n}"), ReportedState::Running));
    }
    runtime.delay(Op::pod("p"), Duration::from_millis(1));
    let inspection = inspect(&runtime, &[]).await;
    assert_eq!(inspection.found.len(), 101);
    assert_eq!(runtime.most_in_flight(), 8);
    assert_eq!(runtime.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn dropped_inspection_leaves_no_call_in_flight() {
    let runtime = one_pod();
    runtime.hang(Op::status("p-a"));
    let inspection = inspect(&runtime, &[]);
    let timed_out = tokio::time::timeout(Duration::from_secs(1), inspection).await;
    assert!(timed_out.is_err());
    assert_eq!(runtime.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn status_read_makes_one_call() {
    let runtime = one_pod();
    runtime.hang(Op::status("p-b"));
    let read = async |id: &str, kind| {
        let reader = reader(&runtime);
        let ticket = Ticket::from(1);
        let read = reader.read(ticket, &id.into(), kind, DEADLINE).await;
        read.report
    };
    let found = read("p-a", Kind::Container).await;
    assert_eq!(found.unwrap().id.as_str(), "p-a");
    let missing = read("x", Kind::Sandbox).await;
    assert_eq!(missing.unwrap_err().kind, CallErrorKind::NotFound);
    let hanging = read("p-b", Kind::Container).await;
    assert_eq!(hanging.unwrap_err().kind, CallErrorKind::DeadlineExceeded);
    assert_eq!(runtime.calls().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn answer_for_another_id_is_an_error() {
    let runtime = one_pod();
    runtime.set_status("p-a", container("p", "b", ReportedState::Running));
    let inspection = inspect(&runtime, &[]).await;
    assert_eq!(inspection.failed[0].error.kind, CallErrorKind::Malformed);
}
