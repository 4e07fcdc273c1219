//! The kubelet's side: what a pod worker does with the status that it is given, and the loop that
//! takes lifecycle events while it is healthy.

use std::time::Duration;

use pleg_core::{EventType, Instant, PodUid, Shown};
use rivals::{Fifo, PodStatus, Subject};

use super::{MS, Node, SECOND, attempt, container, pass, sandbox, soon};

/// What SyncPod did to the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    CreatedSandbox,
    CreatedContainer,
}

/// The worker of one pod that wants one container `c`, to be restarted always.
pub(crate) struct PodWorker<'a, S> {
    subject: &'a S,
    node: &'a Node,
    uid: &'a str,
    last_sync: Instant,
    created: u32,
    /// Which events come of what this worker does; the others are late.
    events: &'static [EventType],
}

impl<'a, S: Subject> PodWorker<'a, S> {
    pub(crate) fn new(
        subject: &'a S,
        node: &'a Node,
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

    /// One sync: waits for a status newer than the last sync and acts on it, as upstream's
    /// computePodActions and SyncPod do. Afterwards a sync that did something asks for a relist of
    /// the pod (1.36).
    pub(crate) async fn sync(&mut self) -> Vec<Deed> {
        let uid = PodUid::from(self.uid);
        let answer = soon(self.subject.newer_than(&uid, self.last_sync)).await;
        assert_eq!(answer.error, None, "no read fails here");
        let deeds = wanted(&answer.status);
        for deed in &deeds {
            self.perform(deed);
        }
        // A sync takes a moment.
        pass(self.subject, 50 * MS).await;
        self.last_sync = self.subject.last_sync_time(self.subject.clock().now());
        if !deeds.is_empty() {
            self.subject.request_relist(&uid);
        }
        deeds
    }

    fn perform(&mut self, deed: &Deed) {
        self.created += 1;
        let nth = self.created;
        match deed {
            Deed::CreatedSandbox => {
                let name = format!("s{nth}");
                self.node
                    .put(attempt(sandbox(self.uid, &name, Shown::Running), nth));
            }
            Deed::CreatedContainer => {
                let id = format!("{}-c{nth}", self.uid);
                for (shown, event) in [
                    (Shown::Created, EventType::Created),
                    (Shown::Running, EventType::Started),
                ] {
                    let mut report = attempt(container(self.uid, "c", shown), nth);
                    report.id = id.as_str().into();
                    self.node.put(report);
                    if self.events.contains(&event) {
                        let stamp = self.subject.wall();
                        self.node.tell(&self.node.event(event, &id, stamp));
                    }
                }
            }
        }
    }
}

/// What the pod needs by that status.
fn wanted(status: &PodStatus) -> Vec<Deed> {
    let active = status.sandboxes.first();
    if active.is_none_or(|s| s.shown != Shown::Running) {
        return vec![Deed::CreatedSandbox, Deed::CreatedContainer];
    }
    match status.container("c").map(|c| c.shown) {
        Some(Shown::Running) => vec![],
        // None yet, or ended, or, to upstream, one that was created and never started.
        _ => vec![Deed::CreatedContainer],
    }
}

/// The loop that hands lifecycle events to pod workers. While anything is unhealthy it does
/// nothing at all but sleep, 100 ms and then longer, to 5 s.
#[derive(Debug, Default)]
pub(crate) struct SyncLoop {
    /// Lifecycle events that it took.
    pub(crate) taken: usize,
}

impl SyncLoop {
    pub(crate) async fn run<S: Subject>(&mut self, subject: &S, fifo: &mut Fifo, time: Duration) {
        let clock = subject.clock();
        let end = clock.now().after(time);
        let mut pause = 100 * MS;
        while clock.now() < end {
            if subject.healthy().is_err() {
                pass(subject, pause).await;
                pause = (pause * 2).min(5 * SECOND);
                continue;
            }
            pause = 100 * MS;
            // Its own tick comes every second.
            if let Ok(Some(_)) = tokio::time::timeout(SECOND, fifo.next()).await {
                self.taken += 1;
            }
        }
    }
}
