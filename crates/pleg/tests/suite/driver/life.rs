//! Tests how the generator checks its settings, starts, reports health and ends.

use std::time::Duration;

use pleg::core::{Mode, Settings};
use pleg::{Delivery, Pleg, ReconnectSettings, WaitError};
use tokio::task::JoinHandle;

use crate::support::{
    FakeRuntime, MINUTE, MS, Op, SECOND, drain, exit_code, exited, is_now, pass, polling, rarely,
    settings, soon, started, synced, until, waiting,
};

/// A shutdown drops every call, leaves no task, and ends subscriptions after their last announcement.
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
        let waits = waiting(&pleg, "p", pleg.now(), MINUTE).await;
        pass(&pleg, 2 * SECOND).await;
        assert!(node.in_flight() >= 3, "a list, a probe, an inspection");
        let at = pleg.now();
        soon(pleg.shutdown()).await;
        assert!(is_now(&pleg, Some(at)));
        assert!(node.is_released(), "{mode:?}: {} calls", node.in_flight());
        assert_eq!(soon(waits).await.unwrap(), Err(WaitError::Closed));
        assert_eq!(drain(&mut subscription).len(), 2);
        assert_eq!(soon(subscription.next()).await, None);
        assert_eq!(std::iter::from_fn(|| fifo.try_next()).count(), 2);
        assert_eq!(soon(fifo.next()).await, None);
        // A second shutdown through another handle returns; a subscription made after the shutdown ends
        // at once.
        soon(pleg.clone().shutdown()).await;
        assert_eq!(soon(pleg.subscribe().next()).await, None);
    }
}

/// The generator runs on two threads of a tokio runtime, and the runtime's calls take 100 ms to drop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_waits_until_every_dropped_call_has_ended() {
    let node = FakeRuntime::new();
    node.run_pod("p");
    let pleg = Pleg::builder(node.clone()).spawn().unwrap();
    pleg.wait_until_synced().await.unwrap();
    // Lists hang like the reads of `p`: otherwise a list in flight might answer `waits` before the shutdown.
    node.hang(Op::List);
    node.hang(Op::pod("p"));
    let waits = waiting(&pleg, "p", pleg.now(), MINUTE).await;
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

#[tokio::test(start_paused = true)]
async fn health_watcher_wakes_on_changes_and_when_the_generator_ends() {
    let node = FakeRuntime::new();
    let pleg = synced(&node, rarely()).await;
    let mut health = pleg.health();
    // A new `HealthWatch` does not report changes from before its creation.
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

/// The generator waits for a runtime that answers nothing at first.
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

fn synced_in_a_task(pleg: &Pleg) -> JoinHandle<Result<(), WaitError>> {
    let pleg = pleg.clone();
    tokio::spawn(async move { pleg.wait_until_synced().await })
}

/// The generator is synced when a complete list was read, and each pod in it was read or its read failed once.
#[tokio::test(start_paused = true)]
async fn wait_until_synced_completes_after_first_list_and_pod_reads() {
    let node = FakeRuntime::new();
    ["p", "q"].iter().for_each(|uid| node.run_pod(uid));
    node.put(exited("q", "old", 4));
    node.hang(Op::List);
    node.hang(Op::pod("q"));
    let pleg = started(&node, polling());
    let synced = synced_in_a_task(&pleg);
    pass(&pleg, SECOND).await;
    assert!(!synced.is_finished(), "nothing was listed");
    node.release(&Op::List);
    until(&pleg, || pleg.snapshot().len() == 1).await;
    pass(&pleg, SECOND).await;
    assert!(!synced.is_finished(), "q is not read");
    node.release(&Op::pod("q"));
    assert_eq!(soon(synced).await.unwrap(), Ok(()));
    assert_eq!(exit_code(&pleg, "q", "old"), Some(4));
    assert_eq!(soon(pleg.wait_until_synced()).await, Ok(()), "and stays so");

    // A pod that cannot be read delays `Synced` by at most the read's deadline.
    let node = FakeRuntime::new();
    node.run_pod("p");
    node.hang(Op::pod("p"));
    let pleg = started(&node, polling());
    let began = pleg.now();
    soon(pleg.wait_until_synced()).await.unwrap();
    assert_eq!(pleg.now().since(began).as_secs(), 5);

    let node = FakeRuntime::new();
    node.hang(Op::List);
    let pleg = started(&node, polling());
    let synced = synced_in_a_task(&pleg);
    pass(&pleg, SECOND).await;
    soon(pleg.shutdown()).await;
    assert_eq!(soon(synced).await.unwrap(), Err(WaitError::Closed));
}

/// The error of `spawn` names the setting, its value and the rule. No task is started.
#[tokio::test(start_paused = true)]
async fn builder_refuses_invalid_settings_and_names_them() {
    let node = FakeRuntime::new();
    type Spoil = fn(&mut Settings);
    let spoiled: [(Spoil, &str); 4] = [
        (
            |s| s.relist_period = Duration::ZERO,
            "relist_period is 0ns: it must be at least 10ms",
        ),
        (
            |s| s.relist_period_max = 10 * MS,
            "relist_period_max is 10ms: it must not be shorter than relist_period",
        ),
        (
            |s| s.unready_after = MINUTE,
            "unready_after is 60s: it must be longer than relist_period_max",
        ),
        (
            |s| s.inspections = 0,
            "inspections is 0: it must be at least 1",
        ),
    ];
    for (spoil, why) in spoiled {
        let builder = Pleg::builder(node.clone()).settings(settings(spoil));
        let refused = builder.spawn().unwrap_err().to_string();
        assert!(refused.starts_with(why), "{refused}");
    }
    let reconnect = ReconnectSettings {
        jitter_percent: 101,
        ..ReconnectSettings::default()
    };
    let refused = Pleg::builder(node.clone()).reconnect(reconnect).spawn();
    let why = "jitter_percent is 101: it must be at most 100";
    assert_eq!(refused.unwrap_err().to_string(), why);
    assert_eq!(node.count(&Op::List), 0, "nothing was started");
    assert!(node.is_released());
}

#[tokio::test(start_paused = true)]
async fn generator_in_polling_mode_never_subscribes() {
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
    // The generator reads the status of `p-c` at the start, after its exit, and in runtime probes.
    let statuses = node.count(&Op::status("p-c"));
    assert!((2..=10).contains(&statuses), "{statuses}");
}
