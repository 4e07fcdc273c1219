//! A kubelet on a fake runtime, on paused time: statuses that never succeed, and consumers that never acknowledge.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pleg::core::{CallErrorKind, EventType, Kind, Report, ReportedState, RuntimeEvent};
use pleg::runtime::fake::{self, FakeRuntime, Op};
use pleg::{Builder, Consumer, ContainerState, ContainerStatus, Pleg, WaitError};
use pleg_kubelet::actions::Desired;
use pleg_kubelet::backoff::BackOffSettings;
use pleg_kubelet::gc::Removal;
use pleg_kubelet::plan::Planner;
use pleg_kubelet::spec::{ContainerSpec, PodSpec};
use pleg_kubelet::worker::{Action, PodWorkers, Reconcile, Run, WorkerSettings};

use crate::SECOND;

const POD: &str = "p";

/// Runs a pod. What it does takes effect at once, except for two calls that never do: the start of a container that
/// exists already, and its removal before it was started.
struct Kubelet {
    runtime: FakeRuntime,
    planner: Planner,
    finished: Arc<AtomicUsize>,
}

impl Reconcile for Kubelet {
    type Spec = PodSpec;
    type Error = WaitError;

    async fn reconcile(&self, run: &Run<PodSpec>) -> Result<Action, WaitError> {
        let desired = Desired::of(run, run.last_spec.as_deref());
        let plan = self.planner.plan(run, desired, None).await?;
        let status = plan.observed.view.status.clone();
        let actions = plan.begin().await;
        let runtime = &self.runtime;
        let put = |report, event| {
            runtime.put_and_emit(report, event);
            run.changed(run.now());
        };
        if let Some(attempt) = actions.create_sandbox {
            put(sandbox(attempt, ReportedState::Running), EventType::Started);
        }
        for start in actions.start.iter().filter(|s| s.existing.is_none()) {
            let started = container(&start.name, start.attempt, ReportedState::Running);
            put(started, EventType::Started);
        }
        for stop in &actions.stop {
            let stopped = status.containers.iter().find(|c| c.id == stop.id).unwrap();
            put(
                exited(&stopped.name, stopped.attempt, 137),
                EventType::Stopped,
            );
        }
        let sandboxes = status.sandboxes.iter();
        for stopped in sandboxes.filter(|s| actions.stop_sandboxes.contains(&s.id)) {
            put(
                sandbox(stopped.attempt, ReportedState::Exited),
                EventType::Stopped,
            );
        }
        if actions.start.iter().any(|s| s.existing.is_some()) || !actions.remove.is_empty() {
            run.changed(run.now());
        }
        for removal in &actions.garbage {
            if let Removal::Container(id) | Removal::Sandbox(id) = removal {
                runtime.remove_and_emit(id.as_str());
                run.changed(run.now());
            }
        }
        Ok(Action::await_change())
    }

    async fn finish(&self, _: &Run<PodSpec>) -> Result<(), WaitError> {
        self.finished.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

fn sandbox(attempt: u32, state: ReportedState) -> Report {
    let mut sandbox = fake::sandbox(POD, &format!("s{attempt}"), state);
    sandbox.identity.attempt = attempt;
    sandbox
}

/// The container `p-NAME-ATTEMPT` in the first sandbox.
fn container(name: &str, attempt: u32, state: ReportedState) -> Report {
    let container = fake::container(POD, &format!("{name}-{attempt}"), state);
    identified(container, name, attempt)
}

fn identified(mut container: Report, name: &str, attempt: u32) -> Report {
    container.identity.name = Some(name.into());
    container.identity.attempt = attempt;
    container.identity.sandbox = Some("p-s0".into());
    container
}

fn exited(name: &str, attempt: u32, code: i32) -> Report {
    let exited = fake::exited(POD, &format!("{name}-{attempt}"), code);
    identified(exited, name, attempt)
}

fn exit(runtime: &FakeRuntime, name: &str, attempt: u32, code: i32) {
    runtime.put_and_emit(exited(name, attempt, code), EventType::Stopped);
}

/// The container exits, and nothing says with which code: its status fails, or hangs. The runtime lists it.
fn exit_unread(runtime: &FakeRuntime, fails: bool) {
    match fails {
        true => runtime.fail(Op::status("p-app-0"), CallErrorKind::Failed),
        false => runtime.hang(Op::status("p-app-0")),
    }
    runtime.put(container("app", 0, ReportedState::Exited));
    let mut stopped = RuntimeEvent::new("p-app-0", EventType::Stopped);
    stopped.created_at = runtime.clock().wall().as_nanos();
    stopped.sandbox = Some(sandbox(0, ReportedState::Running));
    runtime.send(&stopped);
}

struct Node {
    runtime: FakeRuntime,
    pleg: Pleg,
    workers: PodWorkers<PodSpec>,
    /// How many workers have ended.
    finished: Arc<AtomicUsize>,
}

impl Node {
    fn start(runtime: FakeRuntime, names: &[&str]) -> Self {
        Self::with(runtime, names, |_| ())
    }

    fn with(
        runtime: FakeRuntime,
        names: &[&str],
        change: impl FnOnce(&mut Builder<FakeRuntime>),
    ) -> Self {
        let mut builder = Pleg::builder(runtime.clone()).clock(runtime.clock());
        let consumer = builder.register_consumer("kubelet");
        change(&mut builder);
        let pleg = builder.spawn().unwrap();
        let finished = Arc::<AtomicUsize>::default();
        let planner = Planner::new(BackOffSettings::default()).unwrap();
        let kubelet = Kubelet {
            runtime: runtime.clone(),
            planner: planner.consumer(consumer),
            finished: finished.clone(),
        };
        let mut spec = PodSpec::new(names.iter().map(|name| ContainerSpec::new(*name)).collect());
        spec.termination_grace_period = SECOND;
        let specs = [(POD.into(), Arc::new(spec))];
        let workers = PodWorkers::spawn(pleg.clone(), kubelet, WorkerSettings::default(), specs);
        Self {
            runtime,
            pleg,
            workers: workers.unwrap(),
            finished,
        }
    }

    /// Whether a container of that name runs within 15 min, of that attempt at the earliest.
    async fn runs(&self, name: &str, attempt: u32) -> bool {
        let mut pod = self.pleg.pod(&POD.into());
        let running = async {
            loop {
                let status = pod.view().status;
                let mut of_name = status.containers.iter().filter(|c| *c.name == *name);
                let runs = |c: &ContainerStatus| c.state == ContainerState::Running;
                if of_name.any(|c| c.attempt >= attempt && runs(c)) {
                    return;
                }
                assert!(pod.changed().await);
            }
        };
        let (clock, until) = (self.pleg.clock(), self.pleg.now().after(SECOND * 900));
        tokio::select! {
            () = running => true,
            () = clock.sleep_until(until) => false,
        }
    }

    /// Deletes the pod. Returns after how many seconds its worker has ended, up to an hour.
    async fn delete(&self) -> u64 {
        let began = self.pleg.now();
        self.workers.delete(&POD.into());
        while self.finished.load(Ordering::Relaxed) == 0 && self.seconds_since(began) < 3600 {
            self.pleg
                .clock()
                .sleep_until(self.pleg.now().after(SECOND))
                .await;
        }
        self.seconds_since(began)
    }

    fn seconds_since(&self, began: pleg::Instant) -> u64 {
        self.pleg.now().since(began).as_secs()
    }
}

/// A container that was created, whose start has no effect, on a node that begins so.
fn with_created(others: &[(&str, ReportedState)]) -> FakeRuntime {
    let runtime = FakeRuntime::new();
    runtime.put(sandbox(0, ReportedState::Running));
    runtime.put(container("app", 0, ReportedState::Created));
    for (name, state) in others {
        runtime.put(container(name, 0, *state));
    }
    runtime
}

#[tokio::test(start_paused = true)]
async fn created_container_whose_status_never_succeeds_is_replaced() {
    for fails in [true, false] {
        let node = Node::start(with_created(&[]), &["app"]);
        node.pleg.wait_until_synced().await.unwrap();
        match fails {
            true => node
                .runtime
                .fail(Op::status("p-app-0"), CallErrorKind::Failed),
            false => node.runtime.hang(Op::status("p-app-0")),
        }
        assert!(node.runs("app", 1).await, "fails: {fails}");
    }
}

#[tokio::test(start_paused = true)]
async fn created_container_is_replaced_beside_a_sibling_whose_status_fails() {
    let runtime = with_created(&[("side", ReportedState::Running)]);
    let node = Node::start(runtime, &["app", "side"]);
    node.pleg.wait_until_synced().await.unwrap();
    node.runtime
        .fail(Op::status("p-side-0"), CallErrorKind::Failed);
    assert!(node.runs("app", 1).await);
}

#[tokio::test(start_paused = true)]
async fn deleted_pod_goes_although_a_status_never_succeeds() {
    for fails in [true, false] {
        let node = Node::start(FakeRuntime::new(), &["app"]);
        assert!(node.runs("app", 0).await);
        exit_unread(&node.runtime, fails);
        let seconds = node.delete().await;
        assert!(seconds < 300, "fails: {fails}, {seconds} s");
        assert_eq!(node.runtime.ids(Kind::Sandbox), []);
    }
}

#[tokio::test(start_paused = true)]
async fn status_that_never_succeeds_is_read_less_and_less_often() {
    for fails in [true, false] {
        let node = Node::start(FakeRuntime::new(), &["app"]);
        assert!(node.runs("app", 0).await);
        exit_unread(&node.runtime, fails);
        assert!(node.runs("app", 1).await, "it is replaced meanwhile");
        let clock = node.pleg.clock();
        clock
            .sleep_until(node.pleg.now().after(SECOND * 3600))
            .await;
        let calls = node.runtime.count(&Op::status("p-app-0"));
        assert!(calls <= 120, "fails: {fails}, {calls} calls in an hour");
    }
}

#[tokio::test(start_paused = true)]
async fn container_from_the_future_does_not_delay_a_deletion() {
    let runtime = FakeRuntime::new();
    runtime.put(sandbox(0, ReportedState::Running));
    let mut app = container("app", 0, ReportedState::Running);
    app.identity.created_at = Some(runtime.clock().wall().after(SECOND * 8 * 3600));
    runtime.put(app);
    let node = Node::start(runtime, &["app"]);
    node.pleg.wait_until_synced().await.unwrap();
    let seconds = node.delete().await;
    assert!(seconds < 60, "{seconds} s");
}

/// One consumer acknowledges, and the other one never does.
#[tokio::test(start_paused = true)]
async fn silent_consumer_is_named_and_delays_few_removals() {
    let mut silent: Option<Consumer> = None;
    let node = Node::with(FakeRuntime::new(), &["app"], |builder| {
        silent = Some(builder.register_consumer("silent"));
    });
    let degraded = || {
        let degraded = node.pleg.health().degraded();
        degraded.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    for attempt in 0..6 {
        assert!(node.runs("app", attempt).await);
        exit(&node.runtime, "app", attempt, 1);
    }
    assert!(node.runs("app", 6).await);
    let dead = node.runtime.ids(Kind::Container).len() - 1;
    assert!(dead <= 3, "{dead}: {:?}", node.runtime.ids(Kind::Container));
    let ten_minutes = node.pleg.now().after(SECOND * 600);
    node.pleg.clock().sleep_until(ten_minutes).await;
    let reason =
        "dead containers wait for 10 min to be acknowledged by the registered consumer silent";
    assert_eq!(degraded(), [reason]);
    let of_pod = node.pleg.exits(&POD.into());
    assert!(of_pod.len() >= 3, "{of_pod:?}");

    let seconds = node.delete().await;
    assert!((500..1500).contains(&seconds), "{seconds} s");
    drop(silent);
}
