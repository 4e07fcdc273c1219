//! The kubelet: a pod worker that acts on the pod's status, and the sync loop that takes lifecycle
//! events while the kubelet is healthy.

use std::time::Duration;

use pleg_core::{EventType, Instant, PodUid, ReportedState};
use rivals::{Fifo, PodStatus, Subject};

use super::{FakeRuntime, MS, SECOND, attempt, container, event_at, sandbox, sleep, with_timeout};

/// What a sync did to the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    CreatedSandbox,
    CreatedContainer,
}

/// The worker of a pod with one container `c` and the restart policy Always.
pub(crate) struct PodWorker<'a, S> {
    subject: &'a S,
    node: &'a FakeRuntime,
    uid: &'a str,
    last_sync: Instant,
    created: u32,
    /// The events that the runtime sends for this worker's calls. Other events are late.
    events: &'static [EventType],
}

impl<'a, S: Subject> PodWorker<'a, S> {
    pub(crate) fn new(
        subject: &'a S,
        node: &'a FakeRuntime,
        uid: &'a str,
        events: &'static [EventType],
    ) -> Self {
        Self {
            subject,
            node,
            uid,
            last_sync: Instant::ORIGIN,
            created: 0,
            events,
        }
    }

    /// Waits for a status newer than the last sync and acts on it, like upstream's computePodActions
    /// and SyncPod. After an action, requests a relist of the pod (1.36).
    pub(crate) async fn sync(&mut self) -> Vec<Action> {
        let uid = PodUid::from(self.uid);
        let answer = with_timeout(self.subject.newer_than(&uid, self.last_sync)).await;
        assert_eq!(answer.error, None, "no read fails here");
        let actions = compute_actions(&answer.status);
        for action in &actions {
            self.perform(action);
        }
        // A sync takes some time.
        sleep(self.subject, 50 * MS).await;
        self.last_sync = self.subject.last_sync_time(self.subject.clock().now());
        if !actions.is_empty() {
            self.subject.request_relist(&uid);
        }
        actions
    }

    fn perform(&mut self, action: &Action) {
        self.created += 1;
        let nth = self.created;
        match action {
            Action::CreatedSandbox => {
                let name = format!("s{nth}");
                self.node.put(attempt(
                    sandbox(self.uid, &name, ReportedState::Running),
                    nth,
                ));
            }
            Action::CreatedContainer => {
                let id = format!("{}-c{nth}", self.uid);
                for (shown, event) in [
                    (ReportedState::Created, EventType::Created),
                    (ReportedState::Running, EventType::Started),
                ] {
                    let mut report = attempt(container(self.uid, "c", shown), nth);
                    report.id = id.as_str().into();
                    self.node.put(report);
                    if self.events.contains(&event) {
                        let stamp = self.subject.wall();
                        self.node.send(&event_at(self.node, event, &id, stamp));
                    }
                }
            }
        }
    }
}

/// The actions that the pod needs in that status.
fn compute_actions(status: &PodStatus) -> Vec<Action> {
    let active = status.sandboxes.first();
    if active.is_none_or(|s| s.shown != ReportedState::Running) {
        return vec![Action::CreatedSandbox, Action::CreatedContainer];
    }
    match status.container("c").map(|c| c.shown) {
        Some(ReportedState::Running) => vec![],
        // No container, an exited one, or one that was created and not started: upstream replaces
        // it.
        _ => vec![Action::CreatedContainer],
    }
}

/// The loop that takes lifecycle events for pod workers. While a generator is unhealthy it only
/// sleeps, 100 ms doubling to 5 s.
#[derive(Debug, Default)]
pub(crate) struct SyncLoop {
    /// The number of lifecycle events that the loop took.
    pub(crate) taken: usize,
}

impl SyncLoop {
    pub(crate) async fn run<S: Subject>(&mut self, subject: &S, fifo: &mut Fifo, time: Duration) {
        let clock = subject.clock();
        let end = clock.now().after(time);
        let mut pause = 100 * MS;
        while clock.now() < end {
            if subject.healthy().is_err() {
                sleep(subject, pause).await;
                pause = (pause * 2).min(5 * SECOND);
                continue;
            }
            pause = 100 * MS;
            // The loop has a tick of one second.
            if let Ok(Some(_)) = tokio::time::timeout(SECOND, fifo.next()).await {
                self.taken += 1;
            }
        }
    }
}
