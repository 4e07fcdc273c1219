//! The dashboard and the alerts: every metric in them is documented.

use std::collections::BTreeSet;
use std::process::Command;

use serde::Deserialize;
use serde_json::Value;

use super::{has, path, read, succeeds};

const BOARD: &str = "grafana/pleg.json";
const RULES: &str = "prometheus/pleg.rules.yaml";

/// The names in `docs/metrics.md`, those of the series of histograms, and Prometheus' own.
fn documented() -> BTreeSet<String> {
    let page = std::fs::read_to_string(path("../docs/metrics.md")).unwrap();
    let mut names = BTreeSet::from(["up".to_owned()]);
    for line in page.lines() {
        let cells: Vec<&str> = line.split(" | ").collect();
        let name = cells[0].trim_start_matches("| ").to_owned();
        if cells.get(1) == Some(&"histogram") {
            names.extend(["_bucket", "_sum", "_count"].map(|suffix| name.clone() + suffix));
        } else if cells.len() == 3 {
            names.insert(name);
        }
    }
    names
}

/// The metrics in an expression: a name with one of our prefixes, or before a brace.
fn metrics(expr: &str) -> Vec<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut rest = expr;
    while let Some(begin) = rest.find(is_part) {
        let word = &rest[begin..];
        let (word, after) = word.split_at(word.find(|c| !is_part(c)).unwrap_or(word.len()));
        let is_ours = ["pleg_", "kubelet_", "process_"]
            .iter()
            .any(|p| word.starts_with(p));
        if is_ours || after.starts_with('{') {
            found.push(word);
        }
        rest = after;
    }
    found
}

/// The panels of the dashboard: their titles, and their expressions.
fn panels() -> Vec<(String, Vec<String>)> {
    let board: Value = serde_json::from_str(&read(BOARD)).unwrap();
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let panel = |panel: &Value| {
        let title = text(&panel["title"]);
        assert!(!text(&panel["description"]).is_empty(), "{title}");
        let targets = panel["targets"].as_array().expect("targets");
        (title, targets.iter().map(|t| text(&t["expr"])).collect())
    };
    board["panels"]
        .as_array()
        .expect("panels")
        .iter()
        .map(panel)
        .collect()
}

#[derive(Deserialize)]
struct Rules {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
struct Rule {
    alert: String,
    expr: String,
}

fn alerts() -> Vec<(String, Vec<String>)> {
    let rules: Rules = serde_saphyr::from_str(&read(RULES)).unwrap();
    let rules = rules.groups.into_iter().flat_map(|group| group.rules);
    rules.map(|rule| (rule.alert, vec![rule.expr])).collect()
}

#[test]
fn each_metric_of_the_dashboard_and_of_the_alerts_is_documented() {
    let documented = documented();
    for (title, exprs) in panels().into_iter().chain(alerts()) {
        for expr in &exprs {
            let used = metrics(expr);
            assert!(!used.is_empty(), "{title}: {expr}");
            for name in used {
                assert!(
                    documented.contains(name),
                    "{name} in {title} is not documented"
                );
            }
        }
        assert!(!exprs.is_empty(), "{title}");
    }
    assert_eq!(
        metrics("a{b=\"1\"} / sum by (c) (pleg_x[5m])"),
        ["a", "pleg_x"]
    );
}

#[test]
fn each_degraded_reason_has_an_alert() {
    let alerts = alerts();
    for code in pleg::core::Degraded::CODES {
        let has_alert = alerts.iter().any(|(_, exprs)| exprs[0].contains(code));
        assert!(has_alert, "{code}");
    }
}

#[test]
fn prometheus_accepts_the_expressions_of_the_dashboard() {
    if !has("promtool") {
        return;
    }
    let exprs: Vec<String> = panels().into_iter().flat_map(|(_, exprs)| exprs).collect();
    let rule = |(n, expr)| serde_json::json!({"record": format!("panel:{n}"), "expr": expr});
    let rules: Vec<Value> = exprs.iter().enumerate().map(rule).collect();
    let file = tempfile::NamedTempFile::new().unwrap();
    let group = serde_json::json!({"groups": [{"name": "board", "rules": rules}]});
    std::fs::write(file.path(), group.to_string()).unwrap();
    succeeds(
        Command::new("promtool")
            .args(["check", "rules"])
            .arg(file.path()),
    );
}
