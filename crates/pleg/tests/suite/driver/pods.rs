//! Tests the handles to one pod.

use futures::FutureExt as _;
use pleg::core::{CallErrorKind, EventType, Settings};

use crate::support::{FakeRuntime, Op, SECOND, exited, next, not_ready, pass, ready, soon, synced};

/// Several announcements complete one call of `changed`, and the view shows all of them.
#[tokio::test(start_paused = true)]
async fn pod_handle_reports_changes_of_its_pod_only() {
    let node = FakeRuntime::new();
    let pleg = synced(&node, Settings::default()).await;
    let mut p = pleg.pod(&"p".into());
    let mut of_all = pleg.subscribe();
    assert!(!p.view().status.exists());
    assert!(p.changed().now_or_never().is_none(), "Synced is no change");
    for uid in ["q", "p"] {
        node.put_and_emit(ready(uid), EventType::Started);
    }
    pass(&pleg, SECOND).await;
    node.put_and_emit(not_ready("p"), EventType::Stopped);
    for _ in 0..3 {
        next(&mut of_all).await;
    }
    assert!(soon(p.changed()).await);
    assert!(p.view().status.active_sandbox().is_none());
    assert!(p.changed().now_or_never().is_none(), "of q, or twice");
}

/// Dropping the future of `changed` loses no change. The handle also reports the last change before the generator ends.
#[tokio::test(start_paused = true)]
async fn pod_handle_reports_last_change_before_the_generator_ended() {
    let node = FakeRuntime::new();
    node.run_pod("p");
    let pleg = synced(&node, Settings::default()).await;
    let mut p = pleg.pod(&"p".into());
    let mut other = p.subscribe();
    assert!(p.changed().now_or_never().is_none());
    node.put_and_emit(exited("p", "c", 1), EventType::Stopped);
    next(&mut other).await;
    soon(pleg.shutdown()).await;
    assert!(soon(p.changed()).await);
    assert!(!soon(p.changed()).await);
}

#[tokio::test(start_paused = true)]
async fn pod_handle_returns_a_view_newer_than_an_instant() {
    let node = FakeRuntime::new();
    node.run_pod("p");
    let pleg = synced(&node, Settings::default()).await;
    let p = pleg.pod(&"p".into());
    let now = pleg.now();
    let view = p.newer_than(now, SECOND).await.unwrap();
    assert!(view.as_of >= Some(now) && view.status.uid == *p.uid());
    let view = p.details_newer_than(pleg.now(), SECOND).await.unwrap();
    assert!(view.details_as_of >= Some(now));
    node.fail(Op::status("p-c"), CallErrorKind::NotFound);
    assert!(p.details_newer_than(pleg.now(), SECOND).await.is_err());
}

/// The first status call starts before the container exits, so its answer has no details of the exit.
#[tokio::test(start_paused = true)]
async fn details_newer_than_reads_again_if_a_container_exits_meanwhile() {
    let node = FakeRuntime::new();
    node.run_pod("p");
    let pleg = synced(&node, Settings::default()).await;
    node.delay(Op::status("p-c"), SECOND);
    let (p, after) = (pleg.pod(&"p".into()), pleg.now());
    let read = tokio::spawn(async move { p.details_newer_than(after, 5 * SECOND).await });
    pass(&pleg, SECOND / 2).await;
    node.put_and_emit(exited("p", "c", 1), EventType::Stopped);
    let view = read.await.unwrap().unwrap();
    assert!(view.details_as_of > Some(after));
}
