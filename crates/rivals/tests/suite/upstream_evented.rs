//! Upstream's scenarios of its evented PLEGs, E1 to E7 (evented_test.go), on the ports, and that
//! each of them leaves nothing behind. E2 is of a metric that the port does not have.
use crate::support::{
    MINUTE, MS, Node, Op, SECOND, container, drain, evented_1_36, exited, generic, hint, ours,
    pass, pod, sandbox, settled, soon, until,
};
use pleg_core::{Details, EventType, RuntimeEvent, SandboxDetails, Shown};
use rivals::{Fifo, Hint, HintSettings, Subject};

/// E1, TestHealthyEventedPLEG: healthy until the channel is full.
#[tokio::test(start_paused = true)]
async fn e1_healthy() {
    let node = Node::new();
    node.run_pod("p");
    let (evented, mut fifo) = evented_1_36(&node);
    settled(&evented, &node, "p").await;
    assert_eq!(drain(&mut fifo).len(), 2);
    let event = node.event(EventType::Started, "p-c", evented.wall());
    for n in 1..=1000 {
        assert_eq!(evented.healthy(), Ok(()), "{n}");
        node.tell(&event);
        pass(&evented, MS).await;
    }
    let text = evented.healthy().unwrap_err().to_string();
    assert!(text.contains("full"), "{text}");
    assert!(fifo.try_next().is_some());
    assert_eq!(evented.healthy(), Ok(()));
    soon(evented.shutdown()).await;
}

/// E3, TestEventedPLEG_getPodIPs: new addresses; none while a sandbox is ready; none if none were
/// known; the last ones once no sandbox is ready.
#[tokio::test(start_paused = true)]
async fn e3_addresses() {
    let with = |ips: &[&str], shown| {
        let details = SandboxDetails {
            ips: ips.iter().map(|ip| (*ip).into()).collect(),
            ..SandboxDetails::default()
        };
        let mut sandbox = sandbox("p", "s", shown);
        sandbox.details = Details::from(details);
        sandbox
    };
    let node = Node::new();
    node.run_sandbox("p");
    let (evented, _fifo) = evented_1_36(&node);
    settled(&evented, &node, "p").await;
    for (ips, shown, expected) in [
        (&[][..], Shown::Exited, &[][..]),
        (&["10.0.0.1"], Shown::Running, &["10.0.0.1"]),
        (&[], Shown::Running, &[]),
        (&["10.0.0.2"], Shown::Running, &["10.0.0.2"]),
        (&[], Shown::Exited, &["10.0.0.2"]),
    ] {
        node.put(with(ips, shown));
        node.tell(&node.event(EventType::Stopped, "p-s", evented.wall()));
        pass(&evented, MS).await;
        let ips = evented.get(&"p".into()).status.ips.clone();
        let ips: Vec<&str> = ips.iter().map(|ip| &**ip).collect();
        assert_eq!(ips, expected);
    }
    soon(evented.shutdown()).await;
}

/// The types of classic events, and that the cache is written before they are sent.
#[tokio::test(start_paused = true)]
async fn what_classic_events_announce() {
    let node = Node::new();
    node.run_sandbox("p");
    let (evented, mut fifo) = evented_1_36(&node);
    settled(&evented, &node, "p").await;
    assert_eq!(drain(&mut fifo), ["p Started p-s"]);
    for (event, shown, announced) in [
        (EventType::Created, Shown::Created, &[][..]),
        (EventType::Started, Shown::Running, &["p Started p-c"]),
        (EventType::Stopped, Shown::Exited, &["p Died p-c"]),
        (
            EventType::Deleted,
            Shown::Exited,
            &["p Died p-c", "p Removed p-c"],
        ),
        (EventType::Other(9), Shown::Exited, &[]),
    ] {
        node.put(container("p", "c", shown));
        node.tell(&node.event(event, "p-c", evented.wall()));
        pass(&evented, MS).await;
        assert_eq!(crate::support::cached(&evented, "p", "c"), Some(shown));
        assert_eq!(drain(&mut fifo), announced, "{event:?}");
    }
    soon(evented.shutdown()).await;
}

/// E4 and E5, TestEventedPLEGRetryExhaustion… and …RetriesWhenStreamClosesWithoutError: however
/// the stream ends, it is asked for so often in all, at once, and no more.
#[tokio::test(start_paused = true)]
async fn e4_e5_the_hint_gives_up() {
    for attempts in [1, 2] {
        let node = Node::new();
        node.fail(Op::Subscribe);
        let settings = HintSettings {
            attempts,
            ..HintSettings::default()
        };
        let (hint, _fifo) = Hint::start(node.clone(), &settings);
        pass(&hint, MS).await;
        assert_eq!(hint.calls(), u64::from(attempts));
        pass(&hint, MINUTE).await;
        assert_eq!(hint.calls(), u64::from(attempts));
        assert_eq!(hint.healthy(), Ok(()), "the lists go on");
        soon(hint.shutdown()).await;
    }
}

/// E7, TestProcessCRIEventsRequestsRelistOnlyForStoppedEvents.
#[tokio::test(start_paused = true)]
async fn e7_only_stopped_asks_for_a_relist() {
    let node = Node::new();
    node.run_pod("p");
    let (hint, _fifo) = hint(&node);
    settled(&hint, &node, "p").await;
    let bare = |event: RuntimeEvent| RuntimeEvent {
        sandbox: None,
        ..event
    };
    let without_statuses = |event: RuntimeEvent| RuntimeEvent {
        containers: vec![],
        ..event
    };
    node.put(exited("p", "c", 2));
    let of = |event| node.event(event, "p-c", hint.wall());
    for (event, relists) in [
        (of(EventType::Stopped), 1),
        (without_statuses(of(EventType::Stopped)), 1),
        (bare(of(EventType::Stopped)), 0),
        (of(EventType::Started), 0),
        (of(EventType::Deleted), 0),
    ] {
        let before = node.asked(&pod("p"));
        node.tell(&event);
        pass(&hint, MS).await;
        assert_eq!(node.asked(&pod("p")) - before, relists, "{event:?}");
    }
    assert_eq!(crate::support::cached(&hint, "p", "c"), Some(Shown::Exited));
    soon(hint.shutdown()).await;
}

/// How soon a container's end is announced of which the runtime tells.
async fn told<S: Subject>(start: impl FnOnce(&Node) -> (S, Fifo)) -> std::time::Duration {
    let node = Node::new();
    node.run_pod("p");
    let (subject, mut fifo) = start(&node);
    until(&subject, || !subject.get(&"p".into()).status.is_nothing()).await;
    pass(&subject, 500 * MS).await;
    node.put(exited("p", "c", 1));
    node.tell(&node.event(EventType::Stopped, "p-c", subject.wall()));
    let told = || drain(&mut fifo).iter().any(|e| e == "p Died p-c");
    let took = until(&subject, told).await.unwrap();
    // E6, TestEventedPLEGWatcherStopsWhenContextIsCanceled, and the rest: nothing is left.
    soon(subject.shutdown()).await;
    assert_eq!(node.streams(), 0);
    drop(subject);
    assert!(node.is_let_go());
    took
}

/// What each design is for: where an event tells of a death, all but the polling one know at once.
/// And when it is shut down (E6), nothing is left of it.
#[tokio::test(start_paused = true)]
async fn a_death_is_told_at_once() {
    assert!(told(evented_1_36).await <= MS);
    assert!(told(hint).await <= MS);
    assert!(told(ours).await <= MS);
    let polled = told(generic).await;
    assert!((400 * MS..SECOND).contains(&polled), "{polled:?}");
}

/// One that is dropped ends by itself.
#[tokio::test(start_paused = true)]
async fn a_dropped_one_ends() {
    async fn dropped<S: Subject>(start: impl FnOnce(&Node) -> (S, Fifo)) {
        let node = Node::new();
        node.run_pod("p");
        let (subject, fifo) = start(&node);
        pass(&subject, 10 * SECOND).await;
        let clock = subject.clock();
        drop((subject, fifo));
        clock.sleep_until(clock.now().after(SECOND)).await;
        assert!(node.is_let_go());
    }
    dropped(generic).await;
    dropped(evented_1_36).await;
    dropped(hint).await;
    dropped(ours).await;
}
