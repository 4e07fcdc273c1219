//! How misses and slow lists determine the relist period (invariant 10).

use pleg_core::EventType;

use super::{MINUTE, ended, on_containerd, period};
use crate::script::{Script, exited, ready, s};
use EventType::{Started, Stopped};

/// Two misses and 1 %: the node is polled until the last ten minutes contain fewer. If the runtime
/// sends each event to one subscriber only, a second subscriber is named as the likely cause.
#[test]
fn a3_lossy_stream_is_polled_for_ten_minutes() {
    let mut t = on_containerd(&["c", "d"]);
    t.event(Started, "s", s(), &[]);
    t.node[1] = ended("c", 0, "Completed");
    t.node[2] = ended("d", 0, "Completed");
    t.relist();
    t.settle();
    t.run(8_000);
    let health = t.health();
    assert_eq!((health.loss.missed, health.period.as_secs()), (2, 1));
    let lossy = health.degraded(t.now());
    let lossy = lossy.iter().find(|d| d.as_str() == "stream_lossy");
    let text = lossy.expect("it is reported").to_string();
    assert!(
        text.contains("another subscriber is the likely cause"),
        "{text}"
    );
    let lists = t.machine.counters().lists;
    t.run(9 * MINUTE);
    assert!(t.machine.counters().lists - lists > 9 * 50, "polled");
    t.run(5 * MINUTE);
    assert_eq!(period(&t), 60);
    assert!(!t.degraded().contains(&"stream_lossy"));
}

/// Lists without a miss do not lengthen the period while an earlier list waits for its verdict.
#[test]
fn a3_list_does_not_lengthen_the_period_while_an_event_is_pending() {
    let mut t = on_containerd(&["c"]);
    t.node[1] = ended("c", 0, "Completed");
    t.relist();
    t.settle();
    let before = period(&t);
    for _ in 0..4 {
        t.run(1_000);
        t.relist();
        t.settle();
        assert_eq!(period(&t), before);
    }
    t.event(Stopped, "c", s(), &[exited("c", "p", 0, "Completed")]);
    assert!(period(&t) > before);
}

/// Every list succeeds and takes a minute and a second.
#[test]
fn a12_lists_of_a_minute_leave_the_node_ready() {
    let mut t = Script::new();
    t.list(&[]);
    t.subscribe();
    t.event(Started, "s", s(), &[]);
    t.node = vec![ready()];
    let (mut since, mut listed) = (None, false);
    for second in 0..3_600_u64 {
        t.pass(1_000);
        if t.lists_wanted() > 0 && second - *since.get_or_insert(second) >= 61 {
            t.list(&[ready()]);
            while t.inspection_wanted().is_some() {
                t.inspect(&[ready()], &[]);
            }
            (since, listed) = (None, true);
        }
        let ready = t.ready();
        assert!(!listed || ready.is_ok(), "{second} s: {ready:?}");
    }
}
