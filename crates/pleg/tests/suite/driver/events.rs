//! Announcements, end to end: a change in the runtime reaches the subscribers, and the cache shows
//! it already.

use pleg::core::{
    ContainerState, EventType, Kind, LifecycleType, PodLifecycleEvent, Report, ReportedState,
    SandboxState, Settings, Source,
};
use pleg::{Delivery, Pleg};

use crate::support::{
    FakeRuntime, MS, Op, container, drain, exited, in_short, next, pass, sandbox, soon, synced,
};

use EventType::{Created, Deleted, Started, Stopped};

/// A short form of the subject's state in the cache.
fn cached(pleg: &Pleg, event: &PodLifecycleEvent) -> &'static str {
    let status = pleg.get(&event.uid).status;
    let subject = event.subject.as_ref().expect("of an id");
    let sandbox = status.sandboxes.iter().find(|s| s.id == subject.id);
    let container = status.containers.iter().find(|c| c.id == subject.id);
    match (sandbox.map(|s| s.state), container.map(|c| c.state)) {
        (Some(SandboxState::Ready), _) | (_, Some(ContainerState::Running)) => "running",
        (Some(SandboxState::NotReady), _) | (_, Some(ContainerState::Exited)) => "ended",
        (_, Some(ContainerState::Created)) => "created",
        (None, None) => "gone",
        _ => "unknown",
    }
}

/// The events of one container: each is announced in order, after the cache was written. An end is
/// announced at once, from the event; for any other event the pod is read 250 ms later.
#[tokio::test(start_paused = true)]
async fn events_of_a_container_are_announced_in_order() {
    let node = FakeRuntime::new();
    let pleg = synced(&node, Settings::default()).await;
    let mut subscription = pleg.subscribe();
    let began = pleg.now();
    type Step = (
        Option<Report>,
        EventType,
        &'static str,
        &'static str,
        &'static str,
    );
    let life: [Step; 10] = [
        (
            Some(sandbox("p", "s", ReportedState::Running)),
            Created,
            "p-s",
            "p Started p-s",
            "running",
        ),
        (
            Some(sandbox("p", "s", ReportedState::Running)),
            Started,
            "p-s",
            "",
            "",
        ),
        (
            Some(container("p", "c", ReportedState::Created)),
            Created,
            "p-c",
            "p Changed p-c",
            "created",
        ),
        (
            Some(container("p", "c", ReportedState::Running)),
            Started,
            "p-c",
            "p Started p-c",
            "running",
        ),
        (
            Some(exited("p", "c", 3)),
            Stopped,
            "p-c",
            "p Died p-c",
            "ended",
        ),
        (Some(exited("p", "c", 3)), Stopped, "p-c", "", ""),
        (None, Deleted, "p-c", "p Removed p-c", "gone"),
        (
            Some(sandbox("p", "s", ReportedState::Exited)),
            Stopped,
            "p-s",
            "p Died p-s",
            "ended",
        ),
        (None, Deleted, "p-s", "p Removed p-s", "gone"),
        (None, Deleted, "p-s", "", ""),
    ];
    for (report, event, id, announced, shown) in life {
        match report {
            Some(report) => node.put_and_emit(report, event),
            None if announced.is_empty() => node.emit(event, id),
            None => node.remove_and_emit(id),
        }
        if announced.is_empty() {
            pass(&pleg, MS).await;
            assert_eq!(
                drain(&mut subscription),
                [""; 0],
                "nothing is announced twice"
            );
            continue;
        }
        let got = next(&mut subscription).await;
        assert_eq!(in_short(&got), announced);
        assert_eq!(cached(&pleg, &got), shown, "{announced}");
        let is_end = got.event == LifecycleType::ContainerDied;
        assert_eq!(got.source == Source::Stream, is_end, "{announced}");
        assert_eq!((&*got.namespace, &*got.pod_name), ("ns", "p"));
        let subject = got.subject.expect("of an id");
        let is_container = subject.kind == Kind::Container;
        assert_eq!(is_container, id == "p-c");
        assert_eq!(&*subject.name, if is_container { "c" } else { "" });
        if is_end && is_container {
            assert_eq!((subject.exit_code, &*subject.reason), (Some(3), "Error"));
        }
    }
    let took = pleg.now().since(began);
    assert!(took < 6 * 260 * MS, "an end waits for nothing: {took:?}");
    assert!(node.count(&Op::pod("p")) <= 6, "one read an event");
    assert!(pleg.get(&"p".into()).status.is_nothing());
}

/// What exists at the start is announced first, from lists, after its inspection.
#[tokio::test(start_paused = true)]
async fn ids_that_exist_at_the_start_are_announced_first() {
    let node = FakeRuntime::new();
    node.run_pod("p");
    node.put(exited("p", "old", 7));
    let mut builder = Pleg::builder(node.clone());
    let mut subscription = builder.subscribe();
    let pleg = builder.spawn().unwrap();
    let mut announced = Vec::new();
    for _ in 0..3 {
        let event = next(&mut subscription).await;
        assert_eq!(event.source, Source::Relist);
        assert_ne!(cached(&pleg, &event), "gone");
        let code = event.subject.as_ref().and_then(|s| s.exit_code);
        announced.push((in_short(&event), code));
    }
    announced.sort();
    let expected = [
        ("p Died p-old", Some(7)),
        ("p Started p-c", None),
        ("p Started p-s", None),
    ];
    assert_eq!(
        announced,
        expected.map(|(what, code)| (what.to_owned(), code))
    );
    soon(pleg.wait_until_synced()).await.unwrap();
    assert!(drain(&mut subscription).is_empty());
}

/// Several subscribers each get every event; a later one gets the later events.
#[tokio::test(start_paused = true)]
async fn every_subscriber_gets_every_event() {
    let node = FakeRuntime::new();
    let pleg = synced(&node, Settings::default()).await;
    let mut early = [pleg.subscribe(), pleg.subscribe()];
    node.put_and_emit(sandbox("p", "s", ReportedState::Running), Started);
    for subscription in &mut early {
        assert_eq!(in_short(&next(subscription).await), "p Started p-s");
    }
    let mut late = pleg.subscribe();
    node.put_and_emit(sandbox("p", "s", ReportedState::Exited), Stopped);
    for subscription in early.iter_mut().chain([&mut late]) {
        assert_eq!(in_short(&next(subscription).await), "p Died p-s");
        assert!(drain(subscription).is_empty());
    }
}

/// The reason of an exit may arrive late (containerd before 2.3 sends the event before it learns of
/// the OOM kill): the status is read once, 2 s later, and the change is announced.
#[tokio::test(start_paused = true)]
async fn late_exit_reason_is_read_once() {
    let node = FakeRuntime::new();
    node.run_pod("p");
    let pleg = synced(&node, Settings::default()).await;
    let mut subscription = pleg.subscribe();
    node.put_and_emit(exited("p", "c", 137), Stopped);
    assert_eq!(in_short(&next(&mut subscription).await), "p Died p-c");
    let mut killed = exited("p", "c", 137);
    if let pleg::core::Details::Container(details) = &mut killed.details {
        std::sync::Arc::make_mut(details).reason = "OOMKilled".into();
    }
    node.put(killed);
    let died = pleg.now();
    let sync = next(&mut subscription).await;
    assert_eq!(in_short(&sync), "p Changed p-c");
    assert_eq!(pleg.now().since(died).as_secs(), 2);
    let status = pleg.get(&"p".into()).status;
    assert_eq!(&*status.container("c").unwrap().details.reason, "OOMKilled");
}

/// A subscriber that takes nothing while a container name ends more often than the bound gets
/// `Lagged` first, then the last three ends. A subscriber that keeps up gets no `Lagged`.
#[tokio::test(start_paused = true)]
async fn subscriber_that_lags_gets_every_end() {
    const LIVES: u64 = 1500;
    let node = FakeRuntime::new();
    let pleg = synced(&node, Settings::default()).await;
    let (mut lags, mut keeps_up) = (pleg.subscribe(), pleg.subscribe());
    node.put_and_emit(sandbox("p", "s", ReportedState::Running), Started);
    next(&mut keeps_up).await;
    for n in 0..LIVES {
        let mut ended = exited("p", &format!("c{n}"), 0);
        ended.identity.name = Some("app".into());
        node.put_and_emit(ended, Stopped);
        node.remove_and_emit(&format!("p-c{n}"));
        for what in ["Started", "Died", "Removed"] {
            assert_eq!(
                in_short(&next(&mut keeps_up).await),
                format!("p {what} p-c{n}")
            );
        }
    }
    assert_eq!(lags.try_next(), Some(Delivery::Synced));
    let got = drain(&mut lags);
    assert!((got.len() as u64) < 3 * LIVES, "Started is overtaken");
    for n in 0..LIVES {
        for what in ["Died", "Removed"] {
            assert!(got.contains(&format!("p {what} p-c{n}")), "{what} p-c{n}");
        }
    }
}
