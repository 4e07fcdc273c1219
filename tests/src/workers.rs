//! Pod workers, which run pods as a kubelet does: they act only on what the generator reports.
//!
//! Each pod has a worker. The worker waits for an announcement about its pod, and then for a view of the pod that
//! is newer than the worker's last call. According to this view, it starts missing containers, restarts exited
//! ones, removes old ones, and removes its pod when the job is done. After each start, the worker lists how many
//! containers of this name run.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, ensure};
use futures::StreamExt;
use pleg::core::{ContainerState, ContainerStatus, Id, Instant, SandboxState};
use pleg::{Pleg, PodView, Subscription, WaitError};

use crate::kubelet::{Kubelet, Life, Pod};

/// The deadline of a worker's wait for a view.
const DEADLINE: Duration = Duration::from_secs(10);
/// The interval at which a worker reads its pod if the generator announces nothing.
const RESYNC: Duration = Duration::from_secs(10);
/// The time limit for all work on one pod, in addition to the run times of its jobs and [`Plan::keep`].
const SLACK: Duration = Duration::from_secs(60);

const APP: &str = "app";
const JOB: &str = "job";

/// What the workers do with their pods. Each pod has an app, which runs until it is stopped, and a job, which
/// exits by itself and which its worker restarts.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The number of pods that exist at the same time.
    pub at_once: u32,
    /// The number of times that a worker restarts its job. Then the worker removes the pod.
    pub restarts: u32,
    /// The run time of a job.
    pub job: Duration,
    /// The greatest difference between the run times of jobs.
    pub spread: Duration,
    /// The time for which an exited container stays before its worker removes it.
    pub keep: Duration,
}

/// The observations of the workers.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Errors: starts after which more than one container of the same name ran, and views without a ready sandbox. (A
    /// kubelet would create a second sandbox.)
    pub doubles: Vec<String>,
    /// The waits for a view (`newer_than`) that the generator did not answer in time.
    pub unanswered: Vec<String>,
}

/// The workers of all pods.
#[derive(Clone, Debug)]
pub struct Workers {
    pleg: Pleg,
    kubelet: Kubelet,
    plan: Plan,
    observed: Arc<Mutex<Observed>>,
}

impl Workers {
    /// Workers that use this generator.
    pub fn new(pleg: &Pleg, kubelet: &Kubelet, plan: Plan) -> Self {
        Self {
            pleg: pleg.clone(),
            kubelet: kubelet.clone(),
            plan,
            observed: Arc::default(),
        }
    }

    /// Runs `pods` pods, [`Plan::at_once`] at a time. Fails if two containers of a name run in a pod at once, or
    /// a view has no ready sandbox, or the generator does not answer a worker.
    pub async fn churn(&self, pods: u32) -> anyhow::Result<()> {
        let next = AtomicU32::new(0);
        let lanes = (0..self.plan.at_once).map(|_| async {
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= pods {
                    return anyhow::Ok(());
                }
                let whole = (self.plan.job + self.plan.spread) * (self.plan.restarts + 1)
                    + self.plan.keep
                    + SLACK;
                let worker = Worker::new(self, n);
                tokio::time::timeout(whole, worker.run())
                    .await
                    .with_context(|| format!("pod {n} is not done within {whole:?}"))??;
            }
        });
        let lanes = futures::stream::iter(lanes).buffer_unordered(usize::MAX);
        lanes
            .collect::<Vec<_>>()
            .await
            .into_iter()
            .collect::<anyhow::Result<()>>()?;
        let observed = self.observe(|o| o.clone());
        println!("{observed:#?}");
        ensure!(observed.doubles.is_empty(), "started twice");
        ensure!(observed.unanswered.is_empty(), "unanswered");
        Ok(())
    }

    fn observe<T>(&self, what: impl FnOnce(&mut Observed) -> T) -> T {
        what(&mut self.observed.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The worker of one pod.
struct Worker<'a> {
    all: &'a Workers,
    n: u32,
    /// By name: the number of containers that this worker has started, which is the next one's attempt number. If the
    /// numbers were equal, the runtime would refuse a second running container, and so hide a worker's wrong start.
    starts: BTreeMap<&'static str, u32>,
    /// The instant at which the worker first saw each exited container.
    ended: BTreeMap<Id, Instant>,
}

/// The next step of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Do nothing until the generator announces a change of the pod, or this time has passed.
    Wait(Duration),
    /// Remove the pod, because its job is done.
    Done,
}

impl<'a> Worker<'a> {
    fn new(all: &'a Workers, n: u32) -> Self {
        Self {
            all,
            n,
            starts: BTreeMap::new(),
            ended: BTreeMap::new(),
        }
    }

    async fn run(mut self) -> anyhow::Result<()> {
        let (pleg, kubelet) = (&self.all.pleg, &self.all.kubelet);
        let pod = kubelet.run_pod(&format!("worker-{}", self.n)).await?;
        let mut events = pleg.subscribe_pod(&pod.uid);
        let mut acted = pleg.now();
        loop {
            let next = match self.newer_than(&pod, acted).await? {
                Some(view) => self.sync(&pod, &view).await?,
                None => Next::Wait(Duration::from_secs(1)),
            };
            acted = pleg.now();
            match next {
                Next::Wait(time) => announced(&mut events, time).await?,
                Next::Done => break,
            }
        }
        self.terminate(&pod, &mut events).await
    }

    /// Waits for a view of the pod that is newer than `after`. Returns `None` if the generator cannot read the pod.
    async fn newer_than(&self, pod: &Pod, after: Instant) -> anyhow::Result<Option<PodView>> {
        let pleg = &self.all.pleg;
        let began = pleg.now();
        let answer = pleg.newer_than(&pod.uid, after, DEADLINE).await;
        let took = pleg.now().since(began);
        let unanswered = matches!(answer, Err(WaitError::DeadlineExceeded { .. }))
            || took > DEADLINE + Duration::from_secs(1);
        if unanswered {
            let wait = format!("{} after {took:?}", pod.uid);
            self.all.observe(|o| o.unanswered.push(wait));
        }
        match answer {
            Ok(view) => {
                ensure!(
                    view.as_of >= Some(after),
                    "{view:?} is older than {after:?}"
                );
                Ok(Some(view))
            }
            Err(WaitError::Closed) => Err(WaitError::Closed.into()),
            Err(_) => Ok(None),
        }
    }

    /// Starts, restarts and removes containers as this view requires.
    async fn sync(&mut self, pod: &Pod, view: &PodView) -> anyhow::Result<Next> {
        let ready = |s: &pleg::core::SandboxStatus| s.state == SandboxState::Ready;
        if !view.status.sandboxes.iter().any(ready) {
            let found = format!("{}: no sandbox is ready: {view:#?}", pod.uid);
            self.all.observe(|o| o.doubles.push(found));
        }
        let mut next = RESYNC;
        for name in [APP, JOB] {
            let (live, ended): (Vec<_>, Vec<_>) = of_name(view, name).partition(|c| is_live(c));
            let started = self.starts.get(name).copied().unwrap_or(0);
            if live.is_empty() {
                if name == JOB && started > self.all.plan.restarts {
                    return Ok(Next::Done);
                }
                self.start(pod, name, view).await?;
                // Do not wait for events of the started container: the next view shows it anyway.
                next = Duration::ZERO;
                continue;
            }
            for old in ended {
                let now = self.all.pleg.now();
                let ended_for = now.since(*self.ended.entry(old.id.clone()).or_insert(now));
                match self.all.plan.keep.checked_sub(ended_for) {
                    Some(left) if !left.is_zero() => next = next.min(left),
                    _ => self.all.kubelet.remove(&old.id).await?,
                }
            }
        }
        Ok(Next::Wait(next))
    }

    async fn start(&mut self, pod: &Pod, name: &'static str, view: &PodView) -> anyhow::Result<()> {
        let (kubelet, attempt) = (&self.all.kubelet, self.starts.entry(name).or_default());
        let life = match name {
            APP => Life::UntilStopped,
            _ => self.all.plan.job(self.n, *attempt),
        };
        kubelet.run(pod, name, *attempt, life).await?;
        *attempt += 1;
        let running = kubelet.running(pod, name).await?;
        self.all.observe(|o| {
            if running > 1 {
                let found = format!("{} {name}: {running} run; answer {view:#?}", pod.uid);
                o.doubles.push(found);
            }
        });
        Ok(())
    }

    /// Stops the app, removes all containers after [`Plan::keep`], and then stops and removes the pod.
    async fn terminate(&self, pod: &Pod, events: &mut Subscription) -> anyhow::Result<()> {
        let (pleg, kubelet) = (&self.all.pleg, &self.all.kubelet);
        let mut all: Vec<Id> = Vec::new();
        self.until(pod, events, |view| {
            all = view
                .status
                .containers
                .iter()
                .map(|c| c.id.clone())
                .collect();
            true
        })
        .await?;
        let view = pleg.get(&pod.uid);
        for app in of_name(&view, APP).filter(|c| is_live(c)) {
            kubelet.stop(&app.id).await?;
        }
        let ended = |view: &PodView| !view.status.containers.iter().any(is_live);
        self.until(pod, events, ended).await?;
        pleg.clock()
            .sleep_until(pleg.now().after(self.all.plan.keep))
            .await;
        for id in &all {
            kubelet.remove(id).await?;
        }
        kubelet.stop_pod(pod).await?;
        pleg.clock()
            .sleep_until(pleg.now().after(self.all.plan.keep))
            .await;
        kubelet.remove_pod(pod).await?;
        self.until(pod, events, |view| !view.status.exists()).await
    }

    /// Waits until a new view of the pod fulfils the condition.
    async fn until(
        &self,
        pod: &Pod,
        events: &mut Subscription,
        mut is_so: impl FnMut(&PodView) -> bool,
    ) -> anyhow::Result<()> {
        loop {
            let view = self.newer_than(pod, self.all.pleg.now()).await?;
            if view.is_some_and(|view| is_so(&view)) {
                return Ok(());
            }
            announced(events, Duration::from_secs(1)).await?;
        }
    }
}

impl Plan {
    /// The run time and exit code of a job. They differ between pods and attempts.
    fn job(&self, pod: u32, attempt: u32) -> Life {
        let n = u64::from(pod) * 7919 + u64::from(attempt) * 104_729;
        let spread = u64::try_from(self.spread.as_millis()).unwrap_or(0);
        let job = u64::try_from(self.job.as_millis()).unwrap_or(0);
        Life::Exit {
            code: i32::try_from(1 + n % 125).unwrap_or(1),
            after_ms: job + n % (spread + 1),
        }
    }
}

/// Waits for the next announcement, but not longer than `within`, and takes all announcements that are available.
async fn announced(events: &mut Subscription, within: Duration) -> anyhow::Result<()> {
    if let Ok(delivery) = tokio::time::timeout(within, events.next()).await {
        ensure!(delivery.is_some(), "the generator has ended");
        while events.try_next().is_some() {}
    }
    Ok(())
}

fn of_name<'v>(view: &'v PodView, name: &'v str) -> impl Iterator<Item = &'v ContainerStatus> {
    view.status
        .containers
        .iter()
        .filter(move |c| &*c.name == name)
}

/// Returns true if the container has not exited: the worker must then not start another container with its name.
fn is_live(container: &ContainerStatus) -> bool {
    container.state != ContainerState::Exited
}
