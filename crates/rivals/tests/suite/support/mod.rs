//! Functions that start each generator. The tests use paused time: it advances when all tasks wait, and so does every wall clock.

use std::time::Duration;

use pleg::Pleg;
use pleg_core::{CallErrorKind, EventType, ReportedState, RuntimeEvent, WallTime};
use pleg_runtime::clock::{Clock, wall};
use rivals::{Evented, EventedSettings, Fifo, Generic, GenericSettings, Hint, Ours, Subject};

pub(crate) use pleg_runtime::fake::{FakeRuntime, Op, container, exited, sandbox, with_ips};

pub(crate) const DOWN: CallErrorKind = CallErrorKind::Unavailable;
pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// The event that containerd would send now, stamped with that time.
pub(crate) fn event_at(
    node: &FakeRuntime,
    event: EventType,
    id: &str,
    at: WallTime,
) -> RuntimeEvent {
    let mut event = node.event(event, id);
    event.created_at = at.as_nanos();
    event
}

pub(crate) fn without_sandbox(mut event: RuntimeEvent) -> RuntimeEvent {
    event.sandbox = None;
    event
}

/// This project's generator.
pub(crate) fn ours(node: &FakeRuntime) -> (Ours, Fifo) {
    let clock = Clock::start_at(wall());
    Ours::start(Pleg::builder(node.clone()).clock(clock)).unwrap()
}

/// Upstream's classic design of 1.36.
pub(crate) fn evented_1_36(node: &FakeRuntime) -> (Evented<FakeRuntime>, Fifo) {
    Evented::start(node.clone(), &EventedSettings::default())
}

/// Upstream's generic design of 1.36.
pub(crate) fn generic(node: &FakeRuntime) -> (Generic<FakeRuntime>, Fifo) {
    Generic::start(node.clone(), GenericSettings::default())
}

/// Upstream's hint design of 1.37.
pub(crate) fn hint(node: &FakeRuntime) -> (Hint<FakeRuntime>, Fifo) {
    Hint::start(node.clone())
}

/// Waits for that time.
pub(crate) async fn sleep<S: Subject>(subject: &S, time: Duration) {
    let clock = subject.clock();
    clock.sleep_until(clock.now().after(time)).await;
}

/// Waits until the condition holds, at most 20 minutes. Returns the time it took, with a resolution
/// of 1 ms in the first ten seconds and of 100 ms afterwards.
pub(crate) async fn wait_until<S: Subject>(
    subject: &S,
    mut condition: impl FnMut() -> bool,
) -> Option<Duration> {
    let clock = subject.clock();
    let began = clock.now();
    while !condition() {
        if clock.now().since(began) > 20 * MINUTE {
            return None;
        }
        let early = clock.now().since(began) < 10 * SECOND;
        let step = if early { MS } else { 100 * MS };
        clock.sleep_until(clock.now().after(step)).await;
    }
    Some(clock.now().since(began))
}

/// Fails the test instead of hanging.
pub(crate) async fn with_timeout<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(20 * MINUTE, future)
        .await
        .expect("in time")
}

/// Waits until the generator has subscribed and the pod is cached.
pub(crate) async fn wait_until_ready<S: Subject>(subject: &S, node: &FakeRuntime, uid: &str) {
    let cached = || !subject.get(&uid.into()).status.is_empty();
    let took = wait_until(subject, || node.streams() == 1 && cached()).await;
    assert!(took.is_some(), "not ready in time");
    sleep(subject, 10 * MS).await;
}

/// The available lifecycle events as text: `p Died p-c`, `p PodSync`.
pub(crate) fn drain(fifo: &mut Fifo) -> Vec<String> {
    let all = std::iter::from_fn(|| fifo.try_next());
    all.map(|e| {
        let what = e.event.as_str().trim_start_matches("Container");
        match e.data {
            Some(id) => format!("{} {what} {id}", e.uid),
            None => format!("{} {what}", e.uid),
        }
    })
    .collect()
}

/// The cached state of the container with that name.
pub(crate) fn cached<S: Subject>(subject: &S, uid: &str, name: &str) -> Option<ReportedState> {
    let answer = subject.get(&uid.into());
    answer.status.container(name).map(|r| r.shown)
}
