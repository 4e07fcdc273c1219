//! A generator on a fake runtime. Time is paused: it advances when every task waits.

mod trace;

use std::time::Duration;

use pleg::core::{
    CallError, Degraded, Instant, Mode, PodLifecycleEvent, PodUid, PodView, Report, ReportedState,
    Settings, StreamState,
};
use pleg::{Delivery, Pleg, Subscription, WaitError};
use tokio::task::JoinHandle;

pub(crate) use trace::Trace;

pub(crate) use pleg::runtime::fake::{
    FakeRuntime, Op, container, error, exited, sandbox, with_ips,
};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// The default settings, changed by `change`.
pub(crate) fn settings(change: impl FnOnce(&mut Settings)) -> Settings {
    let mut settings = Settings::default();
    change(&mut settings);
    settings
}

/// Polling with the default settings.
pub(crate) fn polling() -> Settings {
    settings(|s| s.mode = Mode::Polling)
}

/// Polling with long periods: by itself, the generator lists once a minute and probes the runtime once an hour.
pub(crate) fn rarely() -> Settings {
    settings(|s| {
        s.mode = Mode::Polling;
        s.relist_period = MINUTE;
        s.probe_period = 60 * MINUTE;
    })
}

/// A ready sandbox of the pod.
pub(crate) fn ready(uid: &str) -> Report {
    sandbox(uid, "s", ReportedState::Running)
}

/// The sandbox of [`ready`] when it is no longer ready.
pub(crate) fn not_ready(uid: &str) -> Report {
    sandbox(uid, "s", ReportedState::Exited)
}

pub(crate) fn running(uid: &str, name: &str) -> Report {
    container(uid, name, ReportedState::Running)
}

/// A generator that has just been started.
pub(crate) fn started(node: &FakeRuntime, settings: Settings) -> Pleg {
    let builder = Pleg::builder(node.clone()).settings(settings);
    builder.spawn().unwrap()
}

/// A generator that is synced.
pub(crate) async fn synced(node: &FakeRuntime, settings: Settings) -> Pleg {
    let pleg = started(node, settings);
    soon(pleg.wait_until_synced()).await.unwrap();
    pleg
}

/// The names of the degraded reasons.
pub(crate) fn degraded(pleg: &Pleg) -> Vec<&'static str> {
    let degraded = pleg.health().degraded();
    degraded.iter().map(Degraded::as_str).collect()
}

pub(crate) fn is_degraded(pleg: &Pleg, how: &str) -> bool {
    degraded(pleg).contains(&how)
}

/// Returns true if the stream is `confirmed`: it has been open for a second, and a list that began on it is complete.
pub(crate) fn is_confirmed(pleg: &Pleg) -> bool {
    let stream = pleg.health().current().stream;
    matches!(stream, StreamState::Subscribed { confirmed, .. } if confirmed)
}

/// The exit code of a container in the cache.
pub(crate) fn exit_code(pleg: &Pleg, uid: &str, name: &str) -> Option<i32> {
    let status = pleg.get(&uid.into()).status;
    let container = status.container(name)?;
    container.details.exit_code
}

/// The error of a failed read, and the last good view.
pub(crate) fn failed_read(answer: Result<PodView, WaitError>) -> (CallError, PodView) {
    match answer {
        Err(WaitError::Read { error, last_good }) => (error, *last_good),
        other => panic!("expected a failed read: {other:?}"),
    }
}

/// Fails the test if the future does not complete within 20 minutes of paused time.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    let limit = 20 * MINUTE;
    tokio::time::timeout(limit, what).await.expect("in time")
}

/// Returns true if now is `at`, or up to 3 ms later. The clock gives no instant twice, so a timer may be due some
/// nanoseconds after a whole millisecond, and tokio's timers fire only at whole milliseconds.
pub(crate) fn is_now(pleg: &Pleg, at: Option<Instant>) -> bool {
    at.is_some_and(|at| is_soon_after(pleg.now(), at))
}

/// Like [`is_now`], for two instants.
pub(crate) fn is_soon_after(later: Instant, at: Instant) -> bool {
    later >= at && later.since(at) < 3 * MS
}

/// Lets this much time pass.
pub(crate) async fn pass(pleg: &Pleg, time: Duration) {
    let clock = pleg.clock();
    clock.sleep_until(clock.now().after(time)).await;
}

/// Lets time pass until the condition holds. Returns how long it took, to the millisecond.
pub(crate) async fn until(pleg: &Pleg, mut so: impl FnMut() -> bool) -> Duration {
    let (clock, began) = (pleg.clock(), pleg.now());
    while !so() {
        let waited = clock.now().since(began);
        assert!(waited < 20 * MINUTE, "it never came about");
        clock.sleep_until(clock.now().after(MS)).await;
    }
    clock.now().since(began)
}

/// Waits for a view in a task of its own. The driver has received the request when this returns.
pub(crate) async fn waiting(
    pleg: &Pleg,
    uid: &str,
    after: Instant,
    within: Duration,
) -> JoinHandle<Result<PodView, WaitError>> {
    let (pleg_of_task, uid) = (pleg.clone(), PodUid::from(uid));
    let waits = tokio::spawn(async move { pleg_of_task.newer_than(&uid, after, within).await });
    pass(pleg, MS).await;
    waits
}

/// The next announcement, skipping `Synced`.
pub(crate) async fn next(subscription: &mut Subscription) -> PodLifecycleEvent {
    loop {
        match soon(subscription.next()).await {
            Some(Delivery::Event(event)) => return event,
            Some(Delivery::Synced) => {}
            other => panic!("expected an announcement: {other:?}"),
        }
    }
}

/// The next announcement, which must be `announced`.
pub(crate) async fn expect(subscription: &mut Subscription, announced: &str) -> PodLifecycleEvent {
    let event = next(subscription).await;
    assert_eq!(in_short(&event), announced);
    event
}

/// All announcements that are queued now, as `p1 Died p1-c`.
pub(crate) fn drain(subscription: &mut Subscription) -> Vec<String> {
    std::iter::from_fn(|| subscription.try_next())
        .filter(|delivery| *delivery != Delivery::Synced)
        .map(|delivery| match delivery {
            Delivery::Event(event) => in_short(&event),
            other => panic!("expected announcements: {other:?}"),
        })
        .collect()
}

/// `p1 Died p1-c`, `p1 PodSync`.
pub(crate) fn in_short(event: &PodLifecycleEvent) -> String {
    let what = event.event.as_str().trim_start_matches("Container");
    let uid = &event.uid;
    match &event.subject {
        Some(subject) => format!("{uid} {what} {}", subject.id),
        None => format!("{uid} {what}"),
    }
}
