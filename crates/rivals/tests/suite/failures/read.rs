//! Failures that were found by reading the code of the classic evented PLEG (B).

use std::time::Duration;

use pleg_core::{EventType, ReportedState};
use rivals::{Fifo, Subject};

use crate::support::{
    Action, FakeRuntime, MINUTE, MS, Op, PodWorker, SECOND, SyncLoop, attempt, cached, container,
    discard, drain, event_at, evented_1_35, evented_1_36, evented_on_crio, exited, generic, ours,
    sandbox, sleep, wait_until, wait_until_ready, with_timeout,
};

/// A kubelet starts on a node with 1,200 sandboxes and containers. Returns how many lifecycle events
/// its sync loop took within two minutes, and whether the generator is healthy.
async fn full_channel<S: Subject>(start: impl FnOnce(&FakeRuntime) -> (S, Fifo)) -> (usize, bool) {
    let node = FakeRuntime::new();
    for n in 0..600 {
        node.run_pod(&format!("p{n}"));
    }
    let (subject, mut fifo) = start(&node);
    let mut sync_loop = SyncLoop::default();
    sync_loop.run(&subject, &mut fifo, 2 * MINUTE).await;
    let healthy = subject.healthy().is_ok();
    with_timeout(subject.shutdown()).await;
    (sync_loop.taken, healthy)
}

/// B1. Upstream: a full channel makes the kubelet unhealthy, and an unhealthy kubelet takes no events
/// from the channel, so this never ends. Ours: a slow consumer does not affect health.
#[tokio::test(start_paused = true)]
async fn b1_health_and_channel_deadlock() {
    assert_eq!(full_channel(evented_1_36).await, (0, false));
    assert_eq!(
        full_channel(generic).await,
        (1000, true),
        "a full channel alone is not unhealthy"
    );
    assert_eq!(full_channel(ours).await, (1000, true));
}

/// Whether a late event of a removed pod adds the pod to the cache again.
#[derive(Debug, PartialEq, Eq)]
struct LateEvent {
    cached_after_one_second: bool,
    cached_after_twenty_minutes: bool,
    announced: Vec<String>,
}

/// A pod is removed, and the generator has noticed it. Then a late STOPPED event of its container
/// arrives.
async fn late_event<S: Subject>(start: impl FnOnce(&FakeRuntime) -> (S, Fifo)) -> LateEvent {
    let node = FakeRuntime::new();
    node.run_pod("p");
    let (subject, mut fifo) = start(&node);
    wait_until_ready(&subject, &node, "p").await;
    node.put(exited("p", "c", 0));
    let stopped = event_at(&node, EventType::Stopped, "p-c", subject.wall());
    node.remove("p-c");
    node.remove("p-s");
    sleep(&subject, 5 * MINUTE + SECOND).await;
    let is_cached = || !subject.get(&"p".into()).status.is_empty();
    assert!(!is_cached(), "the removal was noticed");
    discard(&mut fifo);
    node.send(&stopped);
    sleep(&subject, SECOND).await;
    let cached_after_one_second = is_cached();
    sleep(&subject, 20 * MINUTE).await;
    let result = LateEvent {
        cached_after_one_second,
        cached_after_twenty_minutes: is_cached(),
        announced: drain(&mut fifo),
    };
    with_timeout(subject.shutdown()).await;
    result
}

/// B2. Upstream: there are no tombstones, so the event adds the pod again, and no list removes it.
/// Ours: a removed id stays removed, and the exit code that is now known causes a PodSync.
#[tokio::test(start_paused = true)]
async fn b2_ghost_entries() {
    let upstream = LateEvent {
        cached_after_one_second: true,
        cached_after_twenty_minutes: true,
        announced: vec!["p Died p-c".to_owned()],
    };
    assert_eq!(late_event(evented_1_36).await, upstream);
    let expected = LateEvent {
        cached_after_one_second: false,
        cached_after_twenty_minutes: false,
        announced: vec!["p PodSync".to_owned()],
    };
    assert_eq!(late_event(ours).await, expected);
}

/// A container starts without an event. Returns whether a status newer than the start shows it.
async fn newer_status_shows_change<S: Subject>(
    start: impl FnOnce(&FakeRuntime) -> (S, Fifo),
) -> bool {
    let node = FakeRuntime::new();
    node.put(sandbox("p", "s", ReportedState::Running));
    let (subject, _fifo) = start(&node);
    wait_until_ready(&subject, &node, "p").await;
    node.put(container("p", "c", ReportedState::Running));
    sleep(&subject, MS).await;
    let after = subject.clock().now();
    let answer = with_timeout(subject.newer_than(&"p".into(), after)).await;
    with_timeout(subject.shutdown()).await;
    answer.status.container("c").is_some()
}

/// While a list of the node takes 6 s, two waiters ask for the same pod, newer than the same
/// instant: at 5.5 s and at 6.5 s. Returns how long each waits.
async fn two_waiters<S: Subject>(start: impl FnOnce(&FakeRuntime) -> (S, Fifo)) -> [Duration; 2] {
    let node = FakeRuntime::new();
    node.delay(Op::List, 3 * SECOND);
    let (subject, _fifo) = start(&node);
    let clock = subject.clock();
    sleep(&subject, SECOND).await;
    let after = clock.now();
    let mut waits = [4500 * MS, SECOND];
    for wait in &mut waits {
        sleep(&subject, *wait).await;
        let began = clock.now();
        with_timeout(subject.newer_than(&"p".into(), after)).await;
        *wait = clock.now().since(began);
    }
    with_timeout(subject.shutdown()).await;
    waits
}

/// B3. Upstream: a timer marks everything as current every five seconds, and a list that ends later
/// sets the time back. Ours: only a read advances freshness, and a request that was answered once is
/// answered again.
#[tokio::test(start_paused = true)]
async fn b3_freshness_by_timer() {
    assert!(!newer_status_shows_change(evented_1_35).await);
    assert!(newer_status_shows_change(ours).await);
    let [first, second] = two_waiters(evented_1_35).await;
    assert!(first <= MS && second >= 3 * SECOND, "{first:?}, {second:?}");
    let [first, second] = two_waiters(ours).await;
    assert!(first <= MS && second <= MS, "{first:?}, {second:?}");
}

/// When the runtime takes the timestamp of an event.
#[derive(Clone, Copy, Debug)]
enum Timestamp {
    /// When it reads the statuses. No runtime does this.
    AtRead,
    /// When it sends the event.
    AtSend,
}

/// A list shows that a container has exited. Then an event arrives whose statuses were read earlier.
/// Returns the cached state at once and after 20 minutes, and the lifecycle events.
async fn event_older_than_list<S: Subject>(
    start: impl FnOnce(&FakeRuntime) -> (S, Fifo),
    timestamp: Timestamp,
) -> (Option<ReportedState>, Option<ReportedState>, Vec<String>) {
    let node = FakeRuntime::new();
    node.run_pod("p");
    let mut started = node.event(EventType::Started, "p-c");
    node.put(exited("p", "c", 7));
    let (subject, mut fifo) = start(&node);
    wait_until_ready(&subject, &node, "p").await;
    if matches!(timestamp, Timestamp::AtSend) {
        started.created_at = subject.wall().as_nanos();
    }
    node.send(&started);
    sleep(&subject, MS).await;
    let at_once = cached(&subject, "p", "c");
    sleep(&subject, 20 * MINUTE).await;
    let later = cached(&subject, "p", "c");
    with_timeout(subject.shutdown()).await;
    let mut announced = drain(&mut fifo);
    announced.retain(|e| e.ends_with("p-c"));
    (at_once, later, announced)
}

/// B4. Upstream: the runtime's timestamp decides which status is newer, so the older statuses win,
/// and later lists show no change and do not correct it. Ours: an exited container stays exited.
#[tokio::test(start_paused = true)]
async fn b4_older_data_with_a_newer_stamp() {
    let running = Some(ReportedState::Running);
    let events = ["p Died p-c", "p Started p-c"].map(str::to_owned).to_vec();
    let wrong = (running, running, events);
    let exited = Some(ReportedState::Exited);
    let right = (exited, exited, vec!["p Died p-c".to_owned()]);
    let upstream = event_older_than_list(evented_on_crio, Timestamp::AtSend).await;
    assert_eq!(upstream, wrong);
    let upstream = event_older_than_list(evented_on_crio, Timestamp::AtRead).await;
    assert_eq!(upstream, right, "the timestamp decides");
    // On containerd, statuses from lists have no timestamp, so any event overwrites them.
    let upstream = event_older_than_list(evented_1_35, Timestamp::AtRead).await;
    assert_eq!(upstream, wrong);
    for timestamp in [Timestamp::AtSend, Timestamp::AtRead] {
        assert_eq!(
            event_older_than_list(ours, timestamp).await,
            right,
            "{timestamp:?}"
        );
    }
}

/// The first sandbox of a pod is deleted while the pod runs in its second sandbox. Returns the
/// number of cached sandboxes and containers, and the actions of the pod's worker.
async fn old_sandbox_deleted<S: Subject>(
    start: impl FnOnce(&FakeRuntime) -> (S, Fifo),
) -> (usize, usize, Vec<Action>) {
    let node = FakeRuntime::new();
    node.put(sandbox("p", "s0", ReportedState::Exited));
    node.put(attempt(sandbox("p", "s1", ReportedState::Running), 1));
    let mut running = container("p", "c", ReportedState::Running);
    running.identity.sandbox = Some("p-s1".into());
    node.put(running);
    let (subject, _fifo) = start(&node);
    wait_until_ready(&subject, &node, "p").await;
    let deleted = event_at(&node, EventType::Deleted, "p-s0", subject.wall());
    node.remove("p-s0");
    node.send(&deleted);
    sleep(&subject, MS).await;
    let status = subject.get(&"p".into()).status;
    let actions = PodWorker::new(&subject, &node, "p", &[]).sync().await;
    with_timeout(subject.shutdown()).await;
    (status.sandboxes.len(), status.containers.len(), actions)
}

/// B6. Upstream: DELETED of an old sandbox deletes the cache entry of the pod, so the pod is started
/// a second time. Ours: only that sandbox is removed.
#[tokio::test(start_paused = true)]
async fn b6_an_old_sandbox_takes_the_pod_with_it() {
    let recreated = vec![Action::CreatedSandbox, Action::CreatedContainer];
    assert_eq!(old_sandbox_deleted(evented_1_36).await, (0, 0, recreated));
    assert_eq!(old_sandbox_deleted(ours).await, (1, 1, vec![]));
}

/// Makes an event write the cache entry of the pod.
async fn cache_from_event<S: Subject>(node: &FakeRuntime, subject: &S, fifo: &mut Fifo) {
    wait_until_ready(subject, node, "p").await;
    node.send(&event_at(node, EventType::Started, "p-c", subject.wall()));
    sleep(subject, 10 * MS).await;
    discard(fifo);
}

/// Returns the time until the exit of a container without an event is announced, and the time until
/// a requested PodSync is announced.
async fn found_by_list<S: Subject>(
    start: impl Fn(&FakeRuntime) -> (S, Fifo),
) -> [Option<Duration>; 2] {
    let mut took = [None; 2];
    for (nth, awaited) in ["p Died p-c", "p PodSync"].into_iter().enumerate() {
        let node = FakeRuntime::new();
        node.run_pod("p");
        let (subject, mut fifo) = start(&node);
        cache_from_event(&node, &subject, &mut fifo).await;
        if nth == 0 {
            node.put(exited("p", "c", 9));
        } else {
            subject.request_reinspect(&"p".into());
        }
        let announced = || drain(&mut fifo).iter().any(|e| e == awaited);
        took[nth] = wait_until(&subject, announced).await;
        with_timeout(subject.shutdown()).await;
    }
    took
}

/// Returns how often the start of a container is announced within ten minutes after its event.
async fn announced_starts<S: Subject>(start: impl FnOnce(&FakeRuntime) -> (S, Fifo)) -> usize {
    let node = FakeRuntime::new();
    node.put(sandbox("p", "s", ReportedState::Running));
    let (subject, mut fifo) = start(&node);
    wait_until_ready(&subject, &node, "p").await;
    discard(&mut fifo);
    node.put(container("p", "c", ReportedState::Running));
    node.send(&event_at(&node, EventType::Started, "p-c", subject.wall()));
    sleep(&subject, 10 * MINUTE).await;
    with_timeout(subject.shutdown()).await;
    let all = drain(&mut fifo);
    all.iter().filter(|e| *e == "p Started p-c").count()
}

/// B8. Upstream: two independent writers: a change that a list finds is rejected by the cache and
/// never announced (on containerd), or announced a second time (on CRI-O). Ours: one record of what
/// was announced, for all sources.
#[tokio::test(start_paused = true)]
async fn b8_two_writers() {
    assert_eq!(found_by_list(evented_1_36).await, [None, None]);
    let [died, synced] = found_by_list(ours).await;
    assert!(died.unwrap() <= 11 * SECOND, "{died:?}");
    assert!(synced.unwrap() <= MS, "{synced:?}");
    assert_eq!(announced_starts(evented_on_crio).await, 2);
    assert_eq!(announced_starts(ours).await, 1);
}

/// The stream breaks and is back after 100 ms. A container exits in between, and its event is lost.
/// Returns the time until the exit is announced.
async fn exit_during_reconnect<S: Subject>(
    start: impl FnOnce(&FakeRuntime) -> (S, Fifo),
) -> Option<Duration> {
    let node = FakeRuntime::new();
    node.run_pod("p");
    let (subject, mut fifo) = start(&node);
    wait_until_ready(&subject, &node, "p").await;
    discard(&mut fifo);
    node.delay(Op::Subscribe, 100 * MS);
    node.break_streams();
    sleep(&subject, 50 * MS).await;
    assert_eq!(node.streams(), 0);
    node.put(exited("p", "c", 1));
    let announced = || drain(&mut fifo).iter().any(|e| e == "p Died p-c");
    let took = wait_until(&subject, announced).await;
    with_timeout(subject.shutdown()).await;
    took
}

/// B11. Upstream: relists, then subscribes again: a change in between is unknown for five minutes.
/// Ours: subscribes, then lists, and lists every second until the stream has been checked.
#[tokio::test(start_paused = true)]
async fn b11_the_gap_of_a_reconnect() {
    let upstream = exit_during_reconnect(evented_1_36).await.unwrap();
    assert!(
        (299 * SECOND..301 * SECOND).contains(&upstream),
        "{upstream:?}"
    );
    let ours = exit_during_reconnect(ours).await.unwrap();
    assert!(ours <= 2 * SECOND, "{ours:?}");
}
