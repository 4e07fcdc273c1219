//! Tests of the alert rules. `tests/suite/agent_metrics.rs` evaluates them and the dashboard on an agent's metrics.

use std::process::Command;

use serde_json::{Value, json};

use super::{has, path, read, succeeds};

/// The alerts, without the recording rule.
fn alerts() -> Vec<Value> {
    let rules: Value = serde_saphyr::from_str(&read("prometheus/pleg.rules.yaml")).unwrap();
    let mut rules = rules["groups"][0]["rules"].as_array().unwrap().clone();
    rules.retain(|rule| rule.get("alert").is_some());
    rules
}

#[test]
fn alerts_have_durations_and_runbook_sections_and_inhibitions_name_them() {
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
        let exists = anchor.starts_with("{{") || runbook.lines().any(is_heading);
        assert!(exists, "{url}");
    }
    for code in pleg::core::Degraded::CODES {
        let names_it = |alert: &Value| alert["expr"].as_str().unwrap().contains(code);
        assert!(alerts.iter().any(names_it), "{code} has no alert");
    }
    let names: Vec<_> = alerts.iter().map(|alert| &alert["alert"]).collect();
    let config: Value = serde_saphyr::from_str(&read("prometheus/alertmanager.yaml")).unwrap();
    for rule in config["inhibit_rules"].as_array().unwrap() {
        assert_eq!(rule["equal"], json!(["instance"]));
        for matchers in ["source_matchers", "target_matchers"] {
            let matcher = rule[matchers][0].as_str().unwrap();
            let (_, inhibited) = matcher.trim_end_matches('"').split_once('"').unwrap();
            for name in inhibited.split('|') {
                let exists = names.iter().any(|alert| **alert == name);
                assert!(exists, "{name} in {matcher}");
            }
        }
    }
}

#[test]
fn alerts_fire_in_outages_and_not_in_maintenance() {
    if has("promtool") {
        let mut command = Command::new("promtool");
        command.args(["test", "rules"]);
        succeeds(command.arg(path("prometheus/pleg.rules.test.yaml")));
    }
}
