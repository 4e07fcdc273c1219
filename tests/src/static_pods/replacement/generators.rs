//! The same deaths with each generator as the PLEG of one worker, which replaces the container of one pod
//! as a kubelet does: it waits for ContainerDied, reads a status newer than its own last change, creates
//! and starts. So only the generator differs. The other pods of the node belong to its lists.

use std::time::Duration;

use anyhow::{Context, ensure};
use pleg::core::{Id, Instant, LifecycleType, Mode, ReportedState};
use rivals::{Fifo, Ours, Port, Subject};

use super::alone::{Alone, nanos};
use super::{PATIENCE, pause};
use crate::daemon::Daemon;

/// From the kill to the start of the replacement's process, with each generator.
pub(super) async fn measure(
    daemon: &Daemon,
    alone: &mut Alone,
    deaths: u32,
) -> anyhow::Result<Vec<(&'static str, Vec<Duration>)>> {
    alone.take_late_event().await?;
    let mut measured = Vec::new();
    for (name, mode) in [
        ("pleg, events", Mode::Evented),
        ("pleg, polling", Mode::Polling),
    ] {
        let builder = pleg::Pleg::builder(daemon.runtime()?).mode(mode);
        let (generator, events) = Ours::start(builder)?;
        measured.push((
            name,
            Worker::new(generator, events).run(alone, deaths).await?,
        ));
    }
    let (generator, events) = Port::generic(daemon.runtime()?);
    let times = Worker::new(generator, events).run(alone, deaths).await?;
    measured.push(("generic 1.36", times));
    let (generator, events) = Port::hint(daemon.runtime()?);
    let times = Worker::new(generator, events).run(alone, deaths).await?;
    measured.push(("hint 1.37", times));
    Ok(measured)
}

struct Worker<S> {
    generator: S,
    events: Fifo,
    last_change: Instant,
}

impl<S: Subject> Worker<S> {
    fn new(generator: S, events: Fifo) -> Self {
        Self {
            generator,
            events,
            last_change: Instant::ORIGIN,
        }
    }

    async fn run(mut self, alone: &mut Alone, deaths: u32) -> anyhow::Result<Vec<Duration>> {
        let name = self.generator.name();
        let mut times = Vec::new();
        for n in 0..deaths {
            let time = self.death(alone, n, deaths).await;
            times.push(time.with_context(|| format!("death {n} with {name}"))?);
        }
        self.generator.shutdown().await;
        alone.take_late_event().await?;
        Ok(times)
    }

    /// Kills the container and replaces it when the generator says that it died.
    async fn death(&mut self, alone: &mut Alone, n: u32, of: u32) -> anyhow::Result<Duration> {
        // The run of the worker after its last change.
        self.newer_than(alone, self.last_change).await?;
        pause(n, of).await;
        let old = alone.present()?.clone();
        let killed = alone.kill().await?;
        let replaced = async {
            self.died(&old).await?;
            self.newer_than(alone, self.last_change).await?;
            let shown = self.generator.state(alone.uid(), &old);
            ensure!(
                shown == Some(ReportedState::Exited),
                "{old} is shown {shown:?}"
            );
            alone.replace().await
        };
        let id = tokio::time::timeout(PATIENCE, replaced).await;
        let id = id.context("the container was not replaced in time")??;
        self.last_change = self.generator.clock().now();
        self.generator.request_relist(alone.uid());
        let started = alone.start_of(&id).await?;
        nanos(started.nanos_since(killed)).context("started before it died")
    }

    async fn newer_than(&self, alone: &Alone, after: Instant) -> anyhow::Result<()> {
        let answer = self.generator.newer_than(alone.uid(), after);
        let answer = tokio::time::timeout(PATIENCE, answer).await;
        answer.context("the pod worker got no status")
    }

    /// Waits until the death of that container is announced.
    async fn died(&mut self, id: &Id) -> anyhow::Result<()> {
        loop {
            let event = self
                .events
                .next()
                .await
                .context("the generator has ended")?;
            if event.event == LifecycleType::ContainerDied && event.data.as_ref() == Some(id) {
                return Ok(());
            }
        }
    }
}
