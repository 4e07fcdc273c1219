//! Performs what a worker has decided, with calls to the runtime (feature `k8s-openapi`).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use futures::future::join_all;
use k8s_openapi::api::core::v1::{Container, HostPathVolumeSource, Pod, Volume as ApiVolume};
use pleg::core::CallError;
use pleg::{Id, PodUid};
use pleg_cri::{CriClient, v1};

use crate::actions::{PodActions, StartContainer, StopContainer};
use crate::cri_config::{ContainerInput, FieldError, NodeConfig, container_config, sandbox_config};
use crate::pod_status::Waiting;
use crate::volumes::{HostPathKind, PodDirectories, Volume, VolumeError};
use crate::worker::Run;

/// Performs the actions of pods.
#[derive(Debug)]
pub struct Performer {
    client: CriClient,
    node: NodeConfig,
    directories: PodDirectories,
    /// The images that were found or pulled, and how the image service names them. One that is gone
    /// is found out by the create that fails.
    images: Mutex<BTreeMap<String, String>>,
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
    /// A field of the pod cannot be used.
    #[error("container {container}: {error}")]
    Field {
        /// The container.
        container: String,
        /// Its field.
        #[source]
        error: FieldError,
    },
    /// The image may not be pulled, and is not there.
    #[error(
        "container {container}: the image {image:?} is not present and its pull policy is Never"
    )]
    ImageNeverPull {
        /// The container.
        container: String,
        /// Its image.
        image: String,
    },
    /// A container of the decision is not in the specification.
    #[error("the pod has no container named {0:?}")]
    NoContainer(String),
}

/// The outcome of performing the actions of a decision.
#[derive(Debug, Default)]
pub struct Performed {
    /// The actions that failed.
    pub errors: Vec<PerformError>,
    /// Why containers that were to be started wait now, by name: for their status.
    pub waiting: BTreeMap<String, Waiting>,
}

impl Performer {
    /// Performs actions with the calls of `client`.
    pub fn new(client: CriClient, node: NodeConfig) -> Self {
        Self {
            client,
            directories: PodDirectories::new(node.pods.clone()),
            node,
            images: Mutex::default(),
        }
    }

    /// The node's configuration.
    pub const fn node(&self) -> &NodeConfig {
        &self.node
    }

    /// Performs all actions of a decision about `pod`; `None` where its specification is not known:
    /// then nothing is created. Every end of a write is recorded in the run. An action that fails
    /// does not prevent the others that do not need it.
    ///
    /// # Cancel safety
    /// A call in progress is cancelled, which may or may not take effect.
    pub async fn perform<S>(
        &self,
        run: &Run<S>,
        pod: Option<&Pod>,
        actions: &PodActions,
    ) -> Performed {
        let mut performed = Performed::default();
        let stops = join_all(actions.stop.iter().map(|stop| self.stop(run, stop)));
        let starts = self.start_all(run, pod, actions, &mut performed);
        let (stopped, ()) = futures::join!(stops, starts);
        let mut errors: Vec<_> = stopped.into_iter().filter_map(Result::err).collect();
        for id in &actions.stop_sandboxes {
            errors.extend(self.stop_sandbox(run, id).await.err());
        }
        for id in &actions.remove {
            errors.extend(self.remove_container(run, id).await.err());
        }
        performed.errors.append(&mut errors);
        performed
    }

    async fn stop<S>(&self, run: &Run<S>, stop: &StopContainer) -> Result<(), PerformError> {
        tracing::info!(pod = %run.uid, container = stop.name, id = %stop.id, reason = ?stop.reason,
            "stopping a container");
        let stopped = self.client.stop_container(&stop.id, stop.grace).await;
        run.written(stopped).map_err(failed(|| {
            format!("stop of container {} ({})", stop.name, stop.id)
        }))
    }

    /// Stops a sandbox.
    ///
    /// # Errors
    /// If the call fails.
    pub async fn stop_sandbox<S>(&self, run: &Run<S>, id: &Id) -> Result<(), PerformError> {
        let stopped = self.client.stop_pod_sandbox(id).await;
        run.written(stopped)
            .map_err(failed(|| format!("stop of sandbox {id}")))
    }

    /// Removes a container.
    ///
    /// # Errors
    /// If the call fails.
    pub async fn remove_container<S>(&self, run: &Run<S>, id: &Id) -> Result<(), PerformError> {
        let removed = self.client.remove_container(id).await;
        run.written(removed)
            .map_err(failed(|| format!("removal of container {id}")))
    }

    /// Stops and removes a sandbox.
    ///
    /// # Errors
    /// If a call fails.
    pub async fn remove_sandbox<S>(&self, run: &Run<S>, id: &Id) -> Result<(), PerformError> {
        self.stop_sandbox(run, id).await?;
        let removed = self.client.remove_pod_sandbox(id).await;
        run.written(removed)
            .map_err(failed(|| format!("removal of sandbox {id}")))
    }

    /// Removes the directories of a pod that is gone. Its logs stay, as upstream's do until they are
    /// collected.
    ///
    /// # Errors
    /// If something cannot be removed.
    pub async fn remove_directories(&self, uid: &PodUid) -> Result<(), VolumeError> {
        let (directories, uid) = (self.directories.clone(), uid.clone());
        blocking(move || directories.remove(&uid)).await
    }

    async fn start_all<S>(
        &self,
        run: &Run<S>,
        pod: Option<&Pod>,
        actions: &PodActions,
        performed: &mut Performed,
    ) {
        let Some(pod) = pod else { return };
        let attempt = actions.create_sandbox;
        let sandbox = match (attempt, &actions.sandbox) {
            (Some(attempt), _) => match self.create_sandbox(run, pod, attempt).await {
                Ok(id) => id,
                Err(error) => return performed.errors.push(error),
            },
            (None, Some(id)) => id.clone(),
            (None, None) => return,
        };
        let sandboxes = &run.view.status.sandboxes;
        let existing = sandboxes.iter().find(|s| s.id == sandbox);
        let attempt = attempt.or(existing.map(|s| s.attempt)).unwrap_or_default();
        let config = sandbox_config(pod, &self.node, attempt);
        for start in &actions.start {
            let place = (&sandbox, &config);
            if let Err((error, reason)) = self.start(run, pod, start, place).await {
                let waiting = Waiting {
                    reason: reason.to_owned(),
                    message: error.to_string(),
                };
                performed.waiting.insert(start.name.clone(), waiting);
                performed.errors.push(error);
            }
        }
    }

    async fn create_sandbox<S>(
        &self,
        run: &Run<S>,
        pod: &Pod,
        attempt: u32,
    ) -> Result<Id, PerformError> {
        let (directories, uid) = (self.directories.clone(), run.uid.clone());
        let (volumes, logs) = (volumes(pod), self.node.log_directory(pod));
        blocking(move || {
            directories.prepare(&uid, &volumes)?;
            std::fs::create_dir_all(&logs)
                .map_err(|source| VolumeError::Directory { path: logs, source })
        })
        .await?;
        let config = sandbox_config(pod, &self.node, attempt);
        let handler = pod
            .spec
            .as_ref()
            .and_then(|s| s.runtime_class_name.as_deref());
        let created = self
            .client
            .run_pod_sandbox(config, handler.unwrap_or_default());
        run.written(created.await)
            .map_err(failed(|| format!("start of sandbox {attempt}")))
    }

    /// Starts a container. The error comes with upstream's reason for its waiting.
    async fn start<S>(
        &self,
        run: &Run<S>,
        pod: &Pod,
        start: &StartContainer,
        (sandbox, sandbox_config): (&Id, &v1::PodSandboxConfig),
    ) -> Result<(), (PerformError, &'static str)> {
        let name = &start.name;
        let id = match &start.existing {
            Some(id) => id.clone(),
            None => {
                let no_config = |error| (error, "CreateContainerConfigError");
                let container = container_of(pod, name)
                    .ok_or_else(|| no_config(PerformError::NoContainer(name.clone())))?;
                let image = self.image(container).await?;
                let ips: Vec<IpAddr> = {
                    let shown = run.view.status.ips.iter();
                    shown.filter_map(|ip| ip.parse().ok()).collect()
                };
                let input = ContainerInput {
                    pod,
                    container,
                    attempt: start.attempt,
                    image_ref: &image,
                    pod_ips: &ips,
                };
                let config = container_config(&input, &self.node).map_err(|error| {
                    no_config(PerformError::Field {
                        container: name.clone(),
                        error,
                    })
                })?;
                let create = self
                    .client
                    .create_container(sandbox, config, sandbox_config.clone());
                run.written(create.await).map_err(|error| {
                    // The image may have been removed.
                    self.images()
                        .remove(container.image.as_deref().unwrap_or_default());
                    let what = || format!("create of container {name}, attempt {}", start.attempt);
                    (failed(what)(error), "CreateContainerError")
                })?
            }
        };
        let started = self.client.start_container(&id).await;
        run.written(started).map_err(|error| {
            let what = || format!("start of container {name} ({id})");
            (failed(what)(error), "RunContainerError")
        })
    }

    /// How the image service names the container's image; pulls it if necessary.
    async fn image(&self, container: &Container) -> Result<String, (PerformError, &'static str)> {
        let image = container.image.clone().unwrap_or_default();
        let policy = container.image_pull_policy.as_deref();
        // Upstream's default.
        let latest = image.ends_with(":latest") || !image_has_tag(&image);
        let always = policy.map_or(latest, |policy| policy == "Always");
        if !always && let Some(known) = self.images().get(&image) {
            return Ok(known.clone());
        }
        let spec = v1::ImageSpec {
            image: image.clone(),
            user_specified_image: image.clone(),
            ..v1::ImageSpec::default()
        };
        let failed_for = |what: &str, error| {
            let what = format!("{what} of image {image:?}");
            PerformError::Call { what, error }
        };
        let found = if always {
            None
        } else {
            let found = self.client.image_status(spec.clone()).await;
            found.map_err(|error| (failed_for("status", error), "ImageInspectError"))?
        };
        let reference = match found {
            Some(found) => found.id,
            None if policy == Some("Never") => {
                let container = container.name.clone();
                let error = PerformError::ImageNeverPull { container, image };
                return Err((error, "ErrImageNeverPull"));
            }
            None => {
                let pulled = self.client.pull_image(spec, None, None).await;
                pulled.map_err(|error| (failed_for("pull", error), "ErrImagePull"))?
            }
        };
        self.images().insert(image, reference.clone());
        Ok(reference)
    }

    fn images(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, String>> {
        self.images.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn failed(what: impl FnOnce() -> String) -> impl FnOnce(CallError) -> PerformError {
    move |error| PerformError::Call {
        what: what(),
        error,
    }
}

/// Runs what may block on a file system.
async fn blocking(
    work: impl FnOnce() -> Result<(), VolumeError> + Send + 'static,
) -> Result<(), VolumeError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(panic) => Err(VolumeError::Directory {
            path: PathBuf::new(),
            source: std::io::Error::other(panic),
        }),
    }
}

fn container_of<'a>(pod: &'a Pod, name: &str) -> Option<&'a Container> {
    let spec = pod.spec.as_ref()?;
    let mut all = spec
        .init_containers
        .iter()
        .flatten()
        .chain(&spec.containers);
    all.find(|c| c.name == name)
}

/// Whether a reference names a tag or a digest.
fn image_has_tag(image: &str) -> bool {
    let last = image.rsplit('/').next().unwrap_or(image);
    last.contains(':') || last.contains('@')
}

/// The volumes of a pod that the node provides.
fn volumes(pod: &Pod) -> BTreeMap<String, Volume> {
    let spec = pod.spec.as_ref();
    let volumes = spec.and_then(|s| s.volumes.as_ref()).into_iter().flatten();
    volumes
        .filter_map(|volume| Some((volume.name.clone(), provided(volume)?)))
        .collect()
}

fn provided(volume: &ApiVolume) -> Option<Volume> {
    match (&volume.host_path, &volume.empty_dir) {
        (Some(path), _) => Some(Volume::HostPath {
            path: PathBuf::from(&path.path),
            kind: kind_of(path),
        }),
        (None, Some(_)) => Some(Volume::EmptyDir),
        (None, None) => None,
    }
}

fn kind_of(path: &HostPathVolumeSource) -> HostPathKind {
    match path.type_.as_deref() {
        Some("DirectoryOrCreate") => HostPathKind::DirectoryOrCreate,
        Some("Directory") => HostPathKind::Directory,
        Some("FileOrCreate") => HostPathKind::FileOrCreate,
        Some("File") => HostPathKind::File,
        Some("Socket") => HostPathKind::Socket,
        Some("CharDevice") => HostPathKind::CharDevice,
        Some("BlockDevice") => HostPathKind::BlockDevice,
        _ => HostPathKind::Any,
    }
}
