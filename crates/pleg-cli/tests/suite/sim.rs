//! `pleg sim` in its modes, how it stops, `pleg sim ctl`, and a client that shares no code with this project.

use std::path::Path;
use std::process::Command;

use super::run::{Running, Sim, arg, assert_has};

#[tokio::test]
async fn ctl_commands_take_effect_at_run_time() {
    let faults = "--chaos version.fail=internal@#1 --chaos drop=#1";
    let flags = format!("--empty --mode crio --runtime-version 1.31.0 {faults}");
    let mut sim = Sim::with(&flags).await;
    let ctl = async |command: &str| {
        let end = sim.ctl(command).end().await;
        let failed = i32::from(!end.err.is_empty());
        assert_eq!(end.code, Some(failed), "{command}: {}", end.err);
        end.out + &end.err
    };
    let shown = "mode crio: cri-o 1.31.0, serving\n0 sandboxes, 0 containers\n\
        0 subscribers; events: 0 queued, 0 discarded, 0 dropped\n\
        faults:\n  drop=#1\n  version.fail=internal@#1\n";
    assert_eq!(ctl("").await, shown);
    let (_, id) = sim.run_pod("web").await;
    for (command, shown) in [
        ("reset", ""),
        (&format!("exit {id} 7"), ""),
        ("show", "1 sandboxes, 1 containers\n"),
        ("show", "no faults\nfired:\n  drop 1\n"),
        ("drop=often", "drop=often: not a rate, such as 5%"),
    ] {
        let out = ctl(command).await;
        assert_has(&out, shown);
        assert_eq!(out.is_empty(), shown.is_empty(), "{command}: {out}");
    }
    assert_has(&sim.run("pods -o json").end().await.out, "\"exitCode\":7");
    sim.stop().await;
    assert!(!sim.dir.path("cri.sock.ctl").exists());
}

/// The client is written in Python, with its own HTTP/2 and protobuf code.
#[tokio::test(flavor = "multi_thread")]
async fn client_with_its_own_protobuf_code_is_served() {
    let sim = Sim::start().await;
    let (_, id) = sim.run_pod("web").await;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/containerd/cri.py");
    for command in ["ready", "image app:1", "remove-pods"] {
        let mut client = Command::new("python3");
        client.arg(&script).arg(&sim.socket);
        client.args(command.split(' '));
        let client = client.output().expect("python3 runs");
        let message = String::from_utf8_lossy(&client.stderr);
        let succeeds = client.status.success();
        assert_eq!(succeeds, command != "image app:1", "{command}: {message}");
    }
    let left = sim.kubelet.container_status(&id).await.expect("a status");
    assert!(left.is_none(), "{left:?}");
}

/// Repeated, because a race once made `pleg sim` leave its socket behind. `watch` or `pods` waits, as all calls hang.
#[tokio::test]
async fn simulated_runtime_and_its_client_end_while_calls_hang() {
    let other = Sim::start().await;
    let socket = other.dir.path("second.sock");
    for (signal, code, client) in [("TERM", 0, "watch"), ("INT", 130, "pods")].repeat(4) {
        let sim = format!("sim --empty --chaos all.hang --socket {}", arg(&socket));
        let mut sim = Running::start(&sim);
        sim.message().await;
        let mut client = Running::start(&format!("{client} -r {}", arg(&socket)));
        client.message_with("does not respond").await;
        client.stop("INT", 130).await;
        sim.stop(signal, code).await;
        assert!(!socket.exists(), "after {signal}");
        assert!(other.socket.exists(), "another runtime's socket remains");
    }
}

#[tokio::test]
async fn simulated_workload_has_same_ids_for_same_seed() {
    let mut ids = Vec::new();
    for seed in [7, 7, 8] {
        let sim = Sim::with(&format!("--seed {seed}")).await;
        ids.push(sim.run("watch -o json").event().await["id"].to_string());
    }
    assert!(ids[0] == ids[1] && ids[0] != ids[2], "{ids:?}");
}
