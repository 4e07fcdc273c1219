//! Tests of the view, on a small node.

mod sample;

use super::query::Sort;
use super::{MOST_ROWS, Query, View};

pub(crate) use sample::{Sample, at, died, wall};

pub(crate) fn all(pod: &str) -> Query {
    Query {
        limit: MOST_ROWS,
        records: MOST_ROWS,
        pod: pod.to_owned(),
        ..Query::default()
    }
}

#[test]
fn view_is_the_same_after_a_json_round_trip() {
    let mut sample = Sample::new();
    sample.hang("web-1");
    sample.died("shop", "web-1", "app", 3);
    sample.simulated = true;
    let view = sample.view(&all("uid-web-1"));
    let json = serde_json::to_string(&view).unwrap();
    assert_eq!(serde_json::from_str::<View>(&json).unwrap(), view);
}

/// The node has 10,000 pods, 50 of them with 100 containers with long names, and 100,000 events with long names.
#[test]
fn view_of_10000_pods_has_at_most_2_mib() {
    let mut sample = Sample::empty();
    let long = "x".repeat(10_000);
    let many: Vec<String> = (0..100).map(|n| format!("{n}-{long}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for n in 0..10_000 {
        let containers = if n < 50 { &many[..] } else { &["app"] };
        sample.add("shop", &format!("web-{n}"), containers);
    }
    for n in 0..100_000 {
        sample.died("shop", &format!("web-{}", n % 10_000), &long, 1);
    }
    let mut query = all("uid-web-0");
    (query.limit, query.sort) = (usize::MAX, Sort::Name);
    let view = sample.view(&query);
    assert_eq!((view.pods.total, view.pods.rows.len()), (10_000, MOST_ROWS));
    let first = &view.pods.rows[0];
    assert_eq!((first.containers.len(), first.more_containers), (20, 80));
    assert_eq!(view.detail.as_ref().map(|d| d.containers.len()), Some(100));
    let json = serde_json::to_string(&view).unwrap();
    assert!(json.len() < 2 << 20, "{}", json.len());
}

#[test]
fn generic_pleg_estimate_counts_a_changed_pod_once_a_second() {
    let mut sample = Sample::new();
    for _ in 0..5 {
        sample.died("shop", "web-1", "app", 3);
    }
    sample.now = at(240);
    sample.model.tick(sample.now, |_| 3);
    sample.model.tick(sample.now, |_| 3);
    let cost = sample.view(&all("")).cost;
    let generic = cost.generic.expect("a list was measured");
    assert_eq!((generic.reads, cost.ours.lists, cost.ours.reads), (3, 1, 0));
    // 170 s of relists: each makes two lists of 12 ms, and the next one follows after 1 s.
    assert_eq!(generic.lists, 332);
}
