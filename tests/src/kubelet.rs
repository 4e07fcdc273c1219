//! A CRI client that creates and removes pods and containers as a kubelet does, and records these objects.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use pleg::core::{Id, Kind, PodUid};
use pleg_cri::v1::runtime_service_client::RuntimeServiceClient;
use pleg_cri::{CriClient, CriConfig, CriRuntime, Endpoint, v1};
use tonic::transport::Channel;

use crate::daemon::Daemon;
use crate::wait::{pass_time, until};

/// The time limit of a call. No test freezes the daemon for as long as this.
const PATIENCE: Duration = Duration::from_secs(90);

/// The behaviour of a container's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// The program runs until it is stopped, and then exits with code 0.
    UntilStopped,
    /// The program runs until it is stopped or killed, and then exits with this exit code. On the simulated runtime,
    /// the caller of `kill_container` passes the exit code.
    UntilTerminated {
        /// The exit code, from 0 to 255.
        code: i32,
    },
    /// The program exits by itself.
    Exit {
        /// The exit code.
        code: i32,
        /// The run time in milliseconds.
        after_ms: u64,
    },
    /// The container's program does not exist, so StartContainer fails.
    CannotStart,
}

impl Life {
    /// The command of the container.
    #[must_use]
    pub fn command(self) -> Vec<String> {
        let words = match self {
            Self::UntilStopped => "/app pause".to_owned(),
            Self::UntilTerminated { code } => format!("/app pause {code}"),
            Self::Exit { code, after_ms } => format!("/app exit {code} {after_ms}"),
            // Real runtimes find no program /missing. Simulated ones fail a start if the last word is `fail-start`.
            Self::CannotStart => "/missing fail-start".to_owned(),
        };
        words.split(' ').map(str::to_owned).collect()
    }

    pub(crate) const fn exit_code(self) -> i32 {
        match self {
            Self::UntilStopped => 0,
            Self::CannotStart => 128,
            Self::Exit { code, .. } | Self::UntilTerminated { code } => code,
        }
    }
}

/// A sandbox or container that the kubelet has created.
#[derive(Clone, Debug)]
pub struct Object {
    /// The uid of the object's pod.
    pub uid: PodUid,
    /// Sandbox or container.
    pub kind: Kind,
    /// The name of the object, for messages.
    pub name: String,
    /// True after a successful StartContainer or RunPodSandbox.
    pub started: bool,
    /// The exit code with which the container's command ends.
    pub exit_code: i32,
    /// True after a successful call that removed the container or its pod.
    pub removed: bool,
}

/// All created sandboxes and containers, by id.
pub type Objects = BTreeMap<Id, Object>;

/// A pod that the kubelet has created.
#[derive(Clone, Debug)]
pub struct Pod {
    /// The pod's uid.
    pub uid: PodUid,
    /// The pod's sandbox.
    pub sandbox: Id,
    config: v1::PodSandboxConfig,
}

/// The client. Clones share the record of created objects.
#[derive(Clone, Debug)]
pub struct Kubelet {
    client: CriClient,
    reads: RuntimeServiceClient<Channel>,
    image: String,
    cgroup: String,
    logs: String,
    objects: Arc<Mutex<Objects>>,
}

impl Kubelet {
    /// A kubelet that uses this daemon.
    pub fn new(daemon: &Daemon) -> anyhow::Result<Self> {
        let logs = daemon.dir.join("logs");
        Self::at(&daemon.endpoint, &daemon.image, &daemon.cgroup, &logs)
    }

    /// A kubelet that uses the runtime at `endpoint`. Its containers run `image`, its pods have the parent
    /// cgroup `cgroup`, and their logs go to `logs`.
    pub fn at(endpoint: &Endpoint, image: &str, cgroup: &str, logs: &Path) -> anyhow::Result<Self> {
        let config = CriConfig::new(endpoint.clone()).with_call_deadline(PATIENCE);
        Ok(Self::over(&CriRuntime::new(config)?, image, cgroup, logs))
    }

    /// Like [`at`](Self::at), but uses the connections of an existing client.
    pub fn over(runtime: &CriRuntime, image: &str, cgroup: &str, logs: &Path) -> Self {
        Self {
            client: runtime.client(),
            reads: runtime.runtime_client(),
            image: image.to_owned(),
            cgroup: cgroup.to_owned(),
            logs: logs.to_string_lossy().into_owned(),
            objects: Arc::default(),
        }
    }

    /// All sandboxes and containers that this kubelet has created so far.
    pub fn objects(&self) -> Objects {
        self.record(|objects| objects.clone())
    }

    fn record<T>(&self, what: impl FnOnce(&mut Objects) -> T) -> T {
        what(&mut self.objects.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn remember(&self, id: &Id, what: impl FnOnce(&mut Object)) {
        self.record(|objects| objects.get_mut(id).map(what));
    }

    /// Calls RunPodSandbox. If the call fails, retries it with the next attempt number, because the runtime may keep
    /// the sandbox's name reserved after an interrupted call.
    pub async fn run_pod(&self, name: &str) -> anyhow::Result<Pod> {
        let mut config = self.pod_config(name);
        let mut last = None;
        for attempt in 0..20 {
            if let Some(metadata) = &mut config.metadata {
                metadata.attempt = attempt;
            }
            let run = self.client.run_pod_sandbox(config.clone(), "").await;
            match run.into_result() {
                Ok(sandbox) => {
                    let uid = PodUid::from(format!("uid-{name}"));
                    let object = Object {
                        uid: uid.clone(),
                        kind: Kind::Sandbox,
                        name: name.to_owned(),
                        started: true,
                        exit_code: 0,
                        removed: false,
                    };
                    self.record(|objects| objects.insert(sandbox.clone(), object));
                    return Ok(Pod {
                        uid,
                        sandbox,
                        config,
                    });
                }
                Err(error) => last = Some(error),
            }
            pass_time(Duration::from_millis(200)).await;
        }
        Err(last.context("never tried")?).with_context(|| format!("RunPodSandbox {name}"))
    }

    /// CreateContainer.
    pub async fn create(
        &self,
        pod: &Pod,
        name: &str,
        attempt: u32,
        life: Life,
    ) -> anyhow::Result<Id> {
        let of_pod = pod.config.metadata.clone().unwrap_or_default();
        let labels = [
            ("io.kubernetes.pod.uid", pod.uid.as_str()),
            ("io.kubernetes.pod.name", &of_pod.name),
            ("io.kubernetes.pod.namespace", &of_pod.namespace),
            ("io.kubernetes.container.name", name),
        ];
        let config = v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata {
                name: name.to_owned(),
                attempt,
            }),
            image: Some(v1::ImageSpec {
                image: self.image.clone(),
                ..v1::ImageSpec::default()
            }),
            command: life.command(),
            log_path: format!("{name}-{attempt}.log"),
            labels: labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            ..v1::ContainerConfig::default()
        };
        let created = self
            .client
            .create_container(&pod.sandbox, config, pod.config.clone());
        let id = created
            .await
            .into_result()
            .with_context(|| format!("{name} of {}", pod.uid))?;
        let object = Object {
            uid: pod.uid.clone(),
            kind: Kind::Container,
            name: format!("{}/{name}-{attempt}", pod.uid),
            started: false,
            exit_code: life.exit_code(),
            removed: false,
        };
        self.record(|objects| objects.insert(id.clone(), object));
        Ok(id)
    }

    /// Creates and starts a container.
    pub async fn run(&self, pod: &Pod, name: &str, attempt: u32, life: Life) -> anyhow::Result<Id> {
        let id = self.create(pod, name, attempt, life).await?;
        self.start(&id).await?;
        Ok(id)
    }

    /// Runs `count` pods with one container each.
    pub async fn run_pods(&self, count: usize) -> anyhow::Result<Vec<(Pod, Id)>> {
        let mut pods = Vec::new();
        for n in 0..count {
            let pod = self.run_pod(&format!("pod-{n}")).await?;
            let id = self.run(&pod, "app", 0, Life::UntilStopped).await?;
            pods.push((pod, id));
        }
        Ok(pods)
    }

    /// Calls StartContainer. If that fails, reads from the status whether this or an earlier call has started it.
    pub async fn start(&self, id: &Id) -> anyhow::Result<()> {
        let started = self.client.start_container(id).await.into_result();
        if started.is_ok() {
            self.remember(id, |d| d.started = true);
        } else if let Ok(Some(status)) = self.container_status(id).await {
            self.remember(id, |d| match status.started_at {
                0 if status.finished_at != 0 => d.exit_code = status.exit_code,
                0 => {}
                _ => d.started = true,
            });
        }
        Ok(started?)
    }

    /// Waits until the container's program handles SIGTERM, and calls StopContainer.
    pub async fn stop(&self, id: &Id) -> anyhow::Result<()> {
        self.wait_until_sigterm_is_handled(id).await?;
        let stopped = self.client.stop_container(id, Duration::from_secs(10));
        Ok(stopped.await.into_result()?)
    }

    /// Waits until the program of a container handles SIGTERM. A program that gets SIGTERM earlier exits with
    /// 143. (The runtime reports a container as started before runc has executed its program.) Returns at once
    /// if the runtime reports no process.
    pub async fn wait_until_sigterm_is_handled(&self, id: &Id) -> anyhow::Result<()> {
        const SIGTERM: u64 = 1 << 14;
        until(
            PATIENCE,
            "the container's program handles SIGTERM",
            || async {
                let process = self.process(id).await;
                let Ok(status) = std::fs::read_to_string(format!("/proc/{process}/status")) else {
                    return Some(());
                };
                let field = |name| status.lines().find_map(|line| line.strip_prefix(name));
                let caught = u64::from_str_radix(field("SigCgt:")?.trim(), 16).ok()?;
                let is_executed = field("Name:")?.trim() == "app";
                (is_executed && caught & SIGTERM != 0).then_some(())
            },
        )
        .await
    }

    /// The process id of a container, from the JSON that containerd adds to a verbose status. 0 if it has no process.
    pub async fn process(&self, id: &Id) -> u32 {
        let request = v1::ContainerStatusRequest {
            container_id: id.to_string(),
            verbose: true,
        };
        let mut client = self.reads.clone();
        let status = client.container_status(request);
        let Ok(Ok(status)) = tokio::time::timeout(PATIENCE, status).await else {
            return 0;
        };
        process_of(&status.into_inner().info).unwrap_or(0)
    }

    /// RemoveContainer.
    pub async fn remove(&self, id: &Id) -> anyhow::Result<()> {
        self.client.remove_container(id).await.into_result()?;
        self.remember(id, |d| d.removed = true);
        Ok(())
    }

    /// StopPodSandbox.
    pub async fn stop_pod(&self, pod: &Pod) -> anyhow::Result<()> {
        let stopped = self.client.stop_pod_sandbox(&pod.sandbox);
        Ok(stopped.await.into_result()?)
    }

    /// Calls RemovePodSandbox. The runtime also removes the containers of the sandbox.
    pub async fn remove_pod(&self, pod: &Pod) -> anyhow::Result<()> {
        let removed = self.client.remove_pod_sandbox(&pod.sandbox);
        removed.await.into_result()?;
        self.record(|objects| {
            let of_pod = objects.values_mut().filter(|d| d.uid == pod.uid);
            of_pod.for_each(|d| d.removed = true);
        });
        Ok(())
    }

    /// The number of the pod's containers with this name that the runtime lists as running.
    pub async fn running(&self, pod: &Pod, name: &str) -> anyhow::Result<usize> {
        let filter = v1::ContainerFilter {
            pod_sandbox_id: pod.sandbox.to_string(),
            ..v1::ContainerFilter::default()
        };
        let mut listed = self.containers(filter).await?;
        listed.retain(|c| {
            let is_named = c.metadata.as_ref().is_some_and(|m| m.name == name);
            is_named && c.state() == v1::ContainerState::ContainerRunning
        });
        Ok(listed.len())
    }

    /// All containers that the runtime lists.
    pub async fn containers(
        &self,
        filter: v1::ContainerFilter,
    ) -> anyhow::Result<Vec<v1::Container>> {
        let filter = Some(filter);
        let mut client = self.reads.clone();
        let listed = client.list_containers(v1::ListContainersRequest { filter });
        Ok(tokio::time::timeout(PATIENCE, listed)
            .await??
            .into_inner()
            .containers)
    }

    /// All sandboxes that the runtime lists.
    pub async fn sandboxes(&self) -> anyhow::Result<Vec<v1::PodSandbox>> {
        let mut client = self.reads.clone();
        let listed = client.list_pod_sandbox(v1::ListPodSandboxRequest::default());
        Ok(tokio::time::timeout(PATIENCE, listed)
            .await??
            .into_inner()
            .items)
    }

    /// The runtime's status of a container. `None` if the runtime does not have this container.
    pub async fn container_status(&self, id: &Id) -> anyhow::Result<Option<v1::ContainerStatus>> {
        let request = v1::ContainerStatusRequest {
            container_id: id.to_string(),
            verbose: false,
        };
        match tokio::time::timeout(PATIENCE, self.reads.clone().container_status(request)).await? {
            Ok(answer) => Ok(answer.into_inner().status),
            Err(status) if status.code() == tonic::Code::NotFound => Ok(None),
            Err(status) => Err(status.into()),
        }
    }

    fn pod_config(&self, name: &str) -> v1::PodSandboxConfig {
        let uid = format!("uid-{name}");
        let options = v1::NamespaceOption {
            network: v1::NamespaceMode::Node.into(),
            ..v1::NamespaceOption::default()
        };
        let security = v1::LinuxSandboxSecurityContext {
            namespace_options: Some(options),
            ..v1::LinuxSandboxSecurityContext::default()
        };
        v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: name.to_owned(),
                uid: uid.clone(),
                namespace: "test".to_owned(),
                attempt: 0,
            }),
            log_directory: format!("{}/{name}", self.logs),
            labels: [("io.kubernetes.pod.uid".to_owned(), uid)].into(),
            linux: Some(v1::LinuxPodSandboxConfig {
                cgroup_parent: self.cgroup.clone(),
                security_context: Some(security),
                ..v1::LinuxPodSandboxConfig::default()
            }),
            ..v1::PodSandboxConfig::default()
        }
    }
}

/// The process id from the JSON that containerd adds to a verbose status.
pub fn process_of(info: &BTreeMap<String, String>) -> Option<u32> {
    let (_, after) = info.get("info")?.split_once("\"pid\":")?;
    let digits = after.trim_start().split(|c: char| !c.is_ascii_digit());
    digits.into_iter().next()?.parse().ok()
}
