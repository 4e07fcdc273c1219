//! Upstream's tests of its evented PLEGs, E1 to E7 (evented_test.go), on the ports, and tests that
//! each port ends all of its tasks. E2 tests a metric that the port does not have.
use crate::support::{
    DOWN, FakeRuntime, MINUTE, MS, Op, SECOND, container, drain, event_at, evented_1_36, exited,
    generic, hint, ours, sandbox, sleep, wait_until, wait_until_ready, with_ips, with_timeout,
    without_sandbox,
};
use pleg_core::{EventType, ReportedState, RuntimeEvent};
use rivals::{Fifo, Hint, Subject};

/// E1, TestHealthyEventedPLEG: healthy until the channel is full.
#[tokio::test(start_paused = true)]
async fn e1_healthy() {
    let node = FakeRuntime::new();
    node.run_pod("p");
    let (evented, mut fifo) = evented_1_36(&node);
    wait_until_ready(&evented, &node, "p").await;
    assert_eq!(drain(&mut fifo).len(), 2);
    let event = event_at(&node, EventType::Started, "p-c", evented.wall());
    for n in 1..=1000 {
        assert_eq!(evented.healthy(), Ok(()), "{n}");
        node.send(&event);
        sleep(&evented, MS).await;
    }
    let text = evented.healthy().unwrap_err().to_string();
    assert!(text.contains("full"), "{text}");
    assert!(fifo.try_next().is_some());
    assert_eq!(evented.healthy(), Ok(()));
    with_timeout(evented.shutdown()).await;
}

/// E3, TestEventedPLEG_getPodIPs: the new addresses; no addresses while a sandbox is ready and has
/// none, or if none were known; the last addresses if no sandbox is ready.
#[tokio::test(start_paused = true)]
async fn e3_addresses() {
    let with = |ips: &[&str], shown| with_ips(sandbox("p", "s", shown), ips);
    let node = FakeRuntime::new();
    node.put(sandbox("p", "s", ReportedState::Running));
    let (evented, _fifo) = evented_1_36(&node);
    wait_until_ready(&evented, &node, "p").await;
    for (ips, shown, expected) in [
        (&[][..], ReportedState::Exited, &[][..]),
        (&["10.0.0.1"], ReportedState::Running, &["10.0.0.1"]),
        (&[], ReportedState::Running, &[]),
        (&["10.0.0.2"], ReportedState::Running, &["10.0.0.2"]),
        (&[], ReportedState::Exited, &["10.0.0.2"]),
    ] {
        node.put(with(ips, shown));
        node.send(&event_at(&node, EventType::Stopped, "p-s", evented.wall()));
        sleep(&evented, MS).await;
        let ips = evented.get(&"p".into()).status.ips.clone();
        let ips: Vec<&str> = ips.iter().map(|ip| &**ip).collect();
        assert_eq!(ips, expected);
    }
    with_timeout(evented.shutdown()).await;
}

/// The cache is written before the lifecycle events are sent.
#[tokio::test(start_paused = true)]
async fn classic_event_types_are_announced() {
    let node = FakeRuntime::new();
    node.put(sandbox("p", "s", ReportedState::Running));
    let (evented, mut fifo) = evented_1_36(&node);
    wait_until_ready(&evented, &node, "p").await;
    assert_eq!(drain(&mut fifo), ["p Started p-s"]);
    for (event, shown, announced) in [
        (EventType::Created, ReportedState::Created, &[][..]),
        (
            EventType::Started,
            ReportedState::Running,
            &["p Started p-c"],
        ),
        (EventType::Stopped, ReportedState::Exited, &["p Died p-c"]),
        (
            EventType::Deleted,
            ReportedState::Exited,
            &["p Died p-c", "p Removed p-c"],
        ),
        (EventType::Other(9), ReportedState::Exited, &[]),
    ] {
        node.put(container("p", "c", shown));
        node.send(&event_at(&node, event, "p-c", evented.wall()));
        sleep(&evented, MS).await;
        assert_eq!(crate::support::cached(&evented, "p", "c"), Some(shown));
        assert_eq!(drain(&mut fifo), announced, "{event:?}");
    }
    with_timeout(evented.shutdown()).await;
}

/// E4 and E5, TestEventedPLEGRetryExhaustion… and …RetriesWhenStreamClosesWithoutError: the
/// generator subscribes a fixed number of times in total, without pauses, and then gives up.
#[tokio::test(start_paused = true)]
async fn e4_e5_hint_gives_up_after_all_attempts() {
    for attempts in [1, 2] {
        let node = FakeRuntime::new();
        node.fail(Op::Subscribe, DOWN);
        let (hint, _fifo) = Hint::with_attempts(node.clone(), attempts);
        sleep(&hint, MS).await;
        assert_eq!(hint.subscribes(), u64::from(attempts));
        sleep(&hint, MINUTE).await;
        assert_eq!(hint.subscribes(), u64::from(attempts));
        assert_eq!(hint.healthy(), Ok(()), "lists continue");
        with_timeout(hint.shutdown()).await;
    }
}

/// E7, TestProcessCRIEventsRequestsRelistOnlyForStoppedEvents.
#[tokio::test(start_paused = true)]
async fn e7_only_stopped_requests_relist() {
    let node = FakeRuntime::new();
    node.run_pod("p");
    let (hint, _fifo) = hint(&node);
    wait_until_ready(&hint, &node, "p").await;
    let without_containers = |mut event: RuntimeEvent| {
        event.containers.clear();
        event
    };
    node.put(exited("p", "c", 2));
    let of = |event| event_at(&node, event, "p-c", hint.wall());
    for (event, relists) in [
        (of(EventType::Stopped), 1),
        (without_containers(of(EventType::Stopped)), 1),
        (without_sandbox(of(EventType::Stopped)), 0),
        (of(EventType::Started), 0),
        (of(EventType::Deleted), 0),
    ] {
        let before = node.count(&Op::pod("p"));
        node.send(&event);
        sleep(&hint, MS).await;
        assert_eq!(node.count(&Op::pod("p")) - before, relists, "{event:?}");
    }
    assert_eq!(
        crate::support::cached(&hint, "p", "c"),
        Some(ReportedState::Exited)
    );
    with_timeout(hint.shutdown()).await;
}

/// Returns the time until the exit of a container, with a STOPPED event, is announced.
async fn exit_announced_after<S: Subject>(
    start: impl FnOnce(&FakeRuntime) -> (S, Fifo),
) -> std::time::Duration {
    let node = FakeRuntime::new();
    node.run_pod("p");
    let (subject, mut fifo) = start(&node);
    wait_until(&subject, || !subject.get(&"p".into()).status.is_empty()).await;
    sleep(&subject, 500 * MS).await;
    node.put(exited("p", "c", 1));
    node.send(&event_at(&node, EventType::Stopped, "p-c", subject.wall()));
    let announced = || drain(&mut fifo).iter().any(|e| e == "p Died p-c");
    let took = wait_until(&subject, announced).await.unwrap();
    // E6, TestEventedPLEGWatcherStopsWhenContextIsCanceled, and all other tasks: none is left.
    with_timeout(subject.shutdown()).await;
    assert_eq!(node.streams(), 0);
    drop(subject);
    assert!(node.is_released());
    took
}

/// All designs except for the generic one announce it at once. After a shutdown, no task is left
/// (E6).
#[tokio::test(start_paused = true)]
async fn stopped_event_is_announced_at_once() {
    assert!(exit_announced_after(evented_1_36).await <= 3 * MS);
    assert!(exit_announced_after(hint).await <= 3 * MS);
    assert!(exit_announced_after(ours).await <= 3 * MS);
    let polled = exit_announced_after(generic).await;
    assert!((400 * MS..SECOND).contains(&polled), "{polled:?}");
}

#[tokio::test(start_paused = true)]
async fn dropped_generator_ends_its_tasks() {
    async fn drop_generator<S: Subject>(start: impl FnOnce(&FakeRuntime) -> (S, Fifo)) {
        let node = FakeRuntime::new();
        node.run_pod("p");
        let (subject, fifo) = start(&node);
        sleep(&subject, 10 * SECOND).await;
        let clock = subject.clock();
        drop((subject, fifo));
        clock.sleep_until(clock.now().after(SECOND)).await;
        assert!(node.is_released());
    }
    drop_generator(generic).await;
    drop_generator(evented_1_36).await;
    drop_generator(hint).await;
    drop_generator(ours).await;
}
