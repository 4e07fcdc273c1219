//! The agent's recent events, `pleg watch --agent`, and how the agent names what is wrong.

use serde_json::Value;

use super::agent::Agent;
use super::run::{Running, Sim, assert_has, assert_time, parse};

const VERBOSE: &str = "/readyz?verbose";

async fn check(agent: &Agent) -> (Option<i32>, String) {
    let check = format!("check --agent http://{}", agent.address);
    let end = Running::start(&check).end().await;
    (end.code, end.out)
}

fn watch_since(agent: &Agent) -> Running {
    let agent = &agent.address;
    Running::start(&format!("watch --agent http://{agent} --since 10m -o json"))
}

#[tokio::test]
async fn agent_names_hung_pod_and_the_call_that_hangs() {
    let sim = Sim::start().await;
    sim.run_pod("cart").await;
    let agent = sim.agent("--probe-period 1s").await;
    let confirmed = "[+]event_stream ok: confirmed";
    agent.until_shows(VERBOSE, confirmed).await;
    assert_eq!(check(&agent).await, (Some(0), "ok\n".to_owned()));
    sim.control("pod.uid-cart.hang=on").await;

    let hung = "[!]pod test/cart hung for | Status does not answer ( | [!]pods degraded (pods_hung) for | \
        [+]kubelet ok\n | readyz check passed\n";
    agent.until_shows(VERBOSE, hung).await;
    let failing = "pod test/cart failing for | \ndegraded (pods_failing) for ";
    let page = agent.until_shows("/readyz", failing).await;
    assert!(page.starts_with("ok\ndegraded ("), "{page}");
    let page = parse(&agent.get("/debug/pods").await.2);
    let problem = &page["problems"][0];
    let (total, name) = (&page["total"], &problem["pod"]["name"]);
    assert_eq!((total, name), (&1.into(), &"cart".into()));
    let call = problem["call"].as_str().expect("a call");
    let calls = ["PodSandboxStatus", "ContainerStatus"];
    let is_known = calls.contains(&call) && problem["seconds"].as_f64() >= Some(2.0);
    assert!(is_known, "{problem}");
    assert_time(&problem["since"]);
    let (code, line) = check(&agent).await;
    // Each repetition of the call hangs again, so the pod is shown as failing or as hung.
    let begins = ["test/cart failing for ", "test/cart hung for "];
    let is_named = begins.iter().any(|text| line.starts_with(text));
    assert!(code == Some(1) && is_named, "{line}");
    let is_short = line.chars().count() <= 81 && line.lines().count() == 1;
    assert!(is_short, "{line}");

    sim.control("reset").await;
    agent.until_shows(VERBOSE, "[+]pods ok\n").await;
    assert_eq!(check(&agent).await.0, Some(0));
}

#[tokio::test]
async fn agent_stays_ready_and_shows_that_network_is_not_ready() {
    let sim = Sim::start().await;
    sim.control("network.not_ready=on").await;
    let runtime = sim.running.as_ref().expect("it runs");
    runtime.signal("STOP").await;
    let mut agent = sim.agent("").await;
    let unknown = "[ ]host not examined\n | [ ]not examined: the host: not looked at yet\n";
    agent.until_shows(VERBOSE, unknown).await;
    runtime.signal("CONT").await;
    let shown = "[!]network degraded (network_not_ready) for | [+]runtime ok\n | Status: NetworkReady \
        is false (NetworkPluginNotReady): cni plugin not initialized\n";
    agent.until_shows(VERBOSE, shown).await;
    agent.until_metric("pleg_ready", 1.0).await;
    assert_eq!(agent.get("/readyz").await.0, 200);
    for (condition, value) in [("RuntimeReady", 1.0), ("NetworkReady", 0.0)] {
        let metric = format!("pleg_runtime_condition{{condition=\"{condition}\"}}");
        agent.until_metric(&metric, value).await;
    }
    let answered = "pleg_runtime_status_answered";
    agent.until_metric(answered, 1.0).await;
    let error = "ERROR the runtime's network is not ready";
    let line = agent.running.message_with(error).await;
    assert_has(&line, "code=\"network_not_ready\"");
    let (code, line) = check(&agent).await;
    assert_eq!(code, Some(1));
    assert_has(&line, "(network_not_ready) for ");
}

#[tokio::test]
async fn watch_since_shows_past_and_then_new_events() {
    let sim = Sim::start().await;
    sim.run_job("before", 1).await;
    let agent = sim.confirmed_agent("").await;
    sim.run_job("first", 2).await;
    let page = agent.until_shows("/debug/events", "\"exitCode\":2").await;
    assert!(!page.contains("before"), "it existed at the start: {page}");

    let mut watch = watch_since(&agent);
    let died = |pod: &'static str, code| {
        move |r: &Value| {
            r["type"] == "ContainerDied" && r["pod"]["name"] == pod && r["exitCode"] == code
        }
    };
    watch.record(died("first", 2)).await;
    sim.run_job("second", 3).await;
    watch.record(died("second", 3)).await;
    watch.message_with("the agent's records begin at ").await;
    agent.stop().await;
    let silent = watch.record(|record| record["type"] == "Degraded").await;
    assert_eq!(silent["code"], "agent_silent");
}

#[tokio::test]
async fn outage_of_the_runtime_is_recorded_by_agent_and_watch() {
    let mut sim = Sim::start().await;
    let periods = "--unready-after 2s --relist-period-max 1s";
    let agent = sim.confirmed_agent(periods).await;
    let mut watch = sim.run("watch -o json");
    watch.record(|record| record["type"] == "Synced").await;
    sim.stop().await;
    agent.until_shows("/debug/events", "\"NotReady\"").await;
    sim.serve("--empty").await;
    for (kind, code) in [("Recovered", "stream_down"), ("Ready", "stale")] {
        let mut of_agent = watch_since(&agent);
        let is_it = |r: &Value| r["type"] == kind && r["code"] == code;
        of_agent.record(is_it).await;
    }
    let down = watch.record(|record| record["code"] == "stream_down").await;
    assert_eq!(down["type"], "Degraded");
    let ended = watch.record(|record| record["code"] == "stream_down").await;
    let message = ended["message"].as_str().expect("text");
    assert_has(message, "subscribed again; no event stream for ");
    assert!(ended["seconds"].as_f64() >= Some(0.9), "{ended}");
}
