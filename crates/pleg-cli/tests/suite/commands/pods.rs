//! `pleg pods`: shows every sandbox and container.

use pleg_tests::kubelet::Life;
use pleg_tests::lives;
use serde_json::Value;

use super::run::{Running, Sim, arg};
use crate::support::pleg;

/// A pod with a running, an exited and a created container, and a stopped pod.
async fn two_pods() -> Sim {
    let sim = Sim::start().await;
    let kubelet = &sim.kubelet;
    let web = kubelet.run_pod("web").await.expect("run");
    for (name, life) in [
        ("app", Life::UntilStopped),
        (
            "job",
            Life::Exit {
                code: 3,
                after_ms: 0,
            },
        ),
    ] {
        let id = kubelet.run(&web, name, 0, life).await.expect("started");
        if life != Life::UntilStopped {
            lives::ended(kubelet, &id).await.expect("exited");
        }
    }
    let later = kubelet.create(&web, "later", 2, Life::UntilStopped).await;
    later.expect("created");
    let old = kubelet.run_pod("old").await.expect("run");
    kubelet.stop_pod(&old).await.expect("stopped");
    sim
}

#[tokio::test]
async fn json_contains_every_sandbox_and_container() {
    let sim = two_pods().await;
    let end = sim.run(&["pods", "-o", "json"]).end().await;
    assert_eq!((end.code(), &*end.err), (Some(0), ""));
    let pods: Vec<Value> = end
        .out
        .lines()
        .map(|l| serde_json::from_str(l).expect("one object per line"))
        .collect();
    let names: Vec<_> = pods.iter().map(|p| p["pod"]["name"].as_str()).collect();
    assert_eq!(names, [Some("old"), Some("web")], "sorted");
    let [old, web] = &pods[..] else { panic!("two") };
    assert_eq!(old["sandboxes"][0]["state"], "NotReady", "{old}");
    assert_eq!(old["containers"], Value::Array(vec![]), "{old}");
    assert_eq!(web["sandboxes"][0]["state"], "Ready", "{web}");
    assert_eq!(web["pod"]["uid"], "uid-web");
    let as_of = web["asOf"].as_str().expect("an instant");
    as_of.parse::<jiff::Timestamp>().expect("RFC 3339");
    let containers = web["containers"].as_array().expect("an array");
    assert_eq!(containers.len(), 3, "{web}");
    let of = |name: &str| {
        let mut all = containers.iter();
        all.find(|c| c["name"] == name).expect("it is shown")
    };
    assert_eq!(of("app")["state"], "Running");
    assert!(
        of("app").get("exitCode").is_none(),
        "a running container has no exit code: {web}"
    );
    assert_eq!(of("job")["state"], "Exited");
    assert_eq!(of("job")["exitCode"], 3);
    assert_eq!(of("job")["reason"], "Error");
    assert_eq!(of("later")["state"], "Created");
    assert_eq!(of("later")["attempt"], 2);
}

#[tokio::test]
async fn table_contains_every_sandbox_and_container() {
    let sim = two_pods().await;
    let end = sim.run(&["pods"]).end().await;
    assert_eq!((end.code(), &*end.err), (Some(0), ""));
    assert!(!end.out.contains('\u{1b}'), "no colours in a pipe");
    let rows: Vec<Vec<&str>> = end
        .out
        .lines()
        .map(|l| l.split_whitespace().collect())
        .collect();
    let [heading, rows @ ..] = &rows[..] else {
        panic!("no heading");
    };
    let headings = [
        "POD", "KIND", "NAME", "STATE", "EXIT", "AGE", "TRY", "ID", "AS", "OF",
    ];
    assert_eq!(heading, &headings);
    assert_eq!(
        rows.len(),
        5,
        "two sandboxes, three containers: {}",
        end.out
    );
    let shows = |words: &[&str]| {
        rows.iter()
            .any(|r| r.windows(words.len()).any(|w| w == words))
    };
    for words in [
        &["test/old", "sandbox", "NotReady"][..],
        &["test/web", "sandbox", "Ready"],
        &["container", "app", "Running"],
        &["container", "job", "Exited", "3", "Error"],
        &["container", "later", "Created"],
    ] {
        assert!(shows(words), "{words:?} is not in\n{}", end.out);
    }
    assert!(rows.iter().all(|r| r.ends_with(&["ago"])), "{}", end.out);
}

#[tokio::test]
async fn node_without_pods_is_not_an_error() {
    let sim = Sim::start().await;
    let end = sim.run(&["pods", "-o", "json"]).end().await;
    assert_eq!((end.code(), &*end.out, &*end.err), (Some(0), "", ""));
    let end = sim.run(&["pods"]).end().await;
    assert_eq!((end.code(), &*end.err), (Some(0), "no pods\n"));
}

#[tokio::test]
async fn runtime_endpoint_is_read_from_environment() {
    let sim = two_pods().await;
    let endpoint = format!("unix://{}", arg(&sim.socket));
    let mut command = pleg(&["pods"]);
    command.env("CONTAINER_RUNTIME_ENDPOINT", &endpoint);
    let end = Running::spawn(command).end().await;
    assert_eq!((end.code(), &*end.err), (Some(0), ""));
    assert!(end.out.contains("test/web"), "{}", end.out);
    // The flag overrides the environment.
    let mut command = pleg(&["pods", "-r", &endpoint]);
    command.env("CONTAINER_RUNTIME_ENDPOINT", "unix:///nowhere/x.sock");
    let end = Running::spawn(command).end().await;
    assert!(end.out.contains("test/web"), "{}", end.err);
}
