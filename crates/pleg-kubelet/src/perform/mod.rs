//! Performs what a worker has decided, with calls to the runtime (feature `k8s-openapi`).
//!
//! Order of one run: [`pod_actions`](crate::actions::pod_actions) decides, [`Performer::prepare`]
//! makes what the decision needs and takes from it what cannot be done yet,
//! [`PodHistory::record`](crate::history::PodHistory::record) takes over the rest, and
//! [`Performer::perform`] makes the calls.

mod calls;
mod credentials;
mod files;
mod images;
mod lifecycle;
mod predecessor;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::{Container, ContainerStateWaiting, Pod};
use pleg::core::CallError;
use pleg::{Id, Instant, InvalidSetting, PodUid};
use pleg_cri::{CriClient, v1};

use crate::actions::{MIN_GRACE, PodActions, StartContainer, WaitReason, Waiting};
use crate::backoff::{BackOff, BackOffSettings};
use crate::cri_config::{ContainerInput, FieldError, NodeConfig, sandbox_config};
use crate::gc::Removal;
use crate::pod_name::PodName;
use crate::pod_status::{crash_loop_back_off, waiting};
use crate::probe::CheckError;
use crate::unsupported::unsupported;
use crate::volumes::VolumeError;
use crate::worker::Run;

use calls::{failed, unless_gone};
use files::Files;
use images::{Image, Images};
use predecessor::Names;

/// How often a pod looks whether an earlier one of its name has ended.
const PREDECESSOR_PERIOD: Duration = Duration::from_millis(200);

/// Performs the actions of pods.
#[derive(Debug)]
pub struct Performer {
    client: CriClient,
    node: NodeConfig,
    images: Images,
    files: Files,
    names: Names,
    /// Why containers waited last, by pod and name.
    waiting: Mutex<BTreeMap<PodUid, BTreeMap<String, ContainerStateWaiting>>>,
    /// The termination messages that were read, by pod and container.
    messages: Mutex<BTreeMap<PodUid, BTreeMap<Id, String>>>,
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

/// What a decision needs, beside the calls.
#[derive(Debug, Default)]
pub struct Prepared {
    sandbox: Option<v1::PodSandboxConfig>,
    containers: BTreeMap<String, v1::ContainerConfig>,
    performed: Performed,
}

/// The outcome of performing the actions of a decision.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Performed {
    /// The containers that were started.
    pub started: Vec<Started>,
    /// The actions that failed.
    pub errors: Vec<PerformError>,
    /// Why containers wait now, by name: for their status.
    pub waiting: BTreeMap<String, ContainerStateWaiting>,
    /// When an action that waits for an image, or for another pod of the same name, can be tried again.
    pub due: Option<Instant>,
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

impl Prepared {
    /// Nothing of the pod can be started.
    fn refused(&mut self, pod: &Pod, actions: &mut PodActions, error: PerformError) {
        actions.start.clear();
        actions.create_sandbox = None;
        self.performed.pod_failed(pod, error);
    }
}

impl Performed {
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
    /// Performs actions with the calls of `client`.
    #[must_use]
    pub fn new(client: CriClient, node: NodeConfig) -> Self {
        Self {
            images: Images::new(
                client.clone(),
                node.docker_config.clone(),
                BackOff::default(),
            ),
            client,
            node,
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

    /// The node's configuration.
    #[must_use]
    pub const fn node(&self) -> &NodeConfig {
        &self.node
    }

    /// Makes what the actions need: directories, volumes, images, configurations. What cannot be
    /// done without them is removed from `actions`, with the reason in the outcome.
    ///
    /// A sandbox waits until no other pod of the same namespace and name runs or may run: an edited manifest is
    /// another pod. An image is pulled in the background; when that has ended, the pod is run again.
    ///
    /// # Cancel safety
    /// Nothing is lost; what was made stays.
    pub async fn prepare<S: Send + Sync + 'static>(
        &self,
        run: &Run<S>,
        pod: &Pod,
        actions: &mut PodActions,
    ) -> Prepared {
        let mut prepared = Prepared::default();
        for Waiting { name, reason } in &actions.waiting {
            if let WaitReason::BackOff(delayed) = reason {
                let reason = crash_loop_back_off(delayed.delay, name, pod);
                prepared.performed.waiting.insert(name.clone(), reason);
            }
        }
        self.refresh_volumes(run, pod, actions).await;
        let creates = actions.start.iter().any(|start| start.existing.is_none());
        if !creates && actions.create_sandbox.is_none() {
            return prepared;
        }
        if let Some(error) = unsupported(pod).into_iter().next() {
            prepared.refused(pod, actions, error.into());
            return prepared;
        }
        if actions.create_sandbox.is_some()
            && let Err(other) = self.names.take(run.pleg(), PodName::of(pod), &run.uid)
        {
            actions.create_sandbox = None;
            prepared.performed.waits_for(pod, &other);
            prepared.performed.due = Some(run.now().after(PREDECESSOR_PERIOD));
            return prepared;
        }
        let attempt = actions.create_sandbox.unwrap_or_else(|| {
            let mut sandboxes = run.view.status.sandboxes.iter();
            let used = sandboxes.find(|s| Some(&s.id) == actions.sandbox.as_ref());
            used.map_or(0, |s| s.attempt)
        });
        let made = self.make_directories(run, pod, actions).await;
        match made.and_then(|()| Ok(sandbox_config(pod, &self.node, attempt)?)) {
            Ok(config) => prepared.sandbox = Some(config),
            Err(error) => {
                prepared.refused(pod, actions, error);
                return prepared;
            }
        }
        let mut ready = Vec::new();
        for start in std::mem::take(&mut actions.start) {
            let is_ready = start.existing.is_some()
                || self
                    .prepare_container(run, pod, &start, &mut prepared)
                    .await;
            if is_ready {
                ready.push(start);
            }
        }
        actions.start = ready;
        prepared
    }

    /// Performs all actions of a decision, as [`prepare`](Self::prepare) has left it. Every end of a
    /// write is recorded in the run. An action that fails does not prevent those that do not need it.
    ///
    /// # Cancel safety
    /// A call in progress is cancelled, which may or may not take effect.
    pub async fn perform<S>(
        &self,
        run: &Run<S>,
        pod: Option<&Pod>,
        actions: &PodActions,
        prepared: Prepared,
    ) -> Performed {
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
        let starts = self.start_all(run, pod, actions, prepared);
        let (stopped, mut errors, resized, mut performed) =
            futures::join!(stops, others, resized, starts);
        errors.extend(resized.into_iter().filter_map(Result::err));
        let stopped = stopped.into_iter().filter_map(Result::err);
        performed.errors.extend(stopped.chain(errors));
        let waiting = performed.waiting.clone();
        self.last_waiting().insert(run.uid.clone(), waiting);
        performed
    }

    /// Why containers of a pod waited when its actions were last performed, by name: for a status before
    /// those of the next decision are.
    #[must_use]
    pub fn waiting(&self, uid: &PodUid) -> BTreeMap<String, ContainerStateWaiting> {
        self.last_waiting().get(uid).cloned().unwrap_or_default()
    }

    fn last_waiting(
        &self,
    ) -> MutexGuard<'_, BTreeMap<PodUid, BTreeMap<String, ContainerStateWaiting>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes what a garbage collection has found. A removal that fails is logged. It is no error of the
    /// run: the pod does not need it, and [`Decider::removals`](crate::decision::Decider::removals) repeats
    /// it.
    ///
    /// # Cancel safety
    /// A call in progress is cancelled, which may or may not take effect.
    pub async fn remove_all<S>(&self, run: &Run<S>, removals: &[Removal]) {
        for removal in removals {
            if let Err(error) = self.remove(run, removal).await {
                tracing::warn!(pod = %run.uid, %error, "not removed; tried again later");
            }
        }
    }

    /// Removes what a garbage collection has found.
    ///
    /// # Errors
    /// If a call fails.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call in flight, which may still take effect.
    pub async fn remove<S>(&self, run: &Run<S>, removal: &Removal) -> Result<(), PerformError> {
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

    /// Finds the image of a container that is to be created, and makes its configuration. Returns
    /// whether it can be created now.
    async fn prepare_container<S: Send + Sync + 'static>(
        &self,
        run: &Run<S>,
        pod: &Pod,
        start: &StartContainer,
        prepared: &mut Prepared,
    ) -> bool {
        let Some(container) = container_of(pod, &start.name) else {
            return false;
        };
        let performed = &mut prepared.performed;
        let image = match self.images.of(run, pod, container).await {
            Image::Present(image) => image,
            Image::Absent(reason, due) => {
                performed.waiting.insert(start.name.clone(), reason);
                performed.due = performed.due.into_iter().chain(due).min();
                return false;
            }
        };
        let pod_ips = self.pod_ips(run, pod);
        let input = ContainerInput {
            pod,
            container,
            attempt: start.attempt,
            restart_count: start.restart_count,
            image_ref: &image,
            pod_ips: &pod_ips,
        };
        match self.container_config(run, &input).await {
            Ok(config) => {
                prepared.containers.insert(start.name.clone(), config);
                true
            }
            Err(error) => {
                let reason = waiting("CreateContainerConfigError", error.to_string());
                performed.waiting.insert(start.name.clone(), reason);
                let container = start.name.clone();
                performed
                    .errors
                    .push(PerformError::Field { container, error });
                false
            }
        }
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
        actions: &PodActions,
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

fn container_of<'a>(pod: &'a Pod, name: &str) -> Option<&'a Container> {
    containers_of(pod).find(|c| c.name == name)
}
