//! A kubelet on a fake runtime, on paused time: status calls that never succeed, ineffective removals, and consumers
//! that never acknowledge exits.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::Pod;
use pleg::core::ReportedState::{self, Created, Exited, Running};
use pleg::core::{CallErrorKind, EventType, Kind, Report};
use pleg::runtime::fake::{self, FakeRuntime, Op};
use pleg::{ContainerState, Id, Instant, Pleg, PodStatus, WaitError};
use pleg_kubelet::actions::Desired;
use pleg_kubelet::backoff::BackOffSettings;
use pleg_kubelet::gc::Removal;
use pleg_kubelet::plan::Planner;
use pleg_kubelet::worker::{Action, PodWorkers, Reconcile, Run};

use crate::{SECOND, pass, pod, until};

const POD: &str = "p";

/// Runs a pod. All calls take effect at once, except two that never do: the start of a container that the test created
/// (`existing`), and the removal of such a container before its start (`remove`).
struct Kubelet {
    runtime: FakeRuntime,
    planner: Planner,
    /// The number of workers that have ended.
    finished: AtomicUsize,
    /// Each removal, with the `details_as_of` (start of the oldest status read) of the view from which it was planned.
    planned: Mutex<Vec<(Removal, Option<Instant>)>>,
    /// The kubelet claims pods without a specification, and its removals have no effect.
    is_orphaned: bool,
}

/// The attempt number, which is at the end of an id.
fn attempt(id: &Id) -> u32 {
    let attempt = id.as_str().rsplit(['-', 's']).next();
    attempt.unwrap().parse().unwrap()
}

impl Reconcile for Kubelet {
    type Spec = Pod;
    type Error = WaitError;

    async fn reconcile(&self, run: &Run<Pod>) -> Result<Action, WaitError> {
        let desired = Desired::of(run, run.last_spec.as_deref());
        let plan = self.planner.plan(run, desired, None).await?;
        let inspected = plan.observed.view.details_as_of;
        let actions = plan.begin().await;
        let put = |report, event| {
            self.runtime.put_and_emit(report, event);
            run.changed(run.now());
        };
        if let Some(attempt) = actions.create_sandbox {
            put(sandbox(attempt, Running), EventType::Started);
        }
        for start in actions.start.iter().filter(|s| s.existing.is_none()) {
            let started = container(&start.name, start.attempt, Running);
            put(started, EventType::Started);
        }
        for stop in &actions.stop {
            let stopped = container(&stop.name, attempt(&stop.id), Exited);
            put(stopped, EventType::Stopped);
        }
        for id in &actions.stop_sandboxes {
            let stopped = sandbox(attempt(id), Exited);
            put(stopped, EventType::Stopped);
        }
        if actions.start.iter().any(|s| s.existing.is_some()) || !actions.remove.is_empty() {
            run.changed(run.now());
        }
        for removal in actions.garbage {
            if let (Removal::Container(id) | Removal::Sandbox(id), false) =
                (&removal, self.is_orphaned)
            {
                self.runtime.remove_and_emit(id.as_str());
            }
            run.changed(run.now());
            self.planned.lock().unwrap().push((removal, inspected));
        }
        Ok(Action::await_change())
    }

    async fn finish(&self, _: &Run<Pod>) -> Result<(), WaitError> {
        self.finished.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn owns(&self, _: &PodStatus) -> bool {
        self.is_orphaned
    }
}

fn sandbox(attempt: u32, state: ReportedState) -> Report {
    let mut sandbox = fake::sandbox(POD, &format!("s{attempt}"), state);
    sandbox.identity.attempt = attempt;
    sandbox
}

/// The container `p-NAME-ATTEMPT` in the first sandbox. Containers exit with code 1.
fn container(name: &str, attempt: u32, state: ReportedState) -> Report {
    let id = format!("{name}-{attempt}");
    let mut container = match state {
        Exited => fake::exited(POD, &id, 1),
        _ => fake::container(POD, &id, state),
    };
    container.identity.name = Some(name.into());
    container.identity.attempt = attempt;
    container.identity.sandbox = Some("p-s0".into());
    container
}

struct Node {
    runtime: FakeRuntime,
    kubelet: Arc<Kubelet>,
    pleg: Pleg,
    workers: PodWorkers<Pod>,
}

impl Node {
    /// Runs a pod with these containers. If `names` is empty, the pod has no specification.
    async fn start(runtime: FakeRuntime, names: &[&str]) -> Self {
        let mut builder = Pleg::builder(runtime.clone()).clock(runtime.clock());
        let consumer = builder.register_consumer("kubelet");
        let pleg = builder.spawn().unwrap();
        let planner = Planner::new(BackOffSettings::default()).unwrap();
        let kubelet = Arc::new(Kubelet {
            runtime: runtime.clone(),
            planner: planner.consumer(consumer),
            finished: AtomicUsize::default(),
            planned: Mutex::default(),
            is_orphaned: names.is_empty(),
        });
        let specs = [(POD.into(), Arc::new(pod(names)))];
        let specs = specs.into_iter().filter(|_| !names.is_empty());
        let workers = PodWorkers::spawn(pleg.clone(), kubelet.clone(), specs);
        pleg.wait_until_synced().await.unwrap();
        Self {
            runtime,
            kubelet,
            pleg,
            workers,
        }
    }

    /// Makes the status call of a container fail or hang.
    fn break_status(&self, id: &str, fails: bool) {
        match fails {
            true => self.runtime.fail(Op::status(id), CallErrorKind::Failed),
            false => self.runtime.hang(Op::status(id)),
        }
    }

    /// A node whose container has exited, with an exit code that cannot be read. The runtime still lists the container.
    async fn with_unread_exit(fails: bool) -> Self {
        let runtime = FakeRuntime::new();
        let node = Self::start(runtime.clone(), &["app"]).await;
        node.until_runs("app", 0).await;
        node.break_status("p-app-0", fails);
        runtime.put(container("app", 0, Exited));
        let mut stopped = runtime.event(EventType::Stopped, "p-app-0");
        stopped.containers.clear();
        runtime.send(&stopped);
        node
    }

    async fn pass(&self, seconds: u32) {
        pass(&self.pleg, SECOND * seconds).await;
    }

    /// Waits until the attempt `attempt` of a container, or a later attempt, is running.
    async fn until_runs(&self, name: &str, attempt: u32) {
        let runs = || {
            let status = self.pleg.get(&POD.into()).status;
            let mut of_name = status.containers.iter().filter(|c| *c.name == *name);
            of_name.any(|c| c.attempt >= attempt && c.state == ContainerState::Running)
        };
        until(&self.pleg, runs).await;
    }

    /// Deletes the pod and waits until its worker has ended, for at most an hour. Returns the seconds that this took.
    async fn delete(&self) -> u64 {
        let began = self.pleg.now();
        let seconds = || self.pleg.now().since(began).as_secs();
        self.workers.delete(&POD.into());
        while self.kubelet.finished.load(Ordering::Relaxed) == 0 && seconds() < 3600 {
            self.pass(1).await;
        }
        seconds()
    }
}

/// A node that starts with a created container. Starts of that container have no effect.
fn with_created(sandbox_state: ReportedState) -> FakeRuntime {
    let runtime = FakeRuntime::new();
    runtime.put(sandbox(0, sandbox_state));
    runtime.put(container("app", 0, Created));
    runtime
}

#[tokio::test(start_paused = true)]
async fn created_container_is_replaced_even_if_status_calls_never_succeed() {
    for (id, fails) in [("p-app-0", true), ("p-app-0", false), ("p-side-0", true)] {
        let runtime = with_created(Running);
        runtime.put(container("side", 0, Running));
        let node = Node::start(runtime, &["app", "side"]).await;
        node.break_status(id, fails);
        node.until_runs("app", 1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn never_succeeding_status_calls_delay_no_deletion_and_become_rare() {
    for fails in [true, false] {
        let node = Node::with_unread_exit(fails).await;
        let seconds = node.delete().await;
        assert!(seconds < 300, "fails: {fails}, {seconds} s");
        assert_eq!(node.runtime.ids(Kind::Sandbox), []);

        let node = Node::with_unread_exit(fails).await;
        // Another container is started although the exit code is missing.
        node.until_runs("app", 1).await;
        node.pass(3600).await;
        let calls = node.runtime.count(&Op::status("p-app-0"));
        assert!(calls <= 120, "fails: {fails}, {calls} calls in an hour");
    }
}

/// The consumer `kubelet` acknowledges exits, and the consumer `silent` never does.
#[tokio::test(start_paused = true)]
async fn consumer_not_acknowledging_exits_degrades_health_and_delays_few_removals() {
    let node = Node::start(FakeRuntime::new(), &["app"]).await;
    let _silent = node.pleg.register_consumer("silent").await.unwrap();
    for attempt in 0..6 {
        node.until_runs("app", attempt).await;
        let exited = container("app", attempt, Exited);
        node.runtime.put_and_emit(exited, EventType::Stopped);
    }
    node.until_runs("app", 6).await;
    let left = node.runtime.ids(Kind::Container);
    assert!(left.len() <= 4, "{left:?}");
    node.pass(600).await;
    let degraded = node.pleg.health().degraded();
    let degraded: Vec<_> = degraded.iter().map(ToString::to_string).collect();
    let reason =
        "dead containers wait for 10 min to be acknowledged by the registered consumer silent";
    assert_eq!(degraded, [reason]);
    let of_pod = node.pleg.exits(&POD.into());
    assert!(of_pod.len() >= 3, "{of_pod:?}");

    let seconds = node.delete().await;
    assert!((500..1500).contains(&seconds), "{seconds} s");
}

#[tokio::test(start_paused = true)]
async fn ineffective_removal_backs_off() {
    let runtime = FakeRuntime::new();
    runtime.put(sandbox(0, Exited));
    let node = Node::start(runtime, &[]).await;
    let count = || node.kubelet.planned.lock().unwrap().len();
    // The removals are repeated after 10 s, after 20 s more, and so on; in the end every 5 min.
    for (seconds, expected) in [(9, 1), (20, 2), (40, 3)] {
        node.pass(seconds).await;
        assert_eq!(count(), expected);
    }
    node.pass(3600).await;
    let hour = count() - 3;
    assert!((12..=15).contains(&hour), "{hour} in an hour");
}

/// A start may fail without an event from containerd, so the generator must read the container's status.
#[tokio::test(start_paused = true)]
async fn created_containers_status_is_read_before_its_removal_is_repeated() {
    let node = Node::start(with_created(Exited), &[]).await;
    let began = node.pleg.now();
    node.pass(29).await;
    let planned = node.kubelet.planned.lock().unwrap();
    let container = Removal::Container("p-app-0".into());
    let removals: Vec<_> = planned.iter().map(|(removal, _)| removal).collect();
    assert_eq!(removals, [&container; 2]);
    let read_late = planned[1].1 >= Some(began.after(SECOND * 10));
    assert!(read_late, "{planned:?}");
}
