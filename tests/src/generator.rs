//! A generator under test. A recorder logs its calls and events, and a second client observes the same runtime.

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

/// The time limit of each wait for something that should happen at once.
const SOON: Duration = Duration::from_secs(20);

/// A generator under test, with what a test needs to check it.
#[derive(Debug)]
pub struct Generator {
    /// The generator.
    pub pleg: Pleg,
    /// The generator's announcements from the start.
    pub events: Subscription,
    /// The announcements that [`drain`](Self::drain) has taken.
    pub announced: Announcements,
    /// The generator's calls, and the events that it received.
    pub recorder: Recorder,
    /// A second client of the same runtime.
    pub observer: CriRuntime,
}

impl Generator {
    /// A builder for a generator on `runtime`, and the log of its calls. [`spawn`](Self::spawn) starts the generator.
    pub fn builder<R: Runtime>(runtime: R) -> (Builder<RecordingRuntime<R>>, Recorder) {
        let (runtime, recorder) = RecordingRuntime::new(runtime);
        (Pleg::builder(runtime), recorder)
    }

    /// Subscribes to the generator, and then starts it.
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

    /// Takes all announcements that are available now.
    pub fn drain(&mut self) {
        self.announced.drain(&mut self.events);
    }

    /// While `work` runs, takes announcements so often that the inbox of the subscription need not drop any.
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

    /// Returns true if the generator has announced an event of the type `what` about the id.
    pub fn has(&mut self, id: &Id, what: LifecycleType) -> bool {
        self.drain();
        self.announced.has(id, what)
    }

    /// The current health.
    pub fn health(&self) -> Health {
        self.pleg.health().current()
    }

    /// Returns true if the subscribe call has been open for a second, and a complete list began after the call.
    pub fn is_confirmed(&self) -> bool {
        is_confirmed(&self.pleg)
    }

    /// The names of the degraded reasons.
    pub fn degraded(&self) -> Vec<&'static str> {
        let degraded = self.pleg.health().degraded();
        degraded.iter().map(Degraded::as_str).collect()
    }

    /// Returns true if health reports the degraded reason `how`.
    pub fn is_degraded(&self, how: &str) -> bool {
        self.degraded().contains(&how)
    }

    /// Returns true if health reports no degraded reason and a confirmed event stream.
    pub fn is_well(&self) -> bool {
        self.degraded().is_empty() && self.is_confirmed()
    }

    /// The number of events of all types that the stream did not deliver, although a read showed their change.
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

    /// Compares the cache with the runtime's lists, and the announcements with the kubelet's calls.
    pub async fn check(&mut self, kubelet: &Kubelet) -> anyhow::Result<()> {
        compare_cache(&self.pleg, &self.observer)
            .await
            .map_err(|wrong| anyhow::anyhow!("{wrong:#?}"))?;
        self.check_announced(&kubelet.objects())
    }

    /// Checks that no announcement contradicts the kubelet's calls. Announcements may be missing.
    pub fn check_announced(&mut self, objects: &Objects) -> anyhow::Result<()> {
        self.drain();
        let wrong = self.announced.wrong(objects);
        anyhow::ensure!(wrong.is_empty(), "{wrong:#?}");
        Ok(())
    }

    /// Checks that no announcement contradicts the kubelet's calls, and that none is missing.
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

    /// Checks that the recorder saw two list calls for each relist, at most two for each pod read, and no more status
    /// calls than the generator counts. Also checks that the generator subscribed only once and missed no
    /// event.
    pub async fn check_calls(&self) -> anyhow::Result<()> {
        // Retry, because the numbers differ while a list is in flight: the recorder counts a list when it begins, the
        // generator when it ends.
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

    /// Waits until the generator has announced the removal of every removed object.
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

    /// Waits until the generator has announced an event of the type `what` about each of these ids.
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

    /// Runs a container that exits at once, and waits until the stream has delivered its STOPPED and the
    /// generator has announced the exit.
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

    /// The events and announcements of these ids, as text for error messages.
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

/// Returns true if the event stream of this generator is [confirmed](StreamState::Subscribed).
pub fn is_confirmed(pleg: &Pleg) -> bool {
    matches!(
        pleg.health().current().stream,
        StreamState::Subscribed {
            confirmed: true,
            ..
        }
    )
}
