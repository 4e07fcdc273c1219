//! Each metric in `docs/metrics.md` exists in a scrape, and moves when its cause occurs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use pleg_tests::wait::pass_time;

use super::agent::Agent;
use super::run::{Running, arg, control};
use crate::support::TestDir;

/// The longest wait: the runtime's `Status` is read every 30 s.
const PATIENCE: Duration = Duration::from_secs(80);
/// The series of a node, and how many of them are left for findings (`pleg_finding`).
const MOST_SERIES: usize = 120;
const MOST_FINDINGS: usize = 12;

/// What may be constant while the agent runs.
const CONSTANT: [&str; 6] = [
    "pleg_build_info",
    "pleg_message_limit_bytes",
    "process_max_fds",
    "process_start_time_seconds",
    "process_threads",
    "process_virtual_memory_bytes",
];
/// What only a finding, a flood, an overload, a bug, or a certain runtime moves. A test of the crate `pleg` shows
/// that they are written (`metrics.rs`).
const RARE: [&str; 7] = [
    "pleg_backlog_events",
    "pleg_events_joined_total",
    "pleg_events_lost_total",
    "pleg_finding",
    "pleg_stream_panics_total",
    "pleg_streams_renewed_total",
    "pleg_unacknowledged_timestamp_seconds",
];
/// Troubles of a runtime with pods that come and go, and metrics that each one moves.
const TROUBLES: [(&str, &str); 7] = [
    (
        "pod.*.hang=on",
        "pleg_inspections_overdue pleg_pods_failing",
    ),
    // While relists fail, a pod that is read again is listed, which fails as well.
    (
        "list_pod_sandbox.fail=internal stream_pod_sandboxes.fail=internal pod.*.fail=internal",
        "pleg_inspections_failed_total",
    ),
    ("stream_containers.hang=on", "pleg_list_in_flight_seconds"),
    (
        "sandbox.nil=on containers.hole=on",
        "pleg_irregular_input_total",
    ),
    ("drop=on", "pleg_missed_events_total"),
    ("cut", "pleg_streams_lost_total"),
    ("list.empty=50%", "pleg_undone_total"),
];

/// The names and descriptions in a part of `docs/metrics.md`.
fn documented(part: &'static str) -> BTreeMap<&'static str, &'static str> {
    let rows = part.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let (name, _, text) = (cells.next()?, cells.next()?, cells.next()?);
        name.contains('_').then_some((name, text))
    });
    rows.collect()
}

/// The name of the metric of a series.
fn name(series: &str) -> &str {
    let name = series.split('{').next().unwrap_or(series);
    let suffixes = ["_bucket", "_sum", "_count"].iter();
    let mut histogram = suffixes.filter_map(|suffix| name.strip_suffix(suffix));
    // Upstream's counters end with `_count` as well.
    let is_histogram = |name: &&str| name.ends_with("_seconds");
    histogram.find(is_histogram).unwrap_or(name)
}

/// The values that each series had.
#[derive(Default)]
struct Seen(BTreeMap<String, BTreeSet<String>>);

impl Seen {
    async fn scrape(&mut self, agent: &Agent) {
        let first = self.0.is_empty();
        for (series, value) in agent.scrape().await {
            // Its first value is a change of a series that did not exist at first.
            let absent = (!first).then(String::new).into_iter().collect();
            self.0.entry(series).or_insert(absent).insert(value);
        }
    }

    fn has_moved(&self, metric: &str) -> bool {
        let mut all = self.0.iter();
        all.any(|(series, values)| name(series) == metric && values.len() > 1)
    }

    /// Scrapes until these have moved.
    async fn until_moved(&mut self, agent: &Agent, metrics: &[&str]) {
        let moved = async {
            while !metrics.iter().all(|metric| self.has_moved(metric)) {
                pass_time(Duration::from_millis(100)).await;
                self.scrape(agent).await;
            }
        };
        if tokio::time::timeout(PATIENCE, moved).await.is_err() {
            let still: Vec<_> = metrics.iter().filter(|m| !self.has_moved(m)).collect();
            let (_, _, page) = agent.get("/readyz?verbose").await;
            panic!("these have not moved: {still:?}; {page}");
        }
    }

    /// Compares the names and labels with those that are documented.
    fn check(&self, documented: &BTreeMap<&str, &str>) {
        for series in self.0.keys() {
            let text = documented.get(name(series));
            let text = text.unwrap_or_else(|| panic!("{series} is not in docs/metrics.md"));
            let labels = series.split_once('{').map_or("", |(_, labels)| labels);
            for (label, _) in labels.split("\",").filter_map(|l| l.split_once('=')) {
                let is_named = label == "le" || text.contains(&format!("`{label}`"));
                assert!(is_named, "the label {label} of {series} is not described");
            }
        }
        for metric in documented.keys().filter(|metric| !RARE.contains(metric)) {
            let exists = self.0.keys().any(|series| name(series) == *metric);
            assert!(exists, "{metric} does not exist");
        }
    }
}

async fn start(socket: &Path, flags: &[&str]) -> Agent {
    let periods = ["--probe-period", "1s", "--relist-period-max", "2s"];
    Agent::start(&[&["-r", arg(socket)], &periods[..], flags].concat()).await
}

#[tokio::test]
async fn each_documented_metric_exists_and_moves() {
    let page = include_str!("../../../../../docs/metrics.md");
    let (always, with_kubelet_names) = page.split_once("\n## ").expect("two tables");
    let (always, mut all) = (documented(always), documented(with_kubelet_names));
    all.extend(&always);
    let dir = TestDir::new();
    let socket = dir.path("cri.sock");
    let agent = start(&socket, &["--kubelet-names"]).await;
    let plain = start(&socket, &[]).await;
    let mut seen = Seen::default();
    // No runtime yet.
    let errors = [
        "pleg_lists_failed_total",
        "kubelet_runtime_operations_errors_total",
    ];
    seen.until_moved(&agent, &errors).await;

    let mut sim = Running::start(&["sim", "--socket", arg(&socket), "--pods", "10"]);
    sim.message().await.expect("the socket");
    agent.until_confirmed().await;
    for (trouble, metrics) in TROUBLES {
        let [trouble, metrics] = [trouble, metrics].map(|list| Vec::from_iter(list.split(' ')));
        control(&socket, &trouble).await;
        seen.until_moved(&agent, &metrics).await;
        control(&socket, &["reset"]).await;
    }
    // Everything else has moved meanwhile, or when the runtime reports its status.
    let mut moving: Vec<&str> = all.keys().copied().collect();
    moving.retain(|name| !CONSTANT.contains(name) && !RARE.contains(name));
    seen.until_moved(&agent, &moving).await;
    seen.check(&all);

    // The runtime's Status may not have been read yet.
    let condition = "pleg_runtime_condition{condition=\"NetworkReady\"}";
    plain.until_metric(condition, 1.0).await;
    let mut plainly = Seen::default();
    plainly.scrape(&plain).await;
    plainly.check(&always);
    let series = Vec::from_iter(plainly.0.keys());
    let most = MOST_SERIES - MOST_FINDINGS;
    assert!(series.len() <= most, "{}: {series:#?}", series.len());
    let needs_flag = |series: &str| series.contains("_bucket{") || series.starts_with("kubelet_");
    assert!(!series.iter().any(|series| needs_flag(series)));
    agent.stop().await;
}
