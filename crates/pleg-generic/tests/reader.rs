//! Results of reads, successful and failed, with a hand-written runtime in paused time.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::stream;
use pleg_generic::Reader;
use pleg_runtime::clock::Clock;
use pleg_runtime::core::{
    CallError, CallErrorKind, Details, HeldId, Id, Identity, Kind, KnownIds, PodUid, Report,
    ReportedState, RuntimeEvent, Ticket,
};
use pleg_runtime::{Row, Runtime, RuntimeVersion, Scope};

const DEADLINE: Duration = Duration::from_secs(5);

/// A hand-written node: rows for the lists, answers for the statuses.
#[derive(Default)]
struct Node {
    rows: Vec<Report>,
    statuses: BTreeMap<Id, Report>,
    /// Operations that hang, or that fail after their rows were passed.
    fails: BTreeMap<&'static str, CallErrorKind>,
    hangs: BTreeSet<&'static str>,
    /// Ids whose status hangs or fails.
    hanging: BTreeSet<Id>,
    failing: BTreeSet<Id>,
    calls: Mutex<Vec<String>>,
    under_way: AtomicUsize,
    most_under_way: AtomicUsize,
}

impl Node {
    fn with(mut self, id: &str, kind: Kind, pod: &str, sandbox: Option<&str>) -> Self {
        let mut row = report(id, kind);
        row.identity.pod = Some(pod.into());
        row.identity.sandbox = sandbox.map(Id::from);
        self.rows.push(row);
        self.status(id, kind)
    }

    /// A status without a row. As in CRI it does not name the sandbox.
    fn status(mut self, id: &str, kind: Kind) -> Self {
        self.statuses.insert(id.into(), report(id, kind));
        self
    }

    fn without_status(mut self, id: &str) -> Self {
        self.statuses.remove(id);
        self
    }

    /// One pod: sandbox `s`, containers `a` and `b`.
    fn one_pod() -> Self {
        Self::default()
            .with("s", Kind::Sandbox, "pod", None)
            .with("a", Kind::Container, "pod", Some("s"))
            .with("b", Kind::Container, "pod", Some("s"))
    }

    async fn list(
        &self,
        operation: &'static str,
        kind: Kind,
        scope: &Scope,
        row: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> Result<(), CallError> {
        let _call = self.called(format!("{operation} {scope:?}"));
        tokio::task::yield_now().await;
        let in_scope = |report: &&Report| match scope {
            Scope::Node => true,
            Scope::Pod(uid) => report.identity.pod.as_ref() == Some(uid),
        };
        let of_kind = self
            .rows
            .iter()
            .filter(|report| report.identity.kind == kind);
        of_kind
            .filter(in_scope)
            .cloned()
            .for_each(|report| row(report.into()));
        if self.hangs.contains(operation) {
            pending::<()>().await;
        }
        match self.fails.get(operation) {
            Some(kind) => Err(CallError::new(operation, *kind, "as told")),
            None => Ok(()),
        }
    }

    async fn one(&self, operation: &'static str, id: &Id) -> Result<Report, CallError> {
        let _call = self.called(format!("{operation} {id}"));
        tokio::task::yield_now().await;
        if self.hanging.contains(id) {
            pending::<()>().await;
        }
        if self.failing.contains(id) {
            return Err(CallError::new(operation, CallErrorKind::Failed, "as told"));
        }
        let not_found = || CallError::new(operation, CallErrorKind::NotFound, "not found");
        self.statuses.get(id).cloned().ok_or_else(not_found)
    }

    fn called(&self, call: String) -> UnderWay<'_> {
        self.calls.lock().unwrap().push(call);
        let now = self.under_way.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_under_way.fetch_max(now, Ordering::Relaxed);
        UnderWay(&self.under_way)
    }

    fn reader(self) -> (Arc<Self>, Reader<Self>) {
        let node = Arc::new(self);
        (node.clone(), Reader::new(node, Clock::start()))
    }
}

struct UnderWay<'a>(&'a AtomicUsize);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Runtime for Node {
    type Events = stream::Pending<Result<RuntimeEvent, CallError>>;

    async fn list_sandboxes(
        &self,
        scope: &Scope,
        row: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> Result<(), CallError> {
        self.list("ListPodSandbox", Kind::Sandbox, scope, row).await
    }

    async fn list_containers(
        &self,
        scope: &Scope,
        row: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> Result<(), CallError> {
        self.list("ListContainers", Kind::Container, scope, row)
            .await
    }

    async fn sandbox_status(&self, id: &Id) -> Result<Report, CallError> {
        self.one("PodSandboxStatus", id).await
    }

    async fn container_status(&self, id: &Id) -> Result<Report, CallError> {
        self.one("ContainerStatus", id).await
    }

    async fn subscribe(&self) -> Result<Self::Events, CallError> {
        Ok(stream::pending())
    }

    async fn version(&self) -> Result<RuntimeVersion, CallError> {
        Err(CallError::new(
            "Version",
            CallErrorKind::Unimplemented,
            "by hand",
        ))
    }
}

fn report(id: &str, kind: Kind) -> Report {
    Report {
        id: id.into(),
        shown: ReportedState::Running,
        identity: Identity::unknown(kind),
        details: Details::none(kind),
    }
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

fn pod() -> PodUid {
    "pod".into()
}

#[tokio::test(start_paused = true)]
async fn list_reads_sandboxes_first_and_is_stamped_around_its_calls() {
    let (node, reader) = Node::one_pod().reader();
    let list = reader
        .list(Ticket::from(7), DEADLINE, KnownIds::default())
        .await;
    assert_eq!(list.ticket, Ticket::from(7));
    assert!(list.began <= list.ended);
    let rows = list.rows.unwrap();
    let ids: Vec<_> = rows.new_rows().iter().map(|row| row.id.as_str()).collect();
    assert_eq!(ids, ["s", "a", "b"]);
    assert_eq!(
        *node.calls.lock().unwrap(),
        ["ListPodSandbox Node", "ListContainers Node"]
    );
}

#[tokio::test(start_paused = true)]
async fn list_with_a_failed_call_has_no_rows() {
    for operation in ["ListPodSandbox", "ListContainers"] {
        let mut node = Node::one_pod();
        node.fails.insert(operation, CallErrorKind::Unavailable);
        let list = node
            .reader()
            .1
            .list(Ticket::from(1), DEADLINE, KnownIds::default())
            .await;
        let error = list.rows.unwrap_err();
        assert_eq!(
            (error.operation, error.kind),
            (operation, CallErrorKind::Unavailable)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn list_that_hangs_ends_at_its_deadline_and_names_the_call() {
    for operation in ["ListPodSandbox", "ListContainers"] {
        let mut node = Node::one_pod();
        node.hangs.insert(operation);
        let list = node
            .reader()
            .1
            .list(Ticket::from(1), DEADLINE, KnownIds::default())
            .await;
        let error = list.rows.unwrap_err();
        assert_eq!(
            (error.operation, error.kind),
            (operation, CallErrorKind::DeadlineExceeded)
        );
        assert_eq!(list.ended.since(list.began).as_secs(), 5);
    }
}

#[tokio::test(start_paused = true)]
async fn inspection_reads_listed_and_held_ids() {
    let (node, reader) = Node::one_pod().status("h", Kind::Container).reader();
    let inspection = reader
        .inspect(
            Ticket::from(1),
            &pod(),
            &held(&[("h", Kind::Container)]),
            DEADLINE,
        )
        .await;
    assert_eq!(inspection.error, None);
    assert_eq!(ids(&inspection.found), ["a", "b", "h", "s"]);
    assert!(inspection.gone.is_empty());
    let calls = node.calls.lock().unwrap();
    assert_eq!(calls.len(), 2 + 4, "each once: {calls:?}");
}

#[tokio::test(start_paused = true)]
async fn container_status_takes_its_sandbox_from_the_list_row() {
    let (_, reader) = Node::one_pod().reader();
    let inspection = reader.inspect(Ticket::from(1), &pod(), &[], DEADLINE).await;
    let a = &inspection.found[0];
    assert_eq!(
        (a.id.as_str(), a.identity.sandbox.as_ref()),
        ("a", Some(&Id::from("s")))
    );
    assert_eq!(a.identity.pod, Some(pod()));
}

/// Only the two lists, if they show what is held.
#[tokio::test(start_paused = true)]
async fn unchanged_pod_takes_two_calls() {
    let (node, reader) = Node::one_pod().reader();
    let known = [
        ("a", Kind::Container),
        ("b", Kind::Container),
        ("s", Kind::Sandbox),
    ];
    let held = held(&known).into_iter().map(|held| HeldId {
        owed: false,
        ..held
    });
    let held: Vec<HeldId> = held.collect();
    let inspection = reader
        .inspect(Ticket::from(1), &pod(), &held, DEADLINE)
        .await;
    assert_eq!(inspection.unchanged.len(), 3);
    assert!(inspection.found.is_empty());
    assert_eq!(node.calls.lock().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn unknown_uid_is_answered_with_nothing() {
    let (_, reader) = Node::one_pod().reader();
    let inspection = reader
        .inspect(Ticket::from(1), &"nobody".into(), &[], DEADLINE)
        .await;
    assert!(inspection.found.is_empty() && inspection.gone.is_empty());
    assert_eq!(inspection.error, None);
}

#[tokio::test(start_paused = true)]
async fn gone_ids_are_held_and_neither_listed_nor_found() {
    // `h`: held, not listed, NotFound. `a`: held, listed, NotFound. `b`: listed, NotFound.
    let (_, reader) = Node::one_pod()
        .without_status("a")
        .without_status("b")
        .reader();
    let held = held(&[
        ("h", Kind::Container),
        ("a", Kind::Container),
        ("s", Kind::Sandbox),
    ]);
    let inspection = reader
        .inspect(Ticket::from(1), &pod(), &held, DEADLINE)
        .await;
    assert_eq!(inspection.gone, [Id::from("h")]);
    assert_eq!(ids(&inspection.found), ["s"]);
    assert_eq!(inspection.error, None);
}

#[tokio::test(start_paused = true)]
async fn failed_status_is_returned_beside_the_others() {
    let mut node = Node::one_pod();
    node.failing.insert("a".into());
    let (_, reader) = node.reader();
    let held = held(&[("h", Kind::Container)]);
    let inspection = reader
        .inspect(Ticket::from(1), &pod(), &held, DEADLINE)
        .await;
    assert_eq!(ids(&inspection.found), ["b", "s"]);
    assert_eq!(inspection.gone, [Id::from("h")], "the lists were complete");
    let failed = &inspection.failed[0];
    assert_eq!(
        (failed.id.as_str(), failed.error.operation),
        ("a", "ContainerStatus")
    );
    assert!(failed.row.is_some());
    assert_eq!(inspection.error, None);
}

#[tokio::test(start_paused = true)]
async fn failed_list_makes_the_inspection_partial_and_no_held_id_gone() {
    let mut node = Node::one_pod();
    node.fails
        .insert("ListPodSandbox", CallErrorKind::Unavailable);
    let (_, reader) = node.reader();
    let held = held(&[("s", Kind::Sandbox), ("h", Kind::Container)]);
    let inspection = reader
        .inspect(Ticket::from(1), &pod(), &held, DEADLINE)
        .await;
    assert_eq!(ids(&inspection.found), ["a", "b", "s"]);
    assert!(inspection.gone.is_empty(), "no absence follows");
    assert_eq!(inspection.error.unwrap().operation, "ListPodSandbox");
}

#[tokio::test(start_paused = true)]
async fn hanging_status_does_not_withhold_the_others() {
    let mut node = Node::one_pod();
    node.hanging.insert("a".into());
    let (_, reader) = node.reader();
    let inspection = reader.inspect(Ticket::from(1), &pod(), &[], DEADLINE).await;
    assert_eq!(ids(&inspection.found), ["b", "s"]);
    let error = &inspection.failed[0].error;
    assert_eq!(
        (error.operation, error.kind),
        ("ContainerStatus", CallErrorKind::DeadlineExceeded)
    );
    assert_eq!(inspection.ended.since(inspection.began).as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn hanging_lists_do_not_make_held_ids_gone() {
    let mut node = Node::one_pod();
    node.hangs.extend(["ListPodSandbox", "ListContainers"]);
    let (_, reader) = node.reader();
    let held = held(&[("s", Kind::Sandbox), ("a", Kind::Container)]);
    let inspection = reader
        .inspect(Ticket::from(1), &pod(), &held, DEADLINE)
        .await;
    assert_eq!(ids(&inspection.found), ["a", "s"]);
    assert_eq!(inspection.error.unwrap().operation, "ListPodSandbox");
}

#[tokio::test(start_paused = true)]
async fn concurrent_calls_are_bounded() {
    let mut node = Node::default().with("s", Kind::Sandbox, "pod", None);
    for n in 0..100 {
        node = node.with(&format!("c{n:03}"), Kind::Container, "pod", Some("s"));
    }
    let (node, reader) = node.reader();
    let inspection = reader.inspect(Ticket::from(1), &pod(), &[], DEADLINE).await;
    assert_eq!(inspection.found.len(), 101);
    assert_eq!(node.most_under_way.load(Ordering::Relaxed), 8);
    assert_eq!(node.under_way.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn dropped_inspection_leaves_no_call_in_flight() {
    let mut node = Node::one_pod();
    node.hanging.insert("a".into());
    let (node, reader) = node.reader();
    let uid = pod();
    let inspection = reader.inspect(Ticket::from(1), &uid, &[], DEADLINE);
    tokio::time::timeout(Duration::from_secs(1), inspection)
        .await
        .unwrap_err();
    assert_eq!(node.under_way.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn status_read_makes_one_call() {
    let mut node = Node::one_pod();
    node.hanging.insert("b".into());
    let (node, reader) = node.reader();
    let reading = reader
        .read(Ticket::from(1), &"a".into(), Kind::Container, DEADLINE)
        .await;
    assert_eq!(reading.report.unwrap().id.as_str(), "a");
    let reading = reader
        .read(Ticket::from(2), &"x".into(), Kind::Sandbox, DEADLINE)
        .await;
    assert_eq!(reading.report.unwrap_err().kind, CallErrorKind::NotFound);
    let reading = reader
        .read(Ticket::from(3), &"b".into(), Kind::Container, DEADLINE)
        .await;
    assert_eq!(
        reading.report.unwrap_err().kind,
        CallErrorKind::DeadlineExceeded
    );
    assert_eq!(node.calls.lock().unwrap().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn answer_for_another_id_is_an_error() {
    let mut node = Node::one_pod();
    node.statuses
        .insert("a".into(), report("b", Kind::Container));
    let (_, reader) = node.reader();
    let reading = reader
        .read(Ticket::from(1), &"a".into(), Kind::Container, DEADLINE)
        .await;
    assert_eq!(reading.report.unwrap_err().kind, CallErrorKind::Malformed);
}
