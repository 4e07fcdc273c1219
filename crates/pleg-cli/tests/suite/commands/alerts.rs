//! The alerts and the dashboard of `deploy/` on the metrics of an agent. promtool evaluates them
//! (`apt-get install prometheus` has it).

#![allow(clippy::print_stdout, reason = "a test says why it skips")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::Duration;

use pleg_tests::wait::pass_time;
use serde_json::{Value, json};

use super::agent::Agent;
use super::run::{Running, arg};
use crate::support::TestDir;

/// How many scrapes, 15 s apart, precede all troubles, and how many of these follow.
const CALM: usize = 20;
const TROUBLE: usize = 60;

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

/// The series of one scrape, and their values.
type Scrape = BTreeMap<String, String>;

async fn scrape(agent: &Agent) -> Scrape {
    let mut scrape = agent.scrape().await;
    scrape.insert("up".to_owned(), "1".to_owned());
    scrape
}

/// The scrapes of a node as input series, with the labels that Prometheus adds.
fn input<'a>(node: u32, scrapes: &'a [Scrape]) -> impl Iterator<Item = Value> + use<'a> {
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

/// A scrape of a node with each trouble that has an alert. The agent must have the series already.
fn troubled(mut scrape: Scrape) -> Scrape {
    let mut set = |series: &str, value: &str| scrape.insert(series.to_owned(), value.to_owned());
    for code in pleg::core::Degraded::CODES {
        let series = format!("pleg_degraded{{reason=\"{code}\"}}");
        assert_eq!(set(&series, "1").as_deref(), Some("0"), "{code}");
    }
    for (series, value) in [
        ("pleg_not_ready{reason=\"stale\"}", "1"),
        ("pleg_runtime_condition{condition=\"NetworkReady\"}", "0"),
        (
            "pleg_list_message_bytes{operation_type=\"list_containers\"}",
            "15e6",
        ),
    ] {
        assert!(set(series, value).is_some(), "{series}");
    }
    // They exist only after the trouble.
    let errors = "pleg_runtime_operations_errors_total{operation_type=\"version\"}";
    let finding = "pleg_finding{code=\"disk_full\",severity=\"critical\"}";
    for series in [errors, finding] {
        set(series, "1");
    }
    scrape
}

/// An expression that has one sample, 1, at that scrape.
fn is_true(expr: &str, at: usize) -> Value {
    let samples = json!([{"labels": "{}", "value": 1}]);
    json!({"expr": expr, "eval_time": format!("{}s", at * 15), "exp_samples": samples})
}

/// Runs promtool on the rules and on these expressions about the series of 20 nodes.
fn evaluate(scrapes: &[Scrape], expressions: &[Value]) {
    let rules = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../deploy/prometheus/pleg.rules.yaml"
    );
    let series: Vec<Value> = (0..20).flat_map(|node| input(node, scrapes)).collect();
    let all = json!({"rule_files": [rules], "evaluation_interval": "15s", "tests": [
        {"interval": "15s", "input_series": series, "promql_expr_test": expressions}
    ]});
    let dir = TestDir::new();
    let file = dir.path("tests.yaml");
    std::fs::write(&file, all.to_string()).expect("written");
    let mut promtool = Command::new("promtool");
    let output = promtool.args(["test", "rules"]).arg(&file).output();
    let output = output.expect("promtool runs");
    assert!(output.status.success(), "{output:?}");
}

/// Churn fires no alert; troubles fire each alert of a node that has an agent. Each panel has between one line and a
/// dozen, and the table at most 50 rows.
#[tokio::test]
async fn alerts_and_dashboard_fit_the_metrics_of_an_agent() {
    if !has_promtool() {
        return;
    }
    let dir = TestDir::new();
    let socket = dir.path("cri.sock");
    let mut sim = Running::start(&["sim", "--socket", arg(&socket), "--pods", "30"]);
    sim.message().await.expect("the socket");
    let args = ["-r", arg(&socket), "--relist-period-max", "2s"];
    let agent = Agent::start(&args).await;
    let condition = "pleg_runtime_condition{condition=\"NetworkReady\"}";
    agent.until_metric(condition, 1.0).await;
    agent.until_confirmed().await;
    let mut scrapes = Vec::new();
    for _ in 0..CALM {
        scrapes.push(scrape(&agent).await);
        pass_time(Duration::from_millis(500)).await;
    }
    let stopped = "pleg_notifications_received_total{type=\"stopped\"}";
    assert_ne!(scrapes[0][stopped], scrapes[CALM - 1][stopped], "no churn");
    let end = CALM + TROUBLE;
    scrapes.resize(end, troubled(scrapes[CALM - 1].clone()));

    let board = include_str!("../../../../../deploy/grafana/pleg.json");
    let board: Value = serde_json::from_str(board).expect("JSON");
    let rules = include_str!("../../../../../deploy/prometheus/pleg.rules.yaml");
    // Without those of an agent that is down or absent.
    let alerts = rules.matches("- alert: ").count() - 3;
    let firing = "ALERTS{alertstate=\"firing\"}";
    let none = format!("absent(sum({firing}))");
    let all = format!("count(count by (alertname) ({firing})) == bool {alerts}");
    let mut expressions = vec![is_true(&none, CALM - 1), is_true(&all, end - 1)];
    for panel in board["panels"].as_array().expect("panels") {
        let most = if panel["type"] == "table" { 50 } else { 12 };
        for target in panel["targets"].as_array().expect("targets") {
            let expr = target["expr"].as_str().expect("an expression");
            let expr = expr.replace("$instance", ".*").replace("$__range", "4m");
            expressions.push(is_true(&format!("count({expr}) <= bool {most}"), CALM + 1));
        }
    }
    evaluate(&scrapes, &expressions);
}
