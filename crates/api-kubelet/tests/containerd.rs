//! Containers of an API server's pods crash on a real containerd while containerd and the kubelet are killed.
//!
//! Two containers of the same pod and name never run at the same time, every exit code is reported to the API server,
//! and no pod leaves a terminal phase. `PLEG_API_PODS` and `PLEG_API_RESTARTS` make the test longer.

#![allow(clippy::print_stdout, reason = "a test prints what it measured")]

#[path = "suite/api_server.rs"]
#[allow(clippy::unwrap_used, dead_code, reason = "a test's helpers")]
mod api_server;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use axum::http::Method;
use pleg_tests::daemon::{Daemon, Version};
use pleg_tests::environment::number;
use pleg_tests::kubelet::{Kubelet, Life};
use pleg_tests::static_pods::poller::Poller;
use pleg_tests::wait::{until, until_ok};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use api_server::ApiServer;

const PODS: &str = "api/v1/namespaces/test/pods";
/// The time limit of each step.
const PATIENCE: Duration = Duration::from_secs(180);
/// The time for which containerd stays down after a kill.
const AWAY: Duration = Duration::from_secs(1);

fn start(api: &ApiServer, daemon: &Daemon) -> anyhow::Result<Child> {
    let log = daemon.dir.join("api-kubelet.log");
    let mut options = std::fs::File::options();
    let log = options.create(true).append(true).open(log)?;
    let child = Command::new(env!("CARGO_BIN_EXE_api_kubelet"))
        .args(["--node", "n", "--server", &api.url])
        .args(["--back-off-initial", "200", "--back-off-max", "1000"])
        .args(["--endpoint", &daemon.endpoint.to_string()])
        .args(["--cgroup-parent", &daemon.cgroup, "--root"])
        .arg(daemon.dir.join("root"))
        .stderr(log)
        .kill_on_drop(true)
        .spawn()?;
    Ok(child)
}

/// The exit codes that were reported to the API server, by container.
fn reported(history: &[Value]) -> BTreeMap<String, i64> {
    let history = history.iter();
    let statuses = history.map(|pod| &pod["status"]["containerStatuses"]);
    let containers = statuses.filter_map(Value::as_array).flatten();
    let states = containers.flat_map(|c| [&c["state"], &c["lastState"]]);
    let ends = states.filter_map(|state| {
        let end = &state["terminated"];
        let id = end["containerID"].as_str()?.rsplit('/').next()?;
        Some((id.to_owned(), end["exitCode"].as_i64()?))
    });
    ends.collect()
}

/// Pods whose phase changed after it was terminal.
fn revived(history: &[Value]) -> Vec<String> {
    let mut ended: BTreeMap<&str, &Value> = BTreeMap::new();
    let mut revived = Vec::new();
    for pod in history {
        let (uid, phase) = (pod["metadata"]["uid"].as_str(), &pod["status"]["phase"]);
        let uid = uid.unwrap_or_default();
        if ended.get(uid).is_some_and(|before| *before != phase) {
            revived.push(format!("{uid} is {phase} again"));
        }
        if phase == "Failed" || phase == "Succeeded" {
            ended.insert(uid, phase);
        }
    }
    revived
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_codes_are_reported_despite_kills_of_kubelet_and_containerd() -> anyhow::Result<()> {
    let pods = number("PLEG_API_PODS", 6)?;
    let restarts = number("PLEG_API_RESTARTS", 15)?;
    let Some(daemon) = Daemon::up(Version::V2)? else {
        return Ok(());
    };
    let client = Kubelet::new(&daemon)?;
    let poller = Poller::start(client);
    let api = ApiServer::start().await;
    for n in 0..pods {
        let code = i32::try_from(n % 100 + 1)?;
        let after_ms = 300 + u64::from(n) * 37 % 500;
        let job = Life::Exit { code, after_ms };
        // Every fifth pod's container runs only once: its restart policy is Never.
        let policy = if n % 5 == 4 { "Never" } else { "Always" };
        let container = json!({
            "name": "job", "image": daemon.image, "imagePullPolicy": "Never", "command": job.command(),
        });
        let spec = json!({
            "nodeName": "n", "hostNetwork": true, "restartPolicy": policy,
            "terminationGracePeriodSeconds": 2, "containers": [container],
        });
        let metadata = json!({"name": format!("pod-{n}"), "namespace": "test"});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
        api.request(&Method::POST, PODS, &pod)?;
    }
    let mut kubelet = start(&api, &daemon)?;
    for step in 1..=3 {
        let at = u64::from(restarts) * step / 3;
        until(PATIENCE * 4, &format!("{at} restarts"), || async {
            (poller.read(|o| o.restarts("job")) >= at).then_some(())
        })
        .await
        .with_context(|| format!("{} so far", poller.read(|o| o.restarts("job"))))?;
        // Step 1 kills the kubelet, step 2 containerd, step 3 both: then only lists can show which containers exited.
        if step != 2 {
            kubelet.kill().await?;
        }
        if step != 1 {
            daemon.kill()?;
            pleg_tests::wait::pass_time(AWAY).await;
            tokio::task::block_in_place(|| daemon.start())?;
        }
        if step != 2 {
            kubelet = start(&api, &daemon)?;
        }
    }
    until_ok(PATIENCE, "every exit is reported", || async {
        let reported = reported(&api.history(PODS));
        let observed = poller.observed();
        let ends = observed.containers.iter();
        let ends = ends.filter_map(|(id, seen)| Some((id, seen, seen.status.as_ref()?.exit_code)));
        let wrong = ends.filter_map(|(id, seen, code)| {
            let found = reported.get(id.as_str());
            let text = format!("{seen} {id}: {code}, reported {found:?}");
            (found != Some(&i64::from(code))).then_some(text)
        });
        let wrong: Vec<_> = wrong.collect();
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    })
    .await?;
    let observed = poller.observed();
    let (restarts, containers) = (observed.restarts("job"), observed.containers.len());
    println!("{restarts} restarts, {containers} containers");
    ensure!(observed.doubles.is_empty(), "{:?}", observed.doubles);
    ensure!(observed.overlaps().is_empty(), "{:?}", observed.overlaps());
    let revived = revived(&api.history(PODS));
    ensure!(revived.is_empty(), "{revived:?}");
    kubelet.kill().await?;
    daemon.down()
}
