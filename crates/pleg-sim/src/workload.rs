//! A simulated workload: pods are created, crash, restart, complete and are removed.
//!
//! The workload acts like a small kubelet: each step reads the states of the workload's pods from the node and makes
//! the next CRI calls. Only the crashes bypass the CRI.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use pleg_cri::v1::{self, ContainerState, runtime_service_server::RuntimeService as _};
use tokio::sync::watch;
use tonic::{Request, Status};

use crate::{id::Rng, programs::ExitStatus, service::CriService, sim::Sim};

/// The label of the workload's pods.
const WORKLOAD_LABEL: (&str, &str) = ("pleg-sim/workload", "true");
const NAMESPACE: &str = "demo";
/// The mean time between two steps.
const STEP_INTERVAL: Duration = Duration::from_millis(1500);
/// The seconds between `SIGTERM` and `SIGKILL` of a container whose pod is removed.
const GRACE: i64 = 30;

/// A pod template: pod name, container names, arguments with which the first container exits (`None`: it does not).
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
    /// The seed of the workload's random decisions; 0 by default.
    pub seed: u64,
    /// The number of pods that the workload keeps running; 6 by default.
    pub pods: usize,
    /// True: all pods are created at the start, and none of them is a job; jobs come later. False (the default): the
    /// pods are created one by one.
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

/// A running workload. It ends when the simulator ends.
#[derive(Debug)]
pub struct WorkloadHandle(watch::Receiver<bool>);

impl WorkloadHandle {
    /// Returns when the workload has tried to create the pods that [`WorkloadConfig::full`] asks for, or has ended.
    pub async fn filled(&self) {
        // `wait_for` fails if the workload has ended and thereby dropped the sender.
        let _ = self.0.clone().wait_for(|filled| *filled).await;
    }
}

impl Sim {
    /// Starts a workload: pods are created, crash, restart and are removed until the simulator ends.
    /// Must be called inside a tokio runtime.
    pub fn spawn_workload(&self, config: WorkloadConfig) -> WorkloadHandle {
        let (fills, filled) = watch::channel(false);
        let workload = Workload {
            cri: self.service(),
            rng: Rng::new(config.seed),
            config,
            pods: Vec::new(),
        };
        self.engine.tasks.spawn(workload.run(fills));
        WorkloadHandle(filled)
    }
}

struct Workload {
    cri: CriService,
    rng: Rng,
    config: WorkloadConfig,
    pods: Vec<Pod>,
}

struct Pod {
    sandbox: String,
    containers: Vec<Container>,
}

struct Container {
    /// The configuration of the next attempt to run the container. Only containers of jobs have arguments.
    config: v1::ContainerConfig,
    /// The ids of the last two attempts.
    attempts: Vec<String>,
}

impl Workload {
    async fn run(mut self, filled: watch::Sender<bool>) {
        for _ in 0..self.config.pods * usize::from(self.config.full) {
            if let Err(status) = self.create_pod(false).await {
                tracing::debug!(%status, "the workload failed to create a pod");
            }
        }
        // There may be no receiver.
        let _ = filled.send(true);
        let engine = Arc::clone(&self.cri.engine);
        while !engine.stop.is_cancelled() {
            if let Err(status) = self.step().await {
                tracing::debug!(%status, "a step of the workload failed");
            }
            // A random pause between 50 % and 150 % of the interval.
            let percent = u32::try_from(50 + self.rng.below(101)).unwrap_or(100);
            engine.pause(STEP_INTERVAL * percent / 100).await;
        }
    }

    /// Does the most urgent thing: removes a pod whose job has completed, restarts a container, or creates a missing
    /// pod. If nothing is urgent, lets a container crash, removes a pod or does nothing, at random.
    async fn step(&mut self) -> Result<(), Status> {
        let engine = &self.cri.engine;
        engine.admit("ListPodSandbox", "").await?;
        engine.admit("ListContainers", "").await?;
        let (mut completed, mut dead, mut running) = (None, None, Vec::new());
        {
            let world = engine.world();
            self.pods
                .retain(|pod| world.sandboxes.contains_key(&pod.sandbox));
            for (at, pod) in self.pods.iter_mut().enumerate() {
                for container in &mut pod.containers {
                    let Some(id) = container.attempts.last() else {
                        continue;
                    };
                    match world.container_state(id) {
                        Ok(ContainerState::ContainerRunning) => running.push(id.clone()),
                        Ok(ContainerState::ContainerExited)
                            if !container.config.args.is_empty() =>
                        {
                            completed = Some(at);
                        }
                        Ok(ContainerState::ContainerExited) if world.is_ready(&pod.sandbox) => {
                            dead = Some((&*pod.sandbox, container));
                        }
                        _ => {}
                    }
                }
            }
        }
        if let Some(pod) = completed {
            return self.remove_pod(pod).await;
        }
        if let Some((sandbox, container)) = dead {
            return container.start(&self.cri, sandbox).await;
        }
        if self.pods.len() < self.config.pods {
            return self.create_pod(true).await;
        }
        match self.rng.below(10) {
            0..4 => {
                let code = self.rng.choose(&[1, 2, 137, 139]);
                let exit = ExitStatus::from_code(*code.unwrap_or(&1));
                if let Some(victim) = self.rng.choose(&running) {
                    engine.kill_container(victim, exit);
                }
                Ok(())
            }
            4..6 => {
                let pod = self.rng.below(self.pods.len() as u64);
                self.remove_pod(usize::try_from(pod).unwrap_or(0)).await
            }
            _ => Ok(()),
        }
    }

    /// Creates a pod from a random template. If `jobs` is false, uses only templates whose containers do not exit.
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
        let request = v1::RunPodSandboxRequest {
            config: Some(config),
            ..Default::default()
        };
        let run = self.cri.run_pod_sandbox(Request::new(request)).await?;
        let mut pod = Pod {
            sandbox: run.into_inner().pod_sandbox_id,
            containers: Vec::new(),
        };
        let mut started = Ok(());
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
            let attempts = Vec::new();
            let mut container = Container { config, attempts };
            started = started.and(container.start(&self.cri, &pod.sandbox).await);
            pod.containers.push(container);
        }
        self.pods.push(pod);
        started
    }

    /// Removes a pod as a kubelet does: stops its containers, with a grace period, and then removes the sandbox.
    async fn remove_pod(&self, at: usize) -> Result<(), Status> {
        let Some(pod) = self.pods.get(at) else {
            return Ok(());
        };
        for container_id in pod.containers.iter().filter_map(|c| c.attempts.last()) {
            let request = v1::StopContainerRequest {
                container_id: container_id.clone(),
                timeout: GRACE,
            };
            self.cri.stop_container(Request::new(request)).await?;
        }
        let pod_sandbox_id = pod.sandbox.clone();
        let stop = v1::StopPodSandboxRequest { pod_sandbox_id };
        self.cri.stop_pod_sandbox(Request::new(stop)).await?;
        let pod_sandbox_id = pod.sandbox.clone();
        let remove = v1::RemovePodSandboxRequest { pod_sandbox_id };
        let removed = self.cri.remove_pod_sandbox(Request::new(remove)).await;
        removed.map(drop)
    }
}

impl Container {
    /// Creates and starts the next attempt of the container. Removes all earlier attempts except the most recent.
    async fn start(&mut self, cri: &CriService, sandbox: &str) -> Result<(), Status> {
        while self.attempts.len() > 1 {
            let container_id = self.attempts.remove(0);
            let remove = v1::RemoveContainerRequest { container_id };
            cri.remove_container(Request::new(remove)).await?;
        }
        let v1::ContainerMetadata { name, attempt } = self.config.metadata.get_or_insert_default();
        self.config.log_path = format!("{name}-{attempt}.log");
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(self.config.clone()),
            sandbox_config: Some(v1::PodSandboxConfig::default()),
        };
        let created = cri.create_container(Request::new(request)).await?;
        self.config.metadata.get_or_insert_default().attempt += 1;
        let container_id = created.into_inner().container_id;
        self.attempts.push(container_id.clone());
        let start = v1::StartContainerRequest { container_id };
        cri.start_container(Request::new(start)).await.map(drop)
    }
}
