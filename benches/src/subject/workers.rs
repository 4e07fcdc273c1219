//! Pod workers, as in a kubelet, which make all changes of pods by calls to the runtime.
//!
//! A worker makes no decision until the cached status of its pod is newer than the worker's last change. Upstream's
//! worker requests a relist of its pod after a sync that changed something, and waits with `GetNewerThan` (1.36); this
//! project's worker calls `newer_than`.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use futures::future::try_join_all;
use pleg_core::{Id, PodUid, ReportedState};
use pleg_cri::{CriClient, v1};
use rivals::Subject;

use crate::protocol::Answer;

/// The time for which a pod of [`churn`] runs.
const LIFETIME: Duration = Duration::from_secs(3);

/// The durations in ns of reads after a worker's own changes, and the number of reads that did not show the change.
#[derive(Clone, Debug, Default)]
pub(super) struct Reads(Arc<Mutex<(Vec<u64>, u64)>>);

impl Reads {
    fn add(&self, nanos: u64, is_right: bool) {
        let mut reads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        reads.0.push(nanos);
        reads.1 += u64::from(!is_right);
    }

    /// Moves the durations of the reads since the last `take` into `answer`.
    pub(super) fn take(&self, answer: &mut Answer) {
        let mut reads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (answer.reads, answer.wrong_reads) = std::mem::take(&mut *reads);
    }
}

/// Waits for a status of the pod that is newer than now. If `requests`, first requests a relist. Returns the ns waited.
pub(super) async fn read_own<S: Subject>(subject: &S, uid: &PodUid, requests: bool) -> u64 {
    let clock = subject.clock();
    let changed = clock.now();
    if requests {
        subject.request_relist(uid);
    }
    subject.newer_than(uid, changed).await;
    u64::try_from(clock.now().nanos_since(changed)).unwrap_or(0)
}

/// A pod whose worker makes every change.
struct OwnPod<S> {
    subject: Arc<S>,
    client: CriClient,
    reads: Reads,
    config: v1::PodSandboxConfig,
    uid: PodUid,
    sandbox: Id,
    /// The pod's only container and its state; `None` if the container does not exist.
    container: Option<(Id, ReportedState)>,
    attempt: u32,
}

impl<S: Subject> OwnPod<S> {
    async fn run(subject: Arc<S>, client: CriClient, reads: Reads, number: u32) -> Result<Self> {
        let uid = format!("00000000-0000-4000-8000-{number:012}");
        let config = v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: format!("checkout-api-own-{number:05}"),
                namespace: "payments".to_owned(),
                uid: uid.clone(),
                attempt: 0,
            }),
            ..Default::default()
        };
        let sandbox = client.run_pod_sandbox(config.clone(), "").await;
        Ok(Self {
            subject,
            client,
            reads,
            config,
            uid: uid.into(),
            sandbox: sandbox.into_result()?,
            container: None,
            attempt: 0,
        })
    }

    async fn create(&mut self) -> Result<()> {
        let config = v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata {
                name: "app-0".to_owned(),
                attempt: self.attempt,
            }),
            ..Default::default()
        };
        let of_pod = self.config.clone();
        let created = self.client.create_container(&self.sandbox, config, of_pod);
        self.container = Some((created.await.into_result()?, ReportedState::Created));
        self.attempt += 1;
        Ok(())
    }

    async fn start(&mut self) -> Result<()> {
        if let Some((id, state)) = &mut self.container {
            self.client.start_container(id).await.into_result()?;
            *state = ReportedState::Running;
        }
        Ok(())
    }

    async fn stop(&mut self) -> Result<()> {
        if let Some((id, state)) = &mut self.container {
            let stopped = self.client.stop_container(id, Duration::ZERO).await;
            stopped.into_result()?;
            *state = ReportedState::Exited;
        }
        Ok(())
    }

    async fn remove(&mut self) -> Result<()> {
        if let Some((id, _)) = self.container.take() {
            self.client.remove_container(&id).await.into_result()?;
        }
        Ok(())
    }

    /// Waits for a pod status newer than now. Records the duration, and whether the status shows the last change.
    async fn read(&self, requests: bool) {
        let nanos = read_own(&*self.subject, &self.uid, requests).await;
        let mut shown = Vec::new();
        let mut each = |id: &Id, state| shown.push((id.clone(), state));
        self.subject.visit_containers(&self.uid, &mut each);
        let is_right = shown == Vec::from_iter(self.container.clone());
        self.reads.add(nanos, is_right);
    }

    /// Restarts the container, with a read after each of the four calls.
    async fn restart(&mut self) -> Result<()> {
        self.stop().await?;
        self.read(true).await;
        self.remove().await?;
        self.read(true).await;
        self.create().await?;
        self.read(true).await;
        self.start().await?;
        self.read(true).await;
        Ok(())
    }

    /// Creates, runs, stops and removes a pod. Upstream requests no relist after it stopped a pod, but waits for the
    /// next relist of the whole node.
    async fn live(mut self) -> Result<()> {
        self.create().await?;
        self.start().await?;
        self.read(true).await;
        let clock = self.subject.clock();
        clock.sleep_until(clock.now().after(LIFETIME)).await;
        self.stop().await?;
        let stopped = self.client.stop_pod_sandbox(&self.sandbox).await;
        stopped.into_result()?;
        self.read(false).await;
        self.remove().await?;
        let removed = self.client.remove_pod_sandbox(&self.sandbox).await;
        Ok(removed.into_result()?)
    }
}

/// Restarts `workers` pods, each `times` times. `reads` gets the duration of each pod read after a runtime call.
pub(super) async fn restart<S: Subject>(
    subject: &Arc<S>,
    client: &CriClient,
    reads: &Reads,
    workers: u32,
    times: u32,
) -> Result<()> {
    let pods = (0..workers).map(async |number| {
        let mut pod = OwnPod::run(subject.clone(), client.clone(), reads.clone(), number).await?;
        pod.create().await?;
        pod.start().await?;
        for _ in 0..times {
            pod.restart().await?;
        }
        anyhow::Ok(())
    });
    try_join_all(pods).await?;
    Ok(())
}

/// Creates and removes pods at a fixed rate.
pub(super) async fn churn<S: Subject>(
    subject: Arc<S>,
    client: CriClient,
    reads: Reads,
    pods_per_second: f64,
    during: Duration,
) {
    let clock = subject.clock();
    let start = clock.now();
    for number in 0..(during.as_secs_f64() * pods_per_second) as u32 {
        let due = Duration::from_secs_f64(f64::from(number) / pods_per_second);
        clock.sleep_until(start.after(due)).await;
        let pod = OwnPod::run(subject.clone(), client.clone(), reads.clone(), number);
        tokio::spawn(async move {
            let lived = async { pod.await?.live().await };
            if let Err(error) = lived.await {
                tracing::error!("a pod of the churn: {error:#}");
            }
        });
    }
}
