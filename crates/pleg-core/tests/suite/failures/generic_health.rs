//! C1, C10 and C11: the health of the generic PLEG.

use std::time::Duration;

use pleg_core::{CallErrorKind, NotReady, Settings};

use super::life::polled;
use crate::script::Script;

/// Upstream: "PLEG is not healthy" says for how long, not why. (k#45419, k#61117, k#77728, k#72533,
/// containerd#9770)
///
/// Here: A slow list, a failed list, hung pods and failing pods are distinguished; the error is
/// stored with the pod. (invariant 12)
#[test]
fn c1_health_says_what_is_wrong() {
    let mut t = polled();
    assert_eq!(t.degraded(), [""; 0]);
    // A list that does not answer.
    t.pass(1_000);
    assert_eq!(t.lists_wanted(), 1);
    t.pass(3_000);
    assert_eq!(t.degraded(), ["list_slow"]);
    t.list_fails(CallErrorKind::DeadlineExceeded);
    assert_eq!(t.degraded(), ["list_failed"]);
    let error = t.health().list_error.expect("it failed");
    assert_eq!(
        (error.operation, error.kind),
        ("List", CallErrorKind::DeadlineExceeded)
    );
    t.run(2_000);
    assert_eq!(t.degraded(), [""; 0]);
    // A pod that does not answer, and one that fails.
    t.wait("p", t.now());
    t.pass(2_999);
    while t.lists_wanted() > 0 {
        t.answer_list();
    }
    assert_eq!(t.degraded(), ["pods_hung"]);
    t.inspection_fails(&[]);
    assert_eq!(t.degraded(), ["pods_failing"]);
    assert!(t.get("p").status.error.is_some());
    assert_eq!(t.ready(), Ok(()));
}

/// Upstream: Period and threshold are constants. (k#45278, k#106047, k#107916, k#58279, KEP-2903)
///
/// Here: Both are settings and are validated against each other.
#[test]
fn c10_period_and_threshold_are_settings() {
    let mut t = Script::polling(|s| {
        s.relist_period = Duration::from_millis(2_500);
        s.unready_after = Duration::from_secs(70);
    });
    t.settle();
    let last = t.now();
    t.pass(2_498);
    assert_eq!(t.lists_wanted(), 0);
    t.pass(3);
    assert_eq!(t.lists_wanted(), 1);
    for _ in 0..67_400 {
        t.pass(1);
        if t.lists_wanted() > 0 {
            t.list_fails(CallErrorKind::Unavailable);
        }
    }
    assert_eq!(t.ready(), Ok(()));
    t.pass(200);
    let why = t.ready().expect_err("nothing was listed").to_string();
    assert!(why.ends_with(" ago; threshold is 1m10s"), "{why}");
    assert!(t.now().since(last) > Duration::from_secs(70));
    let mut senseless = Settings::default();
    senseless.unready_after = senseless.relist_period_max;
    let refused = senseless.validate().expect_err("it would flap");
    assert_eq!(refused.setting, "unready_after");
}

/// Upstream: The time of the last list was once set before the list had succeeded, so a hanging
/// runtime looked alive. (k#45496)
///
/// Here: Only a complete list sets it, to its begin. (invariant 12)
#[test]
fn c11_only_a_complete_list_counts() {
    let mut t = polled();
    let last = t.health().last_list;
    assert!(last.is_some());
    for n in 0..30 {
        assert!(t.lists_wanted() <= 1);
        t.pass(7_000);
        if n % 3 == 2 {
            t.list_fails(CallErrorKind::Unavailable);
        }
        assert_eq!(t.health().last_list, last);
        let silent = t.now().since(last.expect("it was listed"));
        assert_eq!(
            t.ready().is_ok(),
            silent <= Duration::from_secs(180),
            "{silent:?}"
        );
    }
    assert!(matches!(t.ready(), Err(NotReady::Stale { .. })));
    t.run(1_500);
    assert_eq!(t.ready(), Ok(()));
    // However long it took, it counts from its begin.
    t.relist();
    let asked = t.now();
    t.pass(5_000);
    t.settle();
    let listed = t.health().last_list;
    assert!(listed >= Some(asked) && listed < Some(asked.after(Duration::from_millis(1))));
    assert_eq!(Script::new().ready(), Err(NotReady::NeverListed));
}
