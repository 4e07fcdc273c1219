//! Performs plans with calls to the runtime.

mod calls;
mod extend;
mod files;
mod images;
mod predecessor;
mod prepare;

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use futures::future::{FutureExt as _, join_all};
use k8s_openapi::api::core::v1::{ContainerStateWaiting, Pod, PodStatus};
use pleg::{Id, InvalidSetting, PodUid, WaitError};
use pleg_cri::CriClient;
use tokio::sync::Semaphore;

use crate::actions::{Actions, StartContainer};
use crate::backoff::{BackOff, BackOffSettings};
use crate::cri_config::NodeConfig;
use crate::lock;
use crate::plan::{Observed, Plan};
use crate::pod_status::{PodState, pod_ips, pod_status, time_left, waiting};
use crate::spec::{containers_in, spec_of};
use crate::volumes::VolumeError;
use crate::worker::{Action, Run};

pub use extend::{LastChanges, Sources};

use extend::{AnySources, Nothing};
use files::Files;
use images::{MAX_PULLS, Pull, Wanted};
use predecessor::Names;
use prepare::Prepared;

/// Performs the plans of pods. Create one performer for all pods of a node.
#[must_use]
pub struct Performer {
    client: CriClient,
    node: NodeConfig,
    sources: Arc<dyn AnySources>,
    last_changes: Box<dyn LastChanges>,
    image_back_off: BackOffSettings,
    pull_permits: Arc<Semaphore>,
    pods: Arc<Mutex<BTreeMap<PodUid, Remembered>>>,
    files: Files,
    names: Names,
}

/// The data that the performer keeps about a pod until [`Performer::remove_pod`].
#[derive(Debug, Default)]
struct Remembered {
    waiting: BTreeMap<String, ContainerStateWaiting>,
    messages: BTreeMap<Id, String>,
    pulls: BTreeMap<Wanted, Pull>,
    /// The back-off of pulls, by image.
    back_off: BackOff,
}

impl fmt::Debug for Performer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Performer").finish_non_exhaustive()
    }
}

/// The reason why a pod could not be planned, or why an action failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PerformError {
    /// A call to the runtime or a hook failed, or a field of a container cannot be used.
    #[error("{what}: {source}")]
    Failed {
        /// The action that was tried.
        what: String,
        /// The cause. For a call to the runtime, it is the call's [`CallError`](pleg::core::CallError).
        source: BoxError,
    },
    /// A wait for the pod's status failed: in [`Planner::plan`](crate::plan::Planner::plan) or [`Run::next`].
    #[error("no status of the pod: {0}")]
    View(#[from] WaitError),
    /// A volume or a directory cannot be used.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The pod cannot be run, because of a field that cannot be used or an error of [`Sources`] or [`LastChanges`].
    #[error(transparent)]
    Pod(#[from] BoxError),
}

impl PerformError {
    fn of(what: String, source: impl Into<BoxError>) -> Self {
        let source = source.into();
        Self::Failed { what, source }
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

type Result<T = (), E = PerformError> = std::result::Result<T, E>;

/// The outcome of a plan.
#[must_use = "return `into_action()` from the reconcile function, so that failed actions are retried"]
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Performed {
    /// The containers that were started. The id of each is in [`existing`](StartContainer::existing).
    pub started: Vec<StartContainer>,
    /// The actions that failed.
    pub errors: Vec<PerformError>,
    /// The reasons why containers wait now, by container name, for the status of the pod.
    pub waiting: BTreeMap<String, ContainerStateWaiting>,
}

impl Performed {
    /// The action that the reconcile function must return: the worker runs again at the instants that the plan has set.
    ///
    /// # Errors
    /// Returns the error of the first action that failed.
    pub fn into_action(self) -> Result<Action, PerformError> {
        let error = self.errors.into_iter().next();
        error.map_or(Ok(Action::await_change()), Err)
    }

    /// Records that a container could not be started. `reason` is the waiting reason that upstream shows.
    fn failed(&mut self, container: &str, reason: &str, error: PerformError) {
        let reason = waiting(reason, error.to_string());
        self.waiting.insert(container.to_owned(), reason);
        self.errors.push(error);
    }

    /// Records an error that keeps all containers of the pod waiting.
    fn pod_failed(&mut self, pod: &Pod, error: PerformError) {
        self.containers_wait(pod, &error.to_string());
        self.errors.push(error);
    }

    fn containers_wait(&mut self, pod: &Pod, message: &str) {
        for container in containers_in(spec_of(pod)) {
            let reason = waiting(not_created(pod), message.to_owned());
            self.waiting.insert(container.name.clone(), reason);
        }
    }
}

impl Performer {
    /// A performer that makes its calls to the runtime through `client`.
    pub fn new(client: CriClient, node: NodeConfig) -> Self {
        Self {
            client,
            node,
            sources: Arc::new(Nothing),
            last_changes: Box::new(Nothing),
            image_back_off: BackOffSettings::default(),
            pull_permits: Arc::new(Semaphore::new(MAX_PULLS)),
            pods: Arc::default(),
            files: Files::default(),
            names: Names::default(),
        }
    }

    /// Sets the back-off delays between failed pulls of an image. The default is [`BackOffSettings`], as upstream.
    ///
    /// # Errors
    /// If a setting is invalid.
    pub fn image_back_off(mut self, settings: BackOffSettings) -> Result<Self, InvalidSetting> {
        settings.validate()?;
        self.image_back_off = settings;
        Ok(self)
    }

    /// Sets the source of data that is not on the node: volume contents, environment variables and pull credentials.
    pub fn sources(mut self, sources: impl Sources) -> Self {
        self.sources = Arc::new(sources);
        self
    }

    /// Sets the hook that changes sandbox and container configurations just before they are sent to the runtime.
    pub fn last_changes(mut self, changes: impl LastChanges) -> Self {
        self.last_changes = Box::new(changes);
        self
    }

    /// Prepares volumes, configurations and images, records the calls that can be made, makes these calls, and removes
    /// the garbage of the pod. `pod` is `None` if a pod must be terminated and its specification was never known.
    ///
    /// Actions that cannot be done yet are postponed and not recorded; the returned [`Performed`] has the reasons. A
    /// container waits for its volumes and its image: the pull runs in the background, and wakes the worker at its end.
    /// A sandbox waits while an earlier pod with this namespace and name may run: an edited manifest is a new pod.
    ///
    /// Records in the run when each call that changes the runtime ended ([`Run::changed`]). A failed action does not
    /// prevent actions that do not need it. A failed removal of garbage is logged, and a later plan retries it.
    ///
    /// # Cancel safety
    /// If the future is dropped, calls in progress are cancelled. The runtime may still perform them.
    pub async fn perform<S>(&self, pod: Option<&Pod>, mut plan: Plan<'_, S>) -> Performed {
        let work = Performing {
            performer: self,
            run: plan.run,
            pod,
        };
        let mut performed = Performed::default();
        let prepared = work.prepare(&mut plan, &mut performed).await;
        let actions = plan.begin().await;
        let stops = join_all(actions.stop.iter().map(|stop| work.stop(stop)));
        // Stops sandboxes, and removes containers that must not be started.
        let removes = async {
            let mut results = Vec::new();
            for id in &actions.stop_sandboxes {
                results.push(work.stop_sandbox(id).await);
            }
            for id in &actions.remove {
                results.push(work.remove_container(id).await);
            }
            results
        };
        let resizes = join_all(actions.resize.iter().map(|resize| work.resize(resize)));
        let starts = work.start_all(&actions, prepared, &mut performed);
        let (stops, removes, resizes, ()) = futures::join!(stops, removes, resizes, starts);
        let results = stops.into_iter().chain(removes).chain(resizes);
        performed.errors.extend(results.filter_map(Result::err));
        self.remembered(work.run, |pod| pod.waiting.clone_from(&performed.waiting));
        for removal in &actions.garbage {
            if let Err(error) = work.remove(removal).await {
                tracing::warn!(pod = %work.run.uid, %error, "garbage stays until a later run");
            }
        }
        performed
    }

    /// The status of this run's pod, from the observations of its plan, the termination messages of its containers, and
    /// the reasons why containers waited when a plan was last performed. Call it before a plan is performed, to report
    /// the plan's exits, and again afterwards. At the end of `activeDeadlineSeconds`, the worker runs again.
    /// `previous` is the status reported last. `runtime` is the runtime's name: `containerd` in `containerd://…`.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn status<S>(
        &self,
        run: &Run<S>,
        pod: &Pod,
        observed: &Observed,
        previous: Option<&PodStatus>,
        runtime: &str,
    ) -> PodStatus {
        let messages = self.termination_messages(run, observed).await;
        let waiting = self.remembered(run, |pod| pod.waiting.clone());
        let now = run.pleg.clock().wall();
        let status = pod_status(PodState {
            pod,
            observed,
            previous,
            messages: &messages,
            waiting: &waiting,
            runtime,
            host_ips: &self.node.host_ips,
            now,
        });
        let left = time_left(pod, &status, now).filter(|left| !left.is_zero());
        if let Some(left) = left.filter(|_| run.spec.is_some()) {
            run.due_by(run.now().after(left));
        }
        status
    }

    fn remembered<S, T>(&self, run: &Run<S>, of: impl FnOnce(&mut Remembered) -> T) -> T {
        of(lock(&self.pods).entry(run.uid.clone()).or_default())
    }

    fn pod_ips<S>(&self, run: &Run<S>, pod: &Pod) -> Vec<IpAddr> {
        pod_ips(&run.view.status, pod, &self.node.host_ips)
    }
}

/// A plan that is being performed, and the pod that it is for.
struct Performing<'a, S> {
    performer: &'a Performer,
    run: &'a Run<S>,
    /// `None` if the specification of the pod was never known.
    pod: Option<&'a Pod>,
}

impl<S> Performing<'_, S> {
    /// Creates the sandbox, or starts the containers one by one. Starts no further container once the pod is deleted.
    async fn start_all(&self, actions: &Actions, mut prepared: Prepared, done: &mut Performed) {
        if let (Some(attempt), Some(pod), Some(config)) =
            (actions.create_sandbox, self.pod, &prepared.sandbox)
            && let Err(error) = self.create_sandbox(attempt, config.clone()).await
        {
            done.pod_failed(pod, error);
        }
        let is_deleted = || self.run.deleted().now_or_never().is_some();
        for start in actions.start.iter().take_while(|_| !is_deleted()) {
            let sandbox = actions.sandbox.as_ref();
            match self.start(start, sandbox, &mut prepared).await {
                Ok(started) => done.started.extend(started),
                Err((reason, error)) => done.failed(&start.name, reason, error),
            }
        }
    }
}

/// The waiting reason that upstream's kubelet shows for a container that was not created yet.
pub(crate) fn not_created(pod: &Pod) -> &'static str {
    match spec_of(pod).init_containers.as_deref() {
        None | Some([]) => "ContainerCreating",
        Some(_) => "PodInitializing",
    }
}
