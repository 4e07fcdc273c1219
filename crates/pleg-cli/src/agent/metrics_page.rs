//! Writes `docs/metrics.md` from the descriptions in the code, and checks that it is current.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::{env, fs};

use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    with_local_recorder,
};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");

const HEAD: &str = "\
# Metrics

What `pleg agent` serves at `/metrics`. A test writes this page from the code
(`PLEG_BLESS=1 cargo test -p pleg-cli metrics_page`), and another one checks that each metric moves.

A metric with a name of the kubelet (`kubelet_`) has the kubelet's meaning, or its row says what differs. Names in
backticks are labels. Durations are in seconds. No label has the name or id of a pod or container:
`/readyz?verbose` and `/debug/pods` name pods. `deploy/prometheus/` has alerts.
";

/// Collects descriptions.
#[derive(Default)]
struct Descriptions(Mutex<BTreeMap<String, (&'static str, String)>>);

impl Descriptions {
    fn add(&self, name: &KeyName, kind: &'static str, text: &SharedString) {
        let described = (kind, text.to_string());
        let mut all = self.0.lock().unwrap();
        assert!(
            all.insert(name.as_str().to_owned(), described).is_none(),
            "{name:?} is described twice"
        );
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

fn page() -> String {
    let described = Descriptions::default();
    with_local_recorder(&described, super::describe_metrics);
    let mut page = HEAD.to_owned();
    page.push_str("\n| name | type | meaning |\n| --- | --- | --- |\n");
    for (name, (kind, text)) in described.0.into_inner().unwrap() {
        writeln!(page, "| {name} | {kind} | {text} |").unwrap();
    }
    page
}

#[test]
fn page_of_metrics_is_current() {
    let page = page();
    if env::var_os("PLEG_BLESS").is_some_and(|v| v != "0") {
        fs::write(PAGE, &page).unwrap();
    }
    let committed = fs::read_to_string(PAGE).unwrap_or_default();
    assert!(
        committed == page,
        "docs/metrics.md is not current; run PLEG_BLESS=1 cargo test -p pleg-cli metrics_page"
    );
}
