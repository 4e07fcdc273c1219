//! Each metric in `docs/metrics.md` exists and moves with its cause; Prometheus' alerts and Grafana's panels use them.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::Duration;

use pleg_tests::wait::pass_time;
use serde_json::{Value, json};

use super::agent::Agent;
use super::run::{Sim, arg, parse};

/// The longest wait for a metric: the runtime's `Status` is read every 30 s.
const PATIENCE: Duration = Duration::from_secs(80);
/// The maximum number of series of a node, and how many of them findings may add (`pleg_finding`).
const MOST_SERIES: usize = 120;
const MOST_FINDINGS: usize = 12;

const NETWORK_READY: &str = "pleg_runtime_condition{condition=\"NetworkReady\"}";
/// Metrics that may be constant while the agent runs.
const CONSTANT: &str = "pleg_build_info pleg_message_limit_bytes process_max_fds process_start_time_seconds \
    process_threads process_virtual_memory_bytes";
/// Metrics that need a finding, a flood, an overload, a bug or a certain runtime. Unit tests of `metrics` check them.
const RARE: &str = "pleg_backlog_events pleg_events_joined_total pleg_events_lost_total pleg_finding \
    pleg_stream_panics_total pleg_streams_renewed_total pleg_unacknowledged_timestamp_seconds";
/// Each line: faults of the simulated runtime => the metrics that they change. A pod read fails if its lists fail.
const TROUBLES: &str = "\
pod.*.hang=on => pleg_inspections_overdue pleg_pods_failing
list_pod_sandbox.fail=internal pod.*.fail=internal => pleg_inspections_failed_total
stream_containers.hang=on => pleg_list_in_flight_seconds
sandbox.nil=on containers.hole=on => pleg_irregular_input_total
drop=on => pleg_missed_events_total
cut => pleg_streams_lost_total
list.empty=50% => pleg_undone_total";

fn documented(part: &'static str) -> BTreeMap<&'static str, &'static str> {
    let rows = part.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let (name, _, text) = (cells.next()?, cells.next()?, cells.next()?);
        name.contains('_').then_some((name, text))
    });
    rows.collect()
}

fn has(names: &str, name: &str) -> bool {
    names.split_whitespace().any(|one| one == name)
}

fn name(series: &str) -> &str {
    let name = series.split('{').next().unwrap_or(series);
    let suffixes = ["_bucket", "_sum", "_count"].iter();
    let mut histogram = suffixes.filter_map(|suffix| name.strip_suffix(suffix));
    // Counters with names of the kubelet may end with `_count` as well.
    let is_histogram = |name: &&str| name.ends_with("_seconds");
    histogram.find(is_histogram).unwrap_or(name)
}

#[derive(Default)]
struct Seen(BTreeMap<String, BTreeSet<String>>);

impl Seen {
    async fn scrape(&mut self, agent: &Agent) {
        let first = self.0.is_empty();
        for (series, value) in agent.scrape().await {
            // If the series did not exist at first, its first value counts as a change.
            let absent = (!first).then(String::new).into_iter().collect();
            self.0.entry(series).or_insert(absent).insert(value);
        }
    }

    fn has_moved(&self, metric: &str) -> bool {
        let mut all = self.0.iter();
        all.any(|(series, values)| name(series) == metric && values.len() > 1)
    }

    async fn until_moved(&mut self, agent: &Agent, metrics: Vec<&str>) {
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
        for metric in documented.keys().filter(|metric| !has(RARE, metric)) {
            let exists = self.0.keys().any(|series| name(series) == *metric);
            assert!(exists, "{metric} does not exist");
        }
    }
}

#[tokio::test]
async fn each_documented_metric_exists_and_changes() {
    let page = include_str!("../../../../docs/metrics.md");
    let (always, with_kubelet_names) = page.split_once("\n## ").expect("two tables");
    let (always, mut all) = (documented(always), documented(with_kubelet_names));
    all.extend(&always);
    let mut sim = Sim::down();
    let periods = "--probe-period 1s --relist-period-max 2s";
    let agent = sim.agent(&format!("{periods} --kubelet-names")).await;
    let plain = sim.agent(periods).await;
    let mut seen = Seen::default();
    let errors = "pleg_lists_failed_total kubelet_runtime_operations_errors_total";
    seen.until_moved(&agent, errors.split(' ').collect()).await;

    sim.serve("--pods 10").await;
    agent.until_confirmed().await;
    for row in TROUBLES.lines() {
        let (trouble, metrics) = row.split_once(" => ").expect("a trouble");
        sim.control(trouble).await;
        seen.until_moved(&agent, metrics.split(' ').collect()).await;
        sim.control("reset").await;
    }
    // Every metric that `TROUBLES` does not name has changed by now, or changes when the agent next calls `Status`.
    let mut moving: Vec<&str> = all.keys().copied().collect();
    moving.retain(|name| !has(CONSTANT, name) && !has(RARE, name));
    seen.until_moved(&agent, moving).await;
    seen.check(&all);

    // This agent may not have called `Status` yet.
    plain.until_metric(NETWORK_READY, 1.0).await;
    let mut plainly = Seen::default();
    plainly.scrape(&plain).await;
    plainly.check(&always);
    let series = Vec::from_iter(plainly.0.keys());
    let most = MOST_SERIES - MOST_FINDINGS;
    assert!(series.len() <= most, "{}: {series:#?}", series.len());
    let needs_flag = |series: &str| series.contains("_bucket{") || series.starts_with("kubelet_");
    assert!(!series.iter().any(|series| needs_flag(series)));
}

/// The number of scrapes of a node, 15 s apart: before the troubles begin, and after they begin.
const CALM: usize = 20;
const TROUBLE: usize = 60;
/// Series without `pleg_`, and values that fire alerts, as `pleg_degraded` does. Calm agents may lack the last 2.
const ALERTED: &str = "\
not_ready{reason=\"stale\"} 1
runtime_condition{condition=\"NetworkReady\"} 0
list_message_bytes{operation_type=\"list_containers\"} 15e6
runtime_operations_errors_total{operation_type=\"version\"} 1
finding{code=\"disk_full\",severity=\"critical\"} 1";

/// Churn fires no alert. Troubles fire all alerts except for a missing agent. Panels have at most 12 lines or 50 rows.
#[tokio::test]
async fn alerts_and_dashboard_fit_the_metrics_of_an_agent() {
    let promtool = |args: &[&str]| Command::new("promtool").args(args).output();
    if promtool(&["--version"]).is_err() {
        assert!(std::env::var_os("CI").is_none(), "promtool is missing");
        return println!("skipped: promtool is missing");
    }
    let sim = Sim::with("--pods 30").await;
    let agent = sim.confirmed_agent("--relist-period-max 2s").await;
    agent.until_metric(NETWORK_READY, 1.0).await;
    let mut scrapes = Vec::new();
    for _ in 0..CALM {
        let mut scrape = agent.scrape().await;
        scrape.insert("up".to_owned(), "1".to_owned());
        scrapes.push(scrape);
        pass_time(Duration::from_millis(500)).await;
    }
    let mut last = scrapes[CALM - 1].clone();
    let stopped = "pleg_notifications_received_total{type=\"stopped\"}";
    assert_ne!(scrapes[0][stopped], last[stopped], "no churn");
    for code in pleg::core::Degraded::CODES {
        let series = format!("pleg_degraded{{reason=\"{code}\"}}");
        let before = last.insert(series, "1".to_owned());
        assert_eq!(before.as_deref(), Some("0"), "{code}");
    }
    for (n, row) in ALERTED.lines().enumerate() {
        let (series, value) = row.split_once(' ').expect("a value");
        let before = last.insert(format!("pleg_{series}"), value.to_owned());
        assert!(before.is_some() || n > 2, "{series}");
    }
    scrapes.resize(CALM + TROUBLE, last);

    let names: BTreeSet<&String> = scrapes.iter().flat_map(BTreeMap::keys).collect();
    let nodes = (0..20).flat_map(|node| names.iter().map(move |name| (node, *name)));
    let series = nodes.map(|(node, name)| {
        let value = |scrape| BTreeMap::get(scrape, name).map_or("_", String::as_str);
        let values: Vec<&str> = scrapes.iter().map(value).collect();
        let (metric, own) = name.split_once('{').unwrap_or((name, "}"));
        let series = format!("{metric}{{job=\"pleg\",instance=\"{node}\",{own}");
        json!({"series": series, "values": values.join(" ")})
    });
    let series: Vec<Value> = series.collect();
    let is_true = |expr: String, at: usize| {
        let samples = json!([{"labels": "{}", "value": 1}]);
        json!({"expr": expr, "eval_time": format!("{}s", at * 15), "exp_samples": samples})
    };
    let deploy = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy");
    let rules = format!("{deploy}/prometheus/pleg.rules.yaml");
    let read = |file: &str| std::fs::read_to_string(file).expect("a file");
    // Leaves out the three alerts for an agent that is down or absent.
    let alerts = read(&rules).matches("- alert: ").count() - 3;
    let firing = "ALERTS{alertstate=\"firing\"}";
    let all = format!("count(count by (alertname) ({firing})) == bool {alerts}");
    let mut expressions = vec![
        is_true(format!("absent(sum({firing}))"), CALM - 1),
        is_true(all, CALM + TROUBLE - 1),
    ];
    let dashboard = parse(&read(&format!("{deploy}/grafana/pleg.json")));
    for panel in dashboard["panels"].as_array().expect("panels") {
        let most = if panel["type"] == "table" { 50 } else { 12 };
        for target in panel["targets"].as_array().expect("targets") {
            let expr = target["expr"].as_str().expect("an expression");
            let expr = expr.replace("$instance", ".*").replace("$__range", "4m");
            expressions.push(is_true(format!("count({expr}) <= bool {most}"), CALM + 1));
        }
    }
    let all = json!({"rule_files": [rules], "evaluation_interval": "15s", "tests": [
        {"interval": "15s", "input_series": series, "promql_expr_test": expressions}
    ]});
    let file = sim.dir.write("tests.yaml", &all.to_string());
    let output = promtool(&["test", "rules", arg(&file)]).expect("promtool runs");
    assert!(output.status.success(), "{output:?}");
}
