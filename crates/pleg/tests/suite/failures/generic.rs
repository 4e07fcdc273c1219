//! C: the generic PLEG.

use std::time::Duration;

use pleg::core::{CallErrorKind, EventType, LifecycleType, Mode, ReportedState, Settings, Source};
use pleg::{Pleg, WaitError};

use super::{recorder, take_gauge};
use crate::support::{
    FakeRuntime, MINUTE, MS, Op, SECOND, container, drain, exited, in_short, is_degraded, is_now,
    is_soon_after, next, pass, polling, rarely, sandbox, settings, soon, synced, until, waiting,
};

/// Upstream: Pods are inspected one after the other; one call that hangs twice for 2 minutes makes
/// the node NotReady. (k#93886, k#95750, k#94829)
///
/// Here: A hung inspection gives its slot back after 250 ms. The other 25 pods are up to date
/// within 300 ms, the hung one is reported within 3 s, and the node stays ready. (invariants 11,
/// 12)
#[tokio::test(start_paused = true)]
async fn c2_one_hung_pod_does_not_delay_the_others() {
    let node = FakeRuntime::new();
    let uids: Vec<_> = ('a'..='z').map(String::from).collect();
    uids.iter().for_each(|uid| node.run_pod(uid));
    let pleg = synced(&node, polling()).await;
    let good = pleg.get(&"a".into());
    node.hang(Op::pod("a"));
    uids.iter().for_each(|uid| node.put(exited(uid, "c", 4)));
    let began = pleg.now();
    soon(pleg.relist_now()).await.unwrap();
    let code = |uid: &str| {
        let status = pleg.get(&uid.into()).status;
        status.container("c").and_then(|c| c.details.exit_code)
    };
    until(&pleg, || uids[1..].iter().all(|uid| code(uid) == Some(4))).await;
    let took = pleg.now().since(began);
    assert!(took <= 300 * MS, "{took:?}");
    until(&pleg, || is_degraded(&pleg, "pods_hung")).await;
    assert!(pleg.now().since(began) <= 3 * SECOND);
    // Far beyond the threshold of a node that is not ready.
    let lists = node.count(&Op::List);
    for _ in 0..10 {
        pass(&pleg, MINUTE).await;
        assert_eq!(pleg.health().ready(), Ok(()));
        assert!(is_degraded(&pleg, "pods_failing"));
    }
    assert!(node.count(&Op::List) >= lists + 500, "lists go on");
    let flagged: Vec<_> = pleg
        .snapshot()
        .into_iter()
        .filter(|v| v.status.error.is_some())
        .collect();
    assert_eq!(flagged.len(), 1);
    let a = &flagged[0].status;
    assert_eq!(a.uid.as_str(), "a");
    assert_eq!(
        a.error.as_ref().map(|e| e.kind),
        Some(CallErrorKind::DeadlineExceeded)
    );
    assert_eq!(a.containers.len(), good.status.containers.len());
    node.release(&Op::pod("a"));
    until(&pleg, || {
        code("a") == Some(4) && pleg.health().degraded().is_empty()
    })
    .await;
}

/// Upstream: A dead container is removed before a sync has read how it ended; the exit code is
/// lost, and a success becomes a failure. (k#104107, k#58711, k#82258, k#76382, k#51142, k#51309,
/// k#88440)
///
/// Here: Died carries the exit code, and the last three terminal records of a name are kept until
/// every registered consumer has acknowledged them or the pod is gone for 10 minutes. (invariant 9)
#[tokio::test(start_paused = true)]
async fn c5_the_exit_code_outlives_the_container() {
    for mode in [Mode::Evented, Mode::Polling] {
        let node = FakeRuntime::new();
        node.run_pod("p");
        let pleg = synced(&node, settings(|s| s.mode = mode)).await;
        let worker = pleg.register_consumer("worker").await.unwrap();
        let mut subscription = pleg.subscribe();
        if mode == Mode::Evented {
            node.put_and_emit(exited("p", "c", 7), EventType::Stopped);
            node.remove_and_emit("p-c");
        } else {
            node.put(exited("p", "c", 7));
            pass(&pleg, SECOND + 10 * MS).await;
            node.remove("p-c");
            pass(&pleg, SECOND + 10 * MS).await;
        }
        // Only now does the worker check.
        let view = soon(pleg.newer_than(&"p".into(), pleg.now(), SECOND))
            .await
            .unwrap();
        assert!(view.status.containers.is_empty(), "it is gone");
        let died = next(&mut subscription).await;
        assert_eq!(in_short(&died), "p Died p-c");
        assert_eq!(died.subject.unwrap().exit_code, Some(7));
        let ends = || pleg.terminal_records(&"p".into());
        let (code, removed) = (ends()[0].exit_code, ends()[0].removed);
        assert_eq!(
            (ends().len(), code, removed),
            (1, Some(7), true),
            "{mode:?}"
        );
        pass(&pleg, 20 * MINUTE).await;
        assert_eq!(ends().len(), 1, "for as long as the pod is there");
        worker.acknowledge(&ends()[0]).await;
        until(&pleg, || ends().is_empty()).await;
    }
}

/// Upstream: A list over 16 MiB fails every time; no state is known any more and the node is
/// NotReady. (k#63858, k#90340, k#131407, k#134750; KEP-5825)
///
/// Here: Lists are streamed if the runtime supports that, the limit can be set to 80 MiB, and the
/// error has its own kind. A failed or partial list says nothing: what is known stays, and events
/// still apply. Without a complete list for 3 minutes the node is not ready, and the reason is
/// given. (invariants 5, 12)
#[tokio::test(start_paused = true)]
async fn c9_failed_list_removes_nothing() {
    let node = FakeRuntime::new();
    node.run_pod("p");
    let pleg = synced(&node, Settings::default()).await;
    let mut subscription = pleg.subscribe();
    node.fail(Op::List, CallErrorKind::TooLarge);
    until(&pleg, || is_degraded(&pleg, "list_failed")).await;
    let why = pleg.health().current().list_error.unwrap();
    assert_eq!(why.kind, CallErrorKind::TooLarge);
    pass(&pleg, MINUTE).await;
    assert_eq!(pleg.health().ready(), Ok(()));
    assert_eq!(pleg.get(&"p".into()).status.containers.len(), 1);
    assert!(drain(&mut subscription).is_empty());
    node.put_and_emit(exited("p", "c", 1), EventType::Stopped);
    assert_eq!(in_short(&next(&mut subscription).await), "p Died p-c");
}

/// Upstream: What the PLEG observes is not available outside the kubelet; ContainerChanged is never
/// sent. (k#133258, k#28926)
///
/// Here: Any number of subscribers get every transition with subject, source and exit code. The
/// adapter with upstream's queue sends what upstream sends. (invariant 9)
#[tokio::test(start_paused = true)]
async fn c12_every_transition_is_reported() {
    let node = FakeRuntime::new();
    let mut builder = Pleg::builder(node.clone());
    let (mut ours, mut fifo) = (builder.subscribe(), builder.upstream_fifo());
    let pleg = builder.spawn().unwrap();
    soon(pleg.wait_until_synced()).await.unwrap();
    until(&pleg, || node.streams() == 1).await;
    node.put_and_emit(
        sandbox("p", "s", ReportedState::Running),
        EventType::Created,
    );
    pass(&pleg, SECOND).await;
    node.put_and_emit(
        container("p", "c", ReportedState::Created),
        EventType::Created,
    );
    pass(&pleg, SECOND).await;
    node.put_and_emit(
        container("p", "c", ReportedState::Running),
        EventType::Started,
    );
    pass(&pleg, SECOND).await;
    node.put_and_emit(exited("p", "c", 5), EventType::Stopped);
    pass(&pleg, SECOND).await;
    node.remove_and_emit("p-c");
    let mut reported = Vec::new();
    for _ in 0..5 {
        let event = next(&mut ours).await;
        let is_end = event.event == LifecycleType::ContainerDied;
        assert_eq!(event.source == Source::Stream, is_end, "{event:?}");
        let code = event.subject.as_ref().and_then(|s| s.exit_code);
        reported.push((in_short(&event), code));
    }
    let expected = [
        ("p Started p-s", None),
        ("p Changed p-c", None),
        ("p Started p-c", None),
        ("p Died p-c", Some(5)),
        ("p Removed p-c", Some(5)),
    ];
    let expected = expected.map(|(what, code)| (what.to_owned(), code));
    assert_eq!(reported, expected);
    let sent: Vec<_> = std::iter::from_fn(|| fifo.try_next()).collect();
    let sent: Vec<_> = sent.iter().map(|e| e.event.as_str()).collect();
    let all = [
        "ContainerStarted",
        "ContainerStarted",
        "ContainerDied",
        "ContainerRemoved",
    ];
    assert_eq!(sent, all);
}

/// Upstream: Each step of a pod's termination waits about a second for the next list; only a
/// successful sync requests a read. (k#137362)
///
/// Here: Each step is answered at the instant at which it asks, in both modes. (invariant 4)
#[tokio::test(start_paused = true)]
async fn c13_no_step_waits_for_the_next_list() {
    for settings in [Settings::default(), polling(), rarely()] {
        let node = FakeRuntime::new();
        node.run_pod("p");
        let pleg = synced(&node, settings).await;
        pass(&pleg, 300 * MS).await;
        let uid = "p".into();
        let steps: [fn(&FakeRuntime); 4] = [
            |node| node.put(exited("p", "c", 0)),
            |node| node.put(sandbox("p", "s", ReportedState::Exited)),
            |node| node.remove("p-c"),
            |node| node.remove("p-s"),
        ];
        for (n, step) in steps.into_iter().enumerate() {
            step(&node);
            let asked = pleg.now();
            let view = soon(pleg.newer_than(&uid, asked, MINUTE)).await.unwrap();
            assert!(is_now(&pleg, Some(asked)), "step {n}");
            assert!(view.as_of >= Some(asked));
            let left = view.status.containers.len() + view.status.sandboxes.len();
            assert_eq!(left, [2, 2, 1, 0][n]);
            pass(&pleg, 300 * MS).await;
        }
    }
}

/// Upstream: running_containers keeps the last count of a state that no container is in any more.
/// (found by reading)
///
/// Here: Every state is written, also if it is zero.
#[tokio::test(start_paused = true)]
async fn c14_a_count_falls_to_zero() {
    let (recorder, snapshotter) = recorder();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let node = FakeRuntime::new();
    node.run_pod("p");
    let pleg = synced(&node, polling()).await;
    pass(&pleg, 2 * SECOND).await;
    // The gauge is not taken meanwhile, so it would keep its value of one.
    node.put(exited("p", "c", 0));
    pass(&pleg, 2 * SECOND).await;
    let running = |state| take_gauge(&snapshotter, "kubelet_running_containers", Some(state));
    assert!(running("running") < 0.5);
    node.put(container("p", "d", ReportedState::Running));
    pass(&pleg, 2 * SECOND).await;
    let all = snapshotter.snapshot().into_vec();
    let states = all
        .iter()
        .filter(|(key, ..)| key.key().name() == "kubelet_running_containers");
    assert_eq!(states.count(), 4);
    // Written as one before it is taken.
    node.put(container("p", "e", ReportedState::Running));
    pass(&pleg, 2 * SECOND).await;
    assert!((running("running") - 2.0).abs() < 0.5);
}

/// Upstream: GetNewerThan has neither a context nor a deadline; if the PLEG dies every worker
/// hangs. (found by reading)
///
/// Here: `newer_than` has a deadline, can be dropped, and ends at a shutdown. Nothing is read for a
/// cancelled waiter.
#[tokio::test(start_paused = true)]
async fn c18_wait_ends_at_deadline_drop_and_shutdown() {
    let node = FakeRuntime::new();
    node.run_pod("p");
    let pleg = synced(&node, rarely()).await;
    let uid = "p".into();
    let reads = node.count(&Op::pod("p"));
    // Its deadline comes before its instant.
    let later = pleg.now().after(10 * SECOND);
    let within = 2 * SECOND;
    let waits = soon(pleg.newer_than(&uid, later, within)).await;
    assert_eq!(waits, Err(WaitError::DeadlineExceeded { within }));
    // It is dropped before its instant.
    let waits = waiting(&pleg, "p", later, MINUTE).await;
    waits.abort();
    assert!(waits.await.unwrap_err().is_cancelled());
    pass(&pleg, 30 * SECOND).await;
    assert_eq!(node.count(&Op::pod("p")), reads);

    // The runtime does not answer any more.
    node.hang(Op::pod("p"));
    node.hang(Op::List);
    for within in [Duration::ZERO, 20 * MS, 3 * SECOND] {
        let began = pleg.now();
        let waits = soon(pleg.newer_than(&uid, began, within)).await;
        assert_eq!(waits, Err(WaitError::DeadlineExceeded { within }));
        assert!(pleg.now().since(began) <= within + MS, "{within:?}");
    }
    let now = pleg.now();
    let waits = waiting(&pleg, "p", now, MINUTE).await;
    soon(pleg.shutdown()).await;
    assert_eq!(soon(waits).await.unwrap(), Err(WaitError::Closed));
    let late = soon(pleg.newer_than(&uid, pleg.now(), MINUTE)).await;
    assert_eq!(late, Err(WaitError::Closed));
}

/// Upstream: Termination messages are read from disk inside the relist. (found by reading)
///
/// Here: They are part of the runtime's status call, and a list makes none. Slow statuses delay
/// neither the list nor another pod. (invariant 11)
#[tokio::test(start_paused = true)]
async fn c19_slow_statuses_do_not_slow_the_list() {
    let node = FakeRuntime::new();
    ["p", "q"].iter().for_each(|uid| node.run_pod(uid));
    let pleg = synced(&node, rarely()).await;
    pass(&pleg, SECOND).await;
    // Every status call of p takes this long.
    node.delay(Op::pod("p"), SECOND);
    ["p", "q"]
        .iter()
        .for_each(|uid| node.put(exited(uid, "c", 3)));
    let began = pleg.now();
    soon(pleg.relist_now()).await.unwrap();
    assert!(is_now(&pleg, Some(began)));
    let last = pleg.health().current().last_list.unwrap();
    assert!(is_soon_after(last, began));
    let code = |uid: &str| {
        let status = pleg.get(&uid.into()).status;
        status.container("c").and_then(|c| c.details.exit_code)
    };
    pass(&pleg, 10 * MS).await;
    assert_eq!((code("p"), code("q")), (None, Some(3)));
    soon(pleg.relist_now()).await.unwrap();
    assert!(
        pleg.now().since(began) < SECOND,
        "the next list does not wait either"
    );
    let took = until(&pleg, || code("p") == Some(3)).await;
    assert!(pleg.now().since(began) >= SECOND, "{took:?}");
}
