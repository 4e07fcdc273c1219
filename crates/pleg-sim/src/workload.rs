//! A simulated workload: pods are created, crash, restart, complete and are removed.
//!
//! It works like a small kubelet without memory: each step looks at what exists and does the next
//! thing through calls of the CRI. Only crashes bypass the CRI.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use pleg_cri::v1;
use pleg_node_model::{Id, Kind, Object, State};
use tokio::sync::watch;
use tonic::Status;

use crate::{engine::Engine, id::Rng, programs::ExitStatus, service::CriService};

/// The label of the workload's pods. Other pods are not changed.
const WORKLOAD_LABEL: (&str, &str) = ("pleg-sim/workload", "true");
const NAMESPACE: &str = "demo";
/// The mean time between two steps.
const STEP_INTERVAL: Duration = Duration::from_millis(1500);
/// The time between `SIGTERM` and `SIGKILL` of a container whose pod is removed.
const GRACE: Duration = Duration::from_secs(30);

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
#[derive(Clone, Copy, Debug)]
pub struct WorkloadConfig {
    /// The seed of its random decisions; 0 by default.
    pub seed: u64,
    /// How many pods it keeps running; 6 by default.
    pub pods: usize,
    /// All pods are created at the start and jobs only later. By default all pods are created one
    /// by one.
    pub full: bool,
}

impl Default for WorkloadConfig {
    fn default() -> Self {
        Self {
            seed: 0,
            pods: 6,
            full: false,
        }
    }
}

/// A running workload. It ends with the simulator.
#[derive(Debug)]
pub struct WorkloadHandle(watch::Receiver<bool>);

impl WorkloadHandle {
    /// Returns when the pods that [`WorkloadConfig::full`] asks for exist.
    pub async fn filled(&self) {
        // An error means that the workload has ended.
        let _ = self.0.clone().wait_for(|filled| *filled).await;
    }
}

pub(crate) fn spawn(engine: &Arc<Engine>, config: WorkloadConfig) -> WorkloadHandle {
    let (fills, filled) = watch::channel(false);
    let workload = Workload {
        cri: CriService::new(Arc::clone(engine)),
        engine: Arc::clone(engine),
        rng: Rng::new(config.seed),
        config,
    };
    engine.tasks.spawn(workload.run(fills));
    WorkloadHandle(filled)
}

struct Workload {
    cri: CriService,
    engine: Arc<Engine>,
    rng: Rng,
    config: WorkloadConfig,
}

/// What a step sees of the workload's pods.
struct Seen {
    sandboxes: Vec<Object>,
    containers: Vec<(Object, v1::ContainerConfig)>,
}

impl Workload {
    async fn run(mut self, filled: watch::Sender<bool>) {
        let first = if self.config.full {
            self.config.pods
        } else {
            0
        };
        for _ in 0..first {
            if let Err(status) = self.create_pod(false).await {
                tracing::debug!(%status, "the workload failed to create a pod");
            }
        }
        // There may be no receiver.
        let _ = filled.send(true);
        while !self.engine.stop.is_cancelled() {
            if let Err(status) = self.step().await {
                tracing::debug!(%status, "a step of the workload failed");
            }
            // Between 50 % and 150 % of the interval.
            let percent = u32::try_from(50 + self.rng.below(101)).unwrap_or(100);
            self.engine.pause(STEP_INTERVAL * percent / 100).await;
        }
    }

    /// Does the most urgent thing, or else something at random.
    async fn step(&mut self) -> Result<(), Status> {
        self.cri.admit("ListPodSandbox", "").await?;
        self.cri.admit("ListContainers", "").await?;
        let seen = self.look();
        if let Some(done) = seen.completed_pod() {
            return self.remove_pod(done, &seen).await;
        }
        if let Some((dead, config)) = seen.to_restart() {
            return self.restart(dead, config.clone(), &seen).await;
        }
        if seen.sandboxes.len() < self.config.pods {
            return self.create_pod(true).await;
        }
        match self.rng.below(10) {
            0..4 => self.crash_container(&seen),
            4..6 => {
                if let Some(pod) = self.rng.choose(&seen.sandboxes) {
                    self.remove_pod(pod, &seen).await?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn look(&self) -> Seen {
        let world = self.engine.world();
        let (key, value) = WORKLOAD_LABEL;
        let is_own = |o: &&Object| {
            let pod = world.sandboxes.get(&**o.sandbox_id());
            pod.is_some_and(|pod| pod.config.labels.get(key).is_some_and(|l| l == value))
        };
        let own = world.node.objects().filter(is_own).cloned();
        let (sandboxes, containers): (Vec<_>, Vec<_>) = own.partition(|o| o.kind == Kind::Sandbox);
        let with_config = |o: Object| {
            let config = world.containers.get(&*o.id)?.config.clone();
            Some((o, config))
        };
        Seen {
            sandboxes,
            containers: containers.into_iter().filter_map(with_config).collect(),
        }
    }

    // === actions ===

    /// Creates a pod from a random template. Without `jobs`, only from those that do not exit.
    async fn create_pod(&mut self, jobs: bool) -> Result<(), Status> {
        let lasts = |(_, _, ends): &&PodTemplate| jobs || ends.is_none();
        let templates: Vec<_> = POD_TEMPLATES.iter().filter(lasts).copied().collect();
        let Some((template, names, mut ends)) = self.rng.choose(&templates).copied() else {
            return Ok(());
        };
        let suffix = self.rng.id();
        let metadata = v1::PodSandboxMetadata {
            name: format!("{template}-{}", &suffix[..5]),
            uid: self.rng.uid(),
            namespace: NAMESPACE.to_owned(),
            attempt: 0,
        };
        let labels = [
            WORKLOAD_LABEL,
            ("io.kubernetes.pod.name", &metadata.name),
            ("io.kubernetes.pod.namespace", &metadata.namespace),
            ("io.kubernetes.pod.uid", &metadata.uid),
        ];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let mut labels = BTreeMap::from(labels);
        let config = v1::PodSandboxConfig {
            log_directory: format!("/var/log/pods/{}", metadata.uid),
            hostname: metadata.name.clone(),
            labels: labels.clone(),
            metadata: Some(metadata),
            ..Default::default()
        };
        let run = |engine: Arc<Engine>, _| engine.run_sandbox(config, String::new());
        let sandbox = self.cri.change("RunPodSandbox", String::new(), run).await?;
        for name in names {
            let name = (*name).to_owned();
            labels.insert("io.kubernetes.container.name".to_owned(), name.clone());
            let args = ends.take().into_iter().flat_map(str::split_whitespace);
            let config = v1::ContainerConfig {
                image: Some(v1::ImageSpec {
                    image: format!("registry.example/{name}:1"),
                    ..Default::default()
                }),
                metadata: Some(v1::ContainerMetadata { name, attempt: 0 }),
                args: args.map(str::to_owned).collect(),
                labels: labels.clone(),
                ..Default::default()
            };
            self.create_and_start(sandbox.clone(), config).await?;
        }
        Ok(())
    }

    /// Creates the successor of a container, and removes its predecessors except the last.
    async fn restart(
        &self,
        dead: &Object,
        mut config: v1::ContainerConfig,
        seen: &Seen,
    ) -> Result<(), Status> {
        for (older, _) in &seen.containers {
            if is_same(older, dead) && older.id != dead.id {
                let (id, remove) = (older.id.to_string(), Engine::remove_container);
                self.cri.change("RemoveContainer", id, remove).await?;
            }
        }
        config.metadata.get_or_insert_default().attempt = dead.attempt.saturating_add(1);
        let sandbox = dead.sandbox_id().to_string();
        self.create_and_start(sandbox, config).await
    }

    async fn create_and_start(
        &self,
        sandbox: String,
        mut config: v1::ContainerConfig,
    ) -> Result<(), Status> {
        let v1::ContainerMetadata { name, attempt } = config.metadata.get_or_insert_default();
        config.log_path = format!("{name}-{attempt}.log");
        let of_sandbox = Some(v1::PodSandboxConfig::default());
        let create = |engine: Arc<Engine>, id| engine.create_container(id, config, of_sandbox);
        let created = self.cri.change("CreateContainer", sandbox, create);
        let (id, start) = (created.await?, Engine::start_container);
        self.cri.change("StartContainer", id, start).await
    }

    /// Removes a pod as a kubelet does: containers with a grace period, then the sandbox.
    async fn remove_pod(&self, pod: &Object, seen: &Seen) -> Result<(), Status> {
        for container in seen.of_pod(pod) {
            let stop = |engine: Arc<Engine>, id| engine.stop_container(id, GRACE);
            let stopped = self
                .cri
                .change("StopContainer", container.id.to_string(), stop);
            stopped.await?;
        }
        let (id, stop) = (pod.id.to_string(), Engine::stop_sandbox);
        self.cri.change("StopPodSandbox", id.clone(), stop).await?;
        let remove = Engine::remove_sandbox;
        self.cri.change("RemovePodSandbox", id, remove).await
    }

    fn crash_container(&mut self, seen: &Seen) {
        let containers = seen.containers.iter().map(|(o, _)| o);
        let alive: Vec<_> = containers.filter(|o| o.state() == State::Running).collect();
        let victim = self.rng.choose(&alive);
        let code = self.rng.choose(&[1, 2, 137, 139]);
        if let (Some(victim), Some(code)) = (victim, code) {
            let exit = ExitStatus::from_code(*code);
            self.engine.kill_container(&victim.id, exit);
        }
    }
}

impl Seen {
    fn of_pod(&self, pod: &Object) -> impl Iterator<Item = &Object> {
        let all = self.containers.iter().map(|(o, _)| o);
        all.filter(|o| *o.sandbox_id() == pod.id)
    }

    /// A pod of a job that has completed.
    fn completed_pod(&self) -> Option<&Object> {
        let mut jobs = self.containers.iter().filter(|(_, config)| is_job(config));
        let (ended, _) = jobs.find(|(o, _)| o.state() == State::Exited)?;
        self.sandboxes.iter().find(|s| s.id == *ended.sandbox_id())
    }

    /// The latest container of its name, if it exited, its sandbox is ready and it is no job.
    fn to_restart(&self) -> Option<&(Object, v1::ContainerConfig)> {
        let is_ready = |id: &Id| {
            let mut ready = self
                .sandboxes
                .iter()
                .filter(|s| s.state() == State::Running);
            ready.any(|s| s.id == *id)
        };
        let is_latest = |o: &Object| {
            let mut others = self.containers.iter();
            !others.any(|(other, _)| is_same(other, o) && other.attempt > o.attempt)
        };
        self.containers.iter().find(|(o, config)| {
            let has_exited = o.state() == State::Exited && !is_job(config);
            has_exited && is_latest(o) && is_ready(o.sandbox_id())
        })
    }
}

fn is_same(a: &Object, b: &Object) -> bool {
    (a.sandbox_id(), &a.name) == (b.sandbox_id(), &b.name)
}

fn is_job(config: &v1::ContainerConfig) -> bool {
    !config.args.is_empty()
}
