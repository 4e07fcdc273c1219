//! Upstream's tests of the pod cache, K1 to K8 (container/cache_test.go of Kubernetes 1.36.2), on the
//! port.
use std::pin::pin;
use std::sync::Arc;

use futures::{FutureExt, poll};
use pleg_core::{CallError, CallErrorKind, PodUid};
use rivals::{Answer, Cache, PodStatus, Time};

const SECOND: i64 = 1_000_000_000;

/// The reference time of the tests, plus that many seconds.
fn t(seconds: i64) -> Time {
    Time::from_nanos(1_700_000_000 * SECOND + seconds * SECOND)
}

fn pod() -> PodUid {
    PodUid::from("p")
}

fn status(name: &str) -> Arc<PodStatus> {
    let mut status = PodStatus::empty(pod());
    status.name = name.into();
    Arc::new(status)
}

fn set(cache: &Cache, at: Time) {
    assert!(cache.set(&pod(), status("p"), None, at));
}

/// `getIfNewerThan`: the status, if no wait is necessary.
fn if_newer(cache: &Cache, uid: &PodUid, after: Time) -> Option<Answer> {
    cache.newer_than(uid, after).now_or_never()
}

/// K1, TestCacheNotInitialized: without a global timestamp, no status is newer than any time.
#[test]
fn k1_cache_not_initialized() {
    let cache = Cache::new(false);
    assert_eq!(if_newer(&cache, &pod(), Time::ZERO), None);
    assert_eq!(if_newer(&cache, &pod(), t(0)), None);
}

/// K2, TestGetIfNewerThanWhenPodExists: (global, modified) against t.
#[test]
fn k2_get_if_newer_than_when_pod_exists() {
    for (global, modified, newer) in [(1, 0, true), (1, -10, true), (-1, 3, true), (-1, -1, false)]
    {
        let cache = Cache::new(false);
        cache.update_time(t(global));
        set(&cache, t(modified));
        let got = if_newer(&cache, &pod(), t(0));
        assert_eq!(
            got.is_some(),
            newer,
            "global {global:+}, modified {modified:+}"
        );
    }
}

/// K3, TestGetPodNewerThanWhenPodDoesNotExist: the default status for a time before the global
/// timestamp, none for a time after it.
#[test]
fn k3_get_newer_than_when_pod_does_not_exist() {
    let cache = Cache::new(false);
    cache.update_time(t(0));
    let empty = if_newer(&cache, &pod(), t(-1)).unwrap();
    assert_eq!(*empty.status, PodStatus::empty(pod()));
    assert_eq!(if_newer(&cache, &pod(), t(1)), None);
}

/// K4, TestCacheSetAndGet: the status and the error that were set, separately or together, with the
/// zero time.
#[test]
fn k4_cache_set_and_get() {
    let error = || CallError::new("ContainerStatus", CallErrorKind::Failed, "test error");
    for (name, error) in [
        ("one", None),
        ("two", Some(error())),
        ("three", Some(error())),
    ] {
        let cache = Cache::new(false);
        assert!(cache.set(&pod(), status(name), error.clone(), Time::ZERO));
        let expected = Answer {
            status: status(name),
            error,
        };
        assert_eq!(cache.get(&pod()), expected);
    }
}

/// K5, TestCacheGetPodDoesNotExist, and K6, TestDelete: the default status and no error.
#[test]
fn k5_k6_get_and_delete() {
    let cache = Cache::new(false);
    let empty = Answer {
        status: Arc::new(PodStatus::empty(pod())),
        error: None,
    };
    assert_eq!(cache.get(&pod()), empty);
    set(&cache, t(0));
    assert_ne!(cache.get(&pod()), empty);
    cache.delete(&pod());
    assert_eq!(cache.get(&pod()), empty);
}

/// K7, TestRegisterNotification: a waiter for g+1 is notified by a Set with the timestamp g+1, and a
/// waiter for g+2 by the global timestamp g+2. A later waiter is not answered by an equal timestamp.
#[tokio::test]
async fn k7_register_notification() {
    let cache = Cache::new(false);
    cache.update_time(t(0));
    let uid = pod();
    let mut first = pin!(cache.newer_than(&uid, t(1)));
    assert!(poll!(first.as_mut()).is_pending());
    set(&cache, t(1));
    assert!(poll!(first).is_ready());
    assert_eq!(if_newer(&cache, &uid, t(1)), None);
    let mut second = pin!(cache.newer_than(&uid, t(2)));
    assert!(poll!(second.as_mut()).is_pending());
    cache.update_time(t(2));
    assert!(poll!(second).is_ready());
}

/// K8, TestGetNewerThan, its five cases: blocked, still blocked at min − 1 s, unblocked at
/// min + 1 s with the correct id, and afterwards answered at once.
#[tokio::test]
async fn k8_get_newer_than() {
    type Act = fn(&Cache, Time);
    let observed: Act = |cache, at| cache.set_observed(&pod(), at);
    let listed: Act = |cache, at| cache.update_time(at);
    let cases: [(&str, bool, Act); 5] = [
        ("set", true, set),
        ("observed", true, observed),
        ("listed", true, listed),
        ("missing: set", false, set),
        ("missing: listed", false, listed),
    ];
    for (case, exists, act) in cases {
        let cache = Cache::new(false);
        cache.update_time(t(0));
        if exists {
            set(&cache, t(0));
        }
        let (uid, min) = (pod(), 10);
        let mut waits = pin!(cache.newer_than(&uid, t(min)));
        assert!(poll!(waits.as_mut()).is_pending(), "{case}");
        act(&cache, t(min - 1));
        assert!(poll!(waits.as_mut()).is_pending(), "{case}");
        act(&cache, t(min + 1));
        let answer = waits.now_or_never().unwrap();
        assert_eq!(answer.status.uid, uid, "{case}");
        assert!(if_newer(&cache, &uid, t(min)).is_some(), "{case}");
    }
}

/// With the feature gate EventedPLEG, a status with an older timestamp is rejected, and one with an
/// equal timestamp overwrites the entry. Without it, every status overwrites the entry.
#[test]
fn older_status_is_rejected_with_gate() {
    for gate in [true, false] {
        let cache = Cache::new(gate);
        set(&cache, t(0));
        let accepted = cache.set(&pod(), status("older"), None, t(-1));
        assert_eq!(accepted, !gate);
        assert!(cache.set(&pod(), status("equal"), None, t(0)));
        assert_eq!(&*cache.get(&pod()).status.name, "equal");
    }
}
