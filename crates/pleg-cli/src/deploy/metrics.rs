//! The dashboard and the alerts. `tests/suite/commands/alerts.rs` evaluates them on the metrics of an agent.

use std::collections::BTreeSet;
use std::process::Command;

use serde::Deserialize;
use serde_json::Value;

use super::{has, path, read, succeeds};

/// The names that `docs/metrics.md` documents as shown without `--kubelet-names`, and Prometheus' own.
fn documented() -> BTreeSet<String> {
    let page = read("../docs/metrics.md");
    let (always, _) = page.split_once("## With `--kubelet-names`").unwrap();
    let mut names = BTreeSet::from(["up".to_owned()]);
    for line in always.lines() {
        match *line.split(" | ").collect::<Vec<_>>() {
            [name, "summary", _] => {
                names.extend(["_sum", "_count"].map(|s| name[2..].to_owned() + s));
            }
            [name, _, _] => names.extend([name[2..].to_owned()]),
            _ => {}
        }
    }
    names
}

/// The metrics in an expression: names with one of our prefixes, and `up`.
fn metrics(expr: &str) -> impl Iterator<Item = &str> {
    let words = expr.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| {
        *word == "up"
            || ["pleg_", "kubelet_", "process_"]
                .iter()
                .any(|prefix| word.starts_with(prefix))
    })
}

#[derive(Deserialize)]
struct Rules {
    groups: [Group; 1],
}

#[derive(Deserialize)]
struct Group {
    rules: Vec<Value>,
}

/// The alerts, without the recording rule.
fn alerts() -> Vec<Value> {
    let rules: Rules = serde_saphyr::from_str(&read("prometheus/pleg.rules.yaml")).unwrap();
    let [Group { rules }] = rules.groups;
    rules
        .into_iter()
        .filter(|rule| rule.get("alert").is_some())
        .collect()
}

#[test]
fn metrics_of_dashboard_and_alerts_are_documented() {
    let documented = documented();
    let board: Value = serde_json::from_str(&read("grafana/pleg.json")).unwrap();
    let panels = board["panels"].as_array().unwrap();
    let panels = panels.iter().flat_map(|panel| {
        assert!(
            panel["description"]
                .as_str()
                .is_some_and(|text| !text.is_empty()),
            "{panel}"
        );
        panel["targets"].as_array().unwrap()
    });
    for rule in panels.chain(&alerts()) {
        let expr = rule["expr"].as_str().unwrap();
        assert!(metrics(expr).next().is_some(), "{expr}");
        for name in metrics(expr) {
            assert!(
                documented.contains(name),
                "{name} in {expr} is not documented"
            );
        }
    }
}

#[test]
fn each_alert_waits_and_has_a_runbook_section() {
    let alerts = alerts();
    let runbook = read("../docs/runbook.md").to_lowercase();
    for alert in &alerts {
        assert!(alert["for"].is_string(), "{alert}");
        let name = alert["alert"].as_str().unwrap().to_lowercase();
        assert!(runbook.contains(&name), "{name} is not in docs/runbook.md");
        let url = alert["annotations"]["runbook_url"].as_str().unwrap();
        let (setting, anchor) = url.split_once('#').expect(url);
        assert!(setting.contains("query \"pleg:runbook\""), "{url}");
        let is_heading = |line: &str| line.trim_start_matches('#') == format!(" {anchor}");
        assert!(
            anchor.starts_with("{{") || runbook.lines().any(is_heading),
            "{url}"
        );
    }
    for code in pleg::core::Degraded::CODES {
        let names_it = |alert: &Value| alert["expr"].as_str().unwrap().contains(code);
        assert!(alerts.iter().any(names_it), "{code} has no alert");
    }
}

#[test]
fn inhibition_names_existing_alerts() {
    let text = read("prometheus/alertmanager.yaml");
    let names: Vec<Value> = alerts()
        .into_iter()
        .map(|alert| alert["alert"].clone())
        .collect();
    let config: Value = serde_saphyr::from_str(&text).unwrap();
    for rule in config["inhibit_rules"].as_array().unwrap() {
        assert_eq!(rule["equal"], serde_json::json!(["instance"]));
        for matchers in ["source_matchers", "target_matchers"] {
            let matcher = rule[matchers][0].as_str().unwrap();
            let (_, inhibited) = matcher.trim_end_matches('"').split_once('"').unwrap();
            for name in inhibited.split('|') {
                assert!(names.contains(&name.into()), "{name} in {matcher}");
            }
        }
    }
}

#[test]
fn alerts_fire_in_outages_and_not_in_maintenance() {
    if has("promtool") {
        let scenarios = path("prometheus/pleg.rules.test.yaml");
        succeeds(
            Command::new("promtool")
                .args(["test", "rules"])
                .arg(scenarios),
        );
    }
}
