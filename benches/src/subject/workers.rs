//! Pod workers, as in a kubelet. They need the reads of single pods: upstream's relist on demand, this
//! project's `newer_than`.
//!
//! A worker makes no decision until its status is newer than its own last change. Upstream's worker
//! waits with `GetNewerThan` and requests a relist of its pod after each sync that changed something
//! (1.36); this project's calls `newer_than`. Runs that change nothing make no call in either.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use futures::future::try_join_all;
use hdrhistogram::Histogram;
use pleg_core::{Id, Instant, PodUid};
use pleg_cri::{CriClient, v1};

use super::control::{record, values};
use super::generators::Subject;
use crate::protocol::Recorded;

/// How long a pod of [`churn`] runs.
const LIFETIME: Duration = Duration::from_secs(3);

/// The duration of a restart: the time that real runtimes need to create and start a container.
const RESTART: Duration = Duration::from_millis(100);

/// Workers of pods whose changes are in the runtime's plan. An announcement causes a run, one at a time
/// per pod. A run after `Died` represents the restart that follows in the plan.
#[derive(Debug)]
pub(super) struct Workers<P> {
    subject: Arc<P>,
    pods: Mutex<HashMap<PodUid, Worker>>,
}

#[derive(Debug)]
struct Worker {
    is_running: bool,
    /// The cause of the run that follows the current one, if there is one.
    next: Option<Wake>,
    last_change: Instant,
}

/// Why a worker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wake {
    /// A change that needs no reaction.
    Changed,
    /// A container died: the worker restarts it.
    Died,
}

impl<P: Subject> Workers<P> {
    pub(super) fn new(subject: Arc<P>) -> Arc<Self> {
        let pods = Mutex::default();
        Arc::new(Self { subject, pods })
    }

    /// Starts a run, or schedules one after the current run.
    pub(super) fn wake(self: &Arc<Self>, uid: &PodUid, wake: Wake) {
        let mut pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        let worker = pods.entry(uid.clone()).or_insert(Worker {
            is_running: false,
            next: None,
            last_change: Instant::ORIGIN,
        });
        if worker.is_running {
            worker.next = worker.next.max(Some(wake));
        } else {
            worker.is_running = true;
            tokio::spawn(self.clone().run(uid.clone(), wake, worker.last_change));
        }
    }

    async fn run(self: Arc<Self>, uid: PodUid, mut wake: Wake, mut last_change: Instant) {
        let clock = self.subject.clock();
        loop {
            self.subject.newer_than(&uid, last_change).await;
            if wake == Wake::Died {
                clock.sleep_until(clock.now().after(RESTART)).await;
                last_change = clock.now();
                self.subject.notify_own_change(&uid);
            }
            let mut pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(worker) = pods.get_mut(&uid) else {
                return;
            };
            worker.last_change = last_change;
            match worker.next.take() {
                Some(next) => wake = next,
                None => {
                    worker.is_running = false;
                    return;
                }
            }
        }
    }
}

/// The reads of workers after their own changes.
#[derive(Clone, Debug)]
pub(super) struct Reads(Arc<Mutex<(Histogram<u64>, u64)>>);

impl Reads {
    pub(super) fn new() -> Result<Self> {
        Ok(Self(Arc::new(Mutex::new((Histogram::new(3)?, 0)))))
    }

    fn add(&self, nanos: u64, is_right: bool) {
        let mut reads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        record(&mut reads.0, nanos);
        reads.1 += u64::from(!is_right);
    }

    /// Returns the reads since the last call.
    pub(super) fn take(&self) -> Recorded {
        let mut reads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let recorded = Recorded {
            in_process: values(&reads.0),
            wrong_reads: reads.1,
            ..Recorded::default()
        };
        reads.0.reset();
        reads.1 = 0;
        recorded
    }
}

/// A pod whose worker makes every change, by calls to the runtime.
struct OwnPod<P> {
    subject: Arc<P>,
    client: CriClient,
    reads: Reads,
    config: v1::PodSandboxConfig,
    uid: PodUid,
    sandbox: Id,
    /// The container and its state, if it exists.
    container: Option<(Id, i32)>,
    attempt: u32,
}

impl<P: Subject> OwnPod<P> {
    async fn run(subject: Arc<P>, client: CriClient, reads: Reads, number: u32) -> Result<Self> {
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
        let sandbox_config = self.config.clone();
        let created = self
            .client
            .create_container(&self.sandbox, config, sandbox_config);
        let id = created.await.into_result()?;
        self.container = Some((id, v1::ContainerState::ContainerCreated.into()));
        self.attempt += 1;
        Ok(())
    }

    async fn start(&mut self) -> Result<()> {
        if let Some((id, state)) = &mut self.container {
            self.client.start_container(id).await.into_result()?;
            *state = v1::ContainerState::ContainerRunning.into();
        }
        Ok(())
    }

    async fn stop(&mut self) -> Result<()> {
        if let Some((id, state)) = &mut self.container {
            let stopped = self.client.stop_container(id, Duration::ZERO).await;
            stopped.into_result()?;
            *state = v1::ContainerState::ContainerExited.into();
        }
        Ok(())
    }

    async fn remove(&mut self) -> Result<()> {
        if let Some((id, _)) = self.container.take() {
            self.client.remove_container(&id).await.into_result()?;
        }
        Ok(())
    }

    /// Waits for a status newer than now, which must show the last change.
    async fn read(&self, requests: bool) {
        let clock = self.subject.clock();
        let changed = clock.now();
        if requests {
            self.subject.notify_own_change(&self.uid);
        }
        self.subject.newer_than(&self.uid, changed).await;
        let nanos = u64::try_from(clock.now().nanos_since(changed)).unwrap_or(0);
        let mut shown = Vec::new();
        self.subject.visit_containers(&self.uid, &mut |row| {
            shown.push((row.id.clone(), row.state));
        });
        self.reads.add(
            nanos.max(1),
            shown == Vec::from_iter(self.container.clone()),
        );
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

    /// Creates, runs, stops and removes a pod. Upstream requests no relist after it stopped a pod; its
    /// next relist of the node contains the change.
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

/// Restarts `parallel` pods, each `times` times. Returns the duration of each read after a change.
pub(super) async fn restart<P: Subject>(
    subject: &Arc<P>,
    client: &CriClient,
    parallel: u32,
    times: u32,
) -> Result<Recorded> {
    let reads = Reads::new()?;
    let pods = (0..parallel).map(async |number| {
        let mut pod = OwnPod::run(subject.clone(), client.clone(), reads.clone(), number).await?;
        pod.create().await?;
        pod.start().await?;
        pod.read(true).await;
        anyhow::Ok(pod)
    });
    let mut pods = try_join_all(pods).await?;
    reads.take();
    try_join_all(pods.iter_mut().map(async |pod| {
        for _ in 0..times {
            pod.restart().await?;
        }
        anyhow::Ok(())
    }))
    .await?;
    Ok(reads.take())
}

/// Creates and removes pods at a fixed rate.
pub(super) async fn churn<P: Subject>(
    subject: Arc<P>,
    client: CriClient,
    reads: Reads,
    pods_per_second: f64,
    during: Duration,
) {
    let clock = subject.clock();
    let start = clock.now();
    let pods = (during.as_secs_f64() * pods_per_second) as u32;
    for number in 0..pods {
        let due = Duration::from_secs_f64(f64::from(number) / pods_per_second);
        clock.sleep_until(start.after(due)).await;
        let (subject, client, reads) = (subject.clone(), client.clone(), reads.clone());
        tokio::spawn(async move {
            let lived = async {
                OwnPod::run(subject, client, reads, number)
                    .await?
                    .live()
                    .await
            };
            if let Err(error) = lived.await {
                tracing::error!("a pod of the churn: {error:#}");
            }
        });
    }
}
