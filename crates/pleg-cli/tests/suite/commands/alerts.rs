//! The alerts of `deploy/prometheus`: each planted problem makes its alert fire within a minute, and ordinary
//! churn makes none fire. The series are scraped from an agent on a simulated runtime; promtool evaluates
//! the rules. (`apt-get install prometheus` has promtool.)

#![allow(clippy::print_stdout, reason = "a test says why it skips")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use pleg::runtime::clock::Clock;
use pleg_tests::kubelet::Life;
use pleg_tests::wait::{pass_time, until};
use serde_json::{Value, json};

use super::agent::Agent;
use super::run::{Running, Sim, TIMEOUT, arg, control, run_pod};
use crate::support::TestDir;

/// Between two scrapes, and between two evaluations.
const SCRAPE: u32 = 15;
/// How many scrapes precede the problem.
const CALM: u32 = 8;
/// How soon the alert must fire.
const WITHIN: u32 = 60;

/// Whether promtool is here. Says so if not; in CI that is a failure.
fn has_promtool() -> bool {
    let found = Command::new("promtool").arg("--version").output().is_ok();
    if !found {
        let in_ci = std::env::var_os("CI").is_some_and(|ci| ci == "true");
        assert!(!in_ci, "in CI no test may be skipped: promtool is missing");
        println!("skipped: promtool is missing");
    }
    found
}

/// The series of one scrape, as Prometheus stores them.
type Scrape = BTreeMap<String, String>;

async fn scrape(agent: &Agent) -> Scrape {
    let (code, _, page) = agent.get("/metrics").await;
    assert_eq!(code, 200);
    let mut series = Scrape::from([(labelled("up"), "1".to_owned())]);
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        if let Some((name, value)) = line.rsplit_once(' ') {
            series.insert(labelled(name), value.to_owned());
        }
    }
    series
}

/// The series with the labels that a scrape adds.
fn labelled(series: &str) -> String {
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    let comma = if labels == "}" { "" } else { "," };
    format!("{name}{{job=\"pleg\",instance=\"node\"{comma}{labels}")
}

/// What is scraped of an agent that is down.
fn down() -> Scrape {
    Scrape::from([(labelled("up"), "0".to_owned())])
}

/// Scrapes with their numbers, as input series. After the last one it stays the same.
fn input(scrapes: &[Scrape]) -> Vec<Value> {
    let mut names: Vec<&String> = scrapes.iter().flat_map(BTreeMap::keys).collect();
    names.sort();
    names.dedup();
    let values = |name: &String| {
        let value = |scrape: &Scrape| scrape.get(name).map_or("_", String::as_str).to_owned();
        let all: Vec<String> = scrapes.iter().map(value).collect();
        all.join(" ")
    };
    let series = |name: &String| json!({"series": name, "values": values(name)});
    names.into_iter().map(series).collect()
}

/// The alerts that fire at that scrape, and only those with this name, if there is one.
fn firing(at: u32, alert: Option<&str>) -> Value {
    let name = alert.map_or_else(String::new, |name| format!(",alertname=\"{name}\""));
    let expr = format!("count by (alertname) (ALERTS{{alertstate=\"firing\"{name}}})");
    let samples =
        alert.map(|name| json!({"labels": format!("{{alertname=\"{name}\"}}"), "value": 1}));
    json!({
        "expr": expr,
        "eval_time": format!("{}s", at * SCRAPE),
        "exp_samples": samples.into_iter().collect::<Vec<_>>(),
    })
}

/// Runs promtool on these tests of the rules.
fn evaluate(name: &str, series: &[Value], expected: &[Value]) {
    let rules =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/prometheus/pleg.rules.yaml");
    let rules = rules.canonicalize().expect("the rules");
    let interval = format!("{SCRAPE}s");
    let tests = json!({
        "rule_files": [rules],
        "evaluation_interval": interval,
        "tests": [{"interval": interval, "input_series": series, "promql_expr_test": expected}],
    });
    let dir = TestDir::new();
    let file = dir.path("tests.yaml");
    std::fs::write(&file, tests.to_string()).expect("written");
    let output = Command::new("promtool")
        .args(["test", "rules"])
        .arg(&file)
        .output();
    let output = output.expect("promtool runs");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success(), "{name}: {text}");
}

/// A calm node, then a problem that the metrics show `after` its begin.
fn fires(alert: &str, calm: &Scrape, problem: &Scrape, after: Duration) {
    let late = u32::try_from(after.as_secs()).expect("not long") / SCRAPE + 1;
    let mut scrapes = vec![calm.clone(); (CALM + late) as usize];
    scrapes.resize((CALM + WITHIN / SCRAPE + 1) as usize, problem.clone());
    let at = CALM + WITHIN / SCRAPE;
    let expected = [firing(CALM, None), firing(at, Some(alert))];
    evaluate(alert, &input(&scrapes), &expected);
}

/// A node with one pod, on which nothing is wrong.
struct Node {
    sim: Sim,
    agent: Agent,
    calm: Scrape,
}

impl Node {
    async fn start() -> Self {
        let sim = Sim::start().await;
        run_pod(&sim.kubelet, "cart").await;
        // So that the tests take less time.
        let often = ["--relist-period-max", "2s", "--probe-period", "2s"];
        let agent = Agent::start(&[&["-r", arg(&sim.socket)], &often[..]].concat()).await;
        agent.until_confirmed().await;
        let calm = scrape(&agent).await;
        Self { sim, agent, calm }
    }

    /// Waits until the series has this value, and evaluates the rules.
    async fn shows(&self, alert: &str, series: &str, value: f64) {
        let clock = Clock::start();
        let began = clock.now();
        self.agent.until_metric(series, value).await;
        let after = clock.now().since(began);
        fires(alert, &self.calm, &scrape(&self.agent).await, after);
    }

    async fn shows_degraded(&self, alert: &str, reason: &str) {
        let series = format!("pleg_degraded{{reason=\"{reason}\"}}");
        self.shows(alert, &series, 1.0).await;
    }
}

#[tokio::test]
async fn runtime_that_hangs_is_reported() {
    if has_promtool() {
        let node = Node::start().await;
        control(&node.sim.socket, &["all.hang=on"]).await;
        node.shows_degraded("PlegRuntimeSilent", "runtime_silent")
            .await;
    }
}

#[tokio::test]
async fn runtime_that_is_down_is_reported() {
    if has_promtool() {
        let node = Node::start().await;
        control(&node.sim.socket, &["down", "kill"]).await;
        node.shows_degraded("PlegStreamDown", "stream_down").await;
        node.shows_degraded("PlegListFailed", "list_failed").await;
    }
}

#[tokio::test]
async fn list_that_hangs_is_reported() {
    if has_promtool() {
        let node = Node::start().await;
        control(&node.sim.socket, &["stream_containers.hang=on"]).await;
        node.shows_degraded("PlegListSlow", "list_slow").await;
    }
}

#[tokio::test]
async fn pod_whose_calls_hang_is_reported() {
    if has_promtool() {
        let node = Node::start().await;
        control(&node.sim.socket, &["pod.uid-cart.hang=on"]).await;
        node.shows_degraded("PlegPodsNotInspected", "pods_hung")
            .await;
    }
}

#[tokio::test]
async fn stream_that_loses_events_is_reported() {
    if has_promtool() {
        let node = Node::start().await;
        control(&node.sim.socket, &["drop=on"]).await;
        let pod = node.sim.kubelet.run_pod("lost").await.expect("run");
        // No event is expected in the first seconds of a stream.
        let lose = async {
            for attempt in 0.. {
                let started = node
                    .sim
                    .kubelet
                    .run(&pod, "app", attempt, Life::UntilStopped);
                started.await.expect("started");
                pass_time(Duration::from_secs(2)).await;
            }
        };
        tokio::select! {
            () = lose => {}
            () = node.shows_degraded("PlegStreamLossy", "stream_lossy") => {}
        }
    }
}

#[tokio::test]
async fn condition_of_the_runtime_is_reported() {
    if has_promtool() {
        let node = Node::start().await;
        control(&node.sim.socket, &["network.not_ready=on"]).await;
        let series = "pleg_runtime_condition{condition=\"NetworkReady\"}";
        node.shows("PlegRuntimeNotReady", series, 0.0).await;
    }
}

#[tokio::test]
async fn list_near_the_message_limit_is_reported() {
    if has_promtool() {
        let node = Node::start().await;
        control(&node.sim.socket, &["list.pad=13000000"]).await;
        let series = "pleg_list_message_bytes{operation_type=\"list_containers\"}";
        let clock = Clock::start();
        let began = clock.now();
        until(TIMEOUT, series, || async {
            let bytes = node.agent.metric(series).await;
            (bytes > Some(13e6)).then_some(())
        })
        .await
        .expect("shown");
        let after = clock.now().since(began);
        let problem = scrape(&node.agent).await;
        fires("PlegListNearLimit", &node.calm, &problem, after);
    }
}

#[tokio::test]
async fn agent_without_runtime_and_agent_that_is_down_are_reported() {
    if has_promtool() {
        let node = Node::start().await;
        fires("PlegAgentDown", &node.calm, &down(), Duration::ZERO);
        let dir = TestDir::new();
        let agent = Agent::start(&["-r", arg(&dir.path("none.sock"))]).await;
        let problem = scrape(&agent).await;
        fires("PlegNotReady", &node.calm, &problem, Duration::ZERO);
    }
}

/// What a simulated runtime does not cause.
#[tokio::test]
async fn backlog_and_lists_of_some_seconds_are_reported() {
    if has_promtool() {
        let node = Node::start().await;
        let mut problem = node.calm.clone();
        let backlog = labelled("pleg_degraded{reason=\"backlog\"}");
        assert!(problem.insert(backlog, "1".to_owned()).is_some());
        fires("PlegBacklog", &node.calm, &problem, Duration::ZERO);

        let mut problem = node.calm.clone();
        let unacknowledged = labelled("pleg_degraded{reason=\"unacknowledged\"}");
        assert!(problem.insert(unacknowledged, "1".to_owned()).is_some());
        fires("PlegUnacknowledged", &node.calm, &problem, Duration::ZERO);

        // From the eighth scrape on, three lists in 15 s take 4 s each.
        let name = "kubelet_pleg_relist_duration_seconds";
        let mut scrapes = vec![node.calm.clone(); CALM as usize];
        for n in 1..=4 {
            let mut slow = node.calm.clone();
            slow.insert(labelled(&format!("{name}_sum")), (12 * n).to_string());
            slow.insert(labelled(&format!("{name}_count")), (3 * n + 1).to_string());
            scrapes.push(slow);
        }
        let expected = [firing(CALM, None), firing(CALM + 3, Some("PlegListSlow"))];
        evaluate("slow lists", &input(&scrapes), &expected);
    }
}

/// The scrapes are a second apart, so the rates are higher than they seem.
#[tokio::test]
async fn churn_makes_no_alert_fire() {
    if !has_promtool() {
        return;
    }
    let dir = TestDir::new();
    let socket = dir.path("cri.sock");
    let args = ["sim", "--socket", arg(&socket), "--pods", "30"];
    let mut sim = Running::start(&args);
    sim.message().await.expect("the socket");
    let agent = Agent::start(&["-r", arg(&socket)]).await;
    agent.until_metric("pleg_ready", 1.0).await;
    let mut scrapes = Vec::new();
    for _ in 0..15 {
        scrapes.push(scrape(&agent).await);
        pass_time(Duration::from_secs(1)).await;
    }
    let received = labelled("pleg_notifications_received_total{type=\"stopped\"}");
    assert!(scrapes[0][&received] != scrapes[14][&received], "no churn");
    let expected: Vec<Value> = (0..15).map(|at| firing(at, None)).collect();
    evaluate("churn", &input(&scrapes), &expected);
}
