//! Runs the probes of all pods in one task per probe, so that a slow check does not delay the checks of other probes.

use std::collections::HashMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use k8s_openapi::api::core::v1::Pod as ApiPod;
use pleg::{ContainerState, ContainerStatus, Id, Pleg, PodStatus, PodUid};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::{CheckError, Exec, Probe, ProbeKind, ProbeResults, ProbeState, probes_of};
use crate::{lock, message_of};

/// Runs probes and keeps their results.
///
/// `E` runs the commands of exec probes. Dropping the prober ends its tasks.
pub struct Prober<E> {
    shared: Arc<Shared<E>>,
    pods: Mutex<HashMap<PodUid, Probed<E>>>,
}

impl<E> fmt::Debug for Prober<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prober").finish_non_exhaustive()
    }
}

struct Shared<E> {
    pleg: Pleg,
    exec: E,
    /// The address at which probes reach pods on the host network.
    host_address: String,
}

/// The probes of one pod, and their tasks, which end when this value is dropped.
type Probed<E> = (Arc<Pod<E>>, JoinSet<()>);

/// The probes of one pod, and the data that their tasks share.
struct Pod<E> {
    shared: Arc<Shared<E>>,
    uid: PodUid,
    probes: Vec<Probe>,
    /// By container name and kind: the probe's last changed result, after the id of the container that was checked.
    results: Mutex<HashMap<(String, ProbeKind), (Id, bool)>>,
    /// Tells each task that a container of the pod may have started, or that the result of a startup probe has changed.
    recheck: watch::Sender<()>,
    changed: Box<dyn Fn() + Send + Sync>,
}

impl<E: Exec> Prober<E> {
    /// A prober of the pods that `pleg` shows. Pods without an address of their own are reached at `host_address`.
    #[must_use]
    pub fn new(pleg: &Pleg, exec: E, host_address: &str) -> Self {
        let shared = Arc::new(Shared {
            pleg: pleg.clone(),
            exec,
            host_address: host_address.to_owned(),
        });
        let pods = Mutex::default();
        Self { shared, pods }
    }

    /// Sets the probes of a pod, in place of the pod's earlier probes. If the probes have not changed, only looks for
    /// new containers. So call `set` whenever the pod has changed.
    ///
    /// The prober calls `changed` when the result of a probe has changed. `changed` must not block; it may be a
    /// [`waker`](crate::worker::Run::waker). If the probes have not changed, the prober keeps the earlier `changed`.
    pub fn set(&self, uid: &PodUid, pod: &ApiPod, changed: impl Fn() + Send + Sync + 'static) {
        let probes = probes_of(pod);
        let mut pods = lock(&self.pods);
        if let Some((pod, _)) = pods.get(uid).filter(|(pod, _)| pod.probes == probes) {
            pod.recheck.send_replace(());
            return;
        }
        let pod = Arc::new(Pod {
            shared: self.shared.clone(),
            uid: uid.clone(),
            probes: probes.clone(),
            results: Mutex::default(),
            recheck: watch::Sender::new(()),
            changed: Box::new(changed),
        });
        let tasks = probes.into_iter().map(|probe| pod.clone().run(probe));
        let tasks = self.shared.pleg.in_tokio(|| tasks.collect());
        pods.insert(uid.clone(), (pod, tasks));
    }

    /// Ends the probes of a pod.
    pub fn remove(&self, uid: &PodUid) {
        lock(&self.pods).remove(uid);
    }

    /// The probe results of the containers that `status` shows running. A container not checked yet counts as not
    /// started if it has a startup probe, and as not ready if it has a readiness probe.
    pub fn results(&self, status: &PodStatus) -> ProbeResults {
        let pods = lock(&self.pods);
        let pod = pods.get(&status.uid).map(|(pod, _)| pod);
        let mut results = ProbeResults::default();
        for container in running(status) {
            let result = |kind| pod.map_or(Some(true), |pod| pod.result(container, kind));
            for kind in [ProbeKind::Startup, ProbeKind::Liveness] {
                if result(kind) == Some(false) {
                    results.failed.insert(container.id.clone(), kind);
                }
            }
            if result(ProbeKind::Startup) == Some(true) {
                results.started.insert(container.name.to_string());
                if result(ProbeKind::Readiness) == Some(true) {
                    results.ready.insert(container.name.to_string());
                }
            }
        }
        results
    }
}

fn running(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    let containers = status.active_containers();
    containers.filter(|c| c.state == ContainerState::Running)
}

impl<E: Exec> Pod<E> {
    /// The probe's result for a container, `None` until it first changes. `Some(true)` if there is no such probe.
    fn result(&self, container: &ContainerStatus, kind: ProbeKind) -> Option<bool> {
        let mut probes = self.probes.iter().filter(|probe| probe.kind == kind);
        if !probes.any(|probe| *probe.container == *container.name) {
            return Some(true);
        }
        let results = lock(&self.results);
        let (id, result) = results.get(&(container.name.to_string(), kind))?;
        (*id == container.id).then_some(*result)
    }

    /// Runs a probe, and continues after a check has panicked. Never returns.
    async fn run(self: Arc<Self>, probe: Probe) {
        let mut ticks = tokio::time::interval(probe.period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut recheck = self.recheck.subscribe();
        let mut state = None;
        loop {
            let is_recheck = tokio::select! {
                _ = ticks.tick() => false,
                _ = recheck.changed() => true,
            };
            let checked = self.check(&probe, &mut state, is_recheck);
            let checked = AssertUnwindSafe(checked).catch_unwind();
            if let Err(panic) = checked.await {
                tracing::error!(pod = %self.uid, container = probe.container, probe = ?probe.kind,
                    panic = message_of(&*panic), "a check panicked; the probe continues");
            }
        }
    }

    /// Checks the running container of the probe, if a check is due. Between two periods (`is_recheck`), a check is due
    /// only for a new container. Calls `changed` if the result changes.
    async fn check(&self, probe: &Probe, state: &mut Option<ProbeState>, is_recheck: bool) {
        let (shared, uid) = (&self.shared, &self.uid);
        let status = shared.pleg.get(uid).status;
        let container = running(&status).find(|c| *c.name == *probe.container);
        let has_started = |c: &&ContainerStatus| {
            probe.kind == ProbeKind::Startup || self.result(c, ProbeKind::Startup) == Some(true)
        };
        let Some(container) = container.filter(has_started) else {
            return;
        };
        let (id, clock) = (&container.id, shared.pleg.clock());
        let is_new = state.as_ref().is_none_or(|state| state.id != *id);
        if is_new {
            let started = container.details.started_at;
            let nanos = started.map_or(0, |at| clock.wall().nanos_since(at));
            let age = Duration::from_nanos(u64::try_from(nanos).unwrap_or(0));
            *state = Some(ProbeState::new(probe, id, age, clock.now()));
        }
        let state = state.as_mut().filter(|_| is_new || !is_recheck);
        let Some(state) = state.filter(|state| state.is_due(probe, clock.now())) else {
            return;
        };
        let address = status.ips.first().map_or(&*shared.host_address, |ip| &**ip);
        let check = &probe.check;
        let checked = check.perform(&shared.exec, id, address, probe.timeout);
        let result = checked.await;
        if let Err(error) = &result {
            tracing::debug!(pod = %uid, container = probe.container, probe = ?probe.kind, %error,
                "a check of a probe failed");
        }
        let is_made = !matches!(result, Err(CheckError::NotMade(_)));
        if is_made && state.checked(probe, result.is_ok()) {
            let key = (probe.container.clone(), probe.kind);
            lock(&self.results).insert(key, (id.clone(), result.is_ok()));
            if probe.kind == ProbeKind::Startup {
                self.recheck.send_replace(());
            }
            (self.changed)();
        }
    }
}
