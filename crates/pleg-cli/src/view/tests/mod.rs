//! Tests of the view, on a small node.

mod sample;

use std::time::Duration;

use pleg::core::{CallError, CallErrorKind, ContainerStatus, PodStatus};

use super::pods::PodState;
use super::query::Sort;
use super::{MOST_ROWS, Query, View};

pub(crate) use sample::{Sample, at, wall};

/// A query for everything.
fn all() -> Query {
    Query {
        limit: MOST_ROWS,
        records: MOST_ROWS,
        ..Query::default()
    }
}

fn names(view: &View) -> Vec<&str> {
    let rows = view.pods.rows.iter();
    rows.map(|row| &*row.pod.name).collect()
}

#[test]
fn pods_have_states_restarts_exits_and_ages() {
    let view = Sample::new().view(&all());
    assert_eq!(names(&view), ["dns", "cart-7f9", "web-1"], "failed first");
    let [dns, cart, web] = &view.pods.rows[..] else {
        panic!("three pods");
    };
    assert_eq!((dns.state, dns.failed), (PodState::Exited, true));
    assert_eq!((dns.running, dns.names), (0, 1));
    assert_eq!(dns.changed_seconds, Some(5.0));
    assert_eq!((cart.state, cart.failed), (PodState::Running, false));
    assert_eq!((cart.running, cart.names, cart.restarts), (2, 2, 0));
    assert_eq!(cart.fresh_seconds, Some(3.0));
    assert_eq!((web.state, web.failed), (PodState::Running, false));
    assert_eq!((web.restarts, web.containers.len()), (1, 1));
    let exit = web.last_exit.as_ref().expect("an earlier container");
    assert_eq!((exit.exit_code, exit.seconds), (Some(3), Some(40.0)));
    assert_eq!(web.containers[0].last_exit.as_ref(), Some(exit));
    let page = &view.pods;
    assert_eq!((page.total, page.containers, page.running), (3, 5, 3));
}

#[test]
fn page_has_what_the_query_asks_for() {
    let sample = Sample::new();
    let by_name = Query {
        sort: Sort::Name,
        ..all()
    };
    let everything = ["cart-7f9", "web-1", "dns"];
    for (search, expected) in [
        ("", &everything[..]),
        ("CART", &["cart-7f9"]),
        ("proxy", &["cart-7f9"]),
        ("shop/", &["cart-7f9", "web-1"]),
        ("uid-dns", &["dns"]),
        ("example.com/image", &["cart-7f9", "web-1"]),
        ("nothing", &[]),
    ] {
        let query = Query {
            search: search.to_owned(),
            ..by_name.clone()
        };
        assert_eq!(names(&sample.view(&query)), expected, "{search}");
    }
    let query = Query {
        namespace: "shop".to_owned(),
        labels: Some("app!=web".parse().unwrap()),
        ..all()
    };
    assert_eq!(names(&sample.view(&query)), ["cart-7f9"]);
    let query = Query {
        reverse: true,
        offset: 1,
        limit: 1,
        selected: "uid-cart-7f9".to_owned(),
        ..by_name
    };
    let view = sample.view(&query);
    assert_eq!(names(&view), ["web-1"]);
    let page = view.pods;
    assert_eq!((page.matching, page.offset, page.selected), (3, 1, Some(2)));
}

#[test]
fn detail_shows_the_pod_its_history_and_what_is_left_of_it() {
    let mut sample = Sample::new();
    sample.died("shop", "web-1", "app", 3);
    sample.died("system", "dns", "dns", 137);
    let query = Query {
        pod: "uid-web-1".to_owned(),
        search: "does not match".to_owned(),
        ..all()
    };
    let detail = sample.view(&query).detail.expect("it exists");
    assert_eq!(detail.row.pod.name, "web-1");
    assert_eq!((detail.containers.len(), detail.history.len()), (2, 1));
    assert_eq!(detail.inspected_seconds, Some(10.0));
    assert_eq!(detail.labels, [("app".to_owned(), "web".to_owned())]);
    sample.pods.clear();
    let detail = sample.view(&query).detail.expect("its history is known");
    assert!(detail.gone);
    assert_eq!((&*detail.row.pod.name, detail.history.len()), ("web-1", 1));
}

#[test]
fn unanswered_runtime_makes_data_old() {
    let mut sample = Sample::new();
    sample.health.silent_since = Some(at(105));
    sample.now = at(114);
    let view = sample.view(&all());
    // The last answer came 12 ms after 100 s.
    let old = view.health.no_answer_seconds.expect("old");
    assert!((13.9..14.0).contains(&old), "{old}");
    assert_eq!(view.health.reasons[0].code, "runtime_silent");
    sample.health.silent_since = None;
    sample.health.list_error = Some(CallError::new("x", CallErrorKind::Unavailable, "no socket"));
    assert!(sample.view(&all()).health.no_answer_seconds.is_some());
    sample.health.list_error = None;
    sample.health.unready_after = Duration::from_secs(10);
    let view = sample.view(&all());
    assert!(view.health.no_answer_seconds.is_some() && !view.health.ready);
    assert!(view.health.reasons[0].not_ready);
}

#[test]
fn view_is_the_same_after_json() {
    let mut sample = Sample::new();
    sample.hang("web-1");
    sample.died("shop", "web-1", "app", 3);
    sample.simulated = true;
    let query = Query {
        pod: "uid-web-1".to_owned(),
        ..all()
    };
    let view = sample.view(&query);
    let json = serde_json::to_string(&view).unwrap();
    assert_eq!(serde_json::from_str::<View>(&json).unwrap(), view);
}

/// 10,000 pods with long texts, 100 containers in some, and 100,000 events.
#[test]
fn view_is_bounded() {
    let mut sample = Sample::empty();
    let long = "x".repeat(10_000);
    for n in 0..10_000 {
        sample.add("shop", &format!("web-{n}"), &["app"]);
    }
    let many = |status: &mut PodStatus| {
        let container = |n: usize| {
            let name = format!("{n}-{long}");
            ContainerStatus::new(name.clone(), name, pleg::core::ContainerState::Running)
        };
        status.containers = (0..100).map(container).collect();
    };
    for n in 0..50 {
        sample.change(&format!("web-{n}"), many);
    }
    for n in 0..100_000 {
        sample.died("shop", &format!("web-{}", n % 10_000), &long, 1);
    }
    let query = Query {
        pod: "uid-web-0".to_owned(),
        sort: Sort::Name,
        limit: usize::MAX,
        ..all()
    };
    let view = sample.view(&query);
    assert_eq!((view.pods.total, view.pods.rows.len()), (10_000, MOST_ROWS));
    assert_eq!(view.pods.rows[0].containers.len(), 20);
    assert_eq!(view.pods.rows[0].more_containers, 80);
    assert_eq!(view.detail.as_ref().map(|d| d.containers.len()), Some(100));
    let json = serde_json::to_string(&view).unwrap();
    assert!(json.len() < 2 << 20, "{}", json.len());
}

#[test]
fn generic_pleg_reads_the_statuses_of_changed_pods_once_a_second() {
    let mut sample = Sample::new();
    for _ in 0..5 {
        sample.died("shop", "web-1", "app", 3);
    }
    sample.now = at(240);
    sample.model.tick(sample.now, |_| 3);
    sample.model.tick(sample.now, |_| 3);
    let cost = sample.view(&all()).cost;
    let generic = cost.generic.expect("a list was measured");
    assert_eq!((generic.reads, cost.ours.lists, cost.ours.reads), (3, 1, 0));
    // 170 s of relists, each 1 s and two lists of 12 ms.
    assert_eq!(generic.lists, 332);
}
