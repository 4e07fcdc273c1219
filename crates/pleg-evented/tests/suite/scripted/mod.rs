//! A runtime that follows a script, and a reader of it. No gRPC, paused time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use pleg_evented::{
    Observations, ReaderGauges, ReconnectPolicy, ReconnectSettings, StreamObservation, handover,
    run,
};
use pleg_runtime::clock::Clock;
use pleg_runtime::core::{
    CallError, CallErrorKind, EventType, Id, Instant, Report, RuntimeEvent, StreamChange,
};
use pleg_runtime::{Row, Runtime, RuntimeVersion, Scope};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The result of one dial.
pub(crate) enum Dial {
    Fails(CallErrorKind),
    Hangs,
    Opens(Vec<Step>),
}

/// A step of a stream. The stream ends with OK after the last step.
#[derive(Clone)]
pub(crate) enum Step {
    Wait(Duration),
    Event(&'static str, EventType),
    Burst(u64),
    Fails(CallErrorKind),
    Silence,
    Panics,
}

/// A stream on which nothing ever happens.
pub(crate) fn silence() -> Dial {
    Dial::Opens(vec![Step::Silence])
}

/// A stream that is open this long and then ends with OK.
pub(crate) fn lives(millis: u64) -> Dial {
    Dial::Opens(vec![Step::Wait(Duration::from_millis(millis))])
}

pub(crate) fn error(kind: CallErrorKind) -> CallError {
    CallError::new("GetContainerEvents", kind, "as scripted")
}

pub(crate) fn event(id: &str, event: EventType) -> RuntimeEvent {
    RuntimeEvent {
        id: id.into(),
        event,
        created_at: 0,
        sandbox: None,
        containers: Vec::new(),
    }
}

/// Follows the script. After its end, every stream is silent.
pub(crate) struct Scripted {
    clock: Clock,
    script: Mutex<VecDeque<Dial>>,
    /// When each attempt was made.
    dials: Mutex<Vec<Instant>>,
    /// How many streams exist.
    held: Arc<AtomicUsize>,
}

/// Counts itself while it exists.
struct Held(Arc<AtomicUsize>);

impl Held {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, SeqCst);
        Self(count.clone())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Scripted {
    fn play(&self, steps: Vec<Step>) -> BoxStream<'static, Result<RuntimeEvent, CallError>> {
        let (clock, held) = (self.clock, Held::new(&self.held));
        stream::iter(steps)
            .then(move |step| async move {
                match step {
                    Step::Wait(time) => {
                        clock.sleep_until(clock.now().after(time)).await;
                        stream::iter(Vec::new())
                    }
                    Step::Event(id, what) => stream::iter(vec![Ok(event(id, what))]),
                    Step::Burst(n) => {
                        let life = [EventType::Created, EventType::Stopped, EventType::Deleted];
                        let of = |n: u64| life.map(|e| Ok(event(&format!("burst{n}"), e)));
                        stream::iter((0..n).flat_map(of).collect::<Vec<_>>())
                    }
                    Step::Fails(kind) => stream::iter(vec![Err(error(kind))]),
                    Step::Silence => std::future::pending().await,
                    Step::Panics => panic!("a bug in a decoder"),
                }
            })
            .flatten()
            .inspect(move |_| _ = &held)
            .boxed()
    }
}

impl Runtime for Scripted {
    type Events = BoxStream<'static, Result<RuntimeEvent, CallError>>;

    async fn subscribe(&self) -> Result<Self::Events, CallError> {
        self.dials.lock().unwrap().push(self.clock.now());
        let dial = self.script.lock().unwrap().pop_front();
        match dial.unwrap_or_else(silence) {
            Dial::Fails(kind) => Err(error(kind)),
            Dial::Hangs => {
                let _held = Held::new(&self.held);
                std::future::pending().await
            }
            Dial::Opens(steps) => Ok(self.play(steps)),
        }
    }

    async fn list_sandboxes(
        &self,
        _: &Scope,
        _: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> Result<(), CallError> {
        panic!("the reader makes no call but the subscribe")
    }

    async fn list_containers(
        &self,
        _: &Scope,
        _: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> Result<(), CallError> {
        panic!("the reader makes no call but the subscribe")
    }

    async fn sandbox_status(&self, _: &Id) -> Result<Report, CallError> {
        panic!("the reader makes no call but the subscribe")
    }

    async fn container_status(&self, _: &Id) -> Result<Report, CallError> {
        panic!("the reader makes no call but the subscribe")
    }

    async fn version(&self) -> Result<RuntimeVersion, CallError> {
        panic!("the reader makes no call but the subscribe")
    }
}

/// A reader on a scripted runtime.
pub(crate) struct Bench {
    pub(crate) clock: Clock,
    pub(crate) began: Instant,
    pub(crate) runtime: Arc<Scripted>,
    pub(crate) gauges: Arc<ReaderGauges>,
    pub(crate) out: Observations,
    pub(crate) renew: Arc<Notify>,
    pub(crate) shutdown: CancellationToken,
    pub(crate) reader: JoinHandle<()>,
}

impl Bench {
    /// Pauses are exact: without jitter.
    pub(crate) fn new(script: Vec<Dial>, capacity: usize) -> Self {
        let settings = ReconnectSettings {
            jitter_percent: 0,
            ..ReconnectSettings::default()
        };
        Self::with(settings, script, capacity)
    }

    pub(crate) fn with(settings: ReconnectSettings, script: Vec<Dial>, capacity: usize) -> Self {
        let clock = Clock::start();
        let runtime = Arc::new(Scripted {
            clock,
            script: Mutex::new(script.into()),
            dials: Mutex::default(),
            held: Arc::default(),
        });
        let shutdown = CancellationToken::new();
        let policy = ReconnectPolicy::new(settings).unwrap();
        let (to, out) = handover(capacity);
        let gauges = out.gauges();
        let (of, stop) = (runtime.clone(), shutdown.clone());
        let renew = Arc::new(Notify::new());
        let r = renew.clone();
        let reader = tokio::spawn(run(of, clock, policy, to, r, stop));
        Self {
            clock,
            began: clock.now(),
            runtime,
            gauges,
            renew,
            out,
            shutdown,
            reader,
        }
    }

    /// The next observation. Time passes until there is one.
    pub(crate) async fn next(&mut self) -> StreamObservation {
        self.out.recv().await.expect("the reader has ended")
    }

    /// The next change; there must be no event before it.
    pub(crate) async fn change(&mut self) -> StreamChange {
        match self.next().await {
            StreamObservation::Change(change) => change,
            StreamObservation::Event(arrival) => panic!("unexpected {arrival:?}"),
        }
    }

    /// Takes observations until this many attempts were made. Returns when, in milliseconds.
    pub(crate) async fn attempts(&mut self, count: usize) -> Vec<u128> {
        while self.runtime.dials.lock().unwrap().len() < count {
            self.next().await;
        }
        self.dialed()
    }

    /// When the attempts so far were made, in milliseconds.
    pub(crate) fn dialed(&self) -> Vec<u128> {
        let dials = self.runtime.dials.lock().unwrap();
        dials
            .iter()
            .map(|at| at.since(self.began).as_millis())
            .collect()
    }

    /// Lets this much time pass without taking anything.
    pub(crate) async fn idle(&self, millis: u64) {
        let until = self.clock.now().after(Duration::from_millis(millis));
        self.clock.sleep_until(until).await;
    }

    /// Shuts down. The reader must end without any time passing and leave no task or stream.
    pub(crate) async fn stop(self) {
        let at = self.clock.now();
        self.shutdown.cancel();
        self.reader.await.unwrap();
        assert_eq!(self.clock.now(), at);
        assert_eq!(self.runtime.held.load(SeqCst), 0);
        assert_eq!(Arc::strong_count(&self.runtime), 1);
        drop(self.out);
        assert_eq!(Arc::strong_count(&self.gauges), 1);
    }
}
