//! Tests that memory and calls are bounded, and that the work for an input of size n is at most of order n log n.

use pleg_core::CallErrorKind::Failed;
use pleg_core::EventType::{Created, Deleted, Started, Stopped};

use crate::node::exited;
use crate::script::{Event, PodLists, Relists, Script, StatusCalls};

#[test]
fn events_about_more_than_100_000_ids_cause_a_relist() {
    let mut t = Script::with(&[]);
    t.hold(Relists);
    // The first batch exceeds what the stream reader stores, the second what the reconciler stores.
    for (batch, events, lost) in [("x", 100_002, 3), ("y", 10_000, 10_004)] {
        for n in 0..events {
            t.queue(Event::nil(Started, &format!("{batch}{n}")).unnamed());
        }
        t.send(Event::nil(Started, batch).unnamed());
        assert_eq!(t.core.counters().events_lost, lost);
    }
    assert!(t.core.footprint() < 210_000, "{}", t.core.footprint());
    t.expect_calls(&["relist"]);
}

#[test]
fn removed_pods_leave_only_gone_ids_stored_after_ten_minutes() {
    let mut t = Script::with(&["web"]);
    t.event(Started, "web");
    t.pass(400_000);
    let before = t.core.footprint();
    for n in 0..50 {
        let (pod, web) = (format!("q{n}"), format!("q{n}/web"));
        t.node.add_pod(&pod);
        t.event(Started, &web);
        t.event(Created, &format!("q{n}/ghost"));
        t.read_since(&pod, t.now());
        t.node.exit(&web, 3);
        if n % 2 == 0 {
            t.event(Stopped, &web);
        } else {
            t.node.fail_status(&web, Failed);
            t.send(Event::nil(Stopped, &web));
        }
        t.pass(100);
    }
    t.pass(3_000);
    for n in 0..50 {
        let web = format!("q{n}/web");
        t.node.heal_status(&web);
        t.node.remove(&web);
        t.node.remove(&format!("q{n}/s"));
        t.event(Deleted, &web);
    }
    t.send(Event::nil(Stopped, "web"));
    t.pass(600_000);
    // The core still stores two gone ids of each pod.
    assert_eq!(t.core.footprint(), before + 100);
    assert_eq!(t.cache.len(), 1);
}

#[test]
fn idle_hour_costs_few_calls() {
    let mut t = Script::with(&["web"]);
    t.event(Started, "web");
    t.pass(300_000);
    t.forget();
    t.pass(3_600_000);
    let (relists, calls) = (t.calls_of("relist"), t.calls.len());
    assert!((59..=62).contains(&relists), "{relists}");
    assert!(calls - relists <= 241, "{calls}");
}

/// The pauses between the events were measured with containerd. Only events cause reads: no worker reads the pod.
#[test]
fn observing_a_pod_from_start_to_removal_takes_two_lists() {
    let mut t = Script::with(&[]);
    t.event(Started, "s");
    t.pass(400_000);
    t.forget();
    t.node.start("q/s");
    t.event(Created, "q/s");
    t.event(Started, "q/s");
    t.pass(30);
    t.node.create("q/web");
    t.event(Created, "q/web");
    t.pass(35);
    t.starts("q/web");
    t.pass(5_000);
    t.exits("q/web", 0);
    t.pass(1_000);
    t.exits("q/s", None);
    t.pass(20);
    t.removes("q/web");
    t.pass(10);
    t.removes("q/s");
    t.pass(3_000);
    assert_eq!((t.calls_of("list q"), t.calls_of("status q")), (2, 0));
    assert_eq!(t.announced().len(), 6);
}

/// For comparison, the kubelet (1.37) lists the pod again for each STOPPED event.
#[test]
fn burst_of_exits_in_a_pod_causes_two_reads() {
    let ids: Vec<String> = (0..200).map(|n| format!("c{n}")).collect();
    for (has_status, lists) in [(true, 0), (false, 2)] {
        let mut t = Script::with(&[]);
        ids.iter().for_each(|id| t.starts(id));
        t.pass(300);
        assert_eq!((t.announced().len(), t.count("list p")), (200, 1));
        t.hold(PodLists);
        for id in &ids {
            t.node.exit(id, 1);
            match has_status {
                true => t.event(Stopped, id),
                false => t.send(Event::nil(Stopped, id)),
            }
            if t.in_flight(PodLists) > 0 && *id == ids[0] {
                t.evaluate(PodLists);
            }
        }
        t.release();
        assert_eq!((t.announced().len(), t.count("list p")), (200, lists));
    }
}

#[test]
fn twenty_exits_cause_one_publication_and_eight_concurrent_status_calls() {
    let ids: Vec<String> = (0..20).map(|n| format!("c{n}")).collect();
    let mut t = Script::with(&[]);
    ids.iter().for_each(|id| t.node.start(id));
    t.relist();
    t.hold(StatusCalls);
    let before = t.publications;
    for id in &ids {
        t.queue(Event::of(Stopped, exited(id, 3)));
    }
    t.event(Created, "s");
    assert_eq!((t.announced().len(), t.publications), (40, before + 1));
    t.pass(2_500);
    assert_eq!(t.in_flight(StatusCalls), 8);
}

/// The CPU time of this thread, which other processes do not change.
fn cpu_time() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    stat.split(' ').next()?.parse().ok()
}

/// Asserts that eight times as much input makes less than 24 times as much work. Quadratic work would be 64 times.
fn assert_grows_slowly(n: usize, work: impl Fn(usize)) {
    let time = |n| {
        let before = cpu_time()?;
        work(n);
        cpu_time().map(|after| after - before)
    };
    if let (Some(few), Some(many)) = (time(n), time(8 * n)) {
        assert!(many < 24 * few, "{n}: {few} ns, {}: {many} ns", 8 * n);
    }
}

#[test]
fn many_deaths_without_events_cost_one_status_call_each() {
    assert_grows_slowly(1_250, |n| {
        let mut t = Script::with(&[]);
        (0..n).for_each(|n| t.node.add_pod(&format!("q{n}")));
        t.relist();
        t.pass(30_000);
        t.forget();
        (0..n).for_each(|pod| t.node.exit(&format!("q{pod}/web"), 0));
        t.relist();
        assert_eq!(t.announced().len(), n);
        assert_eq!(t.calls_of("list q"), 0);
        assert!(t.calls.len() <= n + 2, "{}", t.calls.len());
        t.pass(11_000);
        assert_eq!(t.missed().1, n as u64);
    });
}

#[test]
fn many_failing_statuses_cost_one_call_per_retry() {
    assert_grows_slowly(600, |n| {
        let mut t = Script::with(&[]);
        for n in 0..n {
            t.node.add_pod(&format!("q{n}"));
            t.node.fail_status(&format!("q{n}/web"), Failed);
        }
        t.relist();
        t.forget();
        t.pass(8_000);
        // Each status is retried after 1, 2 and 4 s.
        assert!(t.calls_of("status") <= 3 * n + 1);
        assert!(t.calls_of("version") <= 3 * n + 1);
        assert_eq!(t.health().failing, n);
    });
}

#[test]
fn a_pods_later_containers_cost_no_more_than_earlier_ones() {
    assert_grows_slowly(1_250, |n| {
        let mut t = Script::with(&[]);
        for n in 0..n {
            let id = format!("web{n}");
            t.starts(&id);
            t.read();
            t.exits(&id, 0);
            t.removes(&id);
            t.read();
            t.pass(1);
        }
        assert_eq!(t.announced().len(), 3 * n);
        assert!(t.calls().len() <= 2 * n + 20);
    });
}
