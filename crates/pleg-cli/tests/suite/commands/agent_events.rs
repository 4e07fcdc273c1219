//! The recent events of `pleg agent`, and `pleg watch` of an agent.

use pleg_tests::wait::until;
use serde_json::Value;

use super::agent::Agent;
use super::run::{Running, Sim, TIMEOUT, arg, run_job, serve};
use crate::support::{TestDir, pleg};

fn json(line: &str) -> Value {
    serde_json::from_str(line).expect("JSON")
}

#[tokio::test]
async fn watch_since_shows_what_the_agent_saw_and_then_what_happens() {
    let sim = Sim::start().await;
    run_job(&sim.kubelet, "before", 1).await;
    let agent = Agent::start(&["-r", arg(&sim.socket)]).await;
    until(TIMEOUT, "the stream", || async {
        let (_, _, page) = agent.get("/readyz?verbose").await;
        page.contains("[+]event_stream ok: confirmed").then_some(())
    })
    .await
    .expect("confirmed");
    run_job(&sim.kubelet, "first", 2).await;
    until(TIMEOUT, "the exit", || async {
        let (_, _, page) = agent.get("/debug/events").await;
        page.contains("\"exitCode\":2").then_some(())
    })
    .await
    .expect("recorded");
    let (code, head, page) = agent.get("/debug/events").await;
    assert_eq!(code, 200);
    assert!(
        head.contains("content-type: application/x-ndjson"),
        "{head}"
    );
    assert!(!page.contains("before"), "it existed at the start: {page}");
    assert_eq!(agent.get("/debug/events?after=x").await.0, 400);

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
    let silent = loop {
        let record = json(&watch.line().await.expect("a record"));
        if record["type"] == "Degraded" {
            break record;
        }
    };
    assert_eq!(silent["code"], "agent_silent", "{silent}");
}

#[tokio::test]
async fn token_is_needed_for_events() {
    let dir = TestDir::new();
    let (token, socket) = (dir.path("token"), dir.path("agent.sock"));
    std::fs::write(&token, "secret\n").expect("written");
    let url = format!("unix://{}", arg(&socket));
    let args = [
        "agent",
        "--sim",
        "--listen",
        &url,
        "--token-file",
        arg(&token),
    ];
    let mut agent = Running::start(&args);
    agent.message().await.expect("the address");
    let end = Running::start(&["watch", "--agent", &url]).end().await;
    assert_eq!(end.code(), Some(1), "{}", end.out);
    assert!(end.err.contains("401 Unauthorized"), "{}", end.err);
    let args = [
        "watch",
        "--agent",
        &url,
        "--token-file",
        arg(&token),
        "-o",
        "json",
    ];
    let mut watch = Running::start(&args);
    let record = json(&watch.line().await.expect("a record of the workload"));
    assert!(record["seq"].is_u64(), "{record}");
}

/// The agent becomes unready and ready again, and its watcher is told.
#[tokio::test]
async fn loss_of_readiness_is_an_event() {
    let dir = TestDir::new();
    let socket = dir.path("cri.sock");
    let sim = serve(&socket).await;
    let args = [
        "-r",
        arg(&socket),
        "--unready-after",
        "2s",
        "--relist-period-max",
        "1s",
    ];
    let agent = Agent::start(&args).await;
    let types = async || {
        let (_, _, page) = agent.get("/debug/events").await;
        let records = page.lines().skip(1).map(json);
        let types = records.map(|r| format!("{} {}", r["type"], r["code"]));
        types.collect::<Vec<_>>().join(", ").replace('"', "")
    };
    agent.until_ready().await;
    sim.signal("TERM").await;
    assert_eq!(sim.end().await.code(), Some(0));
    until(TIMEOUT, "NotReady", || async {
        types().await.contains("NotReady stale").then_some(())
    })
    .await
    .expect("recorded");
    let _sim = serve(&socket).await;
    until(TIMEOUT, "Ready", || async {
        let types = types().await;
        let all = [
            "Degraded stream_down",
            "Recovered stream_down",
            " Ready stale",
        ];
        all.iter().all(|t| types.contains(t)).then_some(())
    })
    .await
    .expect("recorded");
    agent.stop().await;
}

#[tokio::test]
async fn watch_shows_the_gap_while_the_runtime_was_away() {
    let sim = Sim::start().await;
    let mut watch = sim.run(&["watch", "-o", "json", "--type", "Degraded,Recovered"]);
    // The runtime restarts as soon as somebody is subscribed.
    let mut of_stream = async || loop {
        let record = json(&watch.line().await.expect("a record"));
        if record["code"] == "stream_down" {
            return record;
        }
    };
    let subscribed = || async {
        let mut command = pleg(&["sim", "ctl", "--socket", arg(&sim.socket)]);
        let shown = command.output().expect("it runs").stdout;
        let shown = String::from_utf8_lossy(&shown).into_owned();
        (!shown.contains("0 subscribers")).then_some(())
    };
    until(TIMEOUT, "a subscriber", subscribed)
        .await
        .expect("subscribed");
    super::run::control(&sim.socket, &["restart", "kill", "down=1s"]).await;
    let (began, ended) = (of_stream().await, of_stream().await);
    assert_eq!(
        (&began["type"], &ended["type"]),
        (&"Degraded".into(), &"Recovered".into())
    );
    let text = "subscribed again; no event stream for ";
    let message = ended["message"].as_str().expect("text");
    assert!(message.starts_with(text), "{message}");
    assert!(ended["seconds"].as_f64() >= Some(0.9), "{ended}");
}
