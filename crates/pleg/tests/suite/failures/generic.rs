//! Tests section C of `docs/failures.md`: failures of upstream's generic PLEG.

use std::time::Duration;

use pleg::core::EventType::{Created, Deleted, Started, Stopped};
use pleg::core::{
    CallErrorKind, Instant, Kind, LifecycleType, Mode, PodLifecycleEvent, ReportedState, Settings,
    Source,
};
use pleg::{Pleg, RelistError, WaitError};

use super::{recorder, take_gauge};
use crate::support::{
    FakeRuntime, MINUTE, MS, Op, SECOND, container, drain, exit_code, exited, expect, failed_read,
    is_degraded, is_now, is_soon_after, not_ready, pass, polling, rarely, ready, running, settings,
    soon, synced, until, waiting,
};

/// Upstream inspects pods one after the other: one call that hangs twice for 2 minutes makes the
/// node NotReady.
#[tokio::test(start_paused = true)]
async fn hung_pod_does_not_delay_other_pods() {
    let node = FakeRuntime::new();
    let uids: Vec<_> = ('a'..='z').map(String::from).collect();
    uids.iter().for_each(|uid| node.run_pod(uid));
    let pleg = synced(&node, polling()).await;
    let good = pleg.get(&"a".into());
    node.hang(Op::pod("a"));
    uids.iter().for_each(|uid| node.put(exited(uid, "c", 4)));
    let began = pleg.now();
    let worker = waiting(&pleg, "a", began, MINUTE).await;
    soon(pleg.relist_now()).await.unwrap();
    let code = |uid: &str| exit_code(&pleg, uid, "c");
    until(&pleg, || uids[1..].iter().all(|uid| code(uid) == Some(4))).await;
    let took = pleg.now().since(began);
    assert!(took <= 300 * MS, "{took:?}");
    until(&pleg, || is_degraded(&pleg, "pods_hung")).await;
    assert!(pleg.now().since(began) <= 3 * SECOND);
    let oldest = pleg.health().current().oldest_overdue.unwrap();
    assert!(is_soon_after(oldest, began));
    let (why, last_good) = failed_read(soon(worker).await.unwrap());
    assert_eq!(why.kind, CallErrorKind::DeadlineExceeded);
    assert!(last_good.as_of >= good.as_of && last_good.status.exists());
    let took = pleg.now().since(began);
    assert!(took <= 5 * SECOND + 510 * MS, "{took:?}");
    // The pod hangs far longer than the 3 min after which a node is not ready.
    let lists = node.count(&Op::List);
    for _ in 0..10 {
        pass(&pleg, MINUTE).await;
        assert_eq!(pleg.health().ready(), Ok(()));
        assert!(is_degraded(&pleg, "pods_failing"));
    }
    assert!(node.count(&Op::List) >= lists + 500, "lists go on");
    let mut all = pleg.snapshot();
    all.retain(|view| view.status.error.is_some());
    assert_eq!(all.len(), 1);
    let a = &all[0].status;
    assert_eq!(a.uid.as_str(), "a");
    let error = a.error.as_ref().unwrap();
    assert_eq!(error.kind, CallErrorKind::DeadlineExceeded);
    assert_eq!(a.containers.len(), good.status.containers.len());
    node.release(&Op::pod("a"));
    until(&pleg, || {
        code("a") == Some(4) && pleg.health().degraded().is_empty()
    })
    .await;
}

/// Upstream: if an exited container is removed before a sync of its pod has read the exit code, the code is lost, and a
/// success becomes a failure.
#[tokio::test(start_paused = true)]
async fn exit_code_outlives_the_container() {
    for mode in [Mode::Evented, Mode::Polling] {
        let node = FakeRuntime::new();
        node.run_pod("p");
        let pleg = synced(&node, settings(|s| s.mode = mode)).await;
        let worker = pleg.register_consumer("worker").await.unwrap();
        let mut subscription = pleg.subscribe();
        if mode == Mode::Evented {
            node.put_and_emit(exited("p", "c", 7), Stopped);
            node.remove_and_emit("p-c");
        } else {
            node.put(exited("p", "c", 7));
            pass(&pleg, SECOND + 10 * MS).await;
            node.remove("p-c");
            pass(&pleg, SECOND + 10 * MS).await;
        }
        // Like a late pod worker, this test reads the pod only after the container was removed.
        let uid = "p".into();
        let view = soon(pleg.newer_than(&uid, pleg.now(), SECOND)).await;
        assert!(view.unwrap().status.containers.is_empty(), "it is gone");
        let died = expect(&mut subscription, "p Died p-c").await;
        assert_eq!(died.subject.unwrap().exit_code, Some(7));
        let ends = || pleg.exits(&uid);
        let (code, removed) = (ends()[0].exit_code, ends()[0].removed);
        assert_eq!((code, removed), (Some(7), true), "{mode:?}");
        pass(&pleg, 20 * MINUTE).await;
        assert_eq!(ends().len(), 1, "for as long as the pod is there");
        worker.acknowledge(&ends()[0]).await;
        until(&pleg, || ends().is_empty()).await;

        // The pod disappears before `worker` acknowledges the exit of `d`: the exit record stays for ten minutes.
        let relisted = || async { soon(pleg.relist_now()).await.unwrap() };
        node.put(exited("p", "d", 8));
        node.put(not_ready("p"));
        relisted().await;
        until(&pleg, || ends().len() == 2).await;
        node.remove("p-d");
        relisted().await;
        let of_sandbox = ends().iter().find(|e| e.id.as_str() == "p-s").cloned();
        worker.acknowledge(&of_sandbox.unwrap()).await;
        node.remove("p-s");
        relisted().await;
        until(&pleg, || !pleg.get(&uid).status.exists()).await;
        pass(&pleg, 10 * MINUTE - SECOND).await;
        assert_eq!(ends().len(), 1, "{mode:?}");
        pass(&pleg, 2 * SECOND).await;
        assert!(ends().is_empty(), "ten minutes after the pod");
    }
}

/// Upstream: a list over 16 MiB fails every time. The kubelet no longer learns the state of any pod, and the node is
/// NotReady.
#[tokio::test(start_paused = true)]
async fn failed_list_removes_no_pod_from_the_cache() {
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
    node.put_and_emit(exited("p", "c", 1), Stopped);
    expect(&mut subscription, "p Died p-c").await;
}

/// The cached state of the container or sandbox that the event is about.
fn cached(pleg: &Pleg, event: &PodLifecycleEvent) -> String {
    let status = pleg.get(&event.uid).status;
    let subject = event.subject.as_ref().expect("of an id");
    let sandbox = status.sandboxes.iter().find(|s| s.id == subject.id);
    let container = status.containers.iter().find(|c| c.id == subject.id);
    let sandbox = sandbox.map(|s| format!("{:?}", s.state));
    let container = container.map(|c| format!("{:?}", c.state));
    sandbox.or(container).unwrap_or("gone".to_owned())
}

/// Upstream: programs other than the kubelet cannot get the events of its PLEG.
///
/// Each event arrives twice. The exit that an event shows is announced at once; after any other event the generator
/// waits 250 ms and reads the pod.
#[tokio::test(start_paused = true)]
async fn every_state_transition_is_announced_to_subscribers() {
    let node = FakeRuntime::new();
    let mut builder = Pleg::builder(node.clone());
    let (mut ours, mut fifo) = (builder.subscribe(), builder.upstream_fifo());
    let pleg = builder.spawn().unwrap();
    soon(pleg.wait_until_synced()).await.unwrap();
    until(&pleg, || node.streams() == 1).await;
    let began = pleg.now();
    let created = container("p", "c", ReportedState::Created);
    for (change, event, announced, shown) in [
        (Some(ready("p")), Created, "p Started p-s", "Ready"),
        (Some(created), Created, "p Changed p-c", "Created"),
        (Some(running("p", "c")), Started, "p Started p-c", "Running"),
        (Some(exited("p", "c", 5)), Stopped, "p Died p-c", "Exited"),
        (None, Deleted, "p Removed p-c", "gone"),
        (Some(not_ready("p")), Stopped, "p Died p-s", "NotReady"),
        (None, Deleted, "p Removed p-s", "gone"),
    ] {
        let id = announced.rsplit(' ').next().unwrap();
        match change {
            Some(report) => node.put(report),
            None => node.remove(id),
        }
        node.emit(event, id);
        let got = expect(&mut ours, announced).await;
        node.emit(event, id);
        assert_eq!(cached(&pleg, &got), shown, "{announced}");
        let is_end = got.event == LifecycleType::ContainerDied;
        assert_eq!(got.source == Source::Stream, is_end, "{announced}");
        assert_eq!((&*got.namespace, &*got.pod_name), ("ns", "p"));
        let subject = got.subject.unwrap();
        let is_container = subject.kind == Kind::Container;
        assert_eq!(is_container, id == "p-c");
        assert_eq!(&*subject.name, if is_container { "c" } else { "" });
        let has_code = is_container && matches!(event, Stopped | Deleted);
        assert_eq!(subject.exit_code, has_code.then_some(5), "{announced}");
        assert_eq!(&*subject.reason, if has_code { "Error" } else { "" });
    }
    let took = pleg.now().since(began);
    assert!(took < 6 * 260 * MS, "an end waits for nothing: {took:?}");
    assert!(node.count(&Op::pod("p")) <= 6, "one read an event");
    pass(&pleg, SECOND).await;
    assert!(drain(&mut ours).is_empty());
    let sent = std::iter::from_fn(|| fifo.try_next());
    let sent: Vec<_> = sent.map(|e| e.event.as_str()).collect();
    let all = [
        "ContainerStarted",
        "ContainerStarted",
        "ContainerDied",
        "ContainerRemoved",
        "ContainerDied",
        "ContainerRemoved",
    ];
    assert_eq!(sent, all, "upstream sends no ContainerChanged");
}

/// Upstream: each step of a pod's termination waits about a second for the next list.
#[tokio::test(start_paused = true)]
async fn termination_steps_do_not_wait_for_the_next_list() {
    for settings in [Settings::default(), polling(), rarely()] {
        let node = FakeRuntime::new();
        node.run_pod("p");
        let pleg = synced(&node, settings).await;
        pass(&pleg, 300 * MS).await;
        let uid = "p".into();
        let steps: [fn(&FakeRuntime); 4] = [
            |node| node.put(exited("p", "c", 5)),
            |node| node.put(not_ready("p")),
            |node| node.remove("p-c"),
            |node| node.remove("p-s"),
        ];
        for (n, step) in steps.into_iter().enumerate() {
            step(&node);
            let now = pleg.now();
            let view = soon(pleg.newer_than(&uid, now, MINUTE)).await.unwrap();
            assert!(is_now(&pleg, Some(now)), "step {n}");
            assert!(view.as_of >= Some(now));
            let left = view.status.containers.len() + view.status.sandboxes.len();
            assert_eq!(left, [2, 2, 1, 0][n]);
            let code = [Some(5), Some(5), None, None][n];
            assert_eq!(exit_code(&pleg, "p", "c"), code);
            pass(&pleg, 300 * MS).await;
        }
    }
}

/// Upstream: running_containers keeps the last count of a state that no container is in any more.
#[tokio::test(start_paused = true)]
async fn container_count_of_a_state_becomes_zero() {
    let (recorder, snapshotter) = recorder();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let node = FakeRuntime::new();
    node.run_pod("p");
    let pleg = synced(&node, polling()).await;
    pass(&pleg, 2 * SECOND).await;
    // This test must not call `gauge` before the exit: a snapshot resets the gauge to 0, and so would hide a stale 1.
    node.put(exited("p", "c", 0));
    pass(&pleg, 2 * SECOND).await;
    let gauge = || {
        let name = "kubelet_running_containers";
        take_gauge(&snapshotter, name, Some("running"))
    };
    assert!(gauge() < 0.5);
    node.put(running("p", "d"));
    pass(&pleg, 2 * SECOND).await;
    let all = snapshotter.snapshot().into_vec();
    let states = all
        .iter()
        .filter(|(key, ..)| key.key().name() == "kubelet_running_containers");
    assert_eq!(states.count(), 4);
    // The snapshot above has reset the gauge to 0. For the containers `d` and `e`, the generator must write 2.
    node.put(running("p", "e"));
    pass(&pleg, 2 * SECOND).await;
    assert!((gauge() - 2.0).abs() < 0.5);
}

/// Upstream: GetNewerThan has neither a context nor a deadline; if the PLEG dies every worker
/// hangs.
#[tokio::test(start_paused = true)]
async fn newer_than_call_ends_at_deadline_drop_or_shutdown() {
    let node = FakeRuntime::new();
    node.run_pod("p");
    let pleg = synced(&node, rarely()).await;
    let uid = "p".into();
    let reads = node.count(&Op::pod("p"));
    // `newer_than` waits for a view as of `later`, but its deadline comes before `later`.
    let later = pleg.now().after(10 * SECOND);
    let within = 2 * SECOND;
    let waits = soon(pleg.newer_than(&uid, later, within)).await;
    assert_eq!(waits, Err(WaitError::DeadlineExceeded { within }));
    // The caller drops the future of `newer_than` before `later`.
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
    let future = pleg.now().after(MINUTE);
    let waits = [
        waiting(&pleg, "p", pleg.now(), MINUTE).await,
        waiting(&pleg, "q", future, 5 * MINUTE).await,
        waiting(&pleg, "r", Instant::from_nanos(u64::MAX), Duration::MAX).await,
    ];
    let (of_task, p) = (pleg.clone(), uid.clone());
    let requests =
        tokio::spawn(async move { tokio::join!(of_task.request_relist(&p), of_task.relist_now()) });
    pass(&pleg, MS).await;
    let at = pleg.now();
    soon(pleg.shutdown()).await;
    for waits in waits {
        assert_eq!(soon(waits).await.unwrap(), Err(WaitError::Closed));
    }
    let requests = soon(requests).await.unwrap();
    let closed = (Err(WaitError::Closed), Err(RelistError::Closed));
    assert_eq!(requests, closed);
    let late = soon(pleg.newer_than(&uid, pleg.now(), MINUTE)).await;
    assert_eq!(late, Err(WaitError::Closed));
    assert!(is_now(&pleg, Some(at)), "at once");
    assert!(pleg.get(&uid).status.exists(), "the cache stays");
}

/// Upstream: the relist reads termination messages from disk, so a slow disk slows it.
#[tokio::test(start_paused = true)]
async fn slow_status_calls_do_not_slow_the_list() {
    let node = FakeRuntime::new();
    ["p", "q"].iter().for_each(|uid| node.run_pod(uid));
    let pleg = synced(&node, rarely()).await;
    pass(&pleg, SECOND).await;
    // Every call about the pod p takes this long.
    node.delay(Op::pod("p"), SECOND);
    node.put(exited("p", "c", 3));
    node.put(exited("q", "c", 3));
    let began = pleg.now();
    soon(pleg.relist_now()).await.unwrap();
    assert!(is_now(&pleg, Some(began)));
    let last = pleg.health().current().last_list.unwrap();
    assert!(is_soon_after(last, began));
    let code = |uid: &str| exit_code(&pleg, uid, "c");
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
