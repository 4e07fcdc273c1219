//! Upstream's tests of the generic PLEG, those of G1 to G18 that apply to the port (generic_test.go
//! of Kubernetes 1.36.2).
use std::time::Duration;

use crate::support::{
    DOWN, FakeRuntime, MINUTE, MS, Op, SECOND, container, drain, exited, sandbox, sleep,
    wait_until, with_ips, with_timeout,
};
use pleg_core::{Report, ReportedState};
use rivals::{Fifo, Generic, GenericSettings, Subject};

fn without_timer(node: &FakeRuntime) -> (Generic<FakeRuntime>, Fifo) {
    Generic::without_timer(node.clone(), GenericSettings::default())
}

/// Relists and returns the lifecycle events, sorted: upstream has no order between pods.
async fn relist(generic: &Generic<FakeRuntime>, fifo: &mut Fifo) -> Vec<String> {
    generic.relist().await;
    let mut all = drain(fifo);
    all.sort();
    all
}

/// Sets the node's state of G1 or, with `later`, of G3. `create` makes containers, or sandboxes
/// (G12).
fn set_node_state(
    node: &FakeRuntime,
    create: fn(&str, &str, ReportedState) -> Report,
    later: bool,
) {
    let (running, exited, unknown) = (
        ReportedState::Running,
        ReportedState::Exited,
        ReportedState::Unknown,
    );
    if later {
        node.remove("p1-c1");
        node.put(create("p1", "c2", exited));
        node.put(create("p1", "c3", running));
        node.remove("p2-c1");
        node.put(create("p2", "c4", running));
    } else {
        node.put(create("p1", "c1", exited));
        node.put(create("p1", "c2", running));
        node.put(create("p1", "c3", unknown));
        node.put(create("p2", "c1", exited));
    }
}

/// G1 to G3, TestRelisting, and G12 with sandboxes.
#[tokio::test(start_paused = true)]
async fn g1_g2_g3_g12_relisting() {
    for create in [container, sandbox] {
        let node = FakeRuntime::new();
        let (generic, mut fifo) = without_timer(&node);
        set_node_state(&node, create, false);
        let first = ["p1 Died p1-c1", "p1 Started p1-c2", "p2 Died p2-c1"];
        assert_eq!(relist(&generic, &mut fifo).await, first);
        assert!(relist(&generic, &mut fifo).await.is_empty());
        set_node_state(&node, create, true);
        let second = [
            "p1 Died p1-c2",
            "p1 Removed p1-c1",
            "p1 Started p1-c3",
            "p2 Removed p2-c1",
            "p2 Started p2-c4",
        ];
        assert_eq!(relist(&generic, &mut fifo).await, second);
    }
}

/// G4, TestEventChannelFull: five events for a channel with a capacity of four. Nothing blocks, and
/// the fifth event is lost.
#[tokio::test(start_paused = true)]
async fn g4_event_channel_full() {
    let node = FakeRuntime::new();
    let settings = GenericSettings {
        capacity: 4,
        ..GenericSettings::default()
    };
    let (generic, mut fifo) = Generic::without_timer(node.clone(), settings);
    set_node_state(&node, container, false);
    assert_eq!(relist(&generic, &mut fifo).await.len(), 3);
    set_node_state(&node, container, true);
    assert_eq!(relist(&generic, &mut fifo).await.len(), 4);
    assert_eq!(generic.discarded(), 1);
    assert!(relist(&generic, &mut fifo).await.is_empty());
}

/// G5 and G6, TestDetectingContainerDeaths: containers and pods that disappear have died.
#[tokio::test(start_paused = true)]
async fn g5_g6_detecting_container_deaths() {
    for relists in [1, 3] {
        let node = FakeRuntime::new();
        let (generic, mut fifo) = without_timer(&node);
        node.put(container("p", "c1", ReportedState::Running));
        node.put(container("p", "c2", ReportedState::Running));
        node.put(container("p", "c3", ReportedState::Exited));
        for _ in 0..relists {
            relist(&generic, &mut fifo).await;
        }
        node.remove("p-c2");
        node.remove("p-c3");
        let gone = ["p Died p-c2", "p Removed p-c2", "p Removed p-c3"];
        assert_eq!(relist(&generic, &mut fifo).await, gone);
        for _ in 1..relists {
            assert!(relist(&generic, &mut fifo).await.is_empty());
        }
        node.remove("p-c1");
        let gone = ["p Died p-c1", "p Removed p-c1"];
        assert_eq!(relist(&generic, &mut fifo).await, gone);
    }
}

/// G7 and G8, TestRelistWithCache: if the inspection of a pod fails, the error is cached and no event
/// is sent. The next relist inspects this pod again, and no other.
#[tokio::test(start_paused = true)]
async fn g7_g8_relist_with_cache() {
    let node = FakeRuntime::new();
    let (generic, mut fifo) = without_timer(&node);
    node.run_pod("p0");
    node.run_pod("p1");
    node.fail(Op::pod("p1"), DOWN);
    let started = ["p0 Started p0-c", "p0 Started p0-s"];
    assert_eq!(relist(&generic, &mut fifo).await, started);
    let failed = generic.get(&"p1".into());
    assert!(failed.error.is_some() && failed.status.is_empty());
    let before = generic.get(&"p0".into());
    assert!(before.error.is_none() && !before.status.is_empty());
    node.succeed(&Op::pod("p1"));
    let started = ["p1 Started p1-c", "p1 Started p1-s"];
    assert_eq!(relist(&generic, &mut fifo).await, started);
    assert_eq!(generic.get(&"p1".into()).error, None);
    let same = generic.get(&"p0".into()).status;
    assert!(
        std::sync::Arc::ptr_eq(&same, &before.status),
        "not inspected"
    );
}

/// TestGetPodStatusWithNotFoundError: this is not an error.
#[tokio::test(start_paused = true)]
async fn container_removed_before_its_status_call_is_omitted() {
    let node = FakeRuntime::new();
    let (generic, _fifo) = without_timer(&node);
    node.run_pod("p");
    node.delay(Op::pod("p"), SECOND);
    let removal = async {
        sleep(&generic, 500 * MS).await;
        node.remove("p-c");
    };
    tokio::join!(generic.relist(), removal);
    let answer = generic.get(&"p".into());
    assert_eq!(answer.error, None);
    assert_eq!(answer.status.sandboxes.len(), 1);
    assert!(answer.status.containers.is_empty());
}

/// G9, TestRemoveCacheEntry.
#[tokio::test(start_paused = true)]
async fn g9_remove_cache_entry() {
    let node = FakeRuntime::new();
    let (generic, mut fifo) = without_timer(&node);
    node.put(container("p", "c", ReportedState::Running));
    relist(&generic, &mut fifo).await;
    node.remove("p-c");
    relist(&generic, &mut fifo).await;
    let answer = generic.get(&"p".into());
    assert!(answer.status.is_empty() && answer.error.is_none());
    assert!(!generic.cache().contains(&"p".into()));
}

/// G10, TestHealthy: unhealthy before the first relist, healthy for three minutes after each.
#[tokio::test(start_paused = true)]
async fn g10_healthy() {
    let node = FakeRuntime::new();
    let (generic, _fifo) = without_timer(&node);
    let never = "pleg has yet to be successful";
    assert_eq!(generic.healthy().unwrap_err().to_string(), never);
    sleep(&generic, 10 * MINUTE).await;
    assert_eq!(generic.healthy().unwrap_err().to_string(), never);
    generic.relist().await;
    sleep(&generic, MINUTE).await;
    assert_eq!(generic.healthy(), Ok(()));
    // A failed relist does not count (C11).
    node.fail(Op::List, DOWN);
    generic.relist().await;
    sleep(&generic, 2 * MINUTE + MS).await;
    let text = generic.healthy().unwrap_err().to_string();
    assert!(text.starts_with("pleg was last seen active 180."), "{text}");
    assert!(text.ends_with("ago; threshold is 180s"), "{text}");
}

/// G11, TestReinspect: a request causes one inspection and a PodSync. It stays pending if the
/// inspection fails. Without a request, nothing is inspected.
#[tokio::test(start_paused = true)]
async fn g11_reinspect() {
    let node = FakeRuntime::new();
    let (generic, mut fifo) = without_timer(&node);
    node.run_pod("p");
    relist(&generic, &mut fifo).await;
    let uid = "p".into();
    let before = generic.get(&uid).status;
    let inspected = || !std::sync::Arc::ptr_eq(&generic.get(&uid).status, &before);
    assert!(relist(&generic, &mut fifo).await.is_empty() && !inspected());
    node.fail(Op::pod("p"), DOWN);
    generic.request_reinspect(&uid);
    assert!(relist(&generic, &mut fifo).await.is_empty());
    assert!(generic.get(&uid).error.is_some());
    node.succeed(&Op::pod("p"));
    assert_eq!(relist(&generic, &mut fifo).await, ["p PodSync"]);
    assert!(inspected() && generic.get(&uid).error.is_none());
    assert!(relist(&generic, &mut fifo).await.is_empty());
}

/// G13, TestRelistIPChange: a terminated pod keeps its addresses.
#[tokio::test(start_paused = true)]
async fn g13_addresses_are_kept() {
    let node = FakeRuntime::new();
    let (generic, mut fifo) = without_timer(&node);
    let ready = sandbox("p", "s", ReportedState::Running);
    node.put(with_ips(ready, &["10.0.0.1", "fd00::1"]));
    node.put(container("p", "c", ReportedState::Running));
    relist(&generic, &mut fifo).await;
    let ips = generic.get(&"p".into()).status.ips.clone();
    assert_eq!(ips.len(), 2);
    node.put(sandbox("p", "s", ReportedState::Exited));
    node.put(exited("p", "c", 0));
    relist(&generic, &mut fifo).await;
    assert_eq!(generic.get(&"p".into()).status.ips, ips);
}

/// G15, TestWorkerLoop: a relist of a pod on demand answers the waiters of this pod only. Without
/// the feature gate (before 1.36), they wait for the next relist of the node.
#[tokio::test(start_paused = true)]
async fn g15_on_demand() {
    for on_demand in [true, false] {
        let node = FakeRuntime::new();
        node.run_pod("p1");
        node.run_pod("p2");
        let settings = GenericSettings {
            period: 2 * SECOND,
            on_demand,
            ..GenericSettings::default()
        };
        let (generic, mut fifo) = Generic::start(node.clone(), settings);
        sleep(&generic, SECOND).await;
        drain(&mut fifo);
        let now = generic.clock().now();
        generic.request_relist(&"p1".into());
        let waited = |uid: &'static str| {
            let generic = &generic;
            async move {
                with_timeout(generic.newer_than(&uid.into(), now)).await;
                generic.clock().now().since(now)
            }
        };
        let (first, second): (Duration, Duration) = tokio::join!(waited("p1"), waited("p2"));
        assert_eq!(first <= 3 * MS, on_demand, "{first:?}");
        assert!((900 * MS..=1005 * MS).contains(&second), "{second:?}");
        assert_eq!(node.count(&Op::pod("p1")), usize::from(on_demand));
        assert!(drain(&mut fifo).is_empty());
        with_timeout(generic.shutdown()).await;
    }
}

/// G16 and G17, TestWorkerLoop: during the relist of a pod, the relist of the node becomes due, and
/// another pod's relist is requested. The node is relisted first; the older request is dropped.
#[tokio::test(start_paused = true)]
async fn g16_g17_request_served_by_node_relist_is_dropped() {
    let node = FakeRuntime::new();
    node.run_pod("p1");
    node.run_pod("p2");
    let settings = GenericSettings {
        period: 2 * SECOND,
        ..GenericSettings::default()
    };
    let (generic, _fifo) = Generic::start(node.clone(), settings);
    sleep(&generic, SECOND).await;
    node.delay(Op::pod("p1"), 3 * SECOND);
    generic.request_relist(&"p1".into());
    sleep(&generic, 100 * MS).await;
    let before = generic.clock().now();
    generic.request_relist(&"p2".into());
    with_timeout(generic.newer_than(&"p2".into(), before)).await;
    assert_eq!(node.count(&Op::List), 2);
    sleep(&generic, SECOND).await;
    assert_eq!(node.count(&Op::pod("p2")), 0);
    assert_eq!(node.count(&Op::pod("p1")), 1);
    with_timeout(generic.shutdown()).await;
}

/// G18, TestWorkerLoop: the relist of the pod serves a request to reinspect, at once.
#[tokio::test(start_paused = true)]
async fn g18_reinspected_on_demand() {
    let node = FakeRuntime::new();
    node.run_pod("p");
    let settings = GenericSettings {
        period: MINUTE,
        ..GenericSettings::default()
    };
    let (generic, mut fifo) = Generic::start(node.clone(), settings);
    sleep(&generic, SECOND).await;
    drain(&mut fifo);
    generic.request_reinspect(&"p".into());
    generic.request_relist(&"p".into());
    let announced = || drain(&mut fifo) == ["p PodSync"];
    assert!(wait_until(&generic, announced).await.unwrap() <= 3 * MS);
    assert_eq!(node.count(&Op::List), 1);
    with_timeout(generic.shutdown()).await;
}
