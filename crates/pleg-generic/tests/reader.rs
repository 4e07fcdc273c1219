//! Tests the results of successful and failed reads, on a fake runtime in paused time.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pleg_generic::{PodCall, Progress, Reader};
use pleg_runtime::core::{
    CallError, CallErrorKind, Id, Kind, KnownIds, List, PodList, PodUid, Report, ReportedState,
    Statuses, Ticket,
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

fn reader(runtime: &FakeRuntime) -> Reader<FakeRuntime> {
    Reader::new(Arc::new(runtime.clone()), runtime.clock())
}

async fn list(runtime: &FakeRuntime) -> List {
    let ticket = Ticket::from(7);
    let known = KnownIds::default();
    reader(runtime).list(ticket, DEADLINE, known).await
}

/// Lists the pod `p`.
async fn list_pod(runtime: &FakeRuntime) -> PodList {
    let (uid, progress) = (PodUid::from("p"), Progress::default());
    let ticket = Ticket::from(1);
    reader(runtime)
        .list_pod(ticket, &uid, DEADLINE, &progress)
        .await
}

/// The containers of these ids.
fn containers(ids: &[&str]) -> Vec<(Id, Kind)> {
    ids.iter()
        .map(|id| (Id::from(*id), Kind::Container))
        .collect()
}

/// Reads the statuses of these containers.
async fn statuses(runtime: &FakeRuntime, ids: &[&str]) -> Statuses {
    let (ids, progress) = (containers(ids), Progress::default());
    let ticket = Ticket::from(1);
    reader(runtime)
        .statuses(ticket, ids, DEADLINE, &progress)
        .await
}

/// The answers by id.
fn answers(statuses: &Statuses) -> BTreeMap<&str, Result<&Report, &CallError>> {
    let answers = statuses.answers.iter();
    answers
        .map(|(id, answer)| (id.as_str(), answer.as_ref()))
        .collect()
}

fn ids(rows: &[Report]) -> Vec<&str> {
    rows.iter().map(|row| row.id.as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn list_reads_sandboxes_first_and_records_start_and_end() {
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
async fn hung_list_ends_at_its_deadline_and_names_the_call() {
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
async fn timeout_message_shows_the_deadline_rounded() {
    let runtime = one_pod();
    runtime.hang(Op::Sandboxes);
    for (nanos, shown) in [
        (4_996_076_160, "5s"),
        (1_540_000_000, "1.5s"),
        (250_400_000, "250ms"),
    ] {
        let (deadline, known) = (Duration::from_nanos(nanos), KnownIds::default());
        let list = reader(&runtime)
            .list(Ticket::from(7), deadline, known)
            .await;
        let message = list.rows.unwrap_err().message.to_string();
        assert_eq!(message, format!("no answer within {shown}"));
    }
}

#[tokio::test(start_paused = true)]
async fn pod_list_makes_exactly_two_calls() {
    let runtime = one_pod();
    let list = list_pod(&runtime).await;
    assert_eq!(ids(&list.rows.unwrap()), ["p-s", "p-a", "p-b"]);
    let calls: Vec<_> = runtime.calls().iter().map(ToString::to_string).collect();
    assert_eq!(calls, ["ListPodSandbox p", "ListContainers p"]);
}

/// Some runtimes ignore the filter of a list, and return every row of the node.
#[tokio::test(start_paused = true)]
async fn pod_list_leaves_out_rows_of_other_pods() {
    let runtime = one_pod();
    (0..100).for_each(|n| runtime.run_pod(&format!("q{n}")));
    let mut unlabelled = container("p", "u", ReportedState::Running);
    unlabelled.identity.pod = None;
    unlabelled.identity.unlabelled = true;
    runtime.put(unlabelled);
    runtime.ignore_filters();
    let rows = list_pod(&runtime).await.rows.unwrap();
    assert_eq!(ids(&rows), ["p-s", "p-a", "p-b", "p-u"]);
}

#[tokio::test(start_paused = true)]
async fn pod_list_of_an_unknown_uid_is_empty() {
    let list = list_pod(&FakeRuntime::new()).await;
    assert_eq!(list.rows, Ok(Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn pod_list_with_a_failed_call_has_no_rows() {
    for (op, operation) in LISTS {
        let runtime = one_pod();
        runtime.fail(op, CallErrorKind::Unavailable);
        let error = list_pod(&runtime).await.rows.unwrap_err();
        assert_eq!(error.operation, operation, "no id counts as gone");
    }
}

#[tokio::test(start_paused = true)]
async fn pod_list_that_hangs_ends_at_its_deadline() {
    for (op, operation) in LISTS {
        let runtime = one_pod();
        runtime.hang(op);
        let list = list_pod(&runtime).await;
        let error = list.rows.unwrap_err();
        let expected = (operation, CallErrorKind::DeadlineExceeded);
        assert_eq!((error.operation, error.kind), expected);
        assert_eq!(runtime.clock().now().since(list.began).as_secs(), 5);
    }
}

#[tokio::test(start_paused = true)]
async fn failed_status_calls_are_returned_with_the_successful_ones() {
    let runtime = one_pod();
    runtime.fail(Op::status("p-a"), CallErrorKind::Failed);
    let read = statuses(&runtime, &["p-a", "p-b", "x"]).await;
    let answers = answers(&read);
    let failed = answers["p-a"].unwrap_err();
    assert_eq!(failed.operation, "ContainerStatus");
    assert_eq!(answers["p-b"].unwrap().id.as_str(), "p-b");
    assert_eq!(answers["x"].unwrap_err().kind, CallErrorKind::NotFound);
    assert_eq!(runtime.calls().len(), 3, "each once");
}

#[tokio::test(start_paused = true)]
async fn hanging_status_call_does_not_withhold_other_statuses() {
    let runtime = one_pod();
    runtime.hang(Op::status("p-a"));
    let read = statuses(&runtime, &["p-a", "p-b"]).await;
    let answers = answers(&read);
    assert!(answers["p-b"].is_ok());
    let error = answers["p-a"].unwrap_err();
    let expected = ("ContainerStatus", CallErrorKind::DeadlineExceeded);
    assert_eq!((error.operation, error.kind), expected);
    assert_eq!(runtime.clock().now().since(read.began).as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn progress_shows_the_call_of_a_read_that_hangs() {
    let (uid, id) = (PodUid::from("p"), Id::from("p-b"));
    let second = Duration::from_secs(1);
    for (op, call) in [
        (Op::Sandboxes, PodCall::Sandboxes),
        (Op::Containers, PodCall::Containers),
        (Op::status("p-b"), PodCall::Status(id, Kind::Container)),
    ] {
        let runtime = one_pod();
        runtime.hang(op);
        let (reader, progress) = (reader(&runtime), Progress::default());
        let reading = async {
            let ticket = Ticket::from(1);
            reader.list_pod(ticket, &uid, DEADLINE, &progress).await;
            let ids = containers(&["p-a", "p-b"]);
            reader.statuses(ticket, ids, DEADLINE, &progress).await
        };
        let hangs = tokio::time::timeout(second, reading).await.is_err();
        assert!(hangs);
        assert_eq!(progress.waits_for(), Some(call));
    }
}

#[tokio::test(start_paused = true)]
async fn read_makes_at_most_eight_status_calls_at_once() {
    let runtime = FakeRuntime::new();
    let names: Vec<_> = (0..100).map(|n| format!("c{n}")).collect();
    for name in &names {
        runtime.put(container("p", name, ReportedState::Running));
    }
    runtime.delay(Op::pod("p"), Duration::from_millis(1));
    let ids: Vec<_> = names.iter().map(|name| format!("p-{name}")).collect();
    let ids: Vec<_> = ids.iter().map(String::as_str).collect();
    let read = statuses(&runtime, &ids).await;
    assert!(answers(&read).values().all(Result::is_ok));
    assert_eq!((read.answers.len(), runtime.most_in_flight()), (100, 8));
    assert_eq!(runtime.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn dropped_read_leaves_no_call_in_flight() {
    let runtime = one_pod();
    runtime.hang(Op::status("p-a"));
    let reading = statuses(&runtime, &["p-a"]);
    let timed_out = tokio::time::timeout(Duration::from_secs(1), reading).await;
    assert!(timed_out.is_err());
    assert_eq!(runtime.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn status_of_another_id_than_requested_is_an_error() {
    let runtime = one_pod();
    runtime.set_status("p-a", container("p", "b", ReportedState::Running));
    let read = statuses(&runtime, &["p-a"]).await;
    let error = answers(&read)["p-a"].unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Malformed);
}
