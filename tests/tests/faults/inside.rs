//! A simulated runtime and a generator within one process and one paused time, with a breakable
//! line for the calls and one for the event stream between them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pleg::core::{Degraded, LifecycleType, Settings, StreamState, WallTime};
use pleg::runtime::clock::Clock;
use pleg::{Builder, Pleg, Subscription};
use pleg_cri::{CriConfig, CriRuntime};
use pleg_sim::Sim;
use pleg_tests::check::{Announced, cache_is_right};
use pleg_tests::kubelet::{Kubelet, Life, Pod};
use pleg_tests::line::Line;
use pleg_tests::split::Split;
use pleg_tests::tap::{Ear, Tap};

use crate::trouble::Trouble;

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// The runtime as the generator of these tests sees it.
pub(crate) type Wired = Tap<Split<CriRuntime, CriRuntime>>;

/// A simulated runtime and the lines to it.
pub(crate) struct Inside {
    pub(crate) sim: Arc<Sim>,
    pub(crate) trouble: Arc<Trouble>,
    /// Carries lists and statuses.
    pub(crate) calls: Line,
    /// Carries the event stream.
    pub(crate) events: Line,
    /// Never breaks: for the truth, and for who makes pods.
    good: Line,
    pub(crate) clock: Clock,
}

/// A client over that line.
pub(crate) fn client(line: &Line) -> anyhow::Result<CriRuntime> {
    let line = line.clone();
    let config = CriConfig::new("unix:///in/this/process".parse()?);
    let connect = move || std::future::ready(line.connect());
    Ok(CriRuntime::with_connector(config, connect)?)
}

impl Inside {
    pub(crate) fn up() -> Self {
        let clock = Clock::start_at(WallTime::from_nanos(1_800_000_000_000_000_000));
        let trouble = Arc::new(Trouble::default());
        let sim = Sim::builder()
            .seed(11)
            .wall_clock(Arc::new(move || clock.wall().as_nanos()))
            .faults(trouble.clone())
            .build();
        let sim = Arc::new(sim);
        let line = || {
            let sim = sim.clone();
            Line::to(move |io| sim.serve_stream(io))
        };
        Self {
            calls: line(),
            events: line(),
            good: line(),
            sim,
            trouble,
            clock,
        }
    }

    pub(crate) fn truth(&self) -> anyhow::Result<CriRuntime> {
        client(&self.good)
    }

    pub(crate) fn kubelet(&self) -> anyhow::Result<Kubelet> {
        let client = self.truth()?.runtime_client();
        Ok(Kubelet::over(client, "app:1", "", Path::new("/nowhere")))
    }

    /// A generator that is not started.
    pub(crate) fn builder(&self, settings: Settings) -> anyhow::Result<(Builder<Wired>, Ear)> {
        let split = Split {
            calls: client(&self.calls)?,
            events: client(&self.events)?,
        };
        let (runtime, ear) = Tap::new(split);
        let builder = Pleg::builder(runtime).settings(settings).clock(self.clock);
        Ok((builder, ear))
    }

    /// Lets so much time pass.
    pub(crate) async fn pass(&self, time: Duration) {
        self.clock.sleep_until(self.clock.now().after(time)).await;
    }

    /// Lets time pass until that is so; how long it took, to the millisecond.
    pub(crate) async fn until(
        &self,
        within: Duration,
        what: &str,
        mut so: impl FnMut() -> bool,
    ) -> anyhow::Result<Duration> {
        let began = self.clock.now();
        while !so() {
            let waited = self.clock.now().since(began);
            anyhow::ensure!(waited <= within, "not within {within:?}: {what}");
            self.pass(MS).await;
        }
        Ok(self.clock.now().since(began))
    }

    /// Pods with one container each that runs.
    pub(crate) async fn run_pods(
        &self,
        kubelet: &Kubelet,
        pods: usize,
    ) -> anyhow::Result<Vec<Pod>> {
        let mut all = Vec::new();
        for n in 0..pods {
            let pod = kubelet.run_pod(&format!("pod-{n}")).await?;
            let app = kubelet.create(&pod, "app", 0, Life::UntilStopped).await?;
            kubelet.start(&app).await?;
            all.push(pod);
        }
        Ok(all)
    }
}

/// A generator under test.
pub(crate) struct Subject {
    pub(crate) pleg: Pleg,
    pub(crate) subscription: Subscription,
    pub(crate) announced: Announced,
    pub(crate) ear: Ear,
    pub(crate) truth: CriRuntime,
}

impl Subject {
    /// One that has synced, and whose stream is confirmed.
    pub(crate) async fn start(node: &Inside, settings: Settings) -> anyhow::Result<Self> {
        let (mut builder, ear) = node.builder(settings)?;
        let subscription = builder.subscribe();
        let subject = Self::of(node, builder, subscription, ear)?;
        subject.pleg.wait_until_synced().await?;
        node.until(5 * SECOND, "the stream is confirmed", || {
            subject.is_confirmed()
        })
        .await?;
        Ok(subject)
    }

    /// One that has just been started.
    pub(crate) fn of(
        node: &Inside,
        builder: Builder<Wired>,
        subscription: Subscription,
        ear: Ear,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            pleg: builder.spawn()?,
            subscription,
            announced: Announced::default(),
            ear,
            truth: node.truth()?,
        })
    }

    pub(crate) fn is_confirmed(&self) -> bool {
        let stream = self.pleg.health().current().stream;
        matches!(
            stream,
            StreamState::Subscribed {
                confirmed: true,
                ..
            }
        )
    }

    /// What health complains of, by name.
    pub(crate) fn degraded(&self) -> Vec<&'static str> {
        let degraded = self.pleg.health().degraded();
        degraded.iter().map(Degraded::as_str).collect()
    }

    pub(crate) fn is_degraded(&self, how: &str) -> bool {
        self.degraded().contains(&how)
    }

    /// Nothing is wrong, and the stream can be relied on.
    pub(crate) fn is_well(&self) -> bool {
        self.degraded().is_empty() && self.is_confirmed()
    }

    /// Whether that was announced of the id, after all that waits was taken.
    pub(crate) fn has(&mut self, id: &pleg::core::Id, what: LifecycleType) -> bool {
        self.announced.drain(&mut self.subscription);
        self.announced.has(id, what)
    }

    /// The cache equals the runtime's own list, and nothing was announced that is wrong.
    pub(crate) async fn check(&mut self, kubelet: &Kubelet) -> anyhow::Result<()> {
        cache_is_right(&self.pleg, &self.truth)
            .await
            .map_err(|wrong| anyhow::anyhow!("{wrong:#?}"))?;
        self.announced.drain(&mut self.subscription);
        let wrong = self.announced.never_wrong(&kubelet.deeds());
        anyhow::ensure!(wrong.is_empty(), "{wrong:#?}");
        Ok(())
    }

    /// How many events were missed, of all kinds.
    pub(crate) fn missed(&self) -> u64 {
        self.pleg.counters().missed.iter().sum()
    }

    pub(crate) async fn end(self, node: Inside) {
        self.pleg.shutdown().await;
        node.sim.shutdown().await;
    }
}
