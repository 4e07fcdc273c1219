//! Runs the manifests of real projects on a real containerd. The containers run a tiny test image instead of their own,
//! and host paths point into a directory of the test.

use std::path::Path;

use anyhow::Context as _;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use pleg::core::Mode;
use pleg_tests::daemon::{Daemon, Version};
use pleg_tests::static_pods::process::StaticPods;
use pleg_tests::wait::until;
use serde_json::{Value, json};

use crate::{SOON, with_daemon};

/// The one manifest that the mini-kubelet must reject, because it does not support image volumes.
const REFUSED: &str = "kops-etcd-manager-main.yaml";

#[tokio::test(flavor = "multi_thread")]
async fn mini_kubelet_runs_the_manifests_of_real_projects() -> anyhow::Result<()> {
    with_daemon(Version::V2, async |daemon: &Daemon| {
        let host = daemon.dir.join("host");
        let _mounted = SharedMount::new(&host)?;
        let mut kubelet = StaticPods::new(daemon, Mode::Evented)?;
        kubelet.start().await?;
        let real = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../crates/static-pods/tests/suite/manifests/real"
        );
        let mut ran = 0;
        for file in std::fs::read_dir(real)? {
            let file = file?;
            let manifest = serde_saphyr::from_str(&std::fs::read_to_string(file.path())?)?;
            let name = file.file_name().to_string_lossy().into_owned();
            if name != REFUSED {
                run(&kubelet, &on_this_node(manifest, daemon, &host)?)
                    .await
                    .context(name)?;
                ran += 1;
            }
        }
        assert_eq!(ran, 20);
        let metrics = kubelet.get("/metrics").await?;
        assert!(metrics.contains("kubelet_runtime_operations_duration_seconds_bucket{"));
        kubelet.terminate().await?;
        Ok(())
    })
    .await
}

/// Runs this manifest as the only pod of the node until all of its containers run, and removes it.
async fn run(kubelet: &StaticPods, manifest: &Value) -> anyhow::Result<()> {
    let file = kubelet.manifests.join("pod.yaml");
    std::fs::write(&file, manifest.to_string())?;
    let running = until(SOON, "its containers run", || async {
        let pods = pods(kubelet).await.ok()?;
        let status = &pods.first()?["status"];
        let containers = status["containerStatuses"].as_array()?;
        let all_run = containers.iter().all(|c| c["state"]["running"].is_object());
        let expected = manifest["spec"]["containers"].as_array()?.len();
        (all_run && containers.len() == expected && status["phase"] == "Running").then_some(())
    });
    if let Err(error) = running.await {
        let shown = kubelet.get("/pods").await?;
        return Err(error.context(format!("{shown}\n{}", kubelet.end_of_log())));
    }
    std::fs::remove_file(&file)?;
    until(SOON, "it is gone", || async {
        pods(kubelet).await.ok()?.is_empty().then_some(())
    })
    .await
}

async fn pods(kubelet: &StaticPods) -> anyhow::Result<Vec<Value>> {
    let list: Value = serde_json::from_str(&kubelet.get("/pods").await?)?;
    Ok(list["items"].as_array().context("items")?.clone())
}

/// Replaces all programs in the manifest by the program of the test image, and moves host paths into `host`.
fn on_this_node(mut manifest: Value, daemon: &Daemon, host: &Path) -> anyhow::Result<Value> {
    let spec = &mut manifest["spec"];
    for volume in array(&mut spec["volumes"]) {
        if let Some(path) = volume["hostPath"]["path"].as_str() {
            let path = host.join(path.trim_start_matches('/'));
            make(&path, volume["hostPath"]["type"].as_str())?;
            volume["hostPath"]["path"] = json!(path);
        }
    }
    for (list, command) in [
        ("initContainers", json!(["/app", "exit", "0"])),
        ("containers", json!(["/app", "pause"])),
    ] {
        for container in array(&mut spec[list]) {
            container["image"] = json!(daemon.image);
            container["command"] = match container["restartPolicy"] == "Always" {
                true => json!(["/app", "pause"]),
                false => command.clone(),
            };
            container["args"] = json!([]);
        }
    }
    Ok(manifest)
}

/// Creates the file or directory that a hostPath volume of this type expects.
fn make(path: &Path, kind: Option<&str>) -> std::io::Result<()> {
    let parent = path.parent().unwrap_or(path);
    std::fs::create_dir_all(parent)?;
    match kind.unwrap_or_default() {
        "File" => std::fs::write(path, ""),
        "" | "Directory" => std::fs::create_dir_all(path),
        _ => Ok(()),
    }
}

fn array(value: &mut Value) -> impl Iterator<Item = &mut Value> {
    value.as_array_mut().into_iter().flatten()
}

/// A directory whose mounts propagate, like the root of most nodes. Some manifests need mount propagation.
struct SharedMount<'a>(&'a Path);

impl<'a> SharedMount<'a> {
    fn new(at: &'a Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(at)?;
        let none: Option<&str> = None;
        mount(Some(at), at, none, MsFlags::MS_BIND, none)?;
        let mounted = Self(at);
        mount(none, at, none, MsFlags::MS_SHARED, none)?;
        Ok(mounted)
    }
}

impl Drop for SharedMount<'_> {
    fn drop(&mut self) {
        // Ignore an error of the unmount: the removal of the daemon's directory then fails, and the test reports that.
        let _ = umount2(self.0, MntFlags::MNT_DETACH);
    }
}
