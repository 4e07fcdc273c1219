//! Tests what health reports when the runtime fails: hung pods, hung lists, lost streams.

use pleg::Pleg;
use pleg::core::{CallErrorKind, Degraded, Mode, NotReady, StreamEnd, StreamState};
use pleg::runtime::fake::{Dial, Step};

use crate::support::{
    FakeRuntime, MINUTE, MS, Op, SECOND, degraded, failed_read, is_confirmed, is_degraded, pass,
    polling, rarely, settings, soon, synced, until,
};

/// Invariant 12 of `docs/invariants.md`: health reports within 3 s that a list hangs. The node stays ready for 3 min;
/// then readiness fails with upstream's error text. After the hang, the node becomes ready by itself.
#[tokio::test(start_paused = true)]
async fn hung_list_is_reported_and_the_node_stays_ready() {
    for mode in [Mode::Evented, Mode::Polling] {
        let node = FakeRuntime::new();
        node.run_pod("p");
        let pleg = synced(&node, settings(|s| s.mode = mode)).await;
        node.hang(Op::List);
        let lists = node.count(&Op::List);
        until(&pleg, || node.count(&Op::List) > lists).await;
        let began = pleg.now();
        until(&pleg, || is_degraded(&pleg, "list_slow")).await;
        assert!(pleg.now().since(began) <= 3 * SECOND + 5 * MS, "{mode:?}");
        // The list times out, is retried with a longer deadline, and stays reported all the time.
        let last = pleg.health().current().last_list.unwrap();
        let mut unready_at = None;
        while unready_at.is_none() {
            pass(&pleg, 500 * MS).await;
            let slow = is_degraded(&pleg, "list_slow") || is_degraded(&pleg, "list_failed");
            assert!(slow, "{mode:?}: {:?}", degraded(&pleg));
            unready_at = pleg.health().ready().err().map(|why| (pleg.now(), why));
        }
        let (at, why) = unready_at.unwrap();
        assert_eq!(at.since(last).as_secs(), 180, "{mode:?}");
        let why = why.to_string();
        assert!(why.starts_with("pleg was last seen active 3m0"), "{why}");
        assert!(why.ends_with(" ago; threshold is 3m0s"), "{why}");
        node.release(&Op::List);
        until(&pleg, || {
            pleg.health().ready().is_ok() && degraded(&pleg).is_empty()
        })
        .await;
        assert!(pleg.get(&"p".into()).status.exists());
    }
}

/// After an outage, a list starts as soon as any call succeeds, such as the probe of the runtime.
#[tokio::test(start_paused = true)]
async fn successful_runtime_probe_after_an_outage_starts_a_list() {
    for every in [15 * SECOND, 2 * SECOND] {
        let node = FakeRuntime::new();
        node.delay(Op::Version, 300 * MS);
        let slowly = settings(|s| {
            *s = rarely();
            s.relist_period = 45 * SECOND;
            s.probe_period = every;
        });
        let pleg = synced(&node, slowly).await;
        pass(&pleg, 25 * SECOND).await;
        node.fail(Op::List, CallErrorKind::Unavailable);
        node.fail(Op::Version, CallErrorKind::Unavailable);
        until(&pleg, || is_degraded(&pleg, "list_failed")).await;
        pass(&pleg, 3 * SECOND).await;
        node.succeed(&Op::List);
        node.succeed(&Op::Version);
        // `is_acknowledged` wakes the driver every 50 ms, which must not cancel the runtime probe of 300 ms.
        let back = pleg.now();
        while !degraded(&pleg).is_empty() {
            pleg.is_acknowledged(&"nothing".into()).await;
            pass(&pleg, 50 * MS).await;
        }
        let took = pleg.now().since(back);
        assert!(took <= every + SECOND, "{took:?}");
    }
}

/// Settings with a long relist period, and with the default period of runtime probes.
fn probing() -> pleg::core::Settings {
    settings(|s| {
        *s = rarely();
        s.probe_period = 15 * SECOND;
    })
}

/// Between two lists only a runtime probe can detect that the runtime hangs: within 20 s, even without pods. The node
/// stays ready, and the degraded reason disappears with the first answer to any call.
#[tokio::test(start_paused = true)]
async fn frozen_runtime_is_reported_within_20_s() {
    for pods in [vec![], vec!["p", "q"]] {
        let node = FakeRuntime::new();
        pods.iter().for_each(|uid| node.run_pod(uid));
        node.delay(Op::Version, 10 * MS);
        let pleg = synced(&node, probing()).await;
        pass(&pleg, 47 * SECOND).await;
        assert_eq!(degraded(&pleg), [""; 0]);
        node.hang(Op::List);
        node.hang(Op::Version);
        pods.iter().for_each(|uid| node.hang(Op::pod(uid)));
        let hangs = pleg.now();
        let took = until(&pleg, || is_degraded(&pleg, "runtime_silent")).await;
        assert!(took <= 20 * SECOND, "{took:?}");
        assert_eq!(pleg.health().ready(), Ok(()));
        let reasons = pleg.health().degraded();
        let since = reasons.iter().find_map(|reason| match reason {
            Degraded::RuntimeSilent { since } => Some(*since),
            _ => None,
        });
        let before_the_probe = since.unwrap().since(hangs);
        assert!(before_the_probe <= 15 * SECOND, "{before_the_probe:?}");
        pods.iter().for_each(|uid| node.release(&Op::pod(uid)));
        soon(pleg.request_relist(&"p".into())).await.unwrap();
        pass(&pleg, MS).await;
        assert!(!is_degraded(&pleg, "runtime_silent"));
    }
}

/// Between two lists the status calls of one pod hang, and the runtime answers all other calls:
/// health names the pod.
#[tokio::test(start_paused = true)]
async fn hanging_status_call_is_reported_with_its_pod() {
    let node = FakeRuntime::new();
    ["p", "q", "r"].iter().for_each(|uid| node.run_pod(uid));
    let pleg = synced(&node, probing()).await;
    pass(&pleg, 31 * SECOND).await;
    node.hang(Op::pod("q"));
    // Three pods have six ids, and each runtime probe reads another id: one of six probes reads the hung pod.
    let took = until(&pleg, || is_degraded(&pleg, "pods_hung")).await;
    assert!(took <= 6 * 15 * SECOND + 5 * SECOND, "{took:?}");
    let reasons = pleg.health().degraded();
    let [Degraded::PodsHung { pods, .. }] = &reasons[..] else {
        panic!("{reasons:?}");
    };
    let named: Vec<_> = pods.iter().map(|pod| pod.uid.as_str()).collect();
    assert_eq!(named, ["q"]);
}

/// A `Version` call that hangs or is refused does not mean that the runtime is silent while other
/// calls are answered.
#[tokio::test(start_paused = true)]
async fn unanswered_version_call_alone_does_not_mean_a_silent_runtime() {
    for refused in [true, false] {
        let node = FakeRuntime::new();
        let every_second = settings(|s| {
            s.mode = Mode::Polling;
            s.probe_period = SECOND;
        });
        let pleg = synced(&node, every_second).await;
        if refused {
            node.fail(Op::Version, CallErrorKind::Unimplemented);
        } else {
            node.hang(Op::Version);
        }
        let calls = node.count(&Op::Version);
        while node.count(&Op::Version) < calls + 4 {
            pass(&pleg, 50 * MS).await;
            assert_eq!(degraded(&pleg), [""; 0]);
        }
    }
}

/// A call fails if the implementation of `Runtime` panics in it.
#[tokio::test(start_paused = true)]
async fn call_in_which_the_runtime_panics_counts_as_failed() {
    let node = FakeRuntime::new();
    ["p", "q"].iter().for_each(|uid| node.run_pod(uid));
    let pleg = synced(&node, polling()).await;
    node.panic(Op::pod("p"));
    let (p, q) = ("p".into(), "q".into());
    let (why, _) = failed_read(soon(pleg.newer_than(&p, pleg.now(), MINUTE)).await);
    assert_eq!(why.kind, CallErrorKind::Failed);
    soon(pleg.newer_than(&q, pleg.now(), MINUTE)).await.unwrap();
    pass(&pleg, 10 * SECOND).await;
    assert_eq!(pleg.health().ready(), Ok(()));
}

/// Invariant 12 of `docs/invariants.md`: health reports a subscribe call that hangs, even if it is the first one.
#[tokio::test(start_paused = true)]
async fn health_reports_a_stream_that_cannot_be_opened() {
    let node = FakeRuntime::new();
    node.hang(Op::Subscribe);
    let pleg = synced(&node, settings(|_| ())).await;
    until(&pleg, || node.count(&Op::Subscribe) == 1).await;
    let began = pleg.now();
    until(&pleg, || is_degraded(&pleg, "stream_down")).await;
    let took = pleg.now().since(began);
    assert!(took <= 3 * SECOND, "{took:?}");
    assert_eq!(pleg.health().ready(), Ok(()));
}

fn why_down(pleg: &Pleg) -> StreamEnd {
    match pleg.health().current().stream {
        StreamState::Down { why, .. } => why,
        other => panic!("expected no stream: {other:?}"),
    }
}

/// The runtime does not implement the event stream: the stream reader subscribes again every 60 s.
#[tokio::test(start_paused = true)]
async fn unimplemented_stream_is_reported_as_down_and_retried() {
    let node = FakeRuntime::new();
    node.run_pod("p");
    let never = || Dial::Open(vec![Step::Fail(CallErrorKind::Unimplemented)]);
    node.script_streams([never(), never(), never()]);
    let pleg = synced(&node, settings(|_| ())).await;
    until(&pleg, || is_degraded(&pleg, "stream_down")).await;
    assert_eq!(why_down(&pleg), StreamEnd::NeverOffered);
    let took = until(&pleg, || is_confirmed(&pleg)).await;
    assert!(
        took >= 2 * MINUTE && took <= 3 * MINUTE + 3 * SECOND,
        "{took:?}"
    );
}

/// While `stream_hazard` returns a reason, mode `Auto` polls, with that reason in health; mode `Evented` subscribes.
#[tokio::test(start_paused = true)]
async fn auto_mode_polls_while_stream_hazard_returns_a_reason() {
    let node = FakeRuntime::new();
    node.set_hazard(Some("fake 1 may crash"));
    let pleg = synced(&node, settings(|_| ())).await;
    pass(&pleg, MINUTE / 2).await;
    let stream = pleg.health().current().stream;
    assert_eq!(stream.declined(), Some("fake 1 may crash"));
    assert_eq!(node.count(&Op::Subscribe), 0);
    let evented = Pleg::builder(node.clone()).mode(Mode::Evented);
    let evented = evented.spawn().unwrap();
    until(&evented, || is_confirmed(&evented)).await;
    node.set_hazard(None);
    until(&pleg, || is_confirmed(&pleg)).await;
}

/// The mode of `Builder::mode` wins over the mode in `Builder::settings`, whichever is called first.
#[tokio::test(start_paused = true)]
async fn mode_of_builder_overrides_settings_in_either_order() {
    let builder = || Pleg::builder(FakeRuntime::new());
    for builder in [
        builder().mode(Mode::Polling).settings(settings(|_| ())),
        builder().settings(settings(|_| ())).mode(Mode::Polling),
        builder().settings(polling()),
    ] {
        let stream = builder.spawn().unwrap().health().current().stream;
        assert_eq!(stream, StreamState::Off);
    }
}

/// The runtime's implementation declines to subscribe: lists run every second, the health is not degraded, and the
/// stream reader tries again every 60 s.
#[tokio::test(start_paused = true)]
async fn generator_polls_and_retries_while_runtime_declines_the_stream() {
    let node = FakeRuntime::new();
    node.run_pod("p");
    node.fail(Op::Subscribe, CallErrorKind::Unimplemented);
    let pleg = synced(&node, settings(|_| ())).await;
    pass(&pleg, 10 * MINUTE).await;
    assert!(matches!(why_down(&pleg), StreamEnd::Declined(_)));
    assert!(!is_degraded(&pleg, "stream_down"));
    let calls = node.count(&Op::Subscribe);
    assert!((10..=11).contains(&calls), "{calls}");
    assert!(node.count(&Op::List) > 550);
    assert_eq!(pleg.health().ready(), Ok(()));
    node.succeed(&Op::Subscribe);
    let took = until(&pleg, || is_confirmed(&pleg)).await;
    assert!(took <= MINUTE + 3 * SECOND, "{took:?}");
}

/// The published health has the time at which the driver's next work is due, even on a quiet node. So `ready`
/// fails if the driver stops and its work becomes overdue.
#[tokio::test(start_paused = true)]
async fn overdue_work_of_the_driver_makes_the_node_unready() {
    let node = FakeRuntime::new();
    node.run_pod("p");
    let pleg = synced(&node, settings(|_| ())).await;
    for _ in 0..300 {
        pass(&pleg, 100 * MS).await;
        let due = pleg.health().current().due;
        assert!(due >= pleg.now(), "{due:?}");
        assert!(due <= pleg.now().after(15 * SECOND), "{due:?}");
    }
    node.hang(Op::List);
    let list = || pleg.health().current().list_in_flight;
    until(&pleg, || list().is_some()).await;
    let due = pleg.health().current().due;
    assert!(list().is_some_and(|since| due <= since.after(10 * SECOND)));
    soon(pleg.shutdown()).await;
    assert_eq!(pleg.health().ready(), Err(NotReady::Closed));
    pass(&pleg, 20 * SECOND + MS).await;
    let ready = pleg.health().current().ready(pleg.now());
    assert!(matches!(ready, Err(NotReady::Stalled { .. })));
}
