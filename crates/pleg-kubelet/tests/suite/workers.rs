//! Pod workers on a generator of a fake runtime, on paused time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use pleg::core::{EventType, PodView, ReportedState};
use pleg::runtime::clock::Clock;
use pleg::runtime::fake::{self, FakeRuntime, Op};
use pleg::{ContainerState, Instant, Mode, Pleg, PodStatus, PodUid, Settings, WallTime};
use pleg_kubelet::worker::{Action, PodWorkers, Reconcile, Run, RunError, WorkerSettings};

use crate::SECOND;

const MINUTE: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
#[error("test error")]
struct TestError;

/// What the reconcile function does for a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Does {
    #[default]
    Nothing,
    /// Starts the container again when it has exited.
    Restart,
    /// Removes everything of a pod that must be terminated.
    Remove,
    Fail,
    Panic,
    /// Never ends.
    Hang,
    /// Takes a minute.
    Wait,
}

/// A run that began.
#[derive(Clone, Debug)]
struct Began {
    uid: PodUid,
    at: Instant,
    view: PodView,
    has_spec: bool,
    grace: Option<Duration>,
}

#[derive(Debug, Default)]
struct State {
    does: BTreeMap<PodUid, Does>,
    runs: Vec<Began>,
    finished: usize,
    in_progress: BTreeMap<PodUid, usize>,
    changed: Vec<Instant>,
    failures: Vec<u32>,
    errors: Vec<String>,
    finished_pods: Vec<PodUid>,
    /// How many more times the end of a pod fails.
    failing_ends: usize,
    /// Pods without a specification that are claimed.
    owned: Vec<PodUid>,
}

#[derive(Clone, Debug)]
struct Recorder {
    node: FakeRuntime,
    state: Arc<Mutex<State>>,
}

impl Recorder {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn restart(&self, run: &Run<()>) {
        let newest = run.view.status.container("c");
        if let Some(c) = newest.filter(|c| c.state == ContainerState::Exited) {
            // No event: only the run's own read shows it.
            let uid = run.uid.as_str();
            let mut next = fake::container(uid, "c", ReportedState::Running);
            next.identity.attempt = c.attempt + 1;
            next.identity.created_at = c.created_at.map(|at| at.after(SECOND));
            next.id = format!("{uid}-c-{}", next.identity.attempt).into();
            self.node.put(next);
            self.changed(run);
        }
    }

    fn remove(&self, run: &Run<()>) {
        let status = &run.view.status;
        let containers = status.containers.iter().map(|c| &c.id);
        for id in containers.chain(status.sandboxes.iter().map(|s| &s.id)) {
            self.node.remove(id.as_str());
        }
        self.changed(run);
    }

    fn in_progress(&self, uid: &PodUid, change: impl FnOnce(&mut usize)) {
        let mut state = self.state();
        let runs = state.in_progress.entry(uid.clone()).or_default();
        change(runs);
        assert!(*runs <= 1, "one run at a time");
    }

    fn changed(&self, run: &Run<()>) {
        run.changed(run.now());
        self.state().changed.push(run.now());
    }
}

impl Reconcile for Recorder {
    type Spec = ();
    type Error = TestError;

    async fn reconcile(&self, run: &Run<()>) -> Result<Action, TestError> {
        let does = {
            let mut state = self.state();
            state.runs.push(Began {
                uid: run.uid.clone(),
                at: run.now(),
                view: run.view.clone(),
                has_spec: run.spec.is_some(),
                grace: run.grace,
            });
            state.does.get(&run.uid).copied().unwrap_or_default()
        };
        match does {
            Does::Nothing => {}
            Does::Restart => self.restart(run),
            Does::Remove if run.spec.is_none() => self.remove(run),
            Does::Remove => {}
            Does::Fail => return Err(TestError),
            Does::Panic => panic!("test panic"),
            Does::Hang => std::future::pending().await,
            Does::Wait => {
                self.in_progress(&run.uid, |runs| *runs += 1);
                let clock = self.node.clock();
                clock.sleep_until(clock.now().after(MINUTE)).await;
                self.in_progress(&run.uid, |runs| *runs -= 1);
            }
        }
        self.state().finished += 1;
        Ok(Action::await_change())
    }

    fn error_policy(&self, _: &PodUid, error: &RunError<TestError>, failures: u32) -> Duration {
        let mut state = self.state();
        state.failures.push(failures);
        state.errors.push(error.to_string());
        SECOND * failures
    }

    async fn finish(&self, run: &Run<()>) -> Result<(), TestError> {
        let mut state = self.state();
        if state.failing_ends > 0 {
            state.failing_ends -= 1;
            return Err(TestError);
        }
        state.finished_pods.push(run.uid.clone());
        Ok(())
    }

    fn owns(&self, pod: &PodStatus) -> bool {
        self.state().owned.contains(&pod.uid)
    }
}

/// A node with its generator and workers.
struct Node {
    runtime: FakeRuntime,
    pleg: Pleg,
    recorder: Recorder,
    workers: PodWorkers<()>,
}

impl Node {
    async fn start(pods: &[(&str, Does)]) -> Self {
        let node = Self::unsynced(FakeRuntime::new(), pods);
        node.until(|s| s.runs.len() >= pods.len()).await;
        node
    }

    /// Pods with a specification that exist.
    fn unsynced(runtime: FakeRuntime, pods: &[(&str, Does)]) -> Self {
        let recorder = Recorder {
            node: runtime.clone(),
            state: Arc::default(),
        };
        let clock = Clock::start_at(WallTime::from_nanos(1_800_000_000_000_000_000));
        let mut settings = Settings::default();
        settings.mode = Mode::Evented;
        let builder = Pleg::builder(runtime.clone()).clock(clock);
        let pleg = builder.settings(settings).spawn().unwrap();
        let mut settings = WorkerSettings::default();
        settings.seed = Some(7);
        let workers = PodWorkers::spawn(pleg.clone(), recorder.clone(), settings, []).unwrap();
        for (uid, does) in pods {
            runtime.run_pod(uid);
            recorder.state().does.insert((*uid).into(), *does);
            workers.set(&(*uid).into(), ());
        }
        Self {
            runtime,
            pleg,
            recorder,
            workers,
        }
    }

    fn does(&self, uid: &str, does: Does) {
        self.recorder.state().does.insert(uid.into(), does);
    }

    fn summary(&self) -> String {
        let state = self.recorder.state();
        let runs = state.runs.iter();
        let runs: Vec<_> = runs
            .map(|r| (r.uid.to_string(), r.at, r.has_spec))
            .collect();
        format!("{runs:?} {:?} {:?}", state.failures, state.changed)
    }

    async fn until(&self, so: impl Fn(&State) -> bool) {
        let (clock, began) = (self.pleg.clock(), self.pleg.now());
        while !so(&self.recorder.state()) {
            let waited = clock.now().since(began);
            assert!(
                waited < 10 * MINUTE,
                "it never came about: {}",
                self.summary()
            );
            self.pass(Duration::from_millis(1)).await;
        }
    }

    async fn pass(&self, time: Duration) {
        let clock = self.pleg.clock();
        clock.sleep_until(clock.now().after(time)).await;
    }

    /// The runs of that pod since the `from`th of all runs.
    fn runs_since(&self, from: usize, uid: &str) -> Vec<Began> {
        let state = self.recorder.state();
        let of_pod = state.runs[from..]
            .iter()
            .filter(|run| run.uid.as_str() == uid);
        of_pod.cloned().collect()
    }

    fn runs(&self) -> usize {
        self.recorder.state().runs.len()
    }
}

#[tokio::test(start_paused = true)]
async fn ended_container_is_restarted_once_and_the_next_run_sees_it() {
    let node = Node::start(&[("p", Does::Restart)]).await;
    let before = node.runs();
    node.runtime
        .put_and_emit(fake::exited("p", "c", 1), EventType::Stopped);
    node.until(|s| s.changed.len() == 1 && s.runs.len() >= before + 2)
        .await;
    node.pass(10 * SECOND).await;
    let changed = node.recorder.state().changed.clone();
    assert_eq!(changed.len(), 1, "once");
    let runs = node.runs_since(before, "p");
    let state = |run: &Began| run.view.status.container("c").map(|c| c.state);
    assert_eq!(state(&runs[0]), Some(ContainerState::Exited));
    for run in &runs[1..] {
        assert_eq!(state(run), Some(ContainerState::Running));
        let next = runs[1].at.since(changed[0]);
        assert!(
            next < Duration::from_millis(10),
            "at once, not {next:?} later"
        );
        // Paused time: the read begins at the instant of the change, after it.
        assert!(run.view.as_of >= Some(changed[0]));
    }
}

#[tokio::test(start_paused = true)]
async fn pod_in_progress_is_run_again_after_its_run_and_others_are_not_delayed() {
    let node = Node::start(&[("p", Does::Wait), ("q", Does::Nothing)]).await;
    let before = node.runs();
    for _ in 0..3 {
        node.workers.wake(&"p".into());
        node.workers.wake(&"q".into());
        node.pass(SECOND).await;
    }
    assert_eq!(
        node.runs_since(before, "p").len(),
        0,
        "its run has not ended"
    );
    assert_eq!(node.runs_since(before, "q").len(), 3);
    node.pass(MINUTE).await;
    assert_eq!(node.runs_since(before, "p").len(), 1, "once for the three");
}

#[tokio::test(start_paused = true)]
async fn panic_is_an_error_of_its_pod_only() {
    let node = Node::start(&[("p", Does::Panic), ("q", Does::Nothing)]).await;
    node.until(|s| s.failures == [1, 2]).await;
    let text = "the reconcile function panicked: test panic";
    assert_eq!(node.recorder.state().errors, [text, text]);
    node.does("p", Does::Nothing);
    let before = node.runs();
    node.until(|s| s.runs.len() > before).await;
    node.workers.wake(&"q".into());
    node.until(|s| s.runs.len() > before + 1).await;
}

#[tokio::test(start_paused = true)]
async fn run_after_a_failed_one_sees_what_that_may_have_changed() {
    for does in [Does::Panic, Does::Fail] {
        let node = Node::start(&[("p", Does::Nothing)]).await;
        // Between two lists, so that only a read of the pod can be newer.
        node.pass(30 * SECOND + Duration::from_millis(500)).await;
        let before = node.runs();
        node.does("p", does);
        node.workers.wake(&"p".into());
        node.until(|s| s.failures == [1]).await;
        node.workers.wake(&"p".into());
        node.until(|s| s.failures == [1, 2]).await;
        let runs = node.runs_since(before, "p");
        assert!(runs[0].view.as_of < Some(runs[0].at), "the cache is enough");
        assert!(runs[1].view.as_of >= Some(runs[0].at));
    }
}

#[tokio::test(start_paused = true)]
async fn error_policy_decides_when_a_failed_pod_is_run_again() {
    let node = Node::start(&[("p", Does::Nothing)]).await;
    node.pass(SECOND).await;
    let (before, finished) = (node.runs(), node.recorder.state().finished);
    node.does("p", Does::Fail);
    node.workers.wake(&"p".into());
    node.until(|s| s.failures == [1, 2, 3, 4]).await;
    let runs = node.runs_since(before, "p");
    for (failures, pair) in (1..).zip(runs.windows(2)) {
        let waited = pair[1].at.since(pair[0].at);
        assert!(waited >= SECOND * failures, "{waited:?} after {failures}");
        assert!(waited <= SECOND * failures * 3 / 2 + Duration::from_millis(20));
    }
    node.does("p", Does::Nothing);
    node.until(|s| s.finished > finished).await;
    node.does("p", Does::Fail);
    node.workers.wake(&"p".into());
    node.until(|s| s.failures == [1, 2, 3, 4, 1]).await;
}

#[tokio::test(start_paused = true)]
async fn view_that_cannot_be_read_is_an_error_of_the_pod() {
    let node = Node::start(&[("p", Does::Restart)]).await;
    node.runtime
        .put_and_emit(fake::exited("p", "c", 1), EventType::Stopped);
    node.runtime
        .fail(Op::pod("p"), pleg::core::CallErrorKind::Unavailable);
    node.until(|s| !s.errors.is_empty()).await;
    assert!(node.recorder.state().errors[0].starts_with("no status of the pod"));
    let before = node.runs();
    node.runtime.succeed(&Op::pod("p"));
    node.until(|s| s.runs.len() > before).await;
}

#[tokio::test(start_paused = true)]
async fn shutdown_lets_runs_end_and_begins_none() {
    let node = Node::start(&[("p", Does::Wait), ("q", Does::Nothing)]).await;
    let began = node.runs();
    node.workers.wake(&"q".into());
    let deadline = node.pleg.now().after(5 * MINUTE);
    assert_eq!(node.workers.shutdown(deadline).await, 0);
    assert!(node.pleg.now() < deadline, "it does not wait for longer");
    let state = node.recorder.state();
    assert_eq!(
        state.in_progress[&PodUid::from("p")],
        0,
        "that of p has ended"
    );
    drop(state);
    assert!(node.runs() <= began + 1);
}

#[tokio::test(start_paused = true)]
async fn shutdown_aborts_runs_at_its_deadline() {
    let node = Node::start(&[("p", Does::Hang), ("q", Does::Nothing)]).await;
    let deadline = node.pleg.now().after(MINUTE);
    assert_eq!(node.workers.shutdown(deadline).await, 1);
    assert!(node.pleg.now() >= deadline);
}

#[tokio::test(start_paused = true)]
async fn workers_end_with_the_generator_and_with_their_last_handle() {
    let node = Node::start(&[("p", Does::Nothing)]).await;
    node.pleg.shutdown().await;
    node.workers.ended().await;

    let node = Node::start(&[("p", Does::Hang)]).await;
    let state = node.recorder.state.clone();
    drop((node.workers, node.recorder));
    let clock = node.pleg.clock();
    while Arc::strong_count(&state) > 1 {
        clock.sleep_until(clock.now().after(SECOND)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn deleted_pod_is_terminated_and_its_worker_ends() {
    let node = Node::start(&[("p", Does::Remove)]).await;
    let before = node.runs();
    node.recorder.state().failing_ends = 2;
    node.workers.delete_within(&"p".into(), 7 * SECOND);
    node.until(|s| s.finished_pods == [PodUid::from("p")]).await;
    assert_eq!(node.recorder.state().failures, [1, 2], "it was repeated");
    let runs = node.runs_since(before, "p");
    assert!(!runs[0].has_spec && runs[0].view.status.exists());
    assert_eq!(runs[0].grace, Some(7 * SECOND));
    assert_eq!(node.recorder.state().changed.len(), 1);
    let before = node.runs();
    node.pass(60 * MINUTE).await;
    assert_eq!(node.runs(), before, "it is not run again");
    node.workers.set(&"p".into(), ());
    node.until(|s| s.runs.len() > before).await;
}

#[tokio::test(start_paused = true)]
async fn shorter_grace_period_of_a_second_deletion_wins() {
    let node = Node::start(&[("p", Does::Nothing)]).await;
    for (grace, expected) in [(9, 9), (3, 3), (5, 3)] {
        let before = node.runs();
        node.workers.delete_within(&"p".into(), grace * SECOND);
        node.until(|s| s.runs.len() > before).await;
        let runs = node.runs_since(before, "p");
        assert_eq!(runs[0].grace, Some(expected * SECOND));
    }
}

#[tokio::test(start_paused = true)]
async fn start_waits_for_the_generator_and_leaves_foreign_pods_alone() {
    let runtime = FakeRuntime::new();
    runtime.hang(Op::List);
    runtime.run_pod("foreign");
    runtime.run_pod("orphan");
    let node = Node::unsynced(runtime.clone(), &[("p", Does::Nothing)]);
    node.recorder.state().owned.push("orphan".into());
    node.does("orphan", Does::Remove);
    node.workers.set(&"new".into(), ());
    node.pass(5 * SECOND).await;
    assert_eq!(node.runs(), 0, "nothing is known yet");
    runtime.release(&Op::List);
    node.until(|s| !s.finished_pods.is_empty() && s.runs.len() >= 3)
        .await;
    node.pass(SECOND).await;
    runtime.remove_and_emit("foreign-c");
    runtime.remove_and_emit("foreign-s");
    node.pass(MINUTE / 2).await;
    let first = |uid| {
        let runs = node.runs_since(0, uid);
        let first = runs.first();
        first.map(|r| (r.has_spec, !r.view.status.exists()))
    };
    assert_eq!(first("orphan"), Some((false, false)));
    assert_eq!(first("p"), Some((true, false)));
    assert_eq!(first("new"), Some((true, true)));
    assert_eq!(first("foreign"), None);
    assert_eq!(
        node.recorder.state().finished_pods,
        [PodUid::from("orphan")]
    );
}

#[tokio::test(start_paused = true)]
async fn quiet_hour_has_only_resyncs_and_they_make_no_call() {
    let node = Node::start(&[("p", Does::Nothing), ("q", Does::Nothing)]).await;
    node.pass(SECOND).await;
    let (before, inspected) = (node.runs(), node.runtime.count(&Op::pod("p")));
    node.pass(60 * MINUTE).await;
    for uid in ["p", "q"] {
        let runs = node.runs_since(before, uid);
        assert!((39..=61).contains(&runs.len()), "{} runs", runs.len());
        for pair in runs.windows(2) {
            let period = pair[1].at.since(pair[0].at);
            assert!(
                (MINUTE..=MINUTE * 3 / 2 + SECOND).contains(&period),
                "{period:?}"
            );
        }
    }
    assert_eq!(node.runtime.count(&Op::pod("p")), inspected);
}
