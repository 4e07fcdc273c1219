//! The recent events of `pleg agent`, and `pleg watch` of an agent.

use pleg_tests::wait::until;
use serde_json::Value;

use super::agent::Agent;
use super::run::{Running, Sim, TIMEOUT, arg, run_job, serve};
use crate::support::TestDir;

fn json(line: &str) -> Value {
    serde_json::from_str(line).expect("JSON")
}

#[tokio::test]
async fn watch_since_shows_past_and_then_new_events() {
    let sim = Sim::start().await;
    run_job(&sim.kubelet, "before", 1).await;
    let agent = Agent::start(&["-r", arg(&sim.socket)]).await;
    agent.until_confirmed().await;
    run_job(&sim.kubelet, "first", 2).await;
    let exit = "\"exitCode\":2";
    let page = agent.until_shows("/debug/events", exit).await;
    assert!(!page.contains("before"), "it existed at the start: {page}");

    let url = format!("http://{}", agent.address);
    let mut watch = Running::start(&["watch", "--agent", &url, "--since", "10m", "-o", "json"]);
    let mut died = async || loop {
        let record = json(&watch.line().await.expect("a record"));
        if record["type"] == "ContainerDied" && record["kind"] == "container" {
            return (record["pod"]["name"].clone(), record["exitCode"].clone());
        }
    };
    assert_eq!(died().await, ("first".into(), 2.into()));
    run_job(&sim.kubelet, "second", 3).await;
    assert_eq!(died().await, ("second".into(), 3.into()));
    let notice = watch.message().await.expect("it started later");
    assert!(notice.contains("the agent's records begin at "), "{notice}");
    agent.stop().await;
    let mut line = String::new();
    while !line.contains("\"type\":\"Degraded\"") {
        line = watch.line().await.expect("a record");
    }
    assert!(line.contains("\"agent_silent\""), "{line}");
}

#[tokio::test]
async fn outage_of_the_runtime_is_recorded_by_agent_and_watch() {
    let dir = TestDir::new();
    let socket = dir.path("cri.sock");
    let sim = serve(&socket).await;
    let periods = ["--unready-after", "2s", "--relist-period-max", "1s"];
    let agent = Agent::start(&[&["-r", arg(&socket)], &periods[..]].concat()).await;
    agent.until_confirmed().await;
    let mut watch = Running::start(&["watch", "-o", "json", "-r", arg(&socket)]);
    let mut record = async |key: &str, value: &str| loop {
        let record = json(&watch.line().await.expect("a record"));
        if record[key] == value {
            return record;
        }
    };
    record("type", "Synced").await;
    sim.signal("TERM").await;
    assert_eq!(sim.end().await.code(), Some(0));
    agent.until_shows("/debug/events", "\"NotReady\"").await;
    let _sim = serve(&socket).await;
    for (kind, code) in [("Recovered", "stream_down"), ("Ready", "stale")] {
        let recorded = until(TIMEOUT, kind, || async {
            let (_, _, page) = agent.get("/debug/events").await;
            let mut records = page.lines().skip(1).map(json);
            let is_it = |r: Value| r["type"] == kind && r["code"] == code;
            records.any(is_it).then_some(())
        });
        recorded.await.expect("recorded");
    }
    assert_eq!(record("code", "stream_down").await["type"], "Degraded");
    let ended = record("code", "stream_down").await;
    let message = ended["message"].as_str().expect("text");
    let text = "subscribed again; no event stream for ";
    assert!(message.starts_with(text), "{ended}");
    assert!(ended["seconds"].as_f64() >= Some(0.9), "{ended}");
    agent.stop().await;
}
