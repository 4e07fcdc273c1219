//! Start, validation of settings, terminal records, health, and the end of the generator.

use std::time::Duration;

use pleg::core::{EventType, Mode, ReportedState, Settings};
use pleg::{Delivery, Pleg, ReconnectSettings, TerminalRecord, WaitError};

use crate::support::{
    FakeRuntime, MINUTE, MS, Op, SECOND, container, drain, exited, is_now, pass, polling, rarely,
    sandbox, settings, soon, synced, until, waiting,
};

/// A shutdown drops every call, leaves no task, and ends subscriptions after what was announced.
#[tokio::test(start_paused = true)]
async fn shutdown_ends_all_calls_tasks_and_subscriptions() {
    for mode in [Mode::Evented, Mode::Polling] {
        let node = FakeRuntime::new();
        node.run_pod("p");
        let mut builder = Pleg::builder(node.clone()).settings(settings(|s| {
            s.mode = mode;
            s.probe_period = SECOND;
        }));
        let mut subscription = builder.subscribe();
        let mut fifo = builder.upstream_fifo();
        let pleg = builder.spawn().unwrap();
        soon(pleg.wait_until_synced()).await.unwrap();
        for op in [Op::List, Op::Version, Op::pod("p")] {
            node.hang(op);
        }
        let now = pleg.now();
        let waits = waiting(&pleg, "p", now, MINUTE).await;
        pass(&pleg, 2 * SECOND).await;
        assert!(node.in_flight() >= 3, "a list, a probe, an inspection");
        let at = pleg.now();
        soon(pleg.shutdown()).await;
        assert!(is_now(&pleg, Some(at)));
        assert!(node.is_released(), "{mode:?}: {} calls", node.in_flight());
        assert_eq!(soon(waits).await.unwrap(), Err(WaitError::Closed));
        assert_eq!(drain(&mut subscription).len(), 2);
        assert_eq!(soon(subscription.next()).await, None);
        assert!(fifo.try_next().is_some());
        assert!(fifo.try_next().is_some());
        assert_eq!(soon(fifo.next()).await, None);
        // A second shutdown through another handle returns; a subscription made after the end has
        // ended.
        soon(pleg.clone().shutdown()).await;
        assert_eq!(soon(pleg.subscribe().next()).await, None);
    }
}

/// The same on several threads, with a call that takes a while to drop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_waits_for_dropped_calls() {
    let node = FakeRuntime::new();
    node.run_pod("p");
    let pleg = Pleg::builder(node.clone()).spawn().unwrap();
    pleg.wait_until_synced().await.unwrap();
    // Lists are blocked, too: otherwise one in flight might answer first.
    node.hang(Op::List);
    node.hang(Op::pod("p"));
    let (pleg_of_task, now) = (pleg.clone(), pleg.now());
    let waits =
        tokio::spawn(async move { pleg_of_task.newer_than(&"p".into(), now, MINUTE).await });
    until(&pleg, || node.in_flight() > 0).await;
    node.delay_drop(100 * MS);
    pleg.shutdown().await;
    assert_eq!(node.in_flight(), 0);
    assert_eq!(waits.await.unwrap(), Err(WaitError::Closed));
    assert_eq!(pleg.health().ready(), Err(pleg::NotReady::Closed));
}

/// Dropping the last handle stops the generator.
#[tokio::test(start_paused = true)]
async fn dropping_the_last_handle_ends_the_generator() {
    for mode in [Mode::Evented, Mode::Polling] {
        let node = FakeRuntime::new();
        node.run_pod("p");
        let pleg = synced(&node, settings(|s| s.mode = mode)).await;
        let mut subscription = pleg.subscribe();
        let health = pleg.health();
        let another = pleg.clone();
        drop(pleg);
        pass(&another, 10 * SECOND).await;
        assert_eq!(another.health().ready(), Ok(()), "one handle is left");
        node.hang(Op::List);
        pass(&another, MINUTE).await;
        let clock = another.clock();
        drop(another);
        assert_eq!(soon(subscription.next()).await, Some(Delivery::Synced));
        assert_eq!(soon(subscription.next()).await, None);
        while !node.is_released() {
            clock.sleep_until(clock.now().after(MS)).await;
        }
        clock.sleep_until(clock.now().after(MINUTE)).await;
        assert!(health.ready().is_err(), "{mode:?}");
    }
}

/// A watcher of the health is woken by changes and by the end.
#[tokio::test(start_paused = true)]
async fn health_is_watched() {
    let node = FakeRuntime::new();
    let pleg = synced(&node, rarely()).await;
    let mut health = pleg.health();
    // A new watch does not report what was written before it.
    soon(health.changed()).await;
    for _ in 0..10 {
        let listed = health.current().last_list;
        soon(pleg.relist_now()).await.unwrap();
        while health.current().last_list == listed {
            assert!(soon(health.changed()).await);
        }
    }
    pleg.shutdown().await;
    while soon(health.changed()).await {}
    assert_eq!(health.current().list_error, None);
}

/// The generator waits for its runtime for ever; nothing answers at first.
#[tokio::test(start_paused = true)]
async fn generator_waits_for_a_runtime_that_starts_later() {
    let node = FakeRuntime::new();
    node.run_pod("p");
    node.fail(Op::List, pleg::core::CallErrorKind::Unavailable);
    node.fail(Op::Subscribe, pleg::core::CallErrorKind::Unavailable);
    let pleg = Pleg::builder(node.clone()).spawn().unwrap();
    pass(&pleg, 15 * MINUTE).await;
    let why = pleg.health().ready().unwrap_err();
    assert_eq!(why.to_string(), "pleg has yet to be successful");
    node.succeed(&Op::List);
    node.succeed(&Op::Subscribe);
    soon(pleg.wait_until_synced()).await.unwrap();
    assert_eq!(pleg.health().ready(), Ok(()));
    until(&pleg, || node.streams() == 1).await;
}

/// Synced: a complete list was read, and each pod in it was inspected or failed once.
#[tokio::test(start_paused = true)]
async fn synced_after_the_first_list_and_its_inspections() {
    let node = FakeRuntime::new();
    ["p", "q"].iter().for_each(|uid| node.run_pod(uid));
    node.put(exited("q", "old", 4));
    node.hang(Op::List);
    node.hang(Op::pod("q"));
    let pleg = Pleg::builder(node.clone())
        .mode(Mode::Polling)
        .spawn()
        .unwrap();
    let synced = {
        let pleg = pleg.clone();
        tokio::spawn(async move { pleg.wait_until_synced().await })
    };
    pass(&pleg, SECOND).await;
    assert!(!synced.is_finished(), "nothing was listed");
    node.release(&Op::List);
    until(&pleg, || pleg.snapshot().len() == 1).await;
    pass(&pleg, SECOND).await;
    assert!(!synced.is_finished(), "q is not read");
    node.release(&Op::pod("q"));
    assert_eq!(soon(synced).await.unwrap(), Ok(()));
    let status = pleg.get(&"q".into()).status;
    assert_eq!(status.container("old").unwrap().details.exit_code, Some(4));
    assert_eq!(soon(pleg.wait_until_synced()).await, Ok(()), "and stays so");

    // One pod that cannot be inspected delays it by at most its deadline.
    let node = FakeRuntime::new();
    node.run_pod("p");
    node.hang(Op::pod("p"));
    let pleg = Pleg::builder(node.clone())
        .mode(Mode::Polling)
        .spawn()
        .unwrap();
    let began = pleg.now();
    soon(pleg.wait_until_synced()).await.unwrap();
    assert_eq!(pleg.now().since(began).as_secs(), 5);

    let node = FakeRuntime::new();
    node.hang(Op::List);
    let pleg = Pleg::builder(node).spawn().unwrap();
    let synced = {
        let pleg = pleg.clone();
        tokio::spawn(async move { pleg.wait_until_synced().await })
    };
    pass(&pleg, SECOND).await;
    soon(pleg.shutdown()).await;
    assert_eq!(soon(synced).await.unwrap(), Err(WaitError::Closed));
}

/// A terminal record is kept after the removal, until it is acknowledged or its pod is gone for ten
/// minutes.
#[tokio::test(start_paused = true)]
async fn terminal_records_are_kept_until_acknowledged() {
    let node = FakeRuntime::new();
    let pleg = synced(&node, Settings::default()).await;
    let worker = pleg.register_consumer("worker").await.unwrap();
    let uid = "p".into();
    // An event is new if it is younger than its stream.
    pass(&pleg, MINUTE).await;
    node.put_and_emit(
        sandbox("p", "s", ReportedState::Running),
        EventType::Started,
    );
    // Five ends of one name: the last three are kept.
    for n in 0..5 {
        let named = |mut report: pleg::core::Report| {
            report.identity.name = Some("app".into());
            report
        };
        let name = format!("c{n}");
        node.put_and_emit(
            named(container("p", &name, ReportedState::Running)),
            EventType::Started,
        );
        node.put_and_emit(named(exited("p", &name, n)), EventType::Stopped);
        node.remove_and_emit(&format!("p-{name}"));
    }
    until(&pleg, || {
        pleg.terminal_records(&uid)
            .last()
            .is_some_and(|r| r.exit_code == Some(4))
    })
    .await;
    let codes = || {
        let records = pleg.terminal_records(&uid);
        assert!(records.iter().all(|r| &*r.name == "app" && r.removed));
        records
            .iter()
            .map(|r| r.exit_code.unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(codes(), [2, 3, 4]);
    assert!(
        pleg.get(&uid).status.containers.is_empty(),
        "beside the status, never in it"
    );

    let of_c3 = pleg.terminal_records(&uid)[1].clone();
    worker.acknowledge(&of_c3).await;
    let unknown = TerminalRecord::new("nobody", "app", pleg.now());
    worker.acknowledge(&unknown).await;
    until(&pleg, || codes() == [2, 4]).await;
    node.put(sandbox("p", "s", ReportedState::Exited));
    node.remove_and_emit("p-s");
    until(&pleg, || pleg.get(&uid).status.is_nothing()).await;
    assert_eq!(
        pleg.terminal_records(&uid).len(),
        3,
        "and the sandbox's own"
    );
    pass(&pleg, 10 * MINUTE - SECOND).await;
    assert_eq!(pleg.terminal_records(&uid).len(), 3);
    pass(&pleg, 2 * SECOND).await;
    assert!(pleg.terminal_records(&uid).is_empty());
}

/// Invalid settings are rejected with the setting, its value and the rule.
#[tokio::test(start_paused = true)]
async fn invalid_settings_are_refused() {
    let node = FakeRuntime::new();
    let refusal = |spoil: fn(&mut Settings)| {
        let builder = Pleg::builder(node.clone()).settings(settings(spoil));
        builder.spawn().map(|_| ()).unwrap_err().to_string()
    };
    let why = refusal(|s| s.relist_period = Duration::ZERO);
    assert_eq!(why, "relist_period is 0ns: it must be at least 10ms");
    let why = refusal(|s| s.relist_period_max = 10 * MS);
    assert_eq!(
        why,
        "relist_period_max is 10ms: it must not be shorter than relist_period"
    );
    let why = refusal(|s| s.unready_after = MINUTE);
    assert!(why.starts_with("unready_after is 60s: it must be longer than relist_period_max"));
    assert_eq!(
        refusal(|s| s.inspections = 0),
        "inspections is 0: it must be at least 1"
    );

    let reconnect = ReconnectSettings {
        jitter_percent: 101,
        ..ReconnectSettings::default()
    };
    let refused = Pleg::builder(node.clone()).reconnect(reconnect).spawn();
    assert_eq!(
        refused.unwrap_err().to_string(),
        "jitter_percent is 101: it must be at most 100"
    );
    let never = settings(|s| s.probe_period = Duration::ZERO);
    let refused = Pleg::builder(node.clone()).settings(never).spawn();
    assert_eq!(
        refused.unwrap_err().to_string(),
        "probe_period is 0ns: it must be at least 10ms"
    );
    assert_eq!(node.count(&Op::List), 0, "nothing was started");
    assert!(node.is_released());
}

/// Polling mode never subscribes.
#[tokio::test(start_paused = true)]
async fn polling_never_subscribes() {
    let node = FakeRuntime::new();
    node.panic(Op::Subscribe);
    node.run_pod("p");
    let pleg = synced(&node, polling()).await;
    let mut subscription = pleg.subscribe();
    for _ in 0..10 {
        pass(&pleg, 10 * SECOND).await;
        assert_eq!(pleg.health().ready(), Ok(()));
        assert!(pleg.health().degraded().is_empty());
    }
    let period = pleg.health().current().period;
    assert_eq!(period, SECOND, "and lists every second, however calm it is");
    assert!(node.count(&Op::List) >= 90);
    node.put(exited("p", "c", 2));
    pass(&pleg, SECOND).await;
    assert_eq!(drain(&mut subscription), ["p Died p-c"]);
    assert_eq!(node.count(&Op::Subscribe), 0);
    let statuses = node.count(&Op::status("p-c"));
    assert!(
        (2..=10).contains(&statuses),
        "start, change, probes: {statuses}"
    );
    drop(synced(&FakeRuntime::new(), rarely()).await);
}
