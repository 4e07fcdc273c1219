//! Tests the sections A and B of `docs/failures.md`: failures of upstream's evented PLEG.

use pleg::core::{CallErrorKind, EventType, Settings, Source};
use pleg::{Pleg, ReconnectSettings};

use super::{recorder, take_gauge};
use crate::support::{
    FakeRuntime, MINUTE, MS, Op, SECOND, degraded, drain, exited, expect, is_confirmed,
    is_degraded, is_now, pass, polling, ready, running, soon, synced, until,
};

/// Upstream: the kubelet makes five attempts to reconnect without a pause. Then it gets no events until it restarts.
#[tokio::test(start_paused = true)]
async fn event_stream_is_used_again_after_outage_of_any_length() {
    let node = FakeRuntime::new();
    node.run_pod("p");
    let pleg = synced(&node, Settings::default()).await;
    let mut subscription = pleg.subscribe();
    for (n, outage) in [400 * MS, 10 * SECOND, 20 * MINUTE].into_iter().enumerate() {
        let (seen, found, new) = (format!("seen{n}"), format!("found{n}"), format!("new{n}"));
        until(&pleg, || is_confirmed(&pleg)).await;
        for name in [&seen, &found] {
            node.put_and_emit(running("p", name), EventType::Started);
        }
        pass(&pleg, 5 * MINUTE).await;
        assert_eq!(pleg.health().current().period, MINUTE, "all was clean");
        drain(&mut subscription);

        node.fail(Op::Subscribe, CallErrorKind::Unavailable);
        node.break_streams();
        let (lists, cut) = (node.count(&Op::List), pleg.now());
        node.put(exited("p", &found, 1));
        until(&pleg, || is_degraded(&pleg, "stream_down")).await;
        assert!(pleg.now().since(cut) <= 3 * SECOND);
        let took = until(&pleg, || node.count(&Op::List) > lists).await;
        assert!(took <= SECOND, "{took:?}");
        let event = expect(&mut subscription, &format!("p Died p-{found}")).await;
        assert_eq!(event.source, Source::Relist);
        pass(&pleg, outage).await;
        assert_eq!(pleg.health().current().period, SECOND);
        assert_eq!(pleg.health().ready(), Ok(()));
        let seconds = usize::try_from(outage.as_secs()).unwrap();
        // Tokio's timers have whole milliseconds.
        let least = lists + seconds - seconds / 100;
        assert!(node.count(&Op::List) >= least, "{outage:?}");

        node.succeed(&Op::Subscribe);
        let lists = node.count(&Op::List);
        let took = until(&pleg, || node.streams() == 1).await;
        pass(&pleg, MS).await;
        assert!(node.count(&Op::List) > lists, "subscribe, then list");
        // No list has shown this id.
        node.put_and_emit(running("p", &new), EventType::Started);
        let event = expect(&mut subscription, &format!("p Started p-{new}")).await;
        assert_eq!(event.source, Source::Inspection);
        let took = took + until(&pleg, || is_confirmed(&pleg)).await;
        let most = if outage < 5 * SECOND {
            3 * SECOND
        } else {
            MINUTE + 3 * SECOND
        };
        assert!(took <= most, "{took:?} after {outage:?}");
        assert_eq!(degraded(&pleg), [""; 0]);
        node.put_and_emit(exited("p", &seen, 0), EventType::Stopped);
        let event = expect(&mut subscription, &format!("p Died p-{seen}")).await;
        assert_eq!(event.source, Source::Stream);
    }
    pass(&pleg, 5 * MINUTE).await;
    assert_eq!(pleg.health().current().period, MINUTE);
    // The generator does not count an exit during an outage of the stream as a missed event.
    assert_eq!(pleg.counters().missed.total(), 0);
}

/// Upstream: a full channel makes the kubelet unhealthy, and an unhealthy kubelet stops reading from the channel. So
/// the channel stays full, and the node NotReady, until a restart.
#[tokio::test(start_paused = true)]
async fn full_upstream_event_channel_does_not_make_the_node_unready() {
    let node = FakeRuntime::new();
    for pod in 0..30 {
        let uid = format!("p{pod}");
        node.put(ready(&uid));
        (0..50).for_each(|c| node.put(running(&uid, &format!("c{c}"))));
    }
    let mut builder = Pleg::builder(node.clone());
    let (mut fifo, mut ours) = (builder.upstream_fifo(), builder.subscribe());
    let pleg = builder.spawn().unwrap();
    soon(pleg.wait_until_synced()).await.unwrap();
    // For ten minutes nobody reads `fifo`. Then this loop reads it while the node is ready, as a kubelet would.
    pass(&pleg, 10 * MINUTE).await;
    let mut taken = 0;
    while pleg.health().ready().is_ok() && fifo.try_next().is_some() {
        taken += 1;
    }
    assert_eq!(taken, 1_000, "as many as upstream's channel holds");
    assert_eq!(pleg.health().ready(), Ok(()));
    assert!(pleg.health().degraded().is_empty());
    assert_eq!(drain(&mut ours).len(), 30 * 51, "our own loses none");
    // The queue accepts later events again.
    node.put(exited("p0", "c0", 0));
    soon(pleg.relist_now()).await.unwrap();
    pass(&pleg, SECOND).await;
    let data = fifo.try_next().and_then(|event| event.data);
    assert_eq!(data, Some("p0-c0".into()));
}

/// Upstream: to fall back to lists, the kubelet starts a list worker while the previous one may still run.
#[tokio::test(start_paused = true)]
async fn fallback_to_polling_never_runs_two_lists_at_once() {
    let node = FakeRuntime::new();
    node.run_pod("p");
    // Each of the two calls of a list is delayed.
    node.delay(Op::List, 100 * MS);
    let often = ReconnectSettings {
        subscribes_per_minute: 600,
        backoff_to: 100 * MS,
        ..ReconnectSettings::default()
    };
    let pleg = Pleg::builder(node.clone())
        .reconnect(often)
        .spawn()
        .unwrap();
    soon(pleg.wait_until_synced()).await.unwrap();
    for n in 0..40 {
        until(&pleg, || node.streams() == 1).await;
        // Breaks the stream in every phase of a list.
        pass(&pleg, 5 * MS * n).await;
        node.break_streams();
        if n % 4 == 0 {
            pass(&pleg, 3 * SECOND).await;
        }
    }
    let lists = node.times(&Op::List);
    assert!(lists.len() >= 40);
    let apart = lists.windows(2).map(|w| w[1].since(w[0])).min();
    assert!(apart >= Some(200 * MS), "{apart:?}");
}

/// Upstream: a list inside the event watcher's loop blocks the stream.
#[tokio::test(start_paused = true)]
async fn hung_list_does_not_stall_the_stream() {
    let node = FakeRuntime::new();
    node.run_pod("p");
    let pleg = synced(&node, Settings::default()).await;
    let mut subscription = pleg.subscribe();
    until(&pleg, || is_confirmed(&pleg)).await;
    node.hang(Op::List);
    let lists = node.count(&Op::List);
    node.break_streams();
    let took = until(&pleg, || node.streams() == 1).await;
    assert!(took <= 100 * MS, "{took:?}");
    until(&pleg, || node.count(&Op::List) > lists).await;
    let at = pleg.now();
    node.put_and_emit(exited("p", "c", 9), EventType::Stopped);
    let event = expect(&mut subscription, "p Died p-c").await;
    assert_eq!(event.source, Source::Stream);
    assert!(is_now(&pleg, Some(at)));
    assert!(pleg.health().current().list_in_flight.is_some());
}

/// Upstream: the metric last_seen is set to the present whenever health is checked, even if no list succeeded.
#[tokio::test(start_paused = true)]
async fn last_seen_metric_is_the_time_of_the_last_list() {
    let (recorder, snapshotter) = recorder();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let last_seen = || take_gauge(&snapshotter, "pleg_last_list_timestamp_seconds", None);
    let node = FakeRuntime::new();
    node.run_pod("p");
    let pleg = synced(&node, polling()).await;
    assert!(last_seen() > 1e9, "in Unix seconds");
    node.hang(Op::List);
    let lists = node.count(&Op::List);
    until(&pleg, || node.count(&Op::List) > lists).await;
    let last = pleg.health().current().last_list;
    last_seen();
    let mut unready = false;
    for _ in 0..200 {
        pass(&pleg, SECOND).await;
        unready |= pleg.health().ready().is_err();
        assert!(last_seen() < 1.0, "nothing has written it");
        assert_eq!(pleg.health().current().last_list, last);
    }
    assert!(unready, "the node is not seen, and it shows");
    node.release(&Op::List);
    until(&pleg, || pleg.health().ready().is_ok()).await;
    assert!(last_seen() > 1e9);
}
