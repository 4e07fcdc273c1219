//! A reader on a fake runtime whose streams follow a script, in paused time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use pleg_evented::{Batch, Hints, ReaderGauges, ReconnectPolicy, ReconnectSettings, handover, run};
use pleg_runtime::clock::Clock;
use pleg_runtime::core::{
    CallError, CallErrorKind, EventType, Hint, Id, Instant, RuntimeEvent, StreamChange,
};
use pleg_runtime::fake::{self, Dial, FakeRuntime, Op, Step};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A stream on which nothing ever happens.
pub(crate) fn quiet() -> Dial {
    Dial::Open(vec![Step::Live])
}

/// A stream that ends with OK after this number of milliseconds.
pub(crate) fn lives(millis: u64) -> Dial {
    Dial::Open(vec![wait(millis)])
}

pub(crate) fn wait(millis: u64) -> Step {
    Step::Wait(Duration::from_millis(millis))
}

/// An event without statuses.
pub(crate) fn sends(id: &str, what: EventType) -> Step {
    Step::Event(RuntimeEvent::new(id, what).into())
}

/// CREATED, STOPPED and DELETED events of `count` containers.
pub(crate) fn burst(count: u64) -> Vec<Step> {
    let life = [EventType::Created, EventType::Stopped, EventType::Deleted];
    let of = |n: u64| life.map(|what| sends(&format!("burst{n}"), what));
    (0..count).flat_map(of).collect()
}

/// Checks the times of dials. Each pause may be two milliseconds longer than expected: tokio's timers count whole
/// milliseconds, and the clock gives no instant twice, so a dial may be due some nanoseconds after a millisecond.
#[track_caller]
pub(crate) fn assert_on_time(made: &[u128], expected: &[u128]) {
    let late = made
        .iter()
        .zip(expected)
        .map(|(made, due)| made.checked_sub(*due));
    let late: Option<Vec<_>> = late.collect();
    let is_on_time = late.is_some_and(|late| {
        let mut late = (0..).zip(late);
        late.all(|(before, late)| late <= 2 * before)
    });
    assert!(
        is_on_time && made.len() == expected.len(),
        "{made:?}, not {expected:?}"
    );
}

pub(crate) fn error(kind: CallErrorKind) -> CallError {
    fake::error("GetContainerEvents", kind)
}

pub(crate) struct RunningReader {
    pub(crate) clock: Clock,
    pub(crate) began: Instant,
    pub(crate) runtime: FakeRuntime,
    pub(crate) gauges: Arc<ReaderGauges>,
    pub(crate) out: Hints,
    /// Stream changes that were taken, but that [`change`](Self::change) has not returned yet.
    changes: VecDeque<StreamChange>,
    /// All taken hints.
    pub(crate) hints: BTreeMap<Id, Hint>,
    pub(crate) renew: Arc<Notify>,
    pub(crate) shutdown: CancellationToken,
    pub(crate) task: JoinHandle<()>,
}

impl RunningReader {
    /// A reader with exact pauses, without jitter.
    pub(crate) fn new(script: Vec<Dial>) -> Self {
        let settings = ReconnectSettings {
            jitter_percent: 0,
            ..ReconnectSettings::default()
        };
        Self::with(settings, script)
    }

    pub(crate) fn with(settings: ReconnectSettings, script: Vec<Dial>) -> Self {
        let runtime = FakeRuntime::new();
        runtime.script_streams(script);
        let clock = runtime.clock();
        let shutdown = CancellationToken::new();
        let policy = ReconnectPolicy::new(settings).unwrap();
        let policy = policy.avoid_harm(true);
        let (to, out) = handover();
        let gauges = out.gauges();
        let (of, stop) = (Arc::new(runtime.clone()), shutdown.clone());
        let renew = Arc::new(Notify::new());
        let r = renew.clone();
        let task = tokio::spawn(run(of, clock, policy, to, r, stop));
        Self {
            clock,
            began: clock.now(),
            runtime,
            gauges,
            renew,
            out,
            changes: VecDeque::new(),
            hints: BTreeMap::new(),
            shutdown,
            task,
        }
    }

    /// Takes the waiting events and stream changes. Returns the number of events that the full hint map dropped.
    pub(crate) fn take(&mut self) -> u64 {
        let batch: Batch = self.out.take();
        self.changes.extend(batch.changes);
        self.hints.extend(batch.hints);
        batch.lost
    }

    /// The next stream change. Lets time pass until there is one.
    pub(crate) async fn change(&mut self) -> StreamChange {
        loop {
            if let Some(change) = self.changes.pop_front() {
                return change;
            }
            self.out.wait().await;
            self.take();
        }
    }

    /// Takes the stream changes so far, without waiting.
    pub(crate) fn changes(&mut self) -> Vec<StreamChange> {
        self.take();
        self.changes.drain(..).collect()
    }

    /// Waits until the reader has dialed `count` times. Returns the times of these dials, in milliseconds.
    pub(crate) async fn attempts(&mut self, count: usize) -> Vec<u128> {
        while self.runtime.count(&Op::Subscribe) < count {
            self.change().await;
        }
        self.dialed()
    }

    /// The times of all dials so far, in milliseconds since the reader's start.
    pub(crate) fn dialed(&self) -> Vec<u128> {
        let dials = self.runtime.times(&Op::Subscribe);
        let since = |at: &Instant| at.since(self.began).as_millis();
        dials.iter().map(since).collect()
    }

    /// Lets this much time pass without taking events or stream changes.
    pub(crate) async fn idle(&self, millis: u64) {
        let until = self.clock.now().after(Duration::from_millis(millis));
        self.clock.sleep_until(until).await;
    }

    /// Shuts the reader down. The reader must end without any time passing and leave no task or stream.
    pub(crate) async fn stop(self) {
        let at = self.clock.now();
        self.shutdown.cancel();
        self.task.await.unwrap();
        assert_eq!(self.clock.now().since(at).as_millis(), 0);
        assert!(self.runtime.is_released());
        assert_eq!(self.runtime.streams(), 0);
        let subscribes = self.runtime.count(&Op::Subscribe);
        assert_eq!(self.runtime.calls().len(), subscribes, "no other call");
        drop(self.out);
        assert_eq!(Arc::strong_count(&self.gauges), 1);
    }
}
