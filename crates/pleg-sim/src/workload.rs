//! A simulated workload: pods are created, crash, restart, complete and are removed.
//!
//! It works like a small kubelet without memory: each step lists what exists through the CRI and
//! does the next thing. So it can be stopped and started again on the same node. Only crashes
//! bypass the CRI.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures::FutureExt as _;
use pleg_cri::v1::{self, runtime_service_server::RuntimeService as _};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{Request, Status};

use crate::{engine::Engine, id::Rng, programs::ExitStatus, service::CriService};

/// The label of the workload's pods. Other pods are not changed.
const WORKLOAD_LABEL: (&str, &str) = ("pleg-sim/workload", "true");
const CONTAINER_NAME: &str = "io.kubernetes.container.name";
const RESTART: &str = "pleg-sim/restart";

/// How long [`WorkloadHandle::stop`] waits for the current step.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// A pod template: its name, its containers, and how the first of them exits, if it does.
type PodTemplate = (&'static str, &'static [&'static str], Option<&'static str>);

/// The pods of the workload.
const POD_TEMPLATES: &[PodTemplate] = &[
    ("web", &["nginx", "log-shipper"], None),
    ("api", &["server", "proxy"], None),
    ("cache", &["redis"], None),
    ("worker", &["worker"], None),
    ("search", &["indexer", "query", "proxy"], None),
    ("backup", &["dump"], Some("exit 0 4000")),
    ("migrate", &["migrate"], Some("exit 0 2500")),
    ("report", &["report"], Some("exit 1 3000")),
];

/// The configuration of a workload.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorkloadConfig {
    /// The seed of its random decisions; 0 by default.
    pub seed: u64,
    /// How many pods it keeps running; 6 by default.
    pub pods: usize,
    /// Whether all pods are created at the start and jobs only later. By default all pods are
    /// created one by one.
    pub full: bool,
    /// The mean time between two steps; 1.5 s by default.
    pub step_interval: Duration,
    /// The namespace of its pods; `demo` by default.
    pub namespace: String,
}

impl Default for WorkloadConfig {
    fn default() -> Self {
        Self {
            seed: 0,
            pods: 6,
            full: false,
            step_interval: Duration::from_millis(1500),
            namespace: "demo".to_owned(),
        }
    }
}

impl WorkloadConfig {
    /// Sets the seed.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the number of pods.
    #[must_use]
    pub fn pods(mut self, pods: usize) -> Self {
        self.pods = pods;
        self
    }

    /// Creates all pods at the start.
    #[must_use]
    pub fn full(mut self) -> Self {
        self.full = true;
        self
    }

    /// Sets the mean time between two steps.
    #[must_use]
    pub fn step_interval(mut self, interval: Duration) -> Self {
        self.step_interval = interval;
        self
    }
}

/// A running workload. Dropping this does not stop it.
#[derive(Debug)]
#[must_use = "this stops the workload"]
pub struct WorkloadHandle {
    stop: CancellationToken,
    task: TaskTracker,
    filled: watch::Receiver<bool>,
}

impl WorkloadHandle {
    /// Returns when the pods that [`WorkloadConfig::full`] asks for exist.
    pub async fn filled(&self) {
        // An error means that the workload has ended.
        let _ = self.filled.clone().wait_for(|filled| *filled).await;
    }

    /// Stops the workload; its pods stay. Waits at most one second for the current step, then
    /// cancels it, as a step may hang (a fault, or a subscriber that blocks the runtime).
    pub async fn stop(self) {
        self.stop.cancel();
        self.task.wait().await;
    }
}

pub(crate) fn spawn(engine: &Arc<Engine>, config: WorkloadConfig) -> WorkloadHandle {
    let stop = engine.stop.child_token();
    let task = TaskTracker::new();
    let (fills, filled) = watch::channel(false);
    let earlier = engine.workloads_started.fetch_add(1, Ordering::Relaxed);
    let workload = Workload {
        cri: CriService::new(Arc::clone(engine)),
        engine: Arc::clone(engine),
        // A later workload on the same node uses other random numbers, so that uids are unique.
        rng: Rng::new(config.seed ^ earlier.rotate_right(8)),
        config,
    };
    let running = workload.run(stop.clone(), fills);
    engine.tasks.spawn(task.track_future(running));
    task.close();
    WorkloadHandle { stop, task, filled }
}

struct Workload {
    cri: CriService,
    engine: Arc<Engine>,
    rng: Rng,
    config: WorkloadConfig,
}

/// What a step sees of the node.
struct Listed {
    sandboxes: Vec<v1::PodSandbox>,
    containers: Vec<v1::Container>,
}

impl Workload {
    /// Runs until `stop`, and for [`STOP_GRACE`] after it at most.
    async fn run(mut self, stop: CancellationToken, filled: watch::Sender<bool>) {
        let engine = Arc::clone(&self.engine);
        tokio::select! {
            () = self.run_steps(&stop, &filled) => {}
            () = stop.cancelled().then(|()| engine.pause(STOP_GRACE)) => {
                tracing::debug!("cancelled a step of the workload that did not end in time");
            }
        }
    }

    async fn run_steps(&mut self, stop: &CancellationToken, filled: &watch::Sender<bool>) {
        if self.config.full {
            for _ in 0..self.config.pods {
                if stop.is_cancelled() {
                    return;
                }
                if let Err(status) = self.create_pod(false).await {
                    tracing::debug!(%status, "the workload failed to create a pod");
                }
            }
        }
        // There may be no receiver.
        let _ = filled.send(true);
        while !stop.is_cancelled() {
            if let Err(status) = self.step().await {
                tracing::debug!(%status, "a step of the workload failed");
            }
            // Between 50 % and 150 % of the configured interval.
            let percent = u32::try_from(50 + self.rng.below(101)).unwrap_or(100);
            let time = self.config.step_interval.saturating_mul(percent) / 100;
            tokio::select! {
                () = self.engine.pause(time) => {}
                () = stop.cancelled() => {}
            }
        }
    }

    /// Does the most urgent thing, or else something at random.
    async fn step(&mut self) -> Result<(), Status> {
        let listed = self.list().await?;
        if let Some(done) = listed.completed_pod() {
            return self.remove_pod(done.to_owned()).await;
        }
        if let Some((sandbox, dead)) = listed.to_restart() {
            return self.restart(&sandbox, &dead, &listed).await;
        }
        if listed.sandboxes.len() < self.config.pods {
            return self.create_pod(true).await;
        }
        match self.rng.below(10) {
            0..4 => {
                self.crash_container(&listed);
                Ok(())
            }
            4..6 => match self.rng.choose(&listed.sandboxes) {
                Some(pod) => self.remove_pod(pod.id.clone()).await,
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    async fn list(&self) -> Result<Listed, Status> {
        let (key, value) = WORKLOAD_LABEL;
        let label_selector = BTreeMap::from([(key.to_owned(), value.to_owned())]);
        let filter = Some(v1::PodSandboxFilter {
            label_selector: label_selector.clone(),
            ..Default::default()
        });
        let request = Request::new(v1::ListPodSandboxRequest { filter });
        let sandboxes = self.cri.list_pod_sandbox(request).await?.into_inner();
        let containers = self.containers(v1::ContainerFilter {
            label_selector,
            ..Default::default()
        });
        Ok(Listed {
            sandboxes: sandboxes.items,
            containers: containers.await?,
        })
    }

    async fn containers(&self, filter: v1::ContainerFilter) -> Result<Vec<v1::Container>, Status> {
        let filter = Some(filter);
        let request = Request::new(v1::ListContainersRequest { filter });
        Ok(self
            .cri
            .list_containers(request)
            .await?
            .into_inner()
            .containers)
    }

    // === actions ===

    /// Creates a pod from a random template. Without `jobs`, only from those that do not exit.
    async fn create_pod(&mut self, jobs: bool) -> Result<(), Status> {
        let lasts = |(_, _, ends): &&PodTemplate| jobs || ends.is_none();
        let templates: Vec<_> = POD_TEMPLATES.iter().filter(lasts).copied().collect();
        let Some((template, names, ends)) = self.rng.choose(&templates).copied() else {
            return Ok(());
        };
        let suffix = self.rng.id();
        let metadata = v1::PodSandboxMetadata {
            name: format!("{template}-{}", &suffix[..5]),
            uid: self.rng.uid(),
            namespace: self.config.namespace.clone(),
            attempt: 0,
        };
        let labels = [
            WORKLOAD_LABEL,
            ("io.kubernetes.pod.name", &metadata.name),
            ("io.kubernetes.pod.namespace", &metadata.namespace),
            ("io.kubernetes.pod.uid", &metadata.uid),
        ];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let labels = BTreeMap::from(labels);
        let request = Request::new(v1::RunPodSandboxRequest {
            config: Some(v1::PodSandboxConfig {
                log_directory: format!("/var/log/pods/{}", metadata.uid),
                hostname: metadata.name.clone(),
                labels: labels.clone(),
                metadata: Some(metadata),
                ..Default::default()
            }),
            ..Default::default()
        });
        let sandbox = self.cri.run_pod_sandbox(request).await?.into_inner();
        for (at, name) in names.iter().enumerate() {
            let ends = ends.filter(|_| at == 0);
            let restart = if ends.is_some() { "never" } else { "always" };
            let mut labels = labels.clone();
            labels.insert(CONTAINER_NAME.to_owned(), (*name).to_owned());
            labels.insert(RESTART.to_owned(), restart.to_owned());
            let args = ends.into_iter().flat_map(str::split_whitespace);
            let config = v1::ContainerConfig {
                metadata: Some(v1::ContainerMetadata {
                    name: (*name).to_owned(),
                    attempt: 0,
                }),
                image: Some(v1::ImageSpec {
                    image: format!("registry.example/{name}:1"),
                    ..Default::default()
                }),
                args: args.map(str::to_owned).collect(),
                labels,
                log_path: format!("{name}-0.log"),
                ..Default::default()
            };
            let id = &sandbox.pod_sandbox_id;
            self.create_and_start(id, config).await?;
        }
        Ok(())
    }

    /// Creates the successor of a container, and removes its predecessors except the last.
    async fn restart(
        &self,
        sandbox: &v1::PodSandbox,
        dead: &v1::Container,
        listed: &Listed,
    ) -> Result<(), Status> {
        let metadata = dead.metadata.clone().unwrap_or_default();
        let same = |c: &&v1::Container| {
            c.pod_sandbox_id == sandbox.id && name_of(c) == metadata.name && c.id != dead.id
        };
        for older in listed.containers.iter().filter(same) {
            let request = v1::RemoveContainerRequest {
                container_id: older.id.clone(),
            };
            self.cri.remove_container(Request::new(request)).await?;
        }
        let attempt = metadata.attempt.saturating_add(1);
        let config = v1::ContainerConfig {
            log_path: format!("{}-{attempt}.log", metadata.name),
            metadata: Some(v1::ContainerMetadata {
                attempt,
                ..metadata
            }),
            image: dead.image.clone(),
            labels: dead.labels.clone(),
            ..Default::default()
        };
        self.create_and_start(&sandbox.id, config).await
    }

    async fn create_and_start(
        &self,
        sandbox: &str,
        config: v1::ContainerConfig,
    ) -> Result<(), Status> {
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(config),
            sandbox_config: Some(v1::PodSandboxConfig::default()),
        };
        let created = self.cri.create_container(Request::new(request)).await?;
        let container_id = created.into_inner().container_id;
        let request = v1::StartContainerRequest { container_id };
        self.cri.start_container(Request::new(request)).await?;
        Ok(())
    }

    /// Removes a pod as a kubelet does: containers with a grace period, then the sandbox.
    async fn remove_pod(&self, id: String) -> Result<(), Status> {
        let containers = self.containers(v1::ContainerFilter {
            pod_sandbox_id: id.clone(),
            ..Default::default()
        });
        for container in containers.await? {
            let request = v1::StopContainerRequest {
                container_id: container.id,
                timeout: 30,
            };
            self.cri.stop_container(Request::new(request)).await?;
        }
        let pod_sandbox_id = id.clone();
        let request = v1::StopPodSandboxRequest { pod_sandbox_id };
        self.cri.stop_pod_sandbox(Request::new(request)).await?;
        let request = v1::RemovePodSandboxRequest { pod_sandbox_id: id };
        self.cri.remove_pod_sandbox(Request::new(request)).await?;
        Ok(())
    }

    fn crash_container(&mut self, listed: &Listed) {
        let running = v1::ContainerState::ContainerRunning as i32;
        let alive = listed.containers.iter().filter(|c| c.state == running);
        let alive: Vec<_> = alive.collect();
        let victim = self.rng.choose(&alive);
        let code = self.rng.choose(&[1, 2, 137, 139]);
        if let (Some(victim), Some(code)) = (victim, code) {
            let exit = ExitStatus::from_code(*code);
            self.engine.kill_container(&victim.id, exit);
        }
    }
}

impl Listed {
    /// A pod that has completed: none of its containers runs or will be restarted.
    fn completed_pod(&self) -> Option<&str> {
        let exited = v1::ContainerState::ContainerExited as i32;
        let over = |id: &str| {
            let its = self.containers.iter().filter(|c| c.pod_sandbox_id == id);
            let mut its = its.peekable();
            its.peek().is_some() && its.all(|c| c.state == exited && !is_restarted(c))
        };
        let mut ids = self.sandboxes.iter().map(|s| s.id.as_str());
        ids.find(|id| over(id))
    }

    /// The latest container of its name, if it exited and must be restarted.
    fn to_restart(&self) -> Option<(v1::PodSandbox, v1::Container)> {
        let mut latest: BTreeMap<(&str, &str), &v1::Container> = BTreeMap::new();
        for container in &self.containers {
            let entry = latest
                .entry((&container.pod_sandbox_id, name_of(container)))
                .or_insert(container);
            if attempt_of(container) > attempt_of(entry) {
                *entry = container;
            }
        }
        let exited = v1::ContainerState::ContainerExited as i32;
        let ready = v1::PodSandboxState::SandboxReady as i32;
        latest
            .into_values()
            .filter(|c| c.state == exited && is_restarted(c))
            .find_map(|c| {
                let sandbox = self.sandboxes.iter().find(|s| s.id == c.pod_sandbox_id)?;
                (sandbox.state == ready).then(|| (sandbox.clone(), c.clone()))
            })
    }
}

fn name_of(container: &v1::Container) -> &str {
    container.metadata.as_ref().map_or("", |m| &m.name)
}

fn attempt_of(container: &v1::Container) -> u32 {
    container.metadata.as_ref().map_or(0, |m| m.attempt)
}

fn is_restarted(container: &v1::Container) -> bool {
    container.labels.get(RESTART).is_some_and(|r| r == "always")
}
