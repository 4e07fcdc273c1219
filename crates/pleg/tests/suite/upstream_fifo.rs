//! Upstream's scenario G4 (TestEventChannelFull, generic_test.go of Kubernetes 1.36.2): more events than the channel
//! holds. Here they go to `Fifo`, which behaves like upstream's channel, and to subscriptions.
use std::collections::BTreeSet;

use crate::support::{
    FakeRuntime, MINUTE, SECOND, container, drain, exited, pass, rarely, sandbox, soon,
};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use pleg::core::{LifecycleType, ReportedState};
use pleg::{Fifo, Pleg};

/// The capacity of upstream's channel (plegChannelCapacity).
const CAPACITY: usize = 1000;
const PODS: usize = 21;
const CONTAINERS: usize = 50;

/// Each pod has a sandbox and 50 containers.
fn deploy(node: &FakeRuntime, shown: ReportedState) {
    for pod in 0..PODS {
        let uid = format!("p{pod}");
        node.put(sandbox(&uid, "s", shown));
        for c in 0..CONTAINERS {
            let name = format!("c{c}");
            node.put(match shown {
                ReportedState::Exited => exited(&uid, &name, 0),
                _ => container(&uid, &name, shown),
            });
        }
    }
}

fn take(fifo: &mut Fifo) -> Vec<String> {
    std::iter::from_fn(|| fifo.try_next())
        .map(|e| {
            let what = e.event.as_str().trim_start_matches("Container");
            let id = e.data.expect("no PodSync here");
            format!("{} {what} {id}", e.uid)
        })
        .collect()
}

/// Upstream's G4, TestEventChannelFull: if five events are sent to a channel of four, exactly four of them arrive, and
/// the sender does not block. Here 1071 events are sent to the queue of 1000, and 71 are counted as discarded.
///
/// Deviation (invariant 9): a subscription that keeps up gets all events, and one that lags beyond its bound misses no
/// Died or Removed.
#[tokio::test(start_paused = true)]
async fn full_event_channel_drops_deaths_and_removals_that_subscriptions_keep() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let discarded = || {
        let all = snapshotter.snapshot().into_vec().into_iter();
        let mut of_name = all.filter(|(key, ..)| key.key().name() == "kubelet_pleg_discard_events");
        match of_name.next() {
            Some((.., DebugValue::Counter(count))) => count,
            _ => 0,
        }
    };
    let node = FakeRuntime::new();
    deploy(&node, ReportedState::Running);
    let mut builder = Pleg::builder(node.clone()).settings(rarely());
    let mut fifo = builder.upstream_fifo();
    let (mut keeps_up, mut lags) = (builder.subscribe(), builder.subscribe());
    let pleg = builder.spawn().unwrap();
    soon(pleg.wait_until_synced()).await.unwrap();

    let all: usize = PODS * (CONTAINERS + 1);
    let announced = drain(&mut keeps_up);
    assert_eq!(announced.len(), all);
    assert!(announced.iter().all(|t| t.contains(" Started ")));
    let beyond = (all - CAPACITY) as u64;
    assert_eq!(discarded(), beyond);

    // Neither `fifo` nor `lags` is read while all containers exit and are removed.
    deploy(&node, ReportedState::Exited);
    soon(pleg.relist_now()).await.unwrap();
    pass(&pleg, SECOND).await;
    assert_eq!(drain(&mut keeps_up).len(), all);
    for pod in 0..PODS {
        let names = (0..CONTAINERS).map(|c| format!("c{c}"));
        names
            .chain(["s".to_owned()])
            .for_each(|name| node.remove(&format!("p{pod}-{name}")));
    }
    soon(pleg.relist_now()).await.unwrap();
    assert_eq!(drain(&mut keeps_up).len(), all);
    // Like upstream's channel, `fifo` has the first thousand events in order, and has dropped the rest.
    assert_eq!(take(&mut fifo), announced[..CAPACITY]);
    // The subscription lost no Died or Removed and got no `Lagged` (`drain` would fail on it).
    let got: BTreeSet<String> = drain(&mut lags).into_iter().collect();
    for started in &announced {
        for what in [
            LifecycleType::ContainerDied,
            LifecycleType::ContainerRemoved,
        ] {
            let what = what.as_str().trim_start_matches("Container");
            let end = started.replace("Started", what);
            assert!(got.contains(&end), "{end} is missing");
        }
    }
    // When `fifo` has room again, it accepts the next event.
    node.run_pod("late");
    pass(&pleg, 2 * MINUTE).await;
    assert_eq!(
        take(&mut fifo),
        ["late Started late-s", "late Started late-c"]
    );
}
