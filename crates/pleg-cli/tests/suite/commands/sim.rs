//! `pleg sim` in its modes, `pleg sim ctl`, and a client that has nothing of ours.

use std::path::Path;
use std::process::Stdio;

use pleg_tests::kubelet::Life;

use super::run::{Running, Sim, kubelet, word};
use crate::support::Place;

/// `pleg sim ctl` there; what it said.
async fn ctl(socket: &Path, command: &[&str]) -> String {
    let args = [&["sim", "ctl", "--socket", word(socket)], command].concat();
    let end = Running::start(&args).end().await;
    assert_eq!(end.code(), Some(0), "{command:?}: {}", end.err);
    end.out
}

async fn ctl_fails(socket: &Path, command: &[&str]) -> String {
    let args = [&["sim", "ctl", "--socket", word(socket)], command].concat();
    let end = Running::start(&args).end().await;
    assert_eq!(end.code(), Some(1), "{command:?}");
    assert_eq!(end.out, "");
    end.err
}

#[tokio::test]
async fn a_simulated_runtime_is_commanded_while_it_runs() {
    let place = Place::new();
    let socket = place.path("cri.sock");
    let flags = ["--mode", "crio", "--runtime-version", "1.31.0"];
    let chaos = ["--chaos", "version.fail=internal@#1", "--chaos", "drop=#1"];
    let start = ["sim", "--empty", "--socket", word(&socket)];
    let mut running = Running::start(&[&start[..], &flags, &chaos].concat());
    let said = running.said().await.expect("it says where it listens");
    assert!(said.contains("(crio)"), "{said}");
    let shown = ctl(&socket, &[]).await;
    assert_eq!(
        shown,
        "mode crio: cri-o 1.31.0, serving\n\
         0 sandboxes, 0 containers\n\
         0 subscribers; events: 0 held, 0 discarded, 0 dropped\n\
         chaos:\n  drop=#1\n  version.fail=internal@#1\n"
    );

    let kubelet = kubelet(&socket, place.dir());
    let pod = kubelet.run_pod("web").await.expect("it runs");
    let id = kubelet
        .create(&pod, "app", 0, Life::UntilStopped)
        .await
        .expect("it is created");
    kubelet.start(&id).await.expect("it starts");
    assert_eq!(ctl(&socket, &["calm"]).await, "");
    assert_eq!(ctl(&socket, &["exit", id.as_str(), "7"]).await, "");
    let shown = ctl(&socket, &["show"]).await;
    assert!(shown.contains("1 sandboxes, 1 containers\n"), "{shown}");
    assert!(shown.ends_with("no chaos\nfired:\n  drop 1\n"), "{shown}");

    let pods = Running::start(&["pods", "-o", "json", "-r", word(&socket)])
        .end()
        .await;
    let pods: serde_json::Value =
        serde_json::from_str(pods.out.lines().next().expect("a pod")).expect("JSON");
    assert!(pods.to_string().contains("\"exitCode\":7"), "{pods}");

    assert_eq!(
        ctl(&socket, &["restart", "kill", "containers=lost"]).await,
        ""
    );
    assert_eq!(ctl(&socket, &["list_containers.hang", "drop=5%"]).await, "");
    assert!(
        ctl(&socket, &[])
            .await
            .ends_with("  list_containers.hang=on\nfired:\n  drop 1\n")
    );
    let wrong = ctl_fails(&socket, &["drop=often"]).await;
    assert!(
        wrong.contains("drop=often: not a rate, such as 5%"),
        "{wrong}"
    );
    let wrong = ctl_fails(&socket, &["restart", "soon"]).await;
    assert!(wrong.contains("restart: it takes no \"soon\""), "{wrong}");

    running.signal("TERM").await;
    assert_eq!(running.end().await.code(), Some(0));
    assert!(!place.path("cri.sock.ctl").exists());
    let wrong = ctl_fails(&socket, &["show"]).await;
    assert!(
        wrong.contains("no simulated runtime takes commands on"),
        "{wrong}"
    );
}

/// What differs without a stream shows in what `watch` says of where its news come from.
#[tokio::test]
async fn every_mode_that_serves_can_be_watched() {
    for mode in [
        "containerd-1.7",
        "containerd-2",
        "crio",
        "crio-disabled",
        "unimplemented",
    ] {
        let sim = format!("--sim={mode}");
        let mut watch = Running::start(&["watch", &sim, "-o", "json"]);
        let event: serde_json::Value =
            serde_json::from_str(&watch.line().await.expect("an event")).expect("JSON");
        assert!(event["pod"].is_object(), "{mode}: {event}");
    }
}

/// A client in plain python, with an HTTP/2 and a protobuf of its own.
#[tokio::test]
async fn another_client_drives_it() {
    let sim = Sim::up().await;
    let pod = sim.kubelet.run_pod("web").await.expect("it runs");
    let id = sim
        .kubelet
        .create(&pod, "app", 0, Life::UntilStopped)
        .await
        .expect("it is created");
    sim.kubelet.start(&id).await.expect("it starts");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/containerd/cri.py");
    for (command, ends_well) in [
        (&["ready"][..], true),
        (&["image", "app:1"], false),
        (&["remove-pods"], true),
    ] {
        let client = tokio::process::Command::new("python3")
            .arg(&script)
            .arg(&sim.socket)
            .args(command)
            .stdin(Stdio::null())
            .output()
            .await
            .expect("python3 runs");
        let said = String::from_utf8_lossy(&client.stderr);
        assert_eq!(client.status.success(), ends_well, "{command:?}: {said}");
    }
    let left = sim.kubelet.container_status(&id).await.expect("it answers");
    assert!(left.is_none(), "{left:?}");
}
