//! A simulated runtime for one generator in the same process, on paused time. The generator has one connection for
//! calls and one for the event stream; a test can break both.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pleg::core::{Settings, StreamState, WallTime};
use pleg::runtime::clock::Clock;
use pleg::{Builder, Pleg};
use pleg_cri::{CriConfig, CriRuntime};
use pleg_sim::{Sim, SimBuilder};
use pleg_tests::generator::Generator;
use pleg_tests::kubelet::Kubelet;
use pleg_tests::recording::{Recorder, RecordingRuntime};

use crate::pipe::FaultyPipe;

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// A simulated runtime, and the in-process connections to it.
pub(crate) struct Node {
    pub(crate) sim: Arc<Sim>,
    /// The connections for lists, statuses and `Version`.
    pub(crate) calls: FaultyPipe,
    /// The connections for the event stream.
    pub(crate) events: FaultyPipe,
    /// The connection of the kubelet and of a second client, which observes the runtime. It never breaks.
    good: FaultyPipe,
    pub(crate) clock: Clock,
}

/// A client that connects over this pipe.
fn client(pipe: &FaultyPipe) -> anyhow::Result<CriRuntime> {
    let pipe = pipe.clone();
    let config = CriConfig::new("unix:///in/this/process".parse()?);
    let connect = move || std::future::ready(pipe.connect());
    Ok(CriRuntime::with_connector(config, connect)?)
}

impl Node {
    pub(crate) fn up() -> Self {
        Self::with(pleg_sim::Mode::default(), 11)
    }

    pub(crate) fn with(mode: pleg_sim::Mode, seed: u64) -> Self {
        Self::of(Sim::builder().mode(mode).seed(seed))
    }

    pub(crate) fn of(sim: SimBuilder) -> Self {
        let clock = Clock::start_at(WallTime::from_nanos(1_800_000_000_000_000_000));
        let sim = sim
            .wall_clock(Arc::new(move || clock.wall().as_nanos()))
            .build();
        let sim = Arc::new(sim);
        let pipe = || {
            let sim = sim.clone();
            FaultyPipe::to(move |io| sim.serve_stream(io))
        };
        Self {
            calls: pipe(),
            events: pipe(),
            good: pipe(),
            sim,
            clock,
        }
    }

    /// Sets a knob of the simulated runtime, such as a fault.
    pub(crate) fn set(&self, knob: &str) {
        let set = self.sim.set_knob(knob);
        assert!(set.is_ok(), "{knob}: {set:?}");
    }

    pub(crate) fn observer_client(&self) -> anyhow::Result<CriRuntime> {
        client(&self.good)
    }

    pub(crate) fn kubelet(&self) -> anyhow::Result<Kubelet> {
        let client = self.observer_client()?;
        Ok(Kubelet::over(&client, "app:1", "", Path::new("/nowhere")))
    }

    /// The builder of a generator on this runtime, and the recorder of the generator's calls and received events.
    pub(crate) fn builder(
        &self,
        settings: Settings,
    ) -> anyhow::Result<(Builder<RecordingRuntime<CriRuntime>>, Recorder)> {
        let (runtime, recorder) = RecordingRuntime::new(client(&self.calls)?);
        let builder = Pleg::builder(runtime.with_events(client(&self.events)?));
        Ok((builder.settings(settings).clock(self.clock), recorder))
    }

    /// Starts a generator. Waits until it has synced and, unless it polls, until [`Generator::is_confirmed`] is true.
    pub(crate) async fn start(&self, settings: Settings) -> anyhow::Result<Generator> {
        self.spawn(self.builder(settings)?).await
    }

    /// Starts a generator like [`start`](Self::start), from a builder.
    pub(crate) async fn spawn(
        &self,
        (builder, recorder): (Builder<RecordingRuntime<CriRuntime>>, Recorder),
    ) -> anyhow::Result<Generator> {
        let generator = Generator::spawn(builder, recorder, self.observer_client()?)?;
        generator.pleg.wait_until_synced().await?;
        if generator.health().stream != StreamState::Off {
            self.until(5 * SECOND, "the stream is confirmed", || {
                generator.is_confirmed()
            })
            .await?;
        }
        Ok(generator)
    }

    /// Lets `time` pass.
    pub(crate) async fn pass(&self, time: Duration) {
        self.clock.sleep_until(self.clock.now().after(time)).await;
    }

    /// Waits until the condition holds. Returns how long this took, with an error of at most 1 %.
    pub(crate) async fn until(
        &self,
        within: Duration,
        what: &str,
        mut condition: impl FnMut() -> bool,
    ) -> anyhow::Result<Duration> {
        let began = self.clock.now();
        loop {
            let waited = self.clock.now().since(began);
            if condition() {
                return Ok(waited);
            }
            let left = within.saturating_sub(waited);
            anyhow::ensure!(!left.is_zero(), "not within {within:?}: {what}");
            self.pass(left.min(MS.max(waited / 100))).await;
        }
    }

    /// Compares the cache with the runtime's lists and the announcements with the kubelet's calls, and shuts down.
    pub(crate) async fn check_and_end(
        self,
        mut generator: Generator,
        kubelet: &Kubelet,
    ) -> anyhow::Result<()> {
        generator.check(kubelet).await?;
        self.end(generator).await;
        Ok(())
    }

    pub(crate) async fn end(self, generator: Generator) {
        generator.pleg.shutdown().await;
        self.sim.shutdown().await;
    }
}
