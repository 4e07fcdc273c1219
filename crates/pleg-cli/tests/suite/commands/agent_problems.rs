//! `pleg agent` names what is wrong: pods whose calls hang, and the runtime's own status.

use serde_json::Value;

use super::agent::Agent;
use super::run::{Running, Sim, arg, control, run_pod};
use crate::support::TestDir;

const VERBOSE: &str = "/readyz?verbose";

async fn check(agent: &Agent) -> (Option<i32>, String) {
    let url = format!("http://{}", agent.address);
    let end = Running::start(&["check", "--agent", &url]).end().await;
    (end.code(), end.out)
}

#[tokio::test]
async fn hung_pod_is_named_everywhere_with_its_call() {
    let sim = Sim::start().await;
    run_pod(&sim.kubelet, "cart").await;
    let args = ["-v", "-r", arg(&sim.socket), "--probe-period", "1s"];
    let mut agent = Agent::start(&args).await;
    agent
        .until_shows(VERBOSE, "[+]event_stream ok: confirmed")
        .await;
    assert_eq!(check(&agent).await, (Some(0), "ok\n".to_owned()));
    control(&sim.socket, &["pod.uid-cart.hang=on"]).await;

    let page = agent
        .until_shows(VERBOSE, "[!]pod test/cart hung for ")
        .await;
    for line in [
        "[+]writer ok\n",
        "[!]pods degraded (pods_hung) for ",
        "readyz check passed\n",
        "Status does not answer (",
    ] {
        assert!(page.contains(line), "{line} is not in\n{page}");
    }
    let failing = "pod test/cart failing for ";
    let page = agent.until_shows("/readyz", failing).await;
    assert!(page.starts_with("ok\ndegraded ("), "{page}");
    assert!(page.contains("\ndegraded (pods_failing) for "), "{page}");
    let (_, _, page) = agent.get("/debug/pods").await;
    let page: Value = serde_json::from_str(&page).expect("JSON");
    let problem = &page["problems"][0];
    let (total, name) = (&page["total"], &problem["pod"]["name"]);
    assert_eq!((total, name), (&1.into(), &"cart".into()));
    let call = problem["call"].as_str().expect("a call");
    let calls = ["PodSandboxStatus", "ContainerStatus"];
    assert!(calls.contains(&call), "{problem}");
    assert!(problem["seconds"].as_f64() >= Some(2.0), "{problem}");
    let since = problem["since"].as_str().expect("a time");
    since.parse::<jiff::Timestamp>().expect("RFC 3339");
    let (code, line) = check(&agent).await;
    assert_eq!(code, Some(1), "{line}");
    // While the call is repeated, it hangs again.
    let begins = ["test/cart failing for ", "test/cart hung for "];
    assert!(begins.iter().any(|text| line.starts_with(text)), "{line}");
    let is_short = line.chars().count() <= 81 && line.lines().count() == 1;
    assert!(is_short, "{line}");

    control(&sim.socket, &["reset"]).await;
    agent.until_shows(VERBOSE, "[+]pods ok\n").await;
    assert_eq!(check(&agent).await.0, Some(0));
    let (mut begins, mut ends) = (0, 0);
    while ends == 0 {
        let line = agent.running.message().await.expect("a line");
        let named = line.contains("name=cart") && line.contains("call=");
        begins += u32::from(named && line.contains(" WARN calls about a pod do not succeed: "));
        ends += u32::from(named && line.contains(" INFO calls about a pod succeed again after "));
    }
    assert_eq!((begins, ends), (1, 1));
    agent.stop().await;
}

#[tokio::test]
async fn runtime_condition_is_shown_and_the_node_stays_ready() {
    let sim = Sim::start().await;
    control(&sim.socket, &["network.not_ready=on"]).await;
    let mut agent = Agent::start(&["-r", arg(&sim.socket)]).await;
    let text = "is false (NetworkPluginNotReady): cni plugin not initialized\n";
    let page = agent.until_shows(VERBOSE, text).await;
    assert!(page.contains("[!]NetworkReady for "), "{page}");
    assert!(page.contains("[+]RuntimeReady is true\n"), "{page}");
    agent.until_shows("/readyz", "ok\n").await;
    assert_eq!(agent.get("/readyz").await.0, 200);
    for (condition, value) in [("RuntimeReady", 1.0), ("NetworkReady", 0.0)] {
        let metric = format!("pleg_runtime_condition{{condition=\"{condition}\"}}");
        agent.until_metric(&metric, value).await;
    }
    let answered = agent.metric("pleg_runtime_status_answered").await;
    assert_eq!(answered, Some(1.0));
    let line = agent.running.message().await.expect("an error");
    let is_logged = line.contains("ERROR the runtime's network is not ready")
        && line.contains("code=\"network_not_ready\"");
    assert!(is_logged, "{line}");
    let view: Value = serde_json::from_str(&agent.get("/debug/view").await.2).expect("JSON");
    assert_eq!(view["health"]["reasons"][0]["code"], "network_not_ready");
    let (code, line) = check(&agent).await;
    assert_eq!(code, Some(1), "{line}");
    assert!(line.starts_with("(network_not_ready) for "), "{line}");
    agent.stop().await;
}

#[tokio::test]
async fn check_without_an_agent_is_unknown() {
    let dir = TestDir::new();
    let socket = format!("unix://{}", arg(&dir.path("none.sock")));
    let end = Running::start(&["check", "--agent", &socket]).end().await;
    assert_eq!(end.code(), Some(2), "{}", end.err);
    let begin = "no answer of an agent at unix://";
    assert!(end.out.starts_with(begin), "{}", end.out);
    assert_eq!(end.out.lines().count(), 1);
}
