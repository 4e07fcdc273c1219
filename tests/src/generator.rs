//! A generator under test, with what it announces, what it reads, and a second client of the runtime.

use std::time::Duration;

use anyhow::Context;
use pleg::core::{Degraded, EventType, Health, Id, LifecycleType, StreamState};
use pleg::runtime::Runtime;
use pleg::{Builder, Pleg, Subscription};
use pleg_cri::CriRuntime;

use crate::check::{Announcements, compare_cache};
use crate::kubelet::{Kubelet, Life, Objects};
use crate::recording::{Recorder, RecordingRuntime};
use crate::wait::{until, until_ok};

/// The limit for anything that should happen at once.
const SOON: Duration = Duration::from_secs(20);

/// A generator under test.
#[derive(Debug)]
pub struct Generator {
    /// The generator.
    pub pleg: Pleg,
    /// Its announcements from the start.
    pub events: Subscription,
    /// Those that [`drain`](Self::drain) has taken.
    pub announced: Announcements,
    /// Its calls, and the events that it received.
    pub recorder: Recorder,
    /// A second client of the same runtime.
    pub observer: CriRuntime,
}

impl Generator {
    /// One that is not started, to be started by [`spawn`](Self::spawn).
    pub fn builder<R: Runtime>(runtime: R) -> (Builder<RecordingRuntime<R>>, Recorder) {
        let (runtime, recorder) = RecordingRuntime::new(runtime);
        (Pleg::builder(runtime), recorder)
    }

    /// Starts one, with a subscription from the start.
    pub fn spawn<R: Runtime>(
        mut builder: Builder<RecordingRuntime<R>>,
        recorder: Recorder,
        observer: CriRuntime,
    ) -> anyhow::Result<Self> {
        let events = builder.subscribe();
        Ok(Self {
            pleg: builder.spawn()?,
            events,
            announced: Announcements::default(),
            recorder,
            observer,
        })
    }

    /// Takes all announcements that are there now.
    pub fn drain(&mut self) {
        self.announced.drain(&mut self.events);
    }

    /// Takes all announcements that come until the work is done, so that none is coalesced.
    pub async fn drain_during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        let mut again = tokio::time::interval(Duration::from_millis(5));
        loop {
            tokio::select! {
                done = &mut work => return done,
                _ = again.tick() => self.drain(),
            }
        }
    }

    /// Returns true if that was announced of the id by now.
    pub fn has(&mut self, id: &Id, what: LifecycleType) -> bool {
        self.drain();
        self.announced.has(id, what)
    }

    /// The current health.
    pub fn health(&self) -> Health {
        self.pleg.health().current()
    }

    /// Returns true if the event stream is confirmed.
    pub fn is_confirmed(&self) -> bool {
        is_confirmed(&self.pleg)
    }

    /// The names of the degraded reasons.
    pub fn degraded(&self) -> Vec<&'static str> {
        let degraded = self.pleg.health().degraded();
        degraded.iter().map(Degraded::as_str).collect()
    }

    /// Returns true if that is a degraded reason.
    pub fn is_degraded(&self, how: &str) -> bool {
        self.degraded().contains(&how)
    }

    /// Returns true if nothing is degraded and the stream is confirmed.
    pub fn is_well(&self) -> bool {
        self.degraded().is_empty() && self.is_confirmed()
    }

    /// The number of missed events, of all kinds.
    pub fn missed(&self) -> u64 {
        self.pleg.counters().missed.total()
    }

    /// Waits until the stream is confirmed.
    pub async fn wait_until_confirmed(&self, within: Duration) -> anyhow::Result<()> {
        until(within, "the stream is confirmed", || async {
            self.is_confirmed().then_some(())
        })
        .await
    }

    /// Compares the cache with the runtime's list, and what was announced with what was done.
    pub async fn check(&mut self, kubelet: &Kubelet) -> anyhow::Result<()> {
        compare_cache(&self.pleg, &self.observer)
            .await
            .map_err(|wrong| anyhow::anyhow!("{wrong:#?}"))?;
        self.check_announced(&kubelet.objects())
    }

    /// Compares what was announced with what was done. Something may be missing.
    pub fn check_announced(&mut self, objects: &Objects) -> anyhow::Result<()> {
        self.drain();
        let wrong = self.announced.wrong(objects);
        anyhow::ensure!(wrong.is_empty(), "{wrong:#?}");
        Ok(())
    }

    /// Compares all that was announced with what was done.
    pub fn check_complete(&mut self, kubelet: &Kubelet) -> anyhow::Result<()> {
        self.drain();
        let (objects, log) = (kubelet.objects(), self.recorder.log());
        let received = (log.calls.subscribes > 0).then_some(&log);
        let wrong = [
            self.announced.wrong(&objects),
            self.announced.missing(&objects, received),
            self.announced.without_code(&objects, received),
        ]
        .concat();
        anyhow::ensure!(wrong.is_empty(), "{wrong:#?}");
        Ok(())
    }

    /// Checks that no call was made beyond two for each full list, two for each read of a pod, and the statuses that were due;
    /// that one stream was opened, and that no event was missed.
    pub async fn check_calls(&self) -> anyhow::Result<()> {
        // When no call is in flight: a call is counted when it begins, a list when it ends.
        until_ok(SOON, "the calls are those of the reads", || async {
            let (calls, counters) = (self.recorder.log().calls, self.pleg.counters());
            let is_right = calls.full_lists == 2 * counters.lists
                && calls.pod_lists <= 2 * counters.pod_reads
                && calls.statuses <= counters.statuses
                && calls.subscribes == 1
                && counters.missed.total() == 0;
            is_right.then_some(()).ok_or((calls, counters))
        })
        .await
    }

    /// Waits until the removal of all of these that were removed is announced.
    pub async fn wait_until_removals_are_announced(
        &mut self,
        objects: &Objects,
    ) -> anyhow::Result<()> {
        let waited = until(SOON, "all removals are announced", || {
            self.drain();
            let mut removed = objects.iter().filter(|(_, d)| d.removed);
            let what = LifecycleType::ContainerRemoved;
            let all = removed.all(|(id, _)| self.announced.has(id, what));
            async move { all.then_some(()) }
        })
        .await;
        waited.with_context(|| format!("{:#?}", self.announced.missing(objects, None)))
    }

    /// Waits until that is announced of each of these ids.
    pub async fn wait_until_announced(
        &mut self,
        within: Duration,
        what: LifecycleType,
        ids: &[Id],
    ) -> anyhow::Result<()> {
        until(
            within,
            &format!("{what} of {} ids is announced", ids.len()),
            || {
                self.drain();
                let all = ids.iter().all(|id| self.announced.has(id, what));
                async move { all.then_some(()) }
            },
        )
        .await
    }

    /// Waits until the cache equals the runtime's list.
    pub async fn wait_until_cache_equals_list(&self, within: Duration) -> anyhow::Result<()> {
        until_ok(within, "the cache equals the list", || {
            compare_cache(&self.pleg, &self.observer)
        })
        .await
    }

    /// Runs a container that ends at once, and waits until the stream has delivered its end and it is
    /// announced.
    pub async fn wait_until_events_are_used(
        &mut self,
        kubelet: &Kubelet,
        pod: &str,
    ) -> anyhow::Result<()> {
        let pod = kubelet.run_pod(pod).await?;
        let life = Life::Exit {
            code: 9,
            after_ms: 20,
        };
        let job = kubelet.run(&pod, "job", 0, life).await?;
        let waited = until(
            SOON,
            "the stream reports the end of a new container",
            || {
                let announced = self.has(&job, LifecycleType::ContainerDied);
                let both = announced && self.recorder.log().has(&job, EventType::Stopped);
                async move { both.then_some(()) }
            },
        )
        .await;
        waited.with_context(|| self.describe(std::slice::from_ref(&job)))
    }

    /// The events and announcements of these ids, for messages.
    pub fn describe(&self, ids: &[Id]) -> String {
        let types: Vec<_> = ids
            .iter()
            .map(|id| (id, self.announced.types(id)))
            .collect();
        let mut received = self.recorder.log().events;
        received.retain(|event| ids.iter().any(|id| event.mentions(id)));
        format!("announced {types:?}; received {received:#?}")
    }
}

/// Returns true if the event stream of that generator is confirmed.
pub fn is_confirmed(pleg: &Pleg) -> bool {
    matches!(
        pleg.health().current().stream,
        StreamState::Subscribed {
            confirmed: true,
            ..
        }
    )
}
