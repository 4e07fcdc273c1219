//! A CRI client that creates pods and containers, and records what it did.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use pleg::core::{Id, Kind, PodUid};
use pleg_cri::v1::runtime_service_client::RuntimeServiceClient;
use pleg_cri::{CriConfig, CriRuntime, Endpoint, v1};
use tonic::transport::Channel;

use crate::daemon::Daemon;
use crate::wait::until;

/// The limit of a call. A frozen daemon answers late.
const PATIENCE: Duration = Duration::from_secs(90);

/// Whether the runtime itself reported this error: a call that it did not answer has a source.
fn runtime_answered(error: &anyhow::Error) -> bool {
    let status = error.downcast_ref::<tonic::Status>();
    status.is_some_and(|status| std::error::Error::source(status).is_none())
}

/// What a container's program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It runs until it is stopped, and then ends with 0.
    UntilStopped,
    /// It runs until it is stopped or killed, and then exits with this code. On the simulated runtime,
    /// the caller of `kill_container` passes the code.
    UntilTerminated {
        /// From 0 to 255.
        code: i32,
    },
    /// It exits by itself.
    Exit {
        /// With this code.
        code: i32,
        /// After so many milliseconds.
        after_ms: u64,
    },
    /// There is no such program: its start fails.
    CannotStart,
}

impl Life {
    /// The command of the container.
    #[must_use]
    pub fn command(self) -> Vec<String> {
        let words = match self {
            Self::UntilStopped => vec!["/app".to_owned(), "pause".to_owned()],
            Self::UntilTerminated { code } => {
                vec!["/app".to_owned(), "pause".to_owned(), code.to_string()]
            }
            Self::Exit { code, after_ms } => {
                vec![
                    "/app".to_owned(),
                    "exit".to_owned(),
                    code.to_string(),
                    after_ms.to_string(),
                ]
            }
            // The second word is for the simulated runtime.
            Self::CannotStart => vec!["/missing".to_owned(), "fail-start".to_owned()],
        };
        words.into_iter().collect()
    }

    pub(crate) const fn exit_code(self) -> i32 {
        match self {
            Self::UntilStopped => 0,
            Self::CannotStart => 128,
            Self::Exit { code, .. } | Self::UntilTerminated { code } => code,
        }
    }
}

/// A sandbox or container that was created.
#[derive(Clone, Debug)]
pub struct Object {
    /// Its pod.
    pub uid: PodUid,
    /// Sandbox or container.
    pub kind: Kind,
    /// Its name, for messages.
    pub name: String,
    /// The call that starts it has succeeded.
    pub started: bool,
    /// The exit code that its command ends with.
    pub exit_code: i32,
    /// The call that removes it, or its pod, has succeeded.
    pub removed: bool,
}

/// All that were created, by id.
pub type Objects = BTreeMap<Id, Object>;

/// A pod that was created.
#[derive(Clone, Debug)]
pub struct Pod {
    /// Its uid.
    pub uid: PodUid,
    /// Its sandbox.
    pub sandbox: Id,
    config: v1::PodSandboxConfig,
}

/// The client. Clones share their record.
#[derive(Clone, Debug)]
pub struct Kubelet {
    client: RuntimeServiceClient<Channel>,
    image: String,
    cgroup: String,
    logs: String,
    objects: Arc<Mutex<Objects>>,
}

impl Kubelet {
    /// A kubelet of that daemon.
    ///
    /// # Errors
    /// If no client can be made.
    pub fn new(daemon: &Daemon) -> anyhow::Result<Self> {
        let logs = daemon.dir.join("logs");
        Self::at(&daemon.endpoint, &daemon.image, &daemon.cgroup, &logs)
    }

    /// A kubelet of the runtime at `endpoint`: its containers run `image`, its pods belong below
    /// `cgroup`, and their logs below `logs`.
    ///
    /// # Errors
    /// If no client can be made.
    pub fn at(endpoint: &Endpoint, image: &str, cgroup: &str, logs: &Path) -> anyhow::Result<Self> {
        let runtime = CriRuntime::new(CriConfig::new(endpoint.clone()))?;
        Ok(Self::over(runtime.runtime_client(), image, cgroup, logs))
    }

    /// The same, of the runtime behind that client.
    pub fn over(
        client: RuntimeServiceClient<Channel>,
        image: &str,
        cgroup: &str,
        logs: &Path,
    ) -> Self {
        Self {
            client,
            image: image.to_owned(),
            cgroup: cgroup.to_owned(),
            logs: logs.to_string_lossy().into_owned(),
            objects: Arc::default(),
        }
    }

    /// All sandboxes and containers that were created so far.
    pub fn objects(&self) -> Objects {
        self.objects
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn remember(&self, id: &Id, what: impl FnOnce(&mut Object)) {
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(object) = objects.get_mut(id) {
            what(object);
        }
    }

    fn begin(&self, id: &Id, object: Object) {
        self.objects
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id.clone(), object);
    }

    /// RunPodSandbox. A call that was interrupted leaves its name reserved: it is tried again
    /// with the next attempt number.
    ///
    /// # Errors
    /// If it does not succeed within [`PATIENCE`].
    pub async fn run_pod(&self, name: &str) -> anyhow::Result<Pod> {
        let mut config = self.pod_config(name);
        let mut last = None;
        for attempt in 0..20 {
            if let Some(metadata) = &mut config.metadata {
                metadata.attempt = attempt;
            }
            let request = v1::RunPodSandboxRequest {
                config: Some(config.clone()),
                ..v1::RunPodSandboxRequest::default()
            };
            match self
                .call(self.client.clone().run_pod_sandbox(request))
                .await
            {
                Ok(answer) => {
                    let sandbox = Id::from(answer.pod_sandbox_id);
                    let uid = PodUid::from(format!("uid-{name}"));
                    let object = Object {
                        uid: uid.clone(),
                        kind: Kind::Sandbox,
                        name: name.to_owned(),
                        started: true,
                        exit_code: 0,
                        removed: false,
                    };
                    self.begin(&sandbox, object);
                    return Ok(Pod {
                        uid,
                        sandbox,
                        config,
                    });
                }
                Err(error) => last = Some(error),
            }
            crate::wait::pass_time(Duration::from_millis(200)).await;
        }
        Err(last.context("never tried")?).with_context(|| format!("RunPodSandbox {name}"))
    }

    /// CreateContainer.
    ///
    /// # Errors
    /// If the call fails.
    pub async fn create(
        &self,
        pod: &Pod,
        name: &str,
        attempt: u32,
        life: Life,
    ) -> anyhow::Result<Id> {
        let label = |k: &str, v: &str| (k.to_owned(), v.to_owned());
        let of_pod = pod.config.metadata.clone().unwrap_or_default();
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
            labels: [
                label("io.kubernetes.pod.uid", pod.uid.as_str()),
                label("io.kubernetes.pod.name", &of_pod.name),
                label("io.kubernetes.pod.namespace", &of_pod.namespace),
                label("io.kubernetes.container.name", name),
            ]
            .into(),
            ..v1::ContainerConfig::default()
        };
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: pod.sandbox.to_string(),
            config: Some(config),
            sandbox_config: Some(pod.config.clone()),
        };
        let answer = self
            .call(self.client.clone().create_container(request))
            .await
            .with_context(|| format!("CreateContainer {name}-{attempt} of {}", pod.uid))?;
        let id = Id::from(answer.container_id);
        let object = Object {
            uid: pod.uid.clone(),
            kind: Kind::Container,
            name: format!("{}/{name}-{attempt}", pod.uid),
            started: false,
            exit_code: life.exit_code(),
            removed: false,
        };
        self.begin(&id, object);
        Ok(id)
    }

    /// Creates and starts a container.
    ///
    /// # Errors
    /// If that fails.
    pub async fn run(&self, pod: &Pod, name: &str, attempt: u32, life: Life) -> anyhow::Result<Id> {
        let id = self.create(pod, name, attempt, life).await?;
        self.start(&id).await?;
        Ok(id)
    }

    /// StartContainer.
    ///
    /// # Errors
    /// If the call fails.
    pub async fn start(&self, id: &Id) -> anyhow::Result<()> {
        let request = v1::StartContainerRequest {
            container_id: id.to_string(),
        };
        let started = self
            .call(self.client.clone().start_container(request))
            .await;
        let failed_to_start = match &started {
            Ok(_) => false,
            // A lost connection does not show whether the container has started.
            Err(error) if !runtime_answered(error) => {
                return started
                    .map(drop)
                    .with_context(|| format!("StartContainer {id}"));
            }
            // An earlier call, whose answer was lost, may have started it.
            Err(_) => {
                let status = self.container_status(id).await?;
                status.is_none_or(|status| status.started_at == 0)
            }
        };
        self.remember(id, |d| match failed_to_start {
            false => d.started = true,
            // The runtime shows this for a container that it could not start.
            true => d.exit_code = Life::CannotStart.exit_code(),
        });
        started
            .map(drop)
            .with_context(|| format!("StartContainer {id}"))
    }

    /// StopContainer.
    ///
    /// # Errors
    /// If the call fails.
    pub async fn stop(&self, id: &Id) -> anyhow::Result<()> {
        self.wait_until_sigterm_is_handled(id).await?;
        let request = v1::StopContainerRequest {
            container_id: id.to_string(),
            timeout: 10,
        };
        self.call(self.client.clone().stop_container(request))
            .await
            .map(drop)
            .with_context(|| format!("StopContainer {id}"))
    }

    /// Waits until the program of a container handles SIGTERM. If it gets SIGTERM before that, it exits with
    /// 143. (The runtime reports a container as started while runc
    /// is still about to execute its program.) If the runtime reports no process, this returns at once.
    ///
    /// # Errors
    /// If that does not happen in time.
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

    /// The id of a container's process, from the JSON that containerd adds to a verbose status; 0 if
    /// there is none.
    pub async fn process(&self, id: &Id) -> u32 {
        let request = v1::ContainerStatusRequest {
            container_id: id.to_string(),
            verbose: true,
        };
        let answer = self
            .call(self.client.clone().container_status(request))
            .await;
        let process = answer.ok().and_then(|answer| {
            let (_, after) = answer.info.get("info")?.split_once("\"pid\":")?;
            let digits = after.trim_start().split(|c: char| !c.is_ascii_digit());
            digits.into_iter().next()?.parse().ok()
        });
        process.unwrap_or(0)
    }

    /// RemoveContainer.
    ///
    /// # Errors
    /// If the call fails.
    pub async fn remove(&self, id: &Id) -> anyhow::Result<()> {
        let request = v1::RemoveContainerRequest {
            container_id: id.to_string(),
        };
        self.call(self.client.clone().remove_container(request))
            .await
            .with_context(|| format!("RemoveContainer {id}"))?;
        self.remember(id, |d| d.removed = true);
        Ok(())
    }

    /// StopPodSandbox.
    ///
    /// # Errors
    /// If the call fails.
    pub async fn stop_pod(&self, pod: &Pod) -> anyhow::Result<()> {
        let request = v1::StopPodSandboxRequest {
            pod_sandbox_id: pod.sandbox.to_string(),
        };
        self.call(self.client.clone().stop_pod_sandbox(request))
            .await
            .map(drop)
            .with_context(|| format!("StopPodSandbox of {}", pod.uid))
    }

    /// RemovePodSandbox.
    ///
    /// # Errors
    /// If the call fails.
    pub async fn remove_pod(&self, pod: &Pod) -> anyhow::Result<()> {
        let request = v1::RemovePodSandboxRequest {
            pod_sandbox_id: pod.sandbox.to_string(),
        };
        self.call(self.client.clone().remove_pod_sandbox(request))
            .await
            .with_context(|| format!("RemovePodSandbox of {}", pod.uid))?;
        // The runtime removes its containers with it.
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        objects
            .values_mut()
            .filter(|d| d.uid == pod.uid)
            .for_each(|d| d.removed = true);
        Ok(())
    }

    /// How many containers of that name of the pod the runtime lists as running.
    ///
    /// # Errors
    /// If it does not list them.
    pub async fn running(&self, pod: &Pod, name: &str) -> anyhow::Result<usize> {
        let state = v1::ContainerStateValue {
            state: v1::ContainerState::ContainerRunning.into(),
        };
        let filter = v1::ContainerFilter {
            pod_sandbox_id: pod.sandbox.to_string(),
            state: Some(state),
            ..v1::ContainerFilter::default()
        };
        let listed = self.containers(filter).await?;
        let named = |c: &&v1::Container| c.metadata.as_ref().is_some_and(|m| m.name == name);
        Ok(listed.iter().filter(named).count())
    }

    /// All containers that the runtime lists.
    ///
    /// # Errors
    /// If it does not list them.
    pub async fn containers(
        &self,
        filter: v1::ContainerFilter,
    ) -> anyhow::Result<Vec<v1::Container>> {
        let request = v1::ListContainersRequest {
            filter: Some(filter),
        };
        let answer = self
            .call(self.client.clone().list_containers(request))
            .await
            .context("ListContainers")?;
        Ok(answer.containers)
    }

    /// All sandboxes that the runtime lists.
    ///
    /// # Errors
    /// If it does not list them.
    pub async fn sandboxes(&self) -> anyhow::Result<Vec<v1::PodSandbox>> {
        let request = v1::ListPodSandboxRequest::default();
        let answer = self
            .call(self.client.clone().list_pod_sandbox(request))
            .await
            .context("ListPodSandbox")?;
        Ok(answer.items)
    }

    /// The runtime's own status of a container; `None` if it has none of that id.
    ///
    /// # Errors
    /// If the call fails.
    pub async fn container_status(&self, id: &Id) -> anyhow::Result<Option<v1::ContainerStatus>> {
        let request = v1::ContainerStatusRequest {
            container_id: id.to_string(),
            verbose: false,
        };
        match tokio::time::timeout(PATIENCE, self.client.clone().container_status(request)).await? {
            Ok(answer) => Ok(answer.into_inner().status),
            Err(status) if status.code() == tonic::Code::NotFound => Ok(None),
            Err(status) => Err(status.into()),
        }
    }

    async fn call<T>(
        &self,
        call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    ) -> anyhow::Result<T> {
        Ok(tokio::time::timeout(PATIENCE, call)
            .await
            .with_context(|| format!("no answer within {PATIENCE:?}"))??
            .into_inner())
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
