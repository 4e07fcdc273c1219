//! Performs plans with calls to the runtime (feature `k8s-openapi`).

mod calls;
mod credentials;
mod extend;
mod files;
mod images;
mod lifecycle;
mod predecessor;

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::{Container, ContainerStateWaiting, Pod, PodSpec};
use pleg::core::CallError;
use pleg::{Id, Instant, InvalidSetting, PodUid};
use pleg_cri::{CriClient, v1};

use crate::actions::{Actions, MIN_GRACE, StartContainer, WaitReason};
use crate::backoff::{BackOff, BackOffSettings};
use crate::cri_config::{ContainerInput, FieldError, NodeConfig, sandbox_config};
use crate::gc::Removal;
use crate::plan::Plan;
use crate::pod_name::PodName;
use crate::pod_status::{crash_loop_back_off, waiting};
use crate::probe::CheckError;
use crate::unsupported::unsupported;
use crate::volumes::VolumeError;
use crate::worker::{Action, Run};

pub use extend::{LastChanges, Sources};

use calls::{failed, unless_gone};
use extend::{AnySources, Nothing};
use files::Files;
use images::{Image, Images};
use predecessor::Names;

/// How often a pod looks whether an earlier one of its name has ended.
const PREDECESSOR_PERIOD: Duration = Duration::from_millis(200);

/// A field that [`Sources::credentials`] reads.
const PULL_SECRETS: &str = "spec.imagePullSecrets";

/// Performs the plans of pods. One for all pods of a node.
#[must_use]
pub struct Performer {
    client: CriClient,
    node: NodeConfig,
    sources: Arc<dyn AnySources>,
    last_changes: Box<dyn LastChanges>,
    images: Images,
    files: Files,
    names: Names,
    /// Why containers waited last, by pod and name.
    waiting: Mutex<BTreeMap<PodUid, BTreeMap<String, ContainerStateWaiting>>>,
    /// The termination messages that were read, by pod and container.
    messages: Mutex<BTreeMap<PodUid, BTreeMap<Id, String>>>,
}

impl fmt::Debug for Performer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Performer");
        debug.field("node", &self.node).finish_non_exhaustive()
    }
}

/// Why an action failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PerformError {
    /// A call failed.
    #[error("{what}: {error}")]
    Call {
        /// What it was to do.
        what: String,
        /// Its error.
        #[source]
        error: CallError,
    },
    /// A volume or a directory cannot be used.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// A hook of a container failed.
    #[error("{hook} hook of container {container}: {error}")]
    Hook {
        /// The container.
        container: String,
        /// `postStart`.
        hook: &'static str,
        /// Its error.
        #[source]
        error: CheckError,
    },
    /// A volume cannot be provided, or a last change was refused.
    #[error("{0}")]
    Extension(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A field of the pod cannot be used.
    #[error(transparent)]
    Pod(#[from] FieldError),
    /// A field of a container cannot be used.
    #[error("container {container}: {error}")]
    Field {
        /// The container.
        container: String,
        /// Its field.
        #[source]
        error: FieldError,
    },
}

/// What the calls of a plan need.
#[derive(Debug, Default)]
struct Prepared {
    sandbox: Option<v1::PodSandboxConfig>,
    containers: BTreeMap<String, v1::ContainerConfig>,
    performed: Performed,
}

/// The outcome of a plan.
#[must_use = "return `into_action()` from the reconcile function: an error is repeated"]
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Performed {
    /// The containers that were started.
    pub started: Vec<Started>,
    /// The actions that failed.
    pub errors: Vec<PerformError>,
    /// Why containers wait now, by name: for their status.
    pub waiting: BTreeMap<String, ContainerStateWaiting>,
}

/// A container that was started.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Started {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: Id,
    /// The number of earlier attempts under the same name.
    pub attempt: u32,
}

impl Performed {
    /// What the reconcile function returns. The pod is run again when the plan is due.
    ///
    /// # Errors
    /// The first action that failed.
    pub fn into_action(self) -> Result<Action, PerformError> {
        let error = self.errors.into_iter().next();
        error.map_or(Ok(Action::await_change()), Err)
    }

    /// What the pod as a whole needs could not be made. Its containers wait for it.
    fn pod_failed(&mut self, pod: &Pod, error: PerformError) {
        self.containers_wait(pod, &error.to_string());
        self.errors.push(error);
    }

    fn waits_for(&mut self, pod: &Pod, other: &PodUid) {
        let message = format!("pod {other}, which has the same name, has not ended yet");
        self.containers_wait(pod, &message);
    }

    fn containers_wait(&mut self, pod: &Pod, message: &str) {
        for container in containers_of(pod) {
            let reason = waiting(not_created(pod), message.to_owned());
            self.waiting.insert(container.name.clone(), reason);
        }
    }
}

impl Performer {
    /// Performs plans with the calls of `client`.
    pub fn new(client: CriClient, node: NodeConfig) -> Self {
        Self {
            images: Images::new(
                client.clone(),
                node.docker_config.clone(),
                BackOff::default(),
            ),
            client,
            node,
            sources: Arc::new(Nothing),
            last_changes: Box::new(Nothing),
            files: Files::default(),
            names: Names::default(),
            waiting: Mutex::default(),
            messages: Mutex::default(),
        }
    }

    /// With other delays between pulls of an image that failed. By default those of
    /// [`BackOffSettings`], as upstream.
    ///
    /// # Errors
    /// If a setting is invalid.
    pub fn image_back_off(mut self, settings: BackOffSettings) -> Result<Self, InvalidSetting> {
        let docker_config = self.node.docker_config.clone();
        self.images = Images::new(self.client.clone(), docker_config, BackOff::new(settings)?);
        Ok(self)
    }

    /// Takes volumes, environment variables and pull credentials from here that the node does not have.
    pub fn sources(mut self, sources: impl Sources) -> Self {
        self.sources = Arc::new(sources);
        self
    }

    /// Changes the configurations of sandboxes and containers last.
    pub fn last_changes(mut self, changes: impl LastChanges) -> Self {
        self.last_changes = Box::new(changes);
        self
    }

    /// The node's configuration.
    #[must_use]
    pub const fn node(&self) -> &NodeConfig {
        &self.node
    }

    /// Makes what the plan needs, records what can be begun, makes the calls, and removes the garbage
    /// of the pod. `pod` is `None` if the specification of a pod that must be terminated was never
    /// known.
    ///
    /// What cannot be done yet waits, with the reason in the outcome, and is not recorded: a container
    /// until its image was pulled, which goes on in the background and then runs the pod again; all
    /// containers until their volumes can be made; a sandbox until no other pod of the same namespace
    /// and name runs or may run, because an edited manifest is another pod.
    ///
    /// The end of every write is recorded in the run. An action that fails does not prevent those that
    /// do not need it. A removal of garbage that fails is logged, and repeated by a later plan.
    ///
    /// # Cancel safety
    /// A call in progress is cancelled, which may or may not take effect.
    pub async fn perform<S>(&self, pod: Option<&Pod>, mut plan: Plan<'_, S>) -> Performed {
        let prepared = match pod {
            Some(pod) => self.prepare(pod, &mut plan).await,
            None => {
                plan.actions.start.clear();
                plan.postpone_sandbox(None);
                Prepared::default()
            }
        };
        let run = plan.run;
        let actions = plan.begin().await;
        let stops = join_all(actions.stop.iter().map(|stop| self.stop(run, pod, stop)));
        let others = async {
            let mut errors = Vec::new();
            for id in &actions.stop_sandboxes {
                errors.extend(self.stop_sandbox(run, id).await.err());
            }
            for id in &actions.remove {
                errors.extend(self.remove_container(run, id).await.err());
            }
            errors
        };
        let resized = join_all(actions.resize.iter().map(|r| self.resize(run, pod, r)));
        let starts = self.start_all(run, pod, &actions, prepared);
        let (stopped, mut errors, resized, mut performed) =
            futures::join!(stops, others, resized, starts);
        errors.extend(resized.into_iter().filter_map(Result::err));
        let stopped = stopped.into_iter().filter_map(Result::err);
        performed.errors.extend(stopped.chain(errors));
        let waiting = performed.waiting.clone();
        self.last_waiting().insert(run.uid.clone(), waiting);
        for removal in &actions.garbage {
            if let Err(error) = self.remove(run, removal).await {
                tracing::warn!(pod = %run.uid, %error, "not removed; tried again later");
            }
        }
        performed
    }

    /// Makes directories, volumes, images and configurations. Postpones what cannot be done without
    /// them.
    async fn prepare<S>(&self, pod: &Pod, plan: &mut Plan<'_, S>) -> Prepared {
        let run = plan.run;
        let mut prepared = Prepared::default();
        for (name, reason) in &plan.observed.waiting {
            if let WaitReason::BackOff { delay } = reason {
                let reason = crash_loop_back_off(*delay, name, pod);
                prepared.performed.waiting.insert(name.clone(), reason);
            }
        }
        self.refresh_volumes(run, pod, &plan.actions).await;
        if plan.creates().next().is_none() && !plan.creates_sandbox() {
            return prepared;
        }
        if plan.creates_sandbox()
            && let Err(other) = self.names.take(run.pleg(), PodName::of(pod), &run.uid)
        {
            plan.postpone_sandbox(Some(run.now().after(PREDECESSOR_PERIOD)));
            prepared.performed.waits_for(pod, &other);
            return prepared;
        }
        let pod = match self.prepare_sandbox(pod, plan).await {
            Ok((with_volumes, config)) => {
                prepared.sandbox = Some(config);
                with_volumes
            }
            Err(error) => {
                plan.actions.start.clear();
                plan.postpone_sandbox(None);
                prepared.performed.pod_failed(pod, error);
                return prepared;
            }
        };
        let pod = &pod;
        for start in plan.actions.start.clone() {
            if start.existing.is_none()
                && let Err(due) = self
                    .prepare_container(run, pod, &start, &mut prepared)
                    .await
            {
                plan.postpone(&start.name, due);
            }
        }
        prepared
    }

    /// Why containers of a pod waited when its last plan was performed, by name: for a status before
    /// the next one is.
    #[must_use]
    pub fn waiting(&self, uid: &PodUid) -> BTreeMap<String, ContainerStateWaiting> {
        self.last_waiting().get(uid).cloned().unwrap_or_default()
    }

    fn last_waiting(
        &self,
    ) -> MutexGuard<'_, BTreeMap<PodUid, BTreeMap<String, ContainerStateWaiting>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn remove<S>(&self, run: &Run<S>, removal: &Removal) -> Result<(), PerformError> {
        match removal {
            Removal::StopContainer(id) => {
                let stopped = self.client.stop_container(id, MIN_GRACE);
                unless_gone(run.written(stopped.await))
                    .map_err(failed(|| format!("stop of container {id}")))
            }
            Removal::Container(id) => self.remove_container(run, id).await,
            Removal::Sandbox(id) => {
                self.stop_sandbox(run, id).await?;
                let removed = self.client.remove_pod_sandbox(id).await;
                unless_gone(run.written(removed))
                    .map_err(failed(|| format!("removal of sandbox {id}")))?;
                tracing::info!(pod = %run.uid, %id, "removed a sandbox");
                Ok(())
            }
        }
    }

    /// Makes directories and volumes, and the configuration of the sandbox. Returns the pod with the
    /// volumes that its sources provide.
    async fn prepare_sandbox<S>(
        &self,
        pod: &Pod,
        plan: &Plan<'_, S>,
    ) -> Result<(Pod, v1::PodSandboxConfig), PerformError> {
        let with_volumes = self.sources.with_volumes(pod).await;
        let pod = with_volumes.map_err(PerformError::Extension)?;
        // Variables are checked with their container, after its sources were asked.
        let is_read =
            |error: &FieldError| error.field == PULL_SECRETS && self.sources.reads_pull_secrets();
        let mut refused = unsupported(&pod).into_iter();
        if let Some(error) = refused.find(|error| !is_variable(error) && !is_read(error)) {
            return Err(error.into());
        }
        self.make_directories(plan.run, &pod, &plan.actions).await?;
        let mut config = sandbox_config(&pod, &self.node, sandbox_attempt(plan))?;
        let changed = self.last_changes.sandbox(&pod, &mut config);
        changed.map_err(PerformError::Extension)?;
        Ok((pod, config))
    }

    /// Finds the image of a new container, and makes its configuration.
    ///
    /// # Errors
    /// If it cannot be created now: when that is tried again, unless a change or a pull causes it.
    async fn prepare_container<S>(
        &self,
        run: &Run<S>,
        pod: &Pod,
        start: &StartContainer,
        prepared: &mut Prepared,
    ) -> Result<(), Option<Instant>> {
        let container = container_of(pod, &start.name).ok_or(None)?;
        let performed = &mut prepared.performed;
        let image = match self.images.of(run, pod, container, &self.sources).await {
            Image::Present(image) => image,
            Image::Absent(reason, due) => {
                performed.waiting.insert(start.name.clone(), reason);
                return Err(due);
            }
        };
        let config = self.container_config(run, pod, container, start, &image);
        match config.await {
            Ok(config) => {
                prepared.containers.insert(start.name.clone(), config);
                Ok(())
            }
            Err(error) => {
                let reason = waiting("CreateContainerConfigError", error.to_string());
                performed.waiting.insert(start.name.clone(), reason);
                performed.errors.push(error);
                Err(None)
            }
        }
    }

    async fn container_config<S>(
        &self,
        run: &Run<S>,
        pod: &Pod,
        container: &Container,
        start: &StartContainer,
        image: &str,
    ) -> Result<v1::ContainerConfig, PerformError> {
        let container = self.sources.with_environment(pod, container).await;
        let container = &container.map_err(PerformError::Extension)?;
        let input = ContainerInput {
            pod,
            container,
            attempt: start.attempt,
            restart_count: start.restart_count,
            image_ref: image,
            pod_ips: &self.pod_ips(run, pod),
        };
        let of_container = |error| {
            let container = start.name.clone();
            PerformError::Field { container, error }
        };
        let mut refused = unsupported(&alone(container)).into_iter();
        if let Some(error) = refused.find(is_variable) {
            return Err(of_container(error));
        }
        let config = self.config_with_paths(run, &input).await;
        let mut config = config.map_err(of_container)?;
        let changed = self.last_changes.container(pod, &mut config);
        changed.map_err(PerformError::Extension)?;
        Ok(config)
    }

    fn pod_ips<S>(&self, run: &Run<S>, pod: &Pod) -> Vec<IpAddr> {
        let shown = run.view.status.ips.iter();
        let mut pod_ips: Vec<IpAddr> = shown.filter_map(|ip| ip.parse().ok()).collect();
        let is_on_host = pod.spec.as_ref().and_then(|s| s.host_network) == Some(true);
        // The runtime reports no address for it.
        if pod_ips.is_empty() && is_on_host {
            pod_ips.clone_from(&self.node.host_ips);
        }
        pod_ips
    }

    async fn start_all<S>(
        &self,
        run: &Run<S>,
        pod: Option<&Pod>,
        actions: &Actions,
        mut prepared: Prepared,
    ) -> Performed {
        let mut performed = std::mem::take(&mut prepared.performed);
        if let (Some(attempt), Some(pod), Some(config)) =
            (actions.create_sandbox, pod, &prepared.sandbox)
        {
            let created = self.create_sandbox(run, pod, attempt, config.clone());
            if let Err(error) = created.await {
                performed.pod_failed(pod, error);
            }
        }
        for start in &actions.start {
            let started = match &start.existing {
                Some(id) => self.start(run, pod, start, id).await,
                None => {
                    self.create_and_start(run, pod, actions, start, &mut prepared)
                        .await
                }
            };
            match started {
                Ok(started) => performed.started.extend(started),
                Err((error, reason)) => {
                    let reason = waiting(reason, error.to_string());
                    performed.waiting.insert(start.name.clone(), reason);
                    performed.errors.push(error);
                }
            }
        }
        performed
    }
}

/// The attempt of the sandbox that the plan creates or uses.
fn sandbox_attempt<S>(plan: &Plan<'_, S>) -> u32 {
    let used = plan.actions.sandbox.as_ref();
    plan.actions.create_sandbox.unwrap_or_else(|| {
        let mut sandboxes = plan.observed.view.status.sandboxes.iter();
        let used = sandboxes.find(|s| Some(&s.id) == used);
        used.map_or(0, |s| s.attempt)
    })
}

/// Upstream's reason of a container that waits to be created.
pub(crate) fn not_created(pod: &Pod) -> &'static str {
    let init = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.init_containers.as_ref());
    match init.is_some_and(|init| !init.is_empty()) {
        true => "PodInitializing",
        false => "ContainerCreating",
    }
}

fn containers_of(pod: &Pod) -> impl Iterator<Item = &Container> {
    pod.spec.iter().flat_map(|spec| {
        let init = spec.init_containers.iter().flatten();
        init.chain(&spec.containers)
    })
}

/// Whether the field is of the environment of a container.
fn is_variable(error: &FieldError) -> bool {
    error.field.contains("].env")
}

/// A pod of this container alone.
fn alone(container: &Container) -> Pod {
    let spec = PodSpec {
        containers: vec![container.clone()],
        ..PodSpec::default()
    };
    Pod {
        spec: Some(spec),
        ..Pod::default()
    }
}

fn container_of<'a>(pod: &'a Pod, name: &str) -> Option<&'a Container> {
    containers_of(pod).find(|c| c.name == name)
}
