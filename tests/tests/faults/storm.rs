//! 400 pods run, crash and restart, and some are removed. The in-process calls are measured.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pleg::core::Id;
use pleg::runtime::clock::{self, Clock};
use pleg_cri::v1;
use pleg_cri::v1::runtime_service_server::RuntimeService as _;
use pleg_sim::CriService;
use tokio::task::JoinSet;
use tonic::{Request, Status};

use crate::in_process::MS;

const PODS: u64 = 400;
/// Enough bytes for three windows of a connection, which are larger than those of a stream.
const ANNOTATION: usize = 3750;
/// A pod starts after each.
const PACE: Duration = Duration::from_millis(150);

/// What was done to one container or sandbox.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    /// The exit code. A sandbox has none.
    pub(crate) ended: Option<Option<i32>>,
    pub(crate) removed: bool,
}

/// The storm: 400 pods run, crash and restart, and some are removed.
#[derive(Clone)]
pub(crate) struct Storm {
    service: CriService,
    clock: Clock,
    measured: Arc<Mutex<Measured>>,
}

/// What was done and measured.
#[derive(Default)]
pub(crate) struct Measured {
    /// By the clock of the test, which may be paused.
    pub(crate) longest: Duration,
    /// By the clock of the host.
    pub(crate) longest_real: Duration,
    pub(crate) sends: u64,
    pub(crate) done: BTreeMap<Id, Done>,
}

impl Storm {
    pub(crate) fn new(service: CriService, clock: Clock) -> Self {
        Self {
            service,
            clock,
            measured: Arc::default(),
        }
    }

    /// Takes what was measured.
    pub(crate) fn take(&self) -> Measured {
        self.measured(std::mem::take)
    }

    fn measured<T>(&self, look: impl FnOnce(&mut Measured) -> T) -> T {
        look(&mut self.measured.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A call that sends an event.
    async fn send<T>(
        &self,
        call: impl Future<Output = Result<tonic::Response<T>, Status>>,
    ) -> Result<T, Status> {
        let (began, real) = (self.clock.now(), clock::wall());
        let answer = call.await?.into_inner();
        let took = self.clock.now().since(began);
        let took_real = u64::try_from(clock::wall().nanos_since(real)).unwrap_or(0);
        self.measured(|h| {
            h.longest = h.longest.max(took);
            h.longest_real = h.longest_real.max(Duration::from_nanos(took_real));
            h.sends += 1;
        });
        Ok(answer)
    }

    pub(crate) async fn pass(&self, time: Duration) {
        self.clock.sleep_until(self.clock.now().after(time)).await;
    }

    /// Runs all pods, until the last one is done.
    pub(crate) async fn run_pods(&self) -> anyhow::Result<()> {
        let mut lives = JoinSet::new();
        for n in 0..PODS {
            let storm = self.clone();
            lives.spawn(async move { storm.life(n).await });
        }
        while let Some(life) = lives.join_next().await {
            life??;
        }
        Ok(())
    }

    async fn life(&self, n: u64) -> Result<(), Status> {
        self.pass(PACE * u32::try_from(n).unwrap_or(0)).await;
        let config = pod_config(n);
        let request = v1::RunPodSandboxRequest {
            config: Some(config.clone()),
            ..v1::RunPodSandboxRequest::default()
        };
        let sandbox = self
            .send(self.service.run_pod_sandbox(Request::new(request)))
            .await?
            .pod_sandbox_id;
        self.did(&sandbox, |_| ());
        // In one of ten pods, more containers of one name exit than are kept for a lagging consumer.
        let crashes = if n.is_multiple_of(10) { 8 } else { 2 };
        for attempt in 0..crashes {
            let code = 1 + i32::try_from((7 * n + attempt) % 250).unwrap_or(0);
            let command = format!("exit {code} {}", 100 + n % 7 * 100);
            let id = self.run(&sandbox, &config, attempt, &command).await?;
            self.ended(&id).await?;
            self.did(&id, |d| d.ended = Some(Some(code)));
            if n.is_multiple_of(10) || attempt == 0 {
                self.remove(&id).await?;
            }
        }
        let id = self.run(&sandbox, &config, crashes, "run").await?;
        if n % 2 == 1 {
            let request = v1::StopContainerRequest {
                container_id: id.clone(),
                timeout: 10,
            };
            self.send(self.service.stop_container(Request::new(request)))
                .await?;
            self.did(&id, |d| d.ended = Some(Some(0)));
        }
        if n % 4 == 1 {
            self.remove(&id).await?;
            let pod_sandbox_id = sandbox.clone();
            let request = v1::StopPodSandboxRequest { pod_sandbox_id };
            self.send(self.service.stop_pod_sandbox(Request::new(request)))
                .await?;
            self.did(&sandbox, |d| d.ended = Some(None));
        }
        Ok(())
    }

    async fn run(
        &self,
        sandbox: &str,
        pod: &v1::PodSandboxConfig,
        attempt: u64,
        command: &str,
    ) -> Result<String, Status> {
        let uid = pod.metadata.as_ref().map(|m| m.uid.clone());
        let metadata = v1::ContainerMetadata {
            name: "app".to_owned(),
            attempt: u32::try_from(attempt).unwrap_or(0),
        };
        let config = v1::ContainerConfig {
            metadata: Some(metadata),
            image: Some(v1::ImageSpec {
                image: "app:1".to_owned(),
                ..v1::ImageSpec::default()
            }),
            command: command.split(' ').map(str::to_owned).collect(),
            labels: [
                ("io.kubernetes.pod.uid".to_owned(), uid.unwrap_or_default()),
                ("io.kubernetes.container.name".to_owned(), "app".to_owned()),
            ]
            .into(),
            ..v1::ContainerConfig::default()
        };
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(config),
            sandbox_config: Some(pod.clone()),
        };
        let id = self
            .send(self.service.create_container(Request::new(request)))
            .await?
            .container_id;
        let request = v1::StartContainerRequest {
            container_id: id.clone(),
        };
        self.send(self.service.start_container(Request::new(request)))
            .await?;
        self.did(&id, |_| ());
        Ok(id)
    }

    async fn ended(&self, id: &str) -> Result<(), Status> {
        loop {
            let request = v1::ContainerStatusRequest {
                container_id: id.to_owned(),
                verbose: false,
            };
            let answer = self.service.container_status(Request::new(request)).await?;
            let status = answer.into_inner().status;
            if status.is_some_and(|s| s.state() == v1::ContainerState::ContainerExited) {
                return Ok(());
            }
            self.pass(50 * MS).await;
        }
    }

    async fn remove(&self, id: &str) -> Result<(), Status> {
        let request = v1::RemoveContainerRequest {
            container_id: id.to_owned(),
        };
        self.send(self.service.remove_container(Request::new(request)))
            .await?;
        self.did(id, |d| d.removed = true);
        Ok(())
    }

    fn did(&self, id: &str, what: impl FnOnce(&mut Done)) {
        self.measured(|h| what(h.done.entry(Id::from(id)).or_default()));
    }
}

fn pod_config(n: u64) -> v1::PodSandboxConfig {
    let uid = format!("uid-{n}");
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: format!("pod-{n}"),
            uid: uid.clone(),
            namespace: "storm".to_owned(),
            attempt: 0,
        }),
        labels: [("io.kubernetes.pod.uid".to_owned(), uid)].into(),
        annotations: [("padding".to_owned(), "x".repeat(ANNOTATION))].into(),
        ..v1::PodSandboxConfig::default()
    }
}
