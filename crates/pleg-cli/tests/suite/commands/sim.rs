//! `pleg sim` in its modes, how it stops, its workload, `pleg sim ctl`, and a client that shares no code with this project.

use std::path::Path;
use std::process::Stdio;

use super::run::{PROMPT, Running, Sim, arg, kubelet, run_pod, serve};
use crate::support::TestDir;

/// Runs `pleg sim ctl`, and returns its output and the error.
async fn ctl(socket: &Path, command: &str) -> (String, String) {
    let args = ["sim", "ctl", "--socket", arg(socket)].into_iter();
    let args: Vec<&str> = args.chain(command.split_whitespace()).collect();
    let end = Running::start(&args).end().await;
    let failed = i32::from(!end.err.is_empty());
    assert_eq!(end.code(), Some(failed), "{command}: {}", end.err);
    (end.out, end.err)
}

#[tokio::test]
async fn ctl_commands_take_effect_at_run_time() {
    let dir = TestDir::new();
    let socket = dir.path("cri.sock");
    let flags = ["--mode", "crio", "--runtime-version", "1.31.0"];
    let faults = ["--chaos", "version.fail=internal@#1", "--chaos", "drop=#1"];
    let start = ["sim", "--empty", "--socket", arg(&socket)];
    let mut running = Running::start(&[&start[..], &flags, &faults].concat());
    let message = running.message().await.expect("the mode and the socket");
    assert!(message.contains("(crio)"), "{message}");
    let (shown, _) = ctl(&socket, "").await;
    assert_eq!(
        shown,
        "mode crio: cri-o 1.31.0, serving\n\
         0 sandboxes, 0 containers\n\
         0 subscribers; events: 0 held, 0 discarded, 0 dropped\n\
         faults:\n  drop=#1\n  version.fail=internal@#1\n"
    );
    let kubelet = kubelet(&socket, dir.root());
    let (_, id) = run_pod(&kubelet, "web").await;
    let exit = format!("exit {id} 7");
    for (command, shown, error) in [
        ("reset", "", ""),
        (&exit, "", ""),
        ("show", "1 sandboxes, 1 containers\n", ""),
        ("show", "no faults\nfired:\n  drop 1\n", ""),
        ("drop=often", "", "drop=often: not a rate, such as 5%"),
    ] {
        let (out, err) = ctl(&socket, command).await;
        let is_it = out.contains(shown) && err.contains(error);
        assert!(is_it, "{command}: {out}{err}");
        assert_eq!(err.is_empty(), error.is_empty(), "{command}: {err}");
    }
    let pods = Running::start(&["pods", "-o", "json", "-r", arg(&socket)]);
    let pods = pods.end().await.out;
    assert!(pods.contains("\"exitCode\":7"), "{pods}");
    running.signal("TERM").await;
    assert_eq!(running.end().await.code(), Some(0));
    assert!(!dir.path("cri.sock.ctl").exists());
}

#[tokio::test]
async fn watch_shows_events_in_every_mode() {
    let modes = "containerd-1.7 containerd-2 crio crio-disabled unimplemented";
    for mode in modes.split(' ') {
        let sim = format!("--sim={mode}");
        let mut watch = Running::start(&["watch", &sim, "-o", "json"]);
        let event = watch.event().await;
        assert!(event["pod"].is_object(), "{mode}: {event}");
    }
}

/// The client is written in Python, with its own HTTP/2 and protobuf code.
#[tokio::test]
async fn independent_client_is_served() {
    let sim = Sim::start().await;
    let (_, id) = run_pod(&sim.kubelet, "web").await;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/containerd/cri.py");
    for (command, succeeds) in [
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
        let message = String::from_utf8_lossy(&client.stderr);
        assert_eq!(client.status.success(), succeeds, "{command:?}: {message}");
    }
    let left = sim.kubelet.container_status(&id).await.expect("a status");
    assert!(left.is_none(), "{left:?}");
}

/// Several times, because there was a race once.
#[tokio::test]
async fn simulated_runtime_removes_its_socket_on_exit() {
    for (signal, code) in [("TERM", 0), ("INT", 130)].repeat(4) {
        let sim = Sim::start().await;
        let socket = sim.dir().path("second.sock");
        let running = serve(&socket).await;
        running.signal(signal).await;
        let end = running.end().await;
        assert_eq!(end.code(), Some(code), "{}", end.err);
        assert!(end.took < PROMPT, "{:?}", end.took);
        assert!(!socket.exists(), "after {signal}");
        assert!(sim.socket.exists(), "another runtime's socket remains");
    }
}

#[tokio::test]
async fn simulated_workload_has_same_ids_for_same_seed() {
    let dir = TestDir::new();
    let mut first_ids = Vec::new();
    for seed in ["7", "7", "8"] {
        let socket = dir.path("cri.sock");
        let mut running = Running::start(&["sim", "--socket", arg(&socket), "--seed", seed]);
        running.message().await.expect("the socket");
        let mut watch = Running::start(&["watch", "-o", "json", "-r", arg(&socket)]);
        first_ids.push(watch.event().await["id"].to_string());
        running.signal("TERM").await;
        running.end().await;
    }
    assert_eq!(first_ids[0], first_ids[1]);
    assert_ne!(first_ids[0], first_ids[2]);
}

#[tokio::test]
async fn simulated_runtime_stops_while_calls_hang() {
    let dir = TestDir::new();
    let socket = dir.path("cri.sock");
    let hang = ["--chaos", "all.hang"];
    let args = ["sim", "--empty", "--socket", arg(&socket)];
    let mut sim = Running::start(&[&args[..], &hang].concat());
    sim.message().await.expect("the socket");
    let mut pods = Running::start(&["pods", "-r", arg(&socket)]);
    pods.message().await.expect("the runtime");
    let message = pods.message().await.expect("a notice");
    assert!(message.contains("does not respond"), "{message}");
    sim.signal("TERM").await;
    let end = sim.end().await;
    assert_eq!(end.code(), Some(0), "{}", end.err);
    assert!(end.took < PROMPT, "{:?}", end.took);
}
