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

Names in backticks are labels. Durations are in seconds. A summary has a sum and a count, and no quantiles. No label
has the name or id of a pod or container: `/readyz?verbose` and `/debug/pods` name pods. A node has at most 120
series. `deploy/prometheus/` has alerts and `deploy/grafana/` a dashboard, which need these metrics only.

| name | type | meaning |
| --- | --- | --- |
";

const WITH_KUBELET_NAMES: &str = "
## With `--kubelet-names`

Then the page also has the names of the kubelet, and buckets instead of summaries: some 350 series a node. They
have the kubelet's meaning, or the row says what differs. A query that sums them, such as that of a dashboard of
the kubelet, counts the node twice, unless it selects the job.

| name | type | meaning |
| --- | --- | --- |
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
    with_local_recorder(&described, super::metrics::describe);
    let (mut always, mut with_kubelet_names) = (BTreeMap::new(), BTreeMap::new());
    for (name, (kind, text)) in described.0.into_inner().unwrap() {
        let own = super::metrics::own_name(&name);
        if own.as_ref() != Some(&name) || kind == "histogram" {
            with_kubelet_names.insert(name, (kind, text.clone()));
        }
        let shown = if kind == "histogram" { "summary" } else { kind };
        always.extend(own.map(|name| (name, (shown, text))));
    }
    let mut page = String::new();
    for (head, rows) in [(HEAD, always), (WITH_KUBELET_NAMES, with_kubelet_names)] {
        page.push_str(head);
        for (name, (kind, text)) in rows {
            writeln!(page, "| {name} | {kind} | {text} |").unwrap();
        }
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
