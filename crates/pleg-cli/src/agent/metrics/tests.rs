//! Tests of `/metrics`. One test compares the tables of `docs/metrics.md` with the descriptions in the code.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::{env, fs};

use itertools::Itertools as _;
use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    with_local_recorder,
};

use super::*;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");

const TABLE: &str = "| --- | --- | --- |\n";

#[derive(Default)]
struct Descriptions(Mutex<BTreeMap<String, (&'static str, String)>>);

impl Descriptions {
    fn add(&self, name: &KeyName, kind: &'static str, text: &SharedString) {
        let described = (kind, text.to_string());
        let mut all = self.0.lock().unwrap();
        let before = all.insert(name.as_str().to_owned(), described);
        assert!(before.is_none(), "{name:?} is described twice");
    }
}

impl Recorder for Descriptions {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, text: SharedString) {
        self.add(&name, "counter", &text);
    }

    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, text: SharedString) {
        self.add(&name, "gauge", &text);
    }

    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, text: SharedString) {
        self.add(&name, "histogram", &text);
    }

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// The rows of the two tables of metrics: those that are always shown, and those that `--kubelet-names` adds.
fn rows() -> [String; 2] {
    let described = Descriptions::default();
    with_local_recorder(&described, describe);
    let (mut always, mut added) = (BTreeMap::new(), BTreeMap::new());
    for (name, (kind, text)) in described.0.into_inner().unwrap() {
        let own = own_name(&name);
        let is_histogram = kind == "histogram";
        if is_histogram || own.as_ref() != Some(&name) {
            added.insert(name, (kind, text.clone()));
        }
        let shown = if is_histogram { "summary" } else { kind };
        always.extend(own.map(|name| (name, (shown, text))));
    }
    [always, added].map(|rows| {
        let row = |(name, (kind, text))| format!("| {name} | {kind} | {text} |\n");
        rows.into_iter().map(row).collect()
    })
}

#[test]
fn documented_metrics_equal_the_descriptions_in_the_code() {
    let committed = fs::read_to_string(PAGE).unwrap();
    let (head, between, _) = committed.split(TABLE).collect_tuple().expect("two tables");
    let (_, text) = between.split_once("\n\n").unwrap();
    let [always, added] = rows();
    let page = format!("{head}{TABLE}{always}\n{text}{TABLE}{added}");
    if env::var_os("PLEG_BLESS").is_some_and(|v| v != "0") {
        fs::write(PAGE, &page).unwrap();
    }
    let bless = "run PLEG_BLESS=1 cargo test -p pleg-cli agent::metrics";
    let is_current = fs::read_to_string(PAGE).unwrap() == page;
    assert!(is_current, "docs/metrics.md is not current; {bless}");
}

#[test]
fn kubelet_names_become_pleg_names_and_histograms_become_summaries() {
    let recorded = "\
# HELP kubelet_pleg_relist_duration_seconds Duration of a full list.
# TYPE kubelet_pleg_relist_duration_seconds histogram
kubelet_pleg_relist_duration_seconds_bucket{le=\"+Inf\"} 2
kubelet_pleg_relist_duration_seconds_sum 0.5
kubelet_pleg_relist_duration_seconds_count 2

# TYPE kubelet_runtime_operations_total counter
kubelet_runtime_operations_total{operation_type=\"kubelet_ histogram\"} 3

# TYPE kubelet_running_pods gauge
kubelet_running_pods 7
pleg_finding{code=\"a\"} 0
pleg_finding{code=\"b\"} 1
";
    let renamed = "\
# HELP pleg_relist_duration_seconds Duration of a full list.
# TYPE pleg_relist_duration_seconds summary
pleg_relist_duration_seconds_sum 0.5
pleg_relist_duration_seconds_count 2
# TYPE pleg_running_pods gauge
pleg_running_pods 7
";
    assert_eq!(own_names(recorded, KUBELET), renamed);
    let with_finding = format!("{renamed}pleg_finding{{code=\"b\"}} 1\n");
    assert_eq!(own_names(recorded, ""), with_finding);
}
