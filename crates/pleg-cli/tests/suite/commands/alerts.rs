//! The alerts and the dashboard of `deploy/` on the metrics of an agent, whose simulated runtime has one trouble
//! after the other. promtool evaluates them (`apt-get install prometheus` has it).

#![allow(clippy::print_stdout, reason = "a test says why it skips")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pleg_tests::wait::pass_time;
use serde_json::{Value, json};

use super::agent::Agent;
use super::run::{Running, arg, control};
use crate::support::TestDir;

/// Troubles, the series that shows each one and its value, and the alert.
const TROUBLES: [(&[&str], &str, f64, &str); 7] = [
    (
        &["network.not_ready=on"],
        "pleg_runtime_condition{condition=\"NetworkReady\"}",
        0.0,
        "PlegRuntimeNotReady",
    ),
    (
        &["pod.*.hang=on"],
        "pleg_degraded{reason=\"pods_hung\"}",
        1.0,
        "PlegPodsNotInspected",
    ),
    (
        &["stream_containers.hang=on"],
        "pleg_degraded{reason=\"list_slow\"}",
        1.0,
        "PlegListSlow",
    ),
    (
        &["all.hang=on"],
        "pleg_degraded{reason=\"runtime_silent\"}",
        1.0,
        "PlegRuntimeSilent",
    ),
    (
        &["drop=on"],
        "pleg_degraded{reason=\"stream_lossy\"}",
        1.0,
        "PlegStreamLossy",
    ),
    (
        &["down", "kill"],
        "pleg_degraded{reason=\"list_failed\"}",
        1.0,
        "PlegListFailed",
    ),
    (
        &["down", "kill"],
        "pleg_degraded{reason=\"stream_down\"}",
        1.0,
        "PlegStreamDown",
    ),
];
/// How many scrapes, 15 s apart, precede a trouble, and how many of it follow.
const CALM: usize = 12;
const TROUBLE: usize = 24;

/// Returns true if promtool is here. Says so if not; in CI that is a failure.
fn has_promtool() -> bool {
    let found = Command::new("promtool").arg("--version").output().is_ok();
    if !found {
        let in_ci = std::env::var_os("CI").is_some_and(|ci| ci == "true");
        assert!(!in_ci, "in CI no test may be skipped: promtool is missing");
        println!("skipped: promtool is missing");
    }
    found
}

/// A simulated node with pods that come and go, and its agent.
async fn node(dir: &TestDir) -> (PathBuf, Running, Agent) {
    let socket = dir.path("cri.sock");
    let mut sim = Running::start(&["sim", "--socket", arg(&socket), "--pods", "30"]);
    sim.message().await.expect("the socket");
    let often = ["--relist-period-max", "2s", "--probe-period", "2s"];
    let agent = Agent::start(&[&["-r", arg(&socket)], &often[..]].concat()).await;
    agent.until_confirmed().await;
    let shown = "pleg_runtime_condition{condition=\"NetworkReady\"}";
    agent.until_metric(shown, 1.0).await;
    (socket, sim, agent)
}

/// The series of one scrape, and their values.
type Scrape = BTreeMap<String, String>;

async fn scrape(agent: &Agent) -> Scrape {
    let (code, _, page) = agent.get("/metrics").await;
    assert_eq!(code, 200);
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    let series = lines.filter_map(|line| line.rsplit_once(' '));
    let series = series.map(|(series, value)| (series.to_owned(), value.to_owned()));
    series.chain([("up".to_owned(), "1".to_owned())]).collect()
}

/// The scrapes of a node as input series, with the labels that Prometheus adds.
fn input<'a>(node: &str, scrapes: &'a [Scrape]) -> impl Iterator<Item = Value> + use<'a> {
    let labels = format!("job=\"pleg\",instance=\"{node}\"");
    let names: BTreeSet<&String> = scrapes.iter().flat_map(BTreeMap::keys).collect();
    names.into_iter().map(move |name| {
        let value = |scrape: &'a Scrape| scrape.get(name).map_or("_", String::as_str);
        let values: Vec<&str> = scrapes.iter().map(value).collect();
        let series = match name.split_once('{') {
            Some((metric, own)) => format!("{metric}{{{labels},{own}"),
            None => format!("{name}{{{labels}}}"),
        };
        json!({"series": series, "values": values.join(" ")})
    })
}

/// An expression that has these samples at that scrape.
fn expect(expr: &str, at: usize, samples: &Value) -> Value {
    json!({"expr": expr, "eval_time": format!("{}s", at * 15), "exp_samples": samples})
}

/// Runs promtool on tests of the rules.
fn evaluate(tests: &[Value]) {
    let rules =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/prometheus/pleg.rules.yaml");
    let rules = rules.canonicalize().expect("the rules");
    let all = json!({"rule_files": [rules], "evaluation_interval": "15s", "tests": tests});
    let dir = TestDir::new();
    let file = dir.path("tests.yaml");
    std::fs::write(&file, all.to_string()).expect("written");
    let output = Command::new("promtool")
        .args(["test", "rules"])
        .arg(&file)
        .output();
    let output = output.expect("promtool runs");
    let text = [output.stdout, output.stderr].concat();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&text)
    );
}

#[tokio::test]
async fn each_trouble_fires_its_alert_and_churn_none() {
    if !has_promtool() {
        return;
    }
    let dir = TestDir::new();
    let (socket, _sim, agent) = node(&dir).await;
    let mut calm = Vec::new();
    for _ in 0..CALM {
        calm.push(scrape(&agent).await);
        pass_time(Duration::from_secs(1)).await;
    }
    let stopped = "pleg_notifications_received_total{type=\"stopped\"}";
    assert_ne!(calm[0][stopped], calm[CALM - 1][stopped], "no churn");
    let mut tests = Vec::new();
    for (trouble, series, value, alert) in TROUBLES {
        control(&socket, trouble).await;
        agent.until_metric(series, value).await;
        let mut scrapes = calm.clone();
        scrapes.resize(CALM + TROUBLE, scrape(&agent).await);
        control(&socket, &["reset"]).await;
        let series: Vec<Value> = input("node", &scrapes).collect();
        let fires = format!("count(ALERTS{{alertstate=\"firing\",alertname=\"{alert}\"}})");
        let expected = [
            expect("ALERTS{alertstate=\"firing\"}", CALM - 1, &json!([])),
            expect(
                &fires,
                CALM + TROUBLE - 1,
                &json!([{"labels": "{}", "value": 1}]),
            ),
        ];
        tests.push(json!({"name": alert, "interval": "15s", "input_series": series, "promql_expr_test": expected}));
    }
    evaluate(&tests);
}

/// Each panel has between one line and a dozen, and the table at most 50 rows.
#[tokio::test]
async fn dashboard_of_sixty_nodes_has_few_lines() {
    if !has_promtool() {
        return;
    }
    let dir = TestDir::new();
    let (_, _sim, agent) = node(&dir).await;
    let first = scrape(&agent).await;
    pass_time(Duration::from_secs(5)).await;
    let mut second = scrape(&agent).await;
    let troubles = [
        ("pleg_degraded{reason=\"list_slow\"}", "1"),
        (
            "pleg_finding{code=\"disk_full\",severity=\"critical\"}",
            "1",
        ),
        ("pleg_not_ready{reason=\"stale\"}", "1"),
        ("pleg_runtime_condition{condition=\"NetworkReady\"}", "0"),
        (
            "pleg_runtime_operations_errors_total{operation_type=\"version\"}",
            "1",
        ),
    ];
    second.extend(troubles.map(|(series, value)| (series.to_owned(), value.to_owned())));
    let scrapes = [vec![first; 10], vec![second; 10]].concat();
    let series: Vec<Value> = (0..60)
        .flat_map(|node| input(&node.to_string(), &scrapes))
        .collect();
    let board = include_str!("../../../../../deploy/grafana/pleg.json");
    let board: Value = serde_json::from_str(board).expect("JSON");
    let mut expected = Vec::new();
    for panel in board["panels"].as_array().expect("panels") {
        let most = if panel["type"] == "table" { 50 } else { 12 };
        for target in panel["targets"].as_array().expect("targets") {
            let expr = target["expr"].as_str().expect("an expression");
            let expr = expr.replace("$instance", ".*").replace("$__range", "4m");
            let few = format!("count({expr}) <= bool {most}");
            expected.push(expect(&few, 19, &json!([{"labels": "{}", "value": 1}])));
        }
    }
    evaluate(&[json!({"interval": "15s", "input_series": series, "promql_expr_test": expected})]);
}
