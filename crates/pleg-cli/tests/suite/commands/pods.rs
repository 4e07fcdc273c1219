//! `pleg pods`: shows every sandbox and container.

use pleg_tests::kubelet::Life;
use pleg_tests::lives;
use serde_json::{Value, json};

use super::run::{Running, Sim, arg};
use crate::support::pleg;

/// A pod with a running, an exited and a created container, and a stopped pod.
async fn two_pods() -> Sim {
    let sim = Sim::start().await;
    let kubelet = &sim.kubelet;
    let web = kubelet.run_pod("web").await.expect("run");
    let app = kubelet.run(&web, "app", 0, Life::UntilStopped).await;
    app.expect("started");
    let (code, after_ms) = (3, 0);
    let job = kubelet.run(&web, "job", 0, Life::Exit { code, after_ms });
    let job = job.await.expect("started");
    lives::ended(kubelet, &job).await.expect("exited");
    let later = kubelet.create(&web, "later", 2, Life::UntilStopped).await;
    later.expect("created");
    let old = kubelet.run_pod("old").await.expect("run");
    kubelet.stop_pod(&old).await.expect("stopped");
    sim
}

#[tokio::test]
async fn json_and_table_contain_every_sandbox_and_container() {
    let sim = two_pods().await;
    let end = sim.run(&["pods", "-o", "json"]).end().await;
    assert_eq!(end.outcome(), (Some(0), ""));
    let pods: Result<Value, _> = end.out.lines().map(serde_json::from_str::<Value>).collect();
    let pods = pods.expect("one object per line");
    for (at, value) in [
        ("/0/pod/name", json!("old")),
        ("/0/sandboxes/0/state", json!("NotReady")),
        ("/0/containers", json!([])),
        ("/1/pod/name", json!("web")),
        ("/1/pod/uid", json!("uid-web")),
        ("/1/sandboxes/0/state", json!("Ready")),
    ] {
        assert_eq!(pods.pointer(at), Some(&value), "{at}: {pods}");
    }
    let as_of = pods[1]["asOf"].as_str().expect("an instant");
    as_of.parse::<jiff::Timestamp>().expect("RFC 3339");
    let containers = pods[1]["containers"].as_array().expect("an array");
    let fields = ["name", "state", "attempt", "exitCode", "reason"];
    let shown = |container: &Value| fields.map(|field| container[field].clone());
    let mut shown: Vec<_> = containers.iter().map(shown).collect();
    shown.sort_by_key(|fields| fields[0].to_string());
    let expected = json!([
        ["app", "Running", 0, null, null],
        ["job", "Exited", 0, 3, "Error"],
        ["later", "Created", 2, null, null],
    ]);
    assert_eq!(json!(shown), expected);

    let end = sim.run(&["pods"]).end().await;
    assert_eq!(end.outcome(), (Some(0), ""));
    assert!(!end.out.contains('\u{1b}'), "no colours in a pipe");
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = end.out.lines().map(words).collect();
    assert_eq!(lines[0], "POD KIND NAME STATE EXIT AGE TRY ID AS OF UID");
    assert_eq!(lines.len(), 6, "two sandboxes, three containers: {lines:?}");
    for (start, end) in [
        ("test/old sandbox NotReady ", " ago uid-old"),
        ("test/web sandbox Ready ", " ago uid-web"),
        ("container app Running ", " ago"),
        ("container job Exited 3 Error ", " ago"),
        ("container later Created ", " ago"),
    ] {
        let is_it = |line: &String| line.starts_with(start) && line.ends_with(end);
        assert!(lines.iter().any(is_it), "{start} is not in {lines:?}");
    }
}

#[tokio::test]
async fn pods_are_selected_by_namespace_and_labels() {
    let sim = two_pods().await;
    for (args, names) in [
        ("-n test", &["old", "web"][..]),
        ("-n other", &[]),
        (
            "-n other -n test -l io.kubernetes.pod.uid=uid-web",
            &["web"],
        ),
        ("-l !io.kubernetes.pod.uid", &[]),
    ] {
        let args = ["pods", "-o", "json"].into_iter().chain(args.split(' '));
        let end = sim.run(&args.collect::<Vec<_>>()).end().await;
        let name = |line| serde_json::from_str::<Value>(line).expect("JSON")["pod"]["name"].clone();
        let shown: Vec<Value> = end.out.lines().map(name).collect();
        assert_eq!(shown, names, "{}", end.err);
    }
    let end = sim.run(&["pods", "-n", "other"]).end().await;
    assert_eq!(end.outcome(), (Some(0), "no pods\n"));
}

#[tokio::test]
async fn runtime_and_what_named_it_are_shown() {
    let sim = Sim::start().await;
    let endpoint = format!("unix://{}", arg(&sim.socket));
    for (flag, variable, named_by) in [
        (None, &endpoint, "CONTAINER_RUNTIME_ENDPOINT"),
        (Some(&endpoint), &"/none".to_owned(), "-r"),
    ] {
        let mut command = pleg(&["pods"]);
        command.env("CONTAINER_RUNTIME_ENDPOINT", variable);
        command.args(flag.map(|endpoint| format!("-r={endpoint}")));
        let end = Running::spawn(command).end().await;
        let expected = format!("reading {endpoint} (set by {named_by}");
        assert!(end.err.starts_with(&expected), "{}", end.err);
        assert_eq!(end.outcome(), (Some(0), "no pods\n"));
    }
}
