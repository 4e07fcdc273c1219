//! A pod without a kubelet: the test itself replaces its container.

use std::time::Duration;

use anyhow::{Context, ensure};
use futures::StreamExt;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pleg::core::{EventType, Id, PodUid, WallTime};
use pleg::runtime::Runtime;
use pleg::runtime::clock::wall;
use pleg_cri::v1::ContainerState;
use tokio::sync::mpsc;

use crate::daemon::Daemon;
use crate::kubelet::{Kubelet, Life, Pod};
use crate::wait::{pass_time, until};

use super::super::manifests::APP;
use super::{PATIENCE, QUIET};

/// A pod whose container is replaced without a kubelet.
pub(super) struct Alone {
    kubelet: Kubelet,
    pod: Pod,
    ids: Vec<Id>,
    attempts: u32,
}

impl Alone {
    pub(super) async fn start(kubelet: Kubelet) -> anyhow::Result<Self> {
        let pod = kubelet.run_pod("alone").await?;
        let id = kubelet.run(&pod, APP, 0, Life::UntilStopped).await?;
        Ok(Self {
            kubelet,
            pod,
            ids: vec![id],
            attempts: 0,
        })
    }

    pub(super) fn uid(&self) -> &PodUid {
        &self.pod.uid
    }

    /// When the process of a container that runs was started.
    pub(super) async fn start_of(&self, id: &Id) -> anyhow::Result<WallTime> {
        start_of(&self.kubelet, id).await
    }

    /// The time of the calls that replace a container which has ended before.
    pub(super) async fn create_and_start(&mut self) -> anyhow::Result<Duration> {
        self.kill().await?;
        self.wait_for_end().await?;
        pass_time(QUIET).await;
        let called = wall();
        let id = self.replace().await?;
        let started = self.start_of(&id).await?;
        nanos(started.nanos_since(called)).context("started before the call")
    }

    /// containerd 1.7 gives one more event to a subscriber that has left. Here it is one that is not measured.
    pub(super) async fn take_late_event(&mut self) -> anyhow::Result<()> {
        self.create_and_start().await?;
        Ok(())
    }

    /// The times from a death to its STOPPED event, of so many deaths. There may be no other subscriber.
    pub(super) async fn stop_events(
        &mut self,
        daemon: &Daemon,
        deaths: u32,
    ) -> anyhow::Result<Vec<Duration>> {
        let mut stream = daemon.runtime()?.subscribe().await?;
        let (send, mut events) = mpsc::channel(1024);
        let reader = tokio::spawn(async move {
            // The call is made when the stream is polled.
            while let Some(Ok(event)) = stream.next().await {
                if send.send((event.id, event.event, wall())).await.is_err() {
                    break;
                }
            }
        });
        let mut times = Vec::new();
        for _ in 0..deaths {
            self.kill().await?;
            self.wait_for_end().await?;
            let id = self.replace().await?;
            arrival(&mut events, &id, EventType::Started).await?;
            pass_time(QUIET).await;
            let killed = self.kill().await?;
            let stopped = arrival(&mut events, &id, EventType::Stopped).await?;
            times.push(nanos(stopped.nanos_since(killed)).context("stopped before it was killed")?);
        }
        reader.abort();
        Ok(times)
    }

    /// The container that was started last.
    pub(super) fn present(&self) -> anyhow::Result<&Id> {
        self.ids.last().context("no container")
    }

    /// Kills the present container, if it runs. Returns when.
    pub(super) async fn kill(&self) -> anyhow::Result<WallTime> {
        let id = self.present()?;
        let status = self.kubelet.container_status(id).await?;
        if status.is_some_and(|s| s.state() == ContainerState::ContainerRunning) {
            let process = process(&self.kubelet, id).await?;
            let killed = wall();
            kill(process, Signal::SIGKILL)?;
            return Ok(killed);
        }
        Ok(wall())
    }

    async fn wait_for_end(&self) -> anyhow::Result<()> {
        let id = self.present()?;
        until(PATIENCE, "it has ended", || async {
            let status = self.kubelet.container_status(id).await.ok()??;
            (status.state() == ContainerState::ContainerExited).then_some(())
        })
        .await
    }

    /// Creates and starts the next container. As many ended ones are kept as a kubelet keeps.
    pub(super) async fn replace(&mut self) -> anyhow::Result<Id> {
        let kubelet = &self.kubelet;
        self.attempts += 1;
        let id = kubelet
            .run(&self.pod, APP, self.attempts, Life::UntilStopped)
            .await?;
        self.ids.push(id.clone());
        if self.ids.len() > 2 {
            kubelet.remove(&self.ids.remove(0)).await?;
        }
        Ok(id)
    }
}

/// When that event arrives. Others are skipped.
async fn arrival(
    events: &mut mpsc::Receiver<(Id, EventType, WallTime)>,
    id: &Id,
    event: EventType,
) -> anyhow::Result<WallTime> {
    let arrives = async {
        loop {
            let (of, what, at) = events.recv().await.context("the stream has ended")?;
            if of == *id && what == event {
                return Ok(at);
            }
        }
    };
    let waited = tokio::time::timeout(PATIENCE, arrives).await;
    waited.with_context(|| format!("no {event:?} of {id}"))?
}

pub(super) async fn process(kubelet: &Kubelet, id: &Id) -> anyhow::Result<Pid> {
    let process = i32::try_from(kubelet.process(id).await)?;
    ensure!(process > 1, "{id} has no process");
    Ok(Pid::from_raw(process))
}

/// When the process of a container that runs was started.
pub(super) async fn start_of(kubelet: &Kubelet, id: &Id) -> anyhow::Result<WallTime> {
    let status = kubelet.container_status(id).await?;
    let status = status.with_context(|| format!("{id} has no status"))?;
    ensure!(
        status.state() == ContainerState::ContainerRunning,
        "{status:?}"
    );
    Ok(WallTime::from_nanos(status.started_at))
}

/// That many nanoseconds.
///
/// # Errors
/// If they are negative.
pub(super) fn nanos(nanos: i64) -> anyhow::Result<Duration> {
    Ok(Duration::from_nanos(u64::try_from(nanos)?))
}
