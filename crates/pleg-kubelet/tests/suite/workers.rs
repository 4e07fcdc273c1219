//! Pod workers on a generator of a fake runtime, on paused time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use pleg::core::{CallErrorKind, PodView};
use pleg::runtime::fake::{FakeRuntime, Op};
use pleg::{Instant, Mode, Pleg, PodStatus, PodUid};
use pleg_kubelet::worker::{Action, PodWorkers, Reconcile, Run, RunError};

use crate::{SECOND, pass, until};

const MINUTE: Duration = Duration::from_secs(60);

/// The behavior of the reconcile function for a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Does {
    #[default]
    Nothing,
    /// Removes all containers and sandboxes of a pod that must be terminated.
    Remove,
    Fail,
    Panic,
    Hang,
    Wait,
}

#[derive(Clone, Debug)]
struct Began {
    uid: PodUid,
    at: Instant,
    view: PodView,
    spec: Option<u32>,
    last_spec: Option<u32>,
    grace: Option<Duration>,
}

#[derive(Debug, Default)]
struct State {
    does: BTreeMap<PodUid, Does>,
    runs: Vec<Began>,
    in_progress: BTreeSet<PodUid>,
    failures: Vec<u32>,
    errors: Vec<String>,
    finished_pods: Vec<PodUid>,
    /// The number of further calls of `finish` that fail.
    failing_ends: usize,
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
}

impl Reconcile for Recorder {
    type Spec = u32;
    type Error = fmt::Error;

    async fn reconcile(&self, run: &Run<u32>) -> Result<Action, fmt::Error> {
        self.state().runs.push(Began {
            uid: run.uid.clone(),
            at: run.now(),
            view: run.view.clone(),
            spec: run.spec.as_deref().copied(),
            last_spec: run.last_spec.as_deref().copied(),
            grace: run.grace,
        });
        let does = self.state().does.get(&run.uid).copied();
        match does.unwrap_or_default() {
            Does::Remove if run.spec.is_none() => {
                let status = &run.view.status;
                let containers = status.containers.iter().map(|c| &c.id);
                for id in containers.chain(status.sandboxes.iter().map(|s| &s.id)) {
                    self.node.remove(id.as_str());
                }
                run.changed(run.now());
            }
            Does::Nothing | Does::Remove => {}
            Does::Fail => return Err(fmt::Error),
            Does::Panic => panic!("test panic"),
            Does::Hang => std::future::pending().await,
            Does::Wait => {
                let is_only = self.state().in_progress.insert(run.uid.clone());
                assert!(is_only, "one run at a time");
                let clock = self.node.clock();
                clock.sleep_until(clock.now().after(MINUTE)).await;
                self.state().in_progress.remove(&run.uid);
            }
        }
        Ok(Action::await_change())
    }

    fn error_policy(&self, _: &PodUid, error: &RunError<fmt::Error>, failures: u32) -> Duration {
        let mut state = self.state();
        state.failures.push(failures);
        state.errors.push(error.to_string());
        SECOND * failures
    }

    async fn finish(&self, run: &Run<u32>) -> fmt::Result {
        let mut state = self.state();
        if state.failing_ends > 0 {
            state.failing_ends -= 1;
            return Err(fmt::Error);
        }
        state.finished_pods.push(run.uid.clone());
        Ok(())
    }

    fn owns(&self, pod: &PodStatus) -> bool {
        self.state().owned.contains(&pod.uid)
    }
}

struct Node {
    runtime: FakeRuntime,
    pleg: Pleg,
    recorder: Recorder,
    workers: PodWorkers<u32>,
}

impl Node {
    async fn start(pods: &[(&str, Does)]) -> Self {
        let node = Self::unsynced(FakeRuntime::new(), pods);
        node.until(|s| s.runs.len() >= pods.len()).await;
        node
    }

    /// A node where these pods exist, with specification 1.
    fn unsynced(runtime: FakeRuntime, pods: &[(&str, Does)]) -> Self {
        let (node, state) = (runtime.clone(), Arc::default());
        let recorder = Recorder { node, state };
        let builder = Pleg::builder(runtime.clone()).clock(runtime.clock());
        let pleg = builder.mode(Mode::Evented).spawn().unwrap();
        let workers = PodWorkers::spawn(pleg.clone(), Arc::new(recorder.clone()), []);
        let node = Self {
            runtime,
            pleg,
            recorder,
            workers,
        };
        for (uid, does) in pods {
            node.runtime.run_pod(uid);
            node.does(uid, *does);
            node.workers.set(&(*uid).into(), 1);
        }
        node
    }

    fn does(&self, uid: &str, does: Does) {
        self.state().does.insert(uid.into(), does);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.recorder.state()
    }

    fn wake(&self, uid: &str) {
        self.workers.wake(&uid.into());
    }

    async fn until(&self, so: impl Fn(&State) -> bool) -> Duration {
        until(&self.pleg, || so(&self.state())).await
    }

    async fn until_run(&self) {
        let before = self.runs();
        self.until(|s| s.runs.len() > before).await;
    }

    fn runs_since(&self, from: usize, uid: &str) -> Vec<Began> {
        let mut runs = self.state().runs[from..].to_vec();
        runs.retain(|run| run.uid.as_str() == uid);
        runs
    }

    fn runs(&self) -> usize {
        self.state().runs.len()
    }
}

#[tokio::test(start_paused = true)]
async fn wake_during_a_run_causes_one_more_run() {
    let node = Node::start(&[("p", Does::Wait), ("q", Does::Nothing)]).await;
    let before = node.runs();
    for _ in 0..3 {
        node.wake("p");
        node.wake("q");
        pass(&node.pleg, SECOND).await;
    }
    let runs = |uid| node.runs_since(before, uid).len();
    assert_eq!((runs("p"), runs("q")), (0, 3), "the run of p has not ended");
    pass(&node.pleg, MINUTE).await;
    assert_eq!(runs("p"), 1, "one run for three wakes");
}

#[tokio::test(start_paused = true)]
async fn failed_run_repeats_after_error_policy_delay_with_newer_view() {
    for (does, error) in [
        (Does::Panic, "the reconcile function panicked: test panic"),
        (Does::Fail, &fmt::Error.to_string()),
    ] {
        let node = Node::start(&[("p", Does::Nothing), ("q", Does::Nothing)]).await;
        // The worker runs between two lists, so that only a read of the pod can give a newer view.
        pass(&node.pleg, Duration::from_millis(30_500)).await;
        let before = node.runs();
        node.does("p", does);
        node.wake("p");
        node.until(|s| s.failures == [1]).await;
        node.wake("p");
        node.until(|s| s.failures == [1, 2, 3, 4]).await;
        let runs = node.runs_since(before, "p");
        assert!(runs[0].view.as_of < Some(runs[0].at), "the cache is enough");
        assert!(runs[1].view.as_of >= Some(runs[0].at));
        assert_eq!(node.state().errors, [error; 4]);
        let check_wait = |failures: u32, runs: &[Began]| {
            let waited = runs[1].at.since(runs[0].at);
            let most = SECOND * failures * 3 / 2 + Duration::from_millis(20);
            assert!(waited >= SECOND * failures && waited <= most, "{waited:?}");
        };
        check_wait(2, &runs[1..]);
        check_wait(3, &runs[2..]);
        node.does("p", Does::Nothing);
        node.until_run().await;
        node.wake("q");
        node.until_run().await;
        node.does("p", does);
        node.wake("p");
        node.until(|s| s.failures == [1, 2, 3, 4, 1, 2]).await;
        let runs = node.runs_since(before, "p");
        check_wait(1, &runs[runs.len() - 2..]);
        // A failed call may take effect after this relist: the termination needs a view from after the deletion.
        node.pleg.relist_now().await.unwrap();
        node.does("p", Does::Nothing);
        let deleted = node.pleg.now();
        node.workers.delete(&"p".into());
        node.until_run().await;
        assert!(node.state().runs.last().unwrap().view.as_of >= Some(deleted));
    }
}

#[tokio::test(start_paused = true)]
async fn worker_run_fails_if_its_view_cannot_be_read() {
    let node = Node::start(&[("p", Does::Remove)]).await;
    node.runtime.fail(Op::pod("p"), CallErrorKind::Unavailable);
    // The run that removes the pod changes something, so the next run needs a newer view.
    node.workers.delete(&"p".into());
    node.until(|s| !s.errors.is_empty()).await;
    assert!(node.state().errors[0].starts_with("no status of the pod"));
    node.runtime.succeed(&Op::pod("p"));
    node.until(|s| !s.finished_pods.is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn shutdown_of_workers_starts_no_run_and_aborts_hung_runs() {
    for (does, within) in [(Does::Wait, 5 * MINUTE), (Does::Hang, MINUTE)] {
        let node = Node::start(&[("p", does), ("q", Does::Nothing)]).await;
        let began = node.runs();
        node.wake("q");
        let deadline = node.pleg.now().after(within);
        node.workers.shutdown(deadline).await;
        // The shutdown lasts until its deadline only if a run hangs.
        assert_eq!(node.pleg.now() >= deadline, does == Does::Hang);
        assert!(node.state().in_progress.is_empty());
        assert!(node.runs() <= began + 1);
    }
}

#[tokio::test(start_paused = true)]
async fn workers_end_when_generator_ends_or_pod_workers_is_dropped() {
    let node = Node::start(&[("p", Does::Nothing)]).await;
    node.pleg.shutdown().await;
    node.workers.ended().await;

    let node = Node::start(&[("p", Does::Hang)]).await;
    let state = node.recorder.state.clone();
    drop((node.workers, node.recorder));
    until(&node.pleg, || Arc::strong_count(&state) == 1).await;
}

#[tokio::test(start_paused = true)]
async fn deleted_pod_is_terminated_and_its_worker_ends() {
    let node = Node::start(&[("p", Does::Remove)]).await;
    let before = node.runs();
    node.state().failing_ends = 2;
    node.workers.delete_within(&"p".into(), 7 * SECOND);
    let is_finished = |s: &State| s.finished_pods == [PodUid::from("p")];
    let took = node.until(is_finished).await;
    assert!(took < 10 * SECOND, "the next run begins at once: {took:?}");
    assert_eq!(node.state().failures, [1, 2], "`finish` was repeated");
    let runs = node.runs_since(before, "p");
    assert!(runs[0].spec.is_none() && runs[0].view.status.exists());
    assert_eq!((runs.len(), runs[0].grace), (1, Some(7 * SECOND)));
    let before = node.runs();
    pass(&node.pleg, 60 * MINUTE).await;
    assert_eq!(node.runs(), before, "its worker makes no run");
    node.workers.set(&"p".into(), 1);
    node.until_run().await;
}

#[tokio::test(start_paused = true)]
async fn termination_uses_the_specification_from_before_the_first_deletion() {
    let node = Node::start(&[("p", Does::Nothing), ("q", Does::Nothing)]).await;
    pass(&node.pleg, SECOND).await;
    let before = node.runs();
    // `p` is set and deleted at once; `q` is deleted, then set and deleted again. Neither new specification ever runs.
    node.workers.set(&"p".into(), 2);
    node.workers.delete(&"p".into());
    node.workers.delete(&"q".into());
    pass(&node.pleg, SECOND).await;
    node.workers.set(&"q".into(), 2);
    node.workers.delete(&"q".into());
    pass(&node.pleg, SECOND).await;
    for (uid, last) in [("p", 2), ("q", 1)] {
        let runs = node.runs_since(before, uid);
        let all_last = runs.iter().all(|run| run.last_spec == Some(last));
        assert!(all_last && runs.len() > usize::from(uid == "q"), "{runs:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn workers_start_after_first_relist_and_ignore_other_programs_pods() {
    let runtime = FakeRuntime::new();
    runtime.hang(Op::List);
    runtime.run_pod("foreign");
    runtime.run_pod("orphan");
    let node = Node::unsynced(runtime.clone(), &[("p", Does::Nothing)]);
    node.state().owned.push("orphan".into());
    node.does("orphan", Does::Remove);
    node.workers.set(&"new".into(), 1);
    pass(&node.pleg, 5 * SECOND).await;
    assert_eq!(node.runs(), 0, "nothing is known yet");
    runtime.release(&Op::List);
    node.until(|s| !s.finished_pods.is_empty() && s.runs.len() >= 3)
        .await;
    pass(&node.pleg, SECOND).await;
    runtime.remove_and_emit("foreign-c");
    runtime.remove_and_emit("foreign-s");
    pass(&node.pleg, MINUTE / 2).await;
    let first = |uid| {
        let first = node.runs_since(0, uid).into_iter().next();
        first.map(|r| (r.spec.is_some(), r.view.status.exists()))
    };
    assert_eq!(first("orphan"), Some((false, true)));
    assert_eq!(first("p"), Some((true, true)));
    assert_eq!(first("new"), Some((true, false)));
    assert_eq!(first("foreign"), None);
    assert_eq!(node.state().finished_pods, [PodUid::from("orphan")]);
}

#[tokio::test(start_paused = true)]
async fn pods_without_changes_get_only_resyncs_without_pod_reads() {
    let node = Node::start(&[("p", Does::Nothing), ("q", Does::Nothing)]).await;
    pass(&node.pleg, SECOND).await;
    let (before, inspected) = (node.runs(), node.runtime.count(&Op::pod("p")));
    pass(&node.pleg, 60 * MINUTE).await;
    for uid in ["p", "q"] {
        let runs = node.runs_since(before, uid);
        assert!((39..=61).contains(&runs.len()), "{} runs", runs.len());
        for pair in runs.windows(2) {
            let period = pair[1].at.since(pair[0].at);
            let expected = MINUTE..=MINUTE * 3 / 2 + SECOND;
            assert!(expected.contains(&period), "{period:?}");
        }
    }
    assert_eq!(node.runtime.count(&Op::pod("p")), inspected);
}
